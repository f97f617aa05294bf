"""What a tool was when it was approved against what it wants to be, line by line."""

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from mcpbridge.gateway import policy
from mcpbridge.models import Action

MAX_LINES = 2000

Line = tuple[str, str]
"""`add`, `drop`, `same` or `head`, and the text."""


def approved(action: Action) -> dict[str, Any]:
    """The approved definition, as its backend would list it."""
    return {
        "name": action.name,
        "title": action.title,
        "description": action.description,
        "annotations": action.annotations,
        "inputSchema": action.input_schema,
        "outputSchema": action.output_schema,
    }


def lines(action: Action) -> list[Line]:
    """How a held action differs: its effect first, then its words and schemas; empty where nothing is held."""
    if action.held is None:
        return []
    found: list[Line] = []
    for line in _texts(action):
        if len(found) == MAX_LINES:
            found.append(("head", f"… more than {MAX_LINES} lines differ"))
            break
        found.append(line)
    return found


def _texts(action: Action) -> Iterator[Line]:
    was, wants = approved(action), action.held or {}
    before, after = _classified(was), _classified(wants)
    for title, old, new in (
        ("intent and effect", before, after),
        ("title", str(was.get("title") or ""), str(wants.get("title") or "")),
        ("description", str(was.get("description") or ""), str(wants.get("description") or "")),
        ("annotations", _json(was.get("annotations")), _json(wants.get("annotations"))),
        ("parameters", _json(was.get("inputSchema")), _json(wants.get("inputSchema"))),
        ("result", _json(was.get("outputSchema")), _json(wants.get("outputSchema"))),
    ):
        if old != new:
            yield "head", title
            yield from _compared(old, new)


def _compared(old: str, new: str) -> Iterator[Line]:
    """Lines that differ with two around them. By opcodes: a line of a tool's own must not pass for a mark of ours."""
    was, wants = old.splitlines()[:MAX_LINES], new.splitlines()[:MAX_LINES]
    for number, group in enumerate(difflib.SequenceMatcher(None, was, wants).get_grouped_opcodes(2)):
        if number:
            yield "same", "…"
        for tag, first, last, start, end in group:
            if tag == "equal":
                yield from (("same", line) for line in was[first:last])
                continue
            yield from (("drop", line) for line in was[first:last])
            yield from (("add", line) for line in wants[start:end])


def _classified(definition: Mapping[str, Any]) -> str:
    annotations = definition.get("annotations")
    intent, effect = policy.classify(annotations if isinstance(annotations, Mapping) else {})
    return f"{intent.value} {effect.value}"


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) if value else ""


def as_text(action: Action) -> str:
    """The same as one text, with `+`, `-` and spaces before the lines."""
    marks = {"add": "+", "drop": "-", "same": " ", "head": "@@ "}
    return "\n".join(f"{marks[kind]}{text}" for kind, text in lines(action))
