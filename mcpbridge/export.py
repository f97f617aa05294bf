"""Metrics pushed to `telemetry.export_endpoint` in the background; a slow or absent receiver never delays a call."""

import asyncio
import logging

import httpx

from devflow import config
from mcpbridge import metrics
from mcpbridge.threads import run_blocking

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 10.0


async def run() -> None:
    """Push the Prometheus text every `export_interval_seconds` until cancelled; nothing to do without an endpoint."""
    telemetry = config.current().mcp_gateway.telemetry
    if not telemetry.enabled or not telemetry.export_endpoint:
        return
    is_away = False
    async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS) as client:
        while True:
            await asyncio.sleep(telemetry.export_interval_seconds)
            try:
                text = await run_blocking(metrics.as_text)
                answer = await client.post(
                    telemetry.export_endpoint, content=text, headers={"Content-Type": "text/plain; version=0.0.4"}
                )
                answer.raise_for_status()
            except httpx.HTTPError as exc:
                if not is_away:
                    logger.warning("metrics were not taken by %s: %s", telemetry.export_endpoint, exc)
                is_away = True
            else:
                is_away = False
