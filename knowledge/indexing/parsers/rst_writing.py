"""A docutils document tree, with the nodes of `rst_directives`, as Markdown."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from docutils import nodes

from knowledge.indexing.parsers import languages, writing
from knowledge.indexing.parsers.rst_directives import Described, Glossary, Labelled, Marker
from knowledge.indexing.parsers.wordsets import words
from knowledge.indexing.parsers.writing import Lines

_PREFIXES = {
    "class": "class ",
    "exception": "exception ",
    "classmethod": "classmethod ",
    "staticmethod": "static ",
    "abstractmethod": "abstractmethod ",
    "decorator": "@",
    "decoratormethod": "@",
    "coroutinefunction": "async ",
    "coroutinemethod": "async ",
}
_MEMBERS = words("""
    method classmethod staticmethod attribute property coroutinemethod abstractmethod awaitablemethod
""")
_IN_MODULE = words("function class exception data decorator coroutinefunction awaitablefunction")
_OWNERS = words("class exception")
_C_DOMAINS = frozenset({"c", "cpp"})
_DOTTED = re.compile(r"@?([\w.]+)")
_BEFORE_CALL = re.compile(r"([\w.:]+)\s*(?:\(|$)")
_DASH = re.compile(r"(?<=\s)---?(?=\s)")
_LONGEST_NAME = 80
_HIDDEN = (nodes.comment, nodes.substitution_definition, nodes.target, nodes.pending, nodes.decoration, nodes.docinfo)
_ERROR = 3


def write(document: nodes.document, *, is_sphinx: bool) -> tuple[str, str]:
    """Answer (title of the first section or "", Markdown)."""
    writer = _Writer(document, is_sphinx=is_sphinx)
    lines = writer.blocks(document.children, level=1)
    return writer.title, "\n".join(lines)


class _Writer:
    def __init__(self, document: nodes.document, *, is_sphinx: bool) -> None:
        self.title = ""
        self.module = ""
        self.owner = ""
        self.highlight: str | None = None
        self.is_sphinx = is_sphinx
        self.substitutions = document.substitution_defs

    def blocks(self, children: Sequence[Any], *, level: int, within: str = "") -> Lines:
        """Render nodes below each other. `level`: of the headings here, 0 where headings cannot stand.

        `within`: the heading these nodes stand under. What follows a part with a heading of its own gets it again,
        for Markdown cannot say that a section has ended.
        """
        parts: list[Lines] = []
        is_inside = False
        for node in children:
            has_heading = level > 0 and _has_heading(node)
            lines = self.block(node, level)
            if not lines:
                continue
            if is_inside and not has_heading and within and level > 1:
                parts.append(writing.heading(level - 1, within + writing.CONTINUED))
            is_inside = has_heading
            parts.append(lines)
        return writing.join(parts)

    def block(self, node: Any, level: int) -> Lines:
        if isinstance(node, Marker):
            self.module = node.get("module", self.module)
            self.highlight = node.get("highlight", self.highlight)
            return []
        for kind, write in self._writers().items():
            if isinstance(node, kind):
                return write(node, level)
        if isinstance(node, _HIDDEN):
            return []
        if isinstance(node, nodes.TextElement | nodes.Text):
            return writing.paragraph(self.inline(node))
        return self.blocks(node.children, level=level)

    def _writers(self) -> dict[Any, Callable[[Any, int], Lines]]:
        return {
            nodes.section: self._section,
            Described: self._described,
            Labelled: self._labelled,
            Glossary: self._glossary,
            nodes.paragraph: lambda node, _: writing.paragraph(self.inline(node)),
            nodes.literal_block: lambda node, _: self._literal(node),
            nodes.doctest_block: lambda node, _: writing.fence(node.astext(), "pycon"),
            nodes.bullet_list: lambda node, _: self._list(node, None),
            nodes.enumerated_list: lambda node, _: self._list(node, node.get("start", 1)),
            nodes.definition_list: lambda node, _: self._definitions(node),
            nodes.field_list: lambda node, level: self._fields(node, level),
            nodes.option_list: lambda node, _: self._options(node),
            nodes.line_block: lambda node, _: self._lines(node),
            nodes.block_quote: lambda node, _: self.blocks(node.children, level=0),
            nodes.table: lambda node, _: self._table(node),
            nodes.footnote: lambda node, _: self._footnote(node),
            nodes.citation: lambda node, _: self._footnote(node),
            nodes.system_message: lambda node, _: self._unreadable(node),
            nodes.transition: lambda node, _: [],
            nodes.image: lambda node, _: writing.paragraph(self.inline(node)),
        }

    def _section(self, node: Any, level: int) -> Lines:
        title = writing.flat(self.inline(node.children[0]))
        self.title = self.title or title
        self.owner = ""
        body = self.blocks(node.children[1:], level=level + 1, within=title)
        return writing.join([writing.heading(level, title), body])

    def _described(self, node: Described, level: int) -> Lines:
        signatures = [self._signature(text, node) for text in node["signatures"]]
        name = self._name(node["signatures"][0], node)
        outer = self.owner
        if node["kind"] in _OWNERS:
            self.owner = name.removeprefix(f"{self.module}.") if self.module else name
        if 0 < level <= writing.MAX_HEADING and _has_heading(node):
            title = writing.code(name)
            shown = [] if signatures == [name] else [writing.code(text) for text in signatures]
            body = self.blocks(node.children, level=level + 1, within=title)
            lines = writing.join([writing.heading(level, title), shown, body])
        else:
            shown = [f"**{writing.code(text)}**" for text in signatures]
            body = self.blocks(node.children, level=0)
            lines = writing.item("-", writing.join([shown, body])) if body else shown
        self.owner = outer
        return lines

    def _signature(self, text: str, node: Described) -> str:
        kind, is_python = node["kind"], node["domain"] in ("", "py")
        if not is_python:
            return text
        return _PREFIXES.get(kind, "") + self._qualified(text, kind)

    def _qualified(self, text: str, kind: str) -> str:
        """Put the module or class before a name that comes without, so that it is found by its whole name."""
        path = _DOTTED.match(text)
        if path is None:
            return text
        text = text.lstrip("@")
        if kind in _MEMBERS and self.owner and not path[1].startswith(f"{self.owner}."):
            return f"{self.owner}.{text}" if "." not in path[1] else text
        if kind in _IN_MODULE and self.module and not path[1].startswith(f"{self.module}."):
            return f"{self.module}.{text}"
        return text

    def _name(self, text: str, node: Described) -> str:
        """The short name of what a signature describes: `json.loads`, `PyList_New`, `--verbosity`, `runserver`."""
        kind, domain = node["kind"], node["domain"]
        if domain in _C_DOMAINS:
            called = _BEFORE_CALL.search(text)
            return (called[1] if called else text)[:_LONGEST_NAME]
        if domain in ("", "py") and (kind in _MEMBERS or kind in _IN_MODULE or kind in ("method", "opcode", "envvar")):
            path = _DOTTED.match(self._qualified(text, kind))
            return path[1][:_LONGEST_NAME] if path else text[:_LONGEST_NAME]
        if domain == "js" and (called := _BEFORE_CALL.match(text)):
            return called[1][:_LONGEST_NAME]
        return text[:_LONGEST_NAME]

    def _labelled(self, node: Labelled, level: int) -> Lines:
        label = node["label"]
        body = self.blocks(node.children, level=0)
        if not body:
            return [f"**{label}.**"]
        if node.children and isinstance(node.children[0], nodes.paragraph):
            return [f"**{label}:** {body[0]}", *body[1:]]
        return [f"**{label}:**", "", *body]

    def _glossary(self, node: Glossary, level: int) -> Lines:
        if not level:
            return self.blocks(node.children, level=0)
        parts: list[Lines] = []
        for entry in node.findall(nodes.definition_list_item):
            terms = [self.inline(child) for child in entry.children if isinstance(child, nodes.term)]
            bodies = [child for child in entry.children if isinstance(child, nodes.definition)]
            parts.append(writing.heading(level, ", ".join(terms)))
            parts += [self.blocks(body.children, level=0) for body in bodies]
        return writing.join(parts)

    def _literal(self, node: Any) -> Lines:
        text = node.astext()
        language = node.get("language") or self.highlight
        if not language or language.lower() in ("default", "python", "python3", "py3", "py"):
            # Sphinx highlights these as Python where they read as Python.
            guessed = languages.guess(text)
            language = (
                guessed if guessed or not (self.is_sphinx and language) else ("python" if node.get("language") else "")
            )
        if language == "python" and text.lstrip().startswith(">>> "):
            language = "pycon"
        return writing.fence(text, "" if language in ("none", "text") else language)

    def _list(self, node: Any, start: int | None) -> Lines:
        return writing.listing((self.blocks(entry.children, level=0) for entry in node.children), start=start)

    def _definitions(self, node: Any) -> Lines:
        items: list[Lines] = []
        for entry in node.children:
            parts = [child for child in entry.children if isinstance(child, nodes.term | nodes.classifier)]
            bodies = [child for child in entry.children if isinstance(child, nodes.definition)]
            term = " : ".join(writing.flat(self.inline(part)) for part in parts)
            body = [line for child in bodies for line in self.blocks(child.children, level=0)]
            items.append(_led(f"**{term}**" if "`" not in term else term, body))
        return writing.listing(items)

    def _fields(self, node: Any, level: int) -> Lines:
        if level == 1 and not self.title:  # about the file (:orphan:, :tocdepth:), before its title
            return []
        return writing.listing(
            _led(self.inline(entry.children[0]), self.blocks(entry.children[1:], level=0)) for entry in node.children
        )

    def _options(self, node: Any) -> Lines:
        return writing.listing(
            _led(writing.code(entry.children[0].astext()), self.blocks(entry.children[1:], level=0))
            for entry in node.children
        )

    def _lines(self, node: Any) -> Lines:
        return [line for child in node.findall(nodes.line) for line in writing.paragraph(self.inline(child))]

    def _table(self, node: Any) -> Lines:
        title = [writing.paragraph(self.inline(child)) for child in node.children if isinstance(child, nodes.title)]
        rows = [
            [" ".join(self.blocks(entry.children, level=0)) for entry in row.children if isinstance(entry, nodes.entry)]
            for row in node.findall(nodes.row)
        ]
        return writing.join([*title, writing.table(rows)])

    def _footnote(self, node: Any) -> Lines:
        label = node.children[0].astext() if isinstance(node.children[0], nodes.label) else "*"
        body = self.blocks(node.children[1:] if label != "*" else node.children, level=0)
        return [f"[{label}] {body[0]}", *body[1:]] if body else []

    def _unreadable(self, node: Any) -> Lines:
        """What docutils could not read, as it was written; of warnings, which repeat what was read, nothing."""
        if node.get("level", 0) < _ERROR:
            return []
        return [line for child in node.findall(nodes.literal_block) for line in writing.fence(child.astext())]

    def inline(self, node: Any) -> str:
        if isinstance(node, nodes.Text):
            return _DASH.sub("—", str(node))
        if isinstance(node, nodes.literal):
            return writing.code(node.astext())
        if isinstance(node, nodes.system_message):
            return ""
        if isinstance(node, nodes.image):
            return f"[Image: {node['alt']}]" if node.get("alt") else ""
        if isinstance(node, nodes.substitution_reference):
            found = self.substitutions.get(node.get("refname", ""))
            return node.astext() if found is None else "".join(child.astext() for child in found.children)
        text = "".join(map(self.inline, node.children))
        if isinstance(node, nodes.footnote_reference | nodes.citation_reference):
            return f"[{text}]" if text else ""
        if isinstance(node, nodes.strong):
            return f"**{text}**" if text and "*" not in text else text
        if isinstance(node, nodes.emphasis):
            return f"*{text}*" if text and "*" not in text else text
        return text


def _has_heading(node: Any) -> bool:
    """Tell what gets a heading of its own; a description without a body is an anchor for the text after it."""
    return bool(isinstance(node, Glossary | nodes.section) or (isinstance(node, Described) and node.children))


def _led(lead: str, body: Lines) -> Lines:
    """A term and what it means: on one line where the meaning starts with text."""
    if not body:
        return [lead]
    if body[0].startswith(("`" * 3, "|", "- ", "#")):
        return [f"{lead}:", "", *body]
    return [f"{lead}: {body[0]}", *body[1:]]
