"""Every format becomes Markdown with a title; what cannot be read says what to do."""

import io
import json

import pytest
from pypdf import PdfReader, PdfWriter

from knowledge.indexing.parsed import MAX_TEXT, Parsed, ParseError, parse, supported
from tests.knowledge.parsing.samples import docx, pdf, word_paragraph, written


def read(text: str, name: str, media_type: str = "") -> Parsed:
    return parse(text.encode(), name=name, media_type=media_type)


def test_markdown_is_kept_line_by_line_with_its_first_heading_as_title() -> None:
    parsed = read("Intro.  \n\n# The *great* `guide`\n\n- a\n- b\n", "notes/guide.md")
    assert parsed.title == "The great guide"
    assert parsed.text == "Intro.\n\n# The *great* `guide`\n\n- a\n- b\n"


def test_front_matter_gives_the_title_and_leaves_the_text() -> None:
    parsed = read('---\ntitle: "Setting up"\ntags: [a]\n---\n\nFirst do this.\n', "a.md")
    assert (parsed.title, parsed.text) == ("Setting up", "First do this.\n")


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("```\n# not me\n```\n\n# Me\n", "Me"),
        ("The Title\n=========\n\nText.\n", "The Title"),
        ('<h1 align="center"><b>Name</b></h1>\n\nText.\n', "Name"),
        ("# `__init__` and [links](x)\n", "__init__ and links"),
        ("No heading here.\n", "a.md"),
    ],
)
def test_titles_of_markdown_are_found_where_they_are(text: str, title: str) -> None:
    assert read(text, "docs/a.md").title == title


def test_a_title_falls_back_to_the_name_of_the_file_or_page() -> None:
    assert read("x", "https://example.com/docs/setup.txt?a=1#b").title == "setup.txt"
    assert read("x", "https://example.com/").title == "example.com"


def test_code_is_kept_verbatim_under_its_path() -> None:
    source = "import os\n\n\ndef f():  \n    return os.sep\n"
    parsed = read(source, "/srv/app/pkg/deep/views.py")
    assert (parsed.text, parsed.language, parsed.title) == (source, "python", "pkg/deep/views.py")
    assert read("", "pkg/__init__.py").text == ""


def test_code_files_are_told_by_name_the_rare_ones_by_pygments() -> None:
    assert read("all:\n\ttrue\n", "Makefile").language == "makefile"
    assert read("x = 1;\n", "a.ts").language == "typescript"
    assert read("program a;\n", "a.pas").language == "delphi"


@pytest.mark.parametrize(
    "name", ["a.md", "b/c.RST", "x.ipynb", "x.docx", "src/a.tsx", "README", "Dockerfile", "x.html"]
)
def test_directories_give_documents_and_code(name: str) -> None:
    assert supported(name)


@pytest.mark.parametrize("name", ["a.png", "package-lock.json", "uv.lock", "app.min.js", "a.zip", "bin/tool", "a.csv"])
def test_directories_do_not_give_binaries_lock_files_and_bundles(name: str) -> None:
    assert not supported(name)


def test_a_notebook_has_its_text_code_and_short_outputs() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Analysis\n", "\n", "Load it."]},
        {
            "cell_type": "code",
            "source": "import pandas\npandas.read_csv('a')",
            "outputs": [
                {"output_type": "stream", "text": [f"{number}\n" for number in range(100)]},
                {"output_type": "error", "ename": "KeyError", "evalue": "'x'", "traceback": ["\x1b[31m..."]},
                {"output_type": "display_data", "data": {"image/png": "AAAA"}},
            ],
        },
        {"cell_type": "raw", "source": "raw"},
        "odd",
    ]
    notebook = {"cells": cells, "metadata": {"kernelspec": {"language": "python"}}, "nbformat": 4}
    parsed = read(json.dumps(notebook), "a.ipynb")
    assert parsed.title == "Analysis"
    assert "```python\nimport pandas\npandas.read_csv('a')\n```" in parsed.text
    assert "19\n...\n```" in parsed.text
    assert "AAAA" not in parsed.text and "raw" not in parsed.text


@pytest.mark.parametrize("text", ["[1, 2]", "{}", "{", "[" * 5000 + "]" * 5000, '{"cells": 3}', "null"])
def test_json_that_is_no_notebook_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match="not a Jupyter notebook"):
        read(text, "a.ipynb")


def test_a_pdf_has_its_text_and_the_line_each_page_starts_on() -> None:
    parsed = parse(pdf([["Chapter One", "Some words."], ["# not a heading", "More."]], title="A Book"), name="a.pdf")
    lines = parsed.text.split("\n")
    assert parsed.title == "A Book"
    assert [lines[page - 1] for page in parsed.pages] == ["Chapter One", "\\# not a heading"]
    assert "Some words." in lines


def test_the_outline_of_a_pdf_makes_its_headings() -> None:
    data = pdf([["Chapter One", "Words."], ["Chapter Two", "More."]], outline=[("Chapter One", 0), ("Chapter  two", 1)])
    parsed = parse(data, name="a.pdf")
    assert "## Chapter One\n\nWords." in parsed.text
    assert "## Chapter Two\n\nMore." in parsed.text


def test_an_encrypted_pdf_says_so() -> None:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf([["secret"]]))))
    writer.encrypt("password", algorithm="RC4-128")
    with pytest.raises(ParseError, match="is encrypted"):
        parse(written(writer), name="a.pdf")


@pytest.mark.parametrize("data", [b"%PDF-1.7 and then nothing", pdf([["a"]])[:300], b"no pdf at all"])
def test_a_broken_pdf_is_refused(data: bytes) -> None:
    with pytest.raises(ParseError, match=r"PDF is broken|no text in the document"):
        parse(data, name="a.pdf")


def test_a_pdf_of_images_says_that_it_has_no_text() -> None:
    with pytest.raises(ParseError, match=r"no text.*scan"):
        parse(pdf([[]]), name="a.pdf")


def test_a_word_document_has_headings_and_paragraphs() -> None:
    body = word_paragraph("Handbook", style="Heading1") + word_paragraph("Be &lt;kind&gt;.")
    parsed = parse(docx(body), name="a.docx")
    assert (parsed.title, parsed.text) == ("Handbook", "# Handbook\n\nBe <kind>.")


def test_a_word_document_that_is_an_archive_of_something_else_is_refused() -> None:
    with pytest.raises(ParseError, match="Word document is broken"):
        parse(docx("")[:200], name="a.docx")
    with pytest.raises(ParseError, match="is an archive"):
        parse(b"PK\x03\x04" + b"x" * 100, name="a.zip")


@pytest.mark.parametrize(
    ("name", "media_type", "kind"),
    [
        ("page", "text/html; charset=utf-8", "html"),
        ("page.md", "text/html", "html"),
        ("page", "text/markdown", "markdown"),
        ("page", "", "markdown"),
        ("page.html", "", "html"),
        ("page.html", "application/octet-stream", "html"),
    ],
)
def test_what_the_server_says_decides_before_the_name(name: str, media_type: str, kind: str) -> None:
    text = read("Some <b>bold</b> text.", name, media_type).text
    assert text == ("Some **bold** text." if kind == "html" else "Some <b>bold</b> text.")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (bytes(range(256)) * 10, "binary file"),
        (b"\x89PNG\r\n\x1a\n" + b"\x00" * 500, "binary file"),
    ],
)
def test_what_is_no_text_is_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        parse(data, name="a.txt")


def test_more_text_than_the_limit_is_refused() -> None:
    with pytest.raises(ParseError, match="20 million characters"):
        parse(b"word " * (MAX_TEXT // 5 + 1), name="a.md")
    with pytest.raises(ParseError, match="500,000 lines"):
        parse(b"a\n" * 500_001, name="a.md")


def test_office_formats_that_are_not_read_say_what_to_do() -> None:
    with pytest.raises(ParseError, match="Save it as DOCX"):
        parse(b"anything", name="table.xlsx")
