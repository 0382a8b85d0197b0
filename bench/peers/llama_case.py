# SPDX-License-Identifier: Apache-2.0
"""One measurement of llama.cpp in a process of its own: prefill of N tokens, then decode at that
depth. Prints one JSON object. Context just large enough, as a careful user would ask for it."""
import argparse
import json

from llama_peer import Peer, system_info, version


def peak_rss_bytes():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("tokens", type=int, help="0: decode into an empty context")
    parser.add_argument("--decode-tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--kv", default="f16")
    o = parser.parse_args()
    ids = [100 + (i * 7919) % 20000 for i in range(o.tokens)]
    with Peer(o.model, o.tokens + 2 * o.decode_tokens + 8, n_threads=o.threads, kv=o.kv) as peer:
        for _ in range(o.warmup):
            peer.time_prefill(ids or ids[:1] or [100])
            peer.time_decode(4, 100)
        seconds = peer.time_prefill(ids) if ids else peer.time_prefill([100])
        decode = peer.time_decode(o.decode_tokens, 100)
    print(json.dumps({"tokens": o.tokens, "prefill_tok_s": o.tokens / seconds, "decode_tok_s": o.decode_tokens / decode,
                      "peak_rss_bytes": peak_rss_bytes(), "version": version(), "system": system_info()}))


if __name__ == "__main__":
    main()
