"""The ASGI application: MCP transports by exact path, everything else to Django."""

import os
from typing import Any

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "devflow.settings")
django_app = get_asgi_application()

# Only importable once Django is set up.
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from channels.security.websocket import AllowedHostsOriginValidator  # noqa: E402
from channels.sessions import SessionMiddlewareStack  # noqa: E402
from django.urls import path, re_path  # noqa: E402

from mcpbridge.api.door import RestDoor  # noqa: E402
from mcpbridge.doors import McpDoor  # noqa: E402
from mcpbridge.gateway.passing import PATH as BACKEND_PATH  # noqa: E402
from mcpbridge.gateway.passing import Passing  # noqa: E402
from mcpbridge.transports.runtime import Runtime  # noqa: E402
from mcpbridge.transports.sse import Sse  # noqa: E402
from mcpbridge.transports.streamable import StreamableHttp  # noqa: E402
from workflow.views.live import Live  # noqa: E402

sse = Sse()
streamable = StreamableHttp(relay=sse)
passing = Passing(relay=sse)
runtime = Runtime(streamable, sse, passing)

_mcp = runtime.serving(McpDoor(streamable, transport="http"))
_sse = runtime.serving(McpDoor(sse.stream, transport="sse"))
_messages = runtime.serving(McpDoor(sse.messages, transport="sse"))
_passing = runtime.serving(McpDoor(passing, transport="http"))
_rest = runtime.serving(RestDoor(django_app))
ROUTES: dict[str, Any] = {
    "/mcp": _mcp,
    "/mcp/": _mcp,
    "/mcp/sse": _sse,
    "/mcp/sse/": _sse,
    "/mcp/messages": _messages,
    "/mcp/messages/": _messages,
}


async def http(scope: Any, receive: Any, send: Any) -> None:
    path: str = scope["path"]
    other = _passing if BACKEND_PATH.fullmatch(path) else _rest
    await ROUTES.get(path, other)(scope, receive, send)


async def _elsewhere(scope: Any, receive: Any, send: Any) -> None:
    """No other path speaks WebSocket: refused before it is accepted, which the client sees as 403."""
    await receive()
    await send({"type": "websocket.close"})


_anywhere: Any = _elsewhere
websocket = AllowedHostsOriginValidator(
    SessionMiddlewareStack(URLRouter([path("ws/<slug:slug>/", Live.as_asgi()), re_path("", _anywhere)]))
)
application = ProtocolTypeRouter({"http": http, "websocket": runtime.serving(websocket), "lifespan": runtime.lifespan})
