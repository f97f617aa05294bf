"""The block structure of Markdown, by markdown-it: which lines are a heading, a fence, a list item.

Inline markup is not parsed. A large document is read in slices cut between top-level blocks: markdown-it keeps a token
for every block, and hostile nesting ends with its slice.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from knowledge.indexing.parsers import languages

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

SLICE = 2_000
"""Lines after which a slice ends at the next good place; at twice as many it ends at any line outside a fence."""

_MAX_NESTING = 8
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_DOCTEST = re.compile(r"\s*>>> ")


@dataclass(slots=True)
class Block:
    """Lines start..end (0-based, end not included, no blank lines at the end).

    `kind`: heading, fence, code, doctest, list, item, quote, table, paragraph, html or rule. `level` of a heading,
    `info` a fence's tag, `content` its code without the markup round it. Items, lists and quotes have `children`.
    """

    kind: str
    start: int
    end: int
    level: int = 0
    info: str = ""
    content: str = ""
    children: list["Block"] = field(default_factory=list)


_KINDS = {
    "bullet_list_open": "list",
    "ordered_list_open": "list",
    "list_item_open": "item",
    "blockquote_open": "quote",
    "paragraph_open": "paragraph",
    "heading_open": "heading",
    "table_open": "table",
    "fence": "fence",
    "code_block": "code",
    "html_block": "html",
    "hr": "rule",
}
_CONTAINERS = frozenset({"list", "item", "quote"})


def read(lines: Sequence[str]) -> list[Block]:
    """Answer the top-level blocks of a document in order."""
    return [block for start, end in _slices(lines) for block in _blocks(lines, start, end)]


def leaves(blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield the blocks that hold text, in the order of reading."""
    for block in blocks:
        if block.children:
            yield from leaves(block.children)
        else:
            yield block


def language_of(block: Block) -> str:
    """Answer the canonical language of a block of code: what its tag says, else a guess; "" when it is none."""
    if block.kind == "doctest":
        return "python"
    return languages.canonical(block.info) if block.info else languages.guess(block.content)


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"maxNesting": _MAX_NESTING}).enable("table")
    parser.core.ruler.enableOnly(["block"])
    parser.block.ruler.disable(["reference"])
    return parser


def _slices(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    start, fence, is_blank = 0, "", True
    for number, line in enumerate(lines):
        size = number - start
        if not fence and size >= SLICE and line and not line[0].isspace() and (is_blank or size >= 2 * SLICE):
            yield start, number
            start = number
        if mark := _FENCE.match(line):
            if not fence:
                fence = "" if "`" in mark[2] and mark[1][0] == "`" else mark[1]
            elif mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
        is_blank = not line
    yield start, len(lines)


def _blocks(lines: Sequence[str], first: int, last: int) -> list[Block]:
    found: list[Block] = []
    stack: list[Block] = []
    closes: list[str] = []
    skip_until = ""
    for token in _parser().parse("\n".join(lines[first:last])):
        if skip_until:
            skip_until = "" if token.type == skip_until else skip_until
        elif closes and token.type == closes[-1]:
            closes.pop()
            stack.pop()
        elif token.map is not None and (kind := _KINDS.get(token.type)):
            block = _block(token, kind, lines, first)
            (stack[-1].children if stack else found).append(block)
            if token.nesting == 1:
                close = token.type.replace("_open", "_close")
                if block.kind in _CONTAINERS:
                    stack.append(block)
                    closes.append(close)
                else:
                    skip_until = close
    return found


def _block(token: "Token", kind: str, lines: Sequence[str], first: int) -> Block:
    start, end = (first + line for line in token.map or (0, 0))
    end = min(end, len(lines))
    while end > start + 1 and not lines[end - 1].strip():
        end -= 1
    if kind in ("quote", "paragraph") and _DOCTEST.match(lines[start]):
        # In plain text this is a session at the prompt, whatever Markdown makes of the signs.
        return Block("doctest", start, end, content="\n".join(lines[start:end]))
    level = int(token.tag[1]) if kind == "heading" else 0
    content = token.content if kind in ("fence", "code", "doctest") else ""
    return Block(kind, start, end, level, token.info.strip() if kind == "fence" else "", content)
