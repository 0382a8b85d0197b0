# SPDX-License-Identifier: Apache-2.0
"""Hugging Face tokenizers built from the vocabulary and merges of a GGUF file.

The pipelines are those of the published tokenizer.json files, without their Unicode normalisation
(Qwen's NFC): GGUF does not carry it and neither llama.cpp nor FreeToken applies it.
"""
import functools

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def split(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def digits():
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), BYTE_LEVEL])


PRE = {"smollm": digits, "starcoder": digits, "refact": digits, "gpt-2": lambda: BYTE_LEVEL,
       "mpt": lambda: BYTE_LEVEL, "llama-bpe": lambda: split(LLAMA3), "qwen2": lambda: split(QWEN2)}


@functools.lru_cache(maxsize=1)
def read(path):
    fields = gguf.GGUFReader(str(path)).fields
    return {k.split(".", 2)[-1]: f.contents() for k, f in fields.items()
            if k.startswith("tokenizer.ggml.")}


def sentencepiece_merges(tokens, scores, usable):
    """Every way to make a piece of two others, best piece first: how transformers converts."""
    ids = {t: i for i, t in enumerate(tokens) if usable[i]}
    merges = []
    for piece, i in ids.items():
        pairs = [(piece[:k], piece[k:]) for k in range(1, len(piece))]
        pairs = sorted(((a, b) for a, b in pairs if a in ids and b in ids),
                       key=lambda p: (ids[p[0]], ids[p[1]]))
        merges += [(a, b, scores[i]) for a, b in pairs]
    merges.sort(key=lambda m: (m[2], len(m[0]), len(m[1])), reverse=True)
    return [(a, b) for a, b, _ in merges]


def build(path, special):
    """special: parse control tokens, as FTK_TOKENIZE_SPECIAL does."""
    keys = read(path)
    tokens, types = keys["tokens"], keys["token_type"]
    vocab = {t: i for i, t in enumerate(tokens)}
    if keys["model"] == "gpt2":
        pre = keys["pre"]
        merges = [tuple(m.split(" ", 1)) for m in keys["merges"]]
        t = Tokenizer(models.BPE(vocab, merges, ignore_merges=pre == "llama-bpe"))
        t.pre_tokenizer = PRE[pre]()
        t.decoder = decoders.ByteLevel()
    else:
        usable = [k in (1, 5) for k in types]
        merges = sentencepiece_merges(tokens, keys["scores"], usable)
        t = Tokenizer(models.BPE(vocab, merges, byte_fallback=True, fuse_unk=True,
                                 unk_token=tokens[keys.get("unknown_token_id", 0)]))
        steps = [normalizers.Replace(" ", "\u2581")]
        if keys.get("add_space_prefix", True):
            steps.insert(0, normalizers.Prepend("\u2581"))
        t.normalizer = normalizers.Sequence(steps)
    t.add_tokens([AddedToken(tokens[i], normalized=False) for i, k in enumerate(types) if k == 4])
    if special:
        t.add_special_tokens([AddedToken(tokens[i], normalized=False, special=True)
                              for i, k in enumerate(types) if k in (2, 3)])
    return t
