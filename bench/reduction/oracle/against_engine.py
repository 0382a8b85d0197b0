# SPDX-License-Identifier: Apache-2.0
"""The engine's compressed cache against the twin's: which entries survive, and what it then predicts.

On a file with F32 matrices and an F32 cache both compute the same numbers up to the order of sums, so
every KV head must keep the same entries, save ties: an entry that only one of them kept must score
within `near` of the last one kept. The counts are the engine's own; that their sum is what was asked
for is checked apart.

    tests/oracle/decode_weights.py smollm2-135m-q4_1.gguf smollm2-135m-f32.gguf
    against_engine.py smollm2-135m-f32.gguf --text wikitext2-test.txt --keep 0.5
"""
import argparse
import functools
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "tests" / "oracle")]

import ftk  # noqa: E402
from measures import divergence  # noqa: E402
from reduced_twin import Policy, ReducedTwin, score  # noqa: E402
from wikitext import detokenise  # noqa: E402

SCORERS = ["value", "snapkv", "h2o", "recent", "keynorm", "mean"]


def fields_of(policy):
    """A Policy as fields of ftk_reduction; zeros there mean the engine's defaults, as they do here."""
    return {"scorer": ftk.SCORERS[policy.scorer], "kv_keep": policy.keep, "observe": policy.observe,
            "pool": policy.pool, "sinks": policy.sinks or -1, "recent": policy.recent or -1,
            "kv_shared": policy.shared, "min_length": 1,
            "merge_special": True}  # the twin knows of no special tokens


def unexplained(scores, kept, expected, near):
    """Entries only one side kept and whose score is not that of the border."""
    odd = np.setxor1d(kept, expected)
    if not len(odd):
        return odd
    border = np.median(scores[odd])  # entries swapped at a border score alike
    scale = np.abs(scores).max()
    return odd[np.abs(scores[odd] - border) > near * max(abs(border), 1e-3 * scale)]


def compare(twin, model, ids, n_context, policy, near=1e-3, kv="f32"):
    """Reads n_context ids on both sides, compresses, reads the rest. A dict of what was seen."""
    with model.session(context=len(ids), kv=kv) as session:
        session.reduce(**fields_of(policy))
        session.prefill(ids[:n_context])
        kept = [[np.sort(session.survivors(layer, head)) for head in range(twin.n_kv_heads)]
                for layer in range(twin.n_layers)]
        mine = session.score(ids[n_context:])
    counts = np.array([[len(p) for p in heads] for heads in kept])
    twin.clear()
    twin.read(ids[:n_context], last=1)
    before = [list(heads) for heads in twin.cache]
    twin.compress(policy, counts)
    same = wrong = 0
    for layer in range(twin.n_layers):
        scores = [score(entries, policy) for entries in before[layer]]
        if policy.shared:
            scores = [np.sum(scores, axis=0)] * len(scores)
        for head, got in enumerate(kept[layer]):
            expected = twin.survivors(layer, head)
            same += len(np.intersect1d(got, expected))
            wrong += len(unexplained(scores[head], got, expected, near))
    reduced = twin.read(ids[n_context:])
    local = [twin.is_local(layer) for layer in range(twin.n_layers)]
    return {"kept": int(counts.sum()), "kept full": int(counts[~np.array(local)].sum()), "same": same / counts.sum(),
            "unexplained": wrong, "kl": divergence(reduced, mine).mean(), "counts": counts}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--keep", type=float, default=0.5)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--score", type=int, default=64)
    parser.add_argument("--kv", default="f32", help="the engine's cache")
    parser.add_argument("--scorers", default=",".join(SCORERS))
    args = parser.parse_args()
    twin = ReducedTwin(args.model)
    twin.weight = functools.cache(twin.weight)
    raw = args.text.read_text(encoding="utf-8")
    failed = False
    with ftk.Model(args.model) as model:
        ids = model.tokenize(detokenise(raw)[:16 * (args.context + args.score)])[:args.context + args.score]
        for scorer in args.scorers.split(","):
            for shared in (False, True):
                r = compare(twin, model, ids, args.context, Policy(scorer, args.keep, shared=shared), kv=args.kv)
                failed |= r["unexplained"] > 0
                print(f"{scorer:8s} {'shared' if shared else 'heads ':6s} kept {r['kept']} "
                      f"same {100 * r['same']:.3f} % unexplained {r['unexplained']} KL {r['kl']:.2e}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
