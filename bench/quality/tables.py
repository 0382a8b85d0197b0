# SPDX-License-Identifier: Apache-2.0
"""The figures of quality.py's CSV files: paired ratios with their standard error, as Markdown and JSON.

Owns: the statistics. Tokens of one window are not independent, so windows are the samples: a mean is
that of the windows' means, its error their deviation over the root of their number. A ratio of two
perplexities is exp(mean of the windows' differences in log perplexity): what both sides find hard
cancels out, which leaves an error some forty times smaller than that of either perplexity.

    tables.py results/*.csv --freetoken build/freetoken --out results/quality
"""
import argparse
import collections
import csv
import json
import math
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "peers"))


def read_runs(paths):
    """{model: {context: {window: row}}}; what several files say of one window is put together."""
    runs = collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(dict)))
    for path in paths:
        with open(path, newline="") as file:
            for text in csv.DictReader(file):
                row = {k: float(v) for k, v in text.items() if k != "model"}
                runs[text["model"]][int(row["context"])][int(row["window"])].update(row)
    return runs


def mean_error(values):
    n, mean = len(values), sum(values) / len(values)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1)) if n > 1 else math.nan
    return mean, deviation / math.sqrt(n)


def figures(windows):
    """What the rows of one context say of each pair of sides, {"reference|other": figures}."""
    out = {}
    for pair in dict.fromkeys(c[3:] for row in windows.values() for c in row if c.startswith("kl ")):
        rows = [r for r in windows.values() if "kl " + pair in r]
        a, b = pair.split("|")
        tokens = sum(r["n"] for r in rows)
        loss = {side: [r["nll " + side] / r["n"] for r in rows] for side in (a, b)}
        ratio, ratio_error = mean_error([y - x for x, y in zip(loss[a], loss[b])])
        kl, kl_error = mean_error([r["kl " + pair] / r["n"] for r in rows])
        out[pair] = {"windows": len(rows), "tokens": int(tokens), "context": int(rows[0]["context"]),
                     "perplexity": [math.exp(mean_error(loss[side])[0]) for side in (a, b)],
                     "ratio": math.exp(ratio), "ratio_error": ratio_error, "kl": kl, "kl_error": kl_error,
                     "largest_kl": max(r["max kl " + pair] for r in rows),
                     "top": sum(r["top " + pair] for r in rows) / tokens}
    return out


def best(runs, pair):
    """The pair's figures at the context with most tokens."""
    return max((f[pair] for f in runs if pair in f), key=lambda p: p["tokens"], default=None)


def percent(p):
    return f"{100 * (p['ratio'] - 1):+.3f} ± {100 * p['ratio_error']:.3f}"


def millis(p):
    return f"{1e3 * p['kl']:.2f} ± {1e3 * p['kl_error']:.2f}"


def markdown(models):
    lines = ["# Quality of the dense engine", "",
             "WikiText-2, test, as ordinary text. ± is one standard error over windows. Perplexity of the tokens "
             "after the context of each window.", ""]

    def table(title, header, rows):
        rows = [r for r in rows if r]
        if rows:
            lines.extend([f"## {title}", "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)])
            lines.extend("| " + " | ".join(r) + " |" for r in rows)
            lines.append("")

    def size(p):
        return f"{p['windows']} × {p['tokens'] // p['windows']}"

    def cells(runs, pairs, text):
        return [text(p) if (p := best(runs, pair)) else "" for pair in pairs]

    def against_peer(model, runs):
        p = best(runs, "peer-f16|ours-int8")
        return p and [model, size(p), *(f"{x:.3f}" for x in p["perplexity"]), percent(p),
                      *cells(runs, ["peer-f16|ours-f32"], percent), f"{100 * p['top']:.2f}"]

    def cache(model, runs):
        p = best(runs, "ours-f32|ours-int8")
        return p and [model, size(p), percent(p), millis(p), f"{100 * p['top']:.2f}",
                      *cells(runs, ["peer-f16|peer-q8_0"], percent), *cells(runs, ["peer-f16|peer-q8_0"], millis)]

    def exact(model, runs, text, more=()):
        p = best(runs, "exact|ours-int8")
        sides = ("peer-f16", "ours-f32", "peer-q8_0", "ours-int8")
        return p and [model, size(p), *cells(runs, ["exact|" + s for s in sides] + list(more), text)]

    table("Against llama.cpp on the same file (F16 cache, flash attention)",
          ["model", "windows × tokens", "llama.cpp", "FreeToken, INT8 cache", "difference, %",
           "the same with F32 cache, %", "same top token, %"], [against_peer(*m) for m in models.items()])
    table("INT8 cache against F32 cache",
          ["model", "windows × tokens", "perplexity, %", "mean KL, 1e-3 nats", "same top token, %",
           "llama.cpp's Q8_0 cache against its F16, %", "mean KL, 1e-3 nats"], [cache(*m) for m in models.items()])
    header = ["model", "windows × tokens", "llama.cpp, F16 cache", "FreeToken, F32 cache", "llama.cpp, Q8_0 cache",
              "FreeToken, INT8 cache"]
    table("Distance from the exact result: mean KL, 1e-3 nats", header + ["llama.cpp, F16 flash, from its F32 plain"],
          [exact(*m, millis, ["peer-f16|peer-f32-plain"]) for m in models.items()])
    table("Distance from the exact result: perplexity, %", header, [exact(*m, percent) for m in models.items()])
    return lines


def machine(freetoken):
    from peer_bench import machine_card
    card = machine_card(argparse.Namespace(freetoken=freetoken))
    return {k: v for k, v in card.items() if k not in ("python_rss", "load average at start", "governor", "huge pages")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("csv", type=pathlib.Path, nargs="+")
    parser.add_argument("--freetoken", type=pathlib.Path, help="the program; adds a card of this machine")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="names .md and .json")
    args = parser.parse_args()
    models = {model: [figures(windows) for windows in contexts.values()]
              for model, contexts in read_runs(args.csv).items()}
    lines, card = markdown(models), {}
    if args.freetoken:
        card = machine(args.freetoken.resolve())
        lines += ["## Machine", "", "| | |", "|---|---|", *(f"| {k} | {v} |" for k, v in card.items())]
    args.out.with_suffix(".md").write_text("\n".join(lines).rstrip() + "\n")
    args.out.with_suffix(".json").write_text(json.dumps({"machine": card, "models": models}, indent=1) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
