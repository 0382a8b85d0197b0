# SPDX-License-Identifier: Apache-2.0
"""Tiny random encoders as GGUF files, and pictures and sounds, with Python's own library only."""
import random
import struct
import zlib

LABELS = ["ant", "bee", "cat", "dog", "<i>&"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "the", "##s", ".", "a", "##b"]
U32, F32, BOOL, TEXT, ARRAY = 4, 6, 7, 8, 9


def text(s):
    data = s.encode()
    return struct.pack("<Q", len(data)) + data


def value(v):
    if isinstance(v, bool):
        return struct.pack("<I?", BOOL, v)
    if isinstance(v, int):
        return struct.pack("<II", U32, v)
    if isinstance(v, float):
        return struct.pack("<If", F32, v)
    if isinstance(v, str):
        return struct.pack("<I", TEXT) + text(v)
    items = b"".join(text(x) if isinstance(x, str) else struct.pack("<i", x) for x in v)
    return struct.pack("<IIQ", ARRAY, TEXT if isinstance(v[0], str) else 5, len(v)) + items


def write(path, keys, tensors):
    """tensors: name -> (shape, mean)."""
    rng = random.Random(7)
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for name, v in keys.items():
        out += text(name) + value(v)
    data = b""
    for name, (shape, mean) in tensors.items():
        out += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        out += struct.pack("<IQ", 0, len(data))
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        data += struct.pack(f"<{n}f", *(mean + rng.gauss(0, 0.2) for _ in range(n)))
        data += bytes(-len(data) % 32)
    out += bytes(-len(out) % 32)
    with open(path, "wb") as f:
        f.write(out + data)
    return path


def encoder(path, kind, exits=False, labels=True):
    d, ffn, layers = 32, 64, 3
    keys = {"general.architecture": kind, f"{kind}.block_count": layers, f"{kind}.embedding_length": d,
            f"{kind}.feed_forward_length": ffn, f"{kind}.attention.head_count": 2}
    tensors = {}
    if kind == "bert":
        keys.update({"bert.context_length": 16, "bert.pooling": "cls", "tokenizer.ggml.model": "bert",
                     "tokenizer.ggml.tokens": WORDS, "tokenizer.ggml.token_type": [3] * 5 + [1] * (len(WORDS) - 5)})
        tensors.update({"token_embd.weight": ((len(WORDS), d), 0), "position_embd.weight": ((16, d), 0),
                        "token_types.weight": ((d,), 0), "token_embd_norm.weight": ((d,), 1), "token_embd_norm.bias": ((d,), 0)})
    else:
        if kind == "vit":
            keys.update({"vit.image_size": 32, "vit.patch_size": 8, "vit.channels": 3, "vit.context_length": 17})
            tokens, n = 16, 192
        else:
            keys.update({"kwt.context_length": 99, "kwt.audio.frames": 98, "kwt.audio.features": 40,
                         "kwt.audio.sample_rate": 16000, "kwt.audio.window": 480, "kwt.audio.hop": 160,
                         "kwt.audio.fft": 512, "kwt.audio.mels": 80, "kwt.audio.low_hz": 20.0, "kwt.audio.high_hz": 7600.0})
            tokens, n = 98, 64
        tensors.update({"input_embd.weight": ((d, n), 0), "input_embd.bias": ((d,), 0), "prefix_embd.weight": ((1, d), 0),
                        "position_embd.weight": ((tokens, d), 0)})
    for i in range(layers):
        shapes = {"attn_qkv": (3 * d, d), "attn_output": (d, d), "ffn_up": (ffn, d), "ffn_down": (d, ffn)}
        for name, shape in shapes.items():
            tensors[f"blk.{i}.{name}.weight"] = (shape, 0)
            tensors[f"blk.{i}.{name}.bias"] = (shape[:1], 0)
        for name in ("attn_norm", "ffn_norm"):
            tensors[f"blk.{i}.{name}.weight"] = ((d,), 1)
            tensors[f"blk.{i}.{name}.bias"] = ((d,), 0)
        if exits and i + 1 < layers:
            tensors[f"blk.{i}.exit.weight"] = ((len(LABELS), d), 0)
            tensors[f"blk.{i}.exit.bias"] = ((len(LABELS),), 0)
    if labels:
        keys[f"{kind}.classifier.output_labels"] = LABELS
        tensors["head.weight"] = ((len(LABELS), d), 0)
        tensors["head.bias"] = ((len(LABELS),), 0)
    return write(path, keys, tensors)


def png(width, height, claim=None):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    rows = b"".join(b"\0" + bytes((x * 7 + y * 3 + c * 50) % 256 for x in range(width) for c in range(3)) for y in range(height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", *(claim or (width, height)), 8, 2, 0, 0, 0)) + \
        chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def wav(n=16000, rate=16000, size=None):
    rng = random.Random(3)
    data = struct.pack(f"<{n}h", *(rng.randrange(-9000, 9000) for _ in range(n)))
    return b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, rate, 2 * rate, 2, 16) + \
        b"data" + struct.pack("<I", len(data) if size is None else size) + data
