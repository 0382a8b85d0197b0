# SPDX-License-Identifier: Apache-2.0
"""FreeToken, llama.cpp and the exact forward pass on the same windows of a text.

Owns: one CSV row for each window of a model: what each SIDE paid for the scored tokens, and for each
PAIR of sides how far apart their distributions were. Rows are written as they come; a run that is
repeated goes on where it ended. tables.py makes the figures out of them.

A side is an engine and the type of its KV cache:
  exact        the twin of tests/oracle: weights decoded to F32, nothing rounded
  ours-int8, ours-f16, ours-f32
  peer-f16, peer-q8_0, peer-f32   llama.cpp with flash attention, peer-f32-plain without

A window is CONTEXT + SCORE tokens, the model's BOS first where its file asks for one; windows follow
one another without overlap, as `freetoken eval` cuts them. The logits after token CONTEXT - 1 and all
later ones are asked for the token that comes next: SCORE predictions.

    quality.py models/smollm2-135m-q4_1.gguf --text wikitext2-test.txt --out results/smollm2.csv
"""
import argparse
import csv
import functools
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "tests" / "oracle"), str(HERE.parent / "peers")]

import ftk  # noqa: E402
from wikitext import detokenise  # noqa: E402

ROWS = 64  # rows of logits held for each side at once
SIDES = "ours-int8,ours-f32,peer-f16"


# ------------------------------------------------------------------------ sides
# A side gives the logits of a window's scored part in blocks: blocks(ids, context) yields
# [ROWS or less, n_vocab] float32, starting with the row after ids[context - 1].

def block_ends(n, context):
    return [(at, min(at + ROWS, n)) for at in range(context, n, ROWS)]


@functools.cache
def our_model(path):
    return ftk.Model(path)


class Ours:
    def __init__(self, path, kv, width, threads):
        self.session = our_model(path).session(context=width, kv=kv, n_threads=threads)

    def blocks(self, ids, context):
        self.session.rewind(0)
        if context > 1:
            self.session.prefill(ids[:context - 1])
        for begin, end in block_ends(len(ids), context):
            yield self.session.score(ids[begin - 1:end - 1])


class Theirs:
    def __init__(self, path, kv, width, threads):
        from llama_peer import Peer
        kv, plain, _ = kv.partition("-plain")
        self.peer = Peer(path, width, n_threads=threads, kv=kv, flash=not plain)

    def blocks(self, ids, context):
        self.peer.clear()
        if context > 1:
            self.peer.prefill(ids[:context - 1])
        for begin, end in block_ends(len(ids), context):
            yield self.peer.score(ids[begin - 1:end - 1])


class Exact:
    def __init__(self, path, kv, width, threads):
        from twin import Twin
        self.twin = Twin(path)
        self.twin.weight = functools.cache(self.twin.weight)  # decoded once, 4 bytes a parameter

    def blocks(self, ids, context):
        logits, _ = self.twin.forward(ids[:-1], last=len(ids) - context)
        for begin, end in block_ends(len(ids), context):
            yield logits[begin - context:end - context]


def open_side(name, path, width, threads):
    engine, _, kv = name.partition("-")
    return {"ours": Ours, "peer": Theirs, "exact": Exact}[engine](path, kv, width, threads)


# ---------------------------------------------------------------------- figures

class Rows:
    """Logits [n, n_vocab] with what several figures need of them. Sums of exponentials are good to
    1e-7 in float32; everything that is subtracted from something near it is a double."""

    def __init__(self, logits):
        self.logits = logits
        self.top = logits.argmax(axis=-1)
        largest = logits.max(axis=-1, keepdims=True)
        weights = np.exp(logits - largest)
        total = weights.sum(axis=-1, dtype=np.float64)
        self.log_sum = largest[:, 0].astype(np.float64) + np.log(total)
        self.probabilities = weights
        self.probabilities /= total[:, None].astype(np.float32)

    def nll(self, targets):
        return self.log_sum - np.take_along_axis(self.logits, targets[:, None], -1)[:, 0]


def divergence(p, q):
    """KL(p || q) in nats for each row: sum p (log p - log q), the log sums taken out of the sum."""
    moved = p.logits - q.logits
    shift = (p.log_sum - q.log_sum).astype(np.float64)
    moved -= shift[:, None].astype(np.float32)
    return np.maximum(0, np.einsum("ij,ij->i", p.probabilities, moved).astype(np.float64))


def pairs_of(sides):
    """Each side against the exact one, our caches against F32, theirs
    against F16, ours against theirs; (reference, other)."""
    pairs = []
    for other in sides:
        own = {"ours": "ours-f32", "peer": "peer-f16"}.get(other.split("-")[0])
        references = ["exact", own] + (["peer-f16"] if own == "ours-f32" else [])
        pairs += [(r, other) for r in references if r in sides and r != other]
    return pairs


def measure(sides, ids, context):
    """Sums over one window."""
    targets = ids[context:].astype(np.int64)
    row = {"n": len(targets)}
    at = 0
    for blocks in zip(*(side.blocks(ids, context) for side in sides.values()), strict=True):
        facts = {name: Rows(block) for name, block in zip(sides, blocks)}
        part = targets[at:at + len(blocks[0])]
        at += len(part)
        for name, rows in facts.items():
            row[f"nll {name}"] = row.get(f"nll {name}", 0) + rows.nll(part).sum()
        for a, b in pairs_of(list(sides)):
            kl = divergence(facts[a], facts[b])
            row[f"kl {a}|{b}"] = row.get(f"kl {a}|{b}", 0) + kl.sum()
            row[f"max kl {a}|{b}"] = max(row.get(f"max kl {a}|{b}", 0), kl.max())
            same = int((facts[a].top == facts[b].top).sum())
            row[f"top {a}|{b}"] = row.get(f"top {a}|{b}", 0) + same
    assert at == len(targets)
    return row


# ---------------------------------------------------------------------- windows

def read_text(path):
    text = path.read_text(encoding="utf-8")
    return detokenise(text) if "wikitext" in path.name else text


def windows_of(model, text, width):
    """Token ids [width] of each window."""
    ids = model.tokenize(text, add_special=False)
    begin = model.tokenize("")  # BOS, where the file asks for one
    own = width - len(begin)
    return [np.concatenate([begin, ids[at:at + own]]).astype(np.int32)
            for at in range(0, len(ids) - own + 1, width)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="CSV; rows are added")
    parser.add_argument("--sides", default=SIDES, help=f"default {SIDES}")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--score", type=int, default=512)
    parser.add_argument("--windows", type=int, default=32, help="0: all of the text")
    parser.add_argument("--skip", type=int, default=0, help="windows left out at the start, measured elsewhere")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()

    width, names = args.context + args.score, args.sides.split(",")
    sides = {name: open_side(name, args.model, width, args.threads) for name in names}
    windows = windows_of(our_model(args.model), read_text(args.text), width)
    if args.windows:
        windows = windows[:args.windows]
    done = 0
    if args.out.exists():
        with open(args.out, newline="") as file:
            done = sum(1 for _ in csv.DictReader(file))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    for index in range(args.skip + done, len(windows)):
        row = {"model": args.model.stem, "context": args.context, "window": index}
        row |= measure(sides, windows[index], args.context)
        with open(args.out, "a", newline="") as file:
            writer = csv.DictWriter(file, list(row))
            if index == args.skip:
                writer.writeheader()
            writer.writerow({k: f"{v:.9g}" if isinstance(v, float) else v for k, v in row.items()})
        print(f"{args.model.stem} window {index + 1}/{len(windows)}", flush=True)


if __name__ == "__main__":
    main()
