# SPDX-License-Identifier: Apache-2.0
"""The engine's KV eviction against the NumPy definition (bench/reduction/oracle), on tiny F32 models:
the same survivors in every layer and head, save ties, and the same predictions over them."""
import sys

import numpy as np
import pytest

import conftest
import ftk

sys.path.insert(0, str(conftest.ROOT / "bench" / "reduction" / "oracle"))

from against_engine import SCORERS, compare  # noqa: E402
from reduced_twin import Policy, ReducedTwin  # noqa: E402

if ftk.find_library() is None:
    pytest.skip("libfreetoken.so is not built", allow_module_level=True)
if not hasattr(ftk.library(), "ftk_session_survivors"):
    pytest.skip("this library has no token reduction", allow_module_level=True)

N, MORE = 300, 40


def ids_of(model):
    return np.random.default_rng(11).integers(3, model.info.n_vocab, N + MORE).astype(np.int32)


@pytest.mark.parametrize("shared", [False, True], ids=["heads", "shared"])
@pytest.mark.parametrize("scorer", SCORERS)
@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3"])
def test_the_same_entries_survive(tiny, family, scorer, shared):
    path = tiny(family)
    twin = ReducedTwin(path)
    with ftk.Model(path) as model:
        r = compare(twin, model, ids_of(model), N, Policy(scorer, keep=0.6, shared=shared))
    assert r["unexplained"] == 0
    assert r["same"] > 0.99
    assert r["kl"] < (1e-8 if r["same"] == 1 else 1e-4)
    heads = sum(not twin.is_local(layer) for layer in range(twin.n_layers)) * twin.n_kv_heads
    assert abs(r["kept full"] - 0.6 * N * heads) <= 0.5


@pytest.mark.parametrize("fields", [{"observe": 5}, {"observe": 64}, {"pool": 5}, {"sinks": 0, "recent": 0},
                                    {"sinks": 9, "recent": 50}], ids=str)
def test_parameters_mean_the_same(tiny, fields):
    path = tiny("llama")
    with ftk.Model(path) as model:
        r = compare(ReducedTwin(path), model, ids_of(model), N, Policy("value", keep=0.5, **fields))
    assert r["unexplained"] == 0 and r["same"] > 0.99
