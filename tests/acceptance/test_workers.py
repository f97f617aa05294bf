"""The scale profile: four worker processes over PostgreSQL and Redis, any of which takes any request."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.acceptance.agents import HTTP_DOORS, Agent, Checked, over_batch, over_http, over_rest, over_sse
from tests.acceptance.conftest import make_projects
from tests.acceptance.scenario import two_agents_work_a_board
from tests.conftest import StartServer
from tests.running import RunningServer

pytestmark = [pytest.mark.postgres, pytest.mark.redis, pytest.mark.slow]

TASKS = 24
DOORS = (over_sse("legacy"), over_http("legacy"), over_http("2026-07-28"), over_rest)


@pytest.fixture
def workers(start_server: StartServer, postgres_url: str, redis_url: str) -> Iterator[RunningServer]:
    yield start_server(workers=4, env={"DEVFLOW_DATABASE_URL": postgres_url, "DEVFLOW_REDIS_URL": redis_url})


async def test_agents_of_every_door_work_over_four_workers(workers: RunningServer) -> None:
    """An SSE stream lives in one worker and its POSTs land on any; so do the calls of every other door."""
    slugs = make_projects(workers, "work-", len(HTTP_DOORS) + 1)
    for slug, (name, enter) in zip(slugs, HTTP_DOORS.items(), strict=False):
        async with enter(workers, f"ann-{name}") as ann, enter(workers, f"bob-{name}") as bob:
            await two_agents_work_a_board(Checked(ann), Checked(bob), project=slug)

    async with AsyncExitStack() as stack:
        boss = await stack.enter_async_context(over_batch(workers, "boss"))
        agents: list[Agent] = [
            await stack.enter_async_context(enter(workers, f"agent-{number}-{run}"))
            for run in range(2)
            for number, enter in enumerate(DOORS)
        ]
        for agent in (boss, *agents):
            await agent.call("set_project", {"project": slugs[-1]})
        made = await boss.batch(*[("create_task", {"description": str(n), "phase_id": 2}) for n in range(TASKS)])
        finished = await asyncio.gather(*(until_nothing_is_left(agent) for agent in agents))
        board = await boss.call("get_kanban_board", {})
    assert sorted(task for tasks in finished for task in tasks) == sorted(task["task_id"] for task in made)
    assert board["stats"]["done"] == TASKS


async def until_nothing_is_left(agent: Agent) -> list[Any]:
    """Claim and close until there is nothing; gives the ids of what this agent did."""
    done = []
    while (claimed := await agent.call("claim_task", {"phase_id": 2})).get("id"):
        assert claimed["resumed"] is False
        closing = {"task_id": claimed["id"], "status": "done", "lease_token": claimed["lease_token"]}
        assert (await agent.call("update_task_status", closing))["status"] == "done"
        done.append(claimed["id"])
    return done
