"""SSE over several server processes that share Redis: the POST lands anywhere."""

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from devflow.config import PROJECT_ROOT
from tests.running import RunningServer, devflow, running
from tests.transports.site import WAIT, RawStream, call, initialize

pytestmark = [pytest.mark.redis, pytest.mark.slow]


@pytest.fixture(scope="module")
def pair(redis_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, RunningServer]]:
    """Two servers with one database, one Redis and one secret key."""
    root: Path = tmp_path_factory.mktemp("pair")
    env = {
        "DEVFLOW_REDIS_URL": redis_server.url,
        "DEVFLOW_DATABASE_URL": f"sqlite:///{root / 'shared.sqlite3'}",
        "DEVFLOW_SECRET_KEY": "a secret that both of them know, for tests only, long enough",
    }
    with running(root / "one", env=env) as one, running(root / "two", env=env) as two:
        yield one, two


class Elsewhere:
    """The GET goes to one server, the POSTs to another."""

    def __init__(self, client: httpx.Client, holder: RunningServer, other: RunningServer) -> None:
        self.url, self.key, self._other, self._client = holder.url, holder.key, other.url, client

    def request(self, method: str, path: str, key: str | None = None, **options: Any) -> httpx.Response:
        return self._client.request(method, self._other + path, headers={"X-API-Key": key or self.key}, **options)


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=WAIT) as client:
        yield client


def test_a_post_reaches_a_stream_of_another_process(
    pair: tuple[RunningServer, RunningServer], client: httpx.Client
) -> None:
    one, two = pair
    with RawStream(Elsewhere(client, one, two)) as stream:
        assert stream.post("{").status_code == 400
        assert stream.post(initialize(), key=one.create_key("foreign")["key"]).status_code == 404
        stream.shake_hands()
        assert stream.post(call("far", "heartbeat")).status_code == 202
        assert stream.message()["id"] == "far"
        endpoint = stream.endpoint
    deadline = time.monotonic() + WAIT
    while stream.post(initialize(), endpoint=endpoint).status_code == 202:
        assert time.monotonic() < deadline, "a closed stream is known to be closed"
    started = time.monotonic()
    assert stream.post(initialize(), endpoint=endpoint).status_code == 404
    assert time.monotonic() - started < 2, "its process says so; nobody waits for a time-out"


def test_a_thousand_posts_leave_no_subscription_behind(
    pair: tuple[RunningServer, RunningServer], redis_server: Any, client: httpx.Client
) -> None:
    with redis.Redis.from_url(redis_server.url) as store, RawStream(Elsewhere(client, *pair)) as stream:
        stream.shake_hands()
        before = sorted(store.pubsub_channels())
        notice = json.dumps({"jsonrpc": "2.0", "method": "notifications/nothing"})
        assert [stream.post(notice).status_code for _ in range(1000)] == [202] * 1000
        assert sorted(store.pubsub_channels()) == before


def test_the_session_of_a_killed_process_is_unknown(
    pair: tuple[RunningServer, RunningServer], client: httpx.Client, tmp_path: Path
) -> None:
    one, _ = pair
    with running(tmp_path / "doomed", env=one.env) as doomed:
        stream = RawStream(Elsewhere(client, replace(doomed, key=one.key), one))
        doomed.process.kill()
        doomed.process.wait()
    assert stream.post(initialize()).status_code == 404
    stream.close()


def add_backend(server: RunningServer, name: str, script: str, *arguments: str) -> None:
    command = ("--command", sys.executable, "--args", str(PROJECT_ROOT / "tests" / "fakes" / script), *arguments)
    done = devflow(server.home, "backend", "add", name, *command, extra=server.env)
    assert done.returncode == 0, done.stderr


def headers_of_session(server: RunningServer, path: str = "/mcp", **capabilities: Any) -> dict[str, str]:
    """The headers of a client of the handshake revisions once it has shaken hands."""
    headers = {"X-API-Key": server.key, "Accept": "application/json, text/event-stream"}
    hello = initialize()
    hello["params"]["capabilities"] = capabilities
    session = httpx.post(server.url + path, json=hello, headers=headers, timeout=WAIT).headers["mcp-session-id"]
    return headers | {"Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-06-18"}


def test_an_answer_posted_to_another_process_reaches_the_call_that_asked(
    pair: tuple[RunningServer, RunningServer], client: httpx.Client
) -> None:
    """Streamable HTTP with a handshake: the question comes in the stream of the call, the answer as a POST anywhere."""
    one, two = pair
    add_backend(one, "asking", "asking_backend.py", "handshake")
    headers = headers_of_session(one, elicitation={})
    stranger = headers_of_session(one, elicitation={})["Mcp-Session-Id"]
    request = call("asks", "gateway_execute", intent="QUERY", action="asking.who")
    with client.stream("POST", f"{one.url}/mcp", json=request, headers=headers) as stream:
        said = (json.loads(line[5:]) for line in stream.iter_lines() if line.startswith("data:") and len(line) > 6)
        question = next(said)
        assert question["method"] == "elicitation/create"
        content = {"name": "Eve", "method": "a word that requests have"}
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": content}}

        def post(message: dict[str, Any], **more: str) -> int:
            return httpx.post(f"{two.url}/mcp", json=message, headers={**headers, **more}).status_code

        assert post(answer, **{"Mcp-Session-Id": stranger}) == 400
        assert post({**answer, "id": "guess"}) == 400
        assert post({"jsonrpc": "2.0", "result": {}}) == 400
        assert post(answer) == 202
        assert "accept Eve" in json.dumps(next(said))
    assert post(answer) == 400  # it was answered


def test_a_cancellation_posted_to_another_process_ends_the_call(pair: tuple[RunningServer, RunningServer]) -> None:
    one, two = pair
    add_backend(one, "hanging", "fault_backend.py", "hang")
    headers = headers_of_session(one)
    request = call("long", "gateway_execute", intent="QUERY", action="hanging.act")
    gone = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "long"}}
    with ThreadPoolExecutor(1) as threads:
        calling = threads.submit(httpx.post, f"{one.url}/mcp", json=request, headers=headers, timeout=60)
        deadline = time.monotonic() + WAIT
        while not calling.done():  # it may be posted before its request is at work
            assert httpx.post(f"{two.url}/mcp", json=gone, headers=headers).status_code == 202
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert calling.result().json()["error"]["code"] == -32800


def test_a_list_that_changes_in_another_process_is_told_in_the_stream(
    pair: tuple[RunningServer, RunningServer], client: httpx.Client
) -> None:
    one, two = pair
    add_backend(one, "plain", "plain_backend.py")
    path = "/mcp/backends/plain/mcp"
    headers = headers_of_session(one, path)
    with client.stream("GET", one.url + path, headers=headers) as stream:
        lines = stream.iter_lines()
        assert next(lines) == ": ping"
        answer = httpx.post(two.url + path, json=call("touch", "touch"), headers=headers, timeout=WAIT).json()
        assert not answer["result"].get("isError"), answer
        said = next(line for line in lines if line.startswith("data:"))
    assert json.loads(said[5:])["method"] == "notifications/prompts/list_changed"
