"""The only writers of backends: register, change, remove; edit and approve their actions.

Backends belong to no project, so no project's activity records this: each change is a row in the log of calls, in its
own transaction, with who made it and which settings (never their values). Who may do it is decided by the doors.
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, transaction

from devflow.actors import Actor
from devflow.errors import conflict, invalid, not_found
from devflow.events import EVERY_PROJECT, LiveEvent, bus
from devflow.ports import KeyScope
from devflow.sealing import SealError, seal, unseal
from mcpbridge import audit
from mcpbridge.gateway import checking, discovery
from mcpbridge.gateway.catalog import SEALED, backend_spec, catalog
from mcpbridge.gateway.checking import ActionSettings, Settings
from mcpbridge.gateway.specs import fingerprint_of
from mcpbridge.models import Action, Backend, Transport
from mcpbridge.subscriptions import TOOLS_CHANGED
from mcpbridge.tooling import Caller, Effect

MOST_BACKENDS = 500
SECRETS = {"env": "sealed_env", "headers": "sealed_headers"}

_PLAIN = tuple(name for name in Settings.model_fields if name not in (*SECRETS, "id"))
_EDITABLE = tuple(ActionSettings.model_fields)


@dataclass(frozen=True)
class Kept:
    """A backend as it was written, and what about it is worth a second look."""

    backend: Backend
    warnings: list[str]


def find(backend_id: str) -> Backend:
    """Raises `not_found`."""
    row = Backend.objects.filter(backend_id=backend_id).first()
    if row is None:
        raise not_found("Backend", backend_id[:64], suggestion="GET /api/v1/backends/ and the gateway page list them.")
    return row


def secrets_of(row: Backend, kind: str) -> dict[str, str]:
    """`env` or `headers` in the clear: for comparing and merging here, never to be shown. Raises `SealError`."""
    sealed = getattr(row, SECRETS[kind])
    values: dict[str, str] = json.loads(unseal(sealed, purpose=SEALED)) if sealed else {}
    return values


def secret_names(row: Backend, kind: str) -> list[str]:
    """The names of what is sealed; empty where it was sealed with another secret key of this server."""
    try:
        return sorted(secrets_of(row, kind))
    except SealError:
        return []


def settings_of(row: Backend) -> dict[str, Any]:
    """What a row holds, as `checking.checked` takes it; secrets that cannot be read any more are left out."""
    found: dict[str, Any] = {"id": row.backend_id} | {name: getattr(row, name) for name in _PLAIN}
    for kind in SECRETS:
        try:
            found[kind] = secrets_of(row, kind)
        except SealError:
            found[kind] = {}
    return found


def warnings_of(row: Backend) -> list[str]:
    """What is worth a second look at a backend as it stands."""
    settings = Settings.model_construct(**settings_of(row))
    found = checking.warnings_of(settings)
    if problem := backend_spec(row).problem:
        found.append(f"It cannot be reached: {problem}")
    return found


def merged(row: Backend, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a row with what is given. In `env` and `headers` a name that is given None is dropped, others
    are kept."""
    known = settings_of(row)
    for kind in SECRETS:
        if isinstance(changes := given.get(kind), Mapping):
            both = known[kind] | changes
            given = {**given, kind: {name: value for name, value in both.items() if value is not None}}
    return known | dict(given)


@transaction.atomic
def create(*, by: Actor, **given: Any) -> Kept:
    """Register a backend; it is asked for its tools soon.

    Raises `invalid_input` naming each field that is refused, `conflict` where the id is taken.
    """
    settings = checking.checked(given)
    _refuse_wrapping(settings)
    if Backend.objects.count() >= MOST_BACKENDS:
        raise conflict(f"There are {MOST_BACKENDS} backends already.", suggestion="Remove one that is not needed.")
    row = Backend(backend_id=settings.id)
    _fill(row, settings, given)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        raise conflict(
            f"There is a backend {settings.id} already.", suggestion="Change that one, or choose another id."
        ) from None
    _done("backend.create", row.backend_id, by, {"settings": sorted(given)})
    return Kept(row, checking.warnings_of(settings))


@transaction.atomic
def change(backend_id: str, *, by: Actor, **given: Any) -> Kept:
    """Change some settings; sessions that were opened with the old ones end. The same again changes nothing.

    In `env` and `headers` names are added or replaced; None drops one. Raises `not_found`, `invalid_input`, as
    `create`.
    """
    row = _locked(backend_id)
    if given.get("id", row.backend_id) != row.backend_id:
        raise invalid(
            "A backend keeps its id: register it under the new one and remove this one.", id="cannot be changed"
        )
    settings = checking.checked(merged(row, given))
    _refuse_wrapping(settings)
    before, sealed = settings_of(row), (row.sealed_env, row.sealed_headers)
    _fill(row, settings, given)
    changed = sorted(name for name, value in settings_of(row).items() if before[name] != value)
    if changed or sealed != (row.sealed_env, row.sealed_headers):
        if changed not in (["is_enabled"], ["display_name"]):
            row.status, row.status_detail = Backend.Status.NEW, ""
        row.save()
        _done("backend.change", row.backend_id, by, {"settings": changed})
    return Kept(row, checking.warnings_of(settings))


@transaction.atomic
def remove(backend_id: str, *, by: Actor) -> None:
    """Remove a backend with its actions and overrides. Raises `not_found`."""
    row = _locked(backend_id)
    row.delete()
    _done("backend.remove", backend_id, by, {})


def find_action(backend_id: str, name: str) -> Action:
    """Raises `not_found`."""
    row = Action.objects.select_related("backend").filter(backend__backend_id=backend_id, name=name).first()
    if row is None:
        raise not_found("Action", f"{backend_id[:64]}.{name[:128]}", suggestion="Its backend's page lists what it has.")
    return row


@transaction.atomic
def change_action(backend_id: str, name: str, *, by: Actor, **given: Any) -> Action:
    """Edit what is said of an action over its backend's own words; an empty override takes them back.

    Raises `not_found`, `invalid_input` naming each field that is refused.
    """
    find_action(backend_id, name)
    row = (
        Action.objects.select_for_update(of=("self",))
        .select_related("backend")
        .get(backend__backend_id=backend_id, name=name)
    )
    known = {field_name: getattr(row, field_name) for field_name in _EDITABLE}
    settings = checking.checked_action(known | dict(given)).model_dump(mode="json")
    changed = {field_name: value for field_name, value in settings.items() if known[field_name] != value}
    if changed:
        for field_name, value in changed.items():
            setattr(row, field_name, value)
        row.save(update_fields=[*changed, "changed_at"])
        _done("backend.action", backend_id, by, {"action": name, **changed})
    return row


@transaction.atomic
def approve(backend_id: str, name: str, *, by: Actor, fingerprint: str | None = None) -> Action:
    """Say yes to what a held action wants to be. Approving what is not held changes nothing.

    `fingerprint`: that of the definition somebody looked at; `conflict` where it has changed since. Raises
    `not_found`.
    """
    row = find_action(backend_id, name)
    if row.held is None:
        return row
    if fingerprint is not None and fingerprint != fingerprint_of(row.held):
        raise conflict(f"{row} changed again since you looked at it.", suggestion="Look at the new difference.")
    discovery.approve(row)
    _done("backend.approve", backend_id, by, {"action": name})
    return find_action(backend_id, name)


def _locked(backend_id: str) -> Backend:
    find(backend_id)
    row = Backend.objects.select_for_update().filter(backend_id=backend_id).first()
    if row is None:  # removed since
        raise not_found("Backend", backend_id[:64])
    return row


def _refuse_wrapping(settings: Settings) -> None:
    """Raises `invalid_input` where the backend an agent is to be given is not there, or is an agent itself."""
    if settings.wraps:
        wrapped = Backend.objects.filter(backend_id=settings.wraps).exclude(transport=Transport.AGENT_CLI)
        if not wrapped.exists():
            raise invalid(
                f"wraps: there is no backend {settings.wraps} with a server of its own.",
                wraps="the id of a stdio, http or sse backend",
            )


def _fill(row: Backend, settings: Settings, given: Mapping[str, Any]) -> None:
    """Write settings into a row. Secrets only where they are given: they may be unreadable and must stay then."""
    values = settings.model_dump(mode="json")
    for name in _PLAIN:
        setattr(row, name, values[name])
    for kind, column in SECRETS.items():
        if kind in given and values[kind] != _readable(row, kind):
            setattr(row, column, seal(json.dumps(values[kind]), purpose=SEALED) if values[kind] else "")


def _readable(row: Backend, kind: str) -> dict[str, str] | None:
    try:
        return secrets_of(row, kind)
    except SealError:
        return None


def _done(name: str, backend_id: str, by: Actor, arguments: dict[str, Any]) -> None:
    """Record a change, and tell every server process and page once it is committed."""
    caller = Caller(
        scope=KeyScope(key_id=0, user_id=by.user_id),
        key_name=by.name[:100],
        scopes=frozenset(),
        agent_name=by.name[:120] if by.is_agent else "",
        transport=(by.tool or by.kind)[:16],
        trace_id=uuid.uuid4().hex,
        facts={"backend": backend_id, "effect": Effect.MUTATING.value},
    )
    audit.note_change(name, caller, {"backend": backend_id, **arguments})
    for kind in (discovery.BACKEND_CHANGED, TOOLS_CHANGED):
        bus.publish(LiveEvent(kind, EVERY_PROJECT, backend_id))
    transaction.on_commit(catalog.forget)
