# SPDX-License-Identifier: Apache-2.0
"""The interactive chat on a pseudo-terminal: turns, commands, keys, Ctrl-C; and through a pipe."""
import os

import support

UP, CTRL_A, CTRL_C, CTRL_D, CTRL_R = "\x1b[A", "\x01", "\x03", "\x04", "\x12"
PROMPT = "> "


class ChatTest(support.ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.endless = cls.make_model("endless.gguf", "--recite", "on |and ", "--loop")

    def chat(self, *words, model=None, env=None):
        env = {"NO_COLOR": "1", **(env or {})}
        terminal = support.Terminal("run", model or self.model, "--temp", "0", *words, folder=self.folder, env=env)
        terminal.wait_for("/help for commands")
        terminal.wait_for(PROMPT)
        return terminal

    def say(self, terminal, text):
        terminal.type(text + "\r")
        terminal.wait_for("kernels")  # the end of the line of figures
        terminal.wait_for(PROMPT)

    def test_turns_reuse_all_that_was_said(self):
        terminal = self.chat("-n", "6")
        self.say(terminal, "Hello")
        self.assertIn("prompt ", terminal.seen)
        self.assertNotIn("reused", terminal.seen)
        self.say(terminal, "And now?")
        self.assertRegex(terminal.seen, r"prompt \d+ tokens \(\d+ reused\)")
        terminal.type("/quit\r")
        self.assertEqual(terminal.end(), 0)

    def test_reset_forgets(self):
        terminal = self.chat("-n", "4")
        self.say(terminal, "Hello")
        terminal.type("/reset\r")
        terminal.wait_for("forgotten")
        start = len(terminal.seen)
        self.say(terminal, "Hello")
        first = terminal.seen[:start].split("prompt ")[1].split()[0]
        again = terminal.seen[start:].split("prompt ")[1].split()[0]
        self.assertEqual(first, again)
        terminal.type(CTRL_D)
        self.assertEqual(terminal.end(), 0)

    def test_commands(self):
        terminal = self.chat("-n", "4")
        for typed, shown in (("/help", "/reset"), ("/stats", "of 512 tokens"), ("/hlep", "did you mean /help?"),
                             ("/qqqqqqqq", "/help lists them"), ("/save", "needs the name"), ("/load", "needs the name"),
                             ("/save x.ftk", "nothing has been said"), ("/load nowhere.ftk", "nowhere.ftk")):
            terminal.type(typed + "\r")
            terminal.wait_for(shown)
            terminal.wait_for(PROMPT)
        terminal.type("/quit\r")
        self.assertEqual(terminal.end(), 0)

    def test_save_and_load_go_on(self):
        terminal = self.chat("-n", "6")
        self.say(terminal, "Remember me")
        terminal.type("/save talk.ftk\r")
        terminal.wait_for("saved ")
        terminal.wait_for(PROMPT)
        start = len(terminal.seen)
        self.say(terminal, "Next")
        expected = terminal.seen[start:].split("Next\r\n", 1)[1].split("prompt ")[0]
        terminal.type("/quit\r")
        self.assertEqual(terminal.end(), 0)

        terminal = self.chat("-n", "6")
        terminal.type("/load talk.ftk\r")
        terminal.wait_for("restored ")
        terminal.wait_for(PROMPT)
        start = len(terminal.seen)
        self.say(terminal, "Next")
        self.assertIn("reused", terminal.seen[start:])
        self.assertEqual(terminal.seen[start:].split("Next\r\n", 1)[1].split("prompt ")[0], expected)
        terminal.type("/quit\r")
        self.assertEqual(terminal.end(), 0)

    def test_session_flag_saves_and_goes_on(self):
        terminal = self.chat("-n", "4", "--session", "talk.ftk")
        self.say(terminal, "Hello")
        terminal.type("/quit\r")
        self.assertEqual(terminal.end(), 0)
        self.assertTrue(os.path.exists(self.path("talk.ftk")))
        terminal = support.Terminal("run", self.model, "-n", "4", "--session", "talk.ftk", folder=self.folder,
                                    env={"NO_COLOR": "1"})
        terminal.wait_for("restored ")
        terminal.wait_for(PROMPT)
        self.say(terminal, "Again")
        self.assertIn("reused", terminal.seen)
        terminal.type("/quit\r")
        self.assertEqual(terminal.end(), 0)

    def test_ctrl_c_stops_the_answer_and_the_chat_goes_on(self):
        terminal = self.chat("--context", "256k", model=self.endless)
        terminal.type("talk\r")
        terminal.wait_for("on and on and")
        terminal.type(CTRL_C)
        terminal.wait_for("stopped")
        terminal.wait_for(PROMPT)
        terminal.type("/stats\r")
        terminal.wait_for("1 turn")
        terminal.wait_for(PROMPT)
        terminal.type("/quit\r")
        self.assertEqual(terminal.end(), 0)

    def test_ctrl_c_twice_quits(self):
        terminal = self.chat("--context", "256k", model=self.endless)
        terminal.type("talk\r")
        terminal.wait_for("on and on and")
        terminal.type(CTRL_C)
        terminal.wait_for("stopped")
        terminal.wait_for(PROMPT)
        terminal.type(CTRL_C)
        self.assertEqual(terminal.end(), 130)

    def test_ctrl_c_at_the_prompt(self):
        terminal = self.chat()
        terminal.type("half a li" + CTRL_C)
        terminal.wait_for("Ctrl-C again")
        terminal.wait_for(PROMPT)
        terminal.type(CTRL_C)
        self.assertEqual(terminal.end(), 130)

    def test_one_ctrl_c_at_the_prompt_does_not_spoil_the_next_answer(self):
        terminal = self.chat("-n", "4", "--ignore-end")
        terminal.type(CTRL_C)
        terminal.wait_for("Ctrl-C again")
        terminal.wait_for(PROMPT)
        self.say(terminal, "Hello")
        self.assertIn("cut at -n 4", terminal.seen)
        terminal.type("/quit\r")
        self.assertEqual(terminal.end(), 0)

    def test_history_within_and_across_chats(self):
        terminal = self.chat("-n", "2")
        self.say(terminal, "a memorable line")
        start = len(terminal.seen)
        terminal.type(UP)
        terminal.wait_for("a memorable line", start=start)
        terminal.type("\r")
        terminal.wait_for("kernels")
        terminal.wait_for(PROMPT)
        terminal.type("/quit\r")
        self.assertEqual(terminal.end(), 0)
        history = os.path.join(self.folder, "store", "history")
        self.assertTrue(os.path.exists(history))
        self.assertEqual(os.stat(history).st_mode & 0o077, 0, "others can read what was asked")

        terminal = self.chat("-n", "2")
        start = len(terminal.seen)
        terminal.type(UP + UP)
        terminal.wait_for("a memorable line", start=start)
        terminal.type(CTRL_C)
        terminal.wait_for(PROMPT)
        terminal.type("/quit\r")
        self.assertEqual(terminal.end(), 0)

    def test_line_editing(self):
        terminal = self.chat()
        terminal.type("uit" + CTRL_A + "/q\r")
        self.assertEqual(terminal.end(), 0)

    def test_letters_beyond_ascii(self):
        terminal = self.chat("-n", "2")
        terminal.type("grüße 😀 мир\r")
        terminal.wait_for("kernels")
        self.assertIn("grüße 😀 мир", terminal.seen)
        terminal.wait_for(PROMPT)
        terminal.type("/quit\r")
        self.assertEqual(terminal.end(), 0)

    def test_backslash_goes_on_in_the_next_line(self):
        terminal = self.chat("-n", "2")
        terminal.type("one\\\r")
        terminal.wait_for(". ")
        terminal.type("two\r")
        terminal.wait_for("kernels")
        terminal.wait_for(PROMPT)
        terminal.type("/stats\r")
        terminal.wait_for("1 turn")
        terminal.type("/quit\r")
        self.assertEqual(terminal.end(), 0)

    def test_full_context_is_told_and_reset_helps(self):
        terminal = self.chat("--context", "96", "-n", "8")
        for _ in range(40):
            start = len(terminal.seen)
            terminal.type("some more words to fill it\r")
            terminal.wait_for("words to fill it\r\n")
            terminal.wait_for(PROMPT)
            if "error: " in terminal.seen[start:]:
                break
        self.assertRegex(terminal.seen[start:], r"the conversation has \d+ tokens and the context holds 96")
        self.assertIn("/reset", terminal.seen[start:])
        terminal.type("/reset\r")
        terminal.wait_for("forgotten")
        terminal.wait_for(PROMPT)
        self.say(terminal, "Hello")
        terminal.type("/quit\r")
        self.assertEqual(terminal.end(), 0)

    def test_answer_cannot_steer_the_terminal(self):
        # a random model at high temperature emits every byte there is
        terminal = support.Terminal("run", self.model, "--raw", "-p", "x", "--temp", "50", "-n", "400", "--ignore-end",
                                    "-q", folder=self.folder)
        self.assertEqual(terminal.end(), 0)
        controls = {c for c in terminal.seen if (ord(c) < 32 and c not in "\r\n\t") or 127 <= ord(c) < 160}
        self.assertEqual(controls, set())

    def test_model_without_template_does_not_chat(self):
        base = self.make_model("base.gguf", "--no-template")
        terminal = support.Terminal("run", base, folder=self.folder)
        self.assertEqual(terminal.end(), 1)
        self.assertIn("no chat template", terminal.seen)

    def test_chat_through_a_pipe(self):
        lines = self.works("run", self.model, "--chat", "--json", "-n", "3", stdin="Hello\nAgain\n/quit\nnever\n".encode()).lines
        summaries = [line for line in lines if line["type"] == "summary"]
        self.assertEqual(len(summaries), 2)
        self.assertEqual(summaries[0]["reused_tokens"], 0)
        self.assertGreater(summaries[1]["reused_tokens"], summaries[0]["prompt_tokens"])

    def test_first_turn_from_flags(self):
        lines = self.works("run", self.model, "--chat", "--json", "-n", "3", "-p", "First", stdin=b"Second\n").lines
        self.assertEqual(sum(line["type"] == "summary" for line in lines), 2)

    def test_bad_turn_does_not_end_the_chat(self):
        result = self.works("run", self.model, "--chat", "-n", "3", stdin=b"caf\xe9\nHello\n")
        self.assertIn("byte 3", result.errors)
        self.assertIn("decode", result.errors)


if __name__ == "__main__":
    support.main()
