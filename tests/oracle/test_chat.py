# SPDX-License-Identifier: Apache-2.0
"""Chat rendering against Jinja itself, over many conversations.

The environment is the one Hugging Face's transformers render with: sandboxed, trim_blocks,
lstrip_blocks, raise_exception; strftime_now is not defined, so templates take their own fallback.
Intended differences, all refusals in place of silent loss: a message the template would print
nothing for, and a lone system message the template would drop.
"""
import itertools
import random

import pytest

jinja2 = pytest.importorskip("jinja2")
from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: E402

import chat_templates  # noqa: E402
import text_peer  # noqa: E402

pytestmark = pytest.mark.skipif(not text_peer.TOOL.exists(), reason=f"{text_peer.TOOL} is not built")

BOS, EOS = "<s>", "</s>"
CONTENTS = [
    "", "Hello", "  padded\t\n", "\n\nline\n\n", "two\nlines", "<|im_end|>\n<|im_start|>system\nx",
    "<end_of_turn>", "</s><s>[INST]", "{{ bos_token }}{% if %}", "{# c #}", "'\"\\n", "你好 🦙",
    "\u00a0nbsp\u2003", "\x1csep\x1f", "\u200bzero width\u200b", "<think>\nwhy\n</think>\n\nBecause",
    "no open</think>x", "<think>a</think>b</think>\n\nc", "<think>never closed", "</think>",
    "\n<think>\n\n</think>\n\n", "<tool_response>\n42\n</tool_response>", "<<SYS>>\nx\n<</SYS>>",
]
ROLES = ["system", "user", "assistant", "tool"]


def conversations():
    turn = {"system": "Be brief.", "user": "Hi", "assistant": "Yes.", "tool": "42"}
    for n in (1, 2, 3, 4):
        for roles in itertools.product(ROLES, repeat=n):
            yield [{"role": r, "content": f"{turn[r]} {i}"} for i, r in enumerate(roles)]
    for content in CONTENTS:
        yield [{"role": "user", "content": content}]
        yield [{"role": "system", "content": content}, {"role": "user", "content": content}]
        yield [{"role": "user", "content": "q"}, {"role": "assistant", "content": content}]
        yield [{"role": "user", "content": "q"}, {"role": "assistant", "content": content},
               {"role": "user", "content": content}]
        yield [{"role": "user", "content": "q"}, {"role": "assistant", "content": content},
               {"role": "user", "content": "<tool_response>1</tool_response>"},
               {"role": "assistant", "content": content}]
    rng = random.Random(5)
    for _ in range(300):
        roles = ["system"] if rng.random() < 0.5 else []
        roles += ["user", "assistant"] * rng.randint(1, 4)
        if rng.random() < 0.5:
            roles.pop()
        yield [{"role": r, "content": "".join(rng.choices(CONTENTS, k=rng.randint(0, 3)))}
               for r in roles]


class TemplateError(Exception):
    pass


def compile_template(text):
    def raise_exception(message):
        raise TemplateError(message)
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=["jinja2.ext.loopcontrols"])
    env.globals["raise_exception"] = raise_exception
    return env.from_string(text)


def long_templates():
    where = text_peer.folder("FTK_TEMPLATES")
    out = []
    for family, name in chat_templates.LONG:
        present = where is not None and (where / name).exists()
        out.append(pytest.param(family, (where / name).read_text() if present else None,
                                id=name, marks=[] if present else
                                pytest.mark.skip(reason=f"FTK_TEMPLATES has no {name}")))
    return out


def model_templates():
    """The templates real GGUF files carry, with the family each must be recognised as."""
    gguf = pytest.importorskip("gguf")
    expected = {"smollm2": "smollm2", "qwen2.5": "qwen2.5"}
    out = []
    for path in text_peer.files("FTK_MODELS", "*.gguf"):
        field = gguf.GGUFReader(str(path)).fields.get("tokenizer.chat_template")
        family = next((f for start, f in expected.items() if path.name.startswith(start)), None)
        if field and family:
            out.append(pytest.param(family, field.contents(), id=path.name))
    return out or [pytest.param("", None, marks=pytest.mark.skip(reason="FTK_MODELS has no models"))]


ALL = [pytest.param(f, t, id=f"{f}-{i}") for i, (f, t) in enumerate(chat_templates.SHORT)]
ALL += long_templates() + model_templates()


@pytest.fixture(scope="module")
def tool():
    with text_peer.Tokenizer() as t:
        yield t


def refused_on_purpose(family, messages, message):
    return "does not write; it knows" in message or "only together with a user message" in message


@pytest.mark.parametrize("family,template", ALL)
def test_equals_jinja(tool, family, template):
    compare(tool, family, compile_template(template), {})


def test_qwen3_without_thinking(tool):
    where = text_peer.folder("FTK_TEMPLATES")
    if where is None or not (where / "Qwen-Qwen3-0.6B.jinja").exists():
        pytest.skip("FTK_TEMPLATES has no Qwen3 template")
    template = compile_template((where / "Qwen-Qwen3-0.6B.jinja").read_text())
    compare(tool, "qwen3-nothink", template, {"enable_thinking": False})


def compare(tool, family, template, variables):
    rendered = errors = refusals = 0
    for messages in conversations():
        for add in (False, True):
            try:
                want = template.render(messages=messages, add_generation_prompt=add, bos_token=BOS,
                                       eos_token=EOS, **variables)
            except TemplateError as e:
                want = e
            try:
                got, plain = tool.chat(family, messages, add, BOS, EOS)
            except text_peer.Failure as e:
                assert e.status == 1
                if refused_on_purpose(family, messages, e.detail):
                    refusals += 1
                    assert any(m["content"] not in str(want) or m["role"] == "tool"
                               for m in messages if m["role"] != "user")
                    continue
                assert isinstance(want, TemplateError), (messages, e.detail)
                assert str(want) in e.detail
                errors += 1
                continue
            assert got == want, messages
            rendered += 1
            check_plain(got.encode(), plain, messages)
    assert rendered > 300 and rendered > refusals


def check_plain(text, plain, messages):
    """The runs ascend, and cut out of the text they leave no trace of the messages."""
    at, left = 0, b""
    for start, end in plain:
        assert at <= start < end <= len(text)
        left += text[at:start] + b"\0"
        at = end
    left += text[at:]
    for word in (b"Hello", b"padded", b"Be brief.", b"nbsp", b"Because"):
        assert word not in left


@pytest.mark.parametrize("family,template", ALL)
def test_recognised(tool, family, template):
    assert tool.recognise(template) == family


@pytest.mark.parametrize("index", range(len(chat_templates.STRANGERS)))
def test_stranger_is_not_recognised(tool, index):
    assert tool.recognise(chat_templates.STRANGERS[index]) == ""


def test_other_published_templates_are_not_mistaken(tool):
    """Whatever is recognised among the published templates must also render the same."""
    where = text_peer.folder("FTK_TEMPLATES")
    if where is None:
        pytest.skip("FTK_TEMPLATES is not set")
    recognised = {}
    for path in sorted(where.glob("*.jinja")):
        family = tool.recognise(path.read_text())
        if family:
            recognised[path.name] = family
            compare(tool, family, compile_template(path.read_text()), {})
    assert len(recognised) >= len(chat_templates.LONG)
    print(recognised)
