"""Where the time of one trivial call goes: the event loop's stack, sampled while 16 callers are at work."""

import asyncio
import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from types import FrameType

from bench.load import MODERN, hammer, mcp_request
from bench.processes import asgi, migrated, seeded

SECONDS, PAUSE = 8.0, 0.001
OUTPUT = "BENCH_SAMPLES"

# From the innermost frame outwards, the first match names the layer.
LAYERS = [
    ("mcpbridge/audit.py", "DevFlow: audit"),
    ("mcpbridge/ratelimit.py", "DevFlow: rate limit"),
    ("mcpbridge/metrics.py", "DevFlow: metrics"),
    ("mcpbridge/access.py", "DevFlow: key and caller"),
    ("mcpbridge/doors.py", "DevFlow: door (key, Host, Origin, size)"),
    ("mcpbridge/payload.py", "DevFlow: bounds and schemas"),
    ("mcpbridge/tooling.py", "DevFlow: bounds and schemas"),
    ("mcpbridge/envelopes.py", "DevFlow: envelope"),
    ("mcpbridge/dispatcher.py", "DevFlow: dispatcher"),
    ("mcpbridge/transports/", "DevFlow: transport"),
    ("mcpbridge/", "DevFlow: MCP handlers"),
    ("devflow/", "DevFlow: routing"),
    ("/mcp/", "MCP SDK"),
    ("/mcp_types/", "MCP SDK"),
    ("/uvicorn/", "uvicorn: HTTP"),
    ("/asyncio/", "event loop"),
]


def run(home: Path) -> str:
    """Give a Markdown table of layers."""
    migrated(home)
    key = seeded(home, "where", 0)
    output = home / "samples.json"
    with asgi("bench.where:application", home, {OUTPUT: str(output)}) as (port, pid):
        request = mcp_request("/mcp", port, MODERN, "add", {"a": 2, "b": 3}, {"X-API-Key": key, "X-Agent-Id": "a"})
        asyncio.run(hammer(port, request, callers=16, seconds=1, expect=b'"sum"'))
        os.kill(pid, signal.SIGUSR1)
        measured = asyncio.run(hammer(port, request, callers=16, seconds=SECONDS, expect=b'"sum"'))
        os.kill(pid, signal.SIGUSR2)
        end = time.monotonic() + 10
        while not output.exists() and time.monotonic() < end:
            time.sleep(0.05)
    samples: dict[str, int] = json.loads(output.read_text())
    total = sum(samples.values())
    per_call = 1e6 / measured.per_second
    lines = [
        f"The server's event loop, looked at every {PAUSE * 1000:g} ms of processor time for {SECONDS:g} s under 16",
        "callers; each look is given to the innermost layer it stands in. "
        f"{measured.per_second:.0f} calls/s with the sampler on, so",
        f"a call is {per_call:.0f} µs. The recorder thread, which writes the log of calls, is not in this table.",
        "",
        "| layer | share | µs a call |",
        "|---|---:|---:|",
    ]
    lines += [
        f"| {layer} | {count / total:.1%} | {count / total * per_call:.0f} |"
        for layer, count in sorted(samples.items(), key=lambda item: -item[1])
    ]
    return "\n".join(lines)


def _layer(frame: FrameType | None) -> str:
    while frame is not None:
        for part, name in LAYERS:
            if part in frame.f_code.co_filename:
                return name
        frame = frame.f_back
    return "event loop"


def _install() -> None:
    """Between SIGUSR1 and SIGUSR2, look at the main thread's frame every millisecond of processor time.

    A signal interrupts the running code; a sampling thread would only see the moments in which it gives up the lock.
    """
    seen: Counter[str] = Counter()

    def stop(*_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        partial = Path(os.environ[OUTPUT]).with_suffix(".partial")
        partial.write_text(json.dumps(seen))
        partial.rename(os.environ[OUTPUT])

    signal.signal(signal.SIGPROF, lambda _, frame: seen.update([_layer(frame)]))
    signal.signal(signal.SIGUSR1, lambda *_: signal.setitimer(signal.ITIMER_PROF, PAUSE, PAUSE))
    signal.signal(signal.SIGUSR2, stop)


if OUTPUT in os.environ:
    from bench.ours import application as application

    _install()
