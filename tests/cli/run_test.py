# SPDX-License-Identifier: Apache-2.0
"""freetoken run: prompts from everywhere, bounds, output forms, sessions, interruption."""
import os
import re
import signal
import subprocess
import time

import support


class RunTest(support.ProgramTest):
    def summary(self, *words, **how):
        lines = self.works("run", self.model, "--json", *words, **how).lines
        self.assertEqual(lines[-1]["type"], "summary")
        self.assertTrue(all(line["type"] == "text" for line in lines[:-1]))
        return lines[-1]

    def test_line_of_figures(self):
        result = self.works("run", self.model, "-p", "Hello", "-n", "8", "--ignore-end")
        self.assertRegex(result.errors, r"prompt \d+ tokens · TTFT .* · decode .* tok/s · KV .* · peak .* · kernels \w+")
        self.assertTrue(result.text.endswith("\n"))
        self.assertEqual(self.works("run", self.model, "-p", "Hello", "-n", "8", "-q").errors, "")

    def test_json(self):
        lines = self.works("run", self.model, "--json", "-p", "Hello", "-n", "8", "--ignore-end").lines
        last = lines[-1]
        for name in ("finish", "prompt_tokens", "reused_tokens", "generated_tokens", "ttft_ms", "prefill_tok_s",
                     "decode_tok_s", "kv_bytes", "rss_bytes", "peak_rss_bytes", "weight_bytes", "context", "kernels"):
            self.assertIn(name, last)
        self.assertEqual(last["generated_tokens"], 8)
        self.assertEqual(last["finish"], "length")
        self.assertGreater(last["ttft_ms"], 0)

    def test_json_pieces_are_the_text(self):
        text = self.works("run", self.model, "-p", "Hello", "-n", "30", "--ignore-end").out
        lines = self.works("run", self.model, "--json", "-p", "Hello", "-n", "30", "--ignore-end").lines
        joined = "".join(line["text"] for line in lines if line["type"] == "text").encode()
        self.assertEqual(text.rstrip(b"\n"), joined.rstrip(b"\n"))

    def test_json_is_valid_whatever_the_model_says(self):
        # a random model at high temperature emits byte tokens that make no characters
        for seed in range(8):
            self.summary("-p", "x", "--temp", "1.5", "--top-k", "100", "--seed", str(seed), "-n", "60", "--ignore-end")

    def test_errors_are_json_too(self):
        result = self.fails("run", "missing.gguf", "-p", "x", "--json", says="missing.gguf")
        self.assertEqual(result.lines[0]["type"], "error")
        self.assertIn("missing.gguf", result.lines[0]["message"])

    def test_same_request_same_text(self):
        words = ["run", self.model, "-p", "abc", "-n", "20", "--ignore-end", "--temp", "1", "-q"]
        first = self.works(*words, "--seed", "5").out
        self.assertEqual(self.works(*words, "--seed", "5").out, first)
        self.assertNotEqual(self.works(*words, "--seed", "6").out, first)

    # ---- where the prompt comes from

    def test_prompt_from_flag_file_and_pipe_are_the_same(self):
        path = self.path("prompt.txt", "the same text")
        by_flag = self.summary("-p", "the same text", "-n", "1")
        by_file = self.summary("-f", path, "-n", "1")
        by_pipe = self.summary("-n", "1", stdin=b"the same text")
        by_dash = self.summary("-f", "-", "-n", "1", stdin=b"the same text")
        counts = {s["prompt_tokens"] for s in (by_flag, by_file, by_pipe, by_dash)}
        self.assertEqual(len(counts), 1, counts)

    def test_file_and_question_make_one_turn(self):
        path = self.path("doc.txt", "A document.")
        both = self.summary("-f", path, "-p", "A question?", "-n", "1")
        one = self.summary("-p", "A document.\n\nA question?", "-n", "1")
        self.assertEqual(both["prompt_tokens"], one["prompt_tokens"])

    def test_raw_is_shorter_by_the_template(self):
        chat = self.summary("-p", "text", "-n", "1")
        raw = self.summary("-p", "text", "-n", "1", "--raw")
        self.assertLess(raw["prompt_tokens"], chat["prompt_tokens"])

    def test_model_without_template_completes(self):
        base = self.make_model("base.gguf", "--no-template")
        lines = self.works("run", base, "--json", "-p", "text", "-n", "1").lines
        raw = self.summary("-p", "text", "-n", "1", "--raw")
        self.assertEqual(lines[-1]["prompt_tokens"], raw["prompt_tokens"])
        forced = self.works("run", base, "--json", "-p", "text", "-n", "1", "--template", "chatml").lines[-1]
        self.assertGreater(forced["prompt_tokens"], raw["prompt_tokens"])

    def test_unknown_template_family(self):
        self.fails("run", self.model, "-p", "x", "--template", "nonsense", says=["nonsense", "chatml", "--template"])

    def test_system_text_is_part_of_the_prompt(self):
        self.assertGreater(self.summary("-p", "x", "-n", "1", "--system", "Be brief.")["prompt_tokens"],
                           self.summary("-p", "x", "-n", "1")["prompt_tokens"])

    def test_byte_order_mark_is_no_text(self):
        marked = self.summary("-f", self.path("bom.txt", b"\xef\xbb\xbftext"), "-n", "1")
        plain = self.summary("-f", self.path("plain.txt", b"text"), "-n", "1")
        self.assertEqual(marked["prompt_tokens"], plain["prompt_tokens"])

    def test_shell_like_text_is_plain_text(self):
        text = "${TMPDIR:-${TEMP:-${TMP:-.}}} `id` $(id) %s%n \\n " * 40
        path = self.path("shell.txt", text)
        got = self.summary("-f", path, "-n", "1", "--context", "8k")
        count = int(self.works("tokenize", self.model, "--count", "-f", path).text)
        self.assertGreaterEqual(got["prompt_tokens"], count)

    # ---- bad prompts

    def test_empty_prompt(self):
        self.fails("run", self.model, "-p", "", says="the prompt is empty")
        self.fails("run", self.model, "-p", " \n", says="the prompt is empty")
        self.fails("run", self.model, stdin=b"", says="the prompt is empty")
        self.fails("run", self.model, "--raw", "-p", "", says="no begin token")

    def test_invalid_utf8_names_the_byte(self):
        self.fails("run", self.model, "-f", self.path("latin.txt", b"caf\xe9 au lait"), says=["latin.txt", "byte 3 (0xe9)"])
        self.fails("run", self.model, "-f", "-", stdin=b"ab\xff", says=["standard input", "byte 2 (0xff)"])
        self.fails("run", self.model, stdin=b"\xe2\x82", says="byte 0")
        self.fails("run", self.model, "-p", b"x\xed\xa0\x80".decode("utf-8", "surrogateescape"), says=["--prompt", "byte 1"])

    def test_binary_and_utf16_files(self):
        self.fails("run", self.model, "-f", self.path("bin", b"ab\0cd"), says="byte 2 is NUL")
        self.fails("run", self.model, "-f", self.path("wide.txt", "text".encode("utf-16")), says="UTF-16")

    def test_unreadable_prompt_files(self):
        self.fails("run", self.model, "-f", "nowhere.txt", says=["nowhere.txt", "No such file"])
        self.fails("run", self.model, "-f", self.folder, says="is a directory")

    # ---- lengths

    def test_no_tokens_wanted(self):
        got = self.summary("-p", "x", "-n", "0")
        self.assertEqual((got["generated_tokens"], got["finish"]), (0, "length"))

    def test_unbounded_ends_with_the_context(self):
        for n in ("-1", "-2"):
            got = self.summary("-p", "x", "-n", n, "--context", "64", "--ignore-end")
            self.assertEqual(got["finish"], "context")
            self.assertEqual(got["context_used"], 64)

    def test_model_without_end_token_stops_at_the_context(self):
        endless = self.make_model("endless.gguf", "--no-end", "--context", "96")
        last = self.works("run", endless, "--json", "--raw", "-p", "x").lines[-1]
        self.assertEqual((last["finish"], last["context_used"]), ("context", 96))

    def test_tiny_context(self):
        self.fails("run", self.model, "-p", "hello there", "--context", "1", says="--context")
        self.fails("run", self.model, "-p", "hello there", "--context", "2", says="--context")

    def test_prompt_beyond_the_context_gives_both_counts(self):
        text = "word " * 400
        count = self.summary("-p", text, "-n", "0", "--context", "8k")["prompt_tokens"]
        self.fails("run", self.model, "-p", text, "--context", str(count // 2),
                   says=[f"has {count} tokens", f"holds {count // 2}", "--context"])
        self.fails("run", self.model, "-p", text, "--context", str(count), says=[f"holds {count}"])
        self.summary("-p", text, "-n", "1", "--context", str(count + 1))

    def test_message_offers_a_context_that_works(self):
        text = "word " * 60
        result = self.fails("run", self.model, "-p", text, "--context", "32", says="--context ")
        offered = result.errors.split("give --context ")[1].split()[0]
        self.works("run", self.model, "-p", text, "--context", offered, "-n", "1")

    def test_default_context_grows_with_the_prompt(self):
        roomy = self.make_model("roomy.gguf", "--context", "16384")
        text = "x" * 5000
        last = self.works("run", roomy, "--json", "-p", text, "-n", "1").lines[-1]
        self.assertGreater(last["prompt_tokens"], 4096)
        self.assertGreaterEqual(last["context"], last["prompt_tokens"] + 1)
        self.fails("run", roomy, "-p", "x" * 40000, says=["trained for 16384", "shorten"])

    def test_huge_context_is_not_allocated_up_front(self):
        last = self.summary("-p", "x", "-n", "1", "--context", "1m")
        self.assertLess(last["peak_rss_bytes"], 1 << 30)

    # ---- stopping

    def test_stop_text_is_not_shown(self):
        words = ["-p", "x", "-n", "40", "--ignore-end"]
        whole = self.works("run", self.model, *words, "-q").text.rstrip("\n")
        stop = re.search("[a-zA-Z]{3}", whole[3:]).group()
        lines = self.works("run", self.model, "--json", *words, "--stop", stop).lines
        text = "".join(line["text"] for line in lines[:-1])
        self.assertEqual(lines[-1]["finish"], "stop")
        self.assertEqual(text, whole[: whole.index(stop)])

    def test_interrupt_stops_with_130(self):
        slow = self.make_model("slow.gguf", "--layers", "24", "--hidden", "512", "--ffn", "2048", "--no-end", "--context", "65536")
        started = time.monotonic()
        process = subprocess.Popen([support.FREETOKEN, "run", slow, "--raw", "-p", "x", "--context", "64k"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=support.environment(self.folder))
        self.assertTrue(process.stdout.read(1))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        self.assertIn(b"stopped", err)
        self.assertLess(time.monotonic() - started, 30)

    # ---- sessions

    def test_session_spares_the_shared_beginning(self):
        path, doc = self.path("s.ftk"), self.path("doc.txt", "A long document. " * 12)
        first = self.summary("-f", doc, "-p", "One?", "-n", "4", "--session", path)
        self.assertEqual(first["reused_tokens"], 0)
        self.assertTrue(os.path.getsize(path) > 0)
        second = self.summary("-f", doc, "-p", "Two?", "-n", "4", "--session", path)
        self.assertGreater(second["reused_tokens"], 100)
        fresh = self.summary("-f", doc, "-p", "Two?", "-n", "4")
        self.assertEqual(second["prompt_tokens"], fresh["prompt_tokens"])

    def test_session_does_not_change_the_answer(self):
        path = self.path("s.ftk")
        words = ["run", self.model, "-q", "-n", "12", "--ignore-end"]
        self.works(*words, "-p", "The quick brown fox", "--session", path)
        again = self.works(*words, "-p", "The quick brown dog", "--session", path).out
        self.assertEqual(again, self.works(*words, "-p", "The quick brown dog").out)

    def test_continue_appends_a_turn(self):
        path = self.path("s.ftk")
        first = self.summary("-p", "One", "-n", "4", "--session", path)
        second = self.summary("-p", "Two", "-n", "4", "--session", path, "--continue")
        self.assertGreater(second["prompt_tokens"], first["prompt_tokens"] + 4)
        self.assertGreaterEqual(second["reused_tokens"], first["prompt_tokens"] + 3)

    def test_long_session_is_taken_up_without_a_flag(self):
        roomy, path = self.make_model("roomy.gguf", "--context", "16384"), self.path("s.ftk")
        first = self.works("run", roomy, "--json", "-p", "x" * 5000, "-n", "2", "--session", path).lines[-1]
        again = self.works("run", roomy, "--json", "-p", "more", "-n", "2", "--session", path, "--continue").lines[-1]
        self.assertGreaterEqual(again["reused_tokens"], first["prompt_tokens"])
        self.fails("run", roomy, "-p", "x", "-n", "2", "--session", path, "--context", "512", says=["s.ftk", "context"])

    def test_session_of_another_model_is_refused_and_kept(self):
        path = self.path("s.ftk")
        self.summary("-p", "One", "-n", "2", "--session", path)
        with open(path, "rb") as f:
            before = f.read()
        other = self.make_model("other.gguf", "--seed", "9")
        self.fails("run", other, "-p", "x", "-n", "1", "--session", path, says="s.ftk")
        self.fails("run", self.model, "-p", "x", "-n", "1", "--kv", "f32", "--session", path, says="s.ftk")
        with open(path, "rb") as f:
            self.assertEqual(f.read(), before)

    def test_damaged_session_is_refused(self):
        path = self.path("s.ftk")
        self.summary("-p", "One", "-n", "2", "--session", path)
        with open(path, "rb") as f:
            whole = f.read()
        flipped = bytearray(whole)
        flipped[len(whole) // 2] ^= 4
        for damaged in (whole[: len(whole) // 2], bytes(flipped), b"", b"text"):
            self.path("s.ftk", damaged)
            self.fails("run", self.model, "-p", "x", "-n", "1", "--session", path, says="s.ftk")

    def test_session_that_cannot_be_written(self):
        self.fails("run", self.model, "-p", "x", "-n", "1", "--session", "no/such/folder/s.ftk", says="no/such/folder")


if __name__ == "__main__":
    support.main()
