# SPDX-License-Identifier: Apache-2.0
"""Perplexity, KL and agreement of the twin after KV eviction, policy by policy, on a real model.

Every document is read once; each setting compresses that same cache and is asked for the tokens that
follow, so settings are paired. Prints one line and one CSV row for each.

    evaluate.py models/smollm2-135m-q4_1.gguf --text wikitext2-test.txt \\
        --setting value:0.8 --setting snapkv:0.8:observe=32,pool=1 --out twin.csv
"""
import argparse
import csv
import functools
import math
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "tests" / "oracle")]

import ftk  # noqa: E402
from measures import divergence, log_probabilities  # noqa: E402
from reduced_twin import Policy, ReducedTwin  # noqa: E402
from wikitext import detokenise  # noqa: E402


def parse_setting(text):
    """scorer:keep[:name=value,...] with whole numbers; shared=1."""
    scorer, keep, *rest = text.split(":")
    options = dict(part.split("=") for part in rest[0].split(",")) if rest else {}
    return Policy(scorer, float(keep), **{k: bool(int(v)) if k == "shared" else int(v) for k, v in options.items()})


def losses(logits, targets):
    return -np.take_along_axis(log_probabilities(logits), targets[:, None].astype(int), -1)[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--setting", action="append", required=True, help="scorer:keep[:observe=16,pool=1,shared=1]")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--score", type=int, default=128)
    parser.add_argument("--docs", type=int, default=6)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()

    twin = ReducedTwin(args.model)
    twin.weight = functools.cache(twin.weight)
    raw = args.text.read_text(encoding="utf-8")
    with ftk.Model(args.model) as model:  # for its tokenizer
        ids = model.tokenize(detokenise(raw) if "wikitext" in args.text.name else raw, add_special=False)
        begin = model.tokenize("")
    width, own = args.context + args.score, args.context + args.score - len(begin)
    settings = {name: parse_setting(name) for name in args.setting}
    documents = [np.concatenate([begin, ids[at:at + own]]) for at in range(0, len(ids) - own + 1, width)][:args.docs]
    rows = []
    for number, document in enumerate(documents):
        twin.clear()
        # The first prediction is the dense read's own, as `freetoken eval` counts it.
        first, targets = twin.read(document[:args.context], last=1), document[args.context:]
        state = twin.state()
        dense = np.concatenate([first, twin.read(document[args.context:-1])])
        for name, policy in settings.items():
            twin.restore(state)
            twin.compress(policy)
            kept = np.mean([len(entries.keys) for heads in twin.cache for entries in heads]) / args.context
            logits = np.concatenate([first, twin.read(document[args.context:-1])])
            rows.append({"setting": name, "document": number, "kept": kept, "tokens": len(targets),
                         "nll dense": losses(dense, targets).sum(), "nll": losses(logits, targets).sum(),
                         "kl": divergence(dense, logits).sum(), "top": int((logits.argmax(-1) == dense.argmax(-1)).sum())})
        print(f"document {number + 1}/{len(documents)}", file=sys.stderr, flush=True)
    if args.out:
        with open(args.out, "w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows({k: f"{v:.9g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    report(rows)


def report(rows):
    print("setting | kept | perplexity | against dense, % | mean KL | same top token, %")
    for name in dict.fromkeys(r["setting"] for r in rows):
        mine = [r for r in rows if r["setting"] == name]
        n = sum(r["tokens"] for r in mine)
        changes = [(r["nll"] - r["nll dense"]) / r["tokens"] for r in mine]
        error = np.std(changes, ddof=1) / math.sqrt(len(changes)) if len(changes) > 1 else math.nan
        print(f"{name} | {np.mean([r['kept'] for r in mine]):.3f} | {math.exp(sum(r['nll'] for r in mine) / n):.3f} | "
              f"{100 * math.expm1(np.mean(changes)):+.2f} ± {100 * error:.2f} | {sum(r['kl'] for r in mine) / n:.4f} | "
              f"{100 * sum(r['top'] for r in mine) / n:.1f}")
    n = sum(r["tokens"] for r in mine)
    print(f"dense | 1 | {math.exp(sum(r['nll dense'] for r in mine) / n):.3f}")


if __name__ == "__main__":
    main()
