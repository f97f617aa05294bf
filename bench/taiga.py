"""Lists of the agile tools over REST, in a project of 3,000 objects."""

import asyncio
import json
from pathlib import Path
from typing import Any

from bench.load import hammer, http_request
from bench.processes import seeded_by
from tests.running import running

OBJECTS = 3000
CALLERS = (1, 4)
SECONDS = 3.0
LISTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("taiga.list_epics", {}),
    ("taiga.list_user_stories", {}),
    ("taiga.list_user_stories", {"limit": 200, "includeDetails": True}),
    ("taiga.list_tasks", {}),
    ("taiga.list_tasks", {"tags": ["t3"], "limit": 200}),
    ("taiga.list_issues", {}),
    ("taiga.search_user_stories", {"query": "customer quick"}),
)


def run(home: Path) -> str:
    """A Markdown section."""
    lines = [
        f"A project of {OBJECTS:,} epics, stories, tasks and issues on SQLite, through `POST /mcp/execute` with key",
        "and audit on. 50 items a page where the arguments do not say otherwise. Milliseconds.",
        "",
        "| list | arguments | callers | calls/s | p50 | p95 | worst |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    with running(home / "taiga", arguments=("--no-demo",)) as server:
        port = int(server.url.rpartition(":")[2])
        key = seeded_by("bench.taiga_seed", server.home, "large", OBJECTS)
        for tool, arguments in LISTS:
            body = json.dumps({"tool": tool, "args": arguments})
            request = http_request("POST", "/mcp/execute", port, {"X-API-Key": key, "X-Agent-Id": "planner"}, body)
            for callers in CALLERS:
                made = asyncio.run(hammer(port, request, callers=callers, seconds=SECONDS, expect=b'"ok":true'))
                given = f"`{json.dumps(arguments)}`" if arguments else ""
                lines.append(
                    f"| {tool} | {given} | {callers} | {made.per_second:.0f} | {made.p50} | {made.p95} | {made.worst} |"
                )
    return "\n".join(lines)
