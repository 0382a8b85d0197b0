# SPDX-License-Identifier: Apache-2.0
"""The tokenizer under test behind its pipe (text_tool), and where its oracles find their files.

Environment, each with a fallback that makes a test skip visibly when nothing is there:
  FTK_BUILD    build directory of the project (default: build beside the source)
  FTK_MODELS   folder of *.gguf models
  FTK_VOCABS   folder of ggml-vocab-*.gguf with their .inp/.out files; the source distribution of
               llama-cpp-python carries it as vendor/llama.cpp/models
"""
import os
import pathlib
import struct
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FTK_BUILD", ROOT / "build"))
TOOL = BUILD / "tests" / "text_tool"
DATA = pathlib.Path(os.environ.get("FTK_TEST_DATA", ROOT.parent / "shared" / "data"))

SPECIAL, BOS_EOS = 1, 2


def folder(variable):
    value = os.environ.get(variable)
    return pathlib.Path(value) if value else None


def files(variable, pattern):
    where = folder(variable)
    return sorted(where.glob(pattern)) if where and where.is_dir() else []


class Failure(Exception):
    def __init__(self, status, detail):
        super().__init__(f"status {status}: {detail}")
        self.status, self.detail = status, detail


class Tokenizer:
    """One text_tool process over one GGUF file."""

    def __init__(self, path="-"):
        self.process = subprocess.Popen([str(TOOL), str(path)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _ask(self, command, *parts):
        out = command.encode()
        for part in parts:
            out += struct.pack("<I", part & 0xFFFFFFFF) if isinstance(part, int) else part
        self.process.stdin.write(out)
        self.process.stdin.flush()

    def _number(self):
        return struct.unpack("<I", self._bytes(4))[0]

    def _bytes(self, n):
        data = self.process.stdout.read(n)
        if len(data) != n:
            raise RuntimeError(f"text_tool ended with {self.process.wait()}")
        return data

    def encode(self, text, flags=0):
        data = text if isinstance(text, bytes) else text.encode()
        self._ask("E", flags, len(data), data)
        status, n = self._number(), self._number()
        if status:
            raise Failure(status, n)
        return list(struct.unpack(f"<{n}i", self._bytes(4 * n)))

    def decode(self, ids, special=True):
        self._ask("D", int(special), len(ids), struct.pack(f"<{len(ids)}i", *ids))
        status, n = self._number(), self._number()
        if status:
            raise Failure(status, n)
        return self._bytes(n)

    def info(self):
        self._ask("I")
        n, bos, eos = struct.unpack("<Iii", self._bytes(12))
        return n, bos, eos, list(self._bytes(n)), list(self._bytes(n))

    def chat(self, family, messages, add, bos="", eos=""):
        """The rendered text and the runs that came from the messages."""
        def text(s):
            data = s.encode()
            return struct.pack("<I", len(data)) + data
        parts = [text(family), text(bos), text(eos), int(add), len(messages)]
        for m in messages:
            parts += [text(m["role"]), text(m["content"])]
        self._ask("C", *parts)
        status, n = self._number(), self._number()
        out = self._bytes(n).decode()
        plain = [(self._number(), self._number()) for _ in range(self._number())]
        if status:
            raise Failure(status, out)
        return out, plain

    def recognise(self, template):
        data = template.encode()
        self._ask("N", len(data), data)
        return self._bytes(self._number()).decode()

    def seconds(self, text, repeats=3):
        data = text.encode()
        self._ask("T", len(data), data, repeats)
        return self._number() / 1e6
