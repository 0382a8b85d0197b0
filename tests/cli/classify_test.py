# SPDX-License-Identifier: Apache-2.0
"""classify and embed: pictures, sounds and texts, alone and many at once, good and bad; --explain."""
import base64
import html.parser
import math
import os
import re
import struct

import encoders
import support


class Page(html.parser.HTMLParser):
    """Tags balance, and what the page shows can be counted."""
    VOID = {"meta", "img", "rect", "image", "use", "br"}

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag or tag == "html", (tag, self.open)
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        self.words += data

    def count(self, tag, **attrs):
        return sum(t == tag and all(a.get(k) == v for k, v in attrs.items()) for t, a in self.tags)


class ClassifyTest(support.ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        where = cls.shared.name
        cls.bert, cls.vit, cls.kwt = (encoders.encoder(os.path.join(where, f"{k}.gguf"), k, exits=True)
                                      for k in ("bert", "vit", "kwt"))
        cls.plain = encoders.encoder(os.path.join(where, "plain.gguf"), "bert", labels=False)

    def need_media(self):
        result = self.run_program("classify", self.vit, self.path("p.png", encoders.png(8, 8)))
        if "built without pictures" in result.errors:
            self.skipTest("the program was built without pictures and sounds")

    def test_text(self):
        result = self.works("classify", self.bert, "--text", "Hello worlds.", "--top", "5", "--json").lines
        self.assertEqual(len(result), 1)
        row = result[0]
        self.assertEqual(set(row), {"file", "label", "score", "top", "exit_layer", "layers", "tokens_in", "tokens_kept", "ms"})
        self.assertEqual((row["tokens_in"], row["tokens_kept"], row["layers"], row["exit_layer"]), (6, 6, 3, None))
        self.assertEqual(sorted(t["label"] for t in row["top"]), sorted(encoders.LABELS))
        self.assertAlmostEqual(sum(t["score"] for t in row["top"]), 1, places=4)
        self.assertEqual(row["label"], row["top"][0]["label"])
        self.assertEqual(row["score"], max(t["score"] for t in row["top"]))

    def test_many_texts_and_standard_input(self):
        path = self.path("a.txt", "hello\nworld\n\nthe world.\n")
        rows = self.works("classify", self.bert, path, "-", "--lines", "--json", stdin=b"hello world").lines
        self.assertEqual([r["file"] for r in rows], [f"{path}:1", f"{path}:2", f"{path}:4", "standard input:1"])
        alone = self.works("classify", self.bert, "--text", "the world.", "--json").lines[0]
        self.assertEqual(alone["score"], rows[2]["score"])

    def test_texts_that_cannot_be_used(self):
        self.fails("classify", self.bert, "--text", "", says="the text is empty")
        self.fails("classify", self.bert, "--text", " \n ", says="the text is empty")
        self.fails("classify", self.bert, self.path("bad.txt", b"ab\xff"), says=["bad.txt", "UTF-8"])
        long = "hello " * 20
        self.fails("classify", self.bert, "--text", long, says=["22 tokens", "16", "--truncate"])
        row = self.works("classify", self.bert, "--text", long, "--truncate", "--json").lines[0]
        self.assertEqual((row["tokens_in"], row["truncated"]), (16, True))

    def test_the_rest_goes_on(self):
        good = self.path("good.txt", "hello")
        result = self.run_program("classify", self.bert, "--json", self.path("no.txt"), good, self.path("bad.txt", b"\xff"), good)
        self.assertEqual(result.status, 1)
        self.assertEqual([r.get("file", r.get("type")) for r in result.lines], ["error", good, "error", good])
        self.assertIn("2 of 4", result.errors)

    def test_wrong_use(self):
        self.fails("classify", self.bert, status=2, says="--text")
        self.fails("classify", self.vit, "--text", "hello", status=2, says="this model takes pictures")
        self.fails("classify", self.plain, "--text", "hello", says="freetoken embed")
        self.fails("classify", self.model, "--text", "hello", says="decoder")
        self.fails("classify", self.bert, "--text", "a", "--exit", "1.5", status=2, says="--exit")
        self.fails("classify", self.plain, "--text", "a", "--exit", "0.5", says="exit")

    def test_embed(self):
        rows = self.works("embed", self.plain, "--text", "hello", "--text", "world", "--json").lines
        for row in rows:
            self.assertEqual(len(row["embedding"]), 32)
            self.assertAlmostEqual(math.fsum(x * x for x in row["embedding"]), 1, places=4)
        numbers = [float(x) for x in self.works("embed", self.plain, "--text", "hello").text.split()]
        for a, b in zip(numbers, rows[0]["embedding"]):
            self.assertAlmostEqual(a, b, places=5)
        self.assertNotEqual(rows[0]["embedding"], rows[1]["embedding"])

    def test_policy_is_used_and_reported(self):
        text = "the world. hello worlds. a b"
        dense = self.works("classify", self.bert, "--text", text, "--json").lines[0]
        kept = self.works("classify", self.bert, "--text", text, "--json", "--keep", "0.5", "--first-layer", "1", "--interval", "1").lines[0]
        self.assertLess(kept["tokens_kept"], dense["tokens_kept"])
        whole = self.works("classify", self.bert, "--text", text, "--json", "--keep", "1").lines[0]
        self.assertEqual(whole["score"], dense["score"])
        early = self.works("classify", self.bert, "--text", text, "--json", "--exit", "0.01", "--min-layers", "2").lines[0]
        self.assertEqual((early["exit_layer"], early["layers"]), (2, 2))

    # ------------------------------------------------------ pictures and sounds

    def test_pictures(self):
        self.need_media()
        good, names = encoders.png(40, 30), {}
        bad = {"empty.png": b"", "text.png": b"no picture", "short.png": good[:200], "none.png": encoders.png(2, 2, (0, 0)),
               "huge.png": encoders.png(2, 2, (20000, 20000)), "bomb.png": encoders.png(2, 2, (8000, 7999)),
               "short.jpg": b"\xff\xd8\xff\xe0\0\x10JFIF\0", "sound.wav": encoders.wav(100)}
        for name, data in bad.items():
            names[name] = self.path(name, data)
        fine = self.path("fine.png", good)
        result = self.run_program("classify", self.vit, *names.values(), fine, "--json")
        self.assertEqual(result.status, 1)
        self.assertEqual([r.get("type") for r in result.lines], ["error"] * len(bad) + [None])
        for name, line in zip(names, result.lines):
            self.assertIn(name, line["message"])
        self.assertEqual(result.lines[-1]["tokens_in"], 17)
        self.assertEqual(self.works("classify", self.vit, "-", "--json", stdin=good).lines[0]["score"], result.lines[-1]["score"])
        self.fails("classify", self.vit, fine, "--max-pixels", "1000", says=["40 x 30", "1000"])

    def test_sounds(self):
        self.need_media()
        good, odd = self.path("a.wav", encoders.wav()), self.path("piped.wav", encoders.wav(size=0xFFFFFFFF))
        rows = self.works("classify", self.kwt, good, odd, "-", "--json", stdin=encoders.wav(size=0)).lines
        self.assertEqual(len({r["score"] for r in rows}), 1)
        long = self.works("classify", self.kwt, self.path("long.wav", bytes(encoders.wav(80000))), "--json").lines[0]
        self.assertIn("label", long)
        nan = bytearray(encoders.wav(400))
        nan[20:22], nan[34:36], nan[32:34] = b"\3\0", b"\x20\0", b"\4\0"
        nan[44:] = struct.pack("<200f", *[0.0] * 150, math.nan, *[0.0] * 49)
        self.fails("classify", self.kwt, self.path("nan.wav", bytes(nan)), good, says=["nan.wav", "sample 150"])
        self.fails("classify", self.kwt, self.path("cut.wav", encoders.wav()[:30]), says="cut.wav")
        self.fails("classify", self.kwt, self.path("p.png", encoders.png(9, 9)), says="this is a picture")

    # ------------------------------------------------------------------ the page

    def page(self, *words, **how):
        out = self.path("page.html")
        self.works("classify", *words, "--explain", out, "--top", "3", **how)
        with open(out, encoding="utf-8") as f:
            text = f.read()
        self.assertNotRegex(text, r"(src|href)=\"(?!data:|#)")  # nothing from elsewhere
        return Page(text), text

    def test_page_of_a_text(self):
        page, text = self.page(self.bert, "--text", "the <b>world</b> & hello. a world", "--keep", "0.5", "--first-layer", "1",
                               "--interval", "1", "--truncate")
        self.assertFalse([t for t, _ in page.tags if t == "b" and "<b>world" in text])
        self.assertGreater(page.count("span", **{"class": "d"}), 0)
        self.assertIn("tokens", page.words)

    def test_page_of_a_picture(self):
        self.need_media()
        page, text = self.page(self.vit, self.path("p.png", encoders.png(40, 50)), "--merge", "3")
        figures = page.count("figure")
        self.assertEqual(figures, 1 + 3)
        left = [int(n) for n in re.findall(r"(\d+) of 17 tokens", page.words)]
        self.assertEqual(left, [14, 11, 8])
        bitmap = base64.b64decode(re.search(r"data:image/bmp;base64,([^\"]+)", text)[1], validate=True)
        self.assertEqual(struct.unpack_from("<2sIHHIIii", bitmap), (b"BM", 54 + 32 * 96, 0, 0, 54, 40, 32, 32))

    def test_page_of_a_sound_and_an_exit(self):
        self.need_media()
        page, _ = self.page(self.kwt, self.path("a.wav", encoders.wav()), "--exit", "0.01")
        self.assertEqual(page.count("rect"), 98)
        self.assertIn("left at the exit after layer 1", page.words)
        self.fails("classify", self.kwt, self.path("a.wav"), "--explain", self.path("no/such/place.html"), says="--explain")


if __name__ == "__main__":
    support.unittest.main()
