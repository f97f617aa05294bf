"""A small MCP server on standard input and output: what tests of the gateway call.

Without the SDK, so that it starts in a few milliseconds; the servers of the package indexes are made with one.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

READS = {"readOnlyHint": True}
Tool = Callable[..., Awaitable[Any]]
TOOLS: dict[str, tuple[dict[str, Any], Tool]] = {}
counted = 0


def tool(annotations: dict[str, bool] | None = None, **parameters: str) -> Callable[[Tool], Tool]:
    """Publish a coroutine under its name; `parameters` maps each to its JSON type, all of them required."""

    def declare(function: Tool) -> Tool:
        TOOLS[function.__name__] = (
            {
                "name": function.__name__,
                "description": function.__doc__,
                "inputSchema": {
                    "type": "object",
                    "properties": {name: {"type": kind} for name, kind in parameters.items()},
                    "required": list(parameters),
                },
                **({"annotations": annotations} if annotations else {}),
            },
            function,
        )
        return function

    return declare


@tool(READS, text="string")
async def echo(text: str, **_: Any) -> str:
    """Say it again."""
    return text


@tool(READS)
async def whoami(**_: Any) -> dict[str, str | int]:
    """Which process this is, where it works, and what it was given."""
    return {"pid": os.getpid(), "cwd": os.getcwd(), "token": os.environ.get("TOKEN", "")}  # noqa: PTH109  # as it is


@tool(name="string", text="string")
async def write_file(name: str, text: str, **_: Any) -> str:
    """Write a file into the working directory."""
    with open(name, "w", encoding="utf-8") as file:  # noqa: PTH123  # pathlib costs this process a third of its start
        file.write(text)
    return f"wrote {name}"


@tool({"readOnlyHint": True, "destructiveHint": True})
async def read_all(**_: Any) -> str:
    """Harmless by its name."""
    return "gone"


@tool({"openWorldHint": True}, what="string")
async def launch(what: str, **_: Any) -> str:
    """Start something elsewhere."""
    return f"launched {what}"


@tool(READS, why="string")
async def fail(why: str, **_: Any) -> str:
    """Fail as asked."""
    raise ValueError(why)


@tool(READS)
async def count(**_: Any) -> int:
    """How often this session asked."""
    global counted
    counted += 1
    return counted


@tool(READS, seconds="number")
async def wait(seconds: float, **_: Any) -> str:
    """Take its time."""
    await asyncio.sleep(seconds)
    return "done"


@tool(READS, count="integer")
async def steps(count: int, token: Any = None, **_: Any) -> str:
    """Say how far it is."""
    for number in range(1, count + 1):
        told = {"progressToken": token, "progress": number, "total": count, "message": f"step {number}"}
        say({"method": "notifications/progress", "params": told})
    return "done"


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


async def answer(request: dict[str, Any]) -> None:
    method, params = request["method"], request.get("params") or {}
    if method == "initialize":
        result: Any = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "small", "version": "1"},
        }
    elif method == "tools/list":
        result = {"tools": [definition for definition, _ in TOOLS.values()]}
    elif method == "ping":
        result = {}
    elif method == "tools/call" and params["name"] in TOOLS:
        token = (params.get("_meta") or {}).get("progressToken")
        try:
            value = await TOOLS[params["name"]][1](**params.get("arguments") or {}, token=token)
        except ValueError as exc:
            result = {"content": [{"type": "text", "text": str(exc)}], "isError": True}
        else:
            structured = value if isinstance(value, dict) else {"result": value}
            text = value if isinstance(value, str) else json.dumps(value)
            result = {"content": [{"type": "text", "text": text}], "structuredContent": structured}
    else:
        say({"id": request["id"], "error": {"code": -32601, "message": f"Method not found: {method}"}})
        return
    say({"id": request["id"], "result": result})


async def main() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2**22)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    at_work: dict[Any, asyncio.Task[None]] = {}
    while line := await reader.readline():
        message = json.loads(line)
        if message.get("method") == "notifications/cancelled":
            if (task := at_work.get(message["params"]["requestId"])) is not None:
                task.cancel()
        elif "id" in message and "method" in message:
            at_work[message["id"]] = task = asyncio.create_task(answer(message))
            task.add_done_callback(lambda _, number=message["id"]: at_work.pop(number, None))  # type: ignore[misc]  # a default


if __name__ == "__main__":
    asyncio.run(main())
