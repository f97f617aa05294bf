"""How backends do: asked once a minute, as cheaply as tells something.

A backend over HTTP is asked for a connection each minute, which opens no session. Every ten minutes, and two minutes
after it failed, any backend is asked for its tools: that starts a process for stdio, and finds what changed. An
agent's command line is only looked for, because running it costs somebody money.
"""

import asyncio
import logging
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from asgiref.sync import async_to_sync
from django.utils import timezone

from devflow.errors import DevFlowError
from devflow.ports import HealthReport
from mcpbridge.gateway import discovery
from mcpbridge.gateway.catalog import backend_spec
from mcpbridge.gateway.discovery import Found
from mcpbridge.gateway.faults import unavailable
from mcpbridge.gateway.looking import ask
from mcpbridge.gateway.specs import BackendSpec, struck_out
from mcpbridge.models import Backend, Transport

logger = logging.getLogger(__name__)

WHOLE_LOOK = timedelta(minutes=10)
SECOND_LOOK = timedelta(minutes=2)
CONNECT_SECONDS = 5.0
LOOK_SECONDS = 45.0
AT_ONCE = 4

_round = threading.Lock()


def is_due(row: Backend, now: datetime) -> bool:
    """Whether it is time to ask a backend for its tools."""
    if row.checked_at is None or row.status == Backend.Status.NEW:
        return True
    return now - row.checked_at >= (SECOND_LOOK if row.status == Backend.Status.DOWN else WHOLE_LOOK)


def look_round() -> None:
    """One round over the enabled backends (blocks). A round that finds another under way leaves it to that."""
    if not _round.acquire(blocking=False):
        return
    try:
        now = timezone.now()
        rows = list(Backend.objects.filter(is_enabled=True))
        due = {row.backend_id for row in rows if is_due(row, now)}
        asked = [
            (backend_spec(row), row.backend_id in due)
            for row in rows
            if row.backend_id in due or row.transport in (Transport.HTTP, Transport.SSE)
        ]
        for (spec, _), said in zip(asked, async_to_sync(_ask_all)(asked), strict=True):
            try:
                if isinstance(said, DevFlowError):
                    discovery.mark_down(spec, struck_out(said.message, spec.secrets))
                elif isinstance(said, Found):
                    discovery.keep(spec, said)
            except Exception:  # what one backend said must not keep the others' answers from being written
                logger.exception("what a backend said could not be kept", extra={"backend": spec.id})
    finally:
        _round.release()


async def _ask_all(asked: Sequence[tuple[BackendSpec, bool]]) -> list[Found | DevFlowError | None]:
    places = asyncio.Semaphore(AT_ONCE)

    async def one(spec: BackendSpec, whole: bool) -> Found | DevFlowError | None:
        async with places:
            try:
                if whole:
                    return await ask(spec, seconds=LOOK_SECONDS)
                await _connect(spec)
            except DevFlowError as exc:
                return exc
            except Exception:  # one backend's oddity must not keep the others from being looked at
                logger.exception("a backend could not be looked at", extra={"backend": spec.id})
                return unavailable(spec.id, "looking at it failed in a way nobody foresaw; the server's log has it.")
            return None

    return list(await asyncio.gather(*(one(spec, whole) for spec, whole in asked)))


async def _connect(spec: BackendSpec) -> None:
    parts = urlsplit(spec.url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, port)
            writer.close()
            await writer.wait_closed()
    except TimeoutError:
        raise unavailable(spec.id, f"{parts.hostname}:{port} does not answer.") from None
    except OSError as exc:
        raise unavailable(spec.id, f"{parts.hostname}:{port}: {exc.strerror or exc}.") from None


def probe() -> HealthReport:
    """`degraded` while an enabled backend is down. Names only: what they say is on the gateway page."""
    down = Backend.objects.filter(is_enabled=True, status=Backend.Status.DOWN).values_list("backend_id", flat=True)
    if not down:
        return HealthReport("up", essential=False)
    return HealthReport("degraded", f"Backends that are down: {', '.join(down[:10])}.", essential=False)
