# SPDX-License-Identifier: Apache-2.0
"""Is the twin right? Against llama.cpp where it is installed, and against mathematics."""
import gguf
import numpy as np
import pytest

import kquants
import make_tiny
from measures import divergence, perplexity
from twin import Rope, Twin, round_int8

IDS = 100  # tokens of make_tiny.TEXT: more than gemma3's window and than llama3's original context


@pytest.fixture(scope="session")
def peer():
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    import llama_peer
    return llama_peer.Peer


def against_peer(peer, path):
    with peer(path, 256, kv="f32", flash=False) as p:
        ids = p.tokenize(make_tiny.TEXT)[:IDS]
        theirs = p.score(ids)
    return ids, Twin(path, dtype=np.float64).forward(ids)[0], theirs


@pytest.mark.parametrize("family", make_tiny.FAMILIES)
def test_families_equal_llama_cpp(peer, tiny, family):
    _, mine, theirs = against_peer(peer, tiny(family))
    # llama.cpp's GELU is a table of F16 entries; all else is F32 on both sides.
    bound = 1e-5 if family == "gemma3" else 1e-9
    assert divergence(mine, theirs).max() < bound


@pytest.mark.parametrize("kind", make_tiny.TYPES[1:])
def test_types_are_near_llama_cpp(peer, tiny, kind):
    """llama.cpp rounds what enters a product (to INT8, or F16, BF16); decoding errors are larger."""
    _, mine, theirs = against_peer(peer, tiny("llama256", kind))
    assert divergence(mine, theirs).mean() < 0.015


def test_stories_equal_llama_cpp(peer, stories):
    _, mine, theirs = against_peer(peer, stories)
    assert divergence(mine, theirs).max() < 1e-9


def test_stories_reads_as_trained(stories):
    """A wrong pairing in RoPE, head grouping or row order ruins what the model has learned."""
    text = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park."
    pieces = Twin(stories).key("tokenizer.ggml.tokens")
    ids, rest = [1], "▁" + text.replace(" ", "▁")
    while rest:  # longest piece first is close enough to the real segmentation
        piece = max((p for p in pieces if rest.startswith(p)), key=len)
        ids.append(pieces.index(piece))
        rest = rest[len(piece):]
    assert perplexity(Twin(stories).forward(ids)[0], ids) < 6


def test_position_offset_changes_nothing(tiny):
    """Rotary attention sees differences of positions only, so long as nothing is windowed off."""
    twin = Twin(tiny("qwen3"), dtype=np.float64)
    ids = np.arange(3, 40)
    near, far = twin.forward(ids)[0], twin.forward(ids, np.arange(len(ids)) + 1000)[0]
    assert np.abs(near - far).max() < 1e-6


def test_window_hides_what_is_older(tiny):
    """Seven layers, the sixth global: with only local ones a far token has no way to the end."""
    twin = Twin(tiny("gemma3"), dtype=np.float64)
    twin.n_layers = 2
    ids = np.arange(10, 60)
    changed = ids.copy()
    reach = 2 * (twin.window - 1)
    changed[len(ids) - reach - 2] += 1  # one step beyond what two windows reach
    assert np.array_equal(twin.forward(ids)[0][-1], twin.forward(changed)[0][-1])
    changed = ids.copy()
    changed[len(ids) - reach - 1] += 1
    assert not np.array_equal(twin.forward(ids)[0][-1], twin.forward(changed)[0][-1])


def test_pairings_agree_after_a_row_permutation():
    """Interleaved pairs are half-split pairs in another order of rows: what converters permute."""
    x = np.random.default_rng(1).normal(size=(5, 2, 16))
    positions = np.arange(5)
    order = np.arange(16).reshape(2, 8).T.ravel()  # half-split row for each interleaved row
    rope = Rope(16, 10000.0)
    halves = rope.rotate(x, positions, interleaved=False)
    pairs = rope.rotate(x[..., order], positions, interleaved=True)
    assert np.abs(halves[..., order] - pairs).max() < 1e-12


def test_yarn_keeps_fast_pairs_and_stretches_slow_ones():
    plain, yarn = Rope(64, 10000.0), Rope(64, 10000.0, 4.0, "yarn", original_context=2048)
    assert yarn.frequency[0] == plain.frequency[0]
    assert yarn.frequency[-1] == pytest.approx(plain.frequency[-1] / 4)
    assert yarn.stretch == pytest.approx(0.1 * np.log(4) + 1)


def test_rounding_to_int8():
    x = np.array([[127.0, -63.4, 0.2, 0.0], [0, 0, 0, 0]])
    assert np.array_equal(round_int8(x, 4), [[127, -63, 0, 0], [0, 0, 0, 0]])
    short_tail = round_int8(x[:, :3], 2)
    assert np.allclose(short_tail[0], [127, -63, 0.2]) and not short_tail[1].any()


@pytest.mark.parametrize("kind, error", [("Q4_K", 0.09), ("Q5_K", 0.045), ("Q6_K", 0.022)])
def test_k_quants_decode_to_what_was_encoded(kind, error):
    x = np.random.default_rng(2).normal(size=(4, 512)).astype(np.float32)
    kind = gguf.GGMLQuantizationType[kind]
    decoded = gguf.quants.dequantize(kquants.quantize(x, kind), kind)
    assert np.sqrt(((x - decoded) ** 2).mean()) < error
