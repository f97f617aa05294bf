"""The page behind DEBUG_PORT: backends, recent calls, their timelines. On 127.0.0.1 only, and only to look at."""

import asyncio
import logging
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from django.contrib.staticfiles import finders
from django.template.loader import render_to_string
from django.utils import timezone

from devflow.logs import redact
from mcpbridge.agentify.llm import without_keys
from mcpbridge.agentify.protocol import Session
from mcpbridge.envelopes import Outcome
from mcpbridge.gateway.sessions import pool
from mcpbridge.threads import run_blocking

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
KEPT = 100
READ_SECONDS = 5.0
MAX_HEAD = 16 * 1024
SHEETS = {"/tokens.css": "devflow/tokens.css", "/devflow.css": "devflow/devflow.css"}
_SAFE = (
    "Content-Security-Policy: default-src 'none'; style-src 'self'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n"
    "Connection: close\r\n"
)


@dataclass(frozen=True)
class Seen:
    """One call, as the page shows it."""

    at: datetime
    trace_id: str
    action: str
    outcome: str
    mode: str
    duration_ms: float
    spans: tuple[tuple[str, float], ...]
    error: str

    @classmethod
    def of(cls, outcome: Outcome) -> "Seen":
        orchestration = (outcome.value or {}).get("meta", {}).get("orchestration", {})
        return cls(
            at=timezone.now(),
            trace_id=outcome.trace_id,
            action=str(outcome.facts.get("chosen", "")),
            outcome="plan" if "plan" in outcome.facts else outcome.code,
            mode=str(orchestration.get("mode", "")),
            duration_ms=round(outcome.duration_ms, 1),
            spans=tuple(outcome.facts.get("spans", ())),
            error=without_keys(redact(outcome.error.message))[:500] if outcome.error else "",
        )


class DebugPage:
    """A web server for one page. It answers GET alone, to its own name alone."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._calls: deque[Seen] = deque(maxlen=KEPT)
        self._server: asyncio.Server | None = None
        self._port = 0

    def note(self, outcome: Outcome) -> None:
        self._calls.appendleft(Seen.of(outcome))

    async def open(self, port: int) -> None:
        """Listen; a port that is taken costs the page, not the session."""
        try:
            self._server = await asyncio.start_server(self._answer, HOST, port, limit=MAX_HEAD)
        except OSError as exc:
            logger.warning("the debug page cannot listen on port %d: %s", port, exc.strerror or exc)
            return
        self._port = self._server.sockets[0].getsockname()[1]
        logger.warning("the debug page is at http://%s:%d/", HOST, self._port)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                status, kind, body = await self._page(head.decode("latin-1"))
                start = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}; charset=utf-8\r\n"
                writer.write(f"{start}Content-Length: {len(body)}\r\n{_SAFE}\r\n".encode() + body)
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _page(self, head: str) -> tuple[HTTPStatus, str, bytes]:
        request, *lines = head.split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        method, _, rest = request.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if headers.get("host") not in (f"{HOST}:{self._port}", f"localhost:{self._port}"):
            return HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"Another name than this page's.\n"
        if method != "GET":
            return HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"Only to look at.\n"
        if path in SHEETS:
            return HTTPStatus.OK, "text/css", await run_blocking(_sheet, SHEETS[path])
        if path != "/":
            return HTTPStatus.NOT_FOUND, "text/plain", b"There is nothing here.\n"
        shown = {"backends": await self._backends(), "calls": list(self._calls)}
        page = await run_blocking(render_to_string, "mcpbridge/agentify.html", shown)
        return HTTPStatus.OK, "text/html", page.encode()

    async def _backends(self) -> list[dict[str, Any]]:
        realm = self._session.realm
        snapshot = await realm.snapshot()
        return [
            {
                "id": spec.id,
                "name": spec.display_name or spec.id,
                "is_own": spec.id in realm.specs,
                "problem": realm.problems.get(spec.id) or spec.problem or spec.status_detail,
                "actions": len(snapshot.of(spec.id)),
                "sessions": pool.open_sessions(spec.id),
                "breaker": pool.breaker(spec).state,
            }
            for spec in snapshot.backends.values()
        ]


def _sheet(name: str) -> bytes:
    found = finders.find(name)
    return Path(found).read_bytes() if isinstance(found, str) else b""
