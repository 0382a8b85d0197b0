# SPDX-License-Identifier: Apache-2.0
"""FreeToken's shared library through ctypes: just what the oracle tests call.

Owns: the mirror of a few declarations of include/freetoken/freetoken.h.
The library is libfreetoken.so of the folder FTK_BUILD, by default `build` beside the source.
"""
import ctypes as c
import os
import pathlib

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
KV_TYPES = {"int8": 0, "f16": 1, "f32": 2}
TAP = c.CFUNCTYPE(None, c.c_void_p, c.c_int32, c.POINTER(c.c_float), c.c_size_t, c.c_size_t)


class Error(c.Structure):
    _fields_ = [("code", c.c_int), ("offset", c.c_int64), ("layer", c.c_int32),
                ("message", c.c_char * 256)]


class ModelOpts(c.Structure):
    _fields_ = [("size", c.c_size_t), ("n_threads", c.c_int32), ("progress", c.c_void_p),
                ("progress_ctx", c.c_void_p), ("isa", c.c_char_p), ("vocab_only", c.c_bool)]


class ModelInfo(c.Structure):
    _fields_ = [(n, c.c_char_p) for n in ("architecture", "name", "weight_type", "chat_template", "isa")]
    _fields_ += [(n, c.c_uint64) for n in ("n_params", "file_bytes", "weight_bytes")]
    _fields_ += [(n, c.c_int32) for n in ("n_layers", "n_heads", "n_kv_heads", "head_dim", "hidden", "ffn",
                                          "n_vocab", "train_context", "sliding_window")]


class SessionOpts(c.Structure):
    _fields_ = [("size", c.c_size_t), ("context", c.c_int32), ("n_threads", c.c_int32),
                ("kv_type", c.c_int), ("chunk", c.c_int32), ("progress", c.c_void_p),
                ("progress_ctx", c.c_void_p), ("max_bytes", c.c_uint64)]


class Range(c.Structure):
    _fields_ = [("begin", c.c_int32), ("end", c.c_int32)]


class Reduction(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("keep", c.c_float), ("keep_tokens", c.c_int32), ("how", c.c_int), ("first_layer", c.c_int32),
        ("interval", c.c_int32), ("layers", c.POINTER(c.c_int32)), ("n_layers_listed", c.c_size_t),
        ("similarity", c.c_int), ("similar_what", c.c_int), ("pairing", c.c_int), ("block", c.c_int32),
        ("weight", c.c_int), ("position", c.c_int), ("no_size_bias", c.c_bool), ("ignore_importance", c.c_bool),
        ("share_scale", c.c_float), ("min_length", c.c_int32), ("full_length", c.c_int32),
        ("let_go_layer", c.c_int32), ("let_go_keep", c.c_float),
        ("kv_keep", c.c_float), ("kv_bytes", c.c_uint64), ("scorer", c.c_int), ("budget", c.c_int),
        ("budgets", c.POINTER(c.c_float)), ("kv_merge", c.c_bool), ("kv_shared", c.c_bool), ("pool", c.c_int32),
        ("windows", c.POINTER(c.c_int32)),
        ("read_keep", c.c_float), ("read_pages", c.c_int32), ("prefill_blocks", c.c_float),
        ("sinks", c.c_int32), ("recent", c.c_int32), ("protect", c.POINTER(Range)), ("n_protect", c.c_size_t),
        ("merge_special", c.c_bool), ("protect_digits", c.c_bool), ("observe", c.c_int32), ("seed", c.c_uint64),
        ("segment", c.c_int32)]


SCORERS = {"value": 0, "snapkv": 1, "h2o": 2, "recent": 3, "keynorm": 4, "random": 5, "mean": 6}


def find_library():
    """Path of the library, None when it is not built."""
    path = pathlib.Path(os.environ.get("FTK_BUILD", ROOT / "build")) / "libfreetoken.so"
    return path if path.exists() else None


_library = None


def library():
    global _library
    if _library is None:
        path = find_library()
        if path is None:
            raise FileNotFoundError("libfreetoken.so is not built; FTK_BUILD names a build folder")
        _library = c.CDLL(str(path))
        _library.ftk_session_context.restype = c.c_size_t
        _library.ftk_logits.restype = c.POINTER(c.c_float)
        _library.ftk_token_is_end.restype = c.c_bool
    return _library


def call(name, *args):
    """Calls a function that takes an ftk_error last; raises with its message."""
    error = Error()
    if getattr(library(), name)(*args, c.byref(error)) != 0:
        raise RuntimeError(f"{name}: {error.message.decode()}")


def _ids(ids):
    return np.ascontiguousarray(ids, dtype=np.int32)


def _pointer(array):
    return array.ctypes.data_as(c.c_void_p)


class Model:
    def __init__(self, path, isa=None, n_threads=0):
        opts = ModelOpts(c.sizeof(ModelOpts), n_threads, None, None, isa.encode() if isa else None, False)
        self.handle = c.c_void_p()
        call("ftk_model_open", c.byref(self.handle), os.fsencode(path), c.byref(opts))
        self.info = ModelInfo()
        library().ftk_model_get_info(self.handle, c.byref(self.info))

    def close(self):
        library().ftk_model_close(self.handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def tokenize(self, text, add_special=True, parse_special=False):
        raw = text.encode() if isinstance(text, str) else text
        flags = (1 if parse_special else 0) | (2 if add_special else 0)
        n = c.c_size_t()
        out = np.empty(len(raw) + 8, np.int32)
        call("ftk_tokenize", self.handle, raw, c.c_size_t(len(raw)), flags, _pointer(out),
             c.c_size_t(len(out)), c.byref(n))
        return out[:n.value].copy()

    def session(self, **options):
        return Session(self, **options)


class Session:
    def __init__(self, model, context=0, kv="int8", n_threads=2, chunk=0):
        opts = SessionOpts(c.sizeof(SessionOpts), context, n_threads, KV_TYPES[kv], chunk, None, None, 0)
        self.model = model
        self.n_vocab = model.info.n_vocab
        self.handle = c.c_void_p()
        self.tap = None
        call("ftk_session_open", c.byref(self.handle), model.handle, c.byref(opts))

    def close(self):
        library().ftk_session_close(self.handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def logits(self):
        row = library().ftk_logits(self.handle, None)
        return np.ctypeslib.as_array(row, shape=(self.n_vocab,)).copy()

    def prefill(self, ids):
        """Makes the session hold exactly ids; logits after the last."""
        ids = _ids(ids)
        call("ftk_prefill", self.handle, _pointer(ids), c.c_size_t(len(ids)))
        return self.logits()

    def decode(self, token):
        call("ftk_decode", self.handle, c.c_int32(int(token)))
        return self.logits()

    def score(self, ids):
        """Appends ids [n]; logits after each [n, n_vocab]."""
        ids = _ids(ids)
        out = np.empty((len(ids), self.n_vocab), np.float32)
        call("ftk_score", self.handle, _pointer(ids), c.c_size_t(len(ids)), _pointer(out))
        return out

    def rewind(self, n):
        """Forgets all but the first n positions."""
        call("ftk_session_rewind", self.handle, c.c_size_t(n))

    def reduce(self, **fields):
        """Sets the policy of the next prefill; the fields of ftk_reduction by name. """
        call("ftk_session_reduce", self.handle, c.byref(Reduction(size=c.sizeof(Reduction), **fields)))

    def survivors(self, layer, head):
        """Position ids of the entries one KV head holds."""
        out, n = np.empty(library().ftk_session_context(self.handle), np.int32), c.c_size_t()
        call("ftk_session_survivors", self.handle, c.c_int32(layer), c.c_int32(head), None, _pointer(out),
             c.c_size_t(len(out)), c.byref(n))
        return out[:n.value]

    def collect_hidden(self):
        """From now on, keeps each layer's hidden states: {layer: [chunks of [n, hidden]]}."""
        layers = {}

        def on_layer(_ctx, layer, data, n, hidden):
            layers.setdefault(layer, []).append(np.ctypeslib.as_array(data, shape=(n, hidden)).copy())

        self.tap = TAP(on_layer)
        library().ftk_session_tap(self.handle, self.tap, None)
        return layers

    def greedy(self, n):
        """Continues by n tokens: ids [n], and margins of the best over the second logit [n]."""
        ids, margins = [], []
        for _ in range(n):
            logits = self.logits()
            second, best = (int(i) for i in np.argpartition(logits, -2)[-2:])
            if logits[second] > logits[best]:
                second, best = best, second
            ids.append(best)
            margins.append(float(logits[best] - logits[second]))
            self.decode(best)
        return np.array(ids, np.int32), np.array(margins, np.float32)
