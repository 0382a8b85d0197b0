# SPDX-License-Identifier: Apache-2.0
"""FreeToken's encoders through ctypes: just what the oracle tests and the benchmark call.

Owns: the mirror of the encoder section of include/freetoken/freetoken.h.
"""
import ctypes as c

import numpy as np

import ftk

POINTER_F32, POINTER_I32 = c.POINTER(c.c_float), c.POINTER(c.c_int32)


class Input(c.Structure):
    _fields_ = [("kind", c.c_int), ("ids", c.c_void_p), ("n", c.c_size_t), ("values", c.c_void_p),
                ("rows", c.c_int32), ("cols", c.c_int32)]


class Opts(c.Structure):
    _fields_ = [("size", c.c_size_t), ("n_threads", c.c_int32), ("max_tokens", c.c_int32), ("max_inputs", c.c_int32),
                ("attention", c.c_int), ("exact_attention", c.c_bool), ("max_bytes", c.c_uint64)]


class Score(c.Structure):
    _fields_ = [("label", c.c_int32), ("score", c.c_float)]


class Encoded(c.Structure):
    _fields_ = [("tokens_in", c.c_int32), ("tokens_out", c.c_int32), ("layers", c.c_int32), ("exited", c.c_bool),
                ("confidence", c.c_float), ("attention_tokens", POINTER_I32), ("ffn_tokens", POINTER_I32),
                ("multiply_adds_dense", c.c_uint64), ("multiply_adds", c.c_uint64), ("seconds", c.c_double),
                ("reduction_seconds", c.c_double), ("dense_because", c.c_char_p)]


class Reduction(c.Structure):
    _fields_ = [("size", c.c_size_t), ("keep", c.c_float), ("fine_keep", c.c_float), ("threshold", c.c_float),
                ("fine_threshold", c.c_float), ("by", c.c_int), ("first_layer", c.c_int32), ("interval", c.c_int32),
                ("keeps", c.c_void_p), ("fine_keeps", c.c_void_p), ("fuse", c.c_bool), ("merge", c.c_int32),
                ("merges", c.c_void_p), ("merge_local", c.c_bool), ("merge_similarity", c.c_float),
                ("no_size_bias", c.c_bool), ("exit_tau", c.c_float), ("exit_by", c.c_int), ("patience", c.c_int32),
                ("min_layers", c.c_int32), ("attend", c.c_int32), ("min_tokens", c.c_int32), ("tile", c.c_int32)]


ATTENTION, KEY_NORM, DISTINCT, LEARNED = range(4)
CONFIDENCE, MARGIN, ENTROPY = range(3)


class Encoder:
    """An encoder session over ftk.Model; inputs are id lists, [channels, rows, cols] or [frames, features] arrays."""

    def __init__(self, model, n_threads=2, max_tokens=0, max_inputs=1, exact=False):
        self.model, self.handle, self.kept = model, c.c_void_p(), None
        opts = Opts(c.sizeof(Opts), n_threads, max_tokens, max_inputs, 0, exact, 0)
        ftk.call("ftk_encoder_open", c.byref(self.handle), model.handle, c.byref(opts))
        self.n_layers, self.dim = model.info.n_layers, model.info.hidden
        ftk.library().ftk_encoder_logits.restype = POINTER_F32

    def close(self):
        ftk.library().ftk_encoder_close(self.handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _inputs(self, inputs):
        made, self.kept = (Input * len(inputs))(), []
        for m, x in zip(made, inputs):
            tokens = not isinstance(x, np.ndarray) or x.ndim == 1
            x = np.ascontiguousarray(x, np.int32 if tokens else np.float32)
            self.kept.append(x)
            if tokens:
                m.kind, m.ids, m.n = 0, x.ctypes.data, len(x)
            else:
                m.kind, m.values, m.rows, m.cols = (1 if x.ndim == 3 else 2), x.ctypes.data, *x.shape[-2:]
        return made

    def classify(self, *inputs, k=1):
        top = (Score * (k * len(inputs)))()
        ftk.call("ftk_classify", self.handle, self._inputs(inputs), c.c_size_t(len(inputs)), top, c.c_size_t(k))
        return [[(top[i * k + j].label, top[i * k + j].score) for j in range(k)] for i in range(len(inputs))]

    def logits(self, n, i=0):
        p = ftk.library().ftk_encoder_logits(self.handle, c.c_size_t(i))
        return np.ctypeslib.as_array(p, (n,)).copy()

    def embed(self, *inputs, normalise=True):
        out = np.empty((len(inputs), self.dim), np.float32)
        ftk.call("ftk_embed", self.handle, self._inputs(inputs), c.c_size_t(len(inputs)), c.c_bool(normalise),
                 out.ctypes.data_as(c.c_void_p))
        return out

    def encode(self, *inputs, cap=4096):
        states, offsets = np.empty((cap, self.dim), np.float32), np.zeros(len(inputs) + 1, np.uint64)
        ftk.call("ftk_encode", self.handle, self._inputs(inputs), c.c_size_t(len(inputs)),
                 states.ctypes.data_as(c.c_void_p), c.c_size_t(cap), offsets.ctypes.data_as(c.c_void_p))
        return [states[int(a):int(b)].copy() for a, b in zip(offsets, offsets[1:])]

    def layers(self, call):
        """Hidden states [n, hidden] after the embedding and each layer, of one input, while call() runs."""
        out = []
        fn = ftk.TAP(lambda _, layer, x, n, d: out.append(np.ctypeslib.as_array(x, (n, d)).copy()))
        ftk.library().ftk_encoder_tap(self.handle, fn, None)
        try:
            call()
        finally:
            ftk.library().ftk_encoder_tap(self.handle, ftk.TAP(), None)
        return out

    def reduce(self, **fields):
        """reduce() is dense again; lists become arrays."""
        if not fields:
            ftk.call("ftk_encoder_reduce", self.handle, None)
            return
        r, kept = Reduction(size=c.sizeof(Reduction)), []
        for name, value in fields.items():
            if name in ("keeps", "fine_keeps", "merges"):
                value = np.ascontiguousarray(value, np.int32 if name == "merges" else np.float32)
                kept.append(value)
                value = value.ctypes.data
            setattr(r, name, value)
        ftk.call("ftk_encoder_reduce", self.handle, c.byref(r))

    def result(self, i=0):
        e = Encoded()
        ftk.call("ftk_encoder_result", self.handle, c.c_size_t(i), c.byref(e))
        return e

    def owners(self, layer, i=0):
        out = np.empty(self.result(i).tokens_in, np.int32)
        ftk.call("ftk_encoder_owners", self.handle, c.c_size_t(i), layer, out.ctypes.data_as(c.c_void_p))
        return out
