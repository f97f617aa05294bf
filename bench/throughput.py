"""A trivial tool through the whole of DevFlow, beside the SDK's bare server and FastMCP, in turns."""

import asyncio
import statistics
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from bench.load import HANDSHAKE, MODERN, Figures, hammer, mcp_request
from bench.processes import asgi, migrated, seeded

CALLERS, SECONDS, ROUNDS = 16, 4.0, 5
HEADERS = {"X-Agent-Id": "bench-1"}


def run(home: Path) -> str:
    """Measure and give a Markdown section."""
    migrated(home)
    key = _limited_key(home)
    results: dict[str, dict[str, list[Figures]]] = {}
    with ExitStack() as stack:
        servers = {"SDK, bare": (stack.enter_context(asgi("bench.bare:application", home))[0], {})}
        servers["DevFlow"] = (
            stack.enter_context(asgi("bench.ours:application", home))[0],
            {**HEADERS, "X-API-Key": key},
        )
        if find_spec("fastmcp") is not None:
            servers["FastMCP"] = (stack.enter_context(asgi("bench.fast:application", home))[0], {})
        for era in (MODERN, HANDSHAKE):
            for turn in range(ROUNDS + 1):
                for name, (port, headers) in servers.items():
                    request = mcp_request("/mcp", port, era, "add", {"a": 2, "b": 3}, headers)
                    measured = asyncio.run(
                        hammer(port, request, callers=CALLERS, seconds=SECONDS if turn else 1.0, expect=b'"sum"')
                    )
                    if turn:  # the first turn warms up
                        results.setdefault(era, {}).setdefault(name, []).append(measured)
    return _section(results)


def _limited_key(home: Path) -> str:
    """A key with a limit that is counted and never reached."""
    import os
    import subprocess
    import sys

    from tests.running import environment

    seeded(home, "throughput", 0)
    code = (
        "import django; django.setup()\n"
        "from mcpbridge.models import ApiKey\n"
        "print(ApiKey.objects.issue(name='bench', scopes=['read', 'write'], rate_per_minute=1_000_000)[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment(home), "DJANGO_SETTINGS_MODULE": "devflow.settings", "PYTHONPATH": os.curdir},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()[-1]


def _section(results: dict[str, dict[str, list[Figures]]]) -> str:
    lines = [
        f"{CALLERS} callers, {ROUNDS} rounds of {SECONDS:g} s in turns after a warm-up; medians of the rounds. Ratios",
        "are made within each round against the bare server of that round (minimum to maximum in brackets).",
        "DevFlow has key, limit, audit and metrics on; the others have nothing.",
        "",
        "| protocol | server | calls/s | p50 ms | p95 ms | p99 ms | x bare |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for era, by_name in results.items():
        bare = [figure.per_second for figure in by_name["SDK, bare"]]
        for name, rounds in by_name.items():
            ratios = [figure.per_second / base for figure, base in zip(rounds, bare, strict=True)]
            lines.append(
                f"| {era} | {name} | {_median(rounds, 'per_second'):.0f} | {_median(rounds, 'p50'):.1f} | "
                f"{_median(rounds, 'p95'):.1f} | {_median(rounds, 'p99'):.1f} | "
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |"
            )
    return "\n".join(lines)


def _median(rounds: list[Figures], name: str) -> float:
    return statistics.median(getattr(figure, name) for figure in rounds)
