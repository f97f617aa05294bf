"""Parameters that a task states outright: `name=value`, quoted texts, paths, numbers, words of an enum, the selection.

Nothing is guessed: what could go to two parameters goes to none, and what the task says but no parameter takes is
reported, because an action that ignores half of what was asked is the wrong one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

_QUOTED = re.compile(r"\"([^\"\n]{1,2000})\"|(?<!\w)'([^'\n]{1,2000})'(?!\w)|`([^`\n]{1,2000})`|“([^“”\n]{1,2000})”")
_NAMED = re.compile(r"(?<![\w/.-])([A-Za-z_]\w{0,63})\s*=\s*(\"[^\"\n]*\"|'[^'\n]*'|[^\s,;]+)")
_PATH = re.compile(
    r"(?<![\w/.~-])(?:file://\S+|~?/[^\s,;:?!\"'`]+|\.{1,2}/[^\s,;:?!\"'`]*|[\w-]+(?:/[\w.-]+)+|[\w-]+(?:\.[\w-]+)*\.[A-Za-z]\w{0,9})(?![\w/])"
)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w]|\.\d)")
_DIRECTORY = re.compile(r"dir|folder|cwd|root", re.IGNORECASE)
_PATH_NAME = re.compile(r"path|file|dir|folder|uri|source|destination|cwd|root", re.IGNORECASE)
MAX_NUMBER = 2**53


@dataclass(frozen=True)
class Surroundings:
    """What the client has open: `document` and `directory` as paths, `selection` as text; empty where unknown."""

    document: str = ""
    directory: str = ""
    selection: str = ""


@dataclass
class Stated:
    """What a task says outright, taken from it one by one."""

    named: dict[str, str]
    paths: list[str]
    numbers: list[float | int]
    quoted: list[str]
    rest: str

    @classmethod
    def of(cls, query: str) -> "Stated":
        named: dict[str, str] = {}
        quoted: list[str] = []
        paths: list[str] = []
        numbers: list[float | int] = []

        def take_named(match: re.Match[str]) -> str:
            named[match[1]] = match[2][1:-1] if match[2][:1] in "\"'" else match[2]
            return " "

        def take_quoted(match: re.Match[str]) -> str:
            quoted.append(next(part for part in match.groups() if part))
            return " "

        def take_path(match: re.Match[str]) -> str:
            paths.append(path_of(match[0].rstrip(".")))
            return " "

        def take_number(match: re.Match[str]) -> str:
            number = float(match[0])
            numbers.append(int(number) if number.is_integer() and abs(number) < MAX_NUMBER else number)
            return " "

        rest = _NAMED.sub(take_named, query)
        rest = _QUOTED.sub(take_quoted, rest)
        rest = _PATH.sub(take_path, rest)
        rest = _NUMBER.sub(take_number, rest)
        return cls(named, paths, numbers, quoted, rest)


@dataclass
class Extracted:
    """Parameters found, required ones that were not, and values the task states that went nowhere."""

    params: dict[str, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return not self.missing and not self.unused


def path_of(uri: str) -> str:
    """The path in a `file:` URI; anything else as it is."""
    return unquote(urlsplit(uri).path) if uri.startswith("file:") else uri


def extract(query: str, schema: Mapping[str, Any], around: Surroundings) -> Extracted:
    """Fill the required parameters of a schema from what a task states; optional ones only where it names them."""
    stated = Stated.of(query)
    properties = _mapping(schema.get("properties"))
    required = [name for name in schema.get("required") or () if name in properties]
    found = Extracted()
    for name, text in stated.named.items():
        if name in properties and (value := _read(text, _mapping(properties[name]))) is not None:
            found.params[name] = value
        else:
            found.unused.append(f"{name}={text}")
    words = set(re.findall(r"\w+", stated.rest.lower()))
    open_names = [name for name in required if name not in found.params]
    for name in list(open_names):
        if (value := _of_enum(_mapping(properties[name]), query, words, stated.quoted)) is not None:
            found.params[name] = value
            open_names.remove(name)
    _fill_numbers(open_names, properties, stated, found)
    _fill_paths(open_names, properties, stated, around, found)
    _fill_texts(open_names, properties, stated, around, found)
    found.missing = [name for name in required if name not in found.params]
    found.unused += [*stated.quoted, *stated.paths, *map(str, stated.numbers)]
    return found


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _read(text: str, schema: Mapping[str, Any]) -> Any:
    """`text` as the schema's type; None where it cannot be."""
    kind = schema.get("type")
    if kind in ("number", "integer"):
        if not _NUMBER.fullmatch(text):
            return None
        number = float(text)
        return int(number) if number.is_integer() and abs(number) < MAX_NUMBER else number
    if kind == "boolean":
        return {"true": True, "yes": True, "false": False, "no": False}.get(text.lower())
    if kind == "array" and _mapping(schema.get("items")).get("type") == "string":
        return [part.strip() for part in text.split(",")]
    return text if kind in ("string", None) else None


def _of_enum(schema: Mapping[str, Any], query: str, words: set[str], quoted: list[str]) -> Any:
    """The one value of an enum that the task says as a word."""
    values = schema.get("enum")
    if not isinstance(values, list):
        return None
    lowered = query.lower()
    said = [
        value
        for value in values
        if isinstance(value, str) and re.search(rf"(?<!\w){re.escape(value.lower())}(?!\w)", lowered)
    ]
    if len(said) != 1:
        return None
    if said[0] in quoted:
        quoted.remove(said[0])
    return said[0]


def _fill_numbers(names: list[str], properties: Mapping[str, Any], stated: Stated, found: Extracted) -> None:
    """Numbers in the order of the parameters, where there are as many of both."""
    wanted = [name for name in names if _mapping(properties[name]).get("type") in ("number", "integer")]
    if wanted and len(wanted) == len(stated.numbers):
        found.params.update(zip(wanted, stated.numbers, strict=True))
        stated.numbers.clear()


def _is_path(name: str, schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "string" and "enum" not in schema and bool(_PATH_NAME.search(name))


def _fill_paths(
    names: list[str], properties: Mapping[str, Any], stated: Stated, around: Surroundings, found: Extracted
) -> None:
    """Paths in the order of the parameters; one that is not said may be what the client has open."""
    wanted = [name for name in names if _is_path(name, _mapping(properties[name]))]
    lists = [name for name in names if _is_list_of_texts(_mapping(properties[name])) and _PATH_NAME.search(name)]
    given = stated.paths or (stated.quoted if len(stated.quoted) == len(wanted) else [])
    if wanted and len(given) == len(wanted):
        found.params.update(zip(wanted, map(path_of, given), strict=True))
        given.clear()
    elif len(wanted) == 1 and not given and not stated.quoted:
        name = wanted[0]
        opened = around.directory if _DIRECTORY.search(name) else around.document or around.directory
        if opened:
            found.params[name] = opened
    elif len(lists) == 1 and not wanted and given:
        found.params[lists[0]] = list(map(path_of, given))
        given.clear()


def _is_list_of_texts(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "array" and _mapping(schema.get("items")).get("type") == "string"


def _fill_texts(
    names: list[str], properties: Mapping[str, Any], stated: Stated, around: Surroundings, found: Extracted
) -> None:
    """Quoted texts in the order of the parameters; the one that is left may be the selection."""
    open_names = [name for name in names if name not in found.params]
    wanted = [
        name
        for name in open_names
        if _mapping(properties[name]).get("type") == "string"
        and "enum" not in _mapping(properties[name])
        and not _is_path(name, _mapping(properties[name]))
    ]
    lists = [name for name in open_names if _is_list_of_texts(_mapping(properties[name]))]
    if wanted and len(stated.quoted) == len(wanted):
        found.params.update(zip(wanted, stated.quoted, strict=True))
        stated.quoted.clear()
    elif len(wanted) == 1 and not stated.quoted and around.selection:
        found.params[wanted[0]] = around.selection
    elif len(lists) == 1 and not wanted and stated.quoted:
        found.params[lists[0]] = list(stated.quoted)
        stated.quoted.clear()
