"""What the gateway adds to a call, beside a direct one, FastMCP's proxy and mcp-proxy; processes; tool lists."""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.load import HANDSHAKE, Client, Figures, figures, hammer, http_request, mcp_request
from bench.processes import ROOT, asgi, free_port, migrated, seeded_by, wait_for
from tests.running import environment, running

SECONDS, ROUNDS, CALLERS = 3.0, 3, (1, 16)
FAULTS = ("hang", "die", "noise", "flood", "line")
ARGUMENTS = {"a": 2, "b": 3}
SERVER = [sys.executable, "-m", "bench.stdio_bare"]
MCP_PROXY = ROOT / ".tools" / "servers" / "bin" / "mcp-proxy"
DIRECT = "direct, over the pipe"


def run(home: Path) -> str:
    """Measure and give a Markdown section."""
    migrated(home)
    key = seeded_by("bench.gateway_seed", home)
    results: dict[tuple[str, int], list[Figures]] = {}
    with ExitStack() as stack:
        ours = stack.enter_context(running(home, arguments=("--no-demo",)))
        port = int(ours.url.rpartition(":")[2])
        headers = {"X-API-Key": key, "X-Agent-Id": "bench-1"}
        body = json.dumps({"intent": "QUERY", "action": "bare.add", "params": ARGUMENTS})
        targets = {
            "DevFlow, passed through": (port, _call("/mcp/backends/bare/mcp", port, "add", headers)),
            "DevFlow, gateway request": (port, http_request("POST", "/mcp/gateway", port, headers, body)),
            "DevFlow, in its own list": (port, _call("/mcp", port, "bare__add", headers)),
        }
        other, _ = stack.enter_context(asgi("bench.fast_proxy:application", home))
        targets["FastMCP 4 proxy"] = (other, _call("/mcp", other, "add", {}))
        if MCP_PROXY.exists():
            other = stack.enter_context(_mcp_proxy(home))
            targets["mcp-proxy"] = (other, _call("/mcp", other, "add", {}))
        for turn in range(ROUNDS + 1):
            for callers in CALLERS:
                measured = {DIRECT: asyncio.run(_direct(home, callers, SECONDS if turn else 0.5))}
                for name, (at, request) in targets.items():
                    seconds = SECONDS if turn else 1.0
                    measured[name] = asyncio.run(hammer(at, request, callers=callers, seconds=seconds, expect=b"5"))
                if turn:  # the first turn warms up
                    for name, figure in measured.items():
                        results.setdefault((name, callers), []).append(figure)
        beside = asyncio.run(_neighbours(port, headers))
        fresh = {name: asyncio.run(_one_by_one(port, headers, name)) for name in ("cold", "warm")}
        spawn = _spawn_seconds(home)
    return f"{_section(results)}\n\n{beside}\n\n{_processes(fresh, spawn)}\n\n{_lists(home)}"


def _call(path: str, port: int, tool: str, headers: dict[str, str]) -> bytes:
    return mcp_request(path, port, HANDSHAKE, tool, ARGUMENTS, headers)


@contextmanager
def _mcp_proxy(home: Path) -> Iterator[int]:
    port = free_port()
    command = [str(MCP_PROXY), "--port", str(port), "--host", "127.0.0.1", "--stateless", "--pass-environment", "--"]
    process = subprocess.Popen(
        [*command, *SERVER], cwd=ROOT, env=environment(home), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(port)
        yield port
    finally:
        process.terminate()
        process.wait(20)


async def _direct(home: Path, callers: int, seconds: float) -> Figures:
    """Requests written to the server's pipe and matched by id: the least a client can do."""
    process = await asyncio.create_subprocess_exec(
        *SERVER, cwd=ROOT, env=environment(home), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None and stdout is not None
    waiting: dict[int, asyncio.Future[None]] = {}
    ids = iter(range(1, 10**9))

    async def read() -> None:
        while line := await stdout.readline():
            waiting.pop(json.loads(line)["id"]).set_result(None)

    async def ask(method: str, params: dict[str, object]) -> None:
        number = next(ids)
        waiting[number] = asyncio.get_running_loop().create_future()
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        stdin.write(json.dumps(message).encode() + b"\n")
        await waiting[number]

    reading = asyncio.create_task(read())
    hello = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    await ask("initialize", hello)
    stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
    times: list[float] = []
    began = time.perf_counter()

    async def call() -> None:
        while not times or time.perf_counter() < began + seconds:
            start = time.perf_counter()
            await ask("tools/call", {"name": "add", "arguments": ARGUMENTS})
            times.append(time.perf_counter() - start)

    await asyncio.gather(*(call() for _ in range(callers)))
    elapsed = time.perf_counter() - began
    stdin.close()
    await process.wait()
    await reading
    return figures(times, elapsed)


async def _neighbours(port: int, headers: dict[str, str]) -> str:
    """A healthy backend's calls, alone and while each kind of bad one is called without pause."""
    body = json.dumps({"intent": "QUERY", "action": "bare.add", "params": ARGUMENTS})
    healthy = http_request("POST", "/mcp/gateway", port, headers, body)
    lines = [
        "A healthy backend (4 callers, gateway requests) while a bad one is called without pause, deadline 1 s:",
        "",
        "| beside | p50 ms | p95 ms | x alone (p95) |",
        "|---|---:|---:|---:|",
    ]
    await hammer(port, healthy, callers=4, seconds=1.0, expect=b"5")
    alone = await hammer(port, healthy, callers=4, seconds=SECONDS, expect=b"5")
    lines.append(f"| nothing | {alone.p50:.1f} | {alone.p95:.1f} | |")
    for mode in FAULTS:
        bad = json.dumps({"intent": "QUERY", "action": f"{mode}.act", "constraints": {"timeout_ms": 1000}})
        request = http_request("POST", "/mcp/gateway", port, {**headers, "X-Agent-Id": f"bench-{mode}"}, bad)
        calling = asyncio.create_task(_calling(port, request))
        await asyncio.sleep(0.5)
        beside = await hammer(port, healthy, callers=4, seconds=SECONDS, expect=b"5")
        calling.cancel()
        lines.append(f"| {mode} | {beside.p50:.1f} | {beside.p95:.1f} | {beside.p95 / alone.p95:.2f} |")
    return "\n".join(lines)


async def _calling(port: int, request: bytes) -> None:
    client = await Client(port).open()
    try:
        while True:
            await client.send(request)
    finally:
        client.close()


async def _one_by_one(port: int, headers: dict[str, str], backend: str) -> Figures:
    """Calls under isolation `subprocess`, with the pause a spare needs to be ready again."""
    body = json.dumps({"intent": "QUERY", "action": f"{backend}.add", "params": ARGUMENTS})
    request = http_request("POST", "/mcp/gateway", port, headers, body)
    client = await Client(port).open()
    times = []
    for number in range(9):
        await asyncio.sleep(2.0)
        start = time.perf_counter()
        status, answer = await client.send(request)
        if status != 200 or b'"subprocess"' not in answer:
            raise RuntimeError(f"unexpected answer {status}: {answer[:300]!r}")
        if number:
            times.append(time.perf_counter() - start)
    client.close()
    return figures(times, sum(times))


def _spawn_seconds(home: Path) -> float:
    """How long that server alone takes from its start to its first answer."""

    async def once() -> float:
        start = time.perf_counter()
        await _direct(home, 1, 0.0)
        return time.perf_counter() - start

    return statistics.median(asyncio.run(once()) for _ in range(5))


def _section(results: dict[tuple[str, int], list[Figures]]) -> str:
    lines = [
        f"One server (the SDK's, on stdio, one trivial tool), {ROUNDS} rounds of {SECONDS:g} s in turns after a",
        "warm-up; medians. Direct calls are written to the pipe and matched by id; all others come over HTTP to a",
        "proxy that keeps the server's process. DevFlow checks key, limit, policy and schema, records and measures.",
        "",
        "| callers | through | calls/s | p50 ms | p95 ms | added p50 ms |",
        "|---:|---|---:|---:|---:|---:|",
    ]
    for callers in CALLERS:
        base = [figure.p50 for figure in results[DIRECT, callers]]
        for (name, of), rounds in results.items():
            if of != callers:
                continue
            added = statistics.median(figure.p50 - least for figure, least in zip(rounds, base, strict=True))
            lines.append(
                f"| {callers} | {name} | {_median(rounds, 'per_second'):.0f} | {_median(rounds, 'p50'):.2f} | "
                f"{_median(rounds, 'p95'):.2f} | {'' if name == DIRECT else f'{added:.2f}'} |"
            )
    return "\n".join(lines)


def _median(rounds: list[Figures], name: str) -> float:
    return statistics.median(getattr(figure, name) for figure in rounds)


def _processes(fresh: dict[str, Figures], spawn: float) -> str:
    return "\n".join(
        [
            "A process of its own for each call (isolation `subprocess`), one call every two seconds:",
            "",
            "| | p50 ms | worst ms |",
            "|---|---:|---:|",
            f"| fresh process | {fresh['cold'].p50:.0f} | {fresh['cold'].worst:.0f} |",
            f"| warm spare | {fresh['warm'].p50:.0f} | {fresh['warm'].worst:.0f} |",
            f"| that server alone, start to end | {spawn * 1000:.0f} | |",
        ]
    )


def _lists(home: Path) -> str:
    """Tokens of the tool list of 100 backend tools in each exposure."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.gateway_lists"],
        cwd=ROOT,
        env=environment(home),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()
