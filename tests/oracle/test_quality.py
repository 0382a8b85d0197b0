# SPDX-License-Identifier: Apache-2.0
"""Bounds on real files (FTK_MODELS): the INT8 cache against F32, the engine against llama.cpp, and
both against the exact result. bench/quality measures the same on enough text to state a figure;
here the text is short and each bound is widened by three standard errors of so few tokens.

Two nearby distributions p and q differ on the true next token by log p - log q, whose variance is
about 2 KL(p || q): the standard error of a log perplexity ratio over n tokens is sqrt(2 KL / n)."""
import math
import os
import pathlib
import sys

import pytest

import conftest
import ftk

sys.path.insert(0, str(conftest.ROOT / "bench" / "quality"))

import quality  # noqa: E402

CONTEXT, SCORE, WINDOWS = 256, 256, 2

if ftk.find_library() is None:
    pytest.skip("libfreetoken.so is not built", allow_module_level=True)
FILES = sorted(pathlib.Path(os.environ.get("FTK_MODELS", "/nowhere")).glob("*.gguf"))
real_files = pytest.mark.parametrize(
    "path", FILES or [pytest.param(None, marks=pytest.mark.skip("FTK_MODELS names no files"))],
    ids=lambda p: p.stem if p else "none")


@pytest.fixture(scope="module")
def measured():
    """measured(path, sides): sums over the windows, each column of quality.py."""
    results = {}

    def run(path, names):
        if (path, names) not in results:
            text = quality.read_text(conftest.test_data("text", "wikitext2-test.txt"))
            sides = {name: quality.open_side(name, path, CONTEXT + SCORE, 1) for name in names}
            windows = quality.windows_of(quality.our_model(path), text[:60_000], CONTEXT + SCORE)[:WINDOWS]
            rows = [quality.measure(sides, ids, CONTEXT) for ids in windows]
            results[path, names] = {k: sum(row[k] for row in rows) for k in rows[0]}
        return results[path, names]

    return run


def ratio(m, a, b):
    """Perplexity of b over that of a, and three standard errors."""
    change = (m[f"nll {b}"] - m[f"nll {a}"]) / m["n"]
    return math.exp(change), 3 * math.sqrt(2 * m[f"kl {a}|{b}"]) / m["n"]


@real_files
def test_int8_cache_within_three_per_mille_of_f32(path, measured):
    m = measured(path, ("ours-int8", "ours-f32"))
    value, doubt = ratio(m, "ours-f32", "ours-int8")
    assert abs(value - 1) < 0.003 + doubt
    assert m["kl ours-f32|ours-int8"] / m["n"] < 6e-3
    assert m["top ours-f32|ours-int8"] / m["n"] > 0.93


@real_files
def test_perplexity_within_half_a_percent_of_llama_cpp(path, measured):
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    m = measured(path, ("ours-int8", "ours-f32", "peer-f16"))
    for ours in ("ours-int8", "ours-f32"):
        value, doubt = ratio(m, "peer-f16", ours)
        assert abs(value - 1) < 0.005 + doubt, ours


@real_files
def test_no_further_from_exact_than_llama_cpp(path, measured):
    """15 %: the scatter of a mean over so few tokens. An INT8 cache may add 1e-3 nats."""
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    m = measured(path, ("exact", "peer-f16", "ours-f32", "ours-int8"))
    theirs, ours, small = (m[f"kl exact|{side}"] / m["n"] for side in ("peer-f16", "ours-f32", "ours-int8"))
    assert ours < 1.15 * theirs + 1e-6
    assert small < 1.15 * theirs + 1e-3
