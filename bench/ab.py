#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares two builds of the program, or two settings of one, taking turns.

A machine that drifts or is shared makes figures of different minutes incomparable; the ratio of
two runs that follow each other is not affected. Every round runs A and B once, in an order that
alternates; printed are the median and the least and greatest of the rounds' ratios B / A.

    bench/ab.py old/freetoken new/freetoken smollm2-135m --prefill 512,4k --depth 0,4k
    bench/ab.py build/freetoken build/freetoken m.gguf --a "--isa avx2" --b "--isa avx512"

Flags that are not listed here go to `freetoken bench` of both.
"""
import argparse
import json
import shlex
import statistics
import subprocess
import sys


def measure(program, model, flags):
    words = [program, "bench", model, "--repeat", "1", "--warmup", "1", "--json", "-", *flags]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(f"{shlex.join(words)} ended with status {done.returncode}")
    cases = json.loads(done.stdout)["cases"]
    # a case is named by what one side varies, so that sides with other threads or KV still match
    varied = [key for key in ("threads", "kv") if len({case[key] for case in cases}) > 1]
    return {" ".join([case["kind"], str(case.get("tokens", case.get("depth"))), *(f"{key}={case[key]}" for key in varied)]):
            case["median_tok_s"] for case in cases}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program_a")
    parser.add_argument("program_b")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--a", default="", help="flags for A alone")
    parser.add_argument("--b", default="", help="flags for B alone")
    parser.add_argument("--json", help="also write every round's figures to this file")
    options, shared = parser.parse_known_args()
    sides = [(options.program_a, shared + shlex.split(options.a)), (options.program_b, shared + shlex.split(options.b))]
    rounds = []
    for number in range(options.rounds):
        result = [None, None]
        for side in ((0, 1) if number % 2 == 0 else (1, 0)):
            program, flags = sides[side]
            result[side] = measure(program, options.model, flags)
        rounds.append(result)
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
    names = [name for name in rounds[0][0] if name in rounds[0][1]]
    if not names:
        sys.exit("the two sides have no case in common")
    print(f"{'':28}{'A tok/s':>10}{'B tok/s':>10}{'B / A':>9}   least - greatest")
    for name in names:
        a, b = ([r[side][name] for r in rounds] for side in (0, 1))
        ratios = [y / x for x, y in zip(a, b)]
        print(f"{name:28}{statistics.median(a):10.1f}{statistics.median(b):10.1f}{statistics.median(ratios):9.3f}"
              f"   {min(ratios):.3f} - {max(ratios):.3f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump([{"a": a, "b": b} for a, b in rounds], f, indent=1)


if __name__ == "__main__":
    main()
