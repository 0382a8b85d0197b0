# SPDX-License-Identifier: Apache-2.0
"""Token reduction on the command line: settings, what `eval` measures under them, recall, the survivors shown,
tuning and advice."""
import csv
import json
import math
import os
import re
import shutil
import xml.etree.ElementTree

import support

WORDS = ("sand", "tide", "wind", "inner", "other", "land", "thing", "the", "and", "in")
TEXT = "".join(f"the {WORDS[i * 7 % 10]} in the {WORDS[i * i % 10]} and {WORDS[i * 3 % 10]} thing {i}. " for i in range(400))
FIGURES = ("keep_asked", "keep_achieved", "ppl_dense", "ppl_reduced", "kl", "top1", "ttft_ms_dense", "ttft_ms", "merge_ms",
           "decode_ms", "kv_bytes", "rss_bytes")


class ReduceTest(support.ProgramTest):
    def setUp(self):
        super().setUp()
        self.text = self.path("text.txt", TEXT)
        self.base = ["eval", self.model, "--text", self.text, "--context", "300", "--score", "32", "--docs", "2"]

    def row(self, *words):
        return self.works(*self.base, "--json", *words).lines[-1]


class SettingsTest(ReduceTest):
    def test_help_lists_every_field_of_the_header(self):
        shown = self.works("run", "--reduce", "help").text
        with open(os.path.join(os.path.dirname(__file__), "../../include/freetoken/freetoken.h"), encoding="utf-8") as f:
            header = f.read()
        body = re.search(r"typedef struct ftk_reduction \{(.*?)\} ftk_reduction;", header, re.S)[1]
        body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
        fields = re.findall(r"(\w+);", body)
        self.assertGreater(len(fields), 35)
        for field in fields:
            if field not in ("size", "n_layers_listed", "n_protect"):
                self.assertRegex(shown, rf"(?m)^  {field} ")

    def test_refused_by_name(self):
        for setting, says in (("kv_keep=1.5", "kv_keep=1.5"), ("kv_keep=0", "kv_keep=0"), ("kv_kep=0.5", "did you mean kv_keep"),
                              ("kv_keep=half", "kv_keep=half"), ("kv_keep", "needs a value"), ("how=melt", "merge|drop|share"),
                              ("sinks=-2", "sinks=-2"), ("kv_merge=maybe", "yes or no"), ("layers=3-5", "layers=3-5"),
                              ("budgets=0-99:0.5", "layers 0 to"), ("budgets=0:2", "between 0 and 1"), ("windows=0:x", "windows=0:x"),
                              ("kv_bytes=lots", "kv_bytes=lots"), ("xyzzy=1", "there are policy"), ("nosuchpolicy", "nosuchpolicy"),
                              ("snapkv,h2o", "more than one"), ("dense,keep=0.5", "dense takes no fields")):
            with self.subTest(setting):
                self.fails(*self.base, "--reduce", setting, status=2, says=says)

    def test_flags_refused(self):
        self.fails("run", self.model, "--raw", "-p", "x", "--keep", "1.5", status=2, says="--keep")
        self.fails("run", self.model, "--raw", "-p", "x", "--kv-budget", "much", status=2, says="kv_bytes=much")
        self.fails("run", self.model, "--raw", "-p", "x", "--policy", "nosuch", status=2, says="nosuch")
        self.fails("run", self.model, "--raw", "-p", "x", "--profile", "nosuch", says="freetoken tune")
        self.fails("bench", self.model, "--reduce", "block=x", status=2, says="block=x")
        self.fails("run", self.model, "--raw", "-p", "x", "--explain=x.txt", status=2, says=".html")
        self.fails(*self.base, "--kv-keep", "0.5", "--against", "kv=f32", status=2, says="--against")
        self.fails("eval", self.model, "--text", self.text, "--recall", status=2, says="--recall")
        self.fails("eval", self.model, "--text", self.text, "--svg", "x.svg", status=2, says="--svg")

    def test_dashes_and_order_do_not_matter(self):
        a, b = self.row("--reduce", "snapkv,kv-keep=0.5"), self.row("--reduce", "kv_keep=0.5,policy=snapkv")
        for key in ("kv_bytes", "ppl_reduced", "keep_achieved"):
            self.assertEqual(a[key], b[key])


class EvalTest(ReduceTest):
    def test_names_and_ranges(self):
        row = self.row("--kv-keep", "0.5")
        for name in FIGURES:
            self.assertIn(name, row)
            self.assertIsInstance(row[name], (int, float), name)
        self.assertEqual(row["keep_asked"], 0.5)
        self.assertAlmostEqual(row["keep_achieved"], 0.5, delta=0.002)
        self.assertGreater(row["kl"], 0)
        self.assertTrue(0 < row["top1"] <= 1)
        self.assertLess(row["kv_bytes"], row["kv_bytes_dense"])
        self.assertAlmostEqual(row["ppl_reduced"] / row["ppl_dense"] - 1, row["ppl_loss"], delta=1e-4)
        self.assertEqual(row["documents"], 2)

    def test_dense_figure_is_that_of_plain_eval(self):
        row = self.row("--kv-keep", "0.5")
        self.assertAlmostEqual(row["ppl_dense"], self.works(*self.base, "--json").lines[-1]["perplexity"], delta=2e-4 * row["ppl_dense"])

    def test_keeping_everything_is_dense(self):
        for setting in ("dense", "keep=1,kv_keep=1", "snapkv,kv_keep=1"):
            row = self.row("--reduce", setting)
            self.assertEqual((row["kl"], row["top1"], row["ppl_reduced"]), (0, 1, row["ppl_dense"]), setting)
            self.assertEqual(row["kv_bytes"], row["kv_bytes_dense"])

    def test_what_is_not_carried_out_is_refused_by_name(self):
        for word, field in (("keep=0.5", "keep"), ("kv_keep=0.5,kv_merge=yes", "kv_merge"), ("read_keep=0.5", "read_keep")):
            self.fails(*self.base, "--reduce", word, says=field)

    def test_short_prompts_are_dense_and_say_why(self):
        row = self.row("--reduce", "kv_keep=0.5,min_length=1k")
        self.assertIn("min_length", row["dense_because"])
        self.assertEqual(row["kl"], 0)

    def test_sweep(self):
        table, plot = self.path("rows.csv"), self.path("plot.svg")
        data = self.row("--sweep", "snapkv|h2o,kv_keep=0.8|0.5; dense", "--csv", table, "--svg", plot)
        names = [row["setting"] for row in data["rows"]]
        self.assertEqual(names, ["snapkv,kv_keep=0.8", "snapkv,kv_keep=0.5", "h2o,kv_keep=0.8", "h2o,kv_keep=0.5", "dense"])
        self.assertLess(data["rows"][1]["kv_bytes"], data["rows"][0]["kv_bytes"])
        with open(table, newline="") as f:
            rows = list(csv.DictReader(f))
        self.assertEqual([row["setting"] for row in rows], names)
        for row, other in zip(rows, data["rows"]):
            self.assertAlmostEqual(float(row["ppl_reduced"]), other["ppl_reduced"], delta=1e-3 * other["ppl_reduced"])
        root = xml.etree.ElementTree.parse(plot).getroot()
        titles = [t.text for t in root.iter("{http://www.w3.org/2000/svg}title")]
        for name in names:
            self.assertEqual(titles.count(name), 4 if name == "dense" else 2, titles)  # the setting and the reference, in two plots
        shown = self.works(*self.base, "--sweep", "snapkv,kv_keep=0.5;h2o,kv_keep=0.5").text
        self.assertIn("h2o,kv_keep=0.5", shown)

    def test_sweep_takes_the_flags_as_a_base(self):
        data = self.row("--policy", "snapkv", "--sweep", "kv_keep=0.8|0.5")
        alone = self.row("--reduce", "snapkv,kv_keep=0.5")
        self.assertEqual(data["rows"][1]["ppl_reduced"], alone["ppl_reduced"])

    def test_recall(self):
        data = self.works("eval", self.model, "--text", self.text, "--recall", "--lengths", "320", "--reduce", "snapkv,kv_keep=0.5",
                          "--json").lines[-1]
        rows = data["rows"]
        self.assertEqual(len(rows), 5 * 5 * 2)
        self.assertEqual({row["task"] for row in rows}, {"passkey", "pairs", "needles", "arithmetic", "code"})
        self.assertEqual({row["depth"] for row in rows}, {0, 0.25, 0.5, 0.75, 1})
        for row in rows:
            self.assertEqual(row["n"], 1)
            self.assertAlmostEqual(row["kv_keep"], 0.5, delta=0.05)
        self.assertTrue(any(row["log_probability"] != row["log_probability_dense"] for row in rows))
        dense = self.works("eval", self.model, "--text", self.text, "--recall", "--lengths", "320", "--reduce", "kv_keep=1",
                           "--json").lines[-1]["rows"]
        for row in dense:
            self.assertEqual(row["log_probability"], row["log_probability_dense"])
        self.fails("eval", self.model, "--text", self.text, "--recall", "--lengths", "64", "--kv-keep", "0.5", says="--lengths")

    def test_documents(self):
        line = {"input": TEXT[:900], "instructions": ["Which word?\n (A) sand\n (B) tide\n", "What is in the land?"],
                "outputs": ["(B) tide", "the sand"]}
        long = {"input": TEXT * 2, "instructions": ["Which?"], "outputs": ["none"]}
        documents = self.path("documents.jsonl", json.dumps(line) + "\n\n" + json.dumps(long) + "\n")
        model = self.make_model("long.gguf", "--context", "4096")
        words = ["eval", model, "--documents", documents, "--longest", "600", "--answers", "3", "--json"]
        data = self.works(*words, "--sweep", "snapkv,kv_keep=0.3;kv_keep=1").lines[-1]
        self.assertEqual((data["documents"], data["questions"], data["passed_over"]), (1, 2, 1))
        dense, cut, whole = data["rows"]
        self.assertEqual((dense["choices"], dense["same_as_dense"]), (1, 1))
        self.assertEqual((whole["nll"], whole["nll_difference"], whole["same_as_dense"]), (dense["nll"], 0, 1))
        self.assertNotEqual(cut["nll"], dense["nll"])
        self.assertAlmostEqual(cut["kv_keep"], 0.3, delta=0.005)
        self.assertEqual([a["right"] for a in data["answers"] if "right" in a], [1])
        self.assertEqual(data["answers"][0]["replies"][0]["text"], data["answers"][0]["replies"][2]["text"])
        self.fails("eval", model, "--documents", self.path("bad.jsonl", "{"), "--kv-keep", "0.5", says="line 1")
        self.fails("eval", model, "--documents", self.path("odd.jsonl", "{}"), "--kv-keep", "0.5", says="instructions")
        self.fails("eval", model, "--documents", documents, "--longest", "64", "--kv-keep", "0.5", says="no document")


class RunTest(ReduceTest):
    def test_line_and_summary(self):
        prompt = TEXT[:900]
        result = self.works("run", self.model, "--raw", "-p", prompt, "-n", "4", "--ignore-end", "--kv-keep", "0.5")
        self.assertRegex(result.errors, r"prompt \d+ ")
        summary = self.works("run", self.model, "--raw", "-p", prompt, "-n", "4", "--ignore-end", "--kv-keep", "0.5", "--json").lines[-1]
        self.assertAlmostEqual(summary["kv_share"], 0.5, delta=0.002)
        self.assertIsNone(summary["dense_because"])
        short = self.works("run", self.model, "--raw", "-p", "the sand", "-n", "4", "--ignore-end", "--kv-keep", "0.5")
        self.assertIn("read dense:", short.errors)

    def test_explain(self):
        words = ["run", self.model, "--raw", "-p", TEXT[:900], "-n", "0", "--reduce", "kv_keep=0.5,kv_shared=yes"]
        self.works(*words, "--explain", "left.json")
        with open(self.path("left.json"), encoding="utf-8") as f:
            data = json.load(f)
        n, layers = len(data["tokens"]), data["layers"]
        self.assertEqual("".join(t["text"] for t in data["tokens"]), TEXT[:900])
        cells = len(layers) * len(layers[0])
        for layer in layers:
            for head in layer:
                owners = [o for o in head["owners"] if o >= 0]
                self.assertEqual(len(head["owners"]), n)
                self.assertEqual(sorted(set(owners)), list(range(head["entries"])))
        for t in data["tokens"]:
            self.assertEqual(t["own"] + t["merged"] + t["gone"], cells)
        self.assertTrue(any(t["gone"] for t in data["tokens"]))
        self.works(*words, "--explain", "left.html")
        with open(self.path("left.html"), encoding="utf-8") as f:
            self.assertIn("What is left of the prompt", f.read())
        self.assertTrue(self.works(*words, "--explain").errors)


class TuneTest(ReduceTest):
    FLAGS = ["--context", "128", "--score", "16", "--windows", "1", "--check", "2", "--threads", "1"]

    def test_tune_writes_a_profile_that_is_taken_up(self):
        profile = self.path("tiny.profile.json")
        words = ["tune", self.model, "--text", self.text, *self.FLAGS, "--bound", "kl 5", "--from", "200", "--out", profile, "--json"]
        first = self.works(*words, timeout=200).lines[-1]
        self.assertTrue(first["met"])
        self.assertGreater(first["windows_read"], 5)
        again = self.works(*words, timeout=200).lines[-1]
        self.assertEqual(again["windows_read"], 0, "nothing is measured twice")
        for key in ("kl", "kv_keep", "let_go_layer", "near_heads"):
            self.assertEqual(again[key], first[key])
        row = self.row("--profile", profile)
        self.assertLess(row["kv_keep"], 1)
        self.assertEqual(self.row("--profile", profile, "--reduce", "min_length=1k")["kv_keep"], 1)
        beside = os.path.splitext(self.model)[0] + ".profile.json"
        os.rename(profile, beside)
        self.addCleanup(os.remove, beside)
        run = ["run", self.model, "--raw", "-p", TEXT[:900], "-n", "2", "--ignore-end", "--json"]
        self.assertEqual(self.works(*run).lines[-1]["reduction"], "profile=tuned")
        self.assertNotIn("reduction", self.works(*run, "--policy", "dense").lines[-1])
        short = self.works(*run[:4], "the sand", *run[5:]).lines[-1]
        self.assertIn("min_length", short["dense_because"])
        shutil.copy(beside, profile)
        self.fails(*self.base, "--profile", profile + ":other", says=["other", "tuned"])
        other = self.make_model("other-shape.gguf", "--context", "512", "--vocab", "512")
        self.fails("eval", other, "--text", self.text, "--context", "300", "--score", "32", "--profile", profile, says="another model")

    def test_refusals(self):
        base = ["tune", self.model, "--text", self.text, *self.FLAGS]
        for bound in ("ppl 1", "kl", "speed 3", "top1 150%", "kl x"):
            self.fails(*base, "--bound", bound, status=2, says="--bound")
        self.fails("tune", self.model, status=2, says="--text")
        self.fails("tune", self.model, "--text", self.path("short.txt", TEXT[:2000]), *self.FLAGS[:4], says="windows")

    def test_damaged_profile(self):
        for content, says in (("{", "line 1"), ("{}", "no profile"), ('{"freetoken_profile": 1}', "another model")):
            bad = self.path("bad.json", content)
            self.fails(*self.base, "--profile", bad, says=["bad.json", says])


class AdviseTest(ReduceTest):
    def test_lengths(self):
        lengths = self.path("lengths.txt", " ".join(str(i) for i in range(1, 401)))
        data = self.works("advise", self.model, "--lengths", lengths, "--memory", "1G", "--json").lines[-1]
        self.assertEqual((data["prompts"], data["median_tokens"], data["p95_tokens"], data["longest_tokens"]), (400, 200, 380, 400))
        self.assertEqual(data["share_too_long"], 0)
        tight = int(data["fixed_bytes"] + data["kv_bytes_per_token"] * 300)
        data = self.works("advise", self.model, "--lengths", lengths, "--memory", str(tight), "--answer", "0", "--json").lines[-1]
        self.assertAlmostEqual(data["fits_dense_tokens"], 300, delta=1)
        self.assertAlmostEqual(data["share_too_long"], 0.25, delta=0.01)
        shown = self.works("advise", self.model, "--lengths", lengths, "--memory", str(tight), "--svg", "h.svg").text
        self.assertIn("do not fit", shown)
        xml.etree.ElementTree.parse(self.path("h.svg"))

    def test_texts(self):
        folder = self.path("prompts")
        os.mkdir(folder)
        for i in (1, 2, 3):
            with open(os.path.join(folder, f"{i}.txt"), "w", encoding="utf-8") as f:
                f.write(TEXT[: 300 * i])
        data = self.works("advise", self.model, "--text", folder, "--json").lines[-1]
        count = self.works("tokenize", self.model, "--count", "-f", os.path.join(folder, "3.txt")).text.strip()
        self.assertEqual((data["prompts"], str(int(data["longest_tokens"]))), (3, re.search(r"\d+", count)[0]))

    def test_refusals(self):
        lengths = self.path("lengths.txt", "12 -5")
        self.fails("advise", self.model, "--lengths", lengths, says="byte 3")
        self.fails("advise", self.model, status=2, says="--lengths")
        self.fails("advise", self.model, "--lengths", self.path("none.txt", " "), says="no prompts")
        self.fails("advise", self.model, "--lengths", lengths, "--memory", "plenty", status=2, says="--memory")


if __name__ == "__main__":
    support.main()
