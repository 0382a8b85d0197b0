# SPDX-License-Identifier: Apache-2.0
"""Perplexity by llama.cpp of the SCORE tokens that follow each CONTEXT tokens, over at most DOCS
documents cut from the text one after another: the same cut as `freetoken eval`. Prints JSON."""
import json
import sys

import numpy as np
from llama_peer import Peer


def main():
    model, path, context, score, docs = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    with open(path, "rb") as file:
        text = file.read()
    total, count = 0.0, 0
    with Peer(model, context + score + 8) as peer:
        ids = peer.tokenize(text, add_special=False)
        bos = peer.tokenize("", add_special=True)
        size = context + score - len(bos)
        for d in range(min(docs, len(ids) // size)):
            part = np.concatenate([bos, ids[d * size:(d + 1) * size]])
            peer.clear()
            logits = peer.score(part).astype(np.float64)[context - 1:-1]
            top = logits.max(axis=1, keepdims=True)
            log_sum = np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0]
            total += float((log_sum - logits[np.arange(score), part[context:]]).sum())
            count += score
    print(json.dumps({"perplexity": float(np.exp(total / count)), "tokens": count}))


if __name__ == "__main__":
    main()
