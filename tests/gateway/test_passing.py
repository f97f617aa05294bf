"""One backend passed through: to a client it is its own server, to DevFlow every call is one like any other."""

import asyncio
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import httpx
import mcp.types as types
import pytest
from django.utils import timezone
from mcp.shared.exceptions import MCPError

from devflow.config import PROJECT_ROOT
from devflow.events import NO_PROJECT, LiveEvent, bus
from mcpbridge.audit import recorder
from mcpbridge.gateway import catalog
from mcpbridge.gateway.notices import PROMPTS_CHANGED, RESOURCES_CHANGED
from mcpbridge.gateway.sessions import pool
from mcpbridge.models import Action, ApiKey, Backend, ToolCall
from mcpbridge.subscriptions import live
from tests.acceptance.library import eventually
from tests.gateway.faulty import survivors, until
from tests.gateway.serving import add, on_server, opened, passed
from tests.mcpbridge.conftest import in_thread
from tests.transports.site import WAIT, Site, call, http_session, initialize
from workflow.services import projects

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@pytest.fixture
def site(_served: Site, transactional_db: None) -> Iterator[Site]:
    with opened(_served) as fresh:
        add(fresh)
        yield fresh


def key_with(*scopes: str, **more: Any) -> str:
    return str(ApiKey.objects.issue(name="-".join(scopes), scopes=list(scopes), rate_per_minute=0, **more)[1])


def change(name: str, **fields: Any) -> None:
    in_thread(lambda: Action.objects.filter(name=name).update(changed_at=timezone.now(), **fields))
    catalog.catalog.forget()


async def names_in(client: Any) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]


@ERAS
async def test_a_client_meets_the_backend_itself(site: Site, mode: str) -> None:
    async with passed(site, mode=mode) as client:
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("plain", "7")
        assert client.instructions == "Plain speaking."
        has = client.server_capabilities.model_dump(exclude_none=True)
        assert has.keys() == {"tools", "prompts", "resources", "logging", "completions"}
        assert has["tools"]["list_changed"]
        assert bool(has["resources"].get("subscribe")) == (mode == "auto")  # only there it can be told


@ERAS
async def test_everything_a_backend_has_passes_under_its_own_name(site: Site, mode: str) -> None:
    async with passed(site, mode=mode) as client:
        first = await client.list_tools()
        assert first.next_cursor == "8"
        rest = await client.list_tools(cursor="8")
        names = [tool.name for tool in (*first.tools, *rest.tools)]
        assert names[:3] == ["echo", "big", "big.data"]
        assert "odd" not in names  # its schema refers to another place
        answer = await client.call_tool("echo", {"text": "Grüße"})
        assert answer.content[0].text == "Grüße"  # type: ignore[union-attr]  # a text
        assert answer.meta is not None
        assert answer.meta["from"] == "plain"
        assert (await client.list_prompts()).prompts[0].name == "greet"
        prompt = await client.get_prompt("greet", {"name": "Ada"})
        assert prompt.messages[0].content.text == "Hello Ada"  # type: ignore[union-attr]  # a text
        assert str((await client.list_resources()).resources[0].uri) == "note://one"
        assert (await client.list_resource_templates()).resource_templates[0].uri_template == "note://{id}"
        assert (await client.read_resource("note://7")).contents[0].text == "the note note://7"  # type: ignore[union-attr]
        ref = types.PromptReference(name="greet")
        completed = await client.complete(ref, {"name": "name", "value": "Ad"})
        assert completed.completion.values == ["Ada"]


@ERAS
async def test_a_backends_own_errors_pass_as_they_came(site: Site, mode: str) -> None:
    async with passed(site, mode=mode) as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("broken", {})
        assert (refused.value.code, refused.value.error.data) == (-32050, {"why": "asked"})
        failed = await client.call_tool("failing", {})
        assert failed.is_error
        assert [part.text for part in failed.content] == ["it went wrong"]  # type: ignore[union-attr]  # texts


@ERAS
async def test_progress_with_partial_text_and_logs_arrive_before_the_answer(site: Site, mode: str) -> None:
    heard: list[Any] = []
    logged: list[Any] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    async def on_log(params: types.LoggingMessageNotificationParams) -> None:
        logged.append(params.data)

    async with passed(site, mode=mode, logging_callback=on_log) as client:
        await client.call_tool("echo", {"text": "opens the session"})
        await client.call_tool("talk", {}, progress_callback=on_progress)
    assert heard == [(1.0, "Once "), (2.0, "upon")]
    assert logged == (["a log line"] if mode == "legacy" else [])  # 2026-07-28: only for requests that ask for logs


async def test_what_a_key_may_not_do_is_not_listed_and_refused(site: Site) -> None:
    async with passed(site, key=in_thread(lambda: key_with("read"))) as client:
        listed = [*await names_in(client), *[tool.name for tool in (await client.list_tools(cursor="8")).tools]]
        assert "echo" in listed
        assert "write" not in listed
        refused = await client.call_tool("write", {"text": "x"})
        assert refused.is_error
        assert refused.structured_content is not None
        assert refused.structured_content["code"] == "forbidden"
    async with passed(site, key=in_thread(lambda: key_with("read", "write"))) as client:
        assert "write" in [tool.name for tool in (await client.list_tools(cursor="8")).tools]


async def test_a_tool_that_is_switched_off_is_neither_listed_nor_called(site: Site) -> None:
    change("echo", is_enabled=False)
    async with passed(site) as client:
        assert "echo" not in await names_in(client)
        refused = await client.call_tool("echo", {"text": "x"})
        assert refused.structured_content is not None
        assert refused.structured_content["code"] == "forbidden"
        with pytest.raises(MCPError, match="was not found"):
            await client.call_tool("nothing_like_it", {})


async def test_arguments_that_do_not_fit_stop_here(site: Site) -> None:
    async with passed(site) as client:
        refused = await client.call_tool("echo", {"text": 5})
        assert refused.structured_content is not None
        assert refused.structured_content["code"] == "invalid_input"


async def test_a_tool_that_changes_is_held_back_and_a_listening_client_hears_of_it(site: Site) -> None:
    async with passed(site) as client, client.listen(tools_list_changed=True) as changes:
        assert "echo" in await names_in(client)
        await client.call_tool("swap", {})
        async with asyncio.timeout(WAIT):
            await anext(changes)
        assert "echo" not in await names_in(client)
        refused = await client.call_tool("echo", {"text": "x"})
        assert refused.structured_content is not None
        assert "held back" in refused.structured_content["message"]


async def test_a_tool_that_is_new_is_found_and_can_be_called(site: Site) -> None:
    async with passed(site) as client, client.listen(tools_list_changed=True) as changes:
        await client.call_tool("grow", {})
        async with asyncio.timeout(WAIT):
            await anext(changes)
        await asyncio.to_thread(in_thread, lambda: Action.objects.get(name="extra"))
        assert "extra" in [tool.name for tool in (await client.list_tools(cursor="8")).tools]


async def test_changes_of_resources_and_prompts_reach_who_listens(site: Site) -> None:
    async with (
        passed(site) as client,
        client.listen(prompts_list_changed=True, resource_subscriptions=["note://one"]) as changes,
    ):
        await client.call_tool("touch", {})
        async with asyncio.timeout(WAIT):
            heard = {type(await anext(changes)).__name__ for _ in range(2)}
    assert heard == {"ResourceUpdated", "PromptsListChanged"}


async def standing(count: int = 1) -> None:
    assert await until(lambda: len(live._streams) == count, WAIT)


async def test_a_client_of_the_handshake_hears_of_changed_lists_in_its_stream(site: Site) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def on_message(message: object) -> None:
        heard.put_nowait(type(message).__name__)

    async def said() -> str:
        async with asyncio.timeout(WAIT):
            return (await heard.get()).removesuffix("Notification")

    async with passed(site, mode="legacy", message_handler=on_message) as client:
        await standing()
        await client.call_tool("touch", {})
        assert await said() == "PromptListChanged"
        assert "echo" in await names_in(client)
        await client.call_tool("swap", {})
        assert await said() == "ToolListChanged"
        assert "echo" not in await names_in(client)
        in_thread(lambda: Backend.objects.get(backend_id="plain").save())
        on_server(site, forgotten())
        assert pool.open_sessions("plain") == 0
        await client.call_tool("touch", {})  # the stream outlives the session
        assert await said() == "PromptListChanged"
        assert heard.empty()
    await standing(0)


async def test_only_its_backend_s_lists_are_told_in_a_stream_noticed_in_whichever_process(site: Site) -> None:
    from tests.gateway.conftest import SMALL

    in_thread(lambda: add(site, "small", sys.executable, str(SMALL)))
    heard: asyncio.Queue[object] = asyncio.Queue()
    async with passed(site, "small", mode="legacy", message_handler=heard.put) as client:
        await standing()
        assert (await client.call_tool("echo", {"text": "x"})).structured_content == {"result": "x"}
        bus.deliver(LiveEvent(PROMPTS_CHANGED, NO_PROJECT, "plain"))  # another's
        bus.deliver(LiveEvent(RESOURCES_CHANGED, NO_PROJECT, "small"))  # noticed in another process
        async with asyncio.timeout(WAIT):
            assert isinstance(await heard.get(), types.ResourceListChangedNotification)
        assert heard.empty()


async def forgotten() -> None:
    pool.forget("plain")


def test_a_stream_ends_with_its_client_s_next_one_its_session_its_backend_and_its_key(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcpbridge.gateway.standing.PING_SECONDS", 0.05)
    path = "/mcp/backends/plain/mcp"
    session = site.request("POST", path, content=json.dumps(initialize()), headers=ACCEPT).headers["mcp-session-id"]
    headers = {**site.headers, "mcp-session-id": session, "Accept": "text/event-stream"}

    def ends() -> None:
        ApiKey.objects.filter(name="a").update(revoked_at=timezone.now())

    def leaves() -> None:
        assert site.request("DELETE", path, headers={"mcp-session-id": session}).status_code == 204

    def comes_again() -> None:
        with httpx.stream("GET", site.url + path, headers=headers, timeout=WAIT) as stream:
            lines = stream.iter_lines()  # one that nobody holds closes its stream
            assert next(lines) == ": ping"
            eventually(lambda: len(live._streams) == 1, "there is the new one alone", seconds=WAIT)

    def goes_off() -> None:
        row = Backend.objects.get(backend_id="plain")
        row.is_enabled = False
        row.save()

    def comes_back() -> None:
        row = Backend.objects.get(backend_id="plain")
        row.is_enabled = True
        row.save()
        catalog.catalog.forget()

    for happens in (leaves, comes_again, goes_off, ends):
        with httpx.stream("GET", site.url + path, headers=headers, timeout=WAIT) as stream:
            assert stream.status_code == 200, happens
            assert stream.headers["content-type"] == "text/event-stream"
            lines = (line for line in stream.iter_lines() if line)
            assert next(lines) == next(lines) == ": ping"
            happens()
            assert set(lines) <= {": ping"}
        eventually(lambda: not live._streams, "it is over", seconds=WAIT)
        comes_back()


def test_who_cannot_have_a_stream_is_told_why(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/mcp/backends/plain/mcp"
    session = site.request("POST", path, content=json.dumps(initialize()), headers=ACCEPT).headers["mcp-session-id"]
    opened_by = {"mcp-session-id": session, "Accept": "text/event-stream"}

    def refused(key: str | None = None, **headers: str) -> int:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = site.request("GET", path, key=key, headers={**opened_by, **given})
        assert "error" in answer.json()
        return answer.status_code

    assert refused(site.other_key) == 404
    assert refused(mcp_session_id="guess") == 404
    assert refused(Accept="application/json") == 422
    assert refused(X_Agent_Id="no name\tat all") == 422
    with monkeypatch.context() as patched:
        patched.setattr("mcpbridge.subscriptions.MAX_STREAMS", 0)
        assert refused() == 503
    with monkeypatch.context() as patched:
        patched.setattr("mcpbridge.subscriptions.draining", SimpleNamespace(is_set=lambda: True))
        assert refused() == 503
    writer = in_thread(lambda: key_with("write"))
    session = site.request("POST", path, key=writer, content=json.dumps(initialize()), headers=ACCEPT).headers.get(
        "mcp-session-id", ""
    )
    assert refused(writer, mcp_session_id=session) == 403
    assert not live._streams


def test_a_posted_cancellation_ends_the_call_at_the_backend(site: Site) -> None:
    from tests.gateway.conftest import SMALL

    add(site, "small", sys.executable, str(SMALL))
    path = "/mcp/backends/small/mcp"
    session = site.request("POST", path, content=json.dumps(initialize()), headers=ACCEPT).headers["mcp-session-id"]
    stranger = site.request("POST", path, content=json.dumps(initialize()), headers=ACCEPT).headers["mcp-session-id"]

    def post(message: dict[str, Any], session: str = session) -> httpx.Response:
        headers = {**ACCEPT, "mcp-session-id": session, "mcp-protocol-version": "2025-06-18"}
        return site.request("POST", path, content=json.dumps(message), headers=headers)

    def at_work() -> bool:
        return any(session.at_work for session in pool._sessions.values())

    def cancelled(session: str = session, **params: Any) -> int:
        message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        return post(message, session).status_code

    with ThreadPoolExecutor(1) as threads:
        calling = threads.submit(post, call(7, "wait", seconds=60))
        eventually(at_work, "the call is at work", seconds=WAIT)
        assert cancelled(stranger, requestId=7) == cancelled(requestId=8) == cancelled() == 202
        assert at_work()
        assert cancelled(requestId=7) == 202
        answer = calling.result(WAIT)
    assert answer.json() == {"jsonrpc": "2.0", "id": 7, "error": {"code": -32800, "message": "Request cancelled"}}
    eventually(lambda: not at_work(), "the call is over", seconds=WAIT)
    still = post(call(8, "echo", text="still there")).json()
    assert still["result"]["structuredContent"] == {"result": "still there"}
    assert pool.open_sessions("small") == 2  # the stranger's too: nobody's process was ended


async def test_a_modern_backend_is_listened_to_as_well(site: Site) -> None:
    from tests.gateway.conftest import SMALL

    in_thread(lambda: add(site, "small", sys.executable, str(SMALL)))
    async with passed(site, "small") as client, client.listen(prompts_list_changed=True) as changes:
        assert changes.honored.prompts_list_changed
        assert (await client.call_tool("echo", {"text": "x"})).structured_content == {"result": "x"}


async def test_giving_up_cancels_the_call_at_the_backend(site: Site) -> None:
    from tests.gateway.conftest import SMALL

    in_thread(lambda: add(site, "small", sys.executable, str(SMALL)))
    async with passed(site, "small") as client:
        await client.call_tool("echo", {"text": "opens"})
        calling = asyncio.create_task(client.call_tool("wait", {"seconds": 60}))
        async with asyncio.timeout(WAIT):
            while not any(session.at_work for session in pool._sessions.values()):
                await asyncio.sleep(0.01)
            calling.cancel()
            while any(session.at_work for session in pool._sessions.values()):
                await asyncio.sleep(0.01)
        assert (await client.call_tool("echo", {"text": "still there"})).structured_content == {"result": "still there"}


async def test_calls_and_reads_are_in_the_log_with_their_backend(site: Site) -> None:
    async with passed(site, headers={"X-Agent-Id": "agent-9"}) as client:
        await client.call_tool("echo", {"text": "x"})
        await client.get_prompt("greet", {"name": "Ada"})
        await client.read_resource("note://one")
    await asyncio.to_thread(in_thread, recorder.flush)
    rows = in_thread(
        lambda: list(ToolCall.objects.filter(backend="plain").values_list("tool", "outcome", "agent_name"))
    )
    for tool in ("plain.echo", "prompts/get", "resources/read"):
        assert (tool, "ok", "agent-9") in rows


async def test_a_call_of_a_backend_is_in_the_log_of_its_caller_s_project(site: Site) -> None:
    here, there = (in_thread(lambda name=name: projects.create(name=name, slug=name).pk) for name in ("here", "there"))
    for headers in ({}, {"X-Project": "there"}, {"X-Project": "nowhere"}):
        async with passed(site, headers={"X-Agent-Id": f"agent-{len(headers)}", **headers}) as client:
            await client.call_tool("echo", {"text": "x"})
            await client.list_prompts()
    await asyncio.to_thread(in_thread, recorder.flush)
    found = in_thread(lambda: list(ToolCall.objects.order_by("pk").values_list("tool", "project")))
    echoed = [project for tool, project in found if tool == "plain.echo"]
    listed = [project for tool, project in found if tool == "prompts/list"]
    assert echoed == listed == [None, there, None]
    assert here != there


async def test_reading_costs_the_keys_budget(site: Site) -> None:
    from mcpbridge import ratelimit

    key = in_thread(lambda: ApiKey.objects.issue(name="slow", scopes=["read"], rate_per_minute=1)[1])
    allowed = ratelimit.allowance(1)
    async with passed(site, key=key) as client:
        with pytest.raises(MCPError) as refused:
            for _ in range(allowed):  # and one was spent on meeting the backend
                await client.list_prompts()
    assert refused.value.code == -32013


async def test_two_callers_never_share_a_session(site: Site) -> None:
    async with passed(site, mode="legacy") as one, passed(site, mode="legacy") as two:
        await one.call_tool("echo", {"text": "x"})
        await two.call_tool("echo", {"text": "x"})
        assert pool.open_sessions("plain") == 2


def test_a_client_that_leaves_ends_its_session(site: Site) -> None:
    path = "/mcp/backends/plain/mcp"
    opened_by = site.request("POST", path, content=json.dumps(initialize()), headers=ACCEPT)
    session = opened_by.headers["mcp-session-id"]
    assert pool.open_sessions("plain") == 1
    assert site.request("DELETE", path, key=site.other_key, headers={"mcp-session-id": session}).status_code == 404
    assert site.request("DELETE", path).status_code == 405
    assert site.request("DELETE", path, headers={"mcp-session-id": session}).status_code == 204
    assert pool.open_sessions("plain") == 0


def test_the_door_stands_here_too(site: Site) -> None:
    path, body = "/mcp/backends/plain/mcp", json.dumps(initialize())
    assert site.request("POST", path, key="dvf_wrong", content=body, headers=ACCEPT).status_code == 401
    assert (
        site.request("POST", path, content=body, headers={**ACCEPT, "Origin": "https://e.example"}).status_code == 403
    )
    assert site.request("GET", path).status_code == 405  # no session, no stream
    assert site.status_of_large_body(path, chunked=False) == 413
    missing = site.request("POST", "/mcp/backends/plane/mcp", content=body, headers=ACCEPT)
    assert missing.status_code == 404
    assert "plain" in missing.text
    narrow = key_with("read", toolsets=["memory"])
    assert site.request("POST", path, key=narrow, content=body, headers=ACCEPT).status_code == 403
    assert survivors() == []  # nothing was started for any of them


def test_a_backend_that_is_switched_off_or_down_says_so(site: Site) -> None:
    row = Backend.objects.get()
    row.is_enabled = False
    row.save()
    catalog.catalog.forget()
    path, body = "/mcp/backends/plain/mcp", json.dumps(initialize())
    refused = site.request("POST", path, content=body, headers=ACCEPT)
    assert refused.status_code == 403
    assert "switched off" in refused.text
    row.is_enabled, row.command = True, "/nowhere/at/all"
    row.save()
    catalog.catalog.forget()
    down = site.request("POST", path, content=body, headers=ACCEPT)
    assert "cannot be reached" in down.text
    assert "-32015" in down.text


async def test_a_large_answer_comes_in_part_with_a_link_to_the_whole(site: Site) -> None:
    async with passed(site) as client:
        answer = await client.call_tool("big", {"size": 2_000_000})
        assert not answer.is_error
        assert len(answer.content[0].text) == 64 * 1024  # type: ignore[union-attr]  # a text
        link = str(answer.content[2].uri)  # type: ignore[union-attr]  # a link
        whole = await client.read_resource(link)
        assert len(whole.contents[0].text) == 2_000_000  # type: ignore[union-attr]  # a text
        structured = await client.call_tool("big.data", {"size": 2_000_000})
        assert structured.is_error  # its schema promises what a part cannot be
        assert structured.content[2].type == "resource_link"
    async with passed(site, key=site.other_key) as stranger:
        with pytest.raises(MCPError, match="was not found"):
            await stranger.read_resource(link)
    async with http_session(site) as main:
        assert len((await main.read_resource(link)).contents[0].text) == 2_000_000  # type: ignore[union-attr]  # a text
    path = link.replace("devflow://answers/", "/mcp/answers/")
    assert site.request("GET", path).text == "x" * 2_000_000
    assert site.request("GET", path, key=site.other_key).status_code == 404


async def test_a_project_root_in_the_header_is_where_the_backend_works(site: Site, tmp_path: Any) -> None:
    small = [str(PROJECT_ROOT / "tests" / "fakes" / "small_backend.py")]
    activation = {"action": "write_file", "params": {"name": "activated.txt", "text": "{project_root}"}}
    allowed = {"allowed_roots": [str(tmp_path)], "activation": activation}
    await asyncio.to_thread(in_thread, lambda: add(site, "small", sys.executable, *small, **allowed))
    async with passed(site, "small", headers={"X-Project-Root": str(tmp_path)}) as client:
        answer = await client.call_tool("whoami", {})
        assert answer.structured_content is not None
        assert answer.structured_content["cwd"] == str(tmp_path)
        assert (tmp_path / "activated.txt").read_text(encoding="utf-8") == str(tmp_path)
    async with passed(site, "small") as client:
        answer = await client.call_tool("whoami", {})
        assert answer.structured_content is not None
        assert answer.structured_content["cwd"] != str(tmp_path)
    call, headers = {"tool": "small__whoami"}, {"X-Project-Root": "/"}
    refused = await asyncio.to_thread(site.request, "POST", "/mcp/execute", json=call, headers=headers)
    assert refused.status_code == 403
    headers = {"X-Project-Root": str(tmp_path)}
    done = await asyncio.to_thread(site.request, "POST", "/mcp/execute", json=call, headers=headers)
    assert done.json()["result"]["cwd"] == str(tmp_path)


async def test_a_request_that_reads_does_not_wait_for_a_place_for_ever(site: Site) -> None:
    row = await asyncio.to_thread(in_thread, lambda: add(site, "busy", concurrency=1, timeouts={"QUERY": 300}))
    async with passed(site, "busy", mode="legacy") as client:
        place = pool.place(catalog.backend_spec(row))
        on_server(site, place.acquire())
        try:
            with pytest.raises(MCPError, match=r"within 0\.3 s"):
                await client.list_prompts()
        finally:
            site.loop.call_soon_threadsafe(place.release)
        assert (await client.list_prompts()).prompts  # and the backend is not thought to have failed
