"""Pieces of a document, small enough to be embedded whole: along headings, blocks, definitions, then lines.

A section that fits is one piece with everything below it; a larger one is packed block by block, and a block too large
is opened: lists into items, code at blank lines, then lines, then sentences. Pieces are in order and do not overlap;
nothing is left out but blank lines and headings, which are in the paths.
"""

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from knowledge.indexing.outline import Section, outline, paragraphs, single_lines, statements
from knowledge.indexing.parsed import Parsed
from knowledge.indexing.parsers.blocks import Block, language_of, leaves
from knowledge.indexing.symbols import merged, symbols_in, symbols_of

CHARACTERS_PER_TOKEN = 20
"""A tokenizer makes one token of any monster of a word; text counts at least a token for so many characters."""

TINY = 8
"""Neighbouring sections that each take less than a TINYth of the limit become one piece of the section above."""

HEADING_SHARE = 3
"""The path of headings takes at most a third of the limit; the outer ones but the first go before the inner ones."""

EVENLY = 1.2
"""How much more than its even share a piece of a section may take."""

MAX_HEADING = 120

_CODE = frozenset({"fence", "code", "doctest"})
_LED = _CODE | {"list", "table"}
_WINDOW = 6  # characters per token, where a line is first cut
_SENTENCE_END = re.compile(r"[.!?;:]\s")


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines `start_line`..`end_line` (1-based, both included) of `Parsed.text`, or part of a single long line.

    `heading`: the path of titles above, outermost first. `tokens`: of `embed_text`. `languages`: of the code inside,
    canonical names. `symbols`: names defined or used in code, or set in backticks; at most 100.
    """

    heading: tuple[str, ...]
    text: str
    start_line: int
    end_line: int
    tokens: int
    languages: tuple[str, ...]
    symbols: tuple[str, ...]

    @property
    def embed_text(self) -> str:
        """What is embedded and hashed: the path, then the text."""
        return _with_path(self.heading, self.text)


def chunk(parsed: Parsed, *, count_tokens: Callable[[str], int], limit: int = 240) -> list[Piece]:
    """Cut a document into pieces of at most `limit` tokens, as `count_tokens` counts them in `embed_text`.

    `count_tokens` is called about once per line and once per piece.
    """
    return list(_Chunker(parsed, count_tokens, limit).pieces())


@dataclass(slots=True)
class _Run:
    """Lines start..end (0-based, end not included) of a piece to be, or a part of the single line there."""

    start: int
    end: int
    text: str | None = None


class _Chunker:
    def __init__(self, parsed: Parsed, count_tokens: Callable[[str], int], limit: int) -> None:
        self.lines = parsed.text.split("\n")
        self.language = parsed.language
        self.limit = limit
        self.count = count_tokens
        self.overhead = count_tokens("")
        self.weights: dict[str, int] = {}
        self.window = float(_WINDOW)
        self.sums = [0]
        for line in self.lines:
            self.sums.append(self.sums[-1] + self._weight(line))
        self.root = outline(parsed, self.lines)
        self.code = [
            leaf for section in self.root.walk() for leaf in leaves(section.blocks) if leaf.kind in _CODE
        ]  # fmt: skip
        self.code_starts = [block.start for block in self.code]
        self.code_ends = [block.end for block in self.code]
        self.code_languages: dict[int, str] = {}

    def _weight(self, line: str) -> int:
        """Tokens of a line, without what the tokenizer adds to every text."""
        if not line or line.isspace():
            return 0
        weight = self.weights.get(line)
        if weight is None:
            weight = math.ceil(len(line) / CHARACTERS_PER_TOKEN)
            if weight <= self.limit:
                weight = max(self.count(line) - self.overhead, weight)
            self.weights[line] = weight
        return weight

    def _cost(self, start: int, end: int) -> int:
        return self.sums[end] - self.sums[start]

    def pieces(self) -> Iterator[Piece]:
        return self._section(self.root, (), "")

    def _section(self, section: Section, above: tuple[str, ...], named: str) -> Iterator[Piece]:
        """Cut a section. `above`: the titles over it, uncut. `named`: the heading that symbols are taken from."""
        while len(section.children) == 1 and not self._cost(section.body, section.own_end):
            # A heading right below another: the inner one says more, and both are in the path.
            above = above if section.title == "".join(above[-1:]) else (*above, section.title)
            section = section.children[0]
        titles = above if not section.title or section.title == "".join(above[-1:]) else (*above, section.title)
        named = section.heading or named
        path, budget = self._path(titles)
        # A title that the path had to cut is read in the text.
        start = section.body if not path or path[-1] == "".join(titles[-1:]) else section.start
        if self._cost(start, section.end) <= budget:
            if self._cost(start, section.end):
                yield from self._piece(path, named, _Run(start, section.end))
            elif section.heading:
                yield from self._piece(self._path(above)[0], named, _Run(section.start, section.end))
            return
        for run in self._pack(section.blocks, start, section.own_end, budget):
            yield from self._piece(path, named, run)
        for group in self._groups(section.children, budget):
            if len(group) == 1:
                yield from self._section(group[0], titles, named)
            else:
                yield from self._piece(path, named, _Run(group[0].start, group[-1].end))

    def _groups(self, sections: Sequence[Section], budget: int) -> Iterator[list[Section]]:
        """Put tiny neighbours together, as many as fit."""
        group: list[Section] = []
        for section in sections:
            is_tiny = self._cost(section.start, section.end) * TINY <= self.limit
            if group and (not is_tiny or self._cost(group[0].start, section.end) > budget):
                yield group
                group = []
            if is_tiny:
                group.append(section)
            else:
                yield [section]
        if group:
            yield group

    def _path(self, titles: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
        """Answer the path as it is shown, and the tokens that are left for the text below it."""
        path = tuple(title[:MAX_HEADING] for title in titles)
        cost = self.count(_with_path(path, "")) if path else self.overhead
        while cost - self.overhead > self.limit // HEADING_SHARE and path:
            path = (path[0], *path[2:]) if len(path) > 2 else path[1:]
            cost = self.count(_with_path(path, "")) if path else self.overhead
        return path, max(self.limit - cost, 1)

    def _pack(self, blocks: Sequence[Block], start: int, end: int, budget: int) -> Iterator[_Run]:
        """Fill runs with what `_units` yields: as few as it takes, and about evenly, so that none ends in a scrap."""
        whole = self._cost(start, end)
        goal = min(budget, EVENLY * whole / max(math.ceil(whole / budget), 1))
        current: _Run | None = None
        for unit in self._units(blocks, start, end, budget):
            if current is None:
                current = unit
            elif current.text is None and unit.text is None and self._cost(current.start, unit.end) <= goal:
                current.end = unit.end
            else:
                yield current
                current = unit
        if current is not None:
            yield current

    def _units(self, blocks: Sequence[Block], start: int, end: int, budget: int) -> Iterator[_Run]:
        """Yield whole blocks; those too large in parts: children, else at blank lines, statements, lines, sentences."""
        for block, first, last in self._spans(blocks, start, end, budget):
            if self._cost(first, last) <= budget:
                yield _Run(first, last)
                continue
            parts = block.children or self._smaller(first, last)
            if parts:
                yield from self._units(parts, first, last, budget)
            else:
                line = single_lines(self.lines, first, last)[0].start
                yield from (_Run(line, line + 1, text) for text in self._cut(self.lines[line], budget))

    def _smaller(self, start: int, end: int) -> list[Block]:
        """Split lines at blank lines, else where statements start, else each; [] for a single line."""
        for split in (paragraphs, statements, single_lines):
            if len(parts := split(self.lines, start, end)) > 1:
                return parts
        return []

    def _spans(self, blocks: Sequence[Block], start: int, end: int, budget: int) -> Iterator[tuple[Block, int, int]]:
        """Yield blocks with the lines up to the next one, so that none is lost; a lead-in stays with what follows."""
        if not blocks and start < end:
            yield Block("lines", start, end), start, end
        bounds = [start, *(block.start for block in blocks[1:]), end]
        spans = list(zip(blocks, pairwise(bounds), strict=True)) if blocks else []
        index = 0
        while index < len(spans):
            block, (first, last) = spans[index]
            while index + 1 < len(spans) and self._leads(block, spans[index + 1][0]):
                following = spans[index + 1][1][1]
                if self._cost(first, following) > budget:
                    break
                block, last = spans[index + 1][0], following
                index += 1
            yield block, first, last
            index += 1

    def _leads(self, block: Block, following: Block) -> bool:
        line = self.lines[block.end - 1]
        if block.kind != "paragraph":
            return False
        return (line.startswith("**") and line.endswith("**")) or (line.endswith(":") and following.kind in _LED)

    def _cut(self, line: str, budget: int) -> Iterator[str]:
        """Cut a line where a sentence ends, else a word, else anywhere."""
        at = 0
        while at < len(line):
            size = max(min(len(line) - at, int(budget * self.window), budget * CHARACTERS_PER_TOKEN), 1)
            while (tokens := self.count(line[at : at + size]) - self.overhead) > budget and size > 1:
                size = max(min(int(size * budget / tokens * 0.97), size - 1), 1)
            self.window = size / max(tokens, 1)  # the next part is likely alike
            if at + size < len(line):
                size = _good_end(line, at, size)
            yield line[at : at + size]
            at += size

    def _piece(self, path: tuple[str, ...], named: str, run: _Run) -> Iterator[Piece]:
        start, end = run.start, run.end
        while start < end and not self.lines[start].strip():
            start += 1
        while start < end and not self.lines[end - 1].strip():
            end -= 1
        text = run.text if run.text is not None else "\n".join(self.lines[start:end])
        if not text.strip():
            return
        tokens = self.count(_with_path(path, text))
        if tokens > self.limit and len(text) > 1:  # a tokenizer that does not add up
            for half in _halves(start, end, text):
                yield from self._piece(path, named, half)
            return
        languages, symbols = self._inside(path, named, text, start, end)
        yield Piece(path, text, start + 1, end, tokens, languages, symbols)

    def _inside(
        self, path: tuple[str, ...], named: str, text: str, start: int, end: int
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if self.language:
            qualified = [".".join(path[1:])] if len(path) > 1 else []
            return (self.language,), merged(qualified, symbols_of(text, self.language))
        languages: dict[str, None] = {}
        names: list[tuple[str, ...]] = [symbols_in(named)]
        for index in range(bisect_right(self.code_ends, start), bisect_left(self.code_starts, end)):
            block = self.code[index]
            if language := self._language(index):
                languages.setdefault(language)
                part = block.content if start <= block.start and block.end <= end else text
                names.append(symbols_of(part, language))
        return tuple(languages), merged(*names, symbols_in(text))

    def _language(self, index: int) -> str:
        if index not in self.code_languages:
            self.code_languages[index] = language_of(self.code[index])
        return self.code_languages[index]


def _with_path(path: Sequence[str], text: str) -> str:
    return f"{' > '.join(path)}\n{text}" if path else text


def _good_end(line: str, at: int, size: int) -> int:
    """Shorten a cut to the last end of a sentence, else of a word, in its second half."""
    half = at + size // 2
    ends = [match.end() for match in _SENTENCE_END.finditer(line, half, at + size)]
    end = ends[-1] if ends else line.rfind(" ", half, at + size) + 1
    return end - at if end else size


def _halves(start: int, end: int, text: str) -> list[_Run]:
    if end - start > 1:
        middle = (start + end) // 2
        return [_Run(start, middle), _Run(middle, end)]
    middle = len(text) // 2
    return [_Run(start, end, text[:middle]), _Run(start, end, text[middle:])]
