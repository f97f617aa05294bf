"""Code examples are found with their language, what is said before them, their names, and whether they parse."""

import pytest

from knowledge.indexing.examples import MAX_CODE, Example, extract
from knowledge.indexing.parsed import parse
from knowledge.indexing.parsers import languages
from knowledge.indexing.symbols import symbols_in, symbols_of, without_prompts


def examples(text: str, name: str = "a.md") -> list[Example]:
    return extract(parse(text.encode(), name=name))


def test_a_fence_comes_with_the_sentence_before_it() -> None:
    (example,) = examples(
        "# T\n\nOne thing. Load the *settings* with `load`:\n\n```py\nfrom config import load\nload()\n```\n"
    )
    assert example == Example(
        code="from config import load\nload()",
        language="python",
        context="Load the settings with load:",
        symbols=("config", "load"),
        start_line=5,
        end_line=8,
        is_valid=True,
    )


def test_a_fence_right_below_a_heading_comes_with_the_heading() -> None:
    assert examples("Text.\n\n## Usage\n\n```sh\nls --all\n```\n")[0].context == "Usage"


def test_fences_in_lists_and_quotes_lose_what_is_round_them() -> None:
    found = examples("- Do:\n\n  ```js\n  a();\n  ```\n\n> ```json\n> {}\n> ```\n")
    assert [(example.code, example.language, example.is_valid) for example in found] == [
        ("a();", "javascript", True),
        ("{}", "json", True),
    ]


def test_sessions_at_the_prompt_are_found_outside_of_fences() -> None:
    (example,) = examples("Like this.\n\n>>> import os\n>>> for a in b:\n...     os.fspath(a)\n'x'\n", "a.txt")
    assert example.language == "python" and example.is_valid is True
    assert example.symbols == ("os", "os.fspath", "fspath")
    assert example.code.startswith(">>> import os")


def test_text_and_output_are_no_examples() -> None:
    assert examples("```text\nhello\n```\n\n```output\n1\n```\n\n    just indented words\n") == []


@pytest.mark.parametrize(
    ("tag", "code", "valid"),
    [
        ("python", "def f(:\n", False),
        ("python", "await x\nreturn 1", True),
        ("python", 'r = "\\d"', True),
        ("pycon", ">>> f(\n... 1)\n2", True),
        ("js", "const a = <b>{c}</b>;", True),
        ("js", "const = ;", False),
        ("ts", "let a: number = <T,>(x: T) => x;", True),
        ("tsx", "const a: Props = <b/>;", True),
        ("json", '{"a": 1,}', False),
        ("rust", "fn main() {", None),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid escape sequence")
def test_syntax_is_checked_where_a_parser_is_there(tag: str, code: str, valid: bool | None) -> None:
    assert examples(f"```{tag}\n{code}\n```\n")[0].is_valid is valid


def test_a_long_fence_is_one_example_up_to_the_limit() -> None:
    (example,) = examples("```python\n" + "call()\n" * 10_000 + "```\n")
    assert MAX_CODE - 10 < len(example.code) <= MAX_CODE
    assert (example.end_line, example.is_valid) == (10_002, None)


def test_functions_and_classes_of_code_are_examples() -> None:
    methods = "".join(f"    def m{number}(self):\n        return {number}\n\n" for number in range(40))
    text = f'def add(a):\n    """Add one."""\n    return a + 1\n\n\nclass Large:\n{methods}\n'
    text += "\n# Holds.\nclass Small:\n    x = 1\n"
    found = examples(text, "pkg/a.py")
    assert len(found) == 42
    assert (found[0].context, found[0].symbols, found[0].is_valid) == ("Add one.", ("add",), True)
    assert (found[1].context, found[1].code) == ("Large > m0", "def m0(self):\n    return 0")
    assert (found[-1].context, found[-1].start_line, found[-1].end_line) == ("Holds.", 129, 131)


@pytest.mark.parametrize(
    ("code", "language"),
    [
        (">>> 1", "python"),
        ("$ pip install x", "bash"),
        ("#!/usr/bin/env python3\nx", "python"),
        ('{"a": [1]}', "json"),
        ("<?xml version='1.0'?><a/>", "xml"),
        ("<div class='a'>x</div>", "html"),
        ("SELECT * FROM a", "sql"),
        ("from a import b\n", "python"),
        ("LOGGING = {\n    'a': 1,\n}", "python"),
        ("print 'old'\ndef f(x):\n    pass", "python"),
        ("const a = () => b;", "javascript"),
        ("foo(bar);", ""),
        ("hello", ""),
        ("key: value", ""),
        ("usage: prog [-h]", ""),
        ("", ""),
    ],
)
def test_untagged_code_is_guessed_only_when_it_is_clear(code: str, language: str) -> None:
    assert languages.guess(code) == language


@pytest.mark.parametrize(
    ("tag", "language"),
    [
        *(("Python3", "python"), ("{.js}", "javascript"), ("c++", "cpp"), ("text", ""), ("python:a.py", "python")),
        *(("zig", "zig"), ("language-sh title=x", "bash"), ("", ""), ("<script>", "")),
    ],
)
def test_tags_have_canonical_names(tag: str, language: str) -> None:
    assert languages.canonical(tag) == language


def test_names_are_kept_whole_and_definitions_come_first() -> None:
    code = "import os\nresult = os.path.join(a, getUserById(1))\ndef run_all(x): self.go()"
    assert symbols_of(code, "python") == (
        "run_all", "os", "os.path.join", "join", "getUserById", "self.go", "go", "result",
    )  # fmt: skip
    assert symbols_of("fn parse_all(x: T) -> Y { Vec::with_capacity(3) }", "rust") == (
        "parse_all", "Vec::with_capacity", "with_capacity",
    )  # fmt: skip
    assert symbols_of("git log --no-pager", "bash") == ("--no-pager",)


def test_at_most_a_hundred_names_are_kept() -> None:
    assert len(symbols_of("\n".join(f"call_{number}()" for number in range(500)), "python")) == 100


def test_names_in_prose_are_those_in_backticks() -> None:
    text = "Use `json.loads()` or ``class Popen(args, *, x)``, not `two words`, with `--verbose` and `x`."
    assert symbols_in(text) == ("json.loads", "loads", "Popen", "--verbose")


def test_prompts_and_outputs_are_taken_off() -> None:
    assert without_prompts(">>> a = [\n...   1]\n>>>\n[1]\n... not code\n>>> b") == "a = [\n  1]\n\nb"
    assert without_prompts("a >> b") == "a >> b"
