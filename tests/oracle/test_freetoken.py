# SPDX-License-Identifier: Apache-2.0
"""Is the engine right? libfreetoken against the twin, layer by layer, on tiny models."""
import os
import pathlib

import numpy as np
import pytest

import ftk
import make_tiny
from measures import divergence, top_agreement
from twin import Twin

N = 100  # tokens: three chunks of 40 in prefill, six windows of gemma3's

if ftk.find_library() is None:
    pytest.skip("libfreetoken.so is not built", allow_module_level=True)


def levels():
    """The scalar kernels and the best of this machine."""
    return ["scalar", None]


def some_ids(path, n=N):
    n_vocab = len(Twin(path).key("tokenizer.ggml.tokens"))
    return np.random.default_rng(7).integers(3, n_vocab, n).astype(np.int32)


def run(path, ids, kv="f32", isa=None, chunk=40):
    """Logits [n, n_vocab] and hidden states as the twin returns them."""
    with ftk.Model(path, isa=isa) as model, model.session(context=256, kv=kv, chunk=chunk) as session:
        layers = session.collect_hidden()
        logits = session.score(ids)
        order = range(-1, model.info.n_layers + 1)
        assert sorted(layers) == list(order)
        return logits, [np.concatenate(layers[layer]) for layer in order]


def relative_error(mine, theirs):
    return float(np.sqrt(((mine - theirs) ** 2).mean() / (mine ** 2).mean()))


def assert_equal_by_layer(expected, got, bound):
    for layer, (mine, theirs) in enumerate(zip(expected, got, strict=True), -1):
        assert mine.shape == theirs.shape
        error = relative_error(mine, theirs)
        assert error < bound, f"layer {layer}: relative error {error:.1e}"


@pytest.mark.parametrize("isa", levels())
@pytest.mark.parametrize("family", make_tiny.FAMILIES)
def test_families_equal_the_twin(tiny, family, isa):
    path = tiny(family)
    ids = some_ids(path)
    expected, hidden = Twin(path, dtype=np.float64).forward(ids)
    got, layers = run(path, ids, isa=isa)
    assert_equal_by_layer(hidden, layers, 1e-5)
    assert divergence(expected, got).max() < 1e-9


@pytest.mark.parametrize("kind", ["F16", "BF16"])
def test_half_floats_equal_the_twin(tiny, kind):
    path = tiny("llama256", kind)
    ids = some_ids(path)
    expected, hidden = Twin(path, dtype=np.float64).forward(ids)
    got, layers = run(path, ids)
    assert_equal_by_layer(hidden, layers, 1e-5)
    assert divergence(expected, got).max() < 1e-9


@pytest.mark.parametrize("isa", levels())
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"])
def test_quantised_types_equal_the_rounding_twin(tiny, kind, isa):
    """Activations are INT8 by blocks of 32 on both sides. A last bit of a float decides now and
    then how a value rounds, so layers drift apart by a part of the rounding noise (2-3 %); the
    embedding, which is only decoded, may not. K-quants: scale x scale is kept in F16."""
    path = tiny("llama256", kind)
    ids = some_ids(path)
    expected, hidden = Twin(path, activation_block=32).forward(ids)
    got, layers = run(path, ids, isa=isa)
    assert relative_error(hidden[0], layers[0]) < (1e-3 if kind.endswith("_K") else 1e-6)
    assert_equal_by_layer(hidden, layers, 0.05)
    exact, _ = Twin(path).forward(ids)
    assert divergence(exact, got).mean() < 1.3 * divergence(exact, expected).mean()


@pytest.mark.parametrize("kv, bound", [("f16", 2e-5), ("int8", 5e-3)])
@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3"])
def test_cache_types_stay_near_the_twin(tiny, family, kv, bound):
    path = tiny(family)
    ids = some_ids(path)
    expected, _ = Twin(path).forward(ids)
    kl = divergence(expected, run(path, ids, kv=kv)[0]).mean()
    assert 0 < kl < bound


@pytest.mark.parametrize("isa", levels())
@pytest.mark.parametrize("family", ["llama", "qwen2-yarn", "gemma3"])
def test_decoding_continues_prefill(tiny, family, isa):
    """Long enough for several segments of pages; decode begins just before a segment's border."""
    path = tiny(family)
    ids = some_ids(path, 1060)
    begin = 1016
    expected, _ = Twin(path).forward(ids)
    with ftk.Model(path, isa=isa) as model, model.session(context=1100, kv="f32") as session:
        got = [session.prefill(ids[:begin])] + [session.decode(token) for token in ids[begin:]]
    assert divergence(expected[begin - 1:], np.array(got)).max() < 1e-8


def test_stories_equal_the_twin(stories):
    """A trained model, head size 8, a feed-forward width that is no multiple of 32."""
    twin = Twin(stories)
    with ftk.Model(stories) as model:
        ids = model.tokenize("Once upon a time, there was a tiny robot who loved apples.")
        expected, hidden = twin.forward(ids)
        got, layers = run(stories, ids)
        assert_equal_by_layer(hidden, layers, 1e-5)
        assert divergence(expected, got).max() < 1e-9
        with model.session(context=128, kv="f32") as session:
            session.prefill(ids)
            text, _ = session.greedy(64)
    logits, _ = twin.forward(np.concatenate([ids, text]))
    assert top_agreement(logits[len(ids) - 1:-1], np.eye(model.info.n_vocab)[text]) == 1


@pytest.mark.parametrize("family", ["llama", "llama256", "llama3", "qwen2", "gemma3"])
def test_tokens_equal_llama_cpp(tiny, family):
    """The tiny vocabularies of each tokenizer kind, on text they were not made from."""
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    from llama_peer import Peer
    text = make_tiny.TEXT + "\n\n  Zürich, 東京 — naïve café 🚣 x=3.14;\tfor(i=0;i<12345;i++)  {\n    }\n" + "a" * 300
    path = tiny(family)
    with ftk.Model(path) as model, Peer(path, 64) as peer:
        assert model.tokenize(text).tolist() == peer.tokenize(text).tolist()


@pytest.mark.parametrize("path", sorted(pathlib.Path(os.environ.get("FTK_MODELS", "/nowhere")).glob("*.gguf"))
                         or [pytest.param(None, marks=pytest.mark.skip("FTK_MODELS names no files"))], ids=str)
def test_real_models_round_no_more_than_the_twin(path):
    """Real weights: no further from exact than the twin that rounds what the engine rounds; the
    factor is the scatter of the mean over so few tokens. An INT8 cache may add 1e-3 (see
    compare_logits.py for the comparison with llama.cpp)."""
    with ftk.Model(path) as model:
        ids = model.tokenize(make_tiny.TEXT * 2)[:N]
    exact, _ = Twin(path).forward(ids)
    rounded = divergence(exact, Twin(path, activation_block=32).forward(ids)[0]).mean()
    assert divergence(exact, run(path, ids, kv="f16")[0]).mean() < 2 * rounded + 1e-6
    assert divergence(exact, run(path, ids, kv="int8")[0]).mean() < 2 * rounded + 1e-3
