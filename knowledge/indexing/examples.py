"""Code examples of a document: fences and sessions at the prompt, or the functions and classes of a code file."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from knowledge.indexing.parsed import Parsed
from knowledge.indexing.parsers import blocks, languages, markdown, trees
from knowledge.indexing.parsers.blocks import Block
from knowledge.indexing.parsers.wordsets import words
from knowledge.indexing.symbols import symbols_of, without_prompts

MAX_CODE = 20_000
"""Characters of an example; a longer one ends there at a line."""

MAX_CONTEXT = 300

LARGE_CLASS = 80
"""Lines from which a class is shown method by method."""

_CODE = frozenset({"fence", "code", "doctest"})
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"'(\[`*A-Z])")
_COMMENT = re.compile(r"(?:#|//|/?\*+)\s?(.*?)(?:\*/)?$")
_DOCSTRING = re.compile(r"[rbu]{0,2}(?:\"{3}|'{3})\s*(\S.*?)\s*(?:\"{3}|'{3})?$", re.IGNORECASE)
_NO_CODE = words("text txt none plain plaintext output console-output log math latex mermaid")
_FIRST_LINES = 40


@dataclass(frozen=True, slots=True)
class Example:
    """Code worth copying, at lines `start_line`..`end_line` (1-based, both included) of `Parsed.text`.

    `language` is a canonical name or "". `context` is the sentence or heading before it. `is_valid`: whether it has no
    syntax error; None where no parser is there for it.
    """

    code: str
    language: str
    context: str
    symbols: tuple[str, ...]
    start_line: int
    end_line: int
    is_valid: bool | None


def extract(parsed: Parsed) -> list[Example]:
    """Answer the code examples of a document in order."""
    lines = parsed.text.split("\n")
    if parsed.language:
        found = _definitions(trees.definitions(parsed.text, parsed.language), parsed.title)
        return [_defined(parsed, lines, definition, above) for definition, above in found]
    return list(_snippets(parsed, lines))


def _snippets(parsed: Parsed, lines: Sequence[str]) -> Iterator[Example]:
    context = parsed.title
    for block in blocks.leaves(blocks.read(lines)):
        if block.kind in _CODE:
            if example := _snippet(block, context):
                yield example
        elif block.kind in ("heading", "paragraph", "html"):
            context = _sentence(lines, block) or context


def _snippet(block: Block, context: str) -> Example | None:
    tag = block.info.lower().split(" ")[0]
    code = _capped(textwrap.dedent(block.content).strip("\n"))
    language = blocks.language_of(block)
    if not code.strip() or tag in _NO_CODE or (not language and block.kind == "code"):
        return None  # what is only indented may be anything
    valid = is_valid(code, language) if len(block.content) <= MAX_CODE else None
    return Example(code, language, context, symbols_of(code, language), block.start + 1, block.end, valid)


def is_valid(code: str, language: str) -> bool | None:
    """Tell whether code has no syntax error, prompts aside; None for a language without a parser here."""
    if not language:
        return None
    return languages.parses(without_prompts(code) if language == "python" else code, language)


def _definitions(definitions: Sequence[trees.Definition], above: str) -> Iterator[tuple[trees.Definition, str]]:
    for definition in definitions:
        if definition.members and definition.end_line - definition.start_line >= LARGE_CLASS:
            yield from _definitions(definition.members, definition.name)
        else:
            yield definition, above


def _defined(parsed: Parsed, lines: Sequence[str], definition: trees.Definition, above: str) -> Example:
    part = lines[definition.start_line - 1 : definition.end_line]
    code = _capped(textwrap.dedent("\n".join(part)))
    return Example(
        code,
        parsed.language,
        _description(part) or f"{above} > {definition.name}",
        symbols_of(code, parsed.language),
        definition.start_line,
        definition.end_line,
        is_valid(code, parsed.language) if len(code) < MAX_CODE else None,
    )


def _description(part: Sequence[str]) -> str:
    """The comment above a definition, else the first line of its docstring."""
    if found := _COMMENT.match(part[0].strip()):
        return found[1].strip()[:MAX_CONTEXT]
    for line in part[:_FIRST_LINES]:
        if found := _DOCSTRING.match(line.strip()):
            return found[1][:MAX_CONTEXT]
    return ""


def _sentence(lines: Sequence[str], block: Block) -> str:
    """The last sentence of a block of text, without marks."""
    text = markdown.plain(" ".join(lines[block.start : block.end])[-4 * MAX_CONTEXT :]).strip("# =->")
    return _SENTENCE.split(text)[-1].strip()[-MAX_CONTEXT:]


def _capped(code: str) -> str:
    if len(code) <= MAX_CODE:
        return code
    cut = code[:MAX_CODE]
    return cut[: cut.rfind("\n")] if "\n" in cut else cut
