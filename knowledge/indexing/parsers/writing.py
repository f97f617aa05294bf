"""Writing Markdown: every function answers the lines of one block, `join` puts blocks below each other.

Text is escaped only where a line would become another block: stored text is read by agents and searched by words,
and `get\\_user\\_by\\_id` is not a word.
"""

import re
from collections.abc import Iterable, Sequence

Lines = list[str]

MAX_HEADING = 6
CONTINUED = " (continued)"
"""Ends a heading that is repeated because a part with a heading of its own came between."""

_SENTENCE_END = re.compile(r"(?<=[.!?])[ \t]+(?=[\"'(\[`*]{0,2}[A-Z0-9])")
_BLOCK_START = re.compile(
    r"(?:#{1,6}(?:\s|$)|>|[-+*](?:\s|$)|\d{1,9}[.)](?:\s|$)|={2,}\s*$|-{2,}\s*$|`{3}|~{3}|<[a-zA-Z!/?])"
)
_SPACES = re.compile(r"\s+")
LONG_LINE = 200


def flat(text: str) -> str:
    """Answer text on one line."""
    return _SPACES.sub(" ", text).strip()


def code(text: str) -> str:
    """Answer an inline code span; backticks inside are kept by a longer fence."""
    text = flat(text)
    if not text:
        return ""
    return f"`{text}`" if "`" not in text else f"`` {text} ``"


def heading(level: int, text: str) -> Lines:
    text = flat(text)
    return [f"{'#' * min(level, MAX_HEADING)} {text}"] if text else []


def paragraph(text: str) -> Lines:
    """Answer the lines of a paragraph; a long line is broken between sentences, so that citations are precise."""
    lines: Lines = []
    for raw in text.strip().split("\n"):
        line = raw.strip()
        if line:
            lines += _SENTENCE_END.split(line) if len(line) > LONG_LINE else [line]
    return [_escaped(line) for line in lines]


def fence(text: str, language: str = "") -> Lines:
    body = text.strip("\n").split("\n")
    if not any(line.strip() for line in body):
        return []
    longest = max((len(run) for line in body for run in re.findall(r"`{3,}", line)), default=2)
    ticks = "`" * (longest + 1)
    return [ticks + language, *body, ticks]


def item(marker: str, content: Lines) -> Lines:
    """Answer a list item: its first line after the marker, the others indented below it."""
    if not content:
        return []
    indent = " " * (len(marker) + 1)
    if content[0].startswith(("`" * 3, "|")):
        content = ["", *content]
    return [f"{marker} {content[0]}".rstrip(), *(indent + line if line else "" for line in content[1:])]


def listing(items: Iterable[Lines], *, start: int | None = None) -> Lines:
    """Answer a list, numbered when it has a start; items of several blocks are set apart by blank lines."""
    rendered = [
        item("-" if start is None else f"{number}.", content)
        for number, content in enumerate(items, start or 0)
        if content
    ]
    loose = any("" in entry for entry in rendered)
    return join(rendered) if loose else [line for entry in rendered for line in entry]


def table(rows: Sequence[Sequence[str]]) -> Lines:
    """Answer a pipe table; the first row is its head, short rows are filled."""
    cells = [[flat(cell).replace("|", "\\|") for cell in row] for row in rows]
    cells = [row for row in cells if any(row)]
    width = max((len(row) for row in cells), default=0)
    if width == 0:
        return []
    lines = ["| " + " | ".join([*row, *[""] * (width - len(row))]) + " |" for row in cells]
    return [lines[0], "|" + " --- |" * width, *lines[1:]]


def join(blocks: Iterable[Lines]) -> Lines:
    """Put blocks below each other with one blank line between."""
    lines: Lines = []
    for block in blocks:
        if block:
            if lines:
                lines.append("")
            lines += block
    return lines


def _escaped(line: str) -> str:
    match = _BLOCK_START.match(line)
    if match is None:
        return line
    if line[0].isdigit():
        end = match.end()
        cut = next(index for index in range(end) if line[index] in ".)")
        return f"{line[:cut]}\\{line[cut:]}"
    return f"\\{line}"
