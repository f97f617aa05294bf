"""The end-to-end flow of the PRD with two agents, written once for every door."""

import asyncio
import time
from typing import Any

from tests.acceptance.agents import WAIT, Agent

PHASE = 1
"""A phase that requires review, in the project the scenario is given."""


async def column_of(agent: Agent) -> dict[str, str]:
    """The board as this agent sees it: the column of each task; the numbers above it agree with the cards."""
    board = await agent.call("get_kanban_board", {})
    cards = {card["id"]: column for column, cards in board["columns"].items() for card in cards}
    assert board["stats"]["columns"] == {column: len(cards) for column, cards in board["columns"].items()}
    assert board["stats"]["total_tasks"] == len(cards)
    assert board["stats"]["blocked"] == sum(card["blocked"] for cards in board["columns"].values() for card in cards)
    return cards


async def two_agents_work_a_board(ann: Agent, bob: Agent, *, project: str) -> None:
    """Create with blockers, claim, message, note, review, done, unblock, board, undo."""
    for agent in (ann, bob):
        assert (await agent.call("set_project", {"project": project}))["project"] == project

    made = await ann.call("create_task", {"description": "Find the cause", "phase_id": PHASE, "priority": "high"})
    first = made["task_id"]
    assert (made["status"], made["kanban_column"], made["blocked_by"]) == ("ready", "ready", [])
    made = await ann.call("create_task", {"description": "Fix it", "phase_id": PHASE, "blocked_by": [first]})
    second = made["task_id"]
    assert (made["status"], made["kanban_column"], made["blocked_by"]) == ("pending", "backlog", [first])
    assert await column_of(bob) == {first: "ready", second: "backlog"}

    claimed = await bob.call("claim_task", {"phase_id": PHASE})
    assert (claimed["id"], claimed["description"], claimed["resumed"]) == (first, "Find the cause", False)
    assert (claimed["created_by"], claimed["phase_id"], claimed["priority"]) == (ann.name, PHASE, "high")
    nothing = await ann.call("claim_task", {"phase_id": PHASE})
    assert (nothing["task"], nothing["reason"]) == (None, "all_blocked")
    assert await column_of(ann) == {first: "in_progress", second: "backlog"}

    sent = await bob.call("send_message_to_agent", {"agent_id": ann.name, "message": "Do you know the log?"})
    assert (sent["status"], sent["recipients"]) == ("delivered", [ann.name])
    inbox = await ann.call("get_messages", {})
    assert [(mail["from"], mail["message"]) for mail in inbox["messages"]] == [(bob.name, "Do you know the log?")]
    assert inbox["unread"] == 1
    assert (await ann.call("ack_message", {}))["unread"] == 0

    noted = await bob.call("add_task_note", {"task_id": first, "note": "The log ends at noon."})
    assert noted["task_id"] == first

    finished = {"task_id": first, "status": "done", "result": "A full disk.", "lease_token": claimed["lease_token"]}
    moved = await bob.call("update_task_status", finished)
    assert (moved["status"], moved["completed_at"], moved["unblocked_tasks"]) == ("review", None, [])
    assert await column_of(bob) == {first: "review", second: "backlog"}

    approved = await ann.call("review_task", {"task_id": first, "decision": "approve", "feedback": "Well found."})
    assert (approved["status"], approved["unblocked_tasks"]) == ("done", [second])
    assert approved["completed_at"] is not None
    assert await column_of(bob) == {first: "done", second: "ready"}

    claimed = await bob.call("claim_task", {"phase_id": PHASE})
    assert (claimed["id"], claimed["resumed"]) == (second, False)
    assert await column_of(ann) == {first: "done", second: "in_progress"}
    undone = await bob.call("undo_move", {"task_id": second})
    assert undone["status"] == "ready"
    assert await column_of(ann) == {first: "done", second: "ready"}

    seen = await both_seen(ann, bob)
    assert all(state["task_id"] is None and state["status"] == "idle" for state in seen)


async def both_seen(ann: Agent, bob: Agent) -> list[dict[str, Any]]:
    """Both agents' states once the server says what each did last; reads are written down a moment after the call."""
    deadline = time.monotonic() + WAIT
    while True:
        states = {state["id"]: state for state in (await ann.call("get_agent_status", {}))["agents"]}
        assert states.keys() == {ann.name, bob.name}
        if all(states[agent.name]["last_action"] for agent in (ann, bob)):
            return list(states.values())
        assert time.monotonic() < deadline, states
        await asyncio.sleep(0.05)
