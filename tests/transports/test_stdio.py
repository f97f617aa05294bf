"""`devflow mcp` as real processes, with the official client."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError

from devflow import owner
from devflow.config import PROJECT_ROOT
from tests.running import RunningServer, environment, running

WAIT = 40
MCP = ["-m", "devflow", "mcp"]


@asynccontextmanager
async def stdio(home: Path, log: Path, *, mode: str = "legacy", **env: str) -> AsyncIterator[Client]:
    """A client of its own `devflow mcp` process with the data directory `home`."""
    parameters = StdioServerParameters(
        command=sys.executable, args=MCP, env=environment(home, env), cwd=str(PROJECT_ROOT)
    )
    with log.open("a") as errors:
        async with Client(stdio_client(parameters, errlog=errors), mode=mode, read_timeout_seconds=WAIT) as client:
            yield client


async def create(client: Client, count: int = 1) -> None:
    for number in range(count):
        made = await client.call_tool("create_task", {"description": f"Task {number}", "phase_id": 1})
        assert not made.is_error, made


async def claim(client: Client) -> dict[str, Any]:
    answer = await client.call_tool("claim_task", {"phase_id": 1})
    assert not answer.is_error, answer
    claimed: dict[str, Any] = answer.structured_content
    return claimed


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "stderr"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("stdio") / "home") as served:
        yield served


def run_mcp(home: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *MCP],
        env=environment(home, env),
        cwd=PROJECT_ROOT,
        input="",
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )


def test_a_missing_key_is_one_clear_line(home: Path) -> None:
    done = run_mcp(home, DEVFLOW_API_URL="http://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "DEVFLOW_API_KEY" in done.stderr


def test_switched_off_it_says_so(home: Path) -> None:
    done = run_mcp(home, DEVFLOW_STDIO_ENABLED="false")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "stdio_enabled" in done.stderr


def test_nobody_at_the_address_is_one_clear_line(home: Path) -> None:
    done = run_mcp(home, DEVFLOW_API_URL="http://127.0.0.1:1", DEVFLOW_API_KEY="dvf_x")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "devflow: http://127.0.0.1:1 cannot be reached; is DevFlow running there?\n"


def test_a_refused_key_is_one_clear_line(server: RunningServer, home: Path) -> None:
    done = run_mcp(home, DEVFLOW_API_URL=server.url, DEVFLOW_API_KEY="dvf_x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "DEVFLOW_API_KEY" in done.stderr


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_it_bridges_to_a_running_server(server: RunningServer, home: Path, log: Path, mode: str) -> None:
    async with stdio(home, log, mode=mode, DEVFLOW_API_URL=server.url, DEVFLOW_API_KEY=server.key) as client:
        assert "claim_task" in {tool.name for tool in (await client.list_tools()).tools}
        await create(client)
        assert (await claim(client))["lease_token"]
        with pytest.raises(MCPError):
            await client.call_tool("no_such_tool")
    assert not home.exists() or not (home / "owner.lock").exists(), "the local data directory is left alone"


async def test_it_bridges_to_whoever_serves_the_data_directory(server: RunningServer, log: Path) -> None:
    async with stdio(server.home, log, DEVFLOW_AGENT_ID="alice") as client:
        status = await client.call_tool("heartbeat")
        assert not status.is_error
        found = await client.call_tool("get_agent_status")
        assert "alice" in json.dumps(found.structured_content)


def test_what_is_no_json_gets_a_parse_error(server: RunningServer, home: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, *MCP],
        env=environment(home, {"DEVFLOW_API_URL": server.url, "DEVFLOW_API_KEY": server.key}),
        cwd=PROJECT_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin
        assert process.stdout
        process.stdin.write("no json\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["error"]["code"] == -32700
        process.stdin.close()
        assert process.wait(WAIT) == 0


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_sessions_survive_the_death_of_the_owner(home: Path, log: Path, mode: str) -> None:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(stdio(home, log, mode=mode)) for _ in range(3)]
        first = owner.read_published(home)
        assert first is not None
        assert (home / "owner.json").stat().st_mode & 0o777 == 0o600
        await create(clients[0], 3)
        claimed = [await claim(client) for client in clients]
        assert len({task["id"] for task in claimed}) == 3, "three agents, three tasks"

        os.kill(first.pid, signal.SIGKILL)

        for client, task in list(zip(clients, claimed, strict=True))[1:]:
            again = await _until_answered(client)
            assert again["id"] == task["id"], "what was claimed before is still held"
            done = {"task_id": task["id"], "status": "done", "lease_token": task["lease_token"]}
            assert not (await client.call_tool("update_task_status", done)).is_error
        second = owner.read_published(home)
        assert second is not None
        assert second.pid != first.pid
        newcomer = await stack.enter_async_context(stdio(home, log, mode=mode))
        assert (await newcomer.call_tool("heartbeat")).is_error is False
        assert owner.read_published(home) == second, "exactly one owner"
        with pytest.raises((MCPError, BaseExceptionGroup, OSError)):
            await asyncio.wait_for(clients[0].call_tool("heartbeat"), 5)


async def _until_answered(client: Client) -> dict[str, Any]:
    """The first call may have been under way when the server died: it is told so, and asks again."""
    try:
        return await claim(client)
    except MCPError as exc:
        assert "went away" in str(exc)
        return await claim(client)
