"""Chosen tools of backends in the main list, in every dialect and exposure; composites beside them: see there."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mcpbridge import views
from mcpbridge.gateway import catalog
from mcpbridge.gateway.federation import federation, name_of
from mcpbridge.gateway.specs import ActionSpec
from mcpbridge.models import Action, ApiKey, Backend
from tests.gateway.serving import add, opened
from tests.mcpbridge.conftest import in_thread
from tests.transports.site import WAIT, Site, http_session, sse_session
from workflow.services import projects

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])


@pytest.fixture
def site(_served: Site, transactional_db: None) -> Iterator[Site]:
    with opened(_served) as fresh:
        add(fresh)
        for action in Action.objects.exclude(name__in=["talk", "grow"]):
            action.is_federated = True
            action.save()
        catalog.catalog.forget()
        yield fresh


def execute(site: Site, tool: str, args: dict[str, Any] | None = None, **options: Any) -> Any:
    return site.request("POST", "/mcp/execute", json={"tool": tool, "args": args or {}}, **options)


@ERAS
async def test_a_chosen_tool_stands_in_the_main_list_and_answers_as_it_came(site: Site, mode: str) -> None:
    async with http_session(site, mode=mode) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "plain__echo" in listed
        assert "plain__talk" not in listed  # not chosen
        assert "plain__odd" not in listed  # cannot be called
        echo = listed["plain__echo"]
        assert echo.annotations is not None
        assert (echo.description, echo.annotations.read_only_hint) == ("echo of plain", True)
        answer = await client.call_tool("plain__echo", {"text": "hi"})
        assert answer.content[0].text == "hi"  # type: ignore[union-attr]  # a text
        assert answer.meta is not None
        assert answer.meta["from"] == "plain"
        failed = await client.call_tool("plain__failing", {})
        assert (failed.is_error, failed.content[0].text) == (True, "it went wrong")  # type: ignore[union-attr]  # a text
        assert "plain__big.data" in listed
        data = await client.call_tool("plain__big.data", {"size": 3})
        assert data.structured_content == {"data": "yyy"}


async def test_dots_are_spelled_for_clients_that_break_on_them(site: Site) -> None:
    path = "/mcp/tools?names=underscore&toolsets=gateway"
    names = [tool["name"] for tool in site.request("GET", path).json()["tools"]]
    assert "plain__big_data" in names
    assert execute(site, "plain__big_data", {"size": 2}).json()["result"] == {"data": "yy"}


def test_over_rest_the_result_is_the_structured_content_or_the_blocks(site: Site) -> None:
    assert execute(site, "plain__echo", {"text": "hi"}).json()["result"] == {
        "content": [{"type": "text", "text": "hi"}]
    }
    refused = execute(site, "plain__echo", {"text": 5})
    assert refused.status_code == 422
    assert "params" in refused.text or "text" in refused.json()["detail"]["details"]
    assert execute(site, "plain__failing").status_code == 502
    enveloped = site.request(
        "POST", "/mcp/gateway", json={"intent": "QUERY", "action": "plain__echo", "params": {"text": "hi"}}
    )
    assert enveloped.json()["result"]["data"] == {"text": "hi"}


def test_a_key_sees_and_calls_what_its_scopes_and_toolsets_allow(site: Site) -> None:
    _, reader = ApiKey.objects.issue(name="reader", scopes=["read"], rate_per_minute=0)
    _, narrow = ApiKey.objects.issue(name="narrow", scopes=["read"], rate_per_minute=0, toolsets=["memory"])
    names = [tool["name"] for tool in site.request("GET", "/mcp/tools", key=reader).json()["tools"]]
    assert "plain__echo" in names
    assert "plain__write" not in names
    assert execute(site, "plain__write", {"text": "x"}, key=reader).status_code == 403
    assert execute(site, "plain__echo", {"text": "x"}, key=narrow).status_code == 404


def test_search_finds_them_and_intent_shows_one_tool(site: Site) -> None:
    listed = site.request("GET", "/mcp/tools?expose=intent").json()["tools"]
    assert [tool["name"] for tool in listed] == ["gateway_execute"]
    listed = site.request("GET", "/mcp/tools?expose=search").json()["tools"]
    assert sorted(tool["name"] for tool in listed) == ["call_tool", "search_tools"]
    found = execute(site, "search_tools", {"query": "echo of plain"}).json()["result"]["tools"]
    assert found[0]["name"] == "plain__echo"
    called = execute(site, "call_tool", {"name": "plain__echo", "arguments": {"text": "hi"}})
    assert called.json()["result"]["content"][0]["text"] == "hi"


def test_what_is_switched_off_goes_from_the_list_at_once(site: Site) -> None:
    row = Action.objects.get(name="echo")
    row.is_enabled = False
    row.save()
    catalog.catalog.forget()
    names = [tool["name"] for tool in site.request("GET", "/mcp/tools").json()["tools"]]
    assert "plain__echo" not in names
    refused = execute(site, "plain__echo", {"text": "x"})
    assert refused.status_code == 403
    assert "switched off" in refused.json()["error"]


async def test_a_client_whose_connection_stays_open_hears_of_new_tools(site: Site) -> None:
    import asyncio

    changed = asyncio.Event()

    async def hear(message: Any) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            changed.set()

    async with sse_session(site, mode="legacy", message_handler=hear) as client:
        assert "plain__echo" in [tool.name for tool in (await client.list_tools()).tools]
        await asyncio.to_thread(execute, site, "plain__swap")
        async with asyncio.timeout(WAIT):
            await changed.wait()
        assert "plain__echo" not in [tool.name for tool in (await client.list_tools()).tools]  # it is held back


def test_the_same_idempotency_key_gives_the_same_answer(site: Site) -> None:
    projects.create(name="Apollo", slug="apollo")  # a change belongs to a project
    headers = {"Idempotency-Key": "one"}
    first = execute(site, "plain__write", {"text": "x"}, headers=headers)
    again = execute(site, "plain__write", {"text": "x"}, headers=headers)
    assert first.status_code == 200
    assert first.json()["result"] == again.json()["result"]
    assert execute(site, "plain__write", {"text": "y"}, headers=headers).status_code == 409


def test_names_are_unique_plain_and_never_longer_than_clients_take() -> None:
    def action(name: str) -> ActionSpec:
        return ActionSpec(backend="b", name=name, input_schema={"type": "object"}, is_federated=True)

    odd = [action(name) for name in ("a.b", "a_b", "größe", "gr_e", "x" * 128, "x" * 127)]
    assert name_of(action("echo")) == "b__echo"
    fresh = type(federation)()
    fresh.follow(catalog.Snapshot(actions={(item.backend, item.name): item for item in odd}))
    from mcpbridge.registry import spelled

    shown = [spelled(tool.name, "underscore") for tool in fresh.all()]
    assert len(set(shown)) == len(odd)
    assert all(len(name) <= 64 and name.isascii() for name in shown)
    assert all(fresh.find(name) is not None for name in shown)


def test_what_each_exposure_costs_is_counted_with_backend_tools(site: Site) -> None:
    backend = Backend.objects.get()
    before = {cost["name"]: cost for cost in views.token_costs()}
    Action.objects.bulk_create(
        Action(
            backend=backend,
            name=f"tool_{number}",
            description="Look something up. " * 10,
            input_schema={"type": "object", "properties": {"query": {"type": "string", "description": "what"}}},
            intent="QUERY",
            effect="READ_ONLY",
            is_federated=True,
        )
        for number in range(100)
    )
    after = {cost["name"]: cost for cost in views.token_costs()}
    assert after["direct"]["tools"] == before["direct"]["tools"] + 100
    assert after["direct"]["tokens"] > before["direct"]["tokens"] + 5000
    assert after["search"] == before["search"]
    assert after["intent"] == before["intent"]
    assert after["intent"]["tools"] == 1


def test_a_request_can_be_streamed_with_its_progress(site: Site) -> None:
    headers = {"Accept": "application/x-ndjson"}
    for path, body in (
        ("/mcp/gateway", {"intent": "QUERY", "action": "plain.talk"}),
        ("/mcp/execute", {"tool": "plain__talk", "args": {}, "request_id": "r"}),
    ):
        answer = site.request("POST", path, json=body, headers=headers)
        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(line) for line in answer.text.splitlines()]
        assert [line["message"] for line in lines[:-1]] == ["Once ", "upon"]
        assert (lines[-1]["type"], lines[-1]["status"]) == ("answer", 200)
        assert "Once upon a time" in json.dumps(lines[-1]["body"])
    wrong = site.request("POST", "/mcp/gateway", json={"action": "plain.talk"}, headers=headers)
    last = json.loads(wrong.text.splitlines()[-1])
    assert (last["status"], last["body"]["ok"]) == (422, False)
    assert site.request("POST", "/mcp/execute", json=[], headers=headers).status_code == 422


def test_leaving_a_stream_cancels_the_call(site: Site) -> None:
    import sys
    import time

    import httpx

    from mcpbridge.gateway.sessions import pool
    from tests.gateway.conftest import SMALL

    add(site, "small", sys.executable, str(SMALL))
    body = {"intent": "QUERY", "action": "small.wait", "params": {"seconds": 60}}
    headers = {"Accept": "application/x-ndjson", "X-API-Key": site.key}

    def at_work() -> bool:
        return any(session.at_work for session in pool._sessions.values())

    with httpx.stream("POST", f"{site.url}/mcp/gateway", json=body, headers=headers, timeout=WAIT):
        until = time.monotonic() + WAIT
        while not at_work() and time.monotonic() < until:
            time.sleep(0.01)
        assert at_work()
    while at_work() and time.monotonic() < until:
        time.sleep(0.01)
    assert not at_work()


def test_a_large_envelope_is_cut_and_kept(site: Site) -> None:
    body = {"intent": "QUERY", "action": "plain.big", "params": {"size": 2_000_000}}
    data = site.request("POST", "/mcp/gateway", json=body).json()["result"]["data"]
    assert (data["is_cut"], data["characters"], len(data["first_part"])) == (True, 2_000_000, 64 * 1024)
    assert len(site.request("GET", data["path"]).text) == 2_000_000
    read = in_thread(lambda: execute(site, "plain__big", {"size": 2_000_000}).json()["result"]["content"])
    assert read[2]["type"] == "resource_link"
