"""Word documents: mammoth makes HTML of them, which is then read as any page."""

import io
import zipfile
import zlib
from typing import Any

from knowledge.indexing.parsed import ParseError
from knowledge.indexing.parsers import html

MAX_UNPACKED = 100_000_000
MAX_RATIO = 200
MAX_PARTS = 5_000
_BOMB = "The document unpacks to more than it may. Save it again without embedded files and images."
_DOCTYPES = tuple("<!DOCTYPE".encode(codec) for codec in ("ascii", "utf-16-le", "utf-16-be"))


def to_markdown(data: bytes) -> tuple[str, str]:
    """Answer (title or "", Markdown). Raises `ParseError` for bombs, entity tricks and what is no DOCX."""
    _check(data)
    import mammoth

    def no_image(_: Any) -> list[Any]:
        return []

    result = mammoth.convert_to_html(io.BytesIO(data), convert_image=no_image)
    return html.to_markdown(f"<html><body><main>{result.value}</main></body></html>")


def _check(data: bytes) -> None:
    """Refuse what could take the memory before anything is unpacked; sizes are counted, not believed."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts = archive.infolist()
            if "word/document.xml" not in archive.namelist():
                raise ParseError("This is not a Word document. Save it as DOCX and add it again.")
            unpacked = sum(part.file_size for part in parts)
            if len(parts) > MAX_PARTS or unpacked > MAX_UNPACKED:
                raise ParseError(_BOMB)
            for part in parts:
                if part.file_size > MAX_RATIO * max(part.compress_size, 1_000):
                    raise ParseError(_BOMB)
                if part.filename.endswith((".xml", ".rels")):
                    _check_part(archive, part)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError):
        raise ParseError("The Word document is broken or encrypted. Open it and save it again as DOCX.") from None


def _check_part(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> None:
    with archive.open(part) as stream:
        content = stream.read(part.file_size + 1)  # ends where the entry says it ends, or fails its checksum
    if any(mark in content for mark in _DOCTYPES):
        raise ParseError("The Word document declares XML entities, which no word processor does. Save it again.")
