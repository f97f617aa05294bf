"""FastMCP's proxy before the same server, its process kept."""

import sys

from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy

application = create_proxy(StdioTransport(sys.executable, ["-m", "bench.stdio_bare"], keep_alive=True)).http_app(
    path="/mcp", stateless_http=True
)
