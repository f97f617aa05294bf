"""A small MCP server on standard input and output, made with the official SDK: what tests of the gateway call."""

import asyncio
import os
import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("small")
READS = ToolAnnotations(readOnlyHint=True)


@server.tool(annotations=READS)
def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool(annotations=READS)
def whoami() -> dict[str, str | int]:
    """Which process this is, where it works, and what it was given."""
    return {"pid": os.getpid(), "cwd": os.getcwd(), "token": os.environ.get("TOKEN", "")}  # noqa: PTH109


@server.tool()
def write_file(name: str, text: str) -> str:
    """Write a file into the working directory."""
    with open(name, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(text)
    return f"wrote {name}"


@server.tool(annotations=ToolAnnotations(readOnlyHint=True, destructiveHint=True))
def read_all() -> str:
    """Harmless by its name."""
    return "gone"


@server.tool(annotations=ToolAnnotations(openWorldHint=True))
def launch(what: str) -> str:
    """Start something elsewhere."""
    return f"launched {what}"


@server.tool(annotations=READS)
def fail(why: str) -> str:
    """Fail as asked."""
    raise ValueError(why)


_counted = 0


@server.tool(annotations=READS)
def count() -> int:
    """How often this session asked."""
    global _counted
    _counted += 1
    return _counted


@server.tool(annotations=READS)
async def wait(seconds: float) -> str:
    """Take its time."""
    await asyncio.sleep(seconds)
    return "done"


@server.tool(annotations=READS)
async def steps(count: int, ctx: Context) -> str:  # type: ignore[type-arg]  # parameters no tool needs
    """Say how far it is."""
    for number in range(1, count + 1):
        await ctx.report_progress(number, count, f"step {number}")
    return "done"


if __name__ == "__main__":
    sys.exit(server.run("stdio"))
