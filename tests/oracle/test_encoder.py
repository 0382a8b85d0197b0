# SPDX-License-Identifier: Apache-2.0
"""Encoders against NumPy twins of their published definitions, and against the models' own runtimes where those and
the data are at hand. FTK_MINILM_DIR names a folder with all-MiniLM-L6-v2, FTK_WHISPER_DIR one with whisper-tiny.en
for CTranslate2."""
import json
import os
import pathlib
import sys

import numpy as np
import pytest

import conftest
import encoder_twin as twin
import ftk
import ftk_encoder as fe

sys.path.insert(0, str(conftest.ROOT / "python"))
from freetoken.convert import families, kwt  # noqa: E402
from freetoken.convert.write import Refused  # noqa: E402

pytestmark = pytest.mark.skipif(ftk.find_library() is None, reason="libfreetoken.so is not built")


def relative(a, b):
    return np.abs(a - b).max() / np.abs(b).max()


def cosine(a, b):
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


# ------------------------------------------------------------------ ViT, DeiT

VITS = {
    "deit-tiny": ({}, 3, (224, 224)),
    "plain": ({"d": 64, "heads": 2, "layers": 3, "patch": 8, "image": 32, "labels": 7, "distilled": False}, 2, (32, 32)),
    "dinov2": ({"d": 96, "heads": 3, "layers": 2, "patch": 14, "image": 70, "labels": 5, "distilled": False, "scale": True,
                "registers": 4}, 3, (70, 70)),
}


@pytest.fixture(scope="module")
def vit_of(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vit")

    def make(name, kind="f32"):
        options, heads, size = VITS[name]
        state = twin.random_vit(7, **options)
        path = folder / f"{name}-{kind}.gguf"
        if not path.exists():
            families.vit(state, name, n_heads=heads).write(path, kind)
        pixels = np.random.default_rng(5).standard_normal((3, *size)).astype(np.float32)
        return path, twin.wide(state), heads, pixels
    return make


@pytest.mark.parametrize("name", VITS)
def test_vit_layer_by_layer(vit_of, name):
    path, state, heads, pixels = vit_of(name)
    states, logits, _ = twin.vit(state, pixels.astype(np.float64), heads)
    with ftk.Model(path) as m, fe.Encoder(m) as e:
        got = e.layers(lambda: e.classify(pixels))
        assert len(got) == len(states)
        assert max(relative(a, b) for a, b in zip(got, states)) < 1e-5
        assert np.abs(e.logits(len(logits)) - logits).max() < 1e-4


def test_vit_int8(vit_of):
    path, state, heads, pixels = vit_of("deit-tiny", "q8_0")
    _, logits, _ = twin.vit(state, pixels.astype(np.float64), heads)
    with ftk.Model(path) as m, fe.Encoder(m) as e:
        e.classify(pixels)
        assert np.corrcoef(e.logits(1000), logits)[0, 1] > 0.999


@pytest.mark.parametrize("name", ["plain", "deit-tiny"])
@pytest.mark.parametrize("r", [1, 3, 8])
def test_merging_is_tome(vit_of, name, r):
    """Token for token where every token went, and the states of the survivors."""
    path, state, heads, pixels = vit_of(name)
    states, _, owners = twin.vit(state, pixels.astype(np.float64), heads, r=r)
    with ftk.Model(path) as m, fe.Encoder(m) as e:
        e.reduce(merge=r)
        got = e.layers(lambda: e.classify(pixels))
        for layer, where in enumerate(owners):
            np.testing.assert_array_equal(e.owners(layer), where, err_msg=f"layer {layer}")
        assert max(relative(a, b) for a, b in zip(got, states)) < 3e-5
        result = e.result()
        assert result.ffn_tokens[0] == result.tokens_in - r and result.multiply_adds < result.multiply_adds_dense


def kept_by_class(state, pixels, heads, layer, share, n_prefix=1):
    """Rows kept before layer + 1: the most attended by the class token in `layer`, all dense before."""
    x = twin.vit(state, pixels, heads)[0][layer]
    p = f"blocks.{layer}."
    y = twin.layer_norm(x, state[p + "norm1.weight"], state[p + "norm1.bias"], 1e-6)
    q, k, _ = np.split(y @ state[p + "attn.qkv.weight"].T + state[p + "attn.qkv.bias"], 3, axis=1)
    n, d = q.shape
    q, k = (t.reshape(n, heads, d // heads).transpose(1, 0, 2) for t in (q, k))
    received = twin.softmax(q[:, :1] @ k.transpose(0, 2, 1) / np.sqrt(d // heads)).sum((0, 1))
    stay = int(np.ceil(share * (n - n_prefix)))
    return sorted([*range(n_prefix), *(n_prefix + np.argsort(-received[n_prefix:], kind="stable")[:stay])])


def test_selection_keeps_what_the_class_token_attends_to(vit_of):
    path, state, heads, pixels = vit_of("plain")
    want = kept_by_class(state, pixels.astype(np.float64), heads, 0, 0.5)
    with ftk.Model(path) as m, fe.Encoder(m) as e:
        e.reduce(keeps=[1, 0.5, 1])
        e.classify(pixels)
        assert np.flatnonzero(e.owners(1) >= 0).tolist() == want
        assert [e.result().attention_tokens[i] for i in range(3)] == [17, 9, 9]
        e.reduce(fine_keeps=[0.5, 1, 1])  # the same scores, used before the feed-forward
        e.classify(pixels)
        assert np.flatnonzero(e.owners(0) >= 0).tolist() == want
        assert e.result().attention_tokens[0] == 17 and e.result().ffn_tokens[0] == 9


def sparse_attention(q, k, v, heads, keys):
    """attention() where each block of a quarter of the rows (of fewer than 96 a half), at most 64, reads `keys` keys in pages of 32."""
    n, d = q.shape
    rows, w = min(64, -(-n // (8 if n < 96 else 16)) * 4), d // heads
    out = np.empty_like(q)
    for h in range(0, d, w):
        pages = [slice(p, min(p + 32, n)) for p in range(0, n, 32)]
        for b in range(0, n, rows):
            mine = q[b:b + rows, h:h + w]
            score = [np.inf] + [mine.mean(0) @ k[p, h:h + w].mean(0) for p in pages[1:]]
            read = np.concatenate([np.arange(n)[pages[p]] for p in sorted(np.argsort(-np.array(score), kind="stable")[:-(-keys // 32)])])
            out[b:b + rows, h:h + w] = twin.softmax(mine @ k[read, h:h + w].T / np.sqrt(w)) @ v[read, h:h + w]
    return out


@pytest.mark.parametrize("keys", [32, 90, 160])
def test_sparse_attention_reads_the_pages_it_chose(vit_of, monkeypatch, keys):
    path, state, heads, pixels = vit_of("deit-tiny")
    monkeypatch.setattr(twin, "attention", lambda q, k, v, heads, size=None: sparse_attention(q, k, v, heads, keys))
    states, _, _ = twin.vit(state, pixels.astype(np.float64), heads)
    with ftk.Model(path) as m, fe.Encoder(m) as e:
        e.reduce(attend=keys)
        got = e.layers(lambda: e.classify(pixels))
        assert max(relative(a, b) for a, b in zip(got, states)) < 1e-5
        assert e.result().multiply_adds < e.result().multiply_adds_dense


@pytest.mark.parametrize("policy", [dict(keep=0.6), dict(keep=0.6, fine_keep=0.8, fuse=True), dict(keep=0.5, by=fe.KEY_NORM),
                                    dict(keep=0.5, by=fe.DISTINCT), dict(merge=8), dict(merge=8, merge_local=True),
                                    dict(merge=4, keep=0.7, fine_keep=0.9),
                                    dict(attend=64), dict(attend=64, keep=0.6, fine_keep=0.8, merge=3)])
def test_batch_equals_one_by_one(vit_of, policy):
    path, _, _, pixels = vit_of("deit-tiny", "q8_0")
    images = [pixels, np.ascontiguousarray(pixels[:, ::-1]), pixels * 0.5]
    with ftk.Model(path) as m, fe.Encoder(m, 2, max_tokens=700, max_inputs=3) as e, fe.Encoder(m, 1) as one:
        e.reduce(**policy)
        one.reduce(**policy)
        e.classify(*images)
        batch = [e.logits(1000, i) for i in range(3)]
        counts = [e.result(i).tokens_out for i in range(3)]
        for i, image in enumerate(images):
            one.classify(image)
            np.testing.assert_array_equal(one.logits(1000), batch[i])
            assert one.result().tokens_out == counts[i]
            assert one.result().multiply_adds < one.result().multiply_adds_dense


def test_keep_everything_is_dense(vit_of):
    path, _, _, pixels = vit_of("deit-tiny", "q8_0")
    with ftk.Model(path) as m, fe.Encoder(m) as e:
        e.classify(pixels)
        dense = e.logits(1000)
        for policy in (dict(keep=1), dict(keep=0.01, min_tokens=500), dict(keeps=[1] * 12, fine_keeps=[1] * 12),
                       dict(keep=0.01, threshold=1e-9), dict(merge=5, merge_similarity=1.0), dict(merges=[0] * 12),
                       dict(attend=198), dict(attend=32, min_tokens=500)):
            e.reduce(**policy)
            e.classify(pixels)
            np.testing.assert_array_equal(e.logits(1000), dense, err_msg=str(policy))


def test_positions_are_resampled(vit_of):
    """A larger picture than the file was made for: bicubic positions, as torch.nn.functional.interpolate gives them."""
    path, state, heads, _ = vit_of("plain")
    torch = pytest.importorskip("torch")
    pixels = np.random.default_rng(6).standard_normal((3, 24, 32)).astype(np.float32)
    grid = torch.tensor(state["pos_embed"][:, 1:]).reshape(1, 4, 4, 64).permute(0, 3, 1, 2)
    grid = torch.nn.functional.interpolate(grid, (3, 4), mode="bicubic", align_corners=False)
    state = dict(state, pos_embed=np.concatenate([state["pos_embed"][:, :1], grid.permute(0, 2, 3, 1).reshape(1, 12, 64).numpy()], 1))
    states, _, _ = twin.vit(state, pixels.astype(np.float64), heads)
    with ftk.Model(path) as m, fe.Encoder(m) as e:
        got = e.layers(lambda: e.classify(pixels))
    assert relative(got[-1], states[-1]) < 1e-5


# ---------------------------------------------------------------------- exits

@pytest.fixture(scope="module")
def exits(tmp_path_factory):
    """A plain ViT with an exit head behind each layer, a scorer before the last."""
    path = tmp_path_factory.mktemp("exit") / "exit.gguf"
    options, heads, _ = VITS["plain"]
    state, g = twin.random_vit(7, **options), np.random.default_rng(1)
    m = families.vit(state, "exits", n_heads=heads)
    heads_ = [(g.standard_normal((7, 64)) * 0.3, g.standard_normal(7)) for _ in range(3)]
    for i, (w, b) in enumerate(heads_):
        m.layer(i, exit_weight=w, exit_bias=b)
    scorer = (g.standard_normal((8, 64)) * 0.2, g.standard_normal((8, 64)) * 0.2, g.standard_normal(8), g.standard_normal(8))
    m.layer(2, select_token_weight=scorer[0], select_context_weight=scorer[1], select_bias=scorer[2], select_out_weight=scorer[3])
    m.write(path, "f32")
    return path, twin.wide(state), heads, heads_, scorer


def test_exits_follow_their_heads(exits):
    path, state, heads, heads_, _ = exits
    g, seen = np.random.default_rng(3), set()
    with ftk.Model(path) as m, fe.Encoder(m) as e:
        for _ in range(12):
            pixels = g.standard_normal((3, 32, 32)).astype(np.float32)
            states, final, _ = twin.vit(state, pixels.astype(np.float64), heads)
            scores = [twin.softmax(states[i + 1][0] @ w.T + b) for i, (w, b) in enumerate(heads_)]
            for tau, patience, least in ((0.5, 0, 0), (0.7, 0, 2), (0, 2, 0), (0.4, 2, 1)):
                agreed, last, leave = 0, -1, None
                for i in range(2):
                    if i + 1 < least:
                        continue
                    agreed = agreed + 1 if scores[i].argmax() == last else 1
                    last = scores[i].argmax()
                    if leave is None and (not tau or scores[i].max() >= tau) and agreed >= max(patience, 1):
                        leave = i
                e.reduce(exit_tau=tau, patience=patience, min_layers=least)
                (label, score), = e.classify(pixels)[0]
                want = twin.softmax(final) if leave is None else scores[leave]
                assert (label, e.result().exited) == (want.argmax(), leave is not None)
                assert abs(score - want.max()) < 1e-5
                assert e.result().layers == (3 if leave is None else leave + 1)
                assert sum(e.result().ffn_tokens[i] > 0 for i in range(3)) == e.result().layers
                seen.add(e.result().layers)
    assert seen == {1, 2, 3}


def test_learned_scorer(exits):
    path, state, heads, _, (token, context, bias, out) = exits
    pixels = np.random.default_rng(9).standard_normal((3, 32, 32)).astype(np.float32)
    x = twin.vit(state, pixels.astype(np.float64), heads)[0][2]
    score = np.maximum(x @ token.T + x.mean(0) @ context.T + bias, 0) @ out
    want = sorted([0, *(1 + np.argsort(-score[1:], kind="stable")[:8])])
    with ftk.Model(path) as m, fe.Encoder(m) as e:
        e.reduce(keeps=[1, 1, 0.5], by=fe.LEARNED)
        e.classify(pixels)
        assert np.flatnonzero(e.owners(2) >= 0).tolist() == want


# ----------------------------------------------------------------- real models

def sst2(n):
    path = conftest.test_data("text", "sst2", "dev.txt")
    return [line.split(" ", 1)[1].strip() for line in path.read_text(encoding="utf-8").split("\n")[:n]]


@pytest.fixture(scope="module")
def minilm():
    folder = os.environ.get("FTK_MINILM_DIR")
    if not folder:
        pytest.skip("FTK_MINILM_DIR names no folder with all-MiniLM-L6-v2")
    folder = pathlib.Path(folder)
    safetensors, tokenizers = pytest.importorskip("safetensors"), pytest.importorskip("tokenizers")
    with safetensors.safe_open(folder / "model.safetensors", "np") as f:
        tensors = {k: f.get_tensor(k) for k in f.keys()}
    config = json.loads((folder / "config.json").read_text())
    vocab = (folder / "vocab.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    ids = [tokenizer.encode(s).ids for s in sst2(200)]
    wide = twin.wide({k: v for k, v in tensors.items() if "position_ids" not in k})
    want = np.stack([twin.bert(wide, config, np.array(i))[-1].mean(0) for i in ids])
    return tensors, config, vocab, ids, want


@pytest.mark.parametrize("kind, least", [("f32", 0.9999), ("q8_0", 0.995)])
def test_minilm_embeds_as_the_original(minilm, tmp_path, kind, least):
    tensors, config, vocab, ids, want = minilm
    families.bert(tensors, config, vocab, "minilm").write(tmp_path / "m.gguf", kind)
    with ftk.Model(tmp_path / "m.gguf") as m, fe.Encoder(m) as e, fe.Encoder(m, max_tokens=4096, max_inputs=50) as many:
        got = np.concatenate([e.embed(i) for i in ids])
        assert cosine(got, want).min() >= least
        np.testing.assert_array_equal(np.concatenate([many.embed(*ids[k:k + 50]) for k in range(0, 200, 50)]), got)


@pytest.mark.parametrize("kind", ["f32", "q8_0"])
def test_kwt_hears_as_its_graph(tmp_path, kind):
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    soundfile = pytest.importorskip("soundfile")
    graph = conftest.test_data("models", "kwt1", "non_stream.tflite")
    labels = (graph.parent / "labels.txt").read_text().split()
    kwt.kwt(graph, labels, "kwt1").write(tmp_path / "k.gguf", kind)
    it = litert.Interpreter(str(graph), experimental_op_resolver_type=litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
                            experimental_preserve_all_tensors=True)
    it.allocate_tensors()
    mfcc = [op for op in it._get_ops_details() if op["op_name"] == "FULLY_CONNECTED"][4]["inputs"][0]
    g = np.random.default_rng(0)
    with ftk.Model(tmp_path / "k.gguf") as m, fe.Encoder(m) as e:
        for path in sorted(conftest.test_data("audio", "command-examples").glob("*.wav")):
            sound, rate = soundfile.read(path, dtype="float32")
            if rate != 16000:
                sound = np.interp(np.arange(0, len(sound), rate / 16000), np.arange(len(sound)), sound)
            for noise in (0, 0.02, 0.1):
                x = np.zeros(16000, np.float32)
                x[:len(sound)] = sound[:16000]
                x += noise * g.standard_normal(16000).astype(np.float32)
                it.set_tensor(0, x[None])
                it.invoke()
                want = twin.softmax(it.get_tensor(it.get_output_details()[0]["index"])[0].astype(np.float64))
                top = e.classify(it.get_tensor(int(mfcc)).reshape(98, 40), k=12)[0]
                assert top[0][0] == want.argmax(), path.name
                assert max(abs(s - want[i]) for i, s in top) < (1e-3 if kind == "f32" else 0.1), path.name


def test_whisper_states_are_ctranslate2s(tmp_path):
    ctranslate2, folder = pytest.importorskip("ctranslate2"), os.environ.get("FTK_WHISPER_DIR")
    if not folder:
        pytest.skip("FTK_WHISPER_DIR names no folder with whisper-tiny.en for CTranslate2")
    from freetoken.convert.ctranslate2 import read
    families.whisper_encoder(read(pathlib.Path(folder) / "model.bin")[1], 6, "whisper").write(tmp_path / "w.gguf", "f32")
    mel = np.random.default_rng(3).standard_normal((80, 3000)).astype(np.float32)
    peer = ctranslate2.models.Whisper(folder, compute_type="float32")
    want = np.array(peer.encode(ctranslate2.StorageView.from_array(mel[None]))).reshape(1500, 384)
    with ftk.Model(tmp_path / "w.gguf") as m, fe.Encoder(m) as e:
        got, = e.encode(np.ascontiguousarray(mel.T))
    assert relative(got, want) < 1e-4


# --------------------------------------------------------------------- refusals

def test_the_converter_is_strict():
    state = twin.random_vit(7, **VITS["plain"][0])
    for change, word in ((lambda s: s.update(extra=np.zeros(3)), "extra"), (lambda s: s.pop("norm.bias"), "norm.bias"),
                         (lambda s: s.update({"blocks.1.norm1.weight": np.zeros(5)}), "shape"),
                         (lambda s: s.update({"head.bias": np.full(7, np.nan)}), "finite")):
        broken = dict(state)
        change(broken)
        with pytest.raises(Refused, match=word):
            families.vit(broken, "broken", n_heads=2)
