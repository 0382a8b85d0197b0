#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Quality against memory and time of every policy, on one model: what bench/reduction/results is made with.
#
#   sh bench/reduction/frontier.sh MODEL TEXT OUT [CONTEXT] [DOCS] [THREADS]
#
# TEXT is plain prose, here WikiText-2 made ordinary text by tests/oracle/wikitext.py. Writes OUT.csv,
# OUT.svg and OUT.json. FREETOKEN names the program. Its times are only worth something on a machine with nothing else
# to do; the figures of quality and memory do not depend on it.
set -e
model=$1 text=$2 out=$3 context=${4:-2k} docs=${5:-20} threads=${6:-1}
program=${FREETOKEN:-build/freetoken}

# Baselines of the field under their own names, and ours: scored by attention received times value norm,
# per KV head and shared by a layer's heads, merged with and without the size bias.
policies="streamingllm|h2o|snapkv|pyramid|keynorm|random"
shares="kv_keep=0.8|0.6|0.5"
sweep="$policies,$shares;scorer=value|mean,$shares;scorer=value,budget=adaptive,$shares;kv_merge=yes,$shares"
sweep="$sweep;kv_shared=yes,$shares;kv_shared=yes,kv_merge=yes,$shares;kv_shared=yes,kv_merge=yes,no_size_bias=yes,$shares"

"$program" eval "$model" --text "$text" --context "$context" --score 128 --docs "$docs" --threads "$threads" \
    --sweep "$sweep" --csv "$out.csv" --svg "$out.svg" --json > "$out.json"
