"""Backends from files other clients keep: `.mcp.json`, VS Code's `mcp.json`, `mcp-agentify.json`, agentify's options.

First a preview, entry by entry; then the same again that writes. A bad entry is named and leaves the others alone;
what is registered already and the same is left as it is, so that an import may be repeated.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from devflow.actors import Actor
from devflow.errors import DevFlowError, ErrorCode, invalid
from mcpbridge.gateway import backends, checking
from mcpbridge.models import Backend

MAX_CHARACTERS = 1_000_000
MAX_ENTRIES = 200

_TRANSPORTS = {
    **dict.fromkeys(("http", "streamable-http", "streamable_http", "streamableHttp"), "http"),
    **{name: name for name in ("stdio", "sse", "agent_cli")},
}
_HERE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-[^}]*)?\}")
_TAKEN = ("command", "args", "env", "url", "headers")
_PASSED_OVER = frozenset({"type", "transport", "id", "name", "displayName", "display_name", "disabled", "enabled"})


@dataclass(frozen=True)
class Entry:
    """What came, or would come, of one entry. `what`: create, change, same or skip; `why` it is skipped."""

    id: str
    what: str
    changes: list[str] = field(default_factory=list)
    why: str = ""
    warnings: list[str] = field(default_factory=list)


def parsed(text: str) -> dict[str, Any]:
    """The JSON object in a file, comments of VS Code's kind taken out. Raises `invalid_input`."""
    if len(text) > MAX_CHARACTERS:
        raise invalid(f"The file has more than {MAX_CHARACTERS:,} characters.", file="too large")
    for candidate in (text, _without_comments(text)):
        try:
            found = json.loads(candidate)
        except (ValueError, RecursionError) as exc:
            fault = str(exc)
            continue
        if isinstance(found, dict):
            return found
        fault = "it is no object"
        break
    raise invalid(f"The file is no JSON object: {fault}.", file="a JSON object such as .mcp.json")


_TEXT = r'("(?:[^"\\\n]|\\.)*")'


def _without_comments(text: str) -> str:
    """Without // and /* */ outside of texts, and commas before a closing bracket."""
    text = re.sub(rf"{_TEXT}|//[^\n]*|/\*.*?\*/", lambda match: match[1] or "", text, flags=re.DOTALL)
    return re.sub(rf"{_TEXT}|,(\s*[}}\]])", lambda match: match[1] or match[2], text)


def entries_in(document: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The entries of a file by id, whatever kind of file it is. Raises `invalid_input` where there are none."""
    options = document.get("initializationOptions")
    within = options if isinstance(options, Mapping) else document
    vscode = within.get("mcp")
    found: list[tuple[str, Any]] = []
    for holder in (within, vscode if isinstance(vscode, Mapping) else {}):
        for name in ("mcpServers", "servers", "context_servers"):
            if isinstance(holder.get(name), Mapping):
                found += holder[name].items()
    if isinstance(listed := within.get("backends"), list):
        found += [(str(item.get("id", "")) if isinstance(item, Mapping) else "", item) for item in listed]
    elif isinstance(listed, Mapping):
        found += listed.items()
    if not found:
        raise invalid(
            "The file names no servers.", file="an object `mcpServers` or `servers`, or a list `backends` with ids"
        )
    if len(found) > MAX_ENTRIES:
        raise invalid(f"The file names more than {MAX_ENTRIES} servers.", file=f"at most {MAX_ENTRIES}")
    return found


def settings_in(identifier: str, entry: Any) -> dict[str, Any]:
    """One entry as settings of a backend. Raises `invalid_input`."""
    if not isinstance(entry, Mapping):
        raise invalid("It is no object.")
    if unknown := sorted(str(name)[:50] for name in entry.keys() - {*_TAKEN, *_PASSED_OVER, *_OTHERS}):
        raise invalid(f"It has a setting DevFlow does not know: {', '.join(unknown[:5])}.")
    kind = entry.get("type", entry.get("transport", "http" if entry.get("url") else "stdio"))
    transport = _TRANSPORTS.get(kind) if isinstance(kind, str) else None
    if transport is None:
        raise invalid(f"Its type {str(kind)[:50]} is none of stdio, http and sse.")
    made: dict[str, Any] = {"id": identifier, "transport": transport}
    for name in _TAKEN:
        if entry.get(name) is not None:
            made[name] = _translated(entry[name])
    if isinstance(title := entry.get("displayName", entry.get("display_name", entry.get("name"))), str):
        made["display_name"] = title
    if entry.get("disabled") is True or entry.get("enabled") is False:
        made["is_enabled"] = False
    return made


_OTHERS = frozenset(
    {"description", "autoApprove", "alwaysAllow", "timeout", "gallery", "version", "tools", "cwd", "dev", "envFile"}
)
"""What other clients keep beside a server and has no meaning here."""


def _translated(value: Any) -> Any:
    """`${env:NAME}` and `${NAME:-default}` of other clients as our `${NAME}`."""
    if isinstance(value, str):
        return _HERE.sub(r"${\1}", value)
    if isinstance(value, Mapping):
        return {name: _translated(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_translated(item) for item in value]
    return value


def bring_in(text: str, *, by: Actor | None) -> list[Entry]:
    """Import a file, or say what would come of it where `by` is None. Raises `invalid_input` for a file without any."""
    return list(_each(entries_in(parsed(text)), by))


def _each(entries: list[tuple[str, Any]], by: Actor | None) -> Iterator[Entry]:
    known = {row.backend_id: row for row in Backend.objects.all()}
    seen: set[str] = set()
    for identifier, entry in entries:
        shown = identifier[:64] or "(no id)"
        try:
            if identifier in seen:
                raise invalid("The file names it twice; the first one counts.")
            seen.add(identifier)
            yield _one(settings_in(identifier, entry), known.get(identifier), by)
        except DevFlowError as exc:
            reasons = exc.details.items() if exc.code is ErrorCode.INVALID_INPUT else ()
            why = "; ".join(f"{name}: {reason}" for name, reason in reasons) or exc.message
            yield Entry(shown, "skip", why=why)


def _one(given: dict[str, Any], row: Backend | None, by: Actor | None) -> Entry:
    if row is None:
        settings = checking.checked(given)
        if by is not None:
            given.pop("id")
            backends.create(by=by, id=settings.id, **given)
        return Entry(settings.id, "create", warnings=checking.warnings_of(settings))
    if row.transport != given["transport"]:  # what only the old transport has goes with it
        given = {"command": "", "args": [], "url": "", "inherit_env": [], **given}
    for kind in backends.SECRETS:
        if isinstance(values := given.get(kind, {}), Mapping):
            given[kind] = dict.fromkeys(backends.secret_names(row, kind)) | dict(values)
    before = backends.settings_of(row)
    settings = checking.checked(backends.merged(row, given))
    after = settings.model_dump(mode="json")
    changes = sorted(name for name, value in after.items() if before[name] != value)
    if not changes:
        return Entry(row.backend_id, "same")
    if by is not None:
        backends.change(row.backend_id, by=by, **{name: value for name, value in given.items() if name != "id"})
    return Entry(row.backend_id, "change", changes, warnings=checking.warnings_of(settings))
