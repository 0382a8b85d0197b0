# SPDX-License-Identifier: Apache-2.0
"""Reading a CTranslate2 model.bin: its spec's name and its variables as NumPy arrays."""
import struct

import numpy as np

from .write import Refused


def read(path):
    """Variables of a CTranslate2 model.bin, versions 5 and 6; INT8 ones are multiplied out."""
    raw, at = path.read_bytes(), 0

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, raw, at)
        at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def text():
        nonlocal at
        n = take("H")
        value = raw[at:at + n - 1].decode()
        at += n
        return value

    types = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
    try:
        version = take("I")
        if version not in (5, 6):
            raise Refused(f"{path.name}: CTranslate2 format {version} is not known; 5 and 6 are")
        spec = text()
        take("I")
        out = {}
        for _ in range(take("I")):
            name, rank = text(), take("B")
            shape = [take("I") for _ in range(rank)]
            kind, size = take("B"), take("I")
            if kind not in types:
                raise Refused(f"{path.name}: {name} has the unknown type {kind}")
            out[name] = np.frombuffer(raw, types[kind], size // np.dtype(types[kind]).itemsize, at).reshape(shape)
            at += size
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        raise Refused(f"{path.name} is not a whole CTranslate2 file: {error} at byte {at}") from error
    for name in [n for n in out if n.endswith("/weight") and out[n].dtype == np.int8]:
        out[name] = out[name].astype(np.float32) / out.pop(name + "_scale").reshape(-1, *[1] * (out[name].ndim - 1))
    return spec, out
