# SPDX-License-Identifier: Apache-2.0
"""Writing an encoder as GGUF: names, shapes and types as docs/MODEL-encoders.md has them.

Owns: quantising, padding of input projections, and the check that nothing of the source was left over.
"""
import numpy as np

import gguf

TYPES = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16,
         "q8_0": gguf.GGMLQuantizationType.Q8_0}
LAYER_MATRICES = ("attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight")
# Small, read once or decisive: kept in F32 whatever the matrices are.
KEPT = ("position_embd.weight", "prefix_embd.weight", "token_types.weight")


class Refused(Exception):
    """The input is not what this converter knows; the message says which part."""


def q8_0(x):
    """Blocks of 32 along the last axis: F16 scale max|x|/127, then codes."""
    blocks = x.reshape(-1, 32).astype(np.float32)
    scale = (np.abs(blocks).max(axis=1) / 127).astype(np.float16)
    with np.errstate(divide="ignore"):
        inverse = np.where(scale > 0, 1 / scale.astype(np.float32), 0)
    codes = np.clip(np.rint(blocks * inverse[:, None]), -127, 127).astype(np.int8)
    raw = np.concatenate([scale.view(np.uint8).reshape(-1, 2), codes.view(np.uint8)], axis=1)
    return raw.reshape(*x.shape[:-1], x.shape[-1] // 32 * 34)


def pad_columns(x):
    """Columns up to a multiple of 32, the new ones zero."""
    return np.pad(x, ((0, 0), (0, -x.shape[1] % 32)))


class Model:
    """Keys and tensors of one encoder, gathered and then written."""

    def __init__(self, arch, name):
        self.arch, self.name = arch, name
        self.keys, self.tensors = [], {}

    def key(self, name, value):
        self.keys.append((name if "." in name and name.split(".")[0] in ("tokenizer", "freetoken", "general")
                          else f"{self.arch}.{name}", value))

    def add(self, name, array):
        array = np.ascontiguousarray(array, dtype=np.float32)
        if not np.isfinite(array).all():
            raise Refused(f"{name} has values that are not finite")
        self.tensors[name] = array

    def layer(self, i, **tensors):
        """layer(0, attn_qkv_weight=...) adds blk.0.attn_qkv.weight."""
        for name, array in tensors.items():
            if array is not None:
                stem, _, kind = name.rpartition("_")
                self.add(f"blk.{i}.{stem}.{kind}", array)

    def _type_of(self, name, array, kind):
        matrix = array.ndim == 2 and array.shape[0] > 1 and name.endswith("weight") and name not in KEPT
        if not matrix or "select" in name:
            return "f32"
        if kind == "q8_0" and array.shape[1] % 32 != 0:
            return "f32"
        return kind

    def write(self, path, kind):
        writer = gguf.GGUFWriter(path, self.arch)
        writer.add_name(self.name)
        for name, value in self.keys:
            if isinstance(value, bool):
                writer.add_bool(name, value)
            elif isinstance(value, int):
                writer.add_uint32(name, value)
            elif isinstance(value, float):
                writer.add_float32(name, value)
            elif isinstance(value, str):
                writer.add_string(name, value)
            else:
                writer.add_array(name, list(value))
        for name, array in self.tensors.items():
            use = self._type_of(name, array, kind)
            if use == "q8_0":
                writer.add_tensor(name, q8_0(array), raw_dtype=TYPES["q8_0"])
            else:
                writer.add_tensor(name, array.astype(np.float16 if use == "f16" else np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


class Source:
    """A state dict that knows what was taken from it."""

    def __init__(self, tensors):
        self.tensors = {k: np.asarray(v) for k, v in tensors.items()}
        self.taken = set()

    def __contains__(self, name):
        return name in self.tensors

    def take(self, name, *shape):
        if name not in self.tensors:
            raise Refused(f"tensor {name} is missing")
        array = self.tensors[name]
        if shape and tuple(array.shape) != tuple(shape):
            raise Refused(f"tensor {name} has shape {list(array.shape)}, must be {list(shape)}")
        self.taken.add(name)
        return array.astype(np.float32)

    def maybe(self, name, *shape):
        return self.take(name, *shape) if name in self.tensors else None

    def ignore(self, name):
        self.taken.add(name)

    def finish(self):
        left = sorted(set(self.tensors) - self.taken)
        if left:
            raise Refused(f"{len(left)} tensors are not part of the model as this converter knows it: " + ", ".join(left[:5]))
