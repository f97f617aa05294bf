"""reStructuredText, also with Sphinx' and Django's additions, to Markdown by way of docutils' document tree.

docutils answers unknown roles and directives with error messages in the text. Here they never fail: the parser's
states are subclassed so that every directive becomes nodes of `rst_nodes`, and every role text. Nothing is read from
disk, nothing raw is let through. Below: `rst_writing` turns the tree into Markdown.
"""

import re
import threading
from functools import cache
from types import SimpleNamespace
from typing import Any

from docutils import frontend, nodes, utils
from docutils.parsers.rst import Parser, states
from docutils.utils import unescape

from knowledge.indexing.parsers import rst_directives, rst_writing
from knowledge.indexing.parsers.markup import looks_rst
from knowledge.indexing.parsers.wordsets import words

MAX_LINE = 10_000
MAX_LINES = 20_000
"""A longer document is kept as it is, too: docutils copies the lines that are left at every list."""

MAX_INLINE = 20_000
"""A longer paragraph is kept as it is: docutils' search for inline markup is quadratic."""

# docutils keeps registries and caches for the whole process.
_one_at_a_time = threading.Lock()

_TITLED = re.compile(r"(.*?)\s*<([^<>]*)>$", re.DOTALL)
_NAME = re.compile(r"[\w.$/:@<>=*+-]+(?:\(.*\))?$")

_PROSE = words("""
    ref doc term numref any download abbr dfn guilabel menuselection index title title-reference t eq sub sup
    subscript superscript emphasis strong ticket commit issue gh bpo cve pypi user source cite footcite
""")
_NUMBERED = words("issue ticket gh bpo")
_CALLS = words("func meth")
_KEPT = words("emphasis strong sub sup subscript superscript math literal code")


def to_markdown(text: str) -> tuple[str, str]:
    """Answer (title or "", Markdown). Raises what docutils raises for hostile input, such as RecursionError."""
    lines = text.split("\n")
    if len(lines) > MAX_LINES or any(len(line) > MAX_LINE for line in lines):
        raise ValueError("too long for docutils")
    with _one_at_a_time:
        document = utils.new_document("<document>", _settings())
        try:
            _Parser(inliner=_Inliner()).parse(text, document)
        finally:
            _States.nested_sm_cache.clear()
    return rst_writing.write(document, is_sphinx=looks_rst(text))


@cache
def _settings() -> Any:
    settings = frontend.get_default_settings(Parser())
    settings.file_insertion_enabled = settings.raw_enabled = False
    settings.report_level = settings.halt_level = 5
    settings.warning_stream = False
    settings.line_length_limit = MAX_LINE
    settings.syntax_highlight = "none"
    settings.tab_width = 4
    return settings


class _Inliner(states.Inliner):
    def parse(self, text: str, lineno: int, memo: Any, parent: Any) -> tuple[list[Any], list[Any]]:
        if len(text) > MAX_INLINE:
            return [nodes.Text(unescape(text))], []
        return super().parse(text, lineno, memo, parent)

    def interpreted(self, rawsource: str, text: str, role: str, lineno: int) -> tuple[list[Any], list[Any]]:
        if role.lower() in _KEPT:
            return super().interpreted(rawsource, text, role, lineno)
        return [_role(role.rpartition(":")[2].lower(), unescape(text))], []


# docutils fills its patterns with the attributes of the very class, not of its parents.
for _attribute, _value in vars(states.Inliner).items():
    if isinstance(_value, str) and not _attribute.startswith("__"):
        setattr(_Inliner, _attribute, _value)


def _role(role: str, text: str) -> nodes.Node:
    """What a cross-reference reads as: code for names of code, the text of a title or label for the rest."""
    titled = _TITLED.match(text)
    label = titled[1] if titled and titled[1] else (titled[2] if titled else text)
    if role in ("pep", "rfc"):
        number = label.partition("#")[0]
        return nodes.Text(label if titled and titled[1] else f"{role.upper()} {number}")
    if role in _NUMBERED and label.isdecimal():
        return nodes.Text(f"#{label}")
    if role in _PROSE:
        return nodes.Text(label)
    if not role:  # the default role: a name, or a word set apart
        return nodes.literal(text, text) if _NAME.match(text) else nodes.emphasis(text, text)
    if not (titled and titled[1]):
        label = label.lstrip("!")
        if label.startswith("~"):
            label = label[1:].rpartition(".")[2]
        if role in _CALLS and not label.endswith(")"):
            label += "()"
    return nodes.literal(label, label)


class _States:
    """Mixed into every state of docutils' parser: directives are ours, and so are nested parsers."""

    nested_sm_cache: list[Any] = []

    def __init__(self, state_machine: Any, debug: bool = False) -> None:
        super().__init__(state_machine, debug)  # type: ignore[call-arg]  # the state it is mixed into
        self.nested_sm_kwargs = {"state_classes": _STATES, "initial_state": "Body"}

    def directive(self, match: Any, **presets: Any) -> tuple[list[Any], bool]:
        name = match.group(1).lower()
        if name in rst_directives.OF_DOCUTILS:
            return super().directive(match, **presets)  # type: ignore[misc, no-any-return]  # as above
        return rst_directives.run(self, match, name)


class _Parser(Parser):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.state_classes = _STATES


def _directive(state: Any, match: Any) -> Any:
    return state.directive(match)


# Body's table of explicit markup calls Body's own method for directives: ours calls the method of the state at hand.
_EXPLICIT = SimpleNamespace(**vars(states.Body.explicit))
_EXPLICIT.constructs = [
    (_directive if method is states.Body.directive else method, pattern)
    for method, pattern in states.Body.explicit.constructs
]
_STATES = tuple(type(state.__name__, (_States, state), {"explicit": _EXPLICIT}) for state in states.state_classes)
