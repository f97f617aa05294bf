"""What happens to a served DevFlow when the parts it shares with other workers come and go."""

import asyncio
import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.running import RunningServer, running
from tests.servers import RedisServer

pytestmark = [pytest.mark.slow, pytest.mark.postgres, pytest.mark.redis]


@pytest.fixture(scope="module")
def scaled(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: str, redis_server: RedisServer
) -> Iterator[RunningServer]:
    """Two workers on PostgreSQL and Redis."""
    env = {"DEVFLOW_DATABASE_URL": postgres_server, "DEVFLOW_REDIS_URL": redis_server.url}
    with running(tmp_path_factory.mktemp("scaled") / "home", env=env, workers=2) as server:
        yield server


def call(server: RunningServer, key: str, tool: str, **args: Any) -> httpx.Response:
    return httpx.post(
        f"{server.url}/mcp/execute",
        json={"tool": tool, "args": args},
        headers={"X-API-Key": key, "X-Agent-Id": "tester", "X-Project": "demo"},
        timeout=30,
    )


def test_a_limit_holds_over_all_workers_and_transports_whatever_the_burst(scaled: RunningServer) -> None:
    """At most 120 in 60 s, with parallel callers, both workers, and forged addresses."""
    key = scaled.create_key("limited")["key"]

    async def burst() -> list[int]:
        async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=32)) as client:

            async def one(number: int) -> int:
                headers = {"X-API-Key": key, "X-Project": "demo", "X-Forwarded-For": f"10.0.0.{number % 250}"}
                body = {"tool": "get_phase_info", "args": {"phase_id": 1}}
                answer = await client.post(f"{scaled.url}/mcp/execute", json=body, headers=headers)
                assert answer.status_code == 200 or answer.headers["retry-after"]
                return answer.status_code

            return await asyncio.gather(*(one(number) for number in range(1000)))

    began = time.monotonic()
    codes = asyncio.run(burst())
    assert time.monotonic() - began < 60, "the burst did not fit into one window"
    assert (codes.count(200), codes.count(429)) == (120, 880)


def test_events_reach_pages_again_after_redis_was_away(scaled: RunningServer, redis_server: RedisServer) -> None:
    heard = threading.Event()
    listening = threading.Event()
    stop = threading.Event()

    def listen() -> None:
        with httpx.Client(timeout=60) as browser:
            log_in(browser, scaled)
            cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        address = f"{scaled.url.replace('http', 'ws', 1)}/ws/demo/"
        with connect(address, origin=scaled.url, additional_headers={"Cookie": cookies}) as line:
            while not stop.is_set():
                try:
                    message = json.loads(line.recv(1))
                except TimeoutError:
                    continue
                listening.set()
                if message.get("changes") or message.get("reload"):
                    heard.set()

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    assert listening.wait(30)
    redis_server.stop()
    assert call(scaled, scaled.key, "get_phase_info", phase_id=1).status_code in (200, 503)
    redis_server.start()
    back = time.monotonic()
    while not heard.wait(0.2):
        assert time.monotonic() - back < 30
        call(scaled, scaled.key, "create_task", description="After the restart", phase_id=1)
    stop.set()
    listener.join(20)
    assert not listener.is_alive()


def log_in(browser: httpx.Client, server: RunningServer) -> None:
    server.run_python(
        "from django.contrib.auth.models import User\n"
        "user, _ = User.objects.get_or_create(username='watcher', is_superuser=True)\n"
        "user.set_password('watching-closely'); user.save()"
    )
    page = browser.get(f"{server.url}/login/")
    token = next(value for name, value in page.cookies.items() if "csrf" in name)
    answer = browser.post(
        f"{server.url}/login/",
        data={"username": "watcher", "password": "watching-closely", "csrfmiddlewaretoken": token},
        headers={"Referer": f"{server.url}/login/"},
    )
    assert answer.status_code == 302, answer.text[:500]


@pytest.mark.parametrize("workers", [1])
def test_sigterm_lets_calls_finish_and_loses_no_acknowledged_write(tmp_path: Path, workers: int) -> None:
    """Writers at work while the server is told to stop: what was answered is there afterwards."""
    home = tmp_path / "home"
    acknowledged: list[str] = []
    with running(home, workers=workers) as server:
        key = server.key
        going = threading.Event()

        def write() -> None:
            with httpx.Client(headers={"X-API-Key": key, "X-Project": "demo"}, timeout=30) as client:
                while True:
                    try:
                        body = {"tool": "create_task", "args": {"description": "While stopping", "phase_id": 1}}
                        answer = client.post(f"{server.url}/mcp/execute", json=body)
                    except httpx.TransportError:
                        return
                    if answer.status_code == 200:
                        acknowledged.append(answer.json()["result"]["task_id"])
                        if len(acknowledged) > 20:
                            going.set()

        writers = [threading.Thread(target=write) for _ in range(4)]
        for writer in writers:
            writer.start()
        assert going.wait(30)
        assert server.stop(signal.SIGTERM) == 0
        for writer in writers:
            writer.join(30)
    with running(home) as again:
        kept = again.run_python("from workflow.models import Task; print(*Task.objects.values_list('pk', flat=True))")
    assert {task.removeprefix("task-") for task in acknowledged} <= set(kept.split())
