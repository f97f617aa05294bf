"""64 agents, 2,000 tasks with dependencies, over HTTP: each is claimed exactly once and none is lost."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from bench.load import Client, http_request
from tests.running import RunningServer, running
from tests.servers import RedisServer
from tests.stress.history import Claimed, Finished, faults

pytestmark = pytest.mark.slow

CLAIMERS, TASKS, FEWER = 64, 2000, 500
PATIENCE = 240.0


@dataclass
class Run:
    """64 agents at work against one server; survives the server's death as long as `port` comes back."""

    key: str
    port: int
    blockers: dict[str, list[str]]
    claims: list[Claimed] = field(default_factory=list)
    ends: list[Finished] = field(default_factory=list)
    answered: int = 0

    async def call(self, client: Client | None, agent: str, tool: str, args: Mapping[str, Any]) -> tuple[Client, Any]:
        """One call through /mcp/execute, repeated until it is answered.

        No idempotency key: a claim asked for again is the same claim, and so is a finish with the same lease.
        """
        headers = {"X-API-Key": self.key, "X-Agent-Id": agent}
        body = json.dumps({"tool": tool, "args": dict(args), "request_id": "1"})
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                if client is None:
                    client = await Client(self.port).open()
                request = http_request("POST", "/mcp/execute", self.port, headers, body)
                status, raw = await asyncio.wait_for(client.send(request), 30)
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                if client is not None:
                    client.close()
                client = None
                await asyncio.sleep(0.1)
                continue
            if status in (502, 503):
                await asyncio.sleep(0.1)
                continue
            assert status == 200, (status, raw[:500])
            self.answered += 1
            return client, json.loads(raw)["result"]
        raise AssertionError(f"{agent} waited {PATIENCE} s for {tool}")

    async def agent(self, name: str) -> None:
        client: Client | None = None
        end = time.monotonic() + PATIENCE
        while len(self.ends) < len(self.blockers):
            assert time.monotonic() < end, f"{len(self.blockers) - len(self.ends)} tasks were never finished"
            asked = time.monotonic()
            client, task = await self.call(client, name, "claim_task", {"phase_id": 1})
            if task is None:
                await asyncio.sleep(0.5)
                continue
            self.claims.append(Claimed(name, task["id"], task["lease_token"], asked, time.monotonic()))
            asked = time.monotonic()
            done = {"task_id": task["id"], "status": "done", "lease_token": task["lease_token"]}
            client, _ = await self.call(client, name, "update_task_status", done)
            self.ends.append(Finished(name, task["id"], asked, time.monotonic()))
        if client is not None:
            client.close()

    def play(self, meanwhile: Callable[["Run"], None] | None = None) -> None:
        async def everybody() -> None:
            disturbed = asyncio.create_task(asyncio.to_thread(meanwhile, self)) if meanwhile else None
            await asyncio.gather(*(self.agent(f"agent-{number}") for number in range(CLAIMERS)))
            if disturbed is not None:
                await disturbed

        asyncio.run(everybody())
        assert faults(self.claims, self.ends, self.blockers) == []


def prepared(server: RunningServer, tasks: int = TASKS) -> Run:
    """A project of tasks; every third waits for up to three earlier ones (the same graph each time)."""
    made = server.run_python(
        f"""
import json, random
from django.db import transaction
from mcpbridge.models import ApiKey
from workflow.services import projects, tasks
from devflow.actors import SYSTEM
chance = random.Random(7)
project = projects.create(slug="race")
blockers = {{}}
with transaction.atomic():
    for number in range({tasks}):
        earlier = list(blockers)
        waits = chance.sample(earlier, min(len(earlier), chance.randint(1, 3))) if number % 3 == 2 else []
        task = tasks.create(project_id=project.pk, phase_number=1, description=f"Task {{number}}",
                            blocked_by=waits, actor=SYSTEM)
        blockers[task.public_id] = waits
key, raw = ApiKey.objects.issue(name="race", scopes=["read", "write"], project_id=project.pk, rate_per_minute=0)
print(json.dumps({{"key": raw, "blockers": blockers}}))
"""
    )
    said = json.loads(made.splitlines()[-1])
    return Run(said["key"], int(server.url.rpartition(":")[2]), said["blockers"])


def after(share: float, run: Run) -> None:
    """Return once that share of the tasks is finished."""
    end = time.monotonic() + PATIENCE
    while len(run.ends) < share * len(run.blockers) and time.monotonic() < end:
        time.sleep(0.02)


def test_on_sqlite_with_one_process(tmp_path: Path) -> None:
    with running(tmp_path / "home", arguments=("--no-demo",)) as server:
        prepared(server).play()


@pytest.mark.postgres
@pytest.mark.redis
@pytest.mark.parametrize("workers", [1, 4])
def test_on_postgresql(tmp_path: Path, postgres_url: str, redis_server: RedisServer, workers: int) -> None:
    env = {"DEVFLOW_DATABASE_URL": postgres_url, "DEVFLOW_REDIS_URL": redis_server.url}
    with running(tmp_path / "home", env=env, workers=workers, arguments=("--no-demo",)) as server:
        prepared(server).play()


@pytest.mark.postgres
@pytest.mark.redis
def test_a_killed_worker_changes_nothing(tmp_path: Path, postgres_url: str, redis_server: RedisServer) -> None:
    env = {"DEVFLOW_DATABASE_URL": postgres_url, "DEVFLOW_REDIS_URL": redis_server.url}
    with running(tmp_path / "home", env=env, workers=4, arguments=("--no-demo",)) as server:
        run = prepared(server, FEWER)

        def kill(run: Run) -> None:
            for share in (0.2, 0.5):
                after(share, run)
                server.kill_a_worker()

        run.play(kill)


def test_a_killed_server_that_comes_back_changes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running(home, arguments=("--no-demo",)) as first:
        run = prepared(first, FEWER)

        def kill(run: Run) -> None:
            after(0.3, run)
            first.kill()
            second = stack.enter_context(running(home, arguments=("--no-demo",)))
            run.port = int(second.url.rpartition(":")[2])

        from contextlib import ExitStack

        with ExitStack() as stack:
            run.play(kill)


@pytest.mark.django_db(transaction=True)
def test_the_naive_claim_fails_the_same_checker() -> None:
    """Read the first ready task, then save it: what everybody writes first."""
    from devflow.actors import SYSTEM
    from workflow.models import Task
    from workflow.services import projects, tasks

    project = projects.create(slug="naive")
    blockers: dict[str, list[str]] = {
        tasks.create(project_id=project.pk, phase_number=1, description=f"Task {number}", actor=SYSTEM).public_id: []
        for number in range(100)
    }
    claims: list[Claimed] = []
    together = threading.Barrier(8)

    def claim(agent: str) -> None:
        together.wait(10)
        while (task := Task.objects.filter(project=project, status="ready").order_by("pk").first()) is not None:
            asked = time.monotonic()
            Task.objects.filter(pk=task.pk).update(status="in_progress")
            claims.append(Claimed(agent, task.public_id, agent, asked, time.monotonic()))
        connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(claim, [f"agent-{number}" for number in range(8)]))
    ends = [Finished(claim.agent, claim.task, claim.asked, claim.answered) for claim in claims]
    assert any("was claimed" in fault and "times" in fault for fault in faults(claims, ends, blockers))
