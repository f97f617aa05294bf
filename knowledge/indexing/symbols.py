"""Names in code and in prose about code, kept whole for the exact leg of a search."""

import re
from collections.abc import Iterable
from itertools import islice

from knowledge.indexing.parsers.wordsets import words

MAX_SYMBOLS = 100
MAX_LENGTH = 100
_MAX_CODE = 200_000

_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::|->)[A-Za-z_$][\w$]*)*")
_CALLED = re.compile(r"([A-Za-z_$][\w$]{0,80}(?:(?:\.|::|->)[A-Za-z_$][\w$]{0,80}){0,8})\s?\(")
_DEFINED = re.compile(
    r"\b(?:class|struct|interface|enum|trait|type|module|namespace|def|fn|func|function|fun|sub|macro_rules!|const|let|var)"
    r"\s+([A-Za-z_$][\w$]{0,80})"
)
_OPTION = re.compile(r"(?<![\w-])(--[a-z][\w-]{1,40})")
_TICKED = re.compile(r"(?<!`)(`{1,2})([^`\n]{1,400})\1(?!`)")
_NAMED = re.compile(
    r"(?:(?:class|exception|async|def|function|classmethod|staticmethod|static|abstractmethod|property)\s+)*"
    r"@?([A-Za-z_$][\w$]*(?:[.:]{1,2}[A-Za-z_$][\w$]*)*|--?[A-Za-z][\w-]+)(?:\s?\(.*)?"
)
_WORDS = words("""
    if for while switch return catch and or not in is elif else with def class function import from as new try
    await async yield lambda self this cls super None True False null true false undefined print len str int
""")
_PROMPT = re.compile(r"^\s*(?:>>> ?|\.\.\. ?)(.*)$")


def symbols_of(code: str, language: str) -> tuple[str, ...]:
    """Answer the names a piece of code defines, calls and imports: definitions first, at most 100.

    `os.path.join` is answered whole and as `join`. `language` is a canonical name; without a grammar for it, names are
    found by their looks.
    """
    from knowledge.indexing.parsers import trees

    code = code[:_MAX_CODE]
    if language == "python":
        code = without_prompts(code)
    if trees.readable(code, language):
        found: Iterable[str] = trees.names(code, language)
    elif language == "bash":
        found = (match[1] for match in _OPTION.finditer(code))
    else:
        found = (match[1] for pattern in (_DEFINED, _CALLED) for match in pattern.finditer(code))
    return _distinct(found)


def symbols_in(text: str) -> tuple[str, ...]:
    """Answer the identifiers set in backticks in Markdown, at most 100."""
    named = (_NAMED.fullmatch(match[2].strip()) for match in _TICKED.finditer(text))
    return _distinct(match[1] for match in named if match)


def merged(*groups: Iterable[str]) -> tuple[str, ...]:
    """Put groups of symbols together, the first ones first, at most 100."""
    return tuple(islice(dict.fromkeys(name for group in groups for name in group), MAX_SYMBOLS))


def without_prompts(code: str) -> str:
    """Answer the code of a session at the Python prompt, without prompts and outputs; other code as it is."""
    if ">>>" not in code:
        return code
    lines: list[str] = []
    inside = False
    for line in code.split("\n"):
        entered = _PROMPT.match(line)
        if entered and (inside or line.lstrip().startswith(">>>")):
            inside = True
            lines.append(entered[1])
        else:
            inside = False
    return "\n".join(lines) if lines else code


def _distinct(found: Iterable[str]) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for name in found:
        whole = "".join(name.split())
        if not (1 < len(whole) <= MAX_LENGTH) or whole in _WORDS:
            if len(whole) <= MAX_LENGTH or not _IDENTIFIER.match(whole):
                continue
            whole = whole[:MAX_LENGTH]
        if "(" in whole or "[" in whole:  # a call chain: its last name
            whole = re.split(r"[^\w$]", whole)[-1]
            if len(whole) < 2:
                continue
        names.setdefault(whole)
        last = re.split(r"\.|::|->", whole)[-1]
        if len(last) > 1 and last not in _WORDS:
            names.setdefault(last)
        if len(names) >= MAX_SYMBOLS:
            break
    return tuple(islice(names, MAX_SYMBOLS))
