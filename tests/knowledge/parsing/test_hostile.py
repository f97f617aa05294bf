"""Hostile documents are read or refused, soon and with a `ParseError` and nothing else."""

import time
import zipfile
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knowledge.indexing.chunking import chunk
from knowledge.indexing.examples import extract
from knowledge.indexing.parsed import ParseError, parse
from tests.knowledge.parsing.samples import count_tokens, docx, pdf, word_paragraph

SUFFIXES = ("md", "rst", "txt", "html", "py", "js", "json", "ipynb", "pdf", "docx", "")
SIZE = 25_000
SECONDS = 4  # of this process: linear work takes less than one, quadratic work minutes


def read_all(data: bytes, name: str) -> None:
    """Parse, chunk and extract, as a source is ingested."""
    try:
        parsed = parse(data, name=name)
    except ParseError as error:
        assert str(error).endswith(".")
        return
    assert "\x00" not in parsed.text and parsed.title
    pieces = chunk(parsed, count_tokens=count_tokens)
    assert all(piece.tokens <= 240 for piece in pieces)
    extract(parsed)


UNITS = [
    *("[", "*", "`", "<", ">", "|", "_", "(", "{", '"', "\\", "&#x", "**a ", "`a` ", "![", "[a](", "a:b ", "x{", "/* "),
    *(
        "<a ",
        "<!--",
        "<b>",
        "<p>x",
        "<ul><li>",
        "<table><tr><td>",
        "- ",
        "> ",
        "x\n",
        "- a\n",
        "# a\n",
        "```\n",
        "a\n=\n",
    ),
    *("|a|\n", ".. x::\n", ".. _a:\n", ":a:`b` ", "- a\n\nx\n\n", "<!--<!--<!--\n", "\u2028"),
]


@pytest.mark.parametrize("suffix", ["md", "rst", "html", "py", "ts"])
@pytest.mark.parametrize("unit", UNITS)
def test_much_of_one_thing_takes_no_quadratic_time(unit: str, suffix: str) -> None:
    started = time.process_time()
    read_all((unit * (SIZE // len(unit))).encode(), f"a.{suffix}")
    assert time.process_time() - started < SECONDS


@pytest.mark.parametrize("depth", [500, 5000])
@pytest.mark.parametrize(
    ("suffix", "opening", "closing"),
    [
        ("html", "<div>", "</div>"),
        ("html", "<ul><li>", "</li></ul>"),
        ("html", "<b>", "</b>"),
        ("html", "<table><tr><td>", "</td></tr></table>"),
        ("html", "<dl><dd>", "</dd></dl>"),
        ("html", "<blockquote>", "</blockquote>"),
        ("md", "> ", ""),
        ("md", "- ", ""),
        ("ipynb", "[", "]"),
        ("json", '{"a":', "1}"),
        ("py", "(", ")"),
        ("ts", "<", ">"),
    ],
)
def test_deep_nesting_is_read_or_refused(suffix: str, opening: str, closing: str, depth: int) -> None:
    read_all((opening * depth + "x" + closing * depth).encode(), f"a.{suffix}")


@pytest.mark.parametrize("line", ["{indent}- a", "{indent}class A:", "{indent}.. note::\n", "{indent}1. a\n"])
@pytest.mark.parametrize("suffix", ["md", "rst", "py"])
def test_deep_indentation_is_read_or_refused(line: str, suffix: str) -> None:
    read_all("\n".join(line.format(indent="   " * depth) for depth in range(600)).encode(), f"a.{suffix}")


@pytest.mark.parametrize("suffix", ["md", "rst", "py", "html"])
def test_a_line_of_megabytes_is_cut(suffix: str) -> None:
    read_all(b"word " * 200_000, f"a.{suffix}")
    read_all(b"a" * 1_000_000, f"a.{suffix}")


def test_a_word_document_that_unpacks_to_too_much_is_refused_before_it_does() -> None:
    with pytest.raises(ParseError, match="unpacks to more"):
        parse(docx(word_paragraph("x"), extra={"word/media/a.bin": bytes(30_000_000)}), name="a.docx")
    with pytest.raises(ParseError, match="unpacks to more"):
        parse(docx(word_paragraph("x"), extra={f"x/{number}": b"" for number in range(5_001)}), name="a.docx")


def test_a_word_document_that_lies_about_its_sizes_is_refused() -> None:
    data = docx(word_paragraph("x" * 3_000))
    with zipfile.ZipFile(BytesIO(data)) as archive:
        size = archive.getinfo("word/document.xml").file_size
    lying = data.replace(size.to_bytes(4, "little"), (100).to_bytes(4, "little"))
    assert lying != data
    with pytest.raises(ParseError, match="broken"):
        parse(lying, name="a.docx")


@pytest.mark.parametrize("codec", ["ascii", "utf-16"])
def test_a_word_document_with_entities_is_refused(codec: str) -> None:
    bomb = '<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
    part = f'<?xml version="1.0" encoding="{codec}"?>{bomb}<a>&b;</a>'.encode(codec)
    with pytest.raises(ParseError, match="XML entities"):
        parse(docx(word_paragraph("x"), extra={"word/styles.xml": part}), name="a.docx")


def test_a_word_document_of_deep_tables_is_read_or_refused() -> None:
    nested = "<w:tbl><w:tr><w:tc>" * 3_000 + word_paragraph("x") + "</w:tc></w:tr></w:tbl>" * 3_000
    read_all(docx(nested), "a.docx")


def test_a_pdf_of_too_many_pages_is_refused() -> None:
    with pytest.raises(ParseError, match="2,000 pages"):
        parse(pdf([["x"]] * 2_001), name="a.pdf")


@settings(deadline=None, max_examples=150)
@given(
    st.one_of(
        st.binary(max_size=400),
        st.text(alphabet=" \n\t-*#>`~|:._=+[](){}<>/!&ax1\\\"'\u2028\x00\ud800", max_size=300).map(
            lambda text: text.encode("utf-8", "surrogatepass")
        ),
    ),
    st.sampled_from(SUFFIXES),
)
def test_anything_is_read_or_refused(data: bytes, suffix: str) -> None:
    read_all(data, f"a.{suffix}")


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from(["pdf", "docx"]))
def test_damaged_files_are_read_or_refused(seed: int, kind: str) -> None:
    whole = pdf([["Some words."], ["More."]]) if kind == "pdf" else docx(word_paragraph("Some words."))
    at = seed % len(whole)
    read_all(whole[:at] + seed.to_bytes(5, "big") + whole[at + 3 :], f"a.{kind}")
