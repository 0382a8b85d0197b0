# SPDX-License-Identifier: Apache-2.0
"""freetoken eval, bench and doctor: the figures and their forms."""
import csv
import io
import json
import math
import re
import struct

import support

TEXT = "".join(f"the {word} in the land and {word} thing " for word in ("sand", "tide", "wind", "inner", "other")) * 20


class EvalTest(support.ProgramTest):
    def setUp(self):
        super().setUp()
        self.text = self.path("text.txt", TEXT)

    def evaluate(self, *words):
        return self.works("eval", self.model, "--text", self.text, "--context", "64", "--score", "32", "--json", *words).lines[-1]

    def test_text_and_json(self):
        data = self.evaluate("--docs", "3")
        self.assertEqual((data["documents"], data["tokens"]), (3, 96))
        self.assertAlmostEqual(data["perplexity"] / math.exp(data["log_perplexity"]), 1, places=4)
        self.assertLess(data["perplexity_low"], data["perplexity"])
        self.assertLess(data["perplexity"], data["perplexity_high"])
        shown = self.works("eval", self.model, "--text", self.text, "--context", "64", "--score", "32", "--docs", "3").text
        self.assertAlmostEqual(float(re.search(r"perplexity +([0-9.]+)", shown)[1]) / data["perplexity"], 1, places=4)

    def test_perplexity_is_that_of_the_logits(self):
        """The same figure from the logits the program dumps."""
        data = self.evaluate("--docs", "1")
        dump = self.path("logits")
        self.works("eval", self.model, "--text", self.text, "--context", "64", "--score", "32", "--dump-logits", dump)
        with open(dump, "rb") as f:
            word, n, n_vocab = f.readline().split()
            n, n_vocab = int(n), int(n_vocab)
            ids = struct.unpack(f"<{n}i", f.read(4 * n))
            rows = [struct.unpack(f"<{n_vocab}f", f.read(4 * n_vocab)) for _ in range(n)]
            self.assertEqual(f.read(), b"")
        self.assertEqual((word, n), (b"FTKLOGITS", 96))
        expected = self.works("tokenize", self.model, "--ids", "-f", self.text).text.strip().split(",")[:n]
        self.assertEqual([str(i) for i in ids], expected)
        nll = 0
        for at in range(64, 96):
            row = rows[at - 1]
            top = max(row)
            nll += top + math.log(sum(math.exp(x - top) for x in row)) - row[ids[at]]
        self.assertAlmostEqual(nll / 32, data["log_perplexity"], delta=2e-3)

    def test_against_itself_is_equal(self):
        other = self.evaluate("--against", self.model)["against"]
        self.assertEqual((other["mean_kl"], other["same_top"], other["perplexity_ratio"]), (0, 1, 1))

    def test_against_other_settings(self):
        for setting in ("kv=f32", "kv=f16", "isa=scalar", "threads=1"):
            other = self.evaluate("--against", setting)["against"]
            self.assertLess(other["mean_kl"], 0.01, setting)
            self.assertGreater(other["same_top"], 0.9, setting)
            self.assertEqual(other["setting"], setting)
        different = self.evaluate("--against", self.make_model("other.gguf", "--context", "512", "--seed", "77"))["against"]
        self.assertGreater(different["mean_kl"], 0.01)

    def test_bad_settings(self):
        base = ["eval", self.model, "--text", self.text, "--context", "64", "--score", "32"]
        self.fails(*base, "--against", "kv=int4", status=2, says="kv=int8")
        self.fails(*base, "--against", "isa=sse9", says="sse9")
        self.fails(*base, "--against", "threads=none", status=2, says="threads=none")
        self.fails(*base, "--against", "nothing.gguf", says="nothing.gguf")
        self.fails(*base, "--against", self.make_model("wide.gguf", "--vocab", "512"), says="vocabular")
        self.fails("eval", self.model, status=2, says="--text")
        self.fails("eval", self.model, "--text", self.path("short.txt", "too short"), says=["tokens", "--context"])
        self.fails("eval", self.model, "--text", self.path("bad.txt", b"caf\xe9 " * 200), says=["bad.txt", "byte 3"])
        self.fails("eval", self.model, "--text", self.text, "--dump-logits", "no/folder/x", says="no/folder/x")

    def test_families_run(self):
        for arch in ("qwen2", "qwen3", "gemma3"):
            model = self.make_model(arch + ".gguf", "--arch", arch)
            data = self.works("eval", model, "--text", self.text, "--context", "40", "--score", "16", "--json",
                              "--against", "kv=f32").lines[-1]
            self.assertLess(data["against"]["mean_kl"], 0.05)


class BenchTest(support.ProgramTest):
    WORDS = ["--prefill", "64,16", "--depth", "0,32", "--decode-tokens", "4", "--repeat", "3", "--warmup", "0"]

    def test_json(self):
        data = json.loads(self.works("bench", self.model, *self.WORDS, "--threads", "1,2", "--kv", "int8,f32", "--json", "-").text)
        self.assertEqual(len(data["cases"]), 2 * 2 * 4)
        for case in data["cases"]:
            self.assertEqual(len(case["all_tok_s"]), 3)
            self.assertLessEqual(case["min_tok_s"], case["median_tok_s"])
            self.assertLessEqual(case["median_tok_s"], case["max_tok_s"])
            self.assertGreater(case["min_tok_s"], 0)
            self.assertGreater(case["rss_bytes"], 0)
        for name in ("cpu", "kernel", "cores", "freetoken", "isa", "features"):
            self.assertIn(name, data["machine"])
        decode = {(c["kv"], c["depth"]): c["bytes_per_token"] for c in data["cases"] if c["kind"] == "decode"}
        self.assertGreater(decode["f32", 32], decode["int8", 32])
        prefill = {c["tokens"]: c["operations"] for c in data["cases"] if c["kind"] == "prefill"}
        self.assertGreater(prefill[64], 3.5 * prefill[16])

    def test_csv_and_table(self):
        out = self.path("out.csv")
        shown = self.works("bench", self.model, *self.WORDS, "--csv", out).text
        with open(out) as f:
            rows = list(csv.DictReader(f))
        self.assertEqual([(r["kind"], r["length"]) for r in rows],
                         [("prefill", "16"), ("prefill", "64"), ("decode", "32"), ("decode", "0")])
        for word in ("prefill", "decode", "tok/s", "GB/s", "GOP/s", "RSS"):
            self.assertIn(word, shown)
        piped = self.works("bench", self.model, *self.WORDS, "--csv", "-").text
        self.assertEqual(len(list(csv.DictReader(io.StringIO(piped)))), 4)

    def test_defaults_stay_within_the_model(self):
        data = json.loads(self.works("bench", self.model, "--repeat", "1", "--warmup", "0", "--json", "-").text)
        self.assertEqual({c["tokens"] for c in data["cases"] if c["kind"] == "prefill"}, {512})
        self.assertEqual({c["depth"] for c in data["cases"] if c["kind"] == "decode"}, {0})

    def test_bad_lists(self):
        self.fails("bench", self.model, "--prefill", "512,,4", status=2, says="--prefill")
        self.fails("bench", self.model, "--prefill", "0", status=2, says=["--prefill 0", "from 1"])
        self.fails("bench", self.model, "--depth", "-1", status=2, says=["--depth -1", "from 0"])
        self.fails("bench", self.model, "--threads", "1;2", status=2, says="--threads")
        self.fails("bench", self.model, "--kv", "int8,int2", status=2, says="--kv")
        self.fails("bench", self.model, "--repeat", "0", status=2, says="--repeat")
        self.fails("bench", self.model, *self.WORDS, "--csv", "no/folder/x.csv", says="no/folder/x.csv")
        self.fails("bench", self.model, *self.WORDS, "--json", "no/folder/x.json", says="no/folder/x.json")


class DoctorTest(support.ProgramTest):
    def test_text_and_json(self):
        shown = self.works("doctor", self.model).text
        for word in ("cpu", "kernels", "GB/s", "GOP/s", "huge pages", "context 512"):
            self.assertIn(word, shown)
        data = json.loads(self.works("doctor", self.model, "--json").text)
        self.assertGreater(data["measured"][0]["read_bytes_per_second"], 1e8)
        self.assertGreater(data["measured"][0]["int8_ops_per_second"], 1e8)
        self.assertEqual(data["model"]["train_context"], 512)
        self.assertIn(data["kernels"], ("scalar", "avx2", "avx512", "neon"))

    def test_forced_kernels_are_told(self):
        shown = self.works("doctor", env={"FREETOKEN_ISA": "scalar"}).text
        self.assertIn("FREETOKEN_ISA", shown)


if __name__ == "__main__":
    support.main()
