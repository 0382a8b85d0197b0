# SPDX-License-Identifier: Apache-2.0
"""What freetoken run prints of an answer whose tokens are known: characters cut by tokens, stop
texts across tokens, invalid bytes, reasons to end."""
import json
import os
import subprocess

import support


class StreamTest(support.ProgramTest):
    def reciter(self, *pieces, loop=False):
        path = self.path("recite.gguf")
        words = [p if isinstance(p, bytes) else p.encode() for p in pieces]
        subprocess.run([os.fsencode(support.MAKE_TINY_MODEL), b"--recite", b"|".join(words),
                        *([b"--loop"] if loop else []), os.fsencode(path)], check=True)
        return path

    def answer(self, model, *words):
        lines = self.works("run", model, "-p", "hi", "--json", *words).lines
        return [line["text"] for line in lines[:-1]], lines[-1]

    def test_end_of_turn(self):
        model = self.reciter("One", " two", " three")
        pieces, summary = self.answer(model)
        self.assertEqual(pieces, ["One", " two", " three"])
        self.assertEqual((summary["finish"], summary["generated_tokens"]), ("end", 4))
        self.assertEqual(self.works("run", model, "-p", "hi").out, b"One two three\n")

    def test_an_answer_with_its_own_newline_gets_no_second_one(self):
        self.assertEqual(self.works("run", self.reciter("One", " line\n"), "-p", "hi").out, b"One line\n")

    def test_characters_cut_by_tokens_come_whole(self):
        grin, man = "😀".encode(), "мир".encode()
        model = self.reciter(b"a" + grin[:1], grin[1:2], grin[2:3], grin[3:] + man[:3], man[3:], " 你好")
        pieces, summary = self.answer(model)
        self.assertEqual("".join(pieces), "a😀мир 你好")
        self.assertNotIn("\ufffd", "".join(pieces))
        self.assertEqual(self.works("run", model, "-p", "hi").out, "a😀мир 你好\n".encode())

    def test_invalid_bytes_are_replaced(self):
        model = self.reciter(b"a\xffb", b"\xf0\x9f", b"c", b"\xed\xa0\x80")
        text = "".join(self.answer(model)[0])
        self.assertIn("\ufffd", text)
        self.assertEqual(text.replace("\ufffd", ""), "abc")
        self.works("run", model, "-p", "hi").out.decode()

    def test_answer_cut_within_a_character(self):
        grin = "😀".encode()
        pieces, summary = self.answer(self.reciter("ab", grin[:2], grin[2:]), "-n", "2")
        self.assertEqual(summary["finish"], "length")
        self.assertIn("".join(pieces), ("ab", "ab\ufffd"))

    def test_stop_across_tokens(self):
        model = self.reciter("Is there life on Mars", "?", "\nEN", "D of it", " all")
        for stop in ("\n", "\nEND", "END"):
            pieces, summary = self.answer(model, "--stop", stop)
            self.assertEqual(summary["finish"], "stop")
            self.assertEqual("".join(pieces), "Is there life on Mars?" + ("\n" if stop == "END" else ""))

    def test_stop_that_almost_came_is_shown(self):
        model = self.reciter("one EN", "Ding", " EN")
        pieces, summary = self.answer(model, "--stop", "ENx")
        self.assertEqual(("".join(pieces), summary["finish"]), ("one ENDing EN", "end"))

    def test_stop_as_the_first_token(self):
        pieces, summary = self.answer(self.reciter("\n", "text"), "--stop", "\n")
        self.assertEqual(("".join(pieces), summary["finish"]), ("", "stop"))

    def test_several_stops_the_first_in_the_text_wins(self):
        pieces, _ = self.answer(self.reciter("ab", "cd", "ef"), "--stop", "e", "--stop", "cd")
        self.assertEqual("".join(pieces), "ab")

    def test_reasons_are_told(self):
        model = self.reciter("word ", "and ", loop=True)
        self.assertIn("cut at -n 3", self.works("run", model, "-p", "hi", "-n", "3").errors)
        self.assertIn("the context of 48 is full (--context)",
                      self.works("run", model, "-p", "hi", "--context", "48").errors)

    def test_ignore_end_goes_on(self):
        _, summary = self.answer(self.reciter("One"), "--ignore-end", "-n", "7")
        self.assertEqual((summary["finish"], summary["generated_tokens"]), ("length", 7))

    def test_a_chat_samples_and_an_answer_does_not(self):
        texts = {}
        for flags in (["-p", "hi"], ["--chat"]):
            for seed in range(4):
                lines = self.works("run", self.model, "--json", "-n", "12", "--ignore-end", "--seed", str(seed), *flags,
                                   stdin=b"hi\n").lines
                texts.setdefault(flags[0], set()).add("".join(line.get("text", "") for line in lines))
        self.assertEqual(len(texts["-p"]), 1)
        self.assertGreater(len(texts["--chat"]), 1)

    def test_bias_bans_a_token(self):
        model = self.reciter("One", " two")
        vocabulary = json.loads(self.works("inspect", model, "--json").text)["model"]["vocabulary"]
        pieces, _ = self.answer(model, "-n", "1", "--bias", f"{vocabulary - 2}=-inf")
        self.assertNotEqual(pieces[:1], ["One"])

    def test_terminal_gets_no_escape_sequences(self):
        model = self.reciter(b"\x1b]0;title\x07", b"\x1b[2J", b"\xc2\x9b31m", b"plain\ttext\n")
        terminal = support.Terminal("run", model, "-p", "hi", "-q", folder=self.folder)
        self.assertEqual(terminal.end(), 0)
        self.assertIn("plain\ttext", terminal.seen)
        self.assertNotIn("\x1b", terminal.seen)
        self.assertNotIn("\x9b", terminal.seen)
        self.assertIn(b"\x1b[2J", self.works("run", model, "-p", "hi").out)

    def test_chat_computes_nothing_twice(self):
        model = self.reciter("Yes", ", of course")
        lines = self.works("run", model, "--chat", "--json", stdin=b"One?\nTwo?\nThree?\n").lines
        turns = [line for line in lines if line["type"] == "summary"]
        self.assertEqual(len(turns), 3)
        for before, now in zip(turns, turns[1:]):
            # all but the end token, which the template writes anew
            self.assertGreaterEqual(now["reused_tokens"], before["prompt_tokens"] + before["generated_tokens"] - 1)


if __name__ == "__main__":
    support.main()
