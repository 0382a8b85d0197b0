# SPDX-License-Identifier: Apache-2.0
"""Long documents as plain text files for `freetoken eval` and for questions: 4 k to 16 k tokens each.

Owns: turning the LEval collection (jsonl) into ordinary prose, one file a document, and a list of
what is in them. Documents are not committed: their texts belong to their owners.
  gov_report_summ            government reports             summary
  quality                    stories, hard-wrapped          multiple choice with the right letter
  natural_question           encyclopedia pages in tokens   short answers
  topic_retrieval_longchat   chats over many topics         recall of a topic by its number

    long_documents.py ../shared/data/text/long OUT [--least 2500] [--most 13000]

writes OUT/<set>-<number>.txt and OUT/documents.json: file, set, words, questions, answers, options
(of choice tasks), and the right option's index. A document shorter than --least words is left out,
a longer one than --most ends at the last paragraph within (its questions are dropped: the answer may
be gone). 1000 words are about 1300 tokens of ordinary English.
"""
import argparse
import json
import pathlib
import re

OPTION = re.compile(r"\n\s*\(([A-D])\)\s*")


def unwrapped(text):
    """Hard-wrapped, space-aligned lines joined to paragraphs."""
    paragraphs = re.split(r"\n\s*\n", text)
    return "\n\n".join(" ".join(p.split()) for p in paragraphs if p.strip())


def from_tokens(text):
    """Text of separated words with HTML tags as words, back to prose with one line a block."""
    text = re.sub(r"<(H\d|P|Li|Tr|Dd|Dt|Table|Ul|Ol|Dl)\b[^>]*>", "\n", text)
    text = re.sub(r"</?[A-Z][^>]*>", " ", text)
    text = text.replace("``", '"').replace("''", '"').replace(" -- ", " – ")
    text = re.sub(r'" ([^"\n]*?) "', r'"\1"', text)
    text = re.sub(r" ([.,;:!?%)\]])(?=\s|$)", r"\1", text)
    text = re.sub(r"([(\[$]) ", r"\1", text)
    text = re.sub(r" ('s|'re|'ve|'ll|'d|'m|n't|')(?=\s)", r"\1", text)
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def joined_initials(text):
    """A drop capital stands apart: `F ederal law`."""
    return re.sub(r"^([A-Z]) (?=[a-z]{2})", r"\1", text)


def chat(text):
    text = re.sub(r"\s*(?:(?<=\.)|(?<=\n)|^)\s*(USER|ASSISTANT): *", r"\n\n\1: ", text)
    return "\n".join(" ".join(line.split()) for line in text.strip().split("\n"))


CLEANERS = {"gov_report_summ": joined_initials, "quality": unwrapped, "natural_question": from_tokens,
            "topic_retrieval_longchat": chat}


def cut(text, most):
    """Whole paragraphs up to `most` words; (text, whether something was left out)."""
    kept, words = [], 0
    for line in text.split("\n"):
        words += len(line.split())
        if words > most and kept:
            return "\n".join(kept).rstrip(), True
        kept.append(line)
    return text, False


def questions_of(row, name):
    asked = []
    for question, answer in zip(row["instructions"], row["outputs"]):
        entry = {"question": question.strip(), "answer": answer.strip()}
        if name == "quality":
            head, *parts = OPTION.split(question)
            entry["question"] = head.strip()
            entry["options"] = [" ".join(p.split()) for p in parts[1::2]]
            letter = re.match(r"\(([A-D])\)", answer.strip())
            entry["right"] = parts[0::2].index(letter[1]) if letter and letter[1] in parts[0::2] else None
        asked.append(entry)
    return asked


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source", type=pathlib.Path, help="folder of the jsonl files")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--least", type=int, default=2500, help="words")
    parser.add_argument("--most", type=int, default=13000, help="words")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    documents = []
    for name, clean in CLEANERS.items():
        seen = set()
        for number, line in enumerate((args.source / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()):
            row = json.loads(line)
            text, shortened = cut(clean(row["input"].replace("\r", "")), args.most)
            words = len(text.split())
            if words < args.least or text in seen:
                continue
            seen.add(text)
            file = args.out / f"{name}-{number:02d}.txt"
            file.write_text(text + "\n", encoding="utf-8")
            documents.append({"file": file.name, "set": name, "words": words, "shortened": shortened,
                              "questions": [] if shortened else questions_of(row, name)})
    (args.out / "documents.json").write_text(json.dumps(documents, indent=1, ensure_ascii=False) + "\n")
    for name in CLEANERS:
        words = [d["words"] for d in documents if d["set"] == name]
        asked = sum(len(d["questions"]) for d in documents if d["set"] == name)
        if words:
            print(f"{name}: {len(words)} documents of {min(words)} to {max(words)} words, {asked} questions")


if __name__ == "__main__":
    main()
