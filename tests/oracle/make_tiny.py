# SPDX-License-Identifier: Apache-2.0
"""Writes small GGUF models: random ones of every family and tensor type, and stories260k.

Owns: tiny shapes that still exercise what differs between families (grouped heads, head size
apart from hidden / heads, biases, Q/K norms, windows, RoPE scalings, tied and untied output), a
small real tokenizer for each kind, and the conversion of llama2.c checkpoints.
Leaves to others: checking anything (test_twin.py, test_freetoken.py).

Weights are random but deterministic, scaled so that attention is neither flat nor a single key
and logits spread by a few units.

    make_tiny.py OUT                      every family in F32, every type for llama
    make_tiny.py OUT --family qwen3 --type Q8_0
    make_tiny.py OUT --llama2c ../shared/data/models/stories260k
"""
import argparse
import math
import pathlib
import struct
from collections import Counter

import gguf
import numpy as np

import kquants

Type = gguf.GGMLQuantizationType
Token = gguf.TokenType
TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]

# The shape of each tiny model. rope: scaling, factor, context before it was stretched.
FAMILIES = {
    "llama": dict(arch="llama", tokenizer="spm", hidden=192, heads=6, kv_heads=2, head_dim=32,
                  ffn=256, layers=3, tied=False),
    "llama256": dict(arch="llama", tokenizer="smollm", hidden=256, heads=4, kv_heads=2,
                     head_dim=64, ffn=512, layers=2, tied=True),  # rows fit the K-quants
    "llama-linear": dict(arch="llama", tokenizer="spm", hidden=128, heads=4, kv_heads=4,
                         head_dim=32, ffn=160, layers=2, tied=True, rope=("linear", 4.0, 0)),
    "llama3": dict(arch="llama", tokenizer="llama-bpe", hidden=128, heads=4, kv_heads=1,
                   head_dim=32, ffn=256, layers=3, tied=True, base=500000.0, rope=("llama3", 8.0, 64)),
    "qwen2": dict(arch="qwen2", tokenizer="qwen2", hidden=224, heads=7, kv_heads=1, head_dim=32,
                  ffn=320, layers=3, tied=False, bias=True, base=1e6),
    "qwen2-yarn": dict(arch="qwen2", tokenizer="qwen2", hidden=128, heads=4, kv_heads=2,
                       head_dim=32, ffn=256, layers=2, tied=True, bias=True, base=10000.0,
                       rope=("yarn", 4.0, 1024)),
    "qwen3": dict(arch="qwen3", tokenizer="qwen2", hidden=128, heads=4, kv_heads=2, head_dim=64,
                  ffn=256, layers=3, tied=True, qk_norm=True, base=1e6),
    "gemma3": dict(arch="gemma3", tokenizer="gemma", hidden=128, heads=4, kv_heads=1, head_dim=64,
                   ffn=256, layers=7, tied=True, qk_norm=True, window=16, base=1e6,
                   rope=("linear", 8.0, 0)),
}
CONTEXT = 4096  # what the files say the model was trained with
UNSCALED = ("none", 1.0, 0)

TEXT = """The river runs to the sea and the sea gives it back as rain. Every morning the people of
the town walk down to the water, and every evening they walk home again with what they have found.
There is a stone bridge, there is a mill, and there is an old boat that nobody owns. When the wind
is in the west the boat moves on its rope; when the wind is in the east it lies still. In 1984 the
water stood 3.7 metres over the road, and the mill lost its wheel. "That was the year," they say,
"in which we learned to count the days." Since then they have kept a book: the height of the water,
the weather, the price of bread, and who was born. The children read from it in school. They know
that 12 + 30 = 42, that a metre has 100 centimetres, and that the river was here before the book.
"""


# ---------------------------------------------------------------- tokenizers

def learn_pieces(words, n):
    """Byte-pair merges of a Counter of symbol tuples: the n most frequent pairs, one at a time."""
    words = dict(words)
    merges = []
    while len(merges) < n:
        pairs = Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        merged = Counter()
        for word, count in words.items():
            out, i = [], 0
            while i < len(word):
                step = 2 if word[i:i + 2] == best else 1
                out.append("".join(word[i:i + step]))
                i += step
            merged[tuple(out)] += count
        words = merged
    return merges


def byte_letters():
    """GPT-2's printable stand-ins of the 256 bytes, in the order of its vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(rest)}


def add_bpe(writer, pre, n_merges=120):
    letters = byte_letters()
    words = Counter(tuple(letters[b] for b in word.encode())
                    for word in TEXT.replace(" ", "\0 ").split("\0"))
    merges = learn_pieces(words, n_merges)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens = [*letters.values(), *dict.fromkeys(a + b for a, b in merges), *special]
    bos = len(tokens) - 3
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([Token.NORMAL] * bos + [Token.CONTROL] * 3)
    writer.add_token_merges([f"{a} {b}" for a, b in merges])
    writer.add_bos_token_id(bos)
    writer.add_eos_token_id(bos + 2)
    writer.add_add_bos_token(pre == "llama-bpe")
    return len(tokens)


def add_spm(writer, gemma, n_merges=120):
    special = (["<pad>", "<eos>", "<bos>", "<unk>"] if gemma else ["<unk>", "<s>", "</s>"])
    unknown = special.index("<unk>")
    runs = ["\n\n", "▁▁", "▁▁▁▁", "<start_of_turn>", "<end_of_turn>"] if gemma else []
    words = Counter(tuple(word) for word in TEXT.replace("\n", " ").replace(" ", "\0▁").split("\0"))
    merges = ["".join(pair) for pair in learn_pieces(words, n_merges)]
    pieces = [*dict.fromkeys(merges), *sorted({c for word in words for c in word})]
    tokens = [*special, *runs, *(f"<0x{b:02X}>" for b in range(256)), *pieces]
    n_fixed = len(tokens) - len(pieces)
    types = [Token.CONTROL] * len(special) + [Token.USER_DEFINED] * len(runs) + [Token.BYTE] * 256
    types[unknown] = Token.UNKNOWN
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * n_fixed + [-float(i) for i in range(len(pieces))])
    writer.add_token_types(types + [Token.NORMAL] * len(pieces))
    writer.add_bos_token_id(2 if gemma else 1)
    writer.add_eos_token_id(1 if gemma else 2)
    writer.add_unk_token_id(unknown)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(not gemma)
    return len(tokens)


# --------------------------------------------------------------------- models

def llama3_divisors(head_dim, base, factor, original, low=1.0, high=4.0):
    """Llama 3's scaling: slow pairs are divided by `factor`, fast ones kept, a blend between."""
    frequency = base ** (-np.arange(0, head_dim, 2) / head_dim)
    turns = original * frequency / (2 * math.pi)  # within the original context
    blend = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - blend) / factor + blend)).astype(np.float32)


def add_matrix(writer, name, matrix, kind):
    """kind F32 .. Q6_K; a type whose block does not divide the rows falls back to F32."""
    kind = Type[kind]
    if matrix.shape[1] % gguf.GGML_QUANT_SIZES[kind][0]:
        kind = Type.F32
    writer.add_tensor(name, kquants.quantize(np.ascontiguousarray(matrix), kind), raw_dtype=kind)


def add_hyper(writer, shape, vocab):
    writer.add_vocab_size(vocab)
    writer.add_context_length(CONTEXT)
    writer.add_block_count(shape["layers"])
    writer.add_embedding_length(shape["hidden"])
    writer.add_feed_forward_length(shape["ffn"])
    writer.add_head_count(shape["heads"])
    writer.add_head_count_kv(shape["kv_heads"])
    writer.add_layer_norm_rms_eps(shape.get("epsilon", 1e-5))
    writer.add_rope_freq_base(shape.get("base", 10000.0))
    if shape["head_dim"] * shape["heads"] != shape["hidden"]:
        writer.add_key_length(shape["head_dim"])
        writer.add_value_length(shape["head_dim"])
    elif shape["arch"] == "llama":
        writer.add_rope_dimension_count(shape["head_dim"])
    if "window" in shape:
        writer.add_sliding_window(shape["window"])
    scaling, factor, original = shape.get("rope", UNSCALED)
    if scaling in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(scaling))
        writer.add_rope_scaling_factor(factor)
    if scaling == "yarn":
        writer.add_rope_scaling_orig_ctx_len(original)


def write_random(path, family, kind="F32", seed=1):
    """A random model of a family of FAMILIES, its matrices stored as `kind`."""
    shape = FAMILIES[family]
    random = np.random.default_rng([seed, *family.encode()])
    writer = gguf.GGUFWriter(path, shape["arch"])
    writer.add_name(f"tiny {family} {kind}")
    tokenizer = shape["tokenizer"]
    vocab = (add_bpe(writer, tokenizer) if tokenizer not in ("spm", "gemma") else
             add_spm(writer, tokenizer == "gemma"))
    add_hyper(writer, shape, vocab)
    hidden, ffn, head_dim = shape["hidden"], shape["ffn"], shape["head_dim"]
    q_rows, kv_rows = shape["heads"] * head_dim, shape["kv_heads"] * head_dim

    def matrix(name, rows, columns, gain):
        values = random.normal(size=(rows, columns)) * gain / math.sqrt(columns)
        add_matrix(writer, name + ".weight", values.astype(np.float32), kind)

    def vector(name, size, mean, spread):
        writer.add_tensor(name, (mean + spread * random.normal(size=size)).astype(np.float32))

    is_gemma = shape["arch"] == "gemma3"  # scales its embedding up by sqrt(hidden)
    matrix("token_embd", vocab, hidden, 2 if is_gemma else 3)
    vector("output_norm.weight", hidden, 1, 0.1)
    if not shape["tied"]:
        matrix("output", vocab, hidden, 3)
    scaling, factor, original = shape.get("rope", UNSCALED)
    if scaling == "llama3":
        writer.add_tensor("rope_freqs.weight",
                          llama3_divisors(head_dim, shape["base"], factor, original))
    for layer in range(shape["layers"]):
        block = f"blk.{layer}."
        vector(block + "attn_norm.weight", hidden, 1, 0.1)
        matrix(block + "attn_q", q_rows, hidden, 1.5)
        matrix(block + "attn_k", kv_rows, hidden, 1.5)
        matrix(block + "attn_v", kv_rows, hidden, 1)
        matrix(block + "attn_output", hidden, q_rows, 1)
        if shape.get("bias"):
            for name, rows in (("q", q_rows), ("k", kv_rows), ("v", kv_rows)):
                vector(block + f"attn_{name}.bias", rows, 0, 0.5)
        if shape.get("qk_norm"):
            vector(block + "attn_q_norm.weight", head_dim, 1.5, 0.1)
            vector(block + "attn_k_norm.weight", head_dim, 1.5, 0.1)
        vector(block + "ffn_norm.weight", hidden, 1, 0.1)
        matrix(block + "ffn_gate", ffn, hidden, 1.5)
        matrix(block + "ffn_up", ffn, hidden, 1.5)
        matrix(block + "ffn_down", hidden, ffn, 1.5)
        if is_gemma:
            vector(block + "post_attention_norm.weight", hidden, 2, 0.1)
            vector(block + "post_ffw_norm.weight", hidden, 2, 0.1)
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ------------------------------------------------------------------- llama2.c

def convert_llama2c(checkpoint, tokenizer, path, kind="F32"):
    """A llama2.c checkpoint (version 0) and its tokenizer as GGUF.

    Its rotary pairs are neighbours (2j, 2j + 1), as in Meta's own files, and so are those of a
    llama GGUF: rows of Q and K stay where they are. (A Hugging Face checkpoint holds the pairs as
    halves; there a converter permutes the rows.)
    """
    raw = pathlib.Path(checkpoint).read_bytes()
    hidden, ffn, layers, heads, kv_heads, vocab, context = struct.unpack("<7i", raw[:28])
    tied, vocab = vocab > 0, abs(vocab)
    head_dim = hidden // heads
    values = np.frombuffer(raw, dtype="<f4", offset=28)
    position = 0

    def take(*shape):
        nonlocal position
        n = math.prod(shape)
        position += n
        return values[position - n:position].reshape(shape)

    embedding = take(vocab, hidden)
    tensors = {"attn_norm": take(layers, hidden), "attn_q": take(layers, hidden, hidden),
               "attn_k": take(layers, kv_heads * head_dim, hidden),
               "attn_v": take(layers, kv_heads * head_dim, hidden),
               "attn_output": take(layers, hidden, hidden), "ffn_norm": take(layers, hidden),
               "ffn_gate": take(layers, ffn, hidden), "ffn_down": take(layers, hidden, ffn),
               "ffn_up": take(layers, ffn, hidden)}
    output_norm = take(hidden)
    take(context, head_dim)  # cos and sin tables
    output = embedding if tied else take(vocab, hidden)

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(pathlib.Path(checkpoint).stem)
    add_hyper(writer, dict(arch="llama", hidden=hidden, ffn=ffn, layers=layers, heads=heads,
                           kv_heads=kv_heads, head_dim=head_dim), vocab)
    add_llama2c_tokenizer(writer, pathlib.Path(tokenizer).read_bytes(), vocab)
    add_matrix(writer, "token_embd.weight", embedding, kind)
    writer.add_tensor("output_norm.weight", output_norm)
    if not tied:
        add_matrix(writer, "output.weight", output, kind)
    for layer in range(layers):
        for name, stack in tensors.items():
            if stack.ndim == 2:
                writer.add_tensor(f"blk.{layer}.{name}.weight", stack[layer])
            else:
                add_matrix(writer, f"blk.{layer}.{name}.weight", stack[layer], kind)
    finish(writer)


def add_llama2c_tokenizer(writer, raw, vocab):
    """Pieces with scores; ids 0-2 are unknown, begin, end; 3-258 the bytes; a space is a space."""
    tokens, scores, types = [], [], []
    position = 4  # after the longest piece's length
    for token in range(vocab):
        score, length = struct.unpack_from("<fi", raw, position)
        piece = raw[position + 8:position + 8 + length].decode()
        position += 8 + length
        tokens.append(piece.strip("\n") if token < 3 else piece.replace(" ", "▁"))
        scores.append(score)
        types.append(Token.UNKNOWN if token == 0 else Token.CONTROL if token < 3 else
                     Token.BYTE if token < 259 else Token.NORMAL)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)


def main():
    parser = argparse.ArgumentParser(description="write tiny GGUF models",
                                     epilog="example: make_tiny.py build/tiny --family qwen3")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--family", choices=FAMILIES)
    parser.add_argument("--type", choices=TYPES)
    parser.add_argument("--llama2c", type=pathlib.Path, help="folder of stories260K.bin")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.llama2c:
        for kind in [args.type] if args.type else ["F32", "Q8_0"]:
            convert_llama2c(args.llama2c / "stories260K.bin", args.llama2c / "tok512.bin",
                            args.out / f"stories260k-{kind.lower()}.gguf", kind)
        return
    if args.family or args.type:
        wanted = [(args.family or "llama256", args.type or "F32")]
    else:
        wanted = [(family, "F32") for family in FAMILIES] + [("llama256", k) for k in TYPES[1:]]
    for family, kind in wanted:
        write_random(args.out / f"{family}-{kind.lower()}.gguf", family, kind)


if __name__ == "__main__":
    main()
