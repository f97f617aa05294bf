"""Backends that hang, die, flood, fork or lie: the promised envelope in time, others unaffected, nothing left."""

import asyncio
import time
from typing import Any

import pytest

from mcpbridge.gateway import discovery
from mcpbridge.gateway.catalog import catalog
from mcpbridge.gateway.sessions import pool
from mcpbridge.models import Action
from tests.gateway.conftest import Execute
from tests.gateway.faulty import faulty, nothing_is_left, survivors, until
from tests.mcpbridge.conftest import in_thread

DEADLINE_MS = 1500
ISOLATIONS = ["agent", "subprocess"]

TIMES_OUT = ["hang", "deaf", "stubborn", "wrong-id", "bomb", "escape"]
FAILS = {
    "die": "went away before it answered. Its last words: It ended with exit code 3",
    "line": "a line of more than 4 MiB",
    "endless-noise": "16 MiB that are no message",
    "memory": "MemoryError",
    "garbage": "something that is no answer of MCP",
    "deep": "",
}
WORKS = ["healthy", "noise", "ids", "flood", "errors", "die-after"]


async def timed(execute: Execute, **request: Any) -> tuple[dict[str, Any], float]:
    began = time.monotonic()
    answer = await execute(**request)
    return answer, time.monotonic() - began


def asked(mode: str, isolation: str, action: str = "act", intent: str = "QUERY") -> dict[str, Any]:
    constraints = {"timeout_ms": DEADLINE_MS, "isolation": isolation}
    return {"intent": intent, "action": f"{mode}.{action}", "constraints": constraints}


async def beside(execute: Execute, mode: str, isolation: str) -> dict[str, Any]:
    """Call a faulty backend while another is called; gives the faulty one's envelope."""
    await faulty(mode)
    if mode != "healthy":
        await faulty("healthy")
    hello = {"intent": "QUERY", "action": "healthy.echo", "params": {"text": "hello"}}
    assert (await execute(**hello))["ok"]
    calling = asyncio.create_task(timed(execute, **asked(mode, isolation)))
    slowest = 0.0
    while not calling.done():
        answer, seconds = await timed(execute, **hello)
        assert answer["ok"], answer
        slowest = max(slowest, seconds)
        await asyncio.sleep(0.01)
    envelope, seconds = await calling
    assert seconds < DEADLINE_MS / 1000 + 1, seconds
    assert slowest < 1, slowest
    answer, _ = await timed(execute, **hello)
    assert answer["ok"], answer
    pool.forget("healthy")
    return envelope


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("mode", TIMES_OUT)
async def test_a_backend_that_does_not_answer_gives_timeout_and_is_ended(
    gateway: None, execute: Execute, mode: str, isolation: str
) -> None:
    answer = await beside(execute, mode, isolation)
    assert answer["ok"] is False
    assert answer["error"]["type"] == "TIMEOUT"
    assert answer["error"]["recoverable"]
    if mode == "wrong-id":
        await pool.close()  # it listens still, so its session stays
    assert await nothing_is_left(), survivors()


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("mode", FAILS)
async def test_a_backend_that_breaks_gives_a_clear_error_and_is_ended(
    gateway: None, execute: Execute, mode: str, isolation: str
) -> None:
    answer = await beside(execute, mode, isolation)
    assert answer["ok"] is False
    assert answer["error"]["type"] in ("MCP_ERROR", "TIMEOUT"), answer
    if FAILS[mode]:
        assert answer["error"]["type"] == "MCP_ERROR", answer
        assert FAILS[mode] in answer["error"]["message"]
    await pool.close()
    assert await nothing_is_left(), survivors()


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("mode", WORKS)
async def test_a_backend_that_talks_too_much_is_understood_all_the_same(
    gateway: None, execute: Execute, mode: str, isolation: str
) -> None:
    answer = await beside(execute, mode, isolation)
    assert answer["ok"], answer
    assert answer["result"]["data"]
    assert answer["meta"]["isolation_used"] == isolation
    await pool.close()
    assert await nothing_is_left(), survivors()


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_change_that_timed_out_is_not_sent_again(gateway: None, execute: Execute, isolation: str) -> None:
    await faulty("hang")
    answer, seconds = await timed(execute, **asked("hang", isolation, "change", "MODIFY"))
    assert answer["error"]["type"] == "TIMEOUT"
    assert answer["error"]["recoverable"] is False
    assert seconds < DEADLINE_MS / 1000 + 1
    assert await nothing_is_left(), survivors()


@pytest.mark.parametrize("action", ["act", "change"])
async def test_a_backend_that_ends_between_calls_is_started_again(gateway: None, execute: Execute, action: str) -> None:
    await faulty("die-after")
    intent = "QUERY" if action == "act" else "MODIFY"
    for _ in range(3):
        answer = await execute(**asked("die-after", "agent", action, intent))
        assert answer["ok"], answer
        assert await until(lambda: pool.open_sessions("die-after") == 0)
    assert await nothing_is_left(), survivors()


async def test_a_slow_start_costs_the_first_caller_its_deadline_and_serves_the_next(
    gateway: None, execute: Execute
) -> None:
    await faulty("slow", "2")
    first, seconds = await timed(execute, **asked("slow", "agent", "echo"))
    assert first["error"]["type"] == "TIMEOUT"
    assert seconds < DEADLINE_MS / 1000 + 1
    second = await execute(**asked("slow", "agent", "echo"))
    assert second["ok"], second
    assert len(survivors()) == 1
    pool.forget("slow")
    assert await nothing_is_left(), survivors()


async def test_a_slow_start_of_a_process_for_one_call_ends_with_its_deadline(gateway: None, execute: Execute) -> None:
    await faulty("slow", "60")
    answer, seconds = await timed(execute, **asked("slow", "subprocess", "echo"))
    assert answer["error"]["type"] == "TIMEOUT"
    assert seconds < DEADLINE_MS / 1000 + 1
    assert await nothing_is_left(), survivors()


async def test_a_tool_that_changes_behind_our_back_is_held_back(gateway: None, execute: Execute) -> None:
    spec = await faulty("tools")
    await asyncio.to_thread(in_thread, Action.objects.all().delete)
    session = pool.session(spec, None, "somebody")
    first = await discovery.ask(session)
    await asyncio.to_thread(in_thread, lambda: discovery.keep(spec, first))
    assert (await execute(**asked("tools", "agent")))["ok"]
    second = await discovery.ask(session)
    await asyncio.to_thread(in_thread, lambda: discovery.keep(spec, second))
    catalog.forget()
    answer = await execute(**asked("tools", "agent"))
    assert answer["error"]["type"] == "PERMISSION"
    assert "held back" in answer["error"]["message"]
    assert (await execute(**asked("tools", "agent", "echo")))["ok"]
    await pool.close()
    assert await nothing_is_left(), survivors()


@pytest.mark.slow
async def test_one_backend_that_hangs_does_not_stand_in_the_way_of_others(gateway: None, execute: Execute) -> None:
    await faulty("hang", timeouts={"QUERY": 1500})  # a deadline of its own: what a client cuts short says nothing
    await faulty("healthy")
    request = {"intent": "QUERY", "action": "hang.act"}
    calls = [execute(**request) for _ in range(8)]
    hung = asyncio.gather(*calls)
    for _ in range(50):
        answer, seconds = await timed(execute, **asked("healthy", "agent", "echo"))
        assert answer["ok"], answer
        assert seconds < 1
    assert {answer["error"]["type"] for answer in await hung} == {"TIMEOUT"}
    refused, seconds = await timed(execute, **request)
    assert refused["error"]["type"] == "MCP_ERROR"  # the breaker: it is left alone for a moment
    assert refused["error"]["retry_after_ms"] > 0
    assert seconds < 0.5
    await pool.close()
    assert await nothing_is_left(), survivors()
