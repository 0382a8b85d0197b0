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
    """{model: {columns: [rows]}}: files of one model with other sides or windows stay apart."""
    runs = collections.defaultdict(list)
    for path in paths:
        with open(path, newline="") as file:
            rows = [{k: v if k == "model" else float(v) for k, v in row.items()} for row in csv.DictReader(file)]
        if rows:
            runs[rows[0]["model"]].append(rows)
    return runs


def mean_error(values):
    n, mean = len(values), sum(values) / len(values)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1)) if n > 1 else math.nan
    return mean, deviation / math.sqrt(n)


def figures(rows):
    """Everything one file says: perplexities, ratios, divergences."""
    out = {"windows": len(rows), "tokens": int(sum(r["n"] for r in rows)), "context": int(rows[0]["context"]),
           "perplexity": {}, "pairs": {}}
    for column in rows[0]:
        if column.startswith("nll "):
            mean, error = mean_error([r[column] / r["n"] for r in rows])
            out["perplexity"][column[4:]] = {"value": math.exp(mean), "error": math.exp(mean) * error}
        elif column.startswith("kl "):
            pair = column[3:]
            a, b = pair.split("|")
            ratio, ratio_error = mean_error([(r["nll " + b] - r["nll " + a]) / r["n"] for r in rows])
            kl, kl_error = mean_error([r[column] / r["n"] for r in rows])
            out["pairs"][pair] = {"ratio": math.exp(ratio), "ratio_error": ratio_error, "kl": kl, "kl_error": kl_error,
                                  "largest_kl": max(r["max " + column] for r in rows),
                                  "top": sum(r["top " + pair] for r in rows) / out["tokens"]}
    return out


def best(runs, pair):
    """The file with most windows among those that have the pair."""
    return max((f for f in runs if pair in f["pairs"]), key=lambda f: f["windows"], default=None)


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

    def against_peer(model, runs):
        f = best(runs, "peer-f16|ours-int8")
        if not f:
            return None
        widest = f["pairs"].get("peer-f16|ours-f32")
        return [model, f"{f['windows']} × {f['tokens'] // f['windows']}",
                *(f"{f['perplexity'][s]['value']:.3f}" for s in ("peer-f16", "ours-int8")),
                percent(f["pairs"]["peer-f16|ours-int8"]), percent(widest) if widest else "",
                f"{100 * f['pairs']['peer-f16|ours-int8']['top']:.2f}"]

    def cache(model, runs):
        f = best(runs, "ours-f32|ours-int8")
        if not f:
            return None
        p = f["pairs"]["ours-f32|ours-int8"]
        theirs = best(runs, "peer-f16|peer-q8_0")
        theirs = theirs["pairs"]["peer-f16|peer-q8_0"] if theirs else None
        return [model, f"{f['windows']} × {f['tokens'] // f['windows']}", percent(p), millis(p), f"{100 * p['top']:.2f}",
                percent(theirs) if theirs else "", millis(theirs) if theirs else ""]

    def exact(model, runs, cell):
        f = best(runs, "exact|ours-int8")
        if not f:
            return None
        sides = ("peer-f16", "ours-f32", "peer-q8_0", "ours-int8")
        return [model, f"{f['windows']} × {f['tokens'] // f['windows']}",
                *(cell(f["pairs"]["exact|" + s]) if "exact|" + s in f["pairs"] else "" for s in sides)]

    def swing(model, runs):
        f = best(runs, "peer-f16|peer-f32-plain")
        return [millis(f["pairs"]["peer-f16|peer-f32-plain"])] if f else [""]

    table("Against llama.cpp on the same file (F16 cache, flash attention)",
          ["model", "windows × tokens", "llama.cpp", "FreeToken, INT8 cache", "difference, %",
           "the same with F32 cache, %", "same top token, %"], [against_peer(*m) for m in models.items()])
    table("INT8 cache against F32 cache",
          ["model", "windows × tokens", "perplexity, %", "mean KL, 1e-3 nats", "same top token, %",
           "llama.cpp's Q8_0 cache against its F16, %", "mean KL, 1e-3 nats"], [cache(*m) for m in models.items()])
    header = ["model", "windows × tokens", "llama.cpp, F16 cache", "FreeToken, F32 cache", "llama.cpp, Q8_0 cache",
              "FreeToken, INT8 cache"]
    table("Distance from the exact result: mean KL, 1e-3 nats", header + ["llama.cpp, F16 flash, from its F32 plain"],
          [r + swing(*m) for m in models.items() if (r := exact(*m, millis))])
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
    models = {model: [figures(rows) for rows in runs] for model, runs in read_runs(args.csv).items()}
    lines, card = markdown(models), {}
    if args.freetoken:
        card = machine(args.freetoken.resolve())
        lines += ["## Machine", "", "| | |", "|---|---|", *(f"| {k} | {v} |" for k, v in card.items())]
    args.out.with_suffix(".md").write_text("\n".join(lines).rstrip() + "\n")
    args.out.with_suffix(".json").write_text(json.dumps({"machine": card, "models": models}, indent=1) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
