"""Who is at the door: API keys to identities, identities and headers to callers.

Keys are looked up by digest and remembered for a few seconds per worker, so that a call costs no query and a
revocation still holds everywhere within `REMEMBER_SECONDS`.
"""

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from django.db import Error as DatabaseError
from django.utils import timezone

from devflow import config
from devflow.errors import DevFlowError, ErrorCode, invalid
from devflow.ports import KeyScope
from mcpbridge.models import ApiKey, key_digest, well_formed
from mcpbridge.threads import run_blocking
from mcpbridge.tooling import TOOLSETS, Caller, Exposed, Scope

REMEMBER_SECONDS = 3.0
REMEMBER_AT_MOST = 10_000
MAX_AGENT_NAME = 100
MAX_TOOLSETS = 200


@dataclass(frozen=True, slots=True)
class Identity:
    """What a live key says of its holder."""

    scope: KeyScope
    name: str
    scopes: frozenset[Scope]
    rate_per_minute: int | None
    toolsets: frozenset[str]
    expose: str
    names: str
    expires_at: datetime | None

    def is_over(self) -> bool:
        return self.expires_at is not None and self.expires_at <= timezone.now()


class KeyRing:
    """Identities by key digest, each remembered for `REMEMBER_SECONDS` (misses too)."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Identity | None]] = {}

    def remembered(self, digest: str) -> tuple[bool, Identity | None]:
        until, identity = self._known.get(digest, (0.0, None))
        return until > time.monotonic(), identity

    def look_up(self, digest: str) -> Identity | None:
        """Ask the database (blocks) and remember the answer. Raises `unavailable` while it is away."""
        try:
            key = ApiKey.objects.live().filter(digest=digest).first()
        except DatabaseError as exc:
            raise DevFlowError(ErrorCode.UNAVAILABLE, "The database is busy or away.", retry_after_ms=1000) from exc
        identity = None
        if key is not None:
            identity = Identity(
                scope=KeyScope(key_id=key.pk, project_id=key.project_id, user_id=key.owner_id),
                name=key.name,
                scopes=frozenset(Scope(scope) for scope in key.scopes),
                rate_per_minute=key.rate_per_minute,
                toolsets=frozenset(key.toolsets),
                expose=key.expose,
                names=key.names,
                expires_at=key.expires_at,
            )
        if len(self._known) >= REMEMBER_AT_MOST:
            self._known.clear()
        self._known[digest] = (time.monotonic() + REMEMBER_SECONDS, identity)
        return identity

    def forget(self) -> None:
        self._known.clear()


keyring = KeyRing()

UNAUTHENTICATED = "A valid API key is needed: send it as X-API-Key or as a Bearer token."
CHALLENGE = 'Bearer realm="devflow"'


def key_in(headers: Mapping[str, str]) -> str:
    """The key a request presents: `X-API-Key`, else `Authorization: Bearer`; header names in lower case."""
    if key := headers.get("x-api-key"):
        return key.strip()
    kind, _, value = headers.get("authorization", "").partition(" ")
    return value.strip() if kind.lower() == "bearer" else ""


def _refused() -> DevFlowError:
    return DevFlowError(ErrorCode.UNAUTHENTICATED, UNAUTHENTICATED)


def identify_blocking(raw: str) -> Identity:
    """The identity behind a key. Raises the same `unauthenticated` for missing, malformed, revoked and expired."""
    if not well_formed(raw):
        raise _refused()
    digest = key_digest(raw)
    known, identity = keyring.remembered(digest)
    if not known:
        identity = keyring.look_up(digest)
    if identity is None or identity.is_over():
        raise _refused()
    return identity


async def identify(raw: str) -> Identity:
    """`identify_blocking` without blocking the loop: a remembered key costs no thread."""
    if not well_formed(raw):
        raise _refused()
    known, identity = keyring.remembered(key_digest(raw))
    if known:
        if identity is None or identity.is_over():
            raise _refused()
        return identity
    return await run_blocking(identify_blocking, raw)


def agent_name(value: Any) -> str:
    """Check what a client calls its agent. Raises `invalid_input`."""
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_AGENT_NAME or not value.isprintable():
        raise invalid(
            f"An agent id is 1 to {MAX_AGENT_NAME} printable characters.", agent_id="1 to 100 printable characters"
        )
    if value == "*" or value.startswith("phase:"):
        raise invalid(f"{value} addresses several agents; take an id of your own.", agent_id="not * nor phase:")
    return value


def _printable(text: str) -> str:
    """What a client says of itself, without what cannot be stored or shown."""
    return "".join(filter(str.isprintable, text))


def _choice(given: str | None, fallback: str, allowed: tuple[str, ...], name: str) -> str:
    if given is None:
        return fallback
    if given not in allowed:
        raise invalid(f"{name} must be one of {', '.join(allowed)}.", **{name: f"one of {', '.join(allowed)}"})
    return given


def caller_for(
    identity: Identity,
    *,
    transport: str,
    headers: Mapping[str, str] | None = None,
    query: Mapping[str, str] | None = None,
    meta: Mapping[str, Any] | None = None,
    client: str = "",
    session: str = "",
    exposed: Exposed | None = None,
) -> Caller:
    """Put a caller together from what the transport knows. Header names in lower case.

    The agent is `X-Agent-Id` or `_meta["devflow/agent"]`, else the client's name with its session, else the key's own
    default agent. Raises `invalid_input` for a malformed agent id or exposure.
    """
    headers, query, meta, client = headers or {}, query or {}, meta or {}, _printable(client)
    project = query.get("project") or headers.get("x-project") or None
    if project is not None and not project.isprintable():
        raise invalid("A project is named by its slug.", project="letters, digits, - and _")
    named = headers.get("x-agent-id") or meta.get("devflow/agent")
    identified = True
    if named is not None and named != "":
        name = agent_name(named)
    elif session:
        name = f"{client or 'client'}-{session[:8]}"[:MAX_AGENT_NAME]
    else:
        name, identified = f"{identity.name}-agent"[:MAX_AGENT_NAME], False
    return Caller(
        scope=identity.scope,
        key_name=identity.name,
        scopes=identity.scopes,
        agent_name=name,
        identified=identified,
        is_named=bool(named),
        session=session,
        client=client,
        transport=transport,
        project_slug=project,
        project_root=headers.get("x-project-root") or None,
        rate_per_minute=identity.rate_per_minute,
        toolsets=identity.toolsets,
        exposed=exposed or exposure_for(identity, query),
        trace_id=uuid.uuid4().hex,
    )


def exposure_for(identity: Identity, query: Mapping[str, str]) -> Exposed:
    """What the client is shown: the URL's wish, else the key's, else the server's; never more than the key may use."""
    toolsets = query.get("toolsets", "")
    if len(toolsets) > MAX_TOOLSETS:
        raise invalid("The list of toolsets is too long.", toolsets=f"at most {MAX_TOOLSETS} characters")
    return _exposure(identity, toolsets, query.get("expose"), query.get("names"))


@lru_cache(maxsize=1024)
def _exposure(identity: Identity, toolsets: str, expose: str | None, names: str | None) -> Exposed:
    server = config.current().exposure
    wished = frozenset(part for part in toolsets.split(",") if part) or frozenset(server.toolsets)
    if unknown := sorted(wished - TOOLSETS):
        known = ", ".join(sorted(TOOLSETS))
        raise invalid(f"There is no toolset {unknown[0]}; there are: {known}.", toolsets=f"some of {known}")
    return Exposed(
        toolsets=wished,
        expose=_choice(expose, identity.expose or server.expose, ("direct", "search", "intent"), "expose"),
        names=_choice(names, identity.names or server.names, ("dotted", "underscore"), "names"),
    )
