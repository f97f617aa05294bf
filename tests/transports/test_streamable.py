"""MCP over Streamable HTTP, in both eras of the protocol."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.transports.probes import Held, held
from tests.transports.site import WAIT, Site, call, http_session, initialize

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


def post(site: Site, message: dict[str, Any], key: str | None = None, **headers: str) -> httpx.Response:
    return site.request("POST", "/mcp", key=key, content=json.dumps(message), headers={**ACCEPT, **headers})


def answer_in(response: httpx.Response) -> dict[str, Any]:
    """The JSON-RPC answer of a response, the last event where it is a stream."""
    assert response.status_code == 200, response.text
    if response.headers["content-type"].startswith("application/json"):
        return dict(response.json())
    return dict(json.loads([line for line in response.text.splitlines() if line.startswith("data: ")][-1][6:]))


@ERAS
async def test_tools_are_listed_and_called(site: Site, mode: str) -> None:
    async with http_session(site, mode=mode) as client:
        assert "probe_caller" in {tool.name for tool in (await client.list_tools()).tools}
        assert (await client.call_tool("probe_large", {"size": 3})).structured_content == {"text": "xxx"}
        assert client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")


@ERAS
async def test_progress_arrives_before_the_answer(site: Site, mode: str) -> None:
    heard: list[Any] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async with http_session(site, mode=mode) as client:
        await client.call_tool("probe_progress", {"steps": 3}, progress_callback=on_progress)
        assert heard == [1, 2, 3]


async def test_on_2026_a_client_that_gives_up_stops_its_call(site: Site) -> None:
    seen = held["http"] = Held()
    async with http_session(site, mode="auto") as client:
        calling = asyncio.create_task(client.call_tool("probe_hold", {"name": "http"}))
        assert await asyncio.to_thread(seen.started.wait, WAIT)
        calling.cancel()
        assert await asyncio.to_thread(seen.cancelled.wait, WAIT)


async def test_on_the_handshake_revisions_a_cut_connection_stops_the_call(site: Site) -> None:
    seen = held["cut"] = Held()
    async with httpx.AsyncClient(timeout=WAIT) as client:
        headers = {**ACCEPT, **site.headers}
        request = client.post(site.url + "/mcp", json=call(1, "probe_hold", name="cut"), headers=headers)
        calling = asyncio.create_task(request)
        assert await asyncio.to_thread(seen.started.wait, WAIT)
        calling.cancel()
        assert await asyncio.to_thread(seen.cancelled.wait, WAIT)


def test_an_answer_is_plain_json_unless_something_is_said_before_it(site: Site) -> None:
    plain = post(site, call(1, "probe_progress", steps=2))
    assert plain.headers["content-type"] == "application/json"
    request = call(2, "probe_progress", steps=2)
    request["params"]["_meta"] = {"progressToken": "p"}
    streamed = post(site, request)
    assert streamed.headers["content-type"] == "text/event-stream"
    said = [json.loads(line[6:]) for line in streamed.text.splitlines() if line.startswith("data: ")]
    assert [one["params"]["progress"] for one in said[:-1]] == [1, 2]
    assert {one["params"]["progressToken"] for one in said[:-1]} == {"p"}
    assert said[-1]["id"] == 2
    assert said[-1]["result"]["structuredContent"] == plain.json()["result"]["structuredContent"]


def test_a_long_call_keeps_its_connection_alive(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpbridge.transports.exchange.PING_SECONDS", 0.05)
    seen = held["quiet"] = Held()
    headers = {**ACCEPT, **site.headers}
    request = call(1, "probe_hold", name="quiet")
    with httpx.stream("POST", site.url + "/mcp", json=request, headers=headers, timeout=WAIT) as stream:
        lines = stream.iter_lines()
        assert [next(lines), next(lines), next(lines)] == [": ping", "", ": ping"]
    assert seen.cancelled.wait(WAIT)  # it was left


def test_headers_that_mcp_does_not_allow_are_refused(site: Site) -> None:
    for headers, status in (
        ({"Accept": "application/json"}, 406),
        ({"Accept": "text/html"}, 406),
        ({"Content-Type": "text/plain"}, 400),
        ({"Accept": "*/*"}, 200),
        ({"Accept": "application/*, text/*;q=0.1", "Content-Type": "Application/JSON; charset=utf-8"}, 200),
    ):
        assert post(site, call(1, "probe_caller"), **headers).status_code == status, headers


@pytest.mark.parametrize("body", ["[]", '"x"', '{"jsonrpc": "2.0"}'])
def test_what_is_no_message_of_mcp_is_refused(site: Site, body: str) -> None:
    answer = site.request("POST", "/mcp", content=body, headers=ACCEPT)
    assert answer.status_code == 400
    assert "error" in answer.json()


def test_a_session_is_signed_and_names_client_and_run(site: Site) -> None:
    session = post(site, initialize("claude")).headers["mcp-session-id"]
    said = answer_in(post(site, call(1, "probe_caller"), **{"Mcp-Session-Id": session}))
    agent, run, client, transport, _ = said["result"]["structuredContent"]["text"].split("|")
    assert agent == f"claude-{run[:8]}"
    assert (client, transport) == ("claude", "http")
    assert post(site, initialize("claude")).headers["mcp-session-id"] != session


def test_a_foreign_or_forged_session_is_unknown(site: Site) -> None:
    session = post(site, initialize()).headers["mcp-session-id"]
    for key, presented in ((site.other_key, session), (site.key, session[:-2] + "xx"), (site.key, "")):
        assert post(site, call(1, "probe_caller"), key, **{"Mcp-Session-Id": presented}).status_code == 404


def test_other_methods_are_not_allowed(site: Site) -> None:
    for method in ("GET", "DELETE", "PUT"):
        answer = site.request(method, "/mcp", headers=ACCEPT)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        assert site.request(method, "/mcp", key="wrong").status_code == 401


def test_other_hosts_origins_and_large_bodies_are_refused(site: Site) -> None:
    assert post(site, initialize(), Host="evil.example").status_code == 421
    assert post(site, initialize(), Origin="http://evil.example").status_code == 403
    assert site.status_of_large_body("/mcp", chunked=False) == 413
    assert site.status_of_large_body("/mcp", chunked=True) == 413


def test_what_is_no_json_is_a_parse_error(site: Site) -> None:
    answer = site.request("POST", "/mcp", content=b"{", headers=ACCEPT)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == -32700
