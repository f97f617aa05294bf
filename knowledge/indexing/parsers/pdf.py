"""PDF: the text of each page, headings where the outline names them, and the line each page starts on."""

import io
import logging
import re
from typing import TYPE_CHECKING, Any

from knowledge.indexing.parsed import MAX_TEXT, ParseError
from knowledge.indexing.parsers import encodings, writing

if TYPE_CHECKING:
    from pypdf import PdfReader

MAX_PAGES = 2_000
MAX_OUTLINE = 5_000
_MAX_DEPTH = 4
_BULLET = re.compile(r"^\s*[•●▪‣◦∙]\s*")
_BROKEN = "The PDF is broken. Open it, save or print it as PDF again, and add that."

logging.getLogger("pypdf").setLevel(logging.ERROR)  # it warns of every repair it makes


def to_markdown(data: bytes) -> tuple[str, str, tuple[int, ...]]:
    """Answer (title or "", Markdown, the first line of each page). Raises `ParseError` for what cannot be read."""
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise ParseError("The PDF is encrypted. Save it without a password and add it again.")
        if len(reader.pages) > MAX_PAGES:
            raise ParseError(f"The PDF has more than {MAX_PAGES:,} pages. Split it.")
        return _read(reader)
    except PyPdfError as error:
        raise ParseError(_BROKEN) from error


def _read(reader: "PdfReader") -> tuple[str, str, tuple[int, ...]]:
    headings = _outline(reader)
    lines: writing.Lines = []
    pages: list[int] = []
    size = 0
    for number, page in enumerate(reader.pages):
        text = encodings.clean(page.extract_text())
        size += len(text)
        if size > MAX_TEXT:
            raise ParseError(f"The PDF has more than {MAX_TEXT // 1_000_000} million characters. Split it.")
        if lines:
            lines.append("")
        pages.append(len(lines) + 1)
        lines += _page(text, headings.get(number, {}))
    title = reader.metadata.title if reader.metadata else None
    return _sane(title), "\n".join(lines), tuple(pages)


def _page(text: str, headings: dict[str, int]) -> writing.Lines:
    lines: writing.Lines = []
    for line in text.strip("\n").split("\n"):
        level = headings.pop(_key(line), 0)
        if level:
            lines += [*([""] if lines and lines[-1] else []), *writing.heading(level, line), ""]
        elif bullet := _BULLET.match(line):
            lines.append(f"- {line[bullet.end() :]}".rstrip())
        else:
            lines += writing.paragraph(line) or [""]
    return lines


def _outline(reader: "PdfReader") -> dict[int, dict[str, int]]:
    """Page number to the headings its outline names there: their words to their level."""
    headings: dict[int, dict[str, int]] = {}
    left = MAX_OUTLINE

    def visit(entries: list[Any], level: int) -> None:
        nonlocal left
        for entry in entries:
            left -= 1
            if left < 0:
                return
            if isinstance(entry, list):
                if level < _MAX_DEPTH:
                    visit(entry, level + 1)
            elif entry.title and (page := reader.get_destination_page_number(entry)) is not None:
                headings.setdefault(page, {})[_key(str(entry.title))] = level + 1

    try:
        visit(reader.outline, 1)
    except Exception:  # a broken outline is no reason to refuse the text
        return {}
    return headings


def _key(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).lower()


def _sane(title: str | None) -> str:
    """Programs write file names and "untitled" into the title."""
    text = " ".join((title or "").split())
    return "" if re.match(r"(?i)untitled|microsoft word|.*\.(docx?|pdf|tex|indd|dvi)$", text) else text
