"""Bytes to clean text: byte order marks, declared charsets, UTF-8, and Windows-1252 for what still looks like text."""

import codecs
import re

from knowledge.indexing.parsed import ParseError

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Python has codecs that are no charsets, some of them slow; nothing else is taken from a declaration.
_CHARSETS = re.compile(
    r"(?:utf[-_]?(?:8|16|32)|us-?ascii|iso[-_]?(?:8859|2022)|latin|l[1-9]|windows[-_]|cp\d|koi8|gb|big5|euc|shift|sjis|mac|tis)"
)
_IN_MEDIA_TYPE = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_IN_HTML = re.compile(rb"<meta[^<>]{0,200}?charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)

# Line ends of other standards and page breaks become spaces, so that "\n" alone counts lines; controls go.
_BREAKS = dict.fromkeys(map(ord, "\v\f\x1c\x1d\x1e\x85\u2028\u2029"), " ")
_CONTROLS = dict.fromkeys([*range(9), *range(14, 28), 31, 127, 0xFEFF])
_CLEAN = _CONTROLS | _BREAKS
_SURROGATES = re.compile("[\ud800-\udfff]")


def decode(data: bytes, *, media_type: str = "", markup: bool = False) -> str:
    """Decode a text file. `markup`: an HTML meta tag may name the charset. Raises `ParseError` for what is no text."""
    for mark, codec in _MARKS:
        if data.startswith(mark):
            return data.decode(codec, "replace")
    if data.count(0) > len(data) // 1000:
        raise ParseError("This is a binary file. Add it as text, Markdown, HTML, PDF or DOCX.")
    for charset in [*_declared(data, media_type, markup=markup), "utf-8"]:
        try:
            return data.decode(charset)
        except (UnicodeDecodeError, LookupError):
            continue
    if not _looks_western(data):
        raise ParseError("The text's encoding is not known. Save it as UTF-8 and add it again.")
    return data.decode("cp1252", "replace")


def clean(text: str, *, verbatim: bool = False) -> str:
    """Answer text with "\\n" newlines and without controls, lone surrogates and (unless `verbatim`) trailing spaces."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(_CLEAN)
    text = _SURROGATES.sub("\ufffd", text)
    return text if verbatim else "\n".join(line.rstrip() for line in text.split("\n"))


def _declared(data: bytes, media_type: str, *, markup: bool) -> list[str]:
    names = [match[1] for match in [_IN_MEDIA_TYPE.search(media_type[:200])] if match]
    if markup:
        names += [match[1].decode("ascii", "ignore") for match in [_IN_HTML.search(data, 0, 4096)] if match]
    names = [name.lower() for name in names if _CHARSETS.match(name.lower())]
    # Servers say ISO-8859-1 of everything, and every byte is valid in it: only after UTF-8 has failed.
    return [name for name in names if not re.match(r"iso-?8859-1$|latin-?1$|windows-1252$|cp1252$|us-?ascii$", name)]


def _looks_western(data: bytes) -> bool:
    sample = data[:100_000]
    high = sum(byte >= 0x80 for byte in sample)
    odd = sum(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in sample)
    return high < len(sample) * 0.3 and odd < len(sample) * 0.02
