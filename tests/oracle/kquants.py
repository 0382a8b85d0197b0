# SPDX-License-Identifier: Apache-2.0
"""Plain encoders for the K-quants, which the `gguf` package can only decode.

Owns: F32 rows -> blocks of Q4_K, Q5_K, Q6_K, rounding to the nearest level of a simple scale and
minimum per sub-block. Good enough to make test files of every type; no search for better scales.
Block layouts (256 weights a block):
  Q4_K  d, dmin (F16), 12 bytes of eight 6-bit scales and eight 6-bit minimums, 128 bytes of nibbles
  Q5_K  the same with 32 bytes of fifth bits before the nibbles
  Q6_K  128 bytes of low nibbles, 64 bytes of high bit pairs, 16 INT8 scales, d (F16)
"""
import gguf
import numpy as np

Type = gguf.GGMLQuantizationType


def _divide(x, y):
    return np.divide(x, y, out=np.zeros(np.broadcast_shapes(x.shape, y.shape), np.float32), where=y != 0)


def _as_f16_bytes(x):
    return x.astype(np.float16).view(np.uint8).reshape(len(x), 2)


def _pack_scales(scale, minimum):
    """Eight 6-bit scales and minimums in 12 bytes; numbers 4-7 lend their high bits to 0-7."""
    packed = np.empty((len(scale), 12), np.uint8)
    packed[:, 0:4] = scale[:, :4] | (scale[:, 4:] >> 4) << 6
    packed[:, 4:8] = minimum[:, :4] | (minimum[:, 4:] >> 4) << 6
    packed[:, 8:12] = (scale[:, 4:] & 15) | (minimum[:, 4:] & 15) << 4
    return packed


def _encode_scale_and_minimum(blocks, bits):
    """Levels [n, 8, 32], and the bytes before the levels: w = d scale level - dmin minimum."""
    sub = blocks.reshape(-1, 8, 32)
    top = 2 ** bits - 1
    minimum = np.maximum(-sub.min(axis=2), 0)
    scale = (sub.max(axis=2) + minimum) / top
    d = (scale.max(axis=1, keepdims=True) / 63).astype(np.float16).astype(np.float32)
    dmin = (minimum.max(axis=1, keepdims=True) / 63).astype(np.float16).astype(np.float32)
    scale6 = np.clip(np.rint(_divide(scale, d)), 0, 63).astype(np.uint8)
    minimum6 = np.clip(np.rint(_divide(minimum, dmin)), 0, 63).astype(np.uint8)
    step, shift = (d * scale6)[:, :, None], (dmin * minimum6)[:, :, None]
    levels = np.clip(np.rint(_divide(sub + shift, step)), 0, top).astype(np.uint8)
    head = np.concatenate([_as_f16_bytes(d), _as_f16_bytes(dmin), _pack_scales(scale6, minimum6)], axis=1)
    return levels, head


def _q4_k(blocks):
    levels, head = _encode_scale_and_minimum(blocks, 4)
    nibbles = levels[:, 0::2] | levels[:, 1::2] << 4  # sub-blocks 2j and 2j + 1 share their bytes
    return np.concatenate([head, nibbles.reshape(-1, 128)], axis=1)


def _q5_k(blocks):
    levels, head = _encode_scale_and_minimum(blocks, 5)
    fifth = np.zeros((len(levels), 32), np.uint8)
    for sub in range(8):
        fifth |= (levels[:, sub] >> 4) << sub
    low = levels & 15
    nibbles = low[:, 0::2] | low[:, 1::2] << 4
    return np.concatenate([head, fifth, nibbles.reshape(-1, 128)], axis=1)


def _q6_k(blocks):
    sub = blocks.reshape(-1, 16, 16)
    scale = np.abs(sub).max(axis=2) / 31
    d = (scale.max(axis=1, keepdims=True) / 127).astype(np.float16).astype(np.float32)
    scale8 = np.clip(np.rint(_divide(scale, d)), 0, 127).astype(np.int8)
    step = (d * scale8)[:, :, None]
    levels = (np.clip(np.rint(_divide(sub, step)), -32, 31) + 32).astype(np.uint8)
    quarter = levels.reshape(-1, 2, 4, 32)  # in each half, four runs of 32 share bytes
    low = quarter & 15
    ql = np.concatenate([low[:, :, 0] | low[:, :, 2] << 4, low[:, :, 1] | low[:, :, 3] << 4], axis=2)
    qh = np.zeros((len(blocks), 2, 32), np.uint8)
    for i in range(4):
        qh |= (quarter[:, :, i] >> 4) << (2 * i)
    return np.concatenate([ql.reshape(-1, 128), qh.reshape(-1, 64), scale8.view(np.uint8),
                           _as_f16_bytes(d)], axis=1)


_ENCODERS = {Type.Q4_K: _q4_k, Type.Q5_K: _q5_k, Type.Q6_K: _q6_k}


def quantize(matrix, kind):
    """F32 [rows, columns] -> what gguf.GGUFWriter.add_tensor takes for this type."""
    if kind not in _ENCODERS:
        return gguf.quants.quantize(matrix, kind)
    rows, columns = matrix.shape
    return _ENCODERS[kind](matrix.astype(np.float32).reshape(-1, 256)).reshape(rows, -1)
