"""A small HTTP/1.1 load client on raw asyncio streams: cheap enough not to be what is measured."""

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

MODERN, HANDSHAKE = "2026-07-28", "2025-11-25"


def mcp_request(path: str, port: int, era: str, name: str, arguments: dict[str, Any], headers: dict[str, str]) -> bytes:
    """One tools/call as the bytes of an HTTP request."""
    params: dict[str, Any] = {"name": name, "arguments": arguments}
    extra = dict(headers)
    if era == MODERN:
        params["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        extra |= {"Mcp-Method": "tools/call", "Mcp-Name": name}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    extra |= {"Mcp-Protocol-Version": era, "Accept": "application/json, text/event-stream"}
    return http_request("POST", path, port, extra, body)


def http_request(method: str, path: str, port: int, headers: dict[str, str], body: str = "") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(body.encode())}"] + [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


@dataclass
class Client:
    """One keep-alive connection."""

    port: int
    reader: asyncio.StreamReader = field(init=False)
    writer: asyncio.StreamWriter = field(init=False)

    async def open(self) -> "Client":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22)
        return self

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """Send prepared bytes; give status and body."""
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        lower = head.lower()
        status = int(head[9:12])
        if b"transfer-encoding: chunked" in lower:
            parts = []
            while True:
                size = int(await self.reader.readline(), 16)
                chunk = await self.reader.readexactly(size + 2)
                if not size:
                    return status, b"".join(parts)
                parts.append(chunk[:-2])
        start = lower.find(b"content-length: ")
        length = int(lower[start + 16 : lower.index(b"\r\n", start)]) if start >= 0 else 0
        return status, await self.reader.readexactly(length)

    def close(self) -> None:
        self.writer.close()


@dataclass
class Figures:
    """What one run measured: calls a second, and milliseconds."""

    calls: int
    per_second: float
    p50: float
    p95: float
    p99: float
    worst: float


def figures(times: list[float], elapsed: float) -> Figures:
    ordered = sorted(times)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000, 2)

    return Figures(len(ordered), round(len(ordered) / elapsed, 1), at(0.5), at(0.95), at(0.99), at(1.0))


async def hammer(port: int, request: bytes, *, callers: int, seconds: float, expect: bytes = b"") -> Figures:
    """`callers` connections send `request` one after another for `seconds`. Raises when an answer is wrong."""
    clients = [await Client(port).open() for _ in range(callers)]
    for client in clients[:1]:
        status, body = await client.send(request)
        if status != 200 or expect not in body:
            raise RuntimeError(f"unexpected answer {status}: {body[:300]!r}")
    times: list[float] = []
    end = time.perf_counter() + seconds

    async def run(client: Client) -> None:
        while (start := time.perf_counter()) < end:
            status, body = await client.send(request)
            if status != 200 or expect not in body:
                raise RuntimeError(f"unexpected answer {status}: {body[:300]!r}")
            times.append(time.perf_counter() - start)

    began = time.perf_counter()
    await asyncio.gather(*(run(client) for client in clients))
    elapsed = time.perf_counter() - began
    for client in clients:
        client.close()
    return figures(times, elapsed)
