# SPDX-License-Identifier: Apache-2.0
"""Running the program and its models for the tests in this folder.

The test run sets FREETOKEN and MAKE_TINY_MODEL to the two programs. By hand:
    FREETOKEN=build/freetoken MAKE_TINY_MODEL=build/tests/make_tiny_model \
        python3 tests/cli/run_test.py RunTest.test_json
"""
import json
import os
import pty
import select
import subprocess
import sys
import tempfile
import time
import unittest

FREETOKEN = os.path.abspath(os.environ.get("FREETOKEN", "build/freetoken"))
MAKE_TINY_MODEL = os.path.abspath(os.environ.get("MAKE_TINY_MODEL", "build/tests/make_tiny_model"))


def environment(home, **more):
    env = {"PATH": os.environ["PATH"], "HOME": home, "FREETOKEN_HOME": os.path.join(home, "store"), "LC_ALL": "C.UTF-8"}
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "FREETOKEN_ISA"):
        if name in os.environ:
            env[name] = os.environ[name]
    env.update(more)
    return env


class Result:
    def __init__(self, done):
        self.status = done.returncode
        self.out, self.err = done.stdout, done.stderr

    @property
    def text(self):
        return self.out.decode()

    @property
    def errors(self):
        return self.err.decode()

    @property
    def lines(self):
        """Standard output as JSON objects, one a line."""
        return [json.loads(line) for line in self.text.splitlines()]


class ProgramTest(unittest.TestCase):
    """A folder of its own for each test, tiny models shared by the class."""

    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory(prefix="freetoken-cli-")
        cls.model = cls.make_model("tiny.gguf", "--context", "512")

    @classmethod
    def tearDownClass(cls):
        cls.shared.cleanup()

    @classmethod
    def make_model(cls, name, *flags):
        path = os.path.join(cls.shared.name, name)
        if not os.path.exists(path):
            subprocess.run([MAKE_TINY_MODEL, *flags, path], check=True)
        return path

    def setUp(self):
        self.folder_object = tempfile.TemporaryDirectory(prefix="freetoken-cli-")
        self.folder = self.folder_object.name
        self.addCleanup(self.folder_object.cleanup)

    def path(self, name, content=None):
        path = os.path.join(self.folder, name)
        if content is not None:
            with open(path, "wb") as f:
                f.write(content if isinstance(content, bytes) else content.encode())
        return path

    def run_program(self, *words, stdin=b"", timeout=60, env=None):
        done = subprocess.run([FREETOKEN, *words], input=stdin, capture_output=True, timeout=timeout,
                              cwd=self.folder, env=environment(self.folder, **(env or {})))
        self.assertGreaterEqual(done.returncode, 0, "killed by a signal:\n" + done.stderr.decode(errors="replace"))
        self.assertNotIn(b"Sanitizer", done.stderr, done.stderr.decode(errors="replace"))
        return Result(done)

    def works(self, *words, **how):
        result = self.run_program(*words, **how)
        self.assertEqual(result.status, 0, result.errors)
        return result

    def fails(self, *words, says=(), status=1, **how):
        """The program ends with that status, and the message holds every word of `says`."""
        result = self.run_program(*words, **how)
        self.assertEqual(result.status, status, result.errors + result.out.decode(errors="replace"))
        self.assertIn("error: ", result.errors)
        for word in [says] if isinstance(says, str) else says:
            self.assertIn(word, result.errors)
        return result


class Terminal:
    """The program on a pseudo-terminal, as a user sits before it."""

    def __init__(self, *words, folder, env=None):
        self.seen = ""
        settings = environment(folder, **{"TERM": "xterm", **(env or {})})
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(folder)
                os.execve(FREETOKEN, [FREETOKEN, *words], settings)
            finally:
                os._exit(99)

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def wait_for(self, text, timeout=30, start=None):
        """Waits until `text` has appeared after what was waited for before."""
        start = getattr(self, "mark", 0) if start is None else start
        end = time.monotonic() + timeout
        while text not in self.seen[start:]:
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise AssertionError(f"{text!r} did not appear; the terminal shows:\n{self.seen[start:]}")
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                data = b""
            if not data:
                raise AssertionError(f"the program ended before {text!r}; the terminal shows:\n{self.seen[start:]}")
            self.seen += data.decode(errors="replace")
        self.mark = self.seen.index(text, start) + len(text)

    def end(self, timeout=30):
        """The exit status; what comes until then is in `seen`."""
        limit = time.monotonic() + timeout
        while time.monotonic() < limit:
            ready, _, _ = select.select([self.fd], [], [], 0.2)
            if ready:
                try:
                    data = os.read(self.fd, 65536)
                except OSError:
                    data = b""
                if not data:
                    break
                self.seen += data.decode(errors="replace")
        else:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
            raise AssertionError(f"the program did not end; the terminal shows:\n{self.seen}")
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def main():
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=2)
