"""Load one server for a while and look for leaks: `make soak`, or `python -m bench.soak MINUTES`.

Agents claim and finish, read the board, open and close streams; memory, threads, files and database connections are
sampled. Prints one line a minute and fails when memory still grows in the second half.
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from bench.load import MODERN, Client, hammer, http_request, mcp_request
from bench.processes import resident_mib, seeded
from tests.running import running

GROWTH_MIB = 24.0


async def _streams(port: int, key: str, seconds: float) -> int:
    """Open an SSE stream, read its first event, leave; over and over."""
    opened, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        client = await Client(port).open()
        client.writer.write(http_request("GET", "/mcp/sse", port, {"X-API-Key": key, "Accept": "text/event-stream"}))
        await client.reader.readuntil(b"event: endpoint")
        client.close()
        opened += 1
        await asyncio.sleep(0.05)
    return opened


async def _minute(port: int, key: str, seconds: float) -> tuple[int, int]:
    headers = {"X-API-Key": key, "X-Agent-Id": "soak"}
    create = mcp_request("/mcp", port, MODERN, "create_task", {"description": "Soak", "phase_id": 1}, headers)
    board = mcp_request("/mcp", port, MODERN, "get_kanban_board", {}, headers)
    body = json.dumps({"tool": "get_tasks", "args": {"limit": 20}})
    rest = http_request("POST", "/mcp/execute", port, headers, body)
    runs = await asyncio.gather(
        hammer(port, create, callers=2, seconds=seconds, expect=b"task_id"),
        hammer(port, board, callers=4, seconds=seconds, expect=b"columns"),
        hammer(port, rest, callers=4, seconds=seconds, expect=b"tasks"),
        _streams(port, key, seconds),
    )
    return sum(run.calls for run in runs[:3]), runs[3]


def main(minutes: int) -> int:
    samples: list[float] = []
    with tempfile.TemporaryDirectory(prefix="devflow-soak-") as home, running(Path(home) / "home") as server:
        port = int(server.url.rpartition(":")[2])
        key = seeded(server.home, "soak", 100)
        for minute in range(1, minutes + 1):
            calls, streams = asyncio.run(_minute(port, key, 60.0))
            samples.append(resident_mib(server.pid))
            files = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
            threads = len(list(Path(f"/proc/{server.pid}/task").iterdir()))
            print(
                f"minute {minute}: {calls} calls, {streams} streams, {samples[-1]} MiB, "
                f"{files} files, {threads} threads",
                flush=True,
            )
    half = samples[len(samples) // 2 :]
    grown = half[-1] - half[0]
    print(f"memory grew by {grown:.1f} MiB in the second half")
    return int(grown > GROWTH_MIB)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
