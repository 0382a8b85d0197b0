#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds llama.cpp (llama-cpp-python from its PyPI source) for this machine and measures it against
# FreeToken. All that is needed is a built FreeToken and the models:
#   bench/peers/run_peer.sh VENV MODELS OUT [peer_bench.py options]
# VENV is made on first use (a build of about ten minutes on two cores); MODELS is a folder of the
# GGUF files that `freetoken pull` brings. SmolLM2's Q8_0 file is made there from the Q4_1 one by
# llama.cpp's own quantiser when it is missing.
set -eu
if [ $# -lt 3 ]; then
    sed -n '3,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
venv=$1 models=$2 out=$3
shift 3
version=0.3.36
freetoken=${FREETOKEN:-$here/../../build/freetoken}

# With AVX512-FP16 llama.cpp's attention at head size 64 falls into scalar code: not a fair peer.
flags="-march=native -mno-avx512fp16"
case $(uname -m) in aarch64 | arm64) flags="-mcpu=native" ;; esac

if ! "$venv/bin/python" -c "import llama_cpp, sys; sys.exit(llama_cpp.__version__ != '$version')" 2>/dev/null; then
    python3 -m venv "$venv"
    CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-2} \
    CMAKE_ARGS="-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=OFF -DCMAKE_C_FLAGS='$flags' -DCMAKE_CXX_FLAGS='$flags' -DLLAVA_BUILD=OFF -DLLAMA_OPENSSL=OFF" \
        "$venv/bin/pip" install -v --no-cache-dir --no-binary llama-cpp-python \
        "llama-cpp-python==$version" numpy gguf >"$venv/build.log" 2>&1 ||
        { echo "the build failed: $venv/build.log" >&2; exit 1; }
    grep -q -e "$flags.*ggml-cpu" "$venv/build.log" || { echo "llama.cpp was not compiled with $flags" >&2; exit 1; }
fi
"$venv/bin/python" -c "
import sys; sys.path.insert(0, '$here')
import llama_peer, os
print(llama_peer.version(), llama_peer.system_info())
source, target = '$models/smollm2-135m-q4_1.gguf', '$models/smollm2-135m-q8_0.gguf'
if os.path.exists(source) and not os.path.exists(target):
    llama_peer.quantize(source, target)
"
exec "$venv/bin/python" "$here/peer_bench.py" --models "$models" --out "$out" --freetoken "$freetoken" "$@"
