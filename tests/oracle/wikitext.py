# SPDX-License-Identifier: Apache-2.0
"""Word-level WikiText-2 as ordinary text: the text every quality figure here is measured on.

The data set separates all punctuation by spaces and writes hyphens, thousands and decimal points
inside words as @-@, @,@ and @.@. Joining them again is enough for a model to see real prose;
`<unk>` stays as it is, the true words are not in the file.
"""
import re
import sys


def detokenise(text):
    text = re.sub(r" @([-,.])@ ", r"\1", text)
    text = re.sub(r" ([.,;:!?%)\]}]|'s|'re|'ve|'ll|'d|'m|n't)(?=[\s.,;:!?)\]'\"])", r"\1", text)
    text = re.sub(r"([(\[{$£€#]) ", r"\1", text)
    text = re.sub(r'" ([^"\n]*?) "', r'"\1"', text)
    text = re.sub(r"(?<=\w) ' (?=\w)", "' ", text)
    lines = (line.strip() for line in text.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        sys.stdout.write(detokenise(file.read()))
