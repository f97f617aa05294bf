"""Calls through an agent's command line: one server, one call, and JSON whatever the command prints."""

import asyncio
import json
import time
from typing import Any

import pytest

from devflow import config
from devflow.config import PROJECT_ROOT
from devflow.errors import DevFlowError
from devflow.sealing import seal
from mcpbridge.gateway import discovery
from mcpbridge.gateway.agent_cli import MAX_PROMPT, as_result
from mcpbridge.gateway.catalog import SEALED, catalog
from mcpbridge.models import Action, Backend
from tests.gateway.conftest import Execute
from tests.gateway.faulty import faulty, nothing_is_left, survivors
from tests.mcpbridge.conftest import in_thread

SCRIPT = str(PROJECT_ROOT / "tests" / "fakes" / "agent_cli.py")
SECRET = "sk-very-secret"


async def agent(mode: str, **fields: Any) -> None:
    """`agent.echo`, `agent.act` and `agent.change` through a command line that prints as `mode` says."""
    await faulty("healthy")
    sealed = await asyncio.to_thread(seal, json.dumps({"TOKEN": SECRET}), purpose=SEALED)
    given = {"args": [SCRIPT, mode, "{config}", "{prompt}"], "wraps": "healthy", "sealed_env": sealed, **fields}
    await faulty(mode, identifier="agent", transport="agent_cli", **given)


def said(text: str) -> dict[str, Any]:
    return {"intent": "QUERY", "action": "agent.echo", "params": {"text": text}}


async def left_nothing() -> bool:
    return not list(config.home().glob("children/*")) and await nothing_is_left()


@pytest.mark.parametrize("mode", ["plain", "fenced", "prose", "wrapped", "lines", "list"])
async def test_json_comes_out_whatever_the_command_prints(gateway: None, execute: Execute, mode: str) -> None:
    await agent(mode)
    text = 'it\'s "quoted" {config} {"a": [1]} ```\nlines'
    answer = await execute(**said(text))
    assert answer["ok"], answer
    assert answer["result"]["data"] == {"result": text}
    assert answer["meta"]["isolation_used"] == "subprocess"
    assert answer["meta"]["mcp_name"] == "agent"
    assert await left_nothing(), survivors()


FAILURES = {
    "failed": "You are out of credit.",
    "error": "there is no such symbol",
    "chat": "I would rather talk about the weather.",
    "endless": "4 MiB",
    "secret": "exit code 2",
}


@pytest.mark.parametrize("mode", FAILURES)
async def test_what_is_no_answer_is_an_error_with_what_it_said(gateway: None, execute: Execute, mode: str) -> None:
    await agent(mode)
    answer = await execute(**said("hello"))
    assert answer["ok"] is False
    assert answer["error"]["type"] == "MCP_ERROR"
    assert FAILURES[mode] in answer["error"]["message"]
    assert SECRET not in json.dumps(answer)
    assert await left_nothing(), survivors()


async def test_an_agent_that_hangs_is_ended_at_the_deadline(gateway: None, execute: Execute) -> None:
    await agent("hang")
    began = time.monotonic()
    answer = await execute(**said("hello"), constraints={"timeout_ms": 1500})
    assert answer["error"]["type"] == "TIMEOUT"
    assert time.monotonic() - began < 2.5
    assert await left_nothing(), survivors()


async def test_the_agent_works_in_the_project_root_and_is_told_to_activate_it_first(
    gateway: None, execute: Execute, tmp_path: Any
) -> None:
    await agent("where", allowed_roots=[str(tmp_path)])
    activation = {"action": "echo", "params": {"text": "{project_root}"}}
    await asyncio.to_thread(
        in_thread, lambda: Backend.objects.filter(backend_id="healthy").update(activation=activation)
    )
    catalog.forget()
    answer = await execute(**said("hello"), context={"project_root": str(tmp_path)})
    assert answer["ok"], answer
    seen = answer["result"]["data"]
    assert seen["cwd"] == str(tmp_path)
    assert f'First call its tool "echo" with {{"text": "{tmp_path}"}}' in seen["prompt"]
    assert await left_nothing(), survivors()


async def test_its_tools_are_those_of_the_server_it_wraps(gateway: None) -> None:
    await agent("plain")
    snapshot = await catalog.current()
    found = await discovery.discover(snapshot.backend("agent"))
    assert [tool["name"] for tool in found.tools] == ["act", "echo", "change"]
    assert await left_nothing(), survivors()


async def test_a_command_that_wraps_nothing_that_is_here_says_so(gateway: None, execute: Execute) -> None:
    await agent("plain", wraps="another")
    answer = await execute(**said("hello"))
    assert answer["error"]["type"] == "MCP_ERROR"
    assert "wraps the backend another" in answer["error"]["message"]


async def test_params_that_are_too_long_for_a_command_line_are_refused(gateway: None, execute: Execute) -> None:
    await agent("plain")
    answer = await execute(**said("x" * MAX_PROMPT))
    assert answer["error"]["type"] == "VALIDATION"
    assert await left_nothing(), survivors()


async def test_the_command_is_allowed_five_minutes_unless_the_request_says_otherwise(gateway: None) -> None:
    from mcpbridge.gateway import calling
    from mcpbridge.gateway.protocol import parse

    await agent("plain")
    action = await asyncio.to_thread(in_thread, lambda: Action.objects.filter(backend__backend_id="agent").count())
    assert action == 3
    snapshot = await catalog.current()

    class Anybody:
        facts: dict[str, Any] = {}  # a stand-in for one caller
        project_root = None

        def allows(self, effect: object) -> bool:
            return True

    work = calling.admitted(
        Anybody(),  # type: ignore[arg-type]  # only what is asked of it here
        parse(said("hello")),
        snapshot.backend("agent"),
        snapshot.resolve("agent.echo"),
    )
    assert (work.timeout, work.isolation) == (300, "subprocess")


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("7", 7),
        ('"a plain text"', None),
        ('{"a": 1} and {"result": {"b": [1, 2, 3]}}', {"b": [1, 2, 3]}),
        ("[" * 100_000, None),
        ("{" * 1_000_000, None),
        ("", None),
    ],
    ids=["number", "text", "longest", "deep", "many", "nothing"],
)
def test_json_is_found_without_being_fooled(text: str, data: Any) -> None:
    if data is None:
        with pytest.raises(DevFlowError):
            as_result("agent", text)
    else:
        wire = as_result("agent", text)
        assert wire["structuredContent"] == (data if isinstance(data, dict) else {"result": data})
