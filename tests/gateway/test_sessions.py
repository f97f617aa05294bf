"""Sessions that are shared, replaced, closed and given up; backends over HTTP that are not what they should be."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from devflow.errors import DevFlowError, ErrorCode
from mcpbridge.gateway import conversing, sessions
from mcpbridge.gateway.catalog import catalog
from mcpbridge.gateway.sessions import Breaker, Session, pool
from mcpbridge.gateway.specs import BackendSpec
from mcpbridge.models import Backend
from mcpbridge.tooling import Caller
from tests.gateway.conftest import Execute
from tests.gateway.faulty import faulty, nothing_is_left, spec_of, survivors, until
from tests.mcpbridge.conftest import in_thread


def echo(text: str = "hi", **constraints: Any) -> dict[str, Any]:
    return {"intent": "QUERY", "action": "healthy.echo", "params": {"text": text}, "constraints": constraints}


async def test_a_caller_shares_its_session_and_no_other(
    gateway: None, execute: Execute, make_caller: Callable[..., Caller]
) -> None:
    await faulty("healthy")
    one, other = make_caller(agent="one"), make_caller(agent="other")
    for by, expected in ((one, 1), (one, 1), (other, 2), (one, 2)):
        assert (await execute(by=by, **echo()))["ok"]
        assert len(survivors()) == expected


async def test_the_oldest_idle_session_makes_room_and_one_at_work_never_does(
    gateway: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 3)
    spec = spec_of("healthy")
    first, second, third = (pool.session(spec, None, name) for name in "abc")
    assert pool.session(spec, None, "a") is first
    with first.in_use():
        pool.session(spec, None, "d")  # b was idle for longest
        assert second.is_over
        assert not first.is_over
        assert not third.is_over
        assert pool.open_sessions("healthy") == 3
        for session in pool._sessions.values():
            session.at_work += 1
        with pytest.raises(DevFlowError, match="all 3 sessions of this server are at work") as full:
            pool.session(spec, None, "e")
        assert full.value.code is ErrorCode.UNAVAILABLE
        assert full.value.retry_after_ms
        for session in pool._sessions.values():
            session.at_work -= 1
    await pool.close()
    assert await nothing_is_left(), survivors()


async def test_an_idle_session_closes_after_ten_minutes(gateway: None) -> None:
    spec = spec_of("healthy")
    idle, used = pool.session(spec, None, "idle"), pool.session(spec, None, "used")
    for session in (idle, used):
        await session.client()
    idle.used_at -= sessions.IDLE_SECONDS + 1
    used.used_at -= sessions.IDLE_SECONDS + 1
    with used.in_use():
        pool.tidy()
    assert (idle.is_over, used.is_over) == (True, False)
    assert pool.open_sessions("healthy") == 1


@pytest.mark.parametrize("change", [{"is_enabled": False}, {"memory_mb": 3000}])
async def test_sessions_of_a_backend_that_changed_close(
    gateway: None, execute: Execute, change: dict[str, Any]
) -> None:
    await faulty("healthy")
    assert (await execute(**echo()))["ok"]

    def save() -> None:
        row = Backend.objects.get()
        for name, value in change.items():
            setattr(row, name, value)
        row.save()

    await asyncio.to_thread(in_thread, save)
    catalog.forget()
    await catalog.current()
    pool.tidy()
    assert pool.open_sessions("healthy") == 0
    assert await nothing_is_left(), survivors()


async def test_a_session_that_died_is_replaced_before_the_call_fails(gateway: None, execute: Execute) -> None:
    await faulty("healthy")
    assert (await execute(**echo()))["ok"]
    (pid,) = survivors()
    os.kill(pid, signal.SIGKILL)
    assert (await execute(**echo()))["ok"]
    assert pid not in survivors()


async def test_waiting_for_a_place_counts_to_the_deadline(gateway: None, execute: Execute) -> None:
    await faulty("hang", concurrency=1)
    hang = {"intent": "QUERY", "action": "hang.act", "constraints": {"timeout_ms": 2000}}
    at_work = asyncio.create_task(execute(**hang))
    await asyncio.sleep(0.1)
    began = time.monotonic()
    answer = await execute(**{**hang, "constraints": {"timeout_ms": 500}})
    assert answer["error"]["type"] == "TIMEOUT"
    assert 0.4 < time.monotonic() - began < 1.5
    assert (await at_work)["error"]["type"] == "TIMEOUT"


async def test_who_gives_up_tells_the_backend_and_leaves_nothing(gateway: None) -> None:
    code = (
        "import json, sys\n"
        "cancelled = []\n"
        "for line in sys.stdin:\n"
        "    r = json.loads(line); m = r['method']\n"
        "    if m == 'notifications/cancelled': cancelled.append(r['params']['requestId'])\n"
        "    if 'id' not in r: continue\n"
        "    info = {'name': 'x', 'version': '1'}\n"
        "    result = {'protocolVersion': '2025-06-18', 'capabilities': {}, 'serverInfo': info}\n"
        "    if m == 'hang': continue\n"
        "    if m == 'ask': result = {'cancelled': len(cancelled)}\n"
        "    print(json.dumps({'jsonrpc': '2.0', 'id': r['id'], 'result': result}), flush=True)\n"
    )
    session = pool.session(spec_of("x", args=("-c", code)), None, "somebody")
    await session.client()
    tasks = len(asyncio.all_tasks())
    for number in range(20):
        call = asyncio.create_task(session.request("hang", {}, timeout=30))
        await asyncio.sleep(0.01)
        call.cancel()
        began = time.monotonic()
        await asyncio.wait({call})
        assert time.monotonic() - began < 0.5
        assert session.at_work == 0, number
    assert await until(lambda: len(asyncio.all_tasks()) <= tasks)
    assert (await session.request("ask", {}, timeout=5))["cancelled"] == 20
    assert not session.is_over
    assert session.at_work == 0


async def test_an_opening_that_takes_too_long_is_given_up(gateway: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversing, "OPEN_SECONDS", 0.5)
    session = pool.session(spec_of("slow", "60"), None, "somebody")
    waiting = [asyncio.create_task(session.client()) for _ in range(3)]
    waiting[0].cancel()  # one of those who wait goes away
    failed = await asyncio.gather(*waiting[1:], return_exceptions=True)
    for error in failed:
        assert isinstance(error, DevFlowError)
        assert "did not finish its handshake within 0.5 s" in error.message
    assert session.is_over
    assert await nothing_is_left(), survivors()


async def test_a_process_that_ends_in_its_handshake_is_quoted_without_its_secrets(gateway: None) -> None:
    code = "import os, sys; sys.exit('cannot log in with ' + os.environ['TOKEN'])"
    session = Session(spec_of("x", args=("-c", code), env={"TOKEN": "hunter2-hunter2"}), None)
    with pytest.raises(DevFlowError) as failed:
        await session.client()
    await session.close()
    assert "exit code 1" in failed.value.message
    assert "cannot log in with" in failed.value.message
    assert "hunter2" not in failed.value.message


async def test_the_breaker_opens_rests_and_lets_one_probe_through() -> None:
    now = 0.0
    breaker = Breaker(lambda: now)
    for _ in range(4):
        breaker.note(ok=False)
        await breaker.admit("x")
    breaker.note(ok=True)  # one that works starts the count anew
    for at in (1, 10, 20, 30, 40):
        now = at
        breaker.note(ok=False)
    assert breaker.state == "closed"  # five, but not within 30 s
    for _ in range(4):
        breaker.note(ok=False)
    assert breaker.state == "open"
    with pytest.raises(DevFlowError) as refused:
        await breaker.admit("x")
    assert refused.value.code is ErrorCode.UNAVAILABLE
    assert refused.value.retry_after_ms == 10_000
    now += 10
    assert breaker.state == "half-open"
    await breaker.admit("x")
    with pytest.raises(DevFlowError):
        await breaker.admit("x")  # the others wait for what the probe finds
    breaker.note(ok=False)
    assert breaker.state == "open"
    now += 10
    await breaker.admit("x")
    breaker.note(ok=True)
    assert breaker.state == "closed"
    await breaker.admit("x")


async def test_whoever_goes_on_calling_what_is_left_alone_is_held_for_a_moment() -> None:
    breaker = Breaker()
    for _ in range(Breaker.FAILURES):
        breaker.note(ok=False)
    for _ in range(Breaker.AT_ONCE):
        with pytest.raises(DevFlowError):
            await breaker.admit("x")
    held = asyncio.create_task(breaker.admit("x"))
    await asyncio.sleep(Breaker.HELD / 2)
    assert not held.done()
    with pytest.raises(DevFlowError) as refused:
        await held
    assert refused.value.code is ErrorCode.UNAVAILABLE


async def test_a_session_that_ends_soon_again_and_again_is_replaced_after_a_pause(
    gateway: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("mcpbridge.gateway.conversing.PAUSES", (0.01, 0.02))
    slept = asyncio.sleep

    async def sleep(seconds: float) -> None:
        if seconds in (0.01, 0.02):
            pauses.append(seconds)
        await slept(seconds)

    monkeypatch.setattr("mcpbridge.gateway.conversing.asyncio.sleep", sleep)
    spec = await faulty("die")

    async def ended() -> Session:
        session = await pool.ready(spec, None, "somebody", features=frozenset())
        with pytest.raises(DevFlowError):
            await session.request("tools/call", {"name": "act", "arguments": {}}, timeout=5)
        return session

    counts = [(await ended()).restarts for _ in range(5)]
    assert (counts, pauses) == ([0, 1, 2, 3, 4], [0.01, 0.02, 0.02])
    monkeypatch.setattr("mcpbridge.gateway.conversing.LASTING_SECONDS", 0)
    assert (await ended()).restarts == 0  # it had lasted
    other = await pool.ready(spec, None, "somebody else", features=frozenset())
    assert other.restarts == 0


# -- over HTTP --

Answer = Callable[[bytes, bytes, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def served(answer: Answer) -> AsyncIterator[str]:
    """A web server that gives each request's head and body to `answer`; gives its url."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next((int(x[15:]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:")), 0)
                await answer(head, await reader.readexactly(length), writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    finally:
        server.close()
        await server.wait_closed()


def respond(writer: asyncio.StreamWriter, body: bytes, kind: str = "application/json", more: str = "") -> None:
    writer.write(
        f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body
    )


def shaken(method: Answer) -> Answer:
    """A server whose handshake is as it should be; `method` answers the rest."""

    async def answer(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        request = json.loads(body or b"{}")
        if request.get("method") == "initialize":
            info = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
            respond(writer, json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": info}).encode())
        elif request.get("method") == "server/discover":
            error = {"code": -32601, "message": "Method not found"}
            respond(writer, json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}).encode())
        elif "id" not in request:
            writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
        else:
            await method(head, body, writer)

    return answer


async def unauthorized(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")


async def a_page(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
    respond(writer, b"<html>Welcome</html>", "text/html")


async def breaks_off(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"json')
    await writer.drain()
    writer.close()


async def too_long(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
    respond(writer, b"x" * 5 * 2**20)


async def compressed(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
    respond(writer, b"x", more="Content-Encoding: gzip\r\n")


async def silent(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(600)


async def opened_at(url: str, transport: str) -> DevFlowError:
    session = Session(
        BackendSpec(id="web", transport=transport, url=url, headers={"Authorization": "Bearer hunter2-hunter2"}), None
    )
    try:
        async with asyncio.timeout(10):
            with pytest.raises(DevFlowError) as failed:
                await session.client()
    finally:
        await session.close()
    assert failed.value.code is ErrorCode.UNAVAILABLE
    assert "hunter2" not in failed.value.message
    assert "127.0.0.1" not in failed.value.message
    return failed.value


@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.parametrize(("answer", "words"), [(unauthorized, "HTTP 401"), (a_page, "text/html")])
async def test_a_place_that_is_no_backend_is_named_for_what_it_is(transport: str, answer: Answer, words: str) -> None:
    async with served(answer) as url:
        assert words in (await opened_at(url, transport)).message


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_refused_connection_is_told(transport: str) -> None:
    async with served(a_page) as url:
        pass
    assert "nothing accepts connections" in (await opened_at(url, transport)).message


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (breaks_off, ErrorCode.UNAVAILABLE, "went away"),
        (too_long, ErrorCode.BACKEND_ERROR, "more than 4 MiB"),
        (compressed, ErrorCode.BACKEND_ERROR, "compressed"),
        (a_page, ErrorCode.BACKEND_ERROR, "text/html"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
async def test_an_answer_over_http_that_is_none_is_a_clear_error(answer: Answer, code: ErrorCode, words: str) -> None:
    async with served(shaken(answer)) as url:
        session = Session(BackendSpec(id="web", transport="http", url=url), None)
        with pytest.raises(DevFlowError) as failed:
            await session.request("tools/call", {"name": "x"}, timeout=10)
        await session.close()
    assert failed.value.code is code
    assert words in failed.value.message


async def test_a_server_over_http_that_hangs_holds_nobody_past_the_deadline() -> None:
    async def mute(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        if b"notifications/initialized" in body or b"initialize" in body or b"discover" in body:
            await shaken(silent)(head, body, writer)
        else:
            await asyncio.sleep(600)

    async with served(mute) as url:
        session = Session(BackendSpec(id="web", transport="http", url=url), None)
        await session.client()
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await session.request("tools/call", {"name": "x"}, timeout=0.5)
            assert time.monotonic() - began < 1
        assert await until(lambda: session.is_over)  # nothing can leave it any more
        await session.close()


async def test_a_backend_that_reads_nothing_holds_nobody_and_is_ended(gateway: None) -> None:
    session = pool.session(spec_of("deaf"), None, "somebody")
    await session.client()
    large = {"name": "echo", "arguments": {"text": "x" * 5_000_000}}

    async def ask(params: dict[str, Any]) -> None:
        async with asyncio.timeout(0.5):
            await session.request("tools/call", params, timeout=30)

    began = time.monotonic()
    said = await asyncio.gather(*(ask(params) for params in ({"name": "act"}, *[large] * 4)), return_exceptions=True)
    assert time.monotonic() - began < 1.5
    assert all(isinstance(error, TimeoutError | DevFlowError) for error in said)
    assert await until(lambda: session.is_over)
    assert await nothing_is_left(), survivors()


async def test_a_flood_of_notifications_does_not_grow_memory(gateway: None) -> None:
    def resident_mib() -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))

    heard = 0

    def hear(message: object) -> None:
        nonlocal heard
        heard += 1

    session = pool.session(spec_of("flood"), None, "somebody", heard=hear)
    await session.request("tools/call", {"name": "act"}, timeout=5)
    assert await until(lambda: heard > 500)
    before, counted, began = resident_mib(), heard, time.monotonic()
    slowest = 0.0
    while time.monotonic() - began < 3:
        asked = time.monotonic()
        await asyncio.sleep(0)
        slowest = max(slowest, time.monotonic() - asked)
    assert (heard - counted) / (time.monotonic() - began) < 4000  # the rest waits in its pipe
    assert slowest < 0.2
    assert resident_mib() - before < 10
    await pool.close()
    assert await nothing_is_left(), survivors()
