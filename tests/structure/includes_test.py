# SPDX-License-Identifier: Apache-2.0
"""scripts/check-includes on the project, which must pass, and on a small tree with one thing wrong
at a time, each of which it must find."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "check-includes"

GOOD = {
    "include/freetoken/freetoken.h": "#include <stddef.h>\ntypedef struct ftk_model ftk_model;\n",
    "src/base/status.h": '#include "freetoken/freetoken.h"\nint ftki_base(void);\n',
    "src/base/status.c": '#include "base/status.h"\n#include <sys/mman.h>\nint ftki_base(void) { return 0; }\n',
    "src/kernels/kernels.h": '#include "base/status.h"\n',
    "src/kernels/scalar/table.c": '#include "kernels/kernels.h"\n',
    "src/kv/kv.h": '#include "kernels/kernels.h"\n',
    "src/reduce/score.h": '#include "kv/kv.h"\n',
    "src/text/split.c": '#include <pcre2.h>\n#include "base/status.h"\n',
    "src/engine/model.c": '#include "reduce/score.h"\n#include "kv/kv.h"\n',
    "tools/main.c": '#include "freetoken/freetoken.h"\n#include "args.h"\n#include <jansson.h>\n',
    "tools/args.h": "#include <stddef.h>\n",
}


def check(files, compile_headers=False):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        command = [sys.executable, str(SCRIPT), "--root", folder] + ([] if compile_headers else ["--no-compile"])
        run = subprocess.run(command, capture_output=True, text=True, timeout=120)
        return run.returncode, run.stdout + run.stderr


class Includes(unittest.TestCase):
    def wrong(self, name, text, *words, compile_headers=False):
        status, output = check({**GOOD, name: text}, compile_headers)
        self.assertEqual(status, 1, output)
        for word in (name, *words):
            self.assertIn(word, output)
        self.assertEqual(len(output.splitlines()), 1, output)

    def test_this_project(self):
        run = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=250)
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "", ""))

    def test_good_tree(self):
        self.assertEqual(check(GOOD, compile_headers=True), (0, ""))

    def test_upwards(self):
        self.wrong("src/base/threads.c", '#include "kernels/kernels.h"\n', "src/base may see")
        self.wrong("src/kv/page.c", '#include "engine/model.h"\n', ":1:", "engine/model.h")
        self.wrong("src/kernels/pack.c", '\n  # include "kv/kv.h"\n', ":2:")
        self.wrong("src/reduce/merge.c", '#include "text/split.h"\n')
        self.wrong("src/text/bpe.c", '#include "kernels/kernels.h"\n')

    def test_the_program_sees_the_public_header_only(self):
        self.wrong("tools/cheat.c", '#include "engine/model.h"\n', "include/freetoken/ only")
        self.wrong("tools/cheat.c", '#include "../src/base/status.h"\n')
        self.wrong("include/freetoken/more.h", '#include "base/status.h"\n')

    def test_instruction_sets_keep_to_themselves(self):
        self.wrong("src/kernels/avx2/kv.c", '#include "kernels/avx512/lanes.h"\n', "avx512")
        self.wrong("src/kernels/registry.c", '#include "kernels/neon/tile.h"\n', "neon")
        self.wrong("src/kernels/scalar/kv.c", "#include <immintrin.h>\n")

    def test_libraries(self):
        self.wrong("src/engine/json.c", "#include <jansson.h>\n", "library")
        self.wrong("src/base/regex.c", "#include <pcre2.h>\n")
        self.wrong("src/base/gpu.c", "#include <cuda.h>\n")
        self.wrong("tools/regex.c", "#include <pcre2.h>\n")

    def test_a_new_folder_must_be_listed(self):
        self.wrong("src/novel/x.c", '#include "base/status.h"\n', "LAYERS")

    def test_headers_compile_alone(self):
        self.wrong("src/base/bare.h", "size_t ftki_bare(void);\n", "size_t", compile_headers=True)
        self.wrong("include/freetoken/freetoken.h",
                   "#include <stddef.h>\nextern int template;\n", "c++", compile_headers=True)

    def test_an_empty_tree_is_no_success(self):
        self.assertEqual(check({"README.md": ""})[0], 1)


if __name__ == "__main__":
    unittest.main()
