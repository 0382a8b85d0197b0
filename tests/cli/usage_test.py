# SPDX-License-Identifier: Apache-2.0
"""Commands, flags, help and exit statuses: what never reaches the engine."""
import os

import support

COMMANDS = ["run", "bench", "eval", "classify", "embed", "inspect", "tokenize", "quantize", "pull", "doctor"]


class UsageTest(support.ProgramTest):
    def test_version(self):
        for word in ("--version", "-V"):
            self.assertRegex(self.works(word).text, r"^freetoken \d+\.\d+\.\d+\n$")

    def test_overview_names_every_command(self):
        text = self.works("help").text
        for command in COMMANDS:
            self.assertIn(f"  {command} ", text)
        self.assertEqual(self.works("--help").text, text)
        self.assertEqual(self.run_program().status, 2)

    def test_every_command_has_help_with_examples(self):
        for command in COMMANDS:
            text = self.works("help", command).text
            self.assertEqual(self.works(command, "--help").text, text)
            self.assertEqual(self.works(command, "-h").text, text)
            self.assertIn(f"freetoken {command} ", text)
            self.assertIn("Examples:", text)
            self.assertIn("Exit status:", text)
            self.assertLessEqual(max(len(line) for line in text.splitlines()), 100)

    def test_unknown_command_names_the_nearest(self):
        self.fails("rum", status=2, says="did you mean run?")
        self.fails("tokenise", status=2, says="did you mean tokenize?")
        self.fails("help", "evil", status=2, says="did you mean eval?")
        result = self.fails("frobnicate", status=2, says="no such command")
        self.assertNotIn("did you mean", result.errors)

    def test_unknown_flag_names_the_nearest(self):
        self.fails("run", "--tmep", "1", status=2, says=["--tmep", "--temp?"])
        self.fails("bench", "--depths=1", status=2, says=["--depths", "--depth?"])
        self.fails("eval", "--context-length", "4", status=2, says="--context-length: no such flag")
        self.fails("run", "-Z", status=2, says="-Z: no such flag")

    def test_numbers_are_checked_and_the_flag_named(self):
        for flag, value, words in [
            ("-n", "x", ["-n x", "not a number"]),
            ("-n", "", ["not a number"]),
            ("-n", "-3", ["-n -3", "from -2 to"]),
            ("--tokens", "99999999999999999999", ["--tokens", "from"]),
            ("--context", "0", ["--context 0", "from 1"]),
            ("--context", "-1", ["--context -1", "from 1"]),
            ("--context", "1.5", ["whole number"]),
            ("--context", "4kk", ["suffixes"]),
            ("--context", "0x10", ["not a number"]),
            ("--context", "1e3", ["not a number"]),
            ("--threads", "0", ["--threads 0", "from 1"]),
            ("--threads", "100000", ["--threads 100000", "to 256"]),
            ("--temp", "nan", ["--temp nan", "from 0"]),
            ("--temp", "-1", ["--temp -1", "from 0"]),
            ("--temp", "1e999", ["--temp", "to 100"]),
            ("--top-p", "1.5", ["--top-p 1.5", "to 1"]),
            ("--min-p", "much", ["--min-p much", "not a number"]),
            ("--seed", "-1", ["--seed -1", "from 0"]),
            ("--kv", "int4", ["--kv int4", "int8|f16|f32"]),
            ("--bias", "12", ["--bias 12", "ID=VALUE"]),
            ("--bias", "a=1", ["--bias a=1", "ID=VALUE"]),
            ("--bias", "1=nan", ["--bias 1=nan", "ID=VALUE"]),
            ("--stop", "", ["--stop", "empty"]),
        ]:
            with self.subTest(flag=flag, value=value):
                self.fails("run", self.model, "-p", "x", flag, value, status=2, says=words)

    def test_ways_to_write_a_flag(self):
        for words in (["-n", "2"], ["-n2"], ["-n=2"], ["--tokens", "2"], ["--tokens=2"]):
            self.works("run", self.model, "-p", "x", "--context", "0.5k", *words)

    def test_missing_value_and_value_for_a_switch(self):
        self.fails("run", "-n", status=2, says="-n needs a value")
        self.fails("run", "-p", "--chat", status=2, says=["-p needs a value", "--prompt=--chat"])
        self.fails("run", "--json=yes", status=2, says="--json takes no value")
        self.works("run", self.model, "--prompt=--chat", "-n", "1")

    def test_too_many_and_too_few_words(self):
        self.fails("run", self.model, "tell me", status=2, says="too many words")
        for command, words in (("eval", []), ("inspect", []), ("tokenize", []), ("quantize", ["a", "b"])):
            self.fails(command, *words, status=2, says="something is missing: freetoken " + command)

    def test_flags_that_exclude_each_other(self):
        self.fails("run", self.model, "--raw", "--chat", status=2, says=["--raw", "--chat"])
        self.fails("run", self.model, "--raw", "--system", "x", status=2, says=["--raw", "--system"])
        self.fails("run", self.model, "-p", "x", "--continue", status=2, says="--session")
        self.fails("tokenize", self.model, "text", "-f", "file", status=2, says="one of")

    def test_words_after_two_dashes_are_no_flags(self):
        self.assertEqual(self.works("tokenize", self.model, "--count", "--", "--help").text.strip().isdigit(), True)

    def test_colour_only_where_wanted(self):
        def shown(env):
            terminal = support.Terminal("help", folder=self.folder, env=env)
            self.assertEqual(terminal.end(), 0)
            return terminal.seen

        self.assertIn("\033[1m", shown({}))
        self.assertNotIn("\033[", shown({"NO_COLOR": "1"}))
        self.assertNotIn("\033[", shown({"TERM": "dumb"}))
        self.assertNotIn("\033", self.works("help").text)

    def test_output_that_cannot_be_written(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        import subprocess
        with open("/dev/full", "wb") as full:
            done = subprocess.run([support.FREETOKEN, "help"], stdout=full, stderr=subprocess.PIPE,
                                  env=support.environment(self.folder))
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"could not be written", done.stderr)


class ModelWordTest(support.ProgramTest):
    """Every command that takes a model says clearly why a word is none."""

    COMMANDS = [["run", None, "-p", "x"], ["bench", None], ["inspect", None], ["tokenize", None, "x"],
                ["eval", None, "--text", "/dev/null"], ["quantize", None, "out.gguf", "Q8_0"], ["doctor", None]]

    def each(self, word, says):
        for command in self.COMMANDS:
            with self.subTest(command=command[0], word=word):
                self.fails(*[word if w is None else w for w in command], says=says)

    def test_missing_file(self):
        self.each("no/such/model.gguf", ["no/such/model.gguf", "No such file"])

    def test_folder(self):
        self.each(self.folder, [self.folder, "is a directory"])

    def test_unreadable_file(self):
        path = self.path("secret.gguf", b"GGUF")
        os.chmod(path, 0)
        if os.access(path, os.R_OK):
            self.skipTest("this user may read everything")
        self.each(path, [path, "Permission denied"])

    def test_file_that_is_no_model(self):
        self.each(self.path("poem.gguf", "Roses are red"), "GGUF")
        self.each(self.path("empty.gguf", b""), "empty.gguf")
        self.each(self.path("magic.gguf", b"GGUF"), "magic.gguf")

    def test_cut_model(self):
        with open(self.model, "rb") as f:
            whole = f.read()
        for share in (0.1, 0.5, 0.99):
            self.each(self.path("cut.gguf", whole[: int(len(whole) * share)]), "cut.gguf")

    def test_name_not_pulled_yet(self):
        self.each("smollm2-135m", "freetoken pull smollm2-135m")

    def test_name_misspelt(self):
        self.each("smolm2-135m", "did you mean smollm2-135m?")

    def test_address(self):
        self.each("https://example.org/model.gguf", "freetoken pull")

    def test_pulled_names_are_found(self):
        store = os.path.join(self.folder, "store", "models")
        os.makedirs(store)
        os.symlink(self.model, os.path.join(store, "mine.gguf"))
        self.works("run", "mine", "-p", "x", "-n", "1")
        self.works("run", "mine.gguf", "-p", "x", "-n", "1")


if __name__ == "__main__":
    support.main()
