"""A backend of 2026-07-28 whose one tool asks its client something instead of answering."""

import asyncio
from typing import Any

import mcp.types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

Context = ServerRequestContext[Any, Any]
QUESTION = {"mode": "form", "message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}


async def listed(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name="ask", input_schema={"type": "object"})])


async def called(ctx: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
    return {
        "resultType": "input_required",
        "inputRequests": {"who": {"method": "elicitation/create", "params": QUESTION}},
    }


async def main() -> None:
    server: Server[Any] = Server("asking", on_list_tools=listed)
    server.add_request_handler("tools/call", types.CallToolRequestParams, called)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
