"""Load the gateway for a long time and look for leaks: `make soak`, or `python -m bench.gateway_soak SECONDS`.

16 callers call 5 healthy backends through a real server, under both isolations, and now and then backends that hang,
die, write without end or leave their process group. Fails unless 99.9 % of the healthy calls succeed, memory, files
and processes stay level, and no process of a backend is left after the server.
"""

import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from bench.processes import ROOT, children
from tests.running import RunningServer, running

CALLERS = 16
AGENTS = 4
HEALTHY = 5
FAULTS = ("hang", "die", "line", "noise", "ids", "escape", "memory", "wrong-id", "die-after", "garbage")
FAULT_EVERY = 100
"""One call in so many goes to a backend that misbehaves."""
FAULT_DEADLINE_MS = 1000
SUBPROCESS_EVERY = 25
LEAST_SUCCESS = 0.999
GROWTH_MIB, GROWTH_FILES, GROWTH_PROCESSES = 24.0, 24, 12
QUIET_SECONDS = 15.0

SETUP = """
import json, sys
from asgiref.sync import async_to_sync
from mcpbridge.gateway import catalog, discovery
from mcpbridge.models import Backend
for name, mode, spares in json.loads({backends!r}):
    row = Backend.objects.create(backend_id=name, transport="stdio", command=sys.executable, warm_spares=spares,
                                 args=["-S", "-E", {script!r}, mode], inherit_env=["SOAKED"])
    found = async_to_sync(discovery.refresh)(catalog.backend_spec(row))
    assert not isinstance(found, Exception), found
"""


class Counts:
    """What came of the calls."""

    def __init__(self) -> None:
        self.healthy = 0
        self.failed: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.late = 0

    @property
    def success(self) -> float:
        return 1 - self.failed.total() / max(1, self.healthy)


async def _caller(number: int, client: httpx.AsyncClient, end: float, counts: Counts) -> None:
    draw = random.Random(number)  # which backend is called next
    headers = {"X-Agent-Id": f"soak-{number % AGENTS}"}
    while time.monotonic() < end:
        is_fault = draw.randrange(FAULT_EVERY) == 0
        isolation = "subprocess" if draw.randrange(SUBPROCESS_EVERY) == 0 else "agent"
        name = draw.choice(FAULTS) if is_fault else f"healthy-{draw.randrange(HEALTHY)}"
        constraints = {"isolation": isolation, **({"timeout_ms": FAULT_DEADLINE_MS} if is_fault else {})}
        action = f"{name}.{'act' if is_fault else 'echo'}"
        body = {"intent": "QUERY", "action": action, "params": {"text": "hello"}, "constraints": constraints}
        began = time.monotonic()
        try:
            answer: dict[str, Any] = (await client.post("/mcp/gateway", json=body, headers=headers)).json()
        except (httpx.HTTPError, ValueError) as exc:
            answer = {"ok": False, "error": {"type": type(exc).__name__, "message": str(exc)}}
        said = "ok" if answer["ok"] else answer["error"]["type"]
        if is_fault:
            counts.faults[f"{name} {said}"] += 1
            counts.late += time.monotonic() - began > FAULT_DEADLINE_MS / 1000 + 1
        else:
            counts.healthy += 1
            if said != "ok":
                counts.failed[f"{said}: {answer['error']['message'][:150]}"] += 1


def _marked(value: str) -> list[int]:
    """Live processes that were given `SOAKED=value`, which only backends' are besides the server."""
    needle, found = f"SOAKED={value}".encode(), []
    for path in Path("/proc").iterdir():
        try:
            if path.name.isdigit() and needle in (path / "environ").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def _sample(pid: int) -> tuple[float, int, int]:
    """Memory of the server's own process in MiB, its open files, and how many processes are below it."""
    status = Path(f"/proc/{pid}/status").read_text()
    memory = next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS:"))
    return memory, len(list(Path(f"/proc/{pid}/fd").iterdir())), len(children(pid))


async def _watch(pid: int, seconds: float, samples: list[tuple[float, int, int]], counts: Counts) -> None:
    every = max(1.0, seconds / 40)
    told, began = time.monotonic(), time.monotonic()
    while True:
        await asyncio.sleep(every)
        samples.append(_sample(pid))
        if time.monotonic() - told >= min(60.0, seconds / 4):
            told = time.monotonic()
            memory, files, processes = samples[-1]
            print(
                f"{told - began:4.0f} s: {counts.healthy} healthy calls ({counts.failed.total()} failed), "
                f"{counts.faults.total()} others, {memory:.0f} MiB, {files} files, {processes} processes",
                flush=True,
            )


async def _load(server: RunningServer, seconds: float) -> tuple[Counts, list[tuple[float, int, int]]]:
    counts, samples = Counts(), list[tuple[float, int, int]]()
    watching = asyncio.create_task(_watch(server.pid, seconds, samples, counts))
    limits = httpx.Limits(max_connections=CALLERS)
    async with httpx.AsyncClient(
        base_url=server.url, headers={"X-API-Key": server.key}, timeout=60, limits=limits
    ) as client:
        end = time.monotonic() + seconds
        await asyncio.gather(*(_caller(number, client, end, counts) for number in range(CALLERS)))
    watching.cancel()
    return counts, samples


def _grown(values: list[float]) -> float:
    """How much the most of the last quarter is above the most of the second."""
    quarter = max(1, len(values) // 4)
    return max(values[-quarter:]) - max(values[quarter : 2 * quarter] or values)


def main(seconds: float) -> int:
    with tempfile.TemporaryDirectory(prefix="devflow-soak-") as directory:
        home = Path(directory) / "home"
        with running(home, env={"SOAKED": directory}) as server:
            names = [(f"healthy-{number}", "healthy", number % 2) for number in range(HEALTHY)]
            backends = json.dumps([*names, *((mode, mode, 0) for mode in FAULTS)])
            script = str(ROOT / "tests" / "fakes" / "fault_backend.py")
            server.run_python(SETUP.format(backends=backends, script=script))
            counts, samples = asyncio.run(_load(server, seconds))
        end = time.monotonic() + QUIET_SECONDS
        while (left := _marked(directory)) and time.monotonic() < end:
            time.sleep(0.1)
    memory, files, processes = (_grown([float(sample[index]) for sample in samples]) for index in range(3))
    faults = [
        (f"success of healthy calls {counts.success:.3%}", counts.success < LEAST_SUCCESS or not counts.healthy),
        (f"{counts.late} of {counts.faults.total()} failing calls later than deadline + 1 s", counts.late > 0),
        (f"memory {memory:+.1f} MiB", memory > GROWTH_MIB),
        (f"open files {files:+.0f}", files > GROWTH_FILES),
        (f"processes {processes:+.0f}", processes > GROWTH_PROCESSES),
        (f"{len(left)} processes left after the server", bool(left)),
    ]
    print(f"{counts.healthy} healthy calls in {seconds:g} s; others: {dict(sorted(counts.faults.items()))}")
    for why, count in counts.failed.most_common(5):
        print(f"failed {count} times: {why}")
    for text, is_bad in faults:
        print(f"{'FAIL' if is_bad else 'ok  '} {text}")
    return int(any(is_bad for _, is_bad in faults))


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 600))
