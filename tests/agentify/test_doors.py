"""The orchestrator at the other doors: SSE, stateless /mcp, REST."""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from mcpbridge.gateway import catalog, discovery, ledger
from mcpbridge.gateway.sessions import pool
from mcpbridge.models import ApiKey, Backend
from tests.gateway.conftest import SMALL, children_carrying
from tests.mcpbridge.conftest import in_thread
from tests.transports.conftest import _served, project, site
from tests.transports.site import RawStream, Site, initialize
from workflow.models import Project

__all__ = ["_served", "project", "site"]

TASK = "agentify/orchestrateTask"
MARK = "of-the-session-1f3a"
MINE = {"id": "mine", "type": "stdio", "command": sys.executable, "args": [str(SMALL)], "env": {"TOKEN": MARK}}


def message(method: str, params: Any = None, identifier: int = 7) -> dict[str, Any]:
    made: dict[str, Any] = {"jsonrpc": "2.0", "id": identifier, "method": method}
    return made if params is None else {**made, "params": params}


def ask(stream: RawStream, method: str, params: Any = None) -> dict[str, Any]:
    stream.post(message(method, params))
    return stream.message()


def opened(stream: RawStream, options: Any) -> dict[str, Any]:
    first = initialize()
    first["params"]["initializationOptions"] = options
    stream.post(first)
    answer = stream.message()
    stream.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
    return answer


@pytest.fixture(autouse=True)
def nothing_is_left_open(site: Site, project: Project) -> Iterator[None]:
    """The server's sessions with backends end with the test, while its database is there."""
    yield

    async def settle() -> None:
        await pool.close()
        await ledger.written()

    asyncio.run_coroutine_threadsafe(settle(), site.loop).result(30)


@pytest.fixture
def small(site: Site) -> Iterator[Backend]:
    """A backend of the server."""
    row = in_thread(lambda: Backend.objects.create(backend_id="small", command=sys.executable, args=[str(SMALL)]))
    found = async_to_sync(discovery.refresh)(catalog.backend_spec(row))
    assert not isinstance(found, Exception), found
    catalog.catalog.forget()
    yield row
    catalog.catalog.__init__()  # type: ignore[misc]  # the next test's database is another


def test_a_session_over_sse_has_the_whole_lifecycle(site: Site) -> None:
    with RawStream(site) as stream:
        before = ask(stream, TASK, {"query": "x"})
        assert before["error"]["code"] == -32001
        assert "serverInfo" in opened(stream, {"backends": [MINE], "logLevel": "warn", "DEBUG_PORT": 9})["result"]
        answer = ask(stream, TASK, {"query": "mine.whoami"})
        assert answer["result"]["structuredContent"]["token"] == MARK
        assert answer["result"]["_meta"]["devflow/gateway"]["orchestration"]["mode"] == "exact"
        assert children_carrying(MARK)
        assert ask(stream, TASK, {"query": "bake a cake"})["error"]["code"] == -32000
        planned = ask(stream, TASK, {"query": 'mine.launch {"what": "it"}'})["error"]
        assert planned["code"] == -32004
        confirmed = ask(stream, "agentify/confirmPlan", {"plan_id": planned["data"]["plan"]["plan_id"]})
        assert "result" in confirmed, confirmed
        assert confirmed["result"]["content"][0]["text"] == "launched it"
        assert ask(stream, "tools/list")["result"]["tools"], "MCP goes on beside it"
        assert ask(stream, "shutdown")["result"] == {}
        assert ask(stream, TASK, {"query": "mine.whoami"})["error"]["code"] == -32001
        assert ask(stream, "tools/list")["result"]["tools"]
    wait_for_none()


def wait_for_none() -> None:
    until = time.monotonic() + 10
    while children_carrying(MARK):
        assert time.monotonic() < until, "a backend outlived its session"
        time.sleep(0.02)


def test_a_client_that_leaves_takes_its_backends_along(site: Site) -> None:
    with RawStream(site) as stream:
        opened(stream, {"backends": [MINE]})
        assert "result" in ask(stream, TASK, {"query": "mine.whoami"})
        assert children_carrying(MARK)
    wait_for_none()


def test_an_exit_that_is_only_notified_ends_the_session_and_not_the_server(site: Site) -> None:
    with RawStream(site) as stream:
        opened(stream, {"backends": [MINE]})
        assert "result" in ask(stream, TASK, {"query": "mine.whoami"})
        stream.post({"jsonrpc": "2.0", "method": "exit"})
        wait_for_none()
        assert ask(stream, "ping")["result"] == {}


@pytest.mark.parametrize("of_project", [False, True])
def test_only_administrators_of_the_server_bring_commands(site: Site, project: Project, of_project: bool) -> None:
    fields = {"scopes": ["admin"], "project_id": project.pk} if of_project else {"scopes": ["read", "write", "execute"]}
    _, key = in_thread(lambda: ApiKey.objects.issue(name="plain", **fields))
    with RawStream(site, key=key) as stream:
        refused = opened(stream, {"backends": [MINE]})
        assert refused["error"]["code"] == -32602
        assert "initializationOptions.backends" in refused["error"]["data"]["details"]
    assert children_carrying(MARK) == []


def test_bad_options_refuse_the_handshake(site: Site) -> None:
    with RawStream(site) as stream:
        assert opened(stream, {"backends": [{**MINE, "id": "no id"}]})["error"]["code"] == -32602


def test_without_options_the_server_s_own_backends_serve(site: Site, small: Backend) -> None:
    with RawStream(site) as stream:
        stream.shake_hands()
        assert ask(stream, TASK, {"query": 'echo {"text": "hi"}'})["result"]["content"][0]["text"] == "hi"
        assert ask(stream, TASK, {"query": 1})["error"]["code"] == -32602


def test_neither_options_nor_backends_is_said(site: Site) -> None:
    catalog.catalog.__init__()  # type: ignore[misc]  # a new process knows nothing
    with RawStream(site) as stream:
        stream.shake_hands()
        assert ask(stream, TASK, {"query": "x"})["error"]["code"] == -32002


def post(site: Site, method: str, params: Any, **headers: str) -> Any:
    answer = site.request(
        "POST",
        "/mcp",
        json=message(method, params),
        headers={"Accept": "application/json, text/event-stream", **headers},
    )
    assert answer.status_code == 200, answer.text
    text = answer.text
    if answer.headers["content-type"].startswith("text/event-stream"):
        text = next(line[6:] for line in text.splitlines() if line.startswith("data: {"))
    return json.loads(text)


def test_stateless_mcp_has_the_one_method_with_the_server_s_backends(site: Site, small: Backend) -> None:
    answer = post(site, TASK, {"query": 'echo {"text": "hi"}'})
    assert answer["result"]["content"][0]["text"] == "hi"
    assert post(site, TASK, {"query": ""})["error"]["code"] == -32602
    assert post(site, TASK, {"query": "bake a cake"})["error"]["code"] == -32000
    assert post(site, TASK, {"query": 'small.fail {"why": "x"}'})["error"]["code"] == -32004
    assert post(site, "shutdown", None)["error"]["code"] == -32601
    modern = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    }
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": TASK}
    answer = post(site, TASK, {"query": 'echo {"text": "hi"}', "_meta": modern}, **headers)
    assert answer["result"]["content"][0]["text"] == "hi"
    assert post(site, TASK, {"query": "bake a cake", "_meta": modern}, **headers)["error"]["code"] == -32000


def test_rest_orchestrates_plans_and_confirms(site: Site, small: Backend) -> None:
    def orchestrate(body: Any, key: str | None = None) -> Any:
        return site.request("POST", "/mcp/orchestrate", key, json=body)

    answer = orchestrate({"query": 'echo {"text": "hi"}'})
    assert (answer.status_code, answer.json()["ok"]) == (200, True)
    assert answer.json()["meta"]["orchestration"]["mode"] == "exact"
    refused = orchestrate({"query": "bake a cake"})
    assert refused.status_code == 422
    assert refused.json()["error"]["type"] == "VALIDATION"
    assert refused.json()["error"]["details"]["candidates"]
    malformed = site.request("POST", "/mcp/orchestrate", content=b"{")
    assert (malformed.status_code, malformed.json()["ok"]) == (400, False)
    assert orchestrate([]).json()["ok"] is False
    planned = orchestrate({"query": 'small.launch {"what": "it"}'})
    plan = planned.json()["result"]["data"]["plan"]
    path = f"/mcp/plans/{plan['plan_id']}/confirm"
    assert site.request("POST", path, site.other_key, json={"signature": "0" * 64}).status_code == 403
    assert site.request("POST", path, json={"more": 1}).status_code == 422
    done = site.request("POST", path, json={})
    assert done.status_code == 200, done.text
    assert done.json()["result"]["data"] == {"result": "launched it"}
    assert site.request("POST", path, json={}).status_code == 409
    assert site.request("POST", "/mcp/plans/none/confirm", json={}).status_code == 404
    assert site.request("GET", path).status_code == 405
    _, reader = in_thread(lambda: ApiKey.objects.issue(name="reader", scopes=["read"], rate_per_minute=0))
    assert orchestrate({"query": 'small.launch {"what": "it"}'}, reader).status_code == 403
