# SPDX-License-Identifier: Apache-2.0
"""Writes what llama.cpp makes of the first tokens of a text, to compare with later.

Into OUT, for each MODEL.gguf:
  MODEL.text            the very bytes that were tokenized
  MODEL.logits.npy      F32 [n, n_vocab], after each of the first n tokens
  MODEL.logits.bin      as `freetoken eval --dump-logits` writes them: a line "FTKLOGITS <n>
                        <n_vocab>", the ids [n] as INT32, the rows as F32, little-endian
  MODEL.greedy.txt      the continuation: a line per token, "id margin", the margin being best
                        minus second logit
  MODEL.exact.npy       the twin's logits (with --exact)

    make_fixtures.py OUT --text ../shared/data/text/wikitext2-test.txt models/*.gguf
"""
import argparse
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "bench" / "peers")]

from compare_logits import read_text  # noqa: E402
from llama_peer import Peer  # noqa: E402
from twin import Twin  # noqa: E402


def write(out, model, text, n_tokens, n_greedy, exact):
    stem = out / model.stem
    with Peer(model, n_tokens + n_greedy, n_threads=2) as peer:
        ids = peer.tokenize(text)[:n_tokens]
        logits = peer.score(ids)
        tokens, margins = peer.greedy(n_greedy)
    pathlib.Path(f"{stem}.text").write_text(text, encoding="utf-8")
    np.save(f"{stem}.logits.npy", logits)
    with open(f"{stem}.logits.bin", "wb") as file:
        file.write(f"FTKLOGITS {len(ids)} {logits.shape[1]}\n".encode())
        file.write(ids.astype("<i4").tobytes())
        file.write(logits.astype("<f4").tobytes())
    with open(f"{stem}.greedy.txt", "w", encoding="utf-8") as file:
        file.writelines(f"{token} {margin:.6f}\n" for token, margin in zip(tokens, margins))
    if exact:
        np.save(f"{stem}.exact.npy", Twin(model).forward(ids)[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--text", required=True)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--greedy", type=int, default=64)
    parser.add_argument("--exact", action="store_true", help="also the twin's logits")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    text = read_text(args.text)[:args.tokens * 16]
    for model in args.models:
        write(args.out, model, text, args.tokens, args.greedy, args.exact)
        print(model.name)


if __name__ == "__main__":
    main()
