"""Syntax trees (tree-sitter) of Python, JavaScript and TypeScript: what code defines and names, and is it clean."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from knowledge.indexing.parsers import languages

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Query, Tree

LANGUAGES = frozenset({"python", "javascript", "typescript"})

MAX_BYTES = 2_000_000
"""Larger code files are data or generated: they are read without structure."""

_MAX_DEPTH = 4
_MAX_LINE = 20_000
_READ = 65_536
_UNCHECKED = 20_000
_SECONDS, _SECONDS_PER_BYTE = 0.2, 4e-6  # of this thread; ordinary code takes a tenth

_PYTHON = """
(function_definition name: (identifier) @defined)
(class_definition name: (identifier) @defined)
(class_definition superclasses: (argument_list [(identifier) (attribute)] @used))
(decorator [(identifier) (attribute)] @used)
(call function: [(identifier) (attribute)] @used)
(import_statement name: (dotted_name) @used)
(import_statement name: (aliased_import name: (dotted_name) @used))
(import_from_statement module_name: (dotted_name) @used)
(import_from_statement name: (dotted_name) @used)
(import_from_statement name: (aliased_import name: (dotted_name) @used))
(raise_statement (identifier) @used)
(except_clause (identifier) @used)
(type (identifier) @used)
(assignment left: (identifier) @assigned)
(keyword_argument name: (identifier) @assigned)
"""

_SCRIPT = """
(function_declaration name: (identifier) @defined)
(generator_function_declaration name: (identifier) @defined)
(class_declaration name: (_) @defined)
(method_definition name: (property_identifier) @defined)
(variable_declarator name: (identifier) @defined)
(call_expression function: [(identifier) (member_expression)] @used)
(new_expression constructor: [(identifier) (member_expression)] @used)
(import_specifier name: (identifier) @used)
(import_clause (identifier) @used)
"""

_TYPES = """
(interface_declaration name: (type_identifier) @defined)
(type_alias_declaration name: (type_identifier) @defined)
(enum_declaration name: (identifier) @defined)
(type_identifier) @used
"""

_CLASSES = frozenset({"class_definition", "class_declaration", "abstract_class_declaration"})
_FUNCTIONS = frozenset(
    {"function_definition", "function_declaration", "generator_function_declaration", "method_definition"}
)
_NAMED = _CLASSES | _FUNCTIONS | {"interface_declaration", "enum_declaration", "type_alias_declaration"}
_WRAPPERS = frozenset({"decorated_definition", "export_statement"})


@dataclass(frozen=True, slots=True)
class Definition:
    """A function or class of a file: lines are 1-based and include its decorators and the comment right above it."""

    name: str
    is_class: bool
    start_line: int
    end_line: int
    members: list["Definition"] = field(default_factory=list)


@cache
def _grammar(language: str) -> "Language":
    from tree_sitter import Language

    if language == "python":
        import tree_sitter_python

        return Language(tree_sitter_python.language())
    if language == "javascript":
        import tree_sitter_javascript

        return Language(tree_sitter_javascript.language())
    import tree_sitter_typescript

    if language == "tsx":
        return Language(tree_sitter_typescript.language_tsx())
    return Language(tree_sitter_typescript.language_typescript())


@cache
def _query(language: str) -> "Query":
    from tree_sitter import Query

    source = {"python": _PYTHON, "javascript": _SCRIPT}.get(language, _SCRIPT + _TYPES)
    return Query(_grammar(language), source)


def _tree(code: str, language: str) -> "tuple[Tree, str] | None":
    """Parse code; answers the tree and its grammar (of TypeScript's two the one that reads it without errors).

    None for what is not code at all: recovering from errors takes time quadratic in them.
    """
    tree = _parsed(code, language)
    if language == "typescript" and (tree is None or tree.root_node.has_error):
        with_jsx = _parsed(code, "tsx")
        if with_jsx is not None and not with_jsx.root_node.has_error:
            return with_jsx, "tsx"
    return None if tree is None else (tree, language)


def _parsed(code: str, grammar: str) -> "Tree | None":
    from tree_sitter import Parser

    if grammar == "python" and len(code) > _UNCHECKED and languages.parses(code, "python") is False:
        return None  # the last step of recovering cannot be stopped
    source = code.encode("utf-8", "replace")
    deadline = time.thread_time() + _SECONDS + len(source) * _SECONDS_PER_BYTE

    def read(offset: int, _: object) -> bytes:
        return source[offset : offset + _READ]

    def is_late(_: int, __: bool) -> bool:
        return time.thread_time() > deadline

    try:
        return Parser(_grammar(grammar)).parse(read, progress_callback=is_late)
    except ValueError:  # stopped
        return None


def readable(code: str, language: str) -> bool:
    """Tell whether code has a grammar here and is code a person wrote: neither huge nor minified."""
    return (
        language in LANGUAGES and len(code) <= MAX_BYTES and max(map(len, code.split("\n"))) <= _MAX_LINE
    )  # the longest line is looked for last: it costs most


def is_clean(code: str, language: str) -> bool | None:
    """Tell whether code has no syntax error; None without a grammar for it."""
    if not readable(code, language):
        return None
    found = _tree(code, language)
    return found is not None and not found[0].root_node.has_error


def names(code: str, language: str) -> Iterator[str]:
    """Yield what code defines, then what it calls and imports, then what it assigns; `a.b.c` is yielded whole."""
    from tree_sitter import QueryCursor

    if (parsed := _tree(code, language)) is None:
        return
    tree, grammar = parsed
    found = QueryCursor(_query(grammar), match_limit=10_000).captures(tree.root_node)
    for kind in ("defined", "used", "assigned"):
        for node in sorted(found.get(kind, []), key=lambda node: node.start_byte):
            if node.text is not None:
                yield node.text.decode("utf-8", "replace")


def definitions(code: str, language: str) -> list[Definition]:
    """Answer the functions and classes of a file in order, classes with their members; [] without a grammar."""
    found = _tree(code, language) if readable(code, language) else None
    return [] if found is None else _members(found[0].root_node, depth=0)


def _members(parent: "Node", *, depth: int) -> list[Definition]:
    members: list[Definition] = []
    above = below = -1  # the first row of the comment lines just passed, and the row after them
    for node in parent.children:
        first, after = node.start_point[0], node.end_point[0] + 1
        if node.type == "comment":
            above = above if first == below else first
            below = after
            continue
        named = _named(node)
        if named is None or (name := named.child_by_field_name("name")) is None or name.text is None:
            continue
        if first == below:
            first = above
        if members and first < members[-1].end_line:  # two on one line
            continue
        is_class = named.type in _CLASSES
        body = named.child_by_field_name("body")
        inner = _members(body, depth=depth + 1) if is_class and body is not None and depth < _MAX_DEPTH else []
        last = node.end_point[0] + (node.end_point[1] > 0)
        members.append(Definition(name.text.decode("utf-8", "replace"), is_class, first + 1, last, inner))
    return members


def _named(node: "Node") -> "Node | None":
    """Answer the definition in a node, looking through decorators, exports and `const f = () => ...`."""
    if node.type in _WRAPPERS:
        inner = node.child_by_field_name("definition") or node.child_by_field_name("declaration")
        return None if inner is None else _named(inner)
    if node.type in _NAMED:
        return node
    if node.type in ("lexical_declaration", "variable_declaration"):
        for child in node.named_children:
            value = child.child_by_field_name("value")
            if value is not None and value.type in ("arrow_function", "function_expression", "class"):
                return child
    return None
