"""Bad input through every door: told what to do in the door's own dialect, nothing changed, the server unharmed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.acceptance.agents import WAIT
from tests.acceptance.rows import dump
from tests.acceptance.wires import DOORS, Answer, ExecuteWire, Wire, wire
from tests.running import RunningServer

PROTOCOL = "protocol"


@dataclass(frozen=True)
class Scene:
    """Rows to aim at: in the caller's project a ready task, one somebody holds; in another project a task."""

    project: str
    ready: str
    held: str
    foreign: str


def made(posts: ExecuteWire, tool: str, args: dict[str, Any]) -> dict[str, Any]:
    answer = posts.send("/mcp/execute", {"tool": tool, "args": args}).json()
    assert answer["error"] is None, answer
    result: dict[str, Any] = answer["result"]
    return result


@pytest.fixture(scope="module")
def scene(live_server_process: RunningServer, projects: Iterator[str]) -> Scene:
    ours, theirs = next(projects), next(projects)
    with httpx.Client(base_url=live_server_process.url, timeout=WAIT) as http:
        here = ExecuteWire(live_server_process, "holder", ours, http)
        there = ExecuteWire(live_server_process, "holder", theirs, http)
        held = made(here, "create_task", {"description": "Held", "phase_id": 2})["task_id"]
        assert made(here, "claim_task", {"phase_id": 2})["id"] == held
        ready = made(here, "create_task", {"description": "Ready", "phase_id": 2})["task_id"]
        foreign = made(there, "create_task", {"description": "Foreign", "phase_id": 2})["task_id"]
    return Scene(ours, ready, held, foreign)


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"deeper": value}
    return value


def task(**more: Any) -> dict[str, Any]:
    return {"description": "Bad", "phase_id": 2, **more}


def bad_calls(scene: Scene) -> dict[str, tuple[str, Any, set[str]]]:
    """What is wrong: the tool, its arguments, and the codes a door may answer with."""
    invalid = {"invalid_input"}
    return {
        "unknown tool": ("no_such_tool", {}, {"not_found"}),
        "unknown argument": ("create_task", task(colour="red"), invalid),
        "missing argument": ("create_task", {"phase_id": 2}, invalid),
        "a number for a text": ("create_task", task(description=5), invalid),
        "a text for a number": ("create_task", task(phase_id="2"), invalid),
        "a boolean for a number": ("create_task", task(phase_id=True), invalid),
        "a word outside the list": ("create_task", task(priority="urgent"), invalid),
        "arguments that are a list": ("create_task", [1], {*invalid, PROTOCOL}),
        "an empty text": ("create_task", task(description=""), invalid),
        "100,001 characters": ("create_task", task(description="x" * 100_001), {"too_large"}),
        "NUL": ("create_task", task(description="a\x00b"), invalid),
        "a lone surrogate": ("create_task", task(description="\ud800"), {*invalid, PROTOCOL}),
        "nested 40 deep": ("create_task", task(metadata=nested(40)), invalid),
        "nested 900 deep": ("create_task", task(metadata=nested(900)), {*invalid, PROTOCOL}),
        "too many values": ("create_task", task(metadata={"list": [0] * 20_001}), {"too_large"}),
        "a huge number": ("create_task", task(phase_id=10**30), invalid),
        "a huge number inside": ("create_task", task(metadata={"n": 10**400}), {*invalid, PROTOCOL}),
        "infinity": ("create_task", task(metadata={"n": float("inf")}), {*invalid, PROTOCOL}),
        "an unknown phase": ("create_task", task(phase_id=99), {"not_found"}),
        "an unknown task": ("update_task_status", {"task_id": "task-999999", "status": "done"}, {"not_found"}),
        "another project's task": ("update_task_status", {"task_id": scene.foreign, "status": "done"}, {"not_found"}),
        "another project's blocker": ("create_task", task(blocked_by=[scene.foreign]), {"not_found"}),
        "an unknown agent": ("send_message_to_agent", {"agent_id": "nobody", "message": "Hi"}, {"not_found"}),
        "a stale lease": (
            "update_task_status",
            {"task_id": scene.held, "status": "done", "lease_token": "stale"},
            {"conflict"},
        ),
        "somebody else's task": ("update_task_status", {"task_id": scene.held, "status": "in_progress"}, {"conflict"}),
        "an illegal move": ("review_task", {"task_id": scene.ready, "decision": "approve"}, {"conflict"}),
        "nothing to undo": ("undo_move", {"task_id": scene.ready}, {"conflict"}),
    }


def check(opened: Wire, server: RunningServer, what: str, tool: str, args: Any, codes: set[str]) -> None:
    before = dump(server)
    answer = opened.call(tool, args)
    assert answer.code in codes, f"{what}: {answer}"
    assert answer.message, what
    assert answer.advice or answer.code == PROTOCOL, f"{what}: {answer} does not say what to do"
    assert dump(server) == before, f"{what} changed something"


@pytest.mark.parametrize("door", DOORS)
def test_bad_calls_are_refused_with_what_to_do(door: str, live_server_process: RunningServer, scene: Scene) -> None:
    with wire(door, live_server_process, f"bad-{door}", scene.project) as opened:
        assert opened.call("get_tasks", {}) == Answer("ok", "")
        for what, (tool, args, codes) in bad_calls(scene).items():
            check(opened, live_server_process, what, tool, args, codes)
        assert opened.call("get_tasks", {}) == Answer("ok", "")


def test_a_cycle_is_refused_and_named(
    live_server_process: RunningServer, scene: Scene, projects: Iterator[str]
) -> None:
    server, project = live_server_process, next(projects)
    with httpx.Client(base_url=server.url, timeout=WAIT) as http:
        posts = ExecuteWire(server, "planner", project, http)
        one = made(posts, "create_task", task())["task_id"]
        two = made(posts, "create_task", task(blocked_by=[one]))["task_id"]
        before = dump(server)
        refused = posts.send("/api/v1/dependencies/", {"task": one, "blocker": two})
        assert refused.status_code == 409, refused.text
        assert refused.headers["content-type"] == "application/problem+json"
        assert one in refused.text
        assert two in refused.text
        assert dump(server) == before
