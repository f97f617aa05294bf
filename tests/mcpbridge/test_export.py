"""Metrics go where `export_endpoint` says, in the background."""

import asyncio
from typing import Any

import pytest

from devflow import config
from mcpbridge import export, metrics


class Receiver:
    """An HTTP server on loopback that answers with what it was told, and remembers what it was sent."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.bodies: list[bytes] = []
        self.got_one = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        self.bodies.append(await reader.readexactly(length))
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % self.statuses.pop(0))
        await writer.drain()
        writer.close()
        if not self.statuses:
            self.got_one.set()


def configured(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("DEVFLOW_TELEMETRY_EXPORT_ENDPOINT", endpoint)
    monkeypatch.setenv("DEVFLOW_TELEMETRY_EXPORT_INTERVAL_SECONDS", "1")
    conf = config.load()
    monkeypatch.setattr(config, "current", lambda: conf)


@pytest.mark.django_db(transaction=True)
async def test_a_receiver_that_fails_once_gets_the_next_push(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics.observe("pushed_tool", "ok", 0.01)
    receiver = Receiver(500, 200)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    port: Any = server.sockets[0].getsockname()[1]
    configured(monkeypatch, f"http://127.0.0.1:{port}/metrics")
    pushing = asyncio.create_task(export.run())
    async with asyncio.timeout(15):
        await receiver.got_one.wait()
    pushing.cancel()
    server.close()
    assert all(b'devflow_tool_calls_total{outcome="ok",tool="pushed_tool"}' in body for body in receiver.bodies)


async def test_without_an_endpoint_there_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch, "")
    async with asyncio.timeout(5):
        await export.run()
