"""What pages show of the gateway beside its rows: what a tool list costs, how calls spent their time, open sessions."""

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q, QuerySet

from mcpbridge.gateway import differences
from mcpbridge.gateway.sessions import pool
from mcpbridge.models import Action, Backend, ChildProcess, ToolCall

CHARACTERS_A_TOKEN = 4
MOST_KEPT = 20_000
HUES = 6

_tokens: OrderedDict[str, int] = OrderedDict()


def tokens_of(action: Action) -> int:
    """What one tool costs a client that lists it: a quarter of the characters of its entry in the MCP listing."""
    known = _tokens.get(action.fingerprint)
    if known is None:
        entry = {name: value for name, value in differences.approved(action).items() if value}
        known = len(json.dumps(entry, ensure_ascii=False, separators=(",", ":"))) // CHARACTERS_A_TOKEN
        _tokens[action.fingerprint] = known
        if len(_tokens) > MOST_KEPT:
            _tokens.popitem(last=False)
    return known


def token_costs() -> dict[int, int]:
    """Tokens of each backend's whole tool list, by its primary key. Two queries at most."""
    listed = list(Action.objects.filter(is_gone=False).values_list("backend_id", "pk", "fingerprint"))
    unknown = [pk for _, pk, fingerprint in listed if fingerprint not in _tokens]
    fresh = {row.pk: tokens_of(row) for row in Action.objects.filter(pk__in=unknown[:5000])} if unknown else {}
    costs: dict[int, int] = {}
    for backend, pk, fingerprint in listed:
        costs[backend] = costs.get(backend, 0) + fresh.get(pk, _tokens.get(fingerprint, 0))
    return costs


@dataclass(frozen=True)
class Shown:
    """A backend with what the list of them shows."""

    row: Backend
    tools: int
    held: int
    tokens: int
    sessions: int
    breaker: str
    children: int


def counted(rows: QuerySet[Backend]) -> QuerySet[Backend]:
    here = Q(actions__is_gone=False)
    return rows.annotate(
        tools=Count("actions", here), held=Count("actions", here & Q(actions__held__isnull=False))
    ).order_by("backend_id")


def shown(rows: Iterable[Any]) -> list[Shown]:
    """`rows` from `counted`. Sessions and breakers are those of this server process, children of all."""
    costs = token_costs()
    children = dict(ChildProcess.objects.values_list("backend").annotate(Count("pk")).order_by())
    return [
        Shown(
            row,
            row.tools,
            row.held,
            costs.get(row.pk, 0),
            _sessions(row.backend_id),
            pool.breaker_state(row.backend_id),
            children.get(row.pk, 0),
        )
        for row in rows
    ]


def _sessions(backend: str) -> int:
    try:
        return pool.open_sessions(backend)
    except RuntimeError:  # the loop opened one while this thread was counting
        return 0


@dataclass(frozen=True)
class Piece:
    """One step of a call, as a part of a bar 100 wide."""

    name: str
    ms: float
    x: float
    width: float
    hue: int


def timeline(call: ToolCall) -> list[Piece]:
    """The steps of a call one after the other, and what none of them took."""
    steps = [(str(name), float(ms)) for name, ms in call.spans]
    inside = sum(ms for _, ms in steps)
    total = max(call.duration_ms, inside, 0.001)
    if total - inside > 0.01 * total:
        steps.append(("the rest", total - inside))
    names = list(dict.fromkeys(name for name, _ in steps))
    pieces, x = [], 0.0
    for name, ms in steps:
        width = 100 * ms / total
        hue = 0 if name == "the rest" else 1 + names.index(name) % HUES
        pieces.append(Piece(name, round(ms, 1), round(x, 2), round(width, 2), hue))
        x += width
    return pieces


def with_timelines(calls: list[ToolCall]) -> list[ToolCall]:
    for call in calls:
        if call.spans:
            call.timeline = timeline(call)  # type: ignore[attr-defined]  # for the template alone
    return calls


@dataclass(frozen=True)
class Input:
    """One parameter of an action as a form shows it. `kind`: text, number, choice, yes."""

    name: str
    kind: str
    about: str
    is_required: bool
    choices: tuple[str, ...] = ()
    value: str = ""


def inputs(schema: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[list[Input], list[str]]:
    """The simple parameters as inputs, and the names of those that need JSON."""
    properties, required = schema.get("properties"), schema.get("required")
    wanted = set(required) if isinstance(required, list) else set()
    made: list[Input] = []
    others: list[str] = []
    for name, part in properties.items() if isinstance(properties, Mapping) else ():
        kind, choices = _kind(part)
        if not kind or len(made) == 40:
            others.append(name)
            continue
        about, default = str(part.get("description") or "")[:500], part.get("default")
        value = given.get(name, "" if default is None else json.dumps(default) if kind != "text" else str(default))
        made.append(Input(name, kind, about, name in wanted, choices, str(value)))
    return made, others


def _kind(part: Any) -> tuple[str, tuple[str, ...]]:
    if not isinstance(part, Mapping):
        return "", ()
    kind, choices = part.get("type"), part.get("enum")
    if isinstance(kind, list):
        rest = [one for one in kind if one != "null"]
        kind = rest[0] if len(rest) == 1 else None
    if isinstance(choices, list) and choices and all(isinstance(one, str) for one in choices):
        return "choice", tuple(choices[:200])
    return {"string": "text", "integer": "number", "number": "number", "boolean": "yes"}.get(str(kind), ""), ()
