# SPDX-License-Identifier: Apache-2.0
"""The reference for KV eviction (bench/reduction/oracle) against definitions written out plainly."""
import dataclasses
import sys

import numpy as np
import pytest

from conftest import ROOT
from twin import Twin

sys.path.insert(0, str(ROOT / "bench" / "reduction" / "oracle"))

from against_engine import SCORERS, compare  # noqa: E402
from reduced_twin import Policy, ReducedTwin, choose, pooled  # noqa: E402

N, MORE = 90, 12


@pytest.fixture(scope="module")
def ids():
    return np.random.default_rng(3).integers(3, 200, N + MORE)


def reduced(path, ids, policy, **options):
    twin = ReducedTwin(path, dtype=np.float64, **options)
    first = twin.read(ids[:N])
    twin.compress(policy)
    return twin, np.concatenate([first, twin.read(ids[N:])]) if len(ids) > N else first


@pytest.mark.parametrize("scorer", SCORERS)
@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3"])
def test_keep_everything_is_the_dense_pass(tiny, family, scorer, ids):
    path = tiny(family)
    expected, _ = Twin(path, dtype=np.float64).forward(ids)
    _, got = reduced(path, ids, Policy(scorer))
    assert np.abs(got - expected).max() < 1e-9


@pytest.mark.parametrize("scorer", SCORERS)
def test_counts_are_exact_and_the_protected_stay(tiny, scorer, ids):
    policy = Policy(scorer, keep=0.55, recent=10)
    twin, _ = reduced(tiny("llama"), ids[:N], policy)
    kept = [[twin.survivors(layer, head) for head in range(twin.n_kv_heads)] for layer in range(twin.n_layers)]
    assert sum(len(p) for heads in kept for p in heads) == round(0.55 * N * twin.n_layers * twin.n_kv_heads)
    for positions in (p for heads in kept for p in heads):
        assert (np.diff(positions) > 0).all()
        assert set(range(4)) | set(range(N - 10, N)) <= set(positions)


def test_evicted_is_as_if_it_could_not_be_seen(tiny, ids):
    """The continuation equals a dense pass whose later queries are forbidden the evicted keys."""
    path = tiny("llama")
    twin, got = reduced(path, ids, Policy("value", keep=0.5, recent=8))

    class Masked(Twin):
        layer_now = -1

        def attention(self, x, layer, positions):
            self.layer_now, self.head_now = layer, -1
            return super().attention(x, layer, positions)

        def attend(self, q, k, distance, local):
            self.head_now += 1
            kept = twin.survivors(self.layer_now, self.head_now // (self.n_heads // self.n_kv_heads))
            hidden = np.setdiff1d(np.arange(N), kept)
            distance = distance.copy()
            distance[N:, hidden] = -1
            return super().attend(q, k, distance, local)

    expected, _ = Masked(path, dtype=np.float64).forward(ids)
    assert np.abs(got - expected).max() < 1e-9
    dense, _ = Twin(path, dtype=np.float64).forward(ids)
    assert np.abs(dense - expected)[N:].max() > 1e-3  # something was lost


def test_weights_of_a_segment_add_up(tiny, ids):
    """Each query gives one unit for each query head, to what it may see."""
    twin = ReducedTwin(tiny("llama"), dtype=np.float64)
    twin.read(ids[:N])
    group = twin.n_heads // twin.n_kv_heads
    for entries in (e for heads in twin.cache for e in heads):
        assert entries.total.sum() == pytest.approx(N * group)
        assert entries.last.sum(axis=1) == pytest.approx(group)
        assert not entries.last[-5:-1, -1].any()  # earlier queries do not see the last key
        assert entries.seen[0] == N and entries.seen[-1] == 1


def test_recent_is_sinks_and_a_window(tiny, ids):
    twin, _ = reduced(tiny("llama"), ids[:N], Policy("recent", keep=40 / N, recent=1))
    for layer in range(twin.n_layers):
        assert twin.survivors(layer, 0).tolist() == [0, 1, 2, 3, *range(N - 36, N)]


def test_a_second_segment_leaves_the_first_alone(tiny, ids):
    twin = ReducedTwin(tiny("llama"), dtype=np.float64)
    twin.read(ids[:60])
    twin.compress(Policy("value", keep=0.5, recent=4))
    before = twin.survivors(0, 0)
    twin.read(ids[60:N])
    twin.compress(Policy("value", keep=0.5, recent=4))
    after = twin.survivors(0, 0)
    assert after[:len(before)].tolist() == before.tolist()
    assert len(after) - len(before) == 15 and after[len(before)] >= 60


def test_pooling_and_choosing():
    assert pooled(np.array([1., 5, 2, 0, 3]), 3).tolist() == [5, 5, 5, 3, 3]
    nothing = np.zeros(5, bool)
    assert choose(np.array([2., 1, 2, 2, 0]), nothing, 2).tolist() == [0, 2]  # ties: the earlier
    assert choose(np.array([2., 1, 2, 2, 0]), np.array([0, 0, 0, 0, 1], bool), 2).tolist() == [0, 4]


def test_a_window_of_the_model_stays_whole(tiny, ids):
    twin, _ = reduced(tiny("gemma3"), ids, Policy("value", keep=0.6, recent=4))
    lengths = {twin.is_local(layer): len(twin.survivors(layer, 0)) for layer in range(twin.n_layers)}
    assert lengths[True] == N + MORE and lengths[False] < N + MORE


class Pretender:
    """An engine that is the twin, with a fault in its policy: what the comparison must notice."""

    def __init__(self, path, policy, fault):
        self.twin, self.policy, self.fault = ReducedTwin(path), policy, fault

    def session(self, **_options):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def reduce(self, **_fields):
        pass

    def prefill(self, ids):
        self.twin.read(ids)
        policy = dataclasses.replace(self.policy, **self.fault) if isinstance(self.fault, dict) else self.policy
        for entries in (e for heads in self.twin.cache for e in heads):
            if self.fault == "late":  # columns of other queries
                entries.last = np.roll(entries.last, 5, axis=0)
            if self.fault == "one head":  # of the group not counted
                entries.last = entries.last - 0.5 * entries.last[:, ::-1]
        self.twin.compress(policy)
        if self.fault == "neighbour":
            heads = self.twin.cache[1]
            heads[0] = dataclasses.replace(heads[0], positions=np.where(heads[0].positions == heads[0].positions[9],
                                                                        heads[0].positions[9] + 1, heads[0].positions))

    def survivors(self, layer, head):
        return self.twin.survivors(layer, head)

    def score(self, ids):
        return self.twin.read(ids)


def judged(path, ids, fault=None, scorer="value"):
    policy = Policy(scorer, keep=0.5, recent=8)
    return compare(ReducedTwin(path), Pretender(path, policy, fault), ids, N, policy)


@pytest.mark.parametrize("scorer", SCORERS)
def test_comparison_accepts_the_twin_itself(tiny, ids, scorer):
    r = judged(tiny("llama"), ids, scorer=scorer)
    assert r["unexplained"] == 0 and r["same"] == 1 and r["kl"] < 1e-12


@pytest.mark.parametrize("fault", ["late", "one head", "neighbour", {"observe": 15}, {"pool": 3}, {"scorer": "snapkv", "pool": 1},
                                   {"scorer": "mean"}, {"sinks": 0}, {"recent": 4}, {"shared": True}], ids=str)
def test_comparison_catches_planted_faults(tiny, ids, fault):
    assert judged(tiny("llama"), ids, fault)["unexplained"] > 0
