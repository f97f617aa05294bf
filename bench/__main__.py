"""Measure everything and write docs/benchmarks.md: `make bench`, or `python -m bench SECTION ...` for parts.

A part that is not measured again keeps the figures it has. `documentation` takes twenty minutes and runs only when it
is named.
"""

import re
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bench import (
    board,
    documentation,
    gateway,
    idle,
    knowledge,
    processes,
    retrieval,
    start,
    taiga,
    throughput,
    where,
    workflow,
)
from devflow import throwaway

PAGE = processes.ROOT / "docs" / "benchmarks.md"
HEAD = """\
# Benchmarks

Every figure comes from `make bench` (one part: `.venv/bin/python -m bench NAME`) on the machine named under it, with
the load client on the same machine. Compare ratios made in one run; absolute figures move with the machine.
"""


def _workflow(home: Path) -> str:
    with throwaway.postgres() as one, throwaway.postgres() as four, throwaway.redis() as redis:
        return workflow.run(
            home,
            {
                "SQLite": ({}, 1),
                "PostgreSQL": ({"DEVFLOW_DATABASE_URL": one}, 1),
                "PostgreSQL, 4 workers": (
                    {"DEVFLOW_DATABASE_URL": four, "DEVFLOW_REDIS_URL": redis.url},
                    4,
                ),
            },
        )


SECTIONS: dict[str, tuple[str, Callable[[Path], str]]] = {
    "throughput": ("A trivial tool through the whole pipeline", throughput.run),
    "where": ("Where one call's time goes", where.run),
    "workflow": ("Tasks: create, claim, board", _workflow),
    "taiga": ("Lists of the agile tools", taiga.run),
    "board": ("The board in a browser", board.run),
    "gateway": ("The gateway before another server", gateway.run),
    "idle": ("Idle SSE connections", idle.run),
    "start": ("Start and memory", start.run),
    "retrieval": ("How well search finds", retrieval.run),
    "search": ("Search under load", knowledge.search),
    "ingestion": ("Ingestion, embedding and memory", knowledge.ingestion),
    "documentation": ("Reading the documentation of Django and Python", documentation.run),
}
LONG = frozenset({"documentation"})
"""Measured only when named."""


def _kept() -> dict[str, str]:
    if not PAGE.exists():
        return {}
    return dict(re.findall(r"<!-- (\w+) -->\n(.*?)<!-- /\1 -->", PAGE.read_text(), re.DOTALL))


def main(names: list[str]) -> None:
    parts = _kept()
    for name in names or [name for name in SECTIONS if name not in LONG]:
        title, measure = SECTIONS[name]
        print(f"measuring: {title}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="devflow-bench-") as home:
            text = measure(Path(home))
        stamp = f"`python -m bench {name}`, {datetime.now(UTC):%Y-%m-%d}, {processes.machine()}."
        parts[name] = f"## {title}\n\n{text}\n\n{stamp}\n"
        body = "\n".join(f"<!-- {key} -->\n{parts[key]}<!-- /{key} -->\n" for key in SECTIONS if key in parts)
        PAGE.write_text(f"{HEAD}\n{body}")


main(sys.argv[1:])
