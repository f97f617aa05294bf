"""Isolation `subprocess`: each call in a process of its own, from a spare where one is kept ready."""

import asyncio
from typing import Any

import pytest

from mcpbridge.gateway import sessions
from mcpbridge.gateway.catalog import backend_spec, catalog
from mcpbridge.gateway.sessions import pool
from mcpbridge.models import Backend
from tests.gateway.conftest import Execute, register
from tests.gateway.faulty import faulty, nothing_is_left, survivors, until
from tests.mcpbridge.conftest import in_thread

FRESH = {"constraints": {"isolation": "subprocess"}}


async def data_of(execute: Execute, action: str, **more: Any) -> Any:
    answer = await execute(intent="QUERY", action=f"small.{action}", **more)
    assert answer["ok"], answer
    return answer["result"]["data"]


async def test_a_session_remembers_and_a_process_for_each_call_does_not(small: Backend, execute: Execute) -> None:
    assert [await data_of(execute, "count") for _ in range(2)] == [{"result": 1}, {"result": 2}]
    assert [await data_of(execute, "count", **FRESH) for _ in range(2)] == [{"result": 1}, {"result": 1}]
    assert await data_of(execute, "count") == {"result": 3}


@pytest.mark.parametrize("isolation", ["agent", "subprocess"])
async def test_the_answer_says_which_isolation_was_used(small: Backend, execute: Execute, isolation: str) -> None:
    answer = await execute(intent="QUERY", action="small.whoami", constraints={"isolation": isolation})
    assert answer["meta"]["isolation_used"] == isolation
    pid = answer["result"]["data"]["pid"]
    assert (pid in survivors()) == (isolation == "agent")


async def test_each_call_of_its_own_ends_before_its_answer(small: Backend, execute: Execute) -> None:
    for _ in range(3):
        await data_of(execute, "echo", params={"text": "hi"}, **FRESH)
        assert survivors() == []


async def test_a_spare_is_used_once_and_replaced(gateway: None, execute: Execute, tmp_path: Any) -> None:
    await register(warm_spares=2, isolation="subprocess", allowed_roots=[str(tmp_path)])
    first = await data_of(execute, "whoami")
    assert pool.spares("small") == 2
    assert await until(lambda: all(session.is_open for session in pool._spares))
    ready = {session.spec.id: survivors() for session in pool._spares}["small"]
    assert len(ready) == 2
    second = await data_of(execute, "whoami")
    assert second["pid"] in ready
    assert second["pid"] != first["pid"]
    assert second["pid"] not in survivors()
    assert pool.spares("small") == 2

    third = await data_of(execute, "whoami", context={"project_root": str(tmp_path)})
    assert third["cwd"] == str(tmp_path)
    assert third["pid"] not in ready
    assert pool.spares("small") == 4  # those of another root are kept beside
    assert await data_of(execute, "count") == {"result": 1}
    await pool.close()
    assert await nothing_is_left(), survivors()


async def test_spares_end_when_idle_and_when_their_settings_are_gone(
    gateway: None, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    await faulty("healthy", warm_spares=1)
    asked = {"intent": "QUERY", "action": "healthy.echo", **FRESH}
    assert (await execute(**asked))["ok"]
    assert pool.spares("healthy") == 1
    pool.tidy()
    assert pool.spares("healthy") == 1
    pool._spares[0].used_at -= sessions.IDLE_SECONDS + 1
    pool.tidy()
    assert pool.spares("healthy") == 0
    assert await nothing_is_left(), survivors()

    assert (await execute(**asked))["ok"]
    spec = (await catalog.current()).backend("healthy")
    await asyncio.to_thread(
        in_thread, lambda: Backend.objects.filter(backend_id="healthy").update(memory_mb=3000, warm_spares=1)
    )
    row = await asyncio.to_thread(in_thread, Backend.objects.get)
    await asyncio.to_thread(in_thread, row.save)
    catalog.forget()
    await catalog.current()
    pool.tidy()
    assert pool.spares("healthy") == 0
    pool.refill(spec, None)  # a call with the old settings that ends now brings none back
    assert pool.spares("healthy") == 0
    pool.refill(backend_spec(row), None)
    assert pool.spares("healthy") == 1
    pool.forget("healthy")
    assert await nothing_is_left(), survivors()


async def test_spares_are_bounded(gateway: None, tmp_path: Any) -> None:
    spec = await faulty("healthy", warm_spares=8)
    await catalog.current()
    for number in range(3):
        root = tmp_path / str(number)
        root.mkdir()
        pool.refill(spec, str(root))
    assert len(pool._spares) == sessions.MAX_SPARES
    await pool.close()
    assert await nothing_is_left(), survivors()


async def test_a_spare_that_died_is_replaced_before_the_call_fails(gateway: None, execute: Execute) -> None:
    await faulty("healthy", warm_spares=1)
    asked = {"intent": "QUERY", "action": "healthy.echo", **FRESH}
    assert (await execute(**asked))["ok"]
    assert await until(lambda: pool._spares[0].is_open)
    pool._spares[0].close_soon()
    assert (await execute(**asked))["ok"]
    assert pool.spares("healthy") == 1
    await pool.close()
    assert await nothing_is_left(), survivors()


async def test_many_calls_at_once_take_their_turns(gateway: None, execute: Execute) -> None:
    await faulty("healthy", concurrency=2)
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, len(survivors()))
            await asyncio.sleep(0.01)

    watching = asyncio.create_task(watch())
    answers = await asyncio.gather(
        *(execute(intent="QUERY", action="healthy.echo", params={"text": str(n)}, **FRESH) for n in range(8))
    )
    watching.cancel()
    assert [answer["result"]["data"]["text"] for answer in answers] == [str(n) for n in range(8)]
    assert most <= 2
    assert await nothing_is_left(), survivors()
