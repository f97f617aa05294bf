"""Pieces are small enough, whole where they can be, and together they are the document."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knowledge.indexing.chunking import Piece, chunk
from knowledge.indexing.parsed import Parsed, parse
from tests.knowledge.parsing.samples import count_tokens


def pieces(text: str, *, name: str = "a.md", limit: int = 60) -> list[Piece]:
    return chunk(parse(text.encode(), name=name), count_tokens=count_tokens, limit=limit)


def prose(words: int) -> str:
    return " ".join(["word"] * words)


def test_a_small_document_is_one_piece_without_its_title() -> None:
    (piece,) = pieces("# Title\n\nSome `os.path` text.\n\n## Part\n\nMore.\n")
    assert piece.heading == ("Title",)
    assert piece.text == "Some `os.path` text.\n\n## Part\n\nMore."
    assert (piece.start_line, piece.end_line) == (3, 7)
    assert piece.embed_text == f"Title\n{piece.text}"
    assert piece.tokens == count_tokens(piece.embed_text)
    assert piece.symbols == ("os.path", "path")


def test_large_sections_are_pieces_under_their_headings() -> None:
    text = f"# Title\n\n## One\n\n{prose(40)}\n\n### In `one`\n\n{prose(30)}\n\n## Two\n\n{prose(35)}\n"
    found = pieces(text)
    assert [piece.heading for piece in found] == [("Title", "One"), ("Title", "One", "In one"), ("Title", "Two")]
    assert [piece.start_line for piece in found] == [5, 9, 13]


def test_a_continued_section_has_the_path_of_its_section() -> None:
    text = f"# A\n\n## B\n\n{prose(50)}\n\n### `b.f`\n\n{prose(50)}\n\n## B (continued)\n\n{prose(50)}\n"
    assert [piece.heading for piece in pieces(text)] == [("A", "B"), ("A", "B", "b.f"), ("A", "B")]


def test_a_title_that_is_no_heading_comes_first() -> None:
    text = f"---\ntitle: Guide\n---\n\n# First\n\n{prose(50)}\n\n# Second\n\n{prose(50)}\n"
    assert [piece.heading for piece in pieces(text)] == [("Guide", "First"), ("Guide", "Second")]


def test_tiny_neighbours_become_one_piece_of_the_section_above() -> None:
    constants = "".join(f"## `X{number}`\n\nA bit.\n\n" for number in range(4))
    found = pieces(f"# Constants\n\n{prose(40)}\n\n{constants}", limit=70)
    assert [piece.heading for piece in found] == [("Constants",), ("Constants",)]
    assert found[1].text.startswith("## `X0`") and found[1].symbols == ("X0", "X1", "X2", "X3")


def test_a_fence_that_fits_is_never_cut_and_its_lead_in_stays_with_it() -> None:
    code = "\n".join(f"call_{number}()" for number in range(6))
    text = f"# T\n\n{prose(30)}\n\nFor example:\n\n```python\n{code}\n```\n\n{prose(30)}\n"
    found = pieces(text)
    assert [piece.text.startswith("For example:\n\n```python\n") for piece in found] == [False, True, False]
    assert found[1].text.endswith("```")
    assert found[1].languages == ("python",) and "call_5" in found[1].symbols
    assert found[0].languages == ()


def test_a_fence_that_does_not_fit_is_cut_between_statements() -> None:
    session = "\n".join(f">>> f_{number}(1,\n...   2)\n{number}" for number in range(12))
    found = pieces(f"# T\n\n```pycon\n{session}\n```\n")
    assert len(found) > 2
    assert all(piece.text.removeprefix("```pycon\n").startswith(">>> ") for piece in found)
    assert all(piece.languages == ("python",) for piece in found)


def test_code_is_cut_along_classes_and_methods() -> None:
    body = "".join(f"        total_{number} = compute(value)\n" for number in range(6))
    text = '"""Docs."""\nimport os\n\n\nclass A:\n    """An A."""\n\n'
    text += f"    # why\n    @cached\n    def first(self):\n{body}\n"
    text += f"    def second(self):\n{body}\n\nasync def third():\n{body}"
    found = pieces(text, name="pkg/mod.py", limit=80)
    assert [piece.heading for piece in found] == [
        ("pkg/mod.py",),
        ("pkg/mod.py", "A"),
        ("pkg/mod.py", "A", "first"),
        ("pkg/mod.py", "A", "second"),
        ("pkg/mod.py", "third"),
    ]
    assert found[2].text.startswith("    # why\n    @cached\n    def first(self):")
    assert found[2].symbols[:2] == ("A.first", "first") and "compute" in found[2].symbols
    assert {piece.languages for piece in found} == {("python",)}


def test_typescript_is_cut_along_its_definitions() -> None:
    body = "".join(f"    const total{number} = compute(value);\n" for number in range(8))
    text = f"export class A {{\n  first(): void {{\n{body}  }}\n\n  last(): void {{\n{body}  }}\n}}\n\n"
    text += f"export const second = () => {{\n{body}}};\n"
    assert [piece.heading[1:] for piece in pieces(text, name="a.ts", limit=110)] == [
        ("A",),
        ("A", "first"),
        ("A", "last"),
        ("second",),
    ]


def test_other_code_is_cut_at_blank_lines() -> None:
    text = "\n\n".join("\n".join(f"func f{part}{line}() int" for line in range(6)) for part in range(4))
    found = pieces(text, name="a.go")
    assert [piece.text.count("\n\n") for piece in found] == [0] * 4
    assert found[0].symbols[:2] == ("f00", "f01")


def test_a_long_line_is_cut_between_sentences_and_every_part_names_it() -> None:
    line = " ".join(f"Sentence {number} says a thing or two." for number in range(40))
    found = pieces(f"# T\n\n{line}\n")
    assert "".join(piece.text for piece in found) == line
    assert {(piece.start_line, piece.end_line) for piece in found} == {(3, 3)}
    assert all(piece.text.rstrip().endswith(".") for piece in found)


def test_a_document_of_headings_only_is_not_lost() -> None:
    assert [piece.text for piece in pieces("# Only a title\n")] == ["# Only a title"]


def test_an_endless_heading_is_cut_in_the_path_and_read_in_the_text() -> None:
    heading = "Very " * 100 + "long"
    found = pieces(f"# T\n\n## {heading}\n\nText.\n\n### Deep\n\n{prose(80)}\n", limit=80)
    assert all(piece.tokens <= 80 for piece in found)
    assert "".join(piece.text for piece in found).count("Very ") == 100


def test_a_tokenizer_that_does_not_add_up_is_obeyed() -> None:
    found = chunk(
        Parsed("T", "\n".join(["a b c"] * 50)),
        count_tokens=lambda text: 3 * text.count("\n") + len(text) // 4,
        limit=20,
    )
    assert all(piece.tokens <= 20 for piece in found)
    assert sum(piece.text.count("a b c") for piece in found) == 50


def test_the_same_document_is_cut_the_same_way() -> None:
    text = f"# T\n\n{prose(300)}\n\n- {prose(30)}\n- {prose(90)}\n"
    assert pieces(text) == pieces(text)


LINES = st.lists(
    st.sampled_from(
        [
            *(
                "",
                "",
                "",
                "# One",
                "## Two",
                "### `three`",
                "Words and more words here.",
                "- item one",
                "  - inner item",
            ),
            *("> quoted", "```python", "```", "    indented = code()", ">>> 1 + 1", "| a | b |", "| - | - |", "Title"),
            *(
                "=====",
                "1. first",
                "<div>",
                "</div>",
                "x" * 300,
                "word " * 60,
                "***",
                "[a]: http://x",
                "~~~",
                "Like so:",
            ),
            *("class A:", "    def f(self):", "        return 1", "}"),
        ]
    ),
    max_size=60,
)


@settings(deadline=None, max_examples=400)
@given(LINES, st.sampled_from(["", "python", "go"]), st.sampled_from([30, 60, 240]))
def test_no_line_is_lost_none_comes_twice_and_none_out_of_order(lines: list[str], language: str, limit: int) -> None:
    parsed = Parsed("Document", "\n".join(line.rstrip() for line in lines), language)
    source = parsed.text.split("\n")
    found = chunk(parsed, count_tokens=count_tokens, limit=limit)
    covered: set[int] = set()
    last = 0
    for piece in found:
        numbers = range(piece.start_line, piece.end_line + 1)
        assert piece.tokens == count_tokens(piece.embed_text) <= limit
        assert piece.text.strip()
        assert piece.start_line > last or (piece.start_line == last == piece.end_line)
        if len(numbers) > 1:
            assert piece.text == "\n".join(source[piece.start_line - 1 : piece.end_line])
        else:
            assert piece.text in source[piece.start_line - 1]
        covered.update(numbers)
        last = piece.end_line
    for number, line in enumerate(source, 1):
        is_heading = line.startswith("#") or set(line) == {"="} or source[number : number + 1] == ["====="]
        assert number in covered or not line.strip() or (is_heading and not language) or _in_title(source, number)


def _in_title(source: list[str], number: int) -> bool:
    """Tell whether a line is of the paragraph over a `=====`, which is a heading of several lines."""
    following = source[number - 1 :]
    end = following.index("=====") if "=====" in following else None
    return end is not None and all(line.strip() for line in following[:end])


@pytest.mark.parametrize("name", ["a.md", "a.py"])
def test_an_empty_document_has_no_pieces(name: str) -> None:
    assert chunk(Parsed(name, "", "python" if name == "a.py" else ""), count_tokens=count_tokens) == []
