"""MCP over HTTP+SSE with the official client, and with sockets where a client must misbehave."""

import asyncio
import http.client
import json
import socket
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from asgiref.sync import sync_to_async
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.types import ResourceUpdatedNotification, ToolListChangedNotification

from devflow.drain import draining
from devflow.events import LiveEvent, bus
from mcpbridge.models import ApiKey
from mcpbridge.subscriptions import TOOLS_CHANGED, live
from mcpbridge.transports import sse as sse_module
from mcpbridge.transports.connection import MAX_UNANSWERED
from tests.transports.probes import Held, held
from tests.transports.site import WAIT, RawStream, Site, call, http_session, initialize, sse_session

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])


def hold(name: str) -> Held:
    held[name] = Held()
    return held[name]


async def happened(event: Any) -> bool:
    return await asyncio.to_thread(event.wait, WAIT)


@ERAS
async def test_tools_are_listed_and_called(site: Site, mode: str) -> None:
    async with sse_session(site, mode=mode) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        answer = await client.call_tool("probe_large", {"size": 3})
        version = client.protocol_version
    assert "probe_caller" in names
    assert answer.structured_content == {"text": "xxx"}
    assert version == ("2025-11-25" if mode == "legacy" else "2026-07-28")


@ERAS
async def test_progress_arrives_before_the_answer(site: Site, mode: str) -> None:
    heard: list[Any] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with sse_session(site, mode=mode) as client:
        await client.call_tool("probe_progress", {"steps": 3}, progress_callback=on_progress)
        assert heard == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


@ERAS
async def test_a_cancelled_call_stops_at_once(site: Site, mode: str) -> None:
    seen = hold("cancel")
    async with sse_session(site, mode=mode) as client:
        calling = asyncio.create_task(client.call_tool("probe_hold", {"name": "cancel"}))
        assert await happened(seen.started)
        calling.cancel()
        assert await happened(seen.cancelled)
        assert not (await client.call_tool("probe_large", {"size": 1})).is_error


async def test_a_client_that_leaves_stops_its_calls(site: Site) -> None:
    seen = hold("leave")
    with RawStream(site) as stream:
        stream.shake_hands()
        stream.post(call(1, "probe_hold", name="leave"))
        assert await happened(seen.started)
    assert await happened(seen.cancelled)


async def test_agent_and_project_are_those_of_the_stream(site: Site) -> None:
    headers = {"X-Agent-Id": "alice", "X-Project": "apollo"}
    async with sse_session(site, mode="legacy", headers=headers) as client:
        answer = await client.call_tool("probe_caller")
    agent, session, _, transport, project = answer.structured_content["text"].split("|")
    assert (agent, transport, project) == ("alice", "sse", "apollo")
    assert len(session) == 16


def test_without_an_agent_id_the_agent_is_client_and_session(site: Site) -> None:
    with RawStream(site) as stream:
        stream.shake_hands("claude")
        stream.post(call(1, "probe_caller"))
        agent, session, *_ = stream.message()["result"]["structuredContent"]["text"].split("|")
    assert agent == f"claude-{session[:8]}"


def test_a_stream_opened_again_keeps_its_session(site: Site) -> None:
    def session(stream: RawStream) -> str:
        stream.shake_hands()
        stream.post(call(1, "probe_caller"))
        return str(stream.message()["result"]["structuredContent"]["text"].split("|")[1])

    with RawStream(site) as stream:
        first, endpoint = session(stream), stream.endpoint
    again = {"Mcp-Session-Id": endpoint.partition("session_id=")[2]}
    with RawStream(site, headers=again) as stream:
        assert session(stream) == first
    with RawStream(site, key=site.other_key, headers=again) as stream:
        assert session(stream) != first
    with RawStream(site, headers={"Mcp-Session-Id": "forged"}) as stream:
        assert session(stream) != first


def test_without_a_live_key_nothing_is_served(site: Site) -> None:
    for method, path in (("GET", "/mcp/sse"), ("POST", "/mcp/messages/?session_id=x"), ("DELETE", "/mcp/sse")):
        answer = site.request(method, path, key="dvf_wrong")
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == 'Bearer realm="devflow"'


def test_a_session_is_only_for_the_key_that_opened_it(site: Site) -> None:
    with RawStream(site) as stream:
        assert stream.post(initialize(), key=site.other_key).status_code == 404
        assert stream.post(initialize()).status_code == 202


def test_a_forged_or_ended_session_is_unknown(site: Site) -> None:
    with RawStream(site) as stream:
        tampered = stream.endpoint[:-2] + ("AA" if not stream.endpoint.endswith("AA") else "BB")
        assert stream.post(initialize(), endpoint=tampered).status_code == 404
        assert stream.post(initialize(), endpoint="/mcp/messages/").status_code == 404
        endpoint = stream.endpoint
        session = next(iter(site.sse.streams))
    for _ in range(1000):
        if session not in site.on_loop(lambda: dict(site.sse.streams)):
            break
    assert site.request("POST", endpoint, content=json.dumps(initialize())).status_code == 404


def test_a_session_of_an_earlier_process_is_unknown_at_once(site: Site) -> None:
    key_id = ApiKey.objects.get(name="transports").pk
    earlier = sse_module.signed(sse_module.Address("devflow.mcp.inmemory!gone", key_id, "0123456789abcdef"))
    assert (
        site.request("POST", f"/mcp/messages/?session_id={earlier}", content=json.dumps(initialize())).status_code
        == 404
    )


@pytest.mark.parametrize("body", ["{", "[]", "[1]", '"x"', '{"jsonrpc": "2.0"}', b"\xff\xfe", "[" * 5000])
def test_what_is_no_json_rpc_message_is_a_bad_request(site: Site, body: str | bytes) -> None:
    with RawStream(site) as stream:
        assert stream.post(body).status_code == 400


def test_other_hosts_and_origins_are_refused(site: Site) -> None:
    for path in ("/mcp/sse", "/mcp/messages/?session_id=x"):
        method = "GET" if path == "/mcp/sse" else "POST"
        assert site.request(method, path, headers={"Host": "evil.example"}).status_code == 421
        assert site.request(method, path, headers={"Origin": "http://evil.example"}).status_code == 403


def test_a_large_body_is_refused_whether_announced_or_not(site: Site) -> None:
    with RawStream(site) as stream:
        assert site.status_of_large_body(stream.endpoint, chunked=False) == 413
        assert site.status_of_large_body(stream.endpoint, chunked=True) == 413


def test_other_methods_are_not_allowed(site: Site) -> None:
    for method, path, allowed in (
        ("DELETE", "/mcp/sse", "GET"),
        ("POST", "/mcp/sse", "GET"),
        ("DELETE", "/mcp/messages/", "POST"),
        ("GET", "/mcp/messages/", "POST"),
    ):
        answer = site.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


def test_more_calls_than_a_stream_may_hold_are_turned_away(site: Site) -> None:
    seen = hold("crowd")
    with RawStream(site) as stream:
        stream.shake_hands()
        statuses = [stream.post(call(n, "probe_hold", name="crowd")).status_code for n in range(MAX_UNANSWERED + 2)]
        assert statuses == [202] * MAX_UNANSWERED + [503] * 2
        assert seen.started.wait(WAIT)
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 0}}
        assert stream.post(cancel).status_code == 202, "a cancellation is taken while the stream is full"
        assert seen.cancelled.wait(WAIT)
        assert eventually(lambda: stream.post(call("next", "probe_large")).status_code == 202)
        assert stream.message()["id"] == "next", "cancelled calls are not answered"


def eventually(check: Any) -> bool:
    return any(check() for _ in range(500))


def test_pings_keep_an_idle_stream_alive(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.sse.timing, "ping", 0.05)
    with RawStream(site) as stream:
        pings = (line for line in stream.lines() if line == ": ping")
        assert [next(pings), next(pings)] == [": ping", ": ping"]


def test_a_reader_that_takes_nothing_is_closed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.sse.timing, "write", 0.3)
    with RawStream(site) as stream, RawStream(site) as other:
        stream.shake_hands()
        other.shake_hands()
        for n in range(20):
            if stream.post(call(n, "probe_large", size=1_000_000)).status_code == 404:
                break
        assert eventually_gone(site, stream)
        with pytest.raises((ConnectionError, http.client.IncompleteRead)):
            while True:
                stream.message()
        other.post(call(1, "probe_large"))
        assert other.message()["id"] == 1, "nobody else notices"


def eventually_gone(site: Site, stream: RawStream) -> bool:
    notice = {"jsonrpc": "2.0", "method": "notifications/nothing"}
    return eventually(lambda: stream.post(notice).status_code == 404)


def test_draining_lets_calls_finish_and_ends_every_stream(site: Site) -> None:
    seen = hold("drain")
    with RawStream(site) as idle, RawStream(site) as busy:
        idle.shake_hands()
        busy.shake_hands()
        busy.post(call(1, "probe_hold", name="drain"))
        assert seen.started.wait(WAIT)
        try:
            draining.set()
            assert list(idle.lines())[-1:] in ([], [""]), "the empty last chunk was read"
            assert busy.post(call(2, "probe_large")).status_code == 503
            assert site.request("GET", "/mcp/sse").status_code == 503
            busy.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
            assert list(busy.lines())[-1:] in ([], [""])
        finally:
            draining.clear()
            site.on_loop(site.watch_drain_again)


def test_a_revoked_key_ends_its_streams(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpbridge.access.REMEMBER_SECONDS", 0.05)
    row, key = ApiKey.objects.issue(name="short-lived", scopes=["read"])
    with RawStream(site, key=key) as stream, RawStream(site) as other:
        row.revoke()
        assert list(stream.lines())[-1:] in ([], [""])
        assert stream.post(initialize()).status_code == 401
        assert other.post(initialize()).status_code == 202


@pytest.mark.filterwarnings("ignore:resources/subscribe is removed")
@pytest.mark.usefixtures("project")
async def test_a_subscribed_resource_announces_its_changes(site: Site) -> None:
    heard: asyncio.Queue[Any] = asyncio.Queue()

    async def on_message(message: Any) -> None:
        await heard.put(message)

    async with sse_session(site, mode="legacy", message_handler=on_message) as client:
        uri, task = await _task_of(client)
        await client.subscribe_resource(uri)
        await client.call_tool("create_task", {"description": "Another one", "phase_id": 1})
        note = await asyncio.wait_for(heard.get(), WAIT)
        assert isinstance(note, ResourceUpdatedNotification)
        assert str(note.params.uri) == uri
        assert task


async def _task_of(client: Client) -> tuple[str, str]:
    made = await client.call_tool("create_task", {"description": "Watch me", "phase_id": 1})
    assert not made.is_error, made
    boards = [
        str(r.uri) for r in (await client.list_resources()).resources if str(r.uri).startswith("devflow://board/")
    ]
    return boards[0], made.structured_content["task_id"]


@pytest.mark.usefixtures("project")
async def test_a_message_for_the_agent_arrives_at_once(site: Site) -> None:
    heard: asyncio.Queue[Any] = asyncio.Queue()

    async def on_log(params: Any) -> None:
        await heard.put(params.data)

    async with sse_session(site, mode="legacy", headers={"X-Agent-Id": "bob"}, logging_callback=on_log) as bob:
        await bob.call_tool("heartbeat")
        async with sse_session(site, mode="legacy", headers={"X-Agent-Id": "alice"}) as alice:
            await alice.call_tool("send_message_to_agent", {"agent_id": "bob", "message": "Look at task 7"})
        assert (await asyncio.wait_for(heard.get(), WAIT))["type"] == "message.sent"


@pytest.mark.usefixtures("project")
async def test_a_changed_list_of_tools_is_announced(site: Site) -> None:
    heard: asyncio.Queue[Any] = asyncio.Queue()

    async def on_message(message: Any) -> None:
        await heard.put(message)

    async with sse_session(site, mode="legacy", message_handler=on_message) as client:
        await client.call_tool("heartbeat")
        bus.deliver(LiveEvent(TOOLS_CHANGED, 0))
        assert isinstance(await asyncio.wait_for(heard.get(), WAIT), ToolListChangedNotification)


@pytest.mark.usefixtures("project")
async def test_on_2026_a_client_listens_to_what_it_named(site: Site) -> None:
    async with sse_session(site, mode="auto") as client:
        uri, _ = await _task_of(client)
        async with client.listen(resource_subscriptions=[uri]) as changes:
            await client.call_tool("create_task", {"description": "Another one", "phase_id": 1})
            change = await asyncio.wait_for(anext(aiter(changes)), WAIT)
            assert change.uri == uri


def test_switched_off_it_is_not_found(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from devflow import config

    now = config.current()
    off = now.model_copy(update={"mcp_gateway": now.mcp_gateway.model_copy(update={"sse_enabled": False})})
    monkeypatch.setattr(sse_module.config, "current", lambda: off)
    assert site.request("GET", "/mcp/sse").status_code == 404
    assert site.request("POST", "/mcp/messages/").status_code == 404
    assert site.request("GET", "/mcp/sse", key="wrong").status_code == 401


@pytest.mark.usefixtures("project")
async def test_an_open_stream_goes_by_what_its_key_may_do_now(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpbridge.access.REMEMBER_SECONDS", 0.05)
    row, key = await sync_to_async(ApiKey.objects.issue)(name="narrowed", scopes=["read", "write"], rate_per_minute=0)
    async with sse_session(site, key=key, mode="legacy") as client:
        assert not (await client.call_tool("heartbeat")).is_error
        await ApiKey.objects.filter(pk=row.pk).aupdate(scopes=["read"])
        async with asyncio.timeout(WAIT):
            while not (refused := await client.call_tool("heartbeat")).is_error:
                await asyncio.sleep(0.05)
        assert refused.structured_content["code"] == "forbidden"


@pytest.mark.usefixtures("project")
async def test_on_2026_a_revoked_key_ends_what_it_listens_to(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpbridge.access.REMEMBER_SECONDS", 0.05)
    monkeypatch.setattr("mcpbridge.subscriptions.LOOK_SECONDS", 0.05)
    row, key = await sync_to_async(ApiKey.objects.issue)(name="short-lived", scopes=["read"], rate_per_minute=0)
    async with http_session(site, key=key, mode="auto") as client:
        async with client.listen(resource_subscriptions=["devflow://board/apollo"]) as changes:
            await sync_to_async(row.revoke)()
            with suppress(Exception):
                await asyncio.wait_for(anext(aiter(changes)), WAIT)
        async with asyncio.timeout(WAIT):
            while live._streams:
                await asyncio.sleep(0.05)


@pytest.mark.usefixtures("project")
async def test_a_key_restricted_to_toolsets_reads_only_their_resources_and_prompts(site: Site) -> None:
    _, key = await sync_to_async(ApiKey.objects.issue)(
        name="narrow", scopes=["read"], rate_per_minute=0, toolsets=["memory"]
    )
    async with http_session(site, key=key, mode="auto") as client:
        assert (await client.list_resources()).resources == []
        templates = (await client.list_resource_templates()).resource_templates
        assert [str(one.uri_template) for one in templates] == ["devflow://memory/{id}"]
        assert (await client.list_prompts()).prompts == []
        with pytest.raises(MCPError, match="was not found"):
            await client.read_resource("devflow://board/apollo")
        with pytest.raises(MCPError, match="was not found"):
            await client.get_prompt("plan_from_goal", {"goal": "x"})


def test_a_websocket_is_refused_without_a_fault(site: Site) -> None:
    handshake = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    answer = site.request("GET", "/mcp", headers={**handshake, "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="})
    assert answer.status_code == 403


def test_headers_without_end_are_refused(site: Site) -> None:
    address = urlsplit(site.url)
    with socket.create_connection((str(address.hostname), address.port), timeout=WAIT) as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        with suppress(OSError):
            for _ in range(64):
                raw.sendall(b"a" * 65536)
        with suppress(ConnectionResetError):
            assert raw.recv(100).startswith(b"HTTP/1.1 431")
    assert site.request("GET", "/healthz", headers={"X-Long": "a" * 60_000}).status_code == 200


def test_each_request_for_rows_costs_one_of_the_keys_calls(site: Site) -> None:
    _, key = ApiKey.objects.issue(name="slow", scopes=["read"], rate_per_minute=1)
    answers = [site.request("GET", "/api/v1/tasks/", key=key) for _ in range(30)]
    assert [answer.status_code for answer in answers[:21]] == [200] * 21
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["Retry-After"]) >= 1
