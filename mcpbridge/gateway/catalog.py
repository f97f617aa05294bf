"""Which backends and actions there are: rows read once, kept as frozen specs, looked at again every two seconds."""

import asyncio
import difflib
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from django.db.models import Count, Max

from devflow.errors import DevFlowError, ErrorCode, invalid
from devflow.sealing import SealError, unseal
from mcpbridge.gateway.specs import ActionSpec, BackendSpec
from mcpbridge.models import Action, Backend
from mcpbridge.threads import run_blocking
from mcpbridge.tooling import Effect, Intent

SEALED = "backend"
"""The purpose backends' secrets are sealed for."""
LOOK_SECONDS = 2.0


@dataclass(frozen=True)
class Snapshot:
    """Backends by id and their actions by (backend, name), as they were at one moment."""

    backends: Mapping[str, BackendSpec] = field(default_factory=dict)
    actions: Mapping[tuple[str, str], ActionSpec] = field(default_factory=dict)
    stamp: object = None

    def of(self, backend: str) -> list[ActionSpec]:
        return [action for (owner, _), action in self.actions.items() if owner == backend]

    def backend(self, identifier: str) -> BackendSpec:
        """Raises `not_found`."""
        found = self.backends.get(identifier)
        if found is None:
            near = difflib.get_close_matches(identifier[:64], self.backends, n=3)
            hint = f"Did you mean {', '.join(near)}?" if near else "The gateway page and /api/v1/backends list them."
            raise DevFlowError(ErrorCode.NOT_FOUND, f"There is no backend {identifier[:64]}.", suggestion=hint)
        return found

    def resolve(self, name: str) -> ActionSpec:
        """The action called `backend.name`, or `name` (or an alias) where one backend alone has it.

        Raises `not_found` with near misses, `invalid_input` where several backends have it.
        """
        backend, dot, rest = name.partition(".")
        if dot and (action := self.actions.get((backend, rest))) is not None:
            return action
        backend, separator, rest = name.partition("__")
        if separator and (action := self.actions.get((backend, rest))) is not None:
            return action
        found = [action for action in self.actions.values() if name == action.name]
        found = found or [
            action
            for action in self.actions.values()
            if name in action.aliases or name in (f"{action.backend}.{alias}" for alias in action.aliases)
        ]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(sorted(action.full_name for action in found))
            raise invalid(f"Several backends have the action {name}: {names}.", action=f"one of {names}")
        near = difflib.get_close_matches(name[:200], [action.full_name for action in self.actions.values()], n=3)
        near = near or [action.full_name for action in self.actions.values() if rest and action.name == rest][:3]
        hint = f"Did you mean {', '.join(near)}?" if near else "list_gateway_actions shows what there is."
        raise DevFlowError(ErrorCode.NOT_FOUND, f"There is no action {name[:200]}.", suggestion=hint)


def backend_spec(row: Backend) -> BackendSpec:
    problem = ""
    env: dict[str, str] = {}
    headers: dict[str, str] = {}
    try:
        env = json.loads(unseal(row.sealed_env, purpose=SEALED)) if row.sealed_env else {}
        headers = json.loads(unseal(row.sealed_headers, purpose=SEALED)) if row.sealed_headers else {}
    except SealError:
        problem = "its secrets were stored with another secret key of this server; enter them again."
    return BackendSpec(
        id=row.backend_id,
        transport=row.transport,
        pk=row.pk,
        display_name=row.display_name,
        command=row.command,
        args=tuple(row.args),
        env=env,
        inherit_env=tuple(row.inherit_env),
        url=row.url,
        wraps=row.wraps,
        headers=headers,
        version=row.version,
        isolation=row.isolation,
        timeouts=row.timeouts,
        concurrency=row.concurrency,
        memory_mb=row.memory_mb,
        warm_spares=row.warm_spares,
        sandbox=row.sandbox,
        may_ask=row.may_ask,
        allowed_roots=tuple(row.allowed_roots),
        activation=row.activation,
        is_enabled=row.is_enabled,
        status=row.status,
        status_detail=row.status_detail,
        problem=problem,
    )


def action_spec(row: Action, backend_id: str) -> ActionSpec:
    return ActionSpec(
        backend=backend_id,
        name=row.name,
        title=row.title,
        description=row.description,
        input_schema=row.input_schema,
        output_schema=row.output_schema,
        annotations=row.annotations,
        fingerprint=row.fingerprint,
        intent=Intent(row.intent_override or row.intent),
        effect=Effect(row.effect_override or row.effect),
        artifact=row.artifact,
        aliases=tuple(row.aliases),
        lookup=row.lookup,
        references=row.references,
        is_federated=row.is_federated,
        is_enabled=row.is_enabled,
        is_held=row.held is not None,
        problem=row.problem,
    )


def _stamp() -> object:
    """What changes whenever a backend or an action does: cheap to ask."""
    backends = Backend.objects.aggregate(Max("changed_at"), Count("pk"))
    actions = Action.objects.aggregate(Max("changed_at"), Count("pk"))
    return (*backends.values(), *actions.values())


def load(known: Snapshot | None = None) -> Snapshot:
    """Read the rows (blocks), unless nothing changed since `known`."""
    stamp = _stamp()
    if known is not None and known.stamp == stamp:
        return known
    rows = {row.pk: row for row in Backend.objects.filter(is_enabled=True)}
    backends = {row.backend_id: backend_spec(row) for row in rows.values()}
    actions = (
        action_spec(row, rows[row.backend_id].backend_id)
        for row in Action.objects.filter(is_gone=False, backend_id__in=rows)
    )
    return Snapshot(backends, {(action.backend, action.name): action for action in actions}, stamp)


class Catalog:
    """The snapshot this process works with."""

    def __init__(self) -> None:
        self._known = Snapshot()
        self._until = 0.0
        self._asked = 0
        self._loading: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def known(self) -> Snapshot:
        """The last snapshot; never blocks."""
        return self._known

    async def current(self) -> Snapshot:
        """A snapshot at most two seconds old."""
        if self._until > time.monotonic():
            return self._known
        loop = asyncio.get_running_loop()
        if self._loading is None or self._loop is not loop:
            self._loading, self._loop = asyncio.Lock(), loop
        async with self._loading:
            if self._until <= time.monotonic():
                asked = self._asked
                self._known = await run_blocking(load, self._known)
                if asked == self._asked:  # else something changed while it was read
                    self._until = time.monotonic() + LOOK_SECONDS
        return self._known

    def forget(self) -> None:
        """Look at the rows before the next call."""
        self._asked += 1
        self._until = 0.0


catalog = Catalog()


def usable(actions: Iterable[ActionSpec]) -> list[ActionSpec]:
    return [action for action in actions if action.is_enabled and not action.is_held and not action.problem]


def refuse_unusable(action: ActionSpec) -> None:
    """Raises `forbidden` for an action that is switched off, held back, or cannot be checked."""
    if not action.is_enabled:
        raise DevFlowError(ErrorCode.FORBIDDEN, f"{action.full_name} is switched off.")
    if action.is_held:
        raise DevFlowError(
            ErrorCode.FORBIDDEN,
            f"{action.full_name} is held back: it changed since it was approved.",
            suggestion="A person has to look at the change on the gateway page and approve it.",
        )
    if action.problem:
        raise DevFlowError(ErrorCode.FORBIDDEN, f"{action.full_name} cannot be called. {action.problem}")
