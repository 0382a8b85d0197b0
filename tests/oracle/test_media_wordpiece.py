# SPDX-License-Identifier: Apache-2.0
"""WordPiece ids against Hugging Face's tokenizers: a vocabulary made here, and MiniLM's where FTK_MINILM
names its tokenizer.json. Each is written to GGUF in both spellings, "##" and llama.cpp's U+2581."""
import collections
import json
import os
import pathlib
import random
import unicodedata

import gguf
import pytest
import tokenizers

import test_tokenizer
import text_peer
from text_peer import BOS_EOS, SPECIAL

pytestmark = pytest.mark.skipif(not text_peer.TOOL.exists(), reason=f"{text_peer.TOOL} is not built")
MARKERS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

TEXTS = test_tokenizer.TEXTS + [
    "Café Ünïcödé naïve ÀÉÎÕÜ Ångström ŁÓDŹ", "İstanbul Iğdır ΣΊΣΥΦΟΣ ὈΔΥΣΣΕΎΣ ẞ ß Ǆ ﬁ ﬀ", "東京は日本の首都。漢字kanji混じり",
    "\u00adsoft\u200bhyphen\u200d\u2060x\ufeffy", "\x01\x02a\x1fb\x7fc\x85d", "don't won't it's [CLS] [MASK] ##ing # #",
    "a" * 99, "a" * 100, "a" * 101, "é" * 100, "é" * 101, "e\u0301" * 120, "…—–‘’“”«»¿¡·", "$5 + 3 = 8 ^ ~ ` | < >",
    "한국어 형태소", "ไทย ภาษา", "ʰ ᴬ ⁿ ₂ ① Ⅳ ㎏ ㍻", "\ufffd\ufffd", "豈更車", "🇩🇪 🧑‍🚀", "ａｂｃ ＡＢＣ", "a\u3000b\u2003c\u1680d\u180ee",
]


def made_vocab():
    """Characters of the texts and their frequent pairs and triples, as beginnings and continuations."""
    norm = tokenizers.normalizers.BertNormalizer()
    words = [w for t in TEXTS for w in norm.normalize_str(t).split()]
    letters = sorted({c for w in words for c in w} | set("abcdefghijklmnopqrstuvwxyz0123456789"))
    grams = collections.Counter(w[i:i + n] for w in words for n in (2, 3) for i in range(len(w) - n + 1))
    pieces = [c for c in letters if c != "\u2581"][:-10] + sorted(g for g, n in grams.items() if n > 1 and "\u2581" not in g)
    return MARKERS + pieces + ["##" + p for p in pieces]


def minilm_vocab():
    path = os.environ.get("FTK_MINILM")
    if not path:
        pytest.skip("FTK_MINILM does not name a tokenizer.json")
    vocab = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))["model"]["vocab"]
    return sorted(vocab, key=vocab.get)


def peer_of(vocab, lowercase):
    t = tokenizers.Tokenizer(tokenizers.models.WordPiece({v: i for i, v in enumerate(vocab)}, unk_token="[UNK]",
                                                         max_input_chars_per_word=100))
    t.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    t.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    t.add_special_tokens(MARKERS)
    cls, sep = vocab.index("[CLS]"), vocab.index("[SEP]")
    t.post_processor = tokenizers.processors.BertProcessing(("[SEP]", sep), ("[CLS]", cls))
    return t


def write(path, vocab, spelling, lowercase):
    w = gguf.GGUFWriter(path, "bert")
    w.add_tokenizer_model("bert")
    if spelling == "llama.cpp":
        tokens = [t if t in MARKERS else t[2:] if t.startswith("##") and len(t) > 2 else "\u2581" + t for t in vocab]
    else:
        tokens = vocab
    w.add_token_list(tokens)
    w.add_token_types([3 if t in MARKERS else 1 for t in vocab])
    w.add_uint32("tokenizer.ggml.unknown_token_id", vocab.index("[UNK]"))
    w.add_uint32("tokenizer.ggml.cls_token_id", vocab.index("[CLS]"))
    w.add_uint32("tokenizer.ggml.seperator_token_id", vocab.index("[SEP]"))
    if not lowercase:
        w.add_bool("freetoken.tokenizer.lowercase", False)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


@pytest.fixture(scope="module", params=["made ##", "made llama.cpp", "made cased", "minilm ##", "minilm llama.cpp"])
def pair(request, tmp_path_factory):
    name, spelling = request.param.split()
    lowercase = spelling != "cased"
    vocab = made_vocab() if name == "made" else minilm_vocab()
    path = tmp_path_factory.mktemp("wordpiece") / "vocab.gguf"
    write(path, vocab, spelling, lowercase)
    return text_peer.Tokenizer(path), peer_of(vocab, lowercase)


def same(pair, text):
    ours, peer = pair
    expected = peer.encode(text).ids
    got = ours.encode(text, BOS_EOS | SPECIAL)
    assert got == expected, f"{text!r}: {got} is not {expected}"


def test_texts(pair):
    for text in TEXTS:
        same(pair, text)


def test_random_texts(pair):
    for text in test_tokenizer.random_texts(1500, seed=11):
        same(pair, text)


def test_every_character(pair):
    """Each between two letters, so that dropping, splitting, lowering and marks all show: all of the first
    planes with FTK_FULL, every seventh without."""
    ours, peer = pair
    texts = [f"a{chr(c)}b" for c in range(1, 0x30000, 1 if test_tokenizer.FULL else 7)
             if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) != "Cn"]
    wrong = [t for t, e in zip(texts, peer.encode_batch(texts)) if ours.encode(t, BOS_EOS) != e.ids]
    assert not wrong, [f"U+{ord(t[1]):04X}" for t in wrong]


def test_pairs_are_two_texts_joined(pair):
    """[CLS] a [SEP] b [SEP]: the second text without its first token."""
    ours, peer = pair
    for a, b in zip(TEXTS, reversed(TEXTS)):
        joined = ours.encode(a, BOS_EOS | SPECIAL) + ours.encode(b, BOS_EOS | SPECIAL)[1:]
        assert joined == peer.encode(a, b).ids


def test_time_is_linear(pair):
    ours, _ = pair
    for unit in ("a", "é", "a ", "e\u0301", "\u0301", "你", ".", "\U0001D165\u0301"):
        short, long = (int(1e6 * ours.seconds(unit * n, 3)) for n in (25_000, 100_000))
        assert long < 8 * short + 20_000, f"{unit!r}: {short} us for 25,000, {long} us for 100,000"


def test_random_cuts(pair):
    rng = random.Random(3)
    text = " ".join(TEXTS)
    for _ in range(200):
        start = rng.randrange(len(text))
        same(pair, text[start:start + rng.randrange(200)])
