# SPDX-License-Identifier: Apache-2.0
"""One measurement of llama.cpp in a process of its own; prints one JSON object.

Owns: what is timed, and memory as the kernel saw it. Threads, micro-batch and flash attention are
llama_peer's. Before the clock starts the process has run a full micro-batch and a decode.

    peer_worker.py speed model.gguf LENGTH DECODE_TOKENS [KV]
        prefill LENGTH tokens into an empty context, then decode at that depth; LENGTH 0: decode only
    peer_worker.py quality model.gguf TEXT CONTEXT SCORE DOCS [KV]
        perplexity as `freetoken eval` counts it: of the SCORE tokens after each CONTEXT tokens of
        a document, documents cut one after another, each with the model's BOS
"""
import json
import math
import pathlib
import sys

import numpy as np


def memory(field):
    """Bytes: VmRSS (now) or VmHWM (peak) of this process."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


def speed(path, length, n_decode, kv="f16"):
    length, n_decode = int(length), int(n_decode)
    ids = np.random.default_rng(length).integers(100, 20000, max(length, 512)).astype(np.int32)
    before = memory("VmRSS")
    with Peer(path, max(length, 512) + n_decode + 8, kv=kv) as peer:
        ids %= peer.n_vocab
        peer.time_prefill(ids[:512])
        peer.time_decode(4, 100)
        peer.clear()
        result = {}
        if length:
            result["prefill"] = length / peer.time_prefill(ids[:length])
        result["decode"] = n_decode / peer.time_decode(n_decode, 100) if n_decode else None
    return result | {"peak_rss": memory("VmHWM"), "python_rss": before}


def quality(path, text, context, score, n_docs, kv="f16"):
    context, score, n_docs = int(context), int(score), int(n_docs)
    text = pathlib.Path(text).read_bytes()
    total, n = 0.0, 0
    with Peer(path, context + score, kv=kv) as peer:
        ids = peer.tokenize(text, add_special=False)
        begin = peer.tokenize(b"")  # BOS, where the file asks for one
        own = context + score - len(begin)
        for doc in range(n_docs):
            part = ids[doc * (context + score):][:own]
            if len(part) < own:
                break
            peer.clear()
            part = np.concatenate([begin, part]).astype(np.int32)
            rows = [peer.prefill(part[:context])[None]]
            rows += [peer.score(part[at:min(at + 64, len(part) - 1)])
                     for at in range(context, len(part) - 1, 64)]
            target = context
            for block in rows:
                for row in block:
                    row = row.astype(np.float64)
                    top = row.max()
                    total += top + math.log(np.exp(row - top).sum()) - row[part[target]]
                    target += 1
                    n += 1
    return {"perplexity": math.exp(total / n), "tokens": n, "peak_rss": memory("VmHWM")}


if __name__ == "__main__":
    from llama_peer import Peer
    print(json.dumps({"speed": speed, "quality": quality}[sys.argv[1]](*sys.argv[2:])))
