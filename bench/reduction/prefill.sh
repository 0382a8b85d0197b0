#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What reducing the prefill itself gains and costs: merging, dropping, shared updates, letting go, near readers,
# sparse prefill, alone.
#
#   sh bench/reduction/prefill.sh MODEL TEXT OUT [CONTEXT] [DOCS] [THREADS] [LET_GO_LAYER]
#
# FREETOKEN names the program. Run it on a machine with nothing else to do: TTFT is half of what it shows.
set -e
model=$1 text=$2 out=$3 context=${4:-4k} docs=${5:-10} threads=${6:-2} layer=${7:-24}
program=${FREETOKEN:-build/freetoken}

sweep="keep=0.9|0.8|0.7|0.5;how=drop,keep=0.9|0.8|0.7|0.5;how=share,keep=0.9|0.8|0.7|0.5;plain-merge,keep=0.9|0.8|0.7"
sweep="$sweep;let_go_layer=$layer;prefill_blocks=0.5|0.25|0.1"

"$program" eval "$model" --text "$text" --context "$context" --score 128 --docs "$docs" --threads "$threads" \
    --sweep "$sweep" --csv "$out.csv" --svg "$out.svg" --json > "$out.json"
