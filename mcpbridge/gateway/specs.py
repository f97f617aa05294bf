"""A backend and its actions as the gateway works with them: frozen, without the database.

They are made from rows (`catalog`), or from what an orchestrator's client sent for its session alone.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import jsonschema_rs

from devflow import config
from devflow.errors import DevFlowError, ErrorCode, forbidden, invalid
from mcpbridge.tooling import Effect, Intent

INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""What every child gets of this server's environment; all else must be named."""

SHORTEST_SECRET = 6
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class BackendSpec:
    """How a backend is reached. `pk` is None for one that no row describes; secrets are in the clear here only."""

    id: str
    transport: str
    pk: int | None = None
    display_name: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    inherit_env: tuple[str, ...] = ()
    url: str = ""
    wraps: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    version: str = ""
    isolation: str = "agent"
    timeouts: Mapping[str, int] = field(default_factory=dict)
    concurrency: int = 8
    memory_mb: int = 4096
    warm_spares: int = 0
    sandbox: bool = False
    may_ask: bool = True
    allowed_roots: tuple[str, ...] = ()
    activation: Mapping[str, Any] | None = None
    is_enabled: bool = True
    status: str = "new"
    status_detail: str = ""
    problem: str = ""
    """Why it cannot be reached at all, such as secrets of another key."""

    @property
    def is_process(self) -> bool:
        return self.transport in ("stdio", "agent_cli")

    @cached_property
    def config_hash(self) -> str:
        """Changes with whatever an open session depends on."""
        parts = [
            *(
                self.transport,
                self.command,
                list(self.args),
                dict(self.env),
                list(self.inherit_env),
                self.url,
                self.wraps,
            ),
            *(dict(self.headers), self.memory_mb, self.sandbox, self.activation and dict(self.activation)),
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def environment(self) -> dict[str, str]:
        """The child's whole environment. Raises `unavailable` naming a variable that is not set here."""
        names = (*INHERITED, *self.inherit_env)
        given = {name: os.environ[name] for name in names if name in os.environ and not name.startswith("DEVFLOW_")}
        return given | {name: self._filled(value) for name, value in self.env.items()}

    @property
    def secrets(self) -> list[str]:
        """Values it is given that no error may repeat, the longest first; the second word of a header by itself too."""
        found: set[str] = {os.environ[name] for name in self.inherit_env if name in os.environ}
        for value in (*self.env.values(), *self.headers.values()):
            with suppress(DevFlowError):  # a variable that is not set was given to nobody
                filled = self._filled(value)
                found |= {filled, filled.partition(" ")[2]}
        long = {value.strip() for value in found if len(value.strip()) >= SHORTEST_SECRET}
        return sorted(long, key=len, reverse=True)

    def filled_headers(self) -> dict[str, str]:
        return {name: self._filled(value) for name, value in self.headers.items()}

    def _filled(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            name = match[1]
            if name.startswith("DEVFLOW_") or name not in os.environ:
                raise DevFlowError(
                    ErrorCode.UNAVAILABLE,
                    f"The backend {self.id} needs the environment variable {name}, which this server does not have.",
                    suggestion="Set it where the server is started, or store the value itself.",
                )
            return os.environ[name]

        return _VARIABLE.sub(value, text)

    def root(self, project_root: str | None) -> str | None:
        """The directory a call works in, resolved. Raises `invalid_input` or `forbidden` outside the allowed roots."""
        if project_root is None:
            return None
        try:
            path = Path(project_root).resolve(strict=True)
        except (OSError, ValueError):
            path = None
        if path is None or not path.is_dir() or not Path(project_root).is_absolute():
            raise invalid(
                "The project root is no directory of the server.", **{"context.project_root": "an absolute path"}
            )
        allowed = [Path(root).resolve() for root in self.allowed_roots or config.current().allowed_roots]
        if not any(path.is_relative_to(root) for root in allowed):
            raise forbidden(
                "The project root lies outside the directories this backend may work in.",
                suggestion="Ask an administrator to allow it (the backend's allowed roots, or DEVFLOW_ALLOWED_ROOTS), "
                "or leave context.project_root (X-Project-Root) out.",
            )
        return str(path)


def struck_out(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "…")
    return text


@dataclass(frozen=True)
class ActionSpec:
    """One action of a backend, with what the policy needs to know."""

    backend: str
    name: str
    title: str = ""
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=dict)
    output_schema: Mapping[str, Any] | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str = ""
    intent: Intent = Intent.MODIFY
    effect: Effect = Effect.MUTATING
    artifact: str = "JSON"
    aliases: tuple[str, ...] = ()
    lookup: Mapping[str, Any] | None = None
    references: Mapping[str, Any] | None = None
    is_federated: bool = False
    is_enabled: bool = True
    is_held: bool = False
    problem: str = ""

    @property
    def full_name(self) -> str:
        return f"{self.backend}.{self.name}"

    @cached_property
    def _validator(self) -> Any:
        return validator_of(self.input_schema)

    def check(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Raises `invalid_input` naming each parameter the schema refuses."""
        if reasons := misfits(self._validator, params, "params"):
            first, reason = next(iter(reasons.items()))
            raise invalid(f"{self.full_name}: {first}: {reason}", **reasons)
        return dict(params)


_PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=1000)
"""A pattern that looks around may walk a long text again from each of its characters: it is given up early."""
MOST_REASONS = 10
MOST_EXPLAINED = 6
"""Levels of a value up to which each misfit is looked for: schemas that refer to themselves double it with each."""


def validator_of(schema: Mapping[str, Any]) -> Any:
    """Raises `ValueError` or jsonschema_rs's `ValidationError` for a schema that is none."""
    return jsonschema_rs.validator_for(dict(schema), offline=True, pattern_options=_PATTERNS)


def misfits(validator: Any, given: Mapping[str, Any], whole: str) -> dict[str, str]:
    """Why a value does not fit a schema, by place (`whole`: the value itself); empty where it does."""
    if validator.is_valid(given):
        return {}
    if _depth(given) > MOST_EXPLAINED:
        return {whole: "does not fit the schema"}
    reasons: dict[str, str] = {}
    for error in validator.iter_errors(given):
        where = ".".join(str(part) for part in error.instance_path) or whole
        reasons.setdefault(where, _shortened(error.message))
        if len(reasons) == MOST_REASONS:
            break
    return reasons


def _depth(value: Any) -> int:
    if isinstance(value, Mapping):
        value = list(value.values())
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


def _shortened(message: str) -> str:
    """A refusal quotes the value it refuses, then says why: the end matters."""
    return message if len(message) <= 300 else f"{message[:100]} … {message[-200:]}"


MAX_SCHEMA = 256 * 1024


def schema_fault(schema: Any) -> str:
    """Why a tool's schema cannot be used, empty when it can: too large, no object, a `$ref` elsewhere, not valid."""
    if not isinstance(schema, dict):
        return "Its schema is no object."
    text = json.dumps(schema)
    if len(text) > MAX_SCHEMA:
        return f"Its schema has more than {MAX_SCHEMA} characters."
    if remote := _remote_ref(schema):
        return f"Its schema refers to another place ({remote[:100]}), which is not followed."
    try:
        validator_of(schema)
    except (ValueError, jsonschema_rs.ValidationError) as exc:
        return f"Its schema is not valid: {str(exc)[:300]}"
    return ""


def _remote_ref(schema: Any) -> str:
    if isinstance(schema, dict):
        for key in ("$ref", "$dynamicRef"):
            if isinstance(ref := schema.get(key), str) and not ref.startswith("#"):
                return ref
        schema = list(schema.values())
    if isinstance(schema, list):
        return next((found for item in schema if (found := _remote_ref(item))), "")
    return ""


def fingerprint_of(definition: Mapping[str, Any]) -> str:
    """What a person approved: name, description, schemas and annotations of a tool, as it lists them."""
    seen = {name: definition.get(name) for name in ("name", "title", "description", "inputSchema", "outputSchema")}
    seen["annotations"] = definition.get("annotations") or {}
    return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()
