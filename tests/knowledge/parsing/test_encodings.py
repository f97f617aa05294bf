"""Bytes become clean text, whatever they were written with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge.indexing.parsed import ParseError, parse
from knowledge.indexing.parsers.encodings import clean

TEXT = "Größe und Länge: 5 € – naïve\n"


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252"])
def test_text_is_read_in_its_encoding(codec: str) -> None:
    assert parse(TEXT.encode(codec), name="a.txt").text == TEXT


@pytest.mark.parametrize(
    ("codec", "text"), [("shift_jis", "日本語のテキスト"), ("koi8-r", "Привет, мир"), ("gb18030", "中文")]
)
def test_a_declared_charset_is_used(codec: str, text: str) -> None:
    data = text.encode(codec)
    assert parse(data, name="a.txt", media_type=f'text/plain; charset="{codec}"').text == text
    page = f'<html><head><meta charset="{codec}"></head><body><p>{text}</p></body></html>'
    assert parse(page.encode(codec), name="a.html").text == text


def test_utf8_is_believed_before_a_server_that_says_latin1_of_everything() -> None:
    assert parse(TEXT.encode(), name="a.txt", media_type="text/plain; charset=ISO-8859-1").text == TEXT


@pytest.mark.parametrize(
    "charset", ["zip", "idna", "rot13", "unicode_escape", "undefined", "nonsense", "utf-8-nonsense"]
)
def test_a_codec_that_is_no_charset_is_not_used(charset: str) -> None:
    assert parse(rb"a\u0041", name="a.txt", media_type=f"text/plain; charset={charset}").text == r"a\u0041"


def test_an_unknown_encoding_is_refused() -> None:
    with pytest.raises(ParseError, match="Save it as UTF-8"):
        parse("Привет, мир, как дела".encode("koi8-r"), name="a.txt")


def test_newlines_controls_surrogates_and_trailing_spaces_are_normalised() -> None:
    assert clean("a \r\nb\rc\x00\x1b[0m\u2028d\ud800\t\n") == "a\nb\nc[0m d\ufffd\n"


def test_code_keeps_its_trailing_spaces_and_line_numbers() -> None:
    assert parse(b"s = '''a  \n\x0c\r\nb'''\n", name="a.py").text == "s = '''a  \n \nb'''\n"


@given(st.text(alphabet=st.characters(codec=None)))
def test_clean_text_counts_lines_by_newlines_alone(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode()
    assert cleaned.splitlines() == cleaned.removesuffix("\n").split("\n") or not cleaned
    assert all(line == line.rstrip() for line in cleaned.split("\n"))
    assert clean(cleaned) == cleaned
