"""Two agents work a board together through every door, with real clients against a real server."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.acceptance.agents import (
    HTTP_DOORS,
    PROCESS_DOORS,
    Args,
    Checked,
    RestAgent,
    over_rest,
    over_sse,
    over_stdio,
)
from tests.acceptance.conftest import make_projects
from tests.acceptance.scenario import two_agents_work_a_board
from tests.running import RunningServer, running

on_uvicorn = pytest.mark.parametrize("live_server_process", ["uvicorn"], indirect=True)


@pytest.mark.parametrize("door", HTTP_DOORS)
async def test_two_agents_work_a_board(door: str, live_server_process: RunningServer, project: str) -> None:
    enter = HTTP_DOORS[door]
    async with (
        enter(live_server_process, f"ann-{project}") as ann,
        enter(live_server_process, f"bob-{project}") as bob,
    ):
        await two_agents_work_a_board(Checked(ann), Checked(bob), project=project)


async def test_agents_behind_different_doors_work_the_same_board(
    live_server_process: RunningServer, project: str
) -> None:
    async with (
        over_sse("legacy")(live_server_process, f"ann-{project}") as ann,
        over_rest(live_server_process, f"bob-{project}") as bob,
    ):
        await two_agents_work_a_board(Checked(ann), Checked(bob), project=project)


@on_uvicorn
@pytest.mark.slow
@pytest.mark.parametrize("door", PROCESS_DOORS)
async def test_two_agents_with_processes_of_their_own_work_a_board(
    door: str, live_server_process: RunningServer, project: str
) -> None:
    enter = PROCESS_DOORS[door]
    async with (
        enter(live_server_process, f"ann-{project}") as ann,
        enter(live_server_process, f"bob-{project}") as bob,
    ):
        await two_agents_work_a_board(Checked(ann), Checked(bob), project=project)


@pytest.fixture(scope="module")
def home_nobody_serves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("stdio") / "home"
    with running(home) as server:
        make_projects(server, "local-", 1)
    return home


@pytest.mark.slow
async def test_two_agents_on_stdio_work_the_board_of_a_data_directory(home_nobody_serves: Path) -> None:
    async with AsyncExitStack() as stack:
        ann, bob = [await stack.enter_async_context(over_stdio(home_nobody_serves, name)) for name in ("ann", "bob")]
        await two_agents_work_a_board(Checked(ann), Checked(bob), project="local-0")


async def test_two_agents_work_a_board_in_a_few_batches(live_server_process: RunningServer, project: str) -> None:
    """Each agent sends in one list whatever needs no answer of the other first."""
    async with (
        over_rest(live_server_process, f"ann-{project}") as ann,
        over_rest(live_server_process, f"bob-{project}") as bob,
    ):
        await _in_batches(ann, bob, project)


async def _in_batches(ann: RestAgent, bob: RestAgent, project: str) -> None:
    board: tuple[str, Args] = ("get_kanban_board", {})
    (_, first, _) = await ann.batch(
        ("set_project", {"project": project}),
        ("create_task", {"description": "Find the cause", "phase_id": 1}),
        board,
    )
    one = first["task_id"]
    (second, seen) = await ann.batch(
        ("create_task", {"description": "Fix it", "phase_id": 1, "blocked_by": [one]}), board
    )
    two = second["task_id"]
    assert ids(seen) == {"ready": [one], "backlog": [two]}
    (_, claimed, sent, noted, done, seen) = await bob.batch(
        ("set_project", {"project": project}),
        ("claim_task", {"phase_id": 1}),
        ("send_message_to_agent", {"agent_id": ann.name, "message": "It was the disk."}),
        ("add_task_note", {"task_id": one, "note": "The log ends at noon."}),
        ("update_task_status", {"task_id": one, "status": "done", "result": "A full disk."}),
        board,
    )
    assert (claimed["id"], sent["status"], noted["task_id"], done["status"]) == (one, "delivered", one, "review")
    assert ids(seen) == {"review": [one], "backlog": [two]}
    (inbox, acknowledged, approved, seen) = await ann.batch(
        ("get_messages", {}),
        ("ack_message", {}),
        ("review_task", {"task_id": one, "decision": "approve"}),
        board,
    )
    assert (inbox["unread"], acknowledged["unread"], approved["unblocked_tasks"]) == (1, 0, [two])
    assert ids(seen) == {"done": [one], "ready": [two]}
    (claimed, undone, seen) = await bob.batch(("claim_task", {"phase_id": 1}), ("undo_move", {"task_id": two}), board)
    assert (claimed["id"], undone["status"]) == (two, "ready")
    assert ids(seen) == {"done": [one], "ready": [two]}


def ids(board: dict[str, dict[str, list[dict[str, str]]]]) -> dict[str, list[str]]:
    return {column: [card["id"] for card in cards] for column, cards in board["columns"].items() if cards}
