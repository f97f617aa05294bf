"""How long the server takes to start, and what it weighs."""

import subprocess
import sys
import time
from pathlib import Path

from bench.processes import ROOT, resident_mib
from tests.running import environment, running


def run(home: Path) -> str:
    """First and later starts to the first 200 of /readyz, seconds; resident memory before and after 500 calls, MiB."""
    times = []
    for _ in range(4):
        with running(home / "start") as server:
            times.append(server.ready_after)
    with running(home / "start") as server:
        idle = resident_mib(server.pid)
        import httpx

        with httpx.Client(headers={"X-API-Key": server.key, "X-Project": "demo"}) as client:
            for _ in range(500):
                answer = client.post(f"{server.url}/mcp/execute", json={"tool": "get_kanban_board", "args": {}})
                answer.raise_for_status()
        busy = resident_mib(server.pid)
    createkey = _time_createkey(home / "start")
    return "\n".join(
        [
            "From the start of `devflow up` to the first 200 of `/readyz`. Memory is with the demo project: a server",
            "that has documents loads the model they are embedded with, which is nearly half of it.",
            "",
            "| what | figure |",
            "|---|---:|",
            f"| first start (migrations, demo project, admin, key), s | {times[0]:.1f} |",
            f"| later starts, s (median of {len(times) - 1}) | {sorted(times[1:])[len(times[1:]) // 2]:.1f} |",
            f"| `devflow createkey`, s | {createkey:.1f} |",
            f"| resident memory after the start, MiB | {idle} |",
            f"| resident memory after 500 boards, MiB | {busy} |",
        ]
    )


def _time_createkey(home: Path) -> float:
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "devflow", "createkey", "timed", "--json"],
        cwd=ROOT,
        env=environment(home),
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - began
