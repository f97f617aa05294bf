"""Backend tools as tools of DevFlow: chosen ones stand in the main list as `backend__tool`, all answer to that name.

The dispatcher runs them like any other, so the key's rate limit and scopes, the log, metrics and idempotency keys
hold; the backend's result goes out as it came.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from mcp.types import ToolAnnotations
from pydantic import TypeAdapter, ValidationError

from mcpbridge.gateway import calling, large, policy
from mcpbridge.gateway.catalog import Snapshot, catalog, load, usable
from mcpbridge.gateway.faults import ToolFailedError
from mcpbridge.gateway.protocol import GatewayRequest
from mcpbridge.gateway.specs import ActionSpec
from mcpbridge.registry import spelled
from mcpbridge.tooling import Caller, Effect, Tool, WireResult

SECONDS_OVER = 5.0
_UNUSUAL = re.compile(r"[^A-Za-z0-9_.-]")
_ANSWER: TypeAdapter[Any] = TypeAdapter(dict[str, Any])


def name_of(action: ActionSpec) -> str:
    """The tool's name in DevFlow's list, before it is spelled for a client."""
    name = f"{action.backend}__{action.name}"
    plain = _UNUSUAL.sub("_", name)
    return plain if plain == name else _hashed(plain, name)


def _hashed(name: str, source: str) -> str:
    return f"{name}_{hashlib.sha256(source.encode()).hexdigest()[:8]}"


def _spellings(tool: Tool) -> set[str]:
    return {tool.name, spelled(tool.name, "dotted"), spelled(tool.name, "underscore")}


def _version(action: ActionSpec) -> str:
    """Changes with whatever a listing shows of the tool."""
    facts = [action.fingerprint, action.intent, action.effect, action.artifact]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]


def _hints(action: ActionSpec) -> Mapping[str, Any]:
    try:
        ToolAnnotations.model_validate(action.annotations)
    except ValidationError:
        return {}
    return action.annotations


def value_of(wire: Mapping[str, Any]) -> dict[str, Any]:
    """What REST shows of an MCP result."""
    structured = wire.get("structuredContent")
    return structured if isinstance(structured, dict) else {"content": wire.get("content", [])}


def request_for(action: ActionSpec, arguments: Mapping[str, Any]) -> GatewayRequest:
    """The gateway request that calling a tool directly amounts to."""
    fits = policy.DEFAULT_EFFECT[action.intent] == action.effect
    return GatewayRequest(
        intent=action.intent if fits else policy.intent_for(action.effect),
        action=action.full_name[:200],
        effect=action.effect,
        params=dict(arguments),
    )


def tool_of(action: ActionSpec) -> Tool:
    """The action as a tool. It looks the action up again when it is called: a switch or an approval counts at once."""
    backend, name = action.backend, action.name

    async def run(caller: Caller, *, arguments: dict[str, Any]) -> WireResult:
        snapshot = await catalog.current()
        spec = snapshot.backend(backend)
        now = snapshot.actions.get((backend, name)) or snapshot.resolve(f"{backend}.{name}")
        work = calling.admitted(caller, request_for(now, arguments), spec, now)
        try:
            wire, _ = await calling.perform(work)
        except ToolFailedError as exc:
            exc.wire = await large.fitting(caller, exc.wire, has_schema=False)
            raise
        wire = await large.fitting(caller, wire, has_schema=now.output_schema is not None)
        return WireResult(wire, value_of(wire))

    return Tool(
        name=name_of(action),
        title=action.title,
        description=action.description,
        toolset="gateway",
        intent=action.intent,
        effect=action.effect,
        artifact=action.artifact,
        version=_version(action),
        input_schema={"type": "object", **action.input_schema},
        output_schema=action.output_schema,
        check=lambda given: {"arguments": dict(given)},
        output=_ANSWER,
        run=run,
        is_async=True,
        needs_project=False,
        destructive=action.effect is not Effect.READ_ONLY,
        idempotent=bool(action.annotations.get("idempotentHint")),
        deadline=policy.MAX_TIMEOUT_MS / 1000 + SECONDS_OVER,
        hidden=not action.is_federated,
        backend=backend,
        hints=_hints(action),
    )


class Federation:
    """A source of the registry. Unusable tools are found too, so that a call of one hears why it is refused."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._by_name: dict[str, Tool] = {}
        self._of_action: dict[tuple[str, str], Tool] = {}
        self._listed: list[Tool] = []

    def find(self, name: str) -> Tool | None:
        return self._by_name.get(name)

    def all(self) -> Iterable[Tool]:
        return self._listed

    def of(self, backend: str, name: str) -> Tool | None:
        """The tool behind a backend's own name."""
        return self._of_action.get((backend, name))

    async def refresh(self) -> None:
        self.follow(await catalog.current())

    def look(self) -> None:
        """`refresh` for a thread (blocks)."""
        self.follow(load(self._snapshot or catalog.known))

    def follow(self, snapshot: Snapshot) -> None:
        if snapshot is self._snapshot:
            return
        by_name: dict[str, Tool] = {}
        of_action: dict[tuple[str, str], Tool] = {}
        listed: list[Tool] = []
        shown = {(action.backend, action.name) for action in usable(snapshot.actions.values()) if action.is_federated}
        for key, action in sorted(snapshot.actions.items()):
            tool = tool_of(action)
            if not by_name.keys().isdisjoint(_spellings(tool)):  # such as a.b and a_b
                tool = replace(tool, name=_hashed(tool.name, action.full_name))
            of_action[key] = tool
            by_name |= dict.fromkeys(_spellings(tool), tool)
            if key in shown:
                listed.append(tool)
        self._snapshot, self._by_name, self._of_action, self._listed = snapshot, by_name, of_action, listed


federation = Federation()
