"""The tree of sections of a document: by its headings, or by the functions and classes of a code file."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from knowledge.indexing.parsed import MAX_TITLE, Parsed
from knowledge.indexing.parsers import blocks, markdown, trees
from knowledge.indexing.parsers.blocks import Block
from knowledge.indexing.parsers.writing import CONTINUED


@dataclass(slots=True)
class Section:
    """Lines start..end (0-based, end not included): a heading, the text below it, the sections in it.

    `body` is the first line after the heading; in code it is `start`. `blocks` stand before the first child. A section
    without a `title` is what stands between two others. `heading` is the title as it is written, with its marks.
    """

    title: str
    start: int
    body: int
    end: int
    level: int = 0
    heading: str = ""
    blocks: list[Block] = field(default_factory=list)
    children: list["Section"] = field(default_factory=list)

    @property
    def own_end(self) -> int:
        """Where the text before the first child ends."""
        return self.children[0].start if self.children else self.end

    def walk(self) -> Iterator["Section"]:
        """Yield this section and all below it in the order of reading."""
        yield self
        for child in self.children:
            yield from child.walk()


def outline(parsed: Parsed, lines: Sequence[str]) -> Section:
    """Answer the root section, which spans the document and has its title."""
    if parsed.language:
        return _of_code(parsed, lines)
    root = Section(parsed.title, 0, 0, len(lines))
    open_sections = [root]
    for block in blocks.read(lines):
        if block.kind != "heading":
            open_sections[-1].blocks.append(block)
            continue
        while open_sections[-1].level >= block.level:
            open_sections.pop().end = block.start
        heading = _heading(lines[block.start : block.end])
        title = markdown.plain(heading)[:MAX_TITLE].removesuffix(CONTINUED)
        section = Section(title, block.start, block.end, len(lines), block.level, heading)
        open_sections[-1].children.append(section)
        open_sections.append(section)
    return root


def _heading(lines: Sequence[str]) -> str:
    """The text of `## A heading ##`, or of lines with one of `===` below them."""
    return " ".join(line.strip() for line in lines[:-1]) if len(lines) > 1 else lines[0].strip().strip("#").strip()


def _of_code(parsed: Parsed, lines: Sequence[str]) -> Section:
    root = Section(parsed.title, 0, 0, len(lines))
    _fill(root, trees.definitions(parsed.text, parsed.language), lines)
    return root


def _fill(section: Section, definitions: Sequence[trees.Definition], lines: Sequence[str]) -> None:
    """Give a section of code its definitions as children, with what stands between them, and its own blocks."""
    for definition in definitions:
        start, end = definition.start_line - 1, min(definition.end_line, section.end)
        if start < end:
            _between(section, start, lines)
            child = Section(definition.name, start, start, end)
            _fill(child, definition.members, lines)
            section.children.append(child)
    _between(section, section.end, lines)
    section.blocks = paragraphs(lines, section.start, section.own_end)


def _between(section: Section, end: int, lines: Sequence[str]) -> None:
    """Add the lines after the last child as a child; closing brackets and blank lines belong to that last one."""
    if not section.children or section.children[-1].end >= end:
        return
    start = section.children[-1].end
    if any(character.isalnum() for line in lines[start:end] for character in line):
        section.children.append(Section("", start, start, end, blocks=paragraphs(lines, start, end)))
    else:
        _extend(section.children[-1], end, lines)


def _extend(section: Section, end: int, lines: Sequence[str]) -> None:
    section.end = end
    if section.children:
        _extend(section.children[-1], end, lines)
    else:
        section.blocks = paragraphs(lines, section.start, end)


def paragraphs(lines: Sequence[str], start: int, end: int) -> list[Block]:
    """Answer the runs of lines between blank lines."""
    found: list[Block] = []
    is_blank = True
    for number in range(start, end):
        if not lines[number].strip():
            is_blank = True
        elif is_blank:
            found.append(Block("lines", number, number + 1))
            is_blank = False
        else:
            found[-1].end = number + 1
    return found


def statements(lines: Sequence[str], start: int, end: int) -> list[Block]:
    """Answer the runs of lines that start at a prompt, or else at the least indentation, of a block of code."""
    prompts = [number for number in range(start, end) if lines[number].lstrip().startswith(">>> ")]
    if len(prompts) < 2:
        least = min((_indent(lines[number]) for number in range(start, end) if lines[number].strip()), default=0)
        prompts = [number for number in range(start, end) if lines[number].strip() and _indent(lines[number]) == least]
    bounds = [start, *prompts[1:], end]
    return [Block("lines", first, last) for first, last in pairwise(bounds)]


def single_lines(lines: Sequence[str], start: int, end: int) -> list[Block]:
    """Answer the lines that are not blank."""
    return [Block("lines", number, number + 1) for number in range(start, end) if lines[number].strip()]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
