# SPDX-License-Identifier: Apache-2.0
"""llama.cpp through llama-cpp-python's low-level interface, as a peer to measure and compare with.

Owns: loading a file the way a careful user would (flash attention on, F16 KV cache, micro-batch
512, two threads unless told), tokenizing, logits of every position, greedy continuation, timing.
Leaves to others: what is compared with what (tests/oracle, peer_bench.py).
"""
import ctypes
import os
import time

import llama_cpp as lc
import numpy as np

_KV_TYPES = {"f32": 0, "f16": 1, "q8_0": 8}


@lc.llama_log_callback
def _errors_only(level, text, _user_data):
    if level == 4:  # GGML_LOG_LEVEL_ERROR
        os.write(2, text)


lc.llama_log_set(_errors_only, ctypes.c_void_p(0))
lc.llama_backend_init()


def version():
    return f"llama-cpp-python {lc.__version__}"


def system_info():
    return lc.llama_print_system_info().decode().strip()


class Peer:
    def __init__(self, path, context, n_threads=2, kv="f16", ubatch=512, flash=True, repack=True):
        model_params = lc.llama_model_default_params()
        model_params.n_gpu_layers = 0
        model_params.use_extra_bufts = repack
        self.model = lc.llama_model_load_from_file(os.fsencode(path), model_params)
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self.vocab = lc.llama_model_get_vocab(self.model)
        self.n_vocab = lc.llama_vocab_n_tokens(self.vocab)
        params = lc.llama_context_default_params()
        params.n_ctx = context
        params.n_batch = ubatch
        params.n_ubatch = ubatch
        params.n_threads = params.n_threads_batch = n_threads
        params.flash_attn_type = 1 if flash else 0
        params.type_k = params.type_v = _KV_TYPES[kv]
        params.no_perf = True
        self.ubatch = ubatch
        self.context = lc.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError(f"llama.cpp cannot open a context of {context} for {path}")
        self.batch = lc.llama_batch_init(ubatch, 0, 1)
        self.length = 0

    def close(self):
        lc.llama_batch_free(self.batch)
        lc.llama_free(self.context)
        lc.llama_model_free(self.model)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def tokenize(self, text, add_special=True, parse_special=False):
        """ids of text (str or bytes); add_special: BOS and EOS as the file asks."""
        raw = text.encode() if isinstance(text, str) else text
        n = len(raw) + 8
        ids = (lc.llama_token * n)()
        n = lc.llama_tokenize(self.vocab, raw, len(raw), ids, n, add_special, parse_special)
        if n < 0:
            raise RuntimeError("llama.cpp cannot tokenize the text")
        return np.array(ids[:n], dtype=np.int32)

    def detokenize(self, ids, special=False):
        pieces = []
        buffer = ctypes.create_string_buffer(512)
        for token in ids:
            n = lc.llama_token_to_piece(self.vocab, int(token), buffer, 512, 0, special)
            pieces.append(buffer.raw[:max(n, 0)])
        return b"".join(pieces)

    def is_end(self, token):
        return lc.llama_vocab_is_eog(self.vocab, int(token))

    def clear(self):
        lc.llama_memory_clear(lc.llama_get_memory(self.context), True)
        self.length = 0

    def rewind(self, length):
        """Forgets all but the first `length` positions."""
        if not lc.llama_memory_seq_rm(lc.llama_get_memory(self.context), 0, length, -1):
            raise RuntimeError(f"llama.cpp cannot rewind to {length}")
        self.length = length

    def _decode(self, ids, all_logits):
        batch = self.batch
        n = len(ids)
        batch.n_tokens = n
        for i, token in enumerate(ids):
            batch.token[i] = int(token)
            batch.pos[i] = self.length + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = 1 if all_logits or i == n - 1 else 0
        status = lc.llama_decode(self.context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode: status {status} at position {self.length}")
        self.length += n

    def score(self, ids):
        """Appends ids [n]; logits after each, [n, n_vocab] float32."""
        out = np.empty((len(ids), self.n_vocab), dtype=np.float32)
        for start in range(0, len(ids), self.ubatch):
            part = ids[start:start + self.ubatch]
            self._decode(part, True)
            for i in range(len(part)):
                row = lc.llama_get_logits_ith(self.context, i)
                out[start + i] = np.ctypeslib.as_array(row, shape=(self.n_vocab,))
        return out

    def prefill(self, ids):
        """Appends ids; logits after the last one only."""
        for start in range(0, len(ids), self.ubatch):
            self._decode(ids[start:start + self.ubatch], False)
        return self.logits()

    def logits(self):
        """Logits after the last token, a copy [n_vocab]."""
        row = lc.llama_get_logits_ith(self.context, -1)
        return np.ctypeslib.as_array(row, shape=(self.n_vocab,)).copy()

    def greedy(self, n):
        """Continues by n tokens: ids [n] and the margins of the best over the second logit [n]."""
        ids, margins = [], []
        for _ in range(n):
            logits = self.logits()
            second, best = np.argpartition(logits, -2)[-2:]
            if logits[second] > logits[best]:
                second, best = best, second
            ids.append(int(best))
            margins.append(float(logits[best] - logits[second]))
            self._decode([best], False)
        return np.array(ids, dtype=np.int32), np.array(margins, dtype=np.float32)

    def time_prefill(self, ids):
        """Seconds to prefill ids into an empty context."""
        self.clear()
        start = time.perf_counter()
        for first in range(0, len(ids), self.ubatch):
            self._decode(ids[first:first + self.ubatch], False)
        lc.llama_synchronize(self.context)
        return time.perf_counter() - start

    def time_decode(self, n, token):
        """Seconds to append n times one token, logits computed each time."""
        start = time.perf_counter()
        for _ in range(n):
            self._decode([token], False)
        lc.llama_synchronize(self.context)
        return time.perf_counter() - start


def quantize(source, target, file_type="Q8_0", n_threads=2):
    """Writes `source` with its matrices in another type, also from an already quantised file."""
    params = lc.llama_model_quantize_default_params()
    params.nthread = n_threads
    params.ftype = getattr(lc, f"LLAMA_FTYPE_MOSTLY_{file_type}")
    params.allow_requantize = True
    if lc.llama_model_quantize(os.fsencode(source), os.fsencode(target), ctypes.byref(params)):
        raise RuntimeError(f"llama.cpp cannot quantize {source}")
