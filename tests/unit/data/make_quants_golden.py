# SPDX-License-Identifier: Apache-2.0
"""Writes quants_golden.h: what the `gguf` Python package decodes from random blocks.

Usage: python make_quants_golden.py > quants_golden.h      (needs numpy and gguf)

The bytes of the blocks come from the same PCG32 generator the test uses, so that the header holds
only a checksum of the decoded numbers and the first few of them. Scales are overwritten in turn by
SCALES: zeros, denormals, the largest number, infinities and NaN included.
"""
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.quants import dequantize

BLOCKS = 64
SCALES = [0x2E66, 0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00,
          0x3C00, 0x9234, 0x1111]
# type: weights and bytes of a block, and where its f16 scales are
TYPES = {"F32": (1, 4, []), "F16": (1, 2, [0]), "BF16": (1, 2, []), "Q4_0": (32, 18, [0]),
         "Q4_1": (32, 20, [0, 2]), "Q5_0": (32, 22, [0]), "Q5_1": (32, 24, [0, 2]),
         "Q8_0": (32, 34, [0]), "Q4_K": (256, 144, [0, 2]), "Q5_K": (256, 176, [0, 2]),
         "Q6_K": (256, 210, [208])}
MASK = (1 << 64) - 1


class Pcg32:
    def __init__(self, seed):
        self.state, self.inc = 0, (seed << 1 | 1) & MASK
        self.next()
        self.state = (self.state + seed) & MASK
        self.next()

    def next(self):
        old = self.state
        self.state = (old * 6364136223846793005 + self.inc) & MASK
        x, rot = ((old >> 18 ^ old) >> 27) & 0xFFFFFFFF, old >> 59
        return (x >> rot | x << (32 - rot & 31)) & 0xFFFFFFFF


def blocks_of(type_number, size, scales):
    rng = Pcg32(type_number)
    blocks = [[rng.next() & 255 for _ in range(size)] for _ in range(BLOCKS)]
    for i, block in enumerate(blocks):
        for k, at in enumerate(scales):
            scale = SCALES[(i + 3 * k) % len(SCALES)]
            block[at], block[at + 1] = scale & 255, scale >> 8
    return np.array(blocks, dtype=np.uint8)


def fnv1a(bits):
    h = 0xCBF29CE484222325
    for word in bits:
        h = ((h ^ int(word)) * 0x100000001B3) & MASK
    return h


print("// SPDX-License-Identifier: Apache-2.0")
print("/* Written by make_quants_golden.py: do not edit. Checksums over the decoded floats' bits, one")
print(" * 32-bit word a step of FNV-1a, NaN as 0x7FC00000; and the first floats of blocks 0 and 3. */")
print("static const uint16_t golden_scales[] = {%s};" % ", ".join("0x%04X" % s for s in SCALES))
print("enum { GOLDEN_BLOCKS = %d };" % BLOCKS)
print("static const struct golden {")
print("    ftki_type type;")
print("    int scales[2]; /* offsets of the f16 scales in a block; -1: none */")
print("    uint64_t checksum;")
print("    uint32_t first[2][4];")
print("} golden[] = {")
for name, (weights, size, scales) in TYPES.items():
    raw = blocks_of(int(T[name]), size, scales)
    with np.errstate(all="ignore"):
        if name in ("F32", "F16"):
            values = raw.view({"F32": np.float32, "F16": np.float16}[name]).astype(np.float32)
        else:
            values = dequantize(raw, T[name])
    values = np.ascontiguousarray(values, dtype=np.float32).reshape(BLOCKS, weights)
    bits = values.view(np.uint32).copy()
    bits[np.isnan(values)] = 0x7FC00000
    flat = bits.reshape(-1)
    first = [", ".join("0x%08X" % x for x in flat[b * weights:b * weights + 4]) for b in (0, 3)]
    offsets = (scales + [-1, -1])[:2]
    print("    {FTKI_%s, {%d, %d}, 0x%016Xu, {{%s}, {%s}}}," %
          (name, *offsets, fnv1a(flat), *first))
print("};")
