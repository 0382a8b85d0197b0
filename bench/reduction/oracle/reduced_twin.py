# SPDX-License-Identifier: Apache-2.0
"""KV eviction per layer and head in plain NumPy: what the engine's reduced cache is judged by.

Owns: the definition of each scorer and of what is kept, on top of the exact forward pass
(tests/oracle/twin.py). Nothing is fast, nothing is shared with the C code.

A segment is read densely: every query of a layer sees every earlier key. Then compress() keeps, of
each KV head's new entries, the protected and the best-scored. What is read later sees only those.

    twin = ReducedTwin("smollm2-135m-f32.gguf")
    twin.read(ids[:1024])                               # logits [n, n_vocab]
    twin.compress(Policy("snapkv", keep=0.5))
    logits = twin.read(ids[1024:])                      # teacher-forced, over the survivors
    twin.survivors(layer=3, head=1)                     # positions kept

Scores of an entry e of one KV head; p(q, e) is the softmax weight query q gives it, summed over the
query heads that share the KV head (higher stays, ties to the earlier):
  snapkv    sum of p over the last `observe` queries, then the largest of `pool` neighbours (SnapKV)
  h2o       sum of p over all queries of the segment                                       (H2O)
  recent    the latest stay; with the sinks that is a window                       (StreamingLLM)
  keynorm   - |key|: small key norms stay                        (Devoto et al., L2 norm-based)
  value     sum of p over the last `observe` queries x |value|
  mean      mean of p over the queries that saw e x |value|
"""
import dataclasses
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tests" / "oracle"))

from twin import Twin  # noqa: E402

MOST_OBSERVED = 64
OBSERVE = {"snapkv": 32}
POOL = {"snapkv": 7}


@dataclasses.dataclass
class Policy:
    scorer: str
    keep: float = 1.0           # share of the segment's entries, averaged over layers and heads
    observe: int = 0            # last queries looked at; 0: 16, SnapKV 32
    pool: int = 0               # odd; 0: 1, SnapKV 7
    sinks: int = 4              # first tokens of the session that stay
    recent: int = 32            # last tokens of the segment that stay
    shared: bool = False        # one choice for all KV heads of a layer, by the sum of their scores
    shares: np.ndarray = None   # [n_layers, n_kv_heads] kept of each; None: uniform

    def counts(self, entries, n_layers, n_kv_heads):
        """Entries kept of each layer and head, [n_layers, n_kv_heads]; their sum is what was asked for."""
        shares = np.full((n_layers, n_kv_heads), self.keep) if self.shares is None else self.shares
        ends = np.rint(np.cumsum(shares.ravel()) * entries).astype(int)
        return np.diff(ends, prepend=0).reshape(shares.shape)


@dataclasses.dataclass
class Entries:
    """What one KV head holds, oldest first; `fresh` of them, at the end, were not compressed yet."""
    keys: np.ndarray       # [m, head_dim], rotated
    values: np.ndarray     # [m, head_dim]
    positions: np.ndarray  # [m]
    fresh: int = 0
    last: np.ndarray = None   # [up to 64, fresh] weights that each of the last queries of the segment gave
    total: np.ndarray = None  # [fresh] weights of all its queries, summed
    seen: np.ndarray = None   # [fresh] queries that saw the entry


def pooled(scores, width):
    half = width // 2
    return np.array([scores[max(0, i - half):i + half + 1].max() for i in range(len(scores))])


def score(entries, policy):
    """[fresh], higher stays."""
    n = entries.fresh
    keys, values = entries.keys[-n:], entries.values[-n:]
    received = entries.last[-(policy.observe or OBSERVE.get(policy.scorer, 16)):].sum(axis=0)
    value_norms = np.sqrt((values * values).sum(axis=-1))
    scores = {"snapkv": lambda: received,
              "h2o": lambda: entries.total,
              "recent": lambda: np.arange(n, dtype=np.float64),
              "keynorm": lambda: -np.sqrt((keys * keys).sum(axis=-1)),
              "value": lambda: received * value_norms,
              "mean": lambda: entries.total / entries.seen * value_norms}[policy.scorer]()
    return pooled(scores, policy.pool or POOL.get(policy.scorer, 1))


def choose(scores, protected, keep):
    """Ascending indices of the protected and the best others, `keep` in all."""
    order = np.lexsort((np.arange(len(scores)), -scores, ~protected))
    return np.sort(order[:max(keep, protected.sum())])


class ReducedTwin(Twin):
    def __init__(self, path, **options):
        super().__init__(path, **options)
        self.clear()

    def clear(self):
        nothing = np.empty((0, self.head_dim), self.dtype)
        empty = Entries(nothing, nothing, np.empty(0, int))
        self.cache = [[empty] * self.n_kv_heads for _ in range(self.n_layers)]
        self.length = 0

    def state(self):
        """To come back to: nothing in it is changed in place."""
        return [list(heads) for heads in self.cache], self.length

    def restore(self, state):
        self.cache, self.length = [list(heads) for heads in state[0]], state[1]

    def read(self, ids, last=None):
        """Appends ids; logits after each, or after the last ones."""
        logits, _ = self.forward(ids, self.length + np.arange(len(ids)), last)
        self.length += len(ids)
        return logits

    def attention(self, x, layer, positions):
        q, k, v = self.project(x, layer, positions)
        n, group = len(x), self.n_heads // self.n_kv_heads
        out = np.empty_like(q)
        for kv_head, held in enumerate(self.cache[layer]):
            keys, values = np.concatenate([held.keys, k[:, kv_head]]), np.concatenate([held.values, v[:, kv_head]])
            places = np.concatenate([held.positions, positions])
            distance = positions[:, None] - places[None, :]
            given = 0
            for head in range(kv_head * group, (kv_head + 1) * group):
                weights = self.attend(q[:, head], keys, distance, self.is_local(layer))
                out[:, head] = weights @ values
                given = given + weights[:, len(held.keys):]
            self.cache[layer][kv_head] = Entries(keys, values, places, n, given[-MOST_OBSERVED:],
                                                 given.sum(axis=0, dtype=np.float64), np.arange(n, 0, -1))
        return self.linear(out.reshape(n, -1), f"blk.{layer}.attn_output")

    def compress(self, policy, counts=None):
        """Once after reading a segment. counts [n_layers, n_kv_heads]: entries to keep of the
        segment, instead of the policy's own. Layers with a sliding window stay whole."""
        fresh = self.cache[0][0].fresh
        if counts is None:
            counts = policy.counts(fresh, self.n_layers, self.n_kv_heads)
        for layer, heads in enumerate(self.cache):
            if self.is_local(layer):
                continue
            scores = [score(entries, policy) for entries in heads]
            if policy.shared:
                scores = [np.sum(scores, axis=0)] * len(heads)
            for head, entries in enumerate(heads):
                heads[head] = self.compressed(entries, policy, scores[head], counts[layer][head])

    @staticmethod
    def compressed(entries, policy, scores, keep):
        old = len(entries.keys) - entries.fresh
        index = np.arange(entries.fresh)
        protected = (entries.positions[old:] < policy.sinks) | (index >= entries.fresh - policy.recent)
        kept = np.concatenate([np.arange(old), old + choose(scores, protected, keep)])
        return Entries(entries.keys[kept], entries.values[kept], entries.positions[kept])

    def survivors(self, layer, head):
        return self.cache[layer][head].positions
