"""Creating, claiming and the board, at 1, 16 and 64 callers, on SQLite and PostgreSQL."""

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.load import MODERN, Client, Figures, figures, hammer, mcp_request
from bench.processes import seeded
from tests.running import RunningServer, running

CALLERS = (1, 16, 64)
SECONDS = 3.0
BOARD_TASKS = 1000


def run(home: Path, databases: Mapping[str, tuple[Mapping[str, str], int]]) -> str:
    """`databases`: name to (settings, worker processes). Gives a Markdown section."""
    lines = [
        "Through Streamable HTTP (2026-07-28) with key, audit and metrics on; each caller is an agent of its own.",
        f"The board has {BOARD_TASKS:,} tasks. A claim is the call `claim_task`; every claimed task is then finished",
        "with `update_task_status` (not in the claim's time, but in the same run). Milliseconds.",
        "",
        "| database | operation | callers | calls/s | p50 | p95 | worst |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for name, (env, workers) in databases.items():
        with running(
            home / name.replace(" ", "-").replace(",", ""), env=env, workers=workers, arguments=("--no-demo",)
        ) as server:
            port = int(server.url.rpartition(":")[2])
            board_key = seeded(server.home, "board", BOARD_TASKS, extra=env)
            for callers in CALLERS:
                made = _create(server, port, callers, seeded(server.home, f"create-{callers}", 0, extra=env))
                lines.append(_row(name, "create", callers, made))
            for callers in CALLERS:
                key = seeded(server.home, f"claim-{callers}", 2500, extra=env)
                claims, whole = asyncio.run(_claims(port, key, callers))
                lines.append(_row(name, "claim", callers, claims))
                lines.append(_row(name, "claim + finish", callers, whole))
            for callers in CALLERS:
                request = mcp_request("/mcp", port, MODERN, "get_kanban_board", {}, _headers(board_key, "reader"))
                board = asyncio.run(hammer(port, request, callers=callers, seconds=SECONDS, expect=b'"columns"'))
                lines.append(_row(name, "board", callers, board))
    return "\n".join(lines)


def _headers(key: str, agent: str) -> dict[str, str]:
    return {"X-API-Key": key, "X-Agent-Id": agent}


def _row(database: str, operation: str, callers: int, measured: Figures) -> str:
    return (
        f"| {database} | {operation} | {callers} | {measured.per_second:.0f} | {measured.p50} | {measured.p95} | "
        f"{measured.worst} |"
    )


def _create(server: RunningServer, port: int, callers: int, key: str) -> Figures:
    arguments = {"description": "Measure this.\n\nWith a second paragraph.", "phase_id": 1, "tags": ["bench"]}
    request = mcp_request("/mcp", port, MODERN, "create_task", arguments, _headers(key, "creator"))
    return asyncio.run(hammer(port, request, callers=callers, seconds=SECONDS, expect=b'"task_id"'))


async def _claims(port: int, key: str, callers: int) -> tuple[Figures, Figures]:
    claim_times: list[float] = []
    pair_times: list[float] = []
    end = time.perf_counter() + SECONDS

    async def agent(number: int) -> None:
        client = await Client(port).open()
        headers = _headers(key, f"agent-{number}")
        claim = mcp_request("/mcp", port, MODERN, "claim_task", {"phase_id": 1}, headers)
        while (start := time.perf_counter()) < end:
            task = _content(await client.send(claim))
            claim_times.append(time.perf_counter() - start)
            if "id" not in task:
                raise RuntimeError(f"the tasks ran out: {task}")
            done = {"task_id": task["id"], "status": "done", "lease_token": task["lease_token"]}
            _content(await client.send(mcp_request("/mcp", port, MODERN, "update_task_status", done, headers)))
            pair_times.append(time.perf_counter() - start)
        client.close()

    began = time.perf_counter()
    await asyncio.gather(*(agent(number) for number in range(callers)))
    elapsed = time.perf_counter() - began
    return figures(claim_times, elapsed), figures(pair_times, elapsed)


def _content(answer: tuple[int, bytes]) -> dict[str, Any]:
    status, body = answer
    result = json.loads(body)["result"] if status == 200 else {}
    if result.get("isError", True):
        raise RuntimeError(f"unexpected answer {status}: {body[:300]!r}")
    content: dict[str, Any] = result["structuredContent"]
    return content
