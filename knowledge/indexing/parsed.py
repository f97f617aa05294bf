"""The door of parsing: any supported document becomes a `Parsed`, or a `ParseError` that says what to do.

Pure: bytes in, Markdown out; no network, no disk, no ORM. Above: `chunking`, `examples` and the pipeline.
Below: `parsers`, one module per family of formats, imported when first needed.
"""

import logging
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote

from knowledge.indexing.parsers.languages import LANGUAGE_NAMES, SUFFIXES, of_file
from knowledge.indexing.parsers.wordsets import words

__all__ = ["LANGUAGE_NAMES", "MAX_TEXT", "ParseError", "Parsed", "parse", "supported"]

logger = logging.getLogger(__name__)

MAX_TEXT = 20_000_000
"""Characters of text in one document."""

MAX_LINES = 500_000

MAX_TITLE = 200

_MARKDOWN = frozenset({".md", ".markdown", ".mdx", ".mkd", ".qmd", ".rmd"})
_PLAIN = frozenset({".txt", ".text", ".adoc", ".asciidoc", ".org"})
_RST = frozenset({".rst", ".rest"})
_HTML = frozenset({".html", ".htm", ".xhtml"})
_RICH = frozenset({".pdf", ".docx", ".ipynb"})
_DOCUMENTS = _MARKDOWN | _PLAIN | _RST | _HTML | _RICH
_NAMED_TEXTS = words("readme changelog changes contributing copying history install license news todo")
_GENERATED = re.compile(r"(?:^|[.-])lock\.\w+$|\.(?:min|bundle)\.\w+$|-lock\.|^npm-shrinkwrap\.json$")
_OTHER_OFFICE = frozenset({".doc", ".odt", ".ppt", ".pptx", ".xls", ".xlsx", ".rtf", ".pages", ".epub"})
_CODE_PARTS = 3


class ParseError(Exception):
    """A document that cannot be read; the message is shown to people as that document's error and says what to do."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A document as it is stored.

    `title` is the best one found, never empty. `text` is normalised Markdown: "\\n" newlines, no control characters, no
    lone surrogates, no trailing spaces; citations count its lines from 1. A code file has its `language`, and its text
    is the file's, line by line. `pages` has the first line of each page of a PDF.
    """

    title: str
    text: str
    language: str = ""
    pages: tuple[int, ...] = ()


def supported(name: str) -> bool:
    """Tell by its name whether a file is worth picking up from a directory; lock files and bundles are not."""
    path = PurePosixPath(name.lower())
    if _GENERATED.search(path.name):
        return False
    if path.suffix in _DOCUMENTS or path.suffix in SUFFIXES:
        return True
    return path.name in _NAMED_TEXTS or bool(not path.suffix and of_file(name))


def parse(data: bytes, *, name: str, media_type: str = "") -> Parsed:
    """Read a document. `name` is its file name, path or URL; `media_type` a Content-Type header, if there was one.

    Raises `ParseError`, and nothing else, whatever the bytes are.
    """
    path = _path(name)
    try:
        parsed = _parse(data, path, media_type.lower())
    except ParseError:
        raise
    except Exception as error:  # hostile documents break libraries in every way; one document must not stop the others
        logger.warning("%r could not be parsed", name[:MAX_TITLE], exc_info=True)
        raise ParseError(
            f"The document could not be read ({type(error).__name__}). Open it, save it again in another format "
            "such as Markdown or HTML, and add that."
        ) from error
    return parsed


def _parse(data: bytes, path: PurePosixPath, media_type: str) -> Parsed:
    from knowledge.indexing.parsers import encodings, markdown

    kind = _kind(data, path, media_type)
    language, pages, found = "", tuple[int, ...](), ""
    match kind:
        case "pdf":
            from knowledge.indexing.parsers import pdf

            found, text, pages = pdf.to_markdown(data)
        case "docx":
            from knowledge.indexing.parsers import docx

            found, text = docx.to_markdown(data)
        case _:
            text = encodings.clean(
                encodings.decode(data, media_type=media_type, markup=kind == "html"), verbatim=kind == "code"
            )
            _refuse_huge(text)
            match kind:
                case "notebook":
                    from knowledge.indexing.parsers import notebook

                    found, text = notebook.to_markdown(text)
                case "html":
                    from knowledge.indexing.parsers import html

                    found, text = html.to_markdown(text)
                case "rst":
                    found, text = _rst(text)
                case "code":
                    language = of_file(path.name)
                    found = "/".join(path.parts[-_CODE_PARTS:])
                case _:
                    found, text = markdown.normalise(text)
    text = text if language else encodings.clean(text)
    _refuse_huge(text)
    if not text.strip() and not language:  # an empty __init__.py is no mistake
        if not data.strip():
            raise ParseError("The document is empty. Add one with text in it.")
        raise ParseError("There is no text in the document. A scan has to go through text recognition first.")
    title = " ".join(encodings.clean(found or path.name or "Untitled").split())[:MAX_TITLE]
    return Parsed(title or "Untitled", text, language, pages)


def _refuse_huge(text: str) -> None:
    if len(text) > MAX_TEXT:
        raise ParseError(f"The document has more than {MAX_TEXT // 1_000_000} million characters. Split it.")
    if text.count("\n") >= MAX_LINES:
        raise ParseError(f"The document has more than {MAX_LINES:,} lines. Split it.")


def _path(name: str) -> PurePosixPath:
    """The path of a file name, path or URL."""
    _, separator, rest = name.partition("://")
    if separator:
        name = unquote(re.split(r"[?#]", rest, maxsplit=1)[0]).partition("/")[2] or rest
    parts = [part for part in PurePosixPath(name.replace("\\", "/")).parts if part != "/"]
    return PurePosixPath(*parts)


def _kind(data: bytes, path: PurePosixPath, media_type: str) -> str:
    """The format: what the bytes say for certain, then what the server said, then the name, then a look at the text."""
    suffix = path.suffix.lower()
    if data[:1024].lstrip().startswith(b"%PDF-") or suffix == ".pdf":
        return "pdf"
    if data.startswith(b"PK\x03\x04") or suffix == ".docx":
        if suffix == ".docx" or b"word/" in data:
            return "docx"
        raise ParseError("This is an archive. Unpack it and add the documents in it.")
    if suffix in _OTHER_OFFICE:
        raise ParseError("This office format is not read. Save it as DOCX, PDF or HTML and add that.")
    if "html" in media_type or suffix in _HTML:
        return "html"
    if suffix == ".ipynb":
        return "notebook"
    if suffix in _MARKDOWN or "markdown" in media_type:
        return "markdown"
    if (
        suffix in _RST
        or path.name.lower().endswith(".rst.txt")
        or "x-rst" in media_type
        or "restructuredtext" in media_type
    ):
        return "rst"
    if suffix not in _PLAIN and of_file(path.name):
        return "code"
    start = data[:2000].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "html"
    return "rst" if suffix in (".txt", ".text") and _looks_rst(data) else "text"


def _looks_rst(data: bytes) -> bool:
    from knowledge.indexing.parsers.markup import looks_rst

    return looks_rst(data[:200_000].decode("utf-8", "replace").replace("\r\n", "\n"))


def _rst(text: str) -> tuple[str, str]:
    """Read reStructuredText; what docutils cannot take is still text, and kept as it is."""
    from knowledge.indexing.parsers import markdown, rst

    try:
        title, text = rst.to_markdown(text)
        return markdown.plain(title), text
    except Exception as error:  # RecursionError and whatever hostile markup makes docutils raise
        logger.info("kept as plain text: %s", type(error).__name__)
        return markdown.normalise(text)
