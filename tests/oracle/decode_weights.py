# SPDX-License-Identifier: Apache-2.0
"""Writes a GGUF file with its quantised matrices decoded to F32 (four bytes a parameter).

With such a file no engine rounds activations to INT8, so what remains between two runs is what is
under test: the cache's type, or which entries a policy keeps.

    decode_weights.py smollm2-135m-q4_1.gguf smollm2-135m-f32.gguf
"""
import pathlib
import sys

import gguf
import numpy as np


def decode(source, target):
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.get_field("general.architecture").contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        value = 0 if name == "general.file_type" else field.contents()
        writer.add_key_value(name, value, kind, sub_type=inner)
    for tensor in reader.tensors:
        data = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, np.ascontiguousarray(data, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    decode(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
