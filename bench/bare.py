"""The yardstick: the SDK's low-level server on uvicorn with one trivial tool and nothing else."""

from typing import Any

import mcp.types as types
from mcp.server.lowlevel import Server

ADD = types.Tool(
    name="add",
    description="Add two numbers.",
    input_schema={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
    output_schema={"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]},
)


async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[ADD])


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    arguments = params.arguments or {}
    total = arguments["a"] + arguments["b"]
    return types.CallToolResult(
        content=[types.TextContent(text=f'{{"sum": {total}}}')], structured_content={"sum": total}
    )


application = Server("bare", version="1", on_list_tools=list_tools, on_call_tool=call_tool).streamable_http_app(
    stateless_http=True
)
