"""Every door a real client comes in by, as the same small `Agent`."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx
import jsonschema_rs
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from devflow.config import PROJECT_ROOT
from tests.nodetools import program
from tests.running import RunningServer, environment

WAIT = 60
HANDSHAKE, MODERN = "legacy", "2026-07-28"

Args = Mapping[str, Any]


class RefusedError(Exception):
    """A call that failed, with what the client was told: at least `code`, `message` and `suggestion`."""

    def __init__(self, told: dict[str, Any]) -> None:
        super().__init__(f"{told['code']}: {told['message']}")
        self.told = told
        self.code: str = told["code"]


class Agent(Protocol):
    """Somebody who works at DevFlow through one door."""

    @property
    def name(self) -> str: ...

    async def call(self, tool: str, args: Args) -> dict[str, Any]:
        """The tool's result. Raises `RefusedError`."""

    async def schemas(self) -> dict[str, Any]:
        """The output schema of each tool as this door publishes it."""


Door = Callable[[RunningServer, str], AbstractAsyncContextManager[Agent]]


@dataclass
class Checked:
    """An agent every one of whose results is compared with the published output schema."""

    agent: Agent
    _validators: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.agent.name

    async def call(self, tool: str, args: Args) -> dict[str, Any]:
        if not self._validators:
            schemas = await self.agent.schemas()
            self._validators = {name: jsonschema_rs.validator_for(schema) for name, schema in schemas.items()}
        result = await self.agent.call(tool, args)
        self._validators[tool].validate(result)
        return result

    async def schemas(self) -> dict[str, Any]:
        return await self.agent.schemas()


# --- the official client ----------------------------------------------------------------------------------------------


@dataclass
class McpAgent:
    name: str
    client: Client

    async def call(self, tool: str, args: Args) -> dict[str, Any]:
        answer = await self.client.call_tool(tool, dict(args))
        content = answer.structured_content
        assert content is not None
        assert [json.loads(item.text) for item in answer.content] == [content]  # type: ignore[union-attr]  # all text
        if answer.is_error:
            raise RefusedError(content)
        return dict(content)

    async def schemas(self) -> dict[str, Any]:
        return {tool.name: tool.output_schema for tool in (await self.client.list_tools()).tools}


def headers_for(server: RunningServer, name: str | None = None, key: str | None = None) -> dict[str, str]:
    return {"X-API-Key": key or server.key} | ({"X-Agent-Id": name} if name else {})


@asynccontextmanager
async def sse_client_of(
    server: RunningServer, *, headers: dict[str, str], mode: str, query: str = "", **options: Any
) -> AsyncIterator[Client]:
    transport = sse_client(f"{server.url}/mcp/sse{query}", headers=headers)
    async with Client(transport, mode=mode, read_timeout_seconds=WAIT, **options) as client:
        yield client


@asynccontextmanager
async def http_client_of(
    server: RunningServer, *, headers: dict[str, str], mode: str, query: str = "", **options: Any
) -> AsyncIterator[Client]:
    async with (
        create_mcp_http_client(headers=headers) as http_client,
        Client(
            streamable_http_client(f"{server.url}/mcp{query}", http_client=http_client),
            mode=mode,
            read_timeout_seconds=WAIT,
            **options,
        ) as client,
    ):
        yield client


@asynccontextmanager
async def stdio_client_of(home: Path, **env: str) -> AsyncIterator[Client]:
    """A `devflow mcp` process of its own, in the data directory `home`."""
    home.mkdir(parents=True, exist_ok=True)
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "devflow", "mcp"], env=environment(home, env), cwd=str(PROJECT_ROOT)
    )
    with (home.parent / f"{home.name}.stdio.log").open("a") as errors:
        transport = stdio_client(parameters, errlog=errors)
        async with Client(transport, mode=HANDSHAKE, read_timeout_seconds=WAIT) as client:
            yield client


def over_sse(mode: str) -> Door:
    @asynccontextmanager
    async def door(server: RunningServer, name: str) -> AsyncIterator[Agent]:
        async with sse_client_of(server, headers=headers_for(server, name), mode=mode) as client:
            yield McpAgent(name, client)

    return door


def over_http(mode: str) -> Door:
    @asynccontextmanager
    async def door(server: RunningServer, name: str) -> AsyncIterator[Agent]:
        async with http_client_of(server, headers=headers_for(server, name), mode=mode) as client:
            yield McpAgent(name, client)

    return door


def bridge_settings(server: RunningServer, name: str) -> dict[str, str]:
    return {"DEVFLOW_API_URL": server.url, "DEVFLOW_API_KEY": server.key, "DEVFLOW_AGENT_ID": name}


@asynccontextmanager
async def over_stdio_bridge(server: RunningServer, name: str) -> AsyncIterator[Agent]:
    """`devflow mcp` in front of a running server, as on another machine: it knows nothing of the data directory."""
    elsewhere = server.home.parent / f"elsewhere-{name}"
    async with stdio_client_of(elsewhere, **bridge_settings(server, name)) as client:
        yield McpAgent(name, client)


@asynccontextmanager
async def over_stdio(home: Path, name: str) -> AsyncIterator[Agent]:
    """`devflow mcp` on a data directory: the first one serves it, the next ones find the first."""
    async with stdio_client_of(home, DEVFLOW_AGENT_ID=name) as client:
        yield McpAgent(name, client)


# --- the official inspector -------------------------------------------------------------------------------------------


@dataclass
class InspectorAgent:
    """The inspector's command line starts anew for every call, in front of a `devflow mcp` that bridges."""

    name: str
    server: RunningServer

    async def _run(self, *arguments: str) -> dict[str, Any]:
        command = [*program("inspector"), "--cli", "--", sys.executable, "-m", "devflow", "mcp", *arguments]
        elsewhere = self.server.home.parent / f"elsewhere-{self.name}"
        elsewhere.mkdir(exist_ok=True)
        env = environment(elsewhere, bridge_settings(self.server, self.name))
        env["PATH"] = f"{Path(command[0]).parent}{os.pathsep}{env.get('PATH', '')}"  # it starts itself as `node`
        process = await asyncio.create_subprocess_exec(
            *command, env=env, cwd=PROJECT_ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await asyncio.wait_for(process.communicate(), WAIT)
        assert process.returncode == 0, (out + err).decode()
        answer: dict[str, Any] = json.loads(out)
        return answer

    async def call(self, tool: str, args: Args) -> dict[str, Any]:
        pairs = [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in args.items()]
        given = [part for pair in pairs for part in ("--tool-arg", pair)]
        answer = await self._run("--method", "tools/call", "--tool-name", tool, *given)
        content: dict[str, Any] = answer["structuredContent"]
        if answer["isError"]:
            raise RefusedError(content)
        return content

    async def schemas(self) -> dict[str, Any]:
        return {tool["name"]: tool["outputSchema"] for tool in (await self._run("--method", "tools/list"))["tools"]}


@asynccontextmanager
async def over_inspector(server: RunningServer, name: str) -> AsyncIterator[Agent]:
    yield InspectorAgent(name, server)


# --- REST -------------------------------------------------------------------------------------------------------------


def result_in(answer: dict[str, Any]) -> dict[str, Any]:
    """The result in a REST answer; null with a reason is what MCP writes as `{"task": null, ...}`."""
    if answer["error"] is not None:
        raise RefusedError({**answer["detail"], "message": answer["error"]})
    result: dict[str, Any] | None = answer["result"]
    return {"task": None, **answer["detail"]} if result is None else result


@dataclass
class RestAgent:
    name: str
    http: httpx.AsyncClient
    numbers: Any = field(default_factory=lambda: iter(range(1_000_000)))

    def request(self, tool: str, args: Args) -> dict[str, Any]:
        return {"tool": tool, "args": dict(args), "request_id": f"{self.name}-{next(self.numbers)}"}

    async def call(self, tool: str, args: Args) -> dict[str, Any]:
        request = self.request(tool, args)
        answer = (await self.http.post("/mcp/execute", json=request)).json()
        assert answer["request_id"] == request["request_id"]
        return result_in(answer)

    async def batch(self, *calls: tuple[str, Args]) -> list[dict[str, Any]]:
        """The results of several calls in one request. Raises `RefusedError` for the first that failed."""
        requests = [self.request(tool, args) for tool, args in calls]
        response = await self.http.post("/mcp/batch", json=requests)
        assert response.status_code == 200, response.text
        answers = response.json()
        assert [answer["request_id"] for answer in answers] == [request["request_id"] for request in requests]
        return [result_in(answer) for answer in answers]

    async def schemas(self) -> dict[str, Any]:
        tools = (await self.http.get("/mcp/tools")).json()["tools"]
        return {tool["name"]: tool["output_schema"] for tool in tools}


class BatchAgent(RestAgent):
    async def call(self, tool: str, args: Args) -> dict[str, Any]:
        (result,) = await self.batch((tool, args))
        return result


@asynccontextmanager
async def over_rest(server: RunningServer, name: str) -> AsyncIterator[RestAgent]:
    async with httpx.AsyncClient(base_url=server.url, headers=headers_for(server, name), timeout=WAIT) as http:
        yield RestAgent(name, http)


@asynccontextmanager
async def over_batch(server: RunningServer, name: str) -> AsyncIterator[RestAgent]:
    async with httpx.AsyncClient(base_url=server.url, headers=headers_for(server, name), timeout=WAIT) as http:
        yield BatchAgent(name, http)


HTTP_DOORS: dict[str, Door] = {
    "sse": over_sse(HANDSHAKE),
    "sse-2026-07-28": over_sse(MODERN),
    "http-2026-07-28": over_http(MODERN),
    "http-2025-11-25": over_http(HANDSHAKE),
    "execute": over_rest,
    "batch": over_batch,
}
PROCESS_DOORS: dict[str, Door] = {"stdio-bridge": over_stdio_bridge, "inspector": over_inspector}
