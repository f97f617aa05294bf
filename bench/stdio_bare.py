"""The yardstick's server on standard input and output: what the gateway and the other proxies stand before."""

import asyncio

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from bench.bare import call_tool, list_tools

server = Server("bare", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


async def main() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
