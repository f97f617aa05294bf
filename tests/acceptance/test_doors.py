"""What stands before every call: malformed messages, keys, Host and Origin, size, and the rate limit."""

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.acceptance.agents import WAIT, headers_for
from tests.acceptance.rows import dump
from tests.acceptance.wires import JSON, Answer, event_or_body, in_json_rpc, in_rest, request, stdio_wire, wire
from tests.running import RunningServer

MCP_POSTS = ("/mcp", "/mcp/messages/?session_id=x")
REST_POSTS = ("/mcp/execute", "/mcp/batch")
GETS = ("/mcp/sse", "/mcp/tools", "/mcp/metrics", "/api/v1/tasks/")

NO_MESSAGES: dict[str, str] = {
    "no JSON": "{",
    "nothing": "",
    "a text": '"hello"',
    "a number": "7",
    "an empty list": "[]",
    "another protocol": '{"jsonrpc": "1.0", "id": 1, "method": "ping"}',
    "no method": '{"jsonrpc": "2.0", "id": 1}',
    "a method that is a number": '{"jsonrpc": "2.0", "id": 1, "method": 5}',
    "a lone surrogate": '{"jsonrpc": "2.0", "id": 1, "method": "\\ud800"}',
    "nested a thousand deep": "[" * 1000 + "]" * 1000,
}


@pytest.fixture
def http(live_server_process: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=live_server_process.url, timeout=WAIT) as client:
        yield client


@pytest.fixture
def unharmed(live_server_process: RunningServer, project: str) -> Iterator[None]:
    """Nothing was written meanwhile, and a good call is answered afterwards."""
    before = dump(live_server_process)
    yield
    assert dump(live_server_process) == before
    with wire("http-2025-11-25", live_server_process, "after", project) as opened:
        assert opened.call("get_tasks", {}) == Answer("ok", "")


def told(body: Any) -> str:
    """The words of a refusal in whatever dialect: JSON-RPC, the PRD's, or problem details."""
    if "jsonrpc" in body:
        assert body["error"]["code"] < 0
        return str(body["error"]["message"])
    if "detail" in body and isinstance(body["detail"], dict):
        assert body["result"] is None
        return str(body["error"])
    return str(body["detail"])


@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize("what", NO_MESSAGES)
def test_what_is_no_message_is_a_json_rpc_error(
    what: str, live_server_process: RunningServer, http: httpx.Client
) -> None:
    headers = {**headers_for(live_server_process, "bad"), **JSON}
    response = http.post("/mcp", content=NO_MESSAGES[what], headers=headers)
    assert response.status_code == 400, response.text
    assert told(response.json())


def test_a_stream_survives_what_is_no_message(live_server_process: RunningServer, project: str) -> None:
    with wire("sse", live_server_process, "bad-sse", project) as opened:
        assert opened.call("get_tasks", {}) == Answer("ok", "")
        before = dump(live_server_process)
        for what, content in NO_MESSAGES.items():
            response = opened.stream.post(content)  # type: ignore[attr-defined]  # the SSE door has one
            assert response.status_code == 400, what
            assert told(response.json()), what
        assert opened.call("get_tasks", {}) == Answer("ok", "")
        assert dump(live_server_process) == before


def test_stdio_survives_what_is_no_message(live_server_process: RunningServer, project: str) -> None:
    with stdio_wire(live_server_process, "bad-stdio", project) as opened:
        assert opened.call("get_tasks", {}) == Answer("ok", "")
        before = dump(live_server_process)
        for what, content in NO_MESSAGES.items():
            if content:
                opened.write(content)
                assert told(opened.read()), what
        assert opened.call("get_tasks", {}) == Answer("ok", "")
        assert dump(live_server_process) == before


@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize("path", REST_POSTS)
@pytest.mark.parametrize("content", ["{", "", "7", "null", '{"tool": 5}', '{"tool": "get_tasks", "more": 1}'])
def test_what_is_no_call_is_refused_in_the_shape_of_rest(
    path: str, content: str, live_server_process: RunningServer, http: httpx.Client
) -> None:
    response = http.post(path, content=content, headers={**headers_for(live_server_process, "bad"), **JSON})
    assert response.status_code in (400, 422), response.text
    answer = in_rest(response.json())
    assert answer.code == "invalid_input"
    assert answer.message


def bad_keys(server: RunningServer) -> dict[str, dict[str, str]]:
    revoked, expired = server.create_key("revoked"), server.create_key("expired", "--expires", "1")
    server.run_python(
        "from datetime import timedelta\nfrom django.utils import timezone\nfrom mcpbridge.models import ApiKey\n"
        "ApiKey.objects.get(name='revoked').revoke()\n"
        "ApiKey.objects.filter(name='expired').update(expires_at=timezone.now() - timedelta(seconds=1))"
    )
    return {
        "missing": {},
        "malformed": {"X-API-Key": "secret"},
        "unknown": {"X-API-Key": f"{server.key[:-8]}aaaaaaaa"},
        "revoked": {"Authorization": f"Bearer {revoked['key']}"},
        "expired": {"X-API-Key": expired["key"]},
    }


@pytest.mark.usefixtures("unharmed")
def test_missing_malformed_revoked_and_expired_keys_get_the_same_401(
    live_server_process: RunningServer, http: httpx.Client
) -> None:
    keys = bad_keys(live_server_process)
    for path in (*MCP_POSTS, *REST_POSTS, *GETS):
        bodies = set()
        for what, headers in keys.items():
            method = "GET" if path in GETS else "POST"
            response = http.request(
                method, path, headers={**headers, **JSON}, content=b"" if method == "GET" else b"{}"
            )
            assert response.status_code == 401, f"{path}, {what}: {response.status_code}"
            assert response.headers["www-authenticate"] == 'Bearer realm="devflow"', path
            if what != "missing" or not path.startswith("/api/"):  # there a stranger is told of the login too
                bodies.add(told(response.json()))
        assert len(bodies) == 1, f"{path} tells them apart: {bodies}"
        assert "X-API-Key" in bodies.pop()


@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize(
    ("header", "value", "status"), [("Host", "evil.example", 421), ("Origin", "https://evil.example", 403)]
)
def test_another_host_or_origin_is_refused_on_every_machine_path(
    header: str, value: str, status: int, live_server_process: RunningServer, http: httpx.Client
) -> None:
    for path in (*MCP_POSTS, *REST_POSTS, *GETS):
        headers = {**headers_for(live_server_process), **JSON, header: value}
        response = http.request("GET" if path in GETS else "POST", path, headers=headers)
        assert response.status_code == status, path
        assert told(response.json()), path


def send_ten_megabytes(server: RunningServer, path: str) -> tuple[int, bytes]:
    """POST a body of 10 MB; gives the status and the start of the answer.

    uvicorn's answer is read after the first piece, for it comes before the rest; daphne takes it all before it asks.
    """
    host, port = server.url.removeprefix("http://").split(":")
    size = 10 * 1024 * 1024
    is_daphne = "daphne" in server.process.args  # type: ignore[operator]  # a list of words
    with socket.create_connection((host, int(port)), WAIT) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nX-API-Key: {server.key}\r\n"
        head += f"Content-Type: application/json\r\nAccept: */*\r\nContent-Length: {size}\r\n\r\n"
        connection.sendall(head.encode() + b" " * (size if is_daphne else 64 * 1024))
        answer = b""
        while b"}" not in answer and (piece := connection.recv(65536)):
            answer += piece
    return int(answer.split()[1]), answer


@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize("path", [*MCP_POSTS, *REST_POSTS, "/api/v1/tasks/"])
def test_a_body_of_ten_megabytes_is_413(path: str, live_server_process: RunningServer) -> None:
    status, answer = send_ten_megabytes(live_server_process, path)
    assert status == 413, answer
    assert told(json.loads(answer.partition(b"\r\n\r\n")[2]))


# --- the rate limit ---------------------------------------------------------------------------------------------------

ALLOWED = 120
BURST = 90

Create = Callable[[httpx.AsyncClient], Any]


async def create_over_rest(http: httpx.AsyncClient) -> Answer:
    body = {"tool": "create_task", "args": {"description": "Burst", "phase_id": 2}}
    response = await http.post("/mcp/execute", json=body)
    if response.status_code == 429:
        assert int(response.headers["retry-after"]) >= 1
        assert response.json()["detail"]["retry_after_ms"] > 0
    return in_rest(response.json())


async def create_over_mcp(http: httpx.AsyncClient) -> Answer:
    body = request("create_task", {"description": "Burst", "phase_id": 2})
    answer = event_or_body(await http.post("/mcp", json=body, headers={**JSON, "MCP-Protocol-Version": "2025-11-25"}))
    if answer["result"]["isError"]:
        assert answer["result"]["structuredContent"]["retryAfterMs"] > 0
    return in_json_rpc(answer)


async def test_parallel_bursts_over_every_door_get_no_more_than_the_budget(
    live_server_process: RunningServer, project: str
) -> None:
    key = live_server_process.create_key(f"burst-{project}", "--project", project)["key"]
    headers = headers_for(live_server_process, "burst", key)
    async with httpx.AsyncClient(base_url=live_server_process.url, headers=headers, timeout=WAIT) as http:
        doors: tuple[Create, ...] = (create_over_rest, create_over_mcp)
        answers = await asyncio.gather(*(create(http) for _ in range(BURST) for create in doors))
        codes = [answer.code for answer in answers]
        assert set(codes) == {"ok", "rate_limited"}
        assert codes.count("ok") <= ALLOWED
        batch = await http.post("/mcp/batch", json=[{"tool": "get_tasks", "args": {}}] * 50)
        assert batch.status_code == 429
        assert in_rest(batch.json()).code == "rate_limited"
        unlimited = headers_for(live_server_process, "burst")
        count = {"tool": "get_tasks", "args": {"limit": 1}}
        listed = await http.post("/mcp/execute", json=count, headers={**unlimited, "X-Project": project})
    assert listed.json()["result"]["total"] == codes.count("ok") == ALLOWED
