"""Directives of docutils, Sphinx, Python's and Django's documentation, as nodes that `rst_writing` understands.

A directive is never an error: an unknown one is read as a container of what stands in it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList

from knowledge.indexing.parsers.wordsets import words

OF_DOCUTILS = frozenset({"replace", "unicode", "table", "csv-table", "list-table"})
"""Left to docutils itself; none of these reads a file while `file_insertion_enabled` is off."""

_DROPPED = words("""
    include raw role default-role meta contents local sectnum title date target-notes header footer index
    toctree sectionauthor moduleauthor codeauthor tabularcolumns program testsetup testcleanup miscnews
    limited-api-list audit-event-table autosummary ifconfig cssclass rst-class highlightlang digraph graphviz
    inheritance-diagram setting templatetag templatefilter fieldlookup audio video youtube only-builder
    bibliography footbibliography
""")
_CODE = words("code code-block sourcecode testcode doctest parsed-literal console prompt ipython math")
_TEXTS = words("productionlist testoutput code-output")
_CODE_LANGUAGES = {"testcode": "python", "doctest": "python", "console": "bash", "prompt": "bash", "ipython": "python"}
_LABELS: Mapping[str, str] = {
    "attention": "Attention",
    "caution": "Caution",
    "danger": "Danger",
    "error": "Error",
    "hint": "Hint",
    "important": "Important",
    "note": "Note",
    "tip": "Tip",
    "warning": "Warning",
    "seealso": "See also",
    "todo": "To do",
    "availability": "Availability",
    "impl-detail": "CPython implementation detail",
}
_VERSIONS: Mapping[str, str] = {
    "versionadded": "Added in version {}",
    "version-added": "Added in version {}",
    "versionchanged": "Changed in version {}",
    "version-changed": "Changed in version {}",
    "deprecated": "Deprecated since version {}",
    "version-deprecated": "Deprecated since version {}",
    "versionremoved": "Removed in version {}",
}
_TITLED = words("admonition topic sidebar rubric centered details dropdown tab tab-item card")
_DESCRIBED = words("""
    function method class exception attribute data classmethod staticmethod property decorator decoratormethod
    coroutinefunction coroutinemethod awaitablefunction awaitablemethod abstractmethod describe object opcode
    pdbcommand cmdoption option envvar confval django-admin django-admin-option type member macro var struct
    enum enumerator union autofunction automethod autoclass autodata autoattribute autoexception signature
""")
_OPTION = re.compile(r":([\w-]+):(?:\s+(.*))?$")


class Described(nodes.Element):
    """Something documented: its signatures, the kind of thing, and the body as children."""


class Labelled(nodes.Element):
    """A note, warning and the like: the label and the body as children."""


class Marker(nodes.Element):
    """What changes how the rest is read: the current module, the language of literal blocks."""


class Glossary(nodes.Element):
    """A definition list whose terms are worth headings."""


@dataclass(slots=True)
class Block:
    """A directive as written: what follows the name, its options, its content."""

    state: Any
    name: str
    argument: list[str]
    options: dict[str, str]
    content: StringList
    offset: int
    line: int

    def into(self, node: Any) -> Any:
        """Parse the content into a node."""
        if self.content:
            self.state.nested_parse(self.content, self.offset, node)
        return node

    def inline(self, text: str) -> list[Any]:
        found, _ = self.state.inline_text(text, self.line)
        return list(found)


def run(state: Any, match: Any, name: str) -> tuple[list[Any], bool]:
    """Read the directive at a match. Answers its nodes and whether a blank line follows, as docutils wants it."""
    machine = state.state_machine
    line = machine.abs_line_number()
    indented, _, offset, blank = machine.get_first_known_indented(match.end(), strip_top=0)
    block = _block(state, name, indented, offset, line)
    kind = name.rpartition(":")[2]
    return _handler(name, kind)(block, kind), blank or machine.is_next_line_blank()


def _block(state: Any, name: str, indented: StringList, offset: int, line: int) -> Block:
    if indented and not indented[0].strip():
        indented.trim_start()
        offset += 1
    while indented and not indented[-1].strip():
        indented.trim_end()
    end = next((i for i, text in enumerate(indented) if not text.strip()), len(indented))
    first_option = next((i for i in range(end) if _OPTION.match(indented[i].strip())), end)
    argument = [text.strip() for text in indented[:first_option] if text.strip()]
    options: dict[str, str] = {}
    for text in indented[first_option:end]:
        if found := _OPTION.match(text.strip()):
            options[found[1]] = (found[2] or "").strip()
    content = indented[end:]
    offset += end
    while content and not content[0].strip():
        content.trim_start()
        offset += 1
    return Block(state, name, argument, options, content, offset, line)


def _handler(name: str, kind: str) -> Callable[[Block, str], list[Any]]:
    if kind in _DROPPED:
        return _dropped
    if kind in _CODE or kind in _TEXTS:
        return _code
    if kind in _LABELS or kind in _VERSIONS or kind == "deprecated-removed":
        return _labelled
    if kind in _TITLED:
        return _titled
    special = {
        "module": _module,
        "currentmodule": _module,
        "highlight": _highlight,
        "literalinclude": _included,
        "image": _image,
        "figure": _image,
        "glossary": _glossary,
        "audit-event": _audit_event,
        "line-block": _container,
        "class": _class,
    }
    if kind in special and (kind != "class" or name == "class"):
        return special[kind]
    return _described if kind in _DESCRIBED or ":" in name else _container


def _dropped(block: Block, kind: str) -> list[Any]:
    return []


def _code(block: Block, kind: str) -> list[Any]:
    if "hide" in block.options:
        return []
    text = "\n".join(block.content)
    language = _CODE_LANGUAGES.get(kind, "latex" if kind == "math" else "")
    if kind in ("code", "code-block", "sourcecode") and len(block.argument) == 1 and " " not in block.argument[0]:
        language = block.argument[0]
    elif kind not in _TEXTS and block.argument and kind != "doctest":
        text = "\n".join([*block.argument, text]).strip("\n")
    if kind in _TEXTS or kind == "parsed-literal":
        language = "text"
    code = nodes.literal_block(text, text, language=language)
    if caption := block.options.get("caption"):
        return [nodes.paragraph("", "", *block.inline(caption), nodes.Text(":")), code]
    return [code]


def _labelled(block: Block, kind: str) -> list[Any]:
    words = " ".join(block.argument)
    label = _LABELS.get(kind, "")
    if kind in _VERSIONS:
        version, _, words = words.partition(" ")
        label = _VERSIONS[kind].format(version)
    elif kind == "deprecated-removed":
        since, removed, words = [*words.split(" ", 2), "", ""][:3]
        label = f"Deprecated since version {since}, removed in version {removed}"
    node = Labelled(label=label)
    if words:
        node += nodes.paragraph("", "", *block.inline(words))
    return [block.into(node)]


def _titled(block: Block, kind: str) -> list[Any]:
    title = block.inline(" ".join(block.argument)) if block.argument else []
    start = [nodes.paragraph("", "", nodes.strong("", "", *title))] if title else []
    return [*start, *block.into(nodes.container()).children]


def _module(block: Block, kind: str) -> list[Any]:
    if not block.argument:
        return _container(block, kind)
    return [Marker(module="" if block.argument[0] == "None" else block.argument[0]), *_content(block)]


def _highlight(block: Block, kind: str) -> list[Any]:
    return [Marker(highlight=block.argument[0] if block.argument else "")]


def _included(block: Block, kind: str) -> list[Any]:
    if not block.argument:
        return []
    path = block.argument[0]
    return [nodes.paragraph("", "", nodes.Text("See the file "), nodes.literal(path, path), nodes.Text("."))]


def _image(block: Block, kind: str) -> list[Any]:
    alt = block.options.get("alt", "")
    return [*([nodes.paragraph("", f"[Image: {alt}]")] if alt else []), *_content(block)]


def _glossary(block: Block, kind: str) -> list[Any]:
    return [block.into(Glossary())]


def _audit_event(block: Block, kind: str) -> list[Any]:
    name, _, arguments = " ".join(block.argument).partition(" ")
    arguments = arguments.partition(" ")[0].strip('"')
    text = [nodes.Text("Raises an auditing event "), nodes.literal(name, name)]
    if arguments:
        text += [nodes.Text(" with "), nodes.literal(arguments, arguments.replace(",", ", "))]
    return [nodes.paragraph("", "", *text, nodes.Text("."))]


def _class(block: Block, kind: str) -> list[Any]:
    """`class` documents a class in Sphinx and names a style in docutils."""
    argument = block.argument[0] if block.argument else ""
    is_style = argument == argument.lower() and not block.content and not re.search(r"[(._]", argument)
    return [] if is_style else _described(block, kind)


def _described(block: Block, kind: str) -> list[Any]:
    if not block.argument:
        return _container(block, kind)
    signatures: list[str] = []
    for line in block.argument:
        if signatures and signatures[-1].endswith("\\"):
            signatures[-1] = f"{signatures[-1][:-1].rstrip()} {line}"
        else:
            signatures.append(line)
    domain = block.name.rpartition(":")[0]
    node = Described(signatures=[text.replace("\\", "") for text in signatures], kind=kind, domain=domain)
    return [block.into(node)]


def _container(block: Block, kind: str) -> list[Any]:
    """What is not known: an argument of several words is text, a single one names something and is left out."""
    words = " ".join(block.argument)
    start = [nodes.paragraph("", "", *block.inline(words))] if " " in words else []
    return [*start, *_content(block)]


def _content(block: Block) -> list[Any]:
    return list(block.into(nodes.container()).children)
