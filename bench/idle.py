"""2,000 SSE connections that stay open and silent: what each costs, and what calls among them feel."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.processes import ROOT
from tests.running import running

CONNECTIONS = 2000


def run(home: Path) -> str:
    with running(home / "idle") as server:
        done = subprocess.run(
            [
                *(sys.executable, str(ROOT / "bench" / "sse_idle.py"), "--url", server.url, "--key", server.key),
                *("--pid", str(server.pid), "--connections", str(CONNECTIONS)),
            ],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
    said: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    lines = ["`bench/sse_idle.py` against a server of its own, after a full handshake on every connection.", ""]
    lines += [
        "| what | figure |",
        "|---|---:|",
        *(f"| {name.replace('_', ' ')} | {value} |" for name, value in said.items()),
    ]
    return "\n".join(lines)
