"""Open many idle MCP streams and say what each costs: memory, pings, and the speed of a call among them.

    python bench/sse_idle.py --url http://127.0.0.1:8051 --key KEY --pid SERVER_PID --connections 2000

Prints one JSON object. Linux only (reads /proc); the server must listen on loopback.
"""

import argparse
import asyncio
import json
import resource
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PING = b": ping"


class Client:
    """One stream with its handshake done, then silent."""

    def __init__(self, host: str, port: int, key: str) -> None:
        self.host, self.port, self.key = host, port, key
        self.pings = 0
        self.alive = False
        self.endpoint = ""
        self.answers: dict[int, asyncio.Future[None]] = {}

    async def open(self) -> None:
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port, limit=1 << 20)
        self.writer.write(self._head("GET", "/mcp/sse") + b"\r\n")
        await self.reader.readuntil(b"data: ")
        self.endpoint = (await self.reader.readline()).decode().strip()
        self.alive = True
        self.reading = asyncio.create_task(self._read())
        info = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "idle", "version": "1"}}
        await self.ask(0, "initialize", info)
        await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _head(self, method: str, path: str) -> bytes:
        return f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nX-API-Key: {self.key}\r\n".encode()

    async def _read(self) -> None:
        while line := await self.reader.readline():
            if line.startswith(PING):
                self.pings += 1
            elif line.startswith(b"data: "):
                waiting = self.answers.pop(json.loads(line[6:]).get("id", -1), None)
                if waiting is not None:
                    waiting.set_result(None)
        self.alive = False

    async def post(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        reader, writer = await asyncio.open_connection(self.host, self.port)
        writer.write(self._head("POST", self.endpoint) + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body))
        writer.write(body)
        status = await reader.readline()
        assert b" 202 " in status, status
        writer.close()

    async def ask(self, identifier: int, method: str, params: dict[str, Any]) -> float:
        """Seconds from the POST to the answer on the stream."""
        self.answers[identifier] = answered = asyncio.get_running_loop().create_future()
        start = time.perf_counter()
        await self.post({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params})
        await asyncio.wait_for(answered, 30)
        return time.perf_counter() - start


def resident(pid: int) -> int:
    """Bytes of memory a process uses."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * resource.getpagesize()


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    address = urlsplit(options.url)
    host, port = str(address.hostname), int(address.port or 80)
    warm = [Client(host, port, options.key) for _ in range(50)]
    for client in warm:
        await client.open()
    before = resident(options.pid)
    clients = [Client(host, port, options.key) for _ in range(options.connections)]
    started = time.perf_counter()
    for start in range(0, len(clients), 20):
        await asyncio.gather(*(client.open() for client in clients[start : start + 20]))
    opened = time.perf_counter() - started
    after = resident(options.pid)
    call = {"name": options.tool, "arguments": {}}
    times = sorted([await warm[0].ask(n, "tools/call", call) for n in range(1, options.calls + 1)])
    await asyncio.sleep(max(0.0, options.seconds - (time.perf_counter() - started - opened)))
    result = {
        "connections": options.connections,
        "alive": sum(client.alive for client in clients),
        "seconds_to_open": round(opened, 2),
        "kib_each": round((after - before) / 1024 / options.connections, 1),
        "pings": sum(client.pings for client in clients),
        "pinged": sum(client.pings > 0 for client in clients),
        "call_p50_ms": round(times[len(times) // 2] * 1000, 2),
        "call_p95_ms": round(times[int(len(times) * 0.95)] * 1000, 2),
    }
    for client in clients + warm:
        client.reading.cancel()
        client.writer.close()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--key", required=True, help="a key without a rate limit")
    parser.add_argument("--pid", type=int, required=True, help="the server process")
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--tool", default="heartbeat", help="a tool that takes no arguments")
    parser.add_argument("--seconds", type=float, default=20, help="how long to stay idle")
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = options.connections + 1000
    if soft < wanted:
        limit = wanted if hard in (resource.RLIM_INFINITY, -1) else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    print(json.dumps(asyncio.run(measure(options))))


if __name__ == "__main__":
    main()
