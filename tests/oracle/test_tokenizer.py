# SPDX-License-Identifier: Apache-2.0
"""Token ids against Hugging Face's tokenizers and llama.cpp, on the same GGUF vocabularies.

Known differences, each asserted here so that it cannot grow unseen (docs/tokenizers.md has why):
  - letters and digits added after Unicode 15.0, which newer tables already know;
  - "</s>" where the file has it as ordinary text or markup: llama.cpp makes it a control token;
  - a space before text that follows a user-defined token: llama.cpp puts one, Hugging Face not;
  - characters whose bytes the vocabulary lacks (SmolLM2): llama.cpp keeps their neighbours apart.
"""
import os
import pathlib
import random
import time
import unicodedata

import pytest

import text_peer
from text_peer import BOS_EOS, SPECIAL

pytestmark = pytest.mark.skipif(not text_peer.TOOL.exists(), reason=f"{text_peer.TOOL} is not built")

FULL = bool(os.environ.get("FTK_FULL"))  # every code point instead of a sample: minutes

MODELS = text_peer.files("FTK_MODELS", "*.gguf")
VOCABS = [p for p in text_peer.files("FTK_VOCABS", "ggml-vocab-*.gguf")
          if p.stem[len("ggml-vocab-"):] in ("llama-bpe", "llama-spm", "phi-3", "gpt-2", "qwen2",
                                             "mpt", "starcoder", "refact")]
# One vocabulary twice says nothing new.
FILES = [p for p in MODELS if "q8_0" not in p.name] + VOCABS
SKIP = pytest.param(None, marks=pytest.mark.skip(reason="FTK_MODELS and FTK_VOCABS name no files"))

# Decimal digits that Unicode 16 and 17 added.
NEW_DIGITS = [(0x10D40, 0x10D49), (0x116D0, 0x116E3), (0x11BF0, 0x11BF9), (0x11DE0, 0x11DE9),
              (0x16130, 0x16139), (0x16D70, 0x16D79), (0x16FF4, 0x16FF6), (0x1CCF0, 0x1CCF9),
              (0x1E5F1, 0x1E5FA)]

TEXTS = [
    "", " ", "  ", "\t", "\n", "\n\n", "\r\n", "\n \n", "Hello world", " Hello world",
    "Hello, y'all! I'm sure it's what WE'RE after; they'd say they've 'Sworn'LL 'ſ",
    "你好，世界！这是一个测试。我喜欢机器学习。", "Привет, мир! Как дела? Ёлки-палки.", "مرحبا بالعالم، كيف الحال؟",
    "नमस्ते दुनिया क्षत्रिय श्री", "ภาษาไทยไม่มีช่องว่าง", "한국어 텍스트", "日本語のテキスト、カタカナ。",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 😀😃 1️⃣", "e\u0301 n\u0303 a\u0308\u0304", "a\tb\t\tc \t d",
    "1 12 123 1234 12345 3.14159 1,000,000 0x1F600 ٣٤٥ Ⅷ ½ ²", "What is 3333+777?",
    "def f(x, y=2):\n    if x > y:\n        return x**2  # square\n\n\n    return {'a': [1, 2]}\n",
    "<div class=\"a\">\n\t<p>x &amp; y</p>\n</div>", "a  b and    c      d", "\n\n\n\n\nend", "x\u00a0y\u3000z\u2028w\u0085v",
    "▁a▁▁b ▁", "\x00", "a\x00b", "\ufeffbom", "https://example.org/a?b=c&d=%20#e", "¡¿÷×±≈∑√∞", "_" * 40, "=" * 70,
    "<|im_start|>user\nhi<|im_end|>\n", "<bos>x<eos>y", "[multimodal]<unused3>", "<s>[INST] hi [/INST]",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>", "<|endoftext|> a<|endoftext|>",
    "<|im_start|><|im_start", "<|im_end|", "<<|im_end|>>",
]
POOL = [" ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "'", "'s", "'LL", "A", "the", "ing", "é", "你好", "д", "क्ष", "م", "0",
        "12", "345", "٣", "½", "👍", "👩‍👧", "\u200d", "\u0301", "!", "...", "_", "<", ">", "|", "▁", "\u00a0", "\u3000",
        "\u2028", "ſ", "<|im_end|>", "<|im_start|>", "<eos>", "<|endoftext|>", "<|eot_id|>", "<s>", "<tool_call>"]


def random_character(rng):
    """An assigned one: newer Unicode than 15.0 knows more letters and digits."""
    while True:
        c = chr(rng.choice([rng.randint(0, 0x7F), rng.randint(0x80, 0x24FF), rng.randint(0x2500, 0xD7FF),
                            rng.randint(0xE000, 0x1FFFF), rng.randint(0x20000, 0x10FFFF)]))
        if unicodedata.category(c) != "Cn":
            return c


def random_texts(n, seed):
    rng = random.Random(seed)
    for _ in range(n):
        yield "".join(rng.choices(POOL, k=rng.randint(1, 30)))
    for _ in range(n):
        yield "".join(random_character(rng) for _ in range(rng.randint(1, 20)))


def is_new_digit(c):
    return any(a <= c <= b for a, b in NEW_DIGITS)


def wikitext():
    path = text_peer.DATA / "text" / "wikitext2-test.txt"
    if not path.exists():
        pytest.skip(f"{path} is absent; FTK_TEST_DATA names another folder")
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module", params=FILES or [SKIP], ids=lambda p: p.stem if p else "none")
def file(request):
    return request.param


@pytest.fixture(scope="module")
def ours(file):
    with text_peer.Tokenizer(file) as t:
        yield t


@pytest.fixture(scope="module")
def hugging(file):
    """(parse specials) -> ids of a text, by Hugging Face."""
    pytest.importorskip("tokenizers")
    import hf_tokenizer
    built = {special: hf_tokenizer.build(file, special) for special in (False, True)}
    return lambda text, special=False: built[special].encode(text, add_special_tokens=False).ids


@pytest.fixture(scope="module")
def llama(file):
    """(text, flags) -> ids, by llama.cpp; .ends: its set of end tokens."""
    llama_cpp = pytest.importorskip("llama_cpp")
    model = llama_cpp.Llama(str(file), vocab_only=True, verbose=False)
    vocab = llama_cpp.llama_model_get_vocab(model.model)

    def encode(text, flags=0):
        data = text.encode()
        room = 2 * len(data) + 16
        ids = (llama_cpp.llama_token * room)()
        n = llama_cpp.llama_tokenize(vocab, data, len(data), ids, room, bool(flags & BOS_EOS), bool(flags & SPECIAL))
        assert n >= 0
        return list(ids[:n])

    encode.ends = {i for i in range(model.n_vocab()) if llama_cpp.llama_vocab_is_eog(vocab, i)}
    yield encode
    model.close()


@pytest.fixture(scope="module")
def lost(file):
    """Bytes the vocabulary has no token for: text that needs them loses them."""
    pytest.importorskip("gguf")
    pytest.importorskip("tokenizers")
    import hf_tokenizer
    keys = hf_tokenizer.read(file)
    if keys["model"] != "gpt2":
        return set()
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    letters = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    tokens = set(keys["tokens"])
    return {b for b in range(256) if letters[b] not in tokens}


def loses(text, lost):
    return any(b in lost for b in text.encode())


# ------------------------------------------------------------ Hugging Face

def test_texts_equal_hugging_face(ours, hugging):
    for text in [*TEXTS, *random_texts(400, 1)]:
        for special in (False, True):
            got = ours.encode(text, SPECIAL if special else 0)
            assert got == hugging(text, special), (special, text)


def test_wikitext_equals_hugging_face(ours, hugging):
    text = wikitext()
    start = time.perf_counter()
    want = hugging(text)
    peer = time.perf_counter() - start
    assert ours.encode(text) == want
    seconds = ours.seconds(text)
    size = len(text.encode()) / 1e6
    print(f"\n{size / seconds:.1f} MB/s, Hugging Face {size / peer:.1f} MB/s")
    assert seconds < 1


def test_every_character_equals_hugging_face(ours, hugging):
    """Each code point between letters, spaces, digits and quotes; a sample unless FTK_FULL."""
    codes = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    if not FULL:
        codes = [c for c in codes if c < 0x250 or c % 97 == 0 and c < 0x20000 or c % 4999 == 0]
        codes += [c for a, b in NEW_DIGITS for c in range(a, b + 1)]
    different = set()
    for c in codes:
        text = f"a{chr(c)}b {chr(c)}{chr(c)} 1{chr(c)}'{chr(c)}\n  {chr(c)}"
        if ours.encode(text) != hugging(text):
            different.add(c)
    assert all(is_new_digit(c) for c in different), [hex(c) for c in different if not is_new_digit(c)]


RUNS = {"letter": "a", "capital": "A", "dot": ".", "space": " ", "newline": "\n", "tab": "\t", "digit": "7",
        "han": "好", "emoji": "🦙", "quote": "'", "mixed": " \n"}


@pytest.mark.parametrize("unit", RUNS.values(), ids=RUNS.keys())
def test_long_runs(ours, hugging, unit):
    assert ours.encode(unit * 4096) == hugging(unit * 4096)
    ids = ours.encode(unit * 131072)
    assert ours.decode(ids) == (unit * 131072).encode()
    # 64 times the text: a quadratic step would show as 4096 times the time.
    short, long = ours.seconds(unit * 16384, 5), ours.seconds(unit * 1048576, 1)
    assert long < 64 * 16 * max(short, 5e-4), (short, long)


# --------------------------------------------------------------- llama.cpp

def test_published_ids(ours, file):
    expected = pathlib.Path(f"{file}.out")
    if not expected.exists():
        pytest.skip("no .inp/.out files beside this vocabulary")
    texts = pathlib.Path(f"{file}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = expected.read_text().split("\n")
    assert len(texts) >= 40
    for text, line in zip(texts, lines):
        assert ours.encode(text) == [int(i) for i in line.split()], text


def test_texts_equal_llama_cpp(ours, llama, lost):
    for text in [*TEXTS, *random_texts(400, 2)]:
        if loses(text, lost):
            continue
        for flags in (0, SPECIAL, BOS_EOS, SPECIAL | BOS_EOS):
            assert ours.encode(text, flags) == llama(text, flags), (flags, text)


def test_wikitext_equals_llama_cpp(ours, llama):
    text = wikitext()
    assert ours.encode(text) == llama(text)


def test_end_tokens(ours, llama):
    ends = {i for i, end in enumerate(ours.info()[3]) if end}
    extra = llama.ends - ends
    assert ends <= llama.ends
    # Only "</s>" as text or markup: control tokens of that name are in both sets.
    for i in extra:
        assert ours.decode([i], True) == b"</s>" and ours.decode([i], False) == b"</s>", i


def test_a_small_vocabulary(stories):
    """stories260k: 512 tokens, most text falls back to short pieces and bytes."""
    llama_cpp = pytest.importorskip("llama_cpp")
    model = llama_cpp.Llama(str(stories), vocab_only=True, verbose=False)
    with text_peer.Tokenizer(stories) as ours:
        assert ours.info()[0] == 512
        for text in ["Once upon a time, there was a little girl named Lily.", *TEXTS, *random_texts(200, 6)]:
            if "\u2581" in text:
                continue
            for flags in (0, BOS_EOS):
                want = model.tokenize(text.encode(), add_bos=bool(flags), special=False)
                assert ours.encode(text, flags) == want, (flags, text)
            assert ours.decode(ours.encode(text), True) == text.encode()
    model.close()


# ------------------------------------------------------------- both ways

def test_decode_undoes_encode(ours, lost):
    for text in [*TEXTS, *random_texts(400, 3)]:
        if loses(text, lost):
            continue
        want = text.encode()
        if b"\xe2\x96\x81" in want:  # SentencePiece cannot tell U+2581 from a space
            continue
        for flags in (0, SPECIAL):
            assert ours.decode(ours.encode(text, flags), True) == want, (flags, text)


def test_encode_is_a_fixed_point(ours, lost):
    """Five times round changes nothing: a cached prefix stays good."""
    for text in [*TEXTS, *random_texts(300, 4)]:
        if loses(text, lost) or "\u2581" in text:
            continue
        ids = ours.encode(text, SPECIAL)
        for _ in range(5):
            again = ours.encode(ours.decode(ids, True), SPECIAL)
            assert again == ids, text
