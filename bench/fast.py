"""FastMCP with the same trivial tool, shown beside the yardstick."""

from fastmcp import FastMCP

server: FastMCP = FastMCP("fast")


@server.tool
async def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


application = server.http_app(path="/mcp", stateless_http=True)
