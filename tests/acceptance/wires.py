"""Doors by hand: what no well-behaved client would send, as raw JSON, and what comes back."""

import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

from devflow.config import PROJECT_ROOT
from tests.acceptance.agents import WAIT, bridge_settings, headers_for
from tests.running import RunningServer, environment
from tests.transports.site import RawStream

JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
CLIENT = {"name": "wire", "version": "1"}


@dataclass(frozen=True)
class Answer:
    """What the caller was told. `code` is ours, or `protocol` where the message was no JSON-RPC to begin with."""

    code: str
    message: str
    advice: str = ""


class Wire(Protocol):
    def call(self, tool: Any, args: Any) -> Answer:
        """Call a tool with anything that JSON can say, also what no schema allows."""


def in_json_rpc(answer: dict[str, Any]) -> Answer:
    """The answer to a `tools/call`: a tool's result, or a protocol fault."""
    assert answer["jsonrpc"] == "2.0"
    if error := answer.get("error"):
        data = error.get("data")
        told = data if isinstance(data, dict) else {}
        return Answer(told.get("code", "protocol"), error["message"], told.get("suggestion", ""))
    result = answer["result"]
    told = result["structuredContent"]
    assert json.loads(result["content"][0]["text"]) == told
    return Answer(told["code"], told["message"], told["suggestion"]) if result["isError"] else Answer("ok", "")


def in_rest(answer: dict[str, Any]) -> Answer:
    if answer["error"] is None:
        return Answer("ok", "")
    assert answer["result"] is None
    assert answer["detail"]["message"] == answer["error"]
    return Answer(answer["detail"]["code"], answer["error"], answer["detail"]["suggestion"])


def request(tool: Any, args: Any, number: Any = 1, **meta: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": args, **({"_meta": meta} if meta else {})}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def event_or_body(response: httpx.Response) -> dict[str, Any]:
    """The JSON of an answer, which comes as a body or as the last event of a stream."""
    text = response.text
    if response.headers["content-type"].startswith("text/event-stream"):
        text = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")][-1]
    answer: dict[str, Any] = json.loads(text)
    return answer


@dataclass
class Posts:
    """The POSTs of one agent in one project."""

    server: RunningServer
    name: str
    project: str
    http: httpx.Client

    def send(self, path: str, body: Any, **headers: str) -> httpx.Response:
        identity = {**headers_for(self.server, self.name), "X-Project": self.project}
        # Not httpx's own JSON: it cannot write lone surrogates.
        return self.http.post(path, content=json.dumps(body), headers={**identity, **JSON, **headers})


@dataclass
class HandshakeWire(Posts):
    def call(self, tool: Any, args: Any) -> Answer:
        return in_json_rpc(
            event_or_body(self.send("/mcp", request(tool, args), **{"MCP-Protocol-Version": "2025-11-25"}))
        )


@dataclass
class ModernWire(Posts):
    def call(self, tool: Any, args: Any) -> Answer:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": CLIENT,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call"}
        if isinstance(tool, str):
            headers["Mcp-Name"] = tool
        return in_json_rpc(event_or_body(self.send("/mcp", request(tool, args, **meta), **headers)))


@dataclass
class ExecuteWire(Posts):
    def call(self, tool: Any, args: Any) -> Answer:
        return in_rest(self.send("/mcp/execute", {"tool": tool, "args": args}).json())


@dataclass
class BatchWire(Posts):
    def call(self, tool: Any, args: Any) -> Answer:
        good = {"tool": "get_tasks", "args": {}}
        answers = self.send("/mcp/batch", [good, {"tool": tool, "args": args}, good]).json()
        if isinstance(answers, dict):
            return in_rest(answers)  # not even JSON: refused whole
        before, answer, after = answers
        assert in_rest(before) == in_rest(after) == Answer("ok", ""), "a failed call stops nothing"
        return in_rest(answer)


class SseWire:
    def __init__(self, server: RunningServer, name: str, project: str, http: httpx.Client) -> None:
        self.url, self.key, self._http = server.url, server.key, http
        self.stream = RawStream(self, headers={"X-Agent-Id": name, "X-Project": project})
        self.stream.shake_hands()

    def request(self, method: str, path: str, key: str | None = None, **options: Any) -> httpx.Response:
        return self._http.request(method, path, headers={"X-API-Key": key or self.key, **JSON}, **options)

    def call(self, tool: Any, args: Any) -> Answer:
        posted = self.stream.post(json.dumps(request(tool, args)))
        if posted.status_code != 202:
            return in_json_rpc(posted.json())
        return in_json_rpc(self.stream.message())


class StdioWire:
    """Lines to and from a `devflow mcp` that bridges to the server."""

    def __init__(self, process: "subprocess.Popen[str]", project: str) -> None:
        self._process = process
        self._numbers = itertools.count(1)
        self.line(
            {
                "method": "initialize",
                "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT},
            }
        )
        self.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        assert self.call("set_project", {"project": project}).code == "ok"

    def write(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def line(self, message: dict[str, Any]) -> dict[str, Any]:
        self.write(json.dumps({"jsonrpc": "2.0", "id": next(self._numbers), **message}))
        return self.read()

    def call(self, tool: Any, args: Any) -> Answer:
        return in_json_rpc(self.line({"method": "tools/call", "params": {"name": tool, "arguments": args}}))


@contextmanager
def stdio_wire(server: RunningServer, name: str, project: str) -> Iterator[StdioWire]:
    elsewhere = server.home.parent / f"elsewhere-{name}"
    elsewhere.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "devflow", "mcp"],
        cwd=PROJECT_ROOT,
        env=environment(elsewhere, bridge_settings(server, name)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    patience = threading.Timer(WAIT, process.kill)  # an answer that never comes then reads as an empty line
    patience.start()
    with process:
        try:
            yield StdioWire(process, project)
        finally:
            patience.cancel()
            process.terminate()
            process.wait(WAIT)


@contextmanager
def wire(door: str, server: RunningServer, name: str, project: str) -> Iterator[Wire]:
    """An open door for `name` in `project`."""
    if door == "stdio":
        with stdio_wire(server, name, project) as opened:
            yield opened
        return
    with httpx.Client(base_url=server.url, timeout=WAIT) as http:
        if door == "sse":
            sse = SseWire(server, name, project, http)
            with sse.stream:
                yield sse
            return
        posts: dict[str, Callable[..., Wire]] = {
            "http-2025-11-25": HandshakeWire,
            "http-2026-07-28": ModernWire,
            "execute": ExecuteWire,
            "batch": BatchWire,
        }
        yield posts[door](server, name, project, http)


HTTP_DOORS = ("sse", "http-2025-11-25", "http-2026-07-28", "execute", "batch")
DOORS = (*HTTP_DOORS, "stdio")
