# SPDX-License-Identifier: Apache-2.0
"""freetoken inspect, tokenize and quantize."""
import json
import os

import support


class InspectTest(support.ProgramTest):
    def test_text_and_json_agree(self):
        text = self.works("inspect", self.model, "--keys", "--tensors").text
        data = json.loads(self.works("inspect", self.model, "--keys", "--tensors", "--json").text)
        self.assertTrue(data["loads"])
        self.assertIn("Would load", text)
        self.assertEqual(data["model"]["architecture"], "llama")
        self.assertEqual(data["keys"]["general.architecture"]["value"], "llama")
        for tensor in data["tensors"]:
            self.assertIn(tensor["name"], text)
            self.assertIn(f"at byte {tensor['offset']}", text)
        for key in data["keys"]:
            self.assertIn(key, text)
        self.assertEqual(sum(t["bytes"] for t in data["tensors"]), sum(t["bytes"] for t in data["types"]))

    def test_memory_grows_with_context_and_precision(self):
        rows = json.loads(self.works("inspect", self.model, "--json").text)["memory"]
        self.assertEqual(max(row["context"] for row in rows), 512)
        by = {(row["context"], row["kv"]): row for row in rows}
        self.assertLess(by[512, "int8"]["kv_bytes"], by[512, "f16"]["kv_bytes"])
        self.assertLess(by[512, "f16"]["kv_bytes"], by[512, "f32"]["kv_bytes"])
        for row in rows:
            self.assertEqual(row["total_bytes"], row["weight_bytes"] + row["scratch_bytes"] + row["kv_bytes"])

    def test_every_family_and_type_loads(self):
        for arch in ("llama", "qwen2", "qwen3", "gemma3"):
            path = self.make_model(f"{arch}.gguf", "--arch", arch)
            self.assertEqual(json.loads(self.works("inspect", path, "--json").text)["model"]["architecture"], arch)
        for kind in ("F16", "Q8_0", "Q4_0", "Q4_K", "Q6_K"):
            path = self.make_model(f"{kind}.gguf", "--type", kind)
            types = json.loads(self.works("inspect", path, "--json").text)["types"]
            self.assertIn(kind, [row["type"] for row in types])

    def test_status_1_for_a_file_that_would_not_load(self):
        with open(self.model, "rb") as f:
            whole = f.read()
        foreign = self.path("foreign.gguf", whole.replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0mamba"))
        result = self.fails("inspect", foreign, says=["would not load", "mamba"])
        self.assertIn("tensors", result.text)  # what can be read is shown all the same
        result = self.run_program("inspect", foreign, "--json")
        data = json.loads(result.text)
        self.assertEqual((result.status, data["loads"]), (1, False))
        self.assertIn("mamba", data["reason"])

    def test_missing_tensor_is_noticed(self):
        with open(self.model, "rb") as f:
            whole = f.read()
        self.fails("inspect", self.path("x.gguf", whole.replace(b"blk.1.ffn_down.weight", b"blk.1.ffn_gown.weight")),
                   says=["would not load", "blk.1.ffn_down"])

    def test_terminal_is_safe_from_the_file(self):
        with open(self.model, "rb") as f:
            whole = f.read()
        path = self.path("escape.gguf", whole.replace(b"tiny random model", b"tiny\x1b]0;hi\x07 model"))
        terminal = support.Terminal("inspect", path, "--keys", folder=self.folder, env={"NO_COLOR": "1"})
        self.assertEqual(terminal.end(), 0)
        self.assertNotIn("\x1b", terminal.seen)
        json.loads(self.works("inspect", path, "--keys", "--json").text)


class TokenizeTest(support.ProgramTest):
    def ids(self, *words, **how):
        text = self.works("tokenize", self.model, "--ids", *words, **how).text.strip()
        return [int(word) for word in text.split(",")] if text else []

    def test_forms_agree(self):
        data = json.loads(self.works("tokenize", self.model, "--json", "the thing").text)
        ids = self.ids("the thing")
        self.assertEqual([t["id"] for t in data["tokens"]], ids)
        self.assertEqual(data["count"], len(ids))
        self.assertEqual(int(self.works("tokenize", self.model, "--count", "the thing").text), len(ids))
        lines = self.works("tokenize", self.model, "the thing").text.splitlines()
        self.assertEqual([int(line.split()[0]) for line in lines], ids)

    def test_argument_file_and_pipe_agree(self):
        text = "the thing\n\tand more"
        expected = self.ids(text)
        self.assertEqual(self.ids("-f", self.path("t.txt", text)), expected)
        self.assertEqual(self.ids(stdin=text.encode()), expected)
        self.assertEqual(self.ids("-f", "-", stdin=text.encode()), expected)

    def test_round_trip(self):
        for text in ("hello", " two  spaces ", "tab\tnewline\n", "grüße мир 你好 😀", "a" * 5000, "${TMPDIR:-.}"):
            words = ",".join(map(str, self.ids(text)))
            self.assertEqual(self.works("tokenize", self.model, "--decode", words).out, text.encode() + b"\n")
            piped = self.works("tokenize", self.model, "--decode", "-", "--json", stdin=words.encode()).text
            self.assertEqual(json.loads(piped)["text"], text)

    def test_special_tokens_only_on_request(self):
        plain, special = self.ids("<|im_start|>user"), self.ids("--special", "<|im_start|>user")
        self.assertEqual(special[0], 1)
        self.assertNotIn(1, plain)
        self.assertGreater(len(plain), len(special))
        self.assertEqual(self.works("tokenize", self.model, "--decode", "1").text, "\n")
        self.assertEqual(self.works("tokenize", self.model, "--decode", "1", "--special").text, "<|im_start|>\n")

    def test_begin_token_as_the_file_asks(self):
        spm = self.make_model("spm.gguf", "--spm")
        words = ["tokenize", spm, "--ids", "hello"]
        with_bos, without = (self.works(*w).text.strip() for w in (words, [*words, "--no-bos"]))
        self.assertTrue(with_bos == without or with_bos.endswith("," + without), (with_bos, without))

    def test_pieces_that_are_no_text_are_valid_json(self):
        data = json.loads(self.works("tokenize", self.model, "--json", "😀").text)
        self.assertEqual("".join(t.get("bytes", "") for t in data["tokens"]), "😀".encode().hex())

    def test_empty_text(self):
        self.assertEqual(self.ids(""), [])
        self.assertEqual(self.works("tokenize", self.model, "--count", "").text, "0\n")

    def test_bad_text_and_ids(self):
        self.fails("tokenize", self.model, stdin=b"ok\xc0\x80", says="byte 2")
        self.fails("tokenize", self.model, "-f", self.folder, says="is a directory")
        self.fails("tokenize", self.model, "--decode", "1,two", status=2, says=["--decode", "two"])
        self.fails("tokenize", self.model, "--decode", "999999", says=["--decode", "vocabulary"])
        self.fails("tokenize", self.model, "--decode", "-1", says=["--decode", "vocabulary"])
        self.fails("tokenize", self.model, "--decode", "99999999999999999999", says=["--decode", "vocabulary"])

    def test_list_forms_of_ids(self):
        for words in ("[1, 2]", "1 2", "1,2", "1\n2\n"):
            self.assertEqual(json.loads(self.works("tokenize", self.model, "--json", "--decode", words).text)["count"], 2)


class QuantizeTest(support.ProgramTest):
    def test_types_and_sizes(self):
        big = self.make_model("big.gguf", "--hidden", "256", "--ffn", "512", "--head-dim", "64")
        sizes = {}
        for kind in ("Q8_0", "Q4_0", "Q4_K"):
            out = self.path(kind + ".gguf")
            self.works("quantize", big, out, kind.lower())
            types = [row["type"] for row in json.loads(self.works("inspect", out, "--json").text)["types"]]
            self.assertIn(kind, types)
            sizes[kind] = os.path.getsize(out)
            self.works("run", out, "-p", "x", "-n", "2")
        self.assertLess(sizes["Q4_0"], sizes["Q8_0"])
        self.assertLess(sizes["Q8_0"], os.path.getsize(big))

    def test_perplexity_before_and_after(self):
        text = self.path("text.txt", "the thing in the land and the rest " * 60)
        out = self.path("q.gguf")
        data = self.works("quantize", self.model, out, "Q8_0", "--eval", text, "--context", "64", "--score", "32",
                          "--json").lines[-1]
        self.assertGreater(data["perplexity_before"], 1)
        self.assertAlmostEqual(data["perplexity_after"] / data["perplexity_before"], 1, delta=0.05)
        shown = self.works("quantize", self.model, out, "Q8_0", "--force", "--eval", text, "--context", "64", "--score",
                           "32").text
        self.assertIn("perplexity ", shown)

    def test_nothing_is_overwritten_by_accident(self):
        out = self.path("out.gguf", "precious")
        self.fails("quantize", self.model, out, "Q8_0", status=2, says=["exists", "--force"])
        self.fails("quantize", self.model, self.model, "Q8_0", "--force", status=2, says="same file")
        self.fails("quantize", self.model, self.folder, "Q8_0", status=2, says="directory")
        with open(out) as f:
            self.assertEqual(f.read(), "precious")
        self.works("quantize", self.model, out, "Q8_0", "--force")

    def test_failures_leave_nothing(self):
        self.fails("quantize", self.model, self.path("no/such/folder.gguf"), "Q8_0", says="no/such")
        self.fails("quantize", self.model, "o.gguf", "Q3_K", status=2, says=["Q3_K", "Q8_0"])
        with open(self.model, "rb") as f:
            half = f.read(os.path.getsize(self.model) // 2)
        self.fails("quantize", self.path("half.gguf", half), "o.gguf", "Q8_0", says="half.gguf")
        self.assertEqual(os.listdir(self.folder), ["half.gguf"])


if __name__ == "__main__":
    support.main()
