"""Sessions follow the catalog: what was opened with settings that are gone is closed, in every server process."""

import asyncio
import logging
from contextlib import suppress

from devflow.events import LiveEvent, bus
from mcpbridge.gateway.catalog import catalog
from mcpbridge.gateway.discovery import BACKEND_CHANGED
from mcpbridge.gateway.sessions import pool

logger = logging.getLogger(__name__)

LOOK_SECONDS = 15.0


async def run() -> None:
    """Look whenever a backend changed, and every 15 s for what another program wrote, until cancelled."""
    changed = asyncio.Event()

    def hear(event: LiveEvent) -> None:
        if event.type == BACKEND_CHANGED:
            catalog.forget()
            changed.set()

    leave = bus.subscribe(hear)
    try:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await changed.wait()
            changed.clear()
            try:
                await catalog.current()
            except Exception as exc:  # a database that is away: the next look finds what changed
                logger.warning("backends were not looked at: %s", exc)
                continue
            pool.tidy()
    finally:
        leave()
