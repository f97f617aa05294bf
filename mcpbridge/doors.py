"""What stands before every MCP path: key, Host and Origin, body size. ASGI middleware, for Django's own middleware
does not run on Channels routes.

Above: the transports. Below: `access`. A request that passes carries a `Door` in its scope.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import parse_qsl

from asgiref.typing import ASGIReceiveCallable, ASGISendCallable, Scope
from django.conf import settings
from django.http import HttpRequest
from django_ratelimit.core import get_usage
from mcp.server.context import ServerRequestContext
from redis import RedisError

from devflow import config
from devflow.digits import whole
from devflow.errors import ERROR_TABLE, DevFlowError, ErrorCode
from mcpbridge import access
from mcpbridge.access import Identity
from mcpbridge.threads import run_blocking
from mcpbridge.tooling import Caller

logger = logging.getLogger(__name__)

MAX_BODY = 4 * 1024 * 1024
FAILURES_PER_MINUTE = "60/m"
DOOR = "devflow.door"

AsgiScope = MutableMapping[str, Any]
AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]


@dataclass
class Door:
    """Who came in, how: one per HTTP request, or one per connection where a transport keeps it open."""

    identity: Identity
    transport: str
    headers: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    session: str = ""
    client: str = ""
    features: frozenset[str] = frozenset()
    """What a client of a stateless endpoint said at its `initialize` it can be asked (`asking.EVERYTHING`)."""
    way: "Way | None" = None

    def caller(self, *, meta: Mapping[str, Any] | None = None, client: str = "") -> Caller:
        """Who calls through here; `client` is known better than by the door. Raises `invalid_input` for a malformed
        agent id or exposure."""
        return access.caller_for(
            self.identity,
            transport=self.transport,
            headers=self.headers,
            query=self.query,
            meta=meta,
            client=client or self.client,
            session=self.session,
        )


class Way(Protocol):
    """A way back to the client, in the stream its request is answered with."""

    @property
    def channel(self) -> str:
        """Where this process takes messages of others."""

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a JSON-RPC message before the answer. Raises `precondition_failed` where nothing can be sent."""


def door_of(ctx: "ServerRequestContext[Any, Any]") -> Door:
    """The door a message came through: the request's own on HTTP, the connection's where one stays open."""
    request: Any = ctx.request
    door: Door = request if isinstance(request, Door) else request.scope[DOOR]
    return door


def headers_of(scope: AsgiScope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1").strip(" \t") for name, value in scope["headers"]}


@lru_cache(maxsize=1)
def _allowed() -> tuple[frozenset[str], frozenset[str]]:
    """Host names (without port) and origins this server answers to."""
    hosts = frozenset(host.lower() for host in settings.ALLOWED_HOSTS)
    return hosts, frozenset(origin.rstrip("/").lower() for origin in settings.CSRF_TRUSTED_ORIGINS)


def _host_name(value: str) -> str:
    """`[::1]:80` -> `[::1]`, `localhost:80` -> `localhost`."""
    value = value.lower()
    return value.partition("]")[0] + "]" if value.startswith("[") else value.partition(":")[0]


def fault_of_place(headers: dict[str, str]) -> tuple[int, str] | None:
    """Refuse another Host (421) and another Origin (403): the defence against DNS rebinding. None: all is well."""
    hosts, origins = _allowed()
    host = headers.get("host", "")
    if _host_name(host) not in hosts:
        return 421, "This server does not answer to that Host; set DEVFLOW_ALLOWED_HOSTS."
    origin = headers.get("origin", "").lower()
    if origin and origin not in origins:
        scheme, _, place = origin.partition("://")
        if scheme not in ("http", "https") or _host_name(place) not in hosts:
            return 403, "Pages of that origin may not call this server; set DEVFLOW_ALLOWED_ORIGINS."
    return None


def failed_too_often(address: str) -> int:
    """Count a refused key from an address. Seconds to wait once it had more than 60 in a minute, else 0."""
    request = HttpRequest()
    request.META["REMOTE_ADDR"] = address
    request.method = "POST"
    try:
        usage = get_usage(request, group="failed-keys", key="ip", rate=FAILURES_PER_MINUTE, increment=True)
    except (RedisError, OSError) as exc:  # a key is refused just the same
        logger.warning("refused keys are not counted for now: %s", exc)
        return 0
    return max(1, int(usage["time_left"])) if usage and usage["should_limit"] else 0


async def refuse(send: ASGISendCallable, status: int, error: DevFlowError, *headers: tuple[bytes, bytes]) -> None:
    """Answer with a JSON-RPC error that carries no request id, as MCP clients expect before a message was read."""
    row = ERROR_TABLE[error.code]
    body = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": None,
            "error": {
                "code": row.jsonrpc,
                "message": error.message,
                "data": {"code": error.code.value, "suggestion": error.suggestion},
            },
        }
    ).encode()
    start: Any = {
        "type": "http.response.start",
        "status": status,
        "headers": [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            *headers,
        ],
    }
    await send(start)
    end: Any = {"type": "http.response.body", "body": body, "more_body": False}
    await send(end)


async def refuse_too_large(send: ASGISendCallable) -> None:
    large = DevFlowError(ErrorCode.TOO_LARGE, f"A body may have {MAX_BODY} bytes at most.")
    await refuse(send, 413, large, (b"connection", b"close"))


async def read_body(receive: Any) -> tuple[bytes | None, Any]:
    """Read the body (None: larger than allowed) and give a `receive` that plays it again."""
    parts: list[bytes] = []
    size = 0
    message: Any = None
    while True:
        message = await receive()
        if message["type"] != "http.request":
            break
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_BODY:
            return None, receive
        if not message.get("more_body", False):
            message = None
            break
    again: list[Any] = [{"type": "http.request", "body": b"".join(parts), "more_body": message is not None}]
    if message is not None:
        again.append(message)

    async def replay() -> Any:
        return again.pop(0) if again else await receive()

    return b"".join(parts), replay


class McpDoor:
    """Let a request through to `app` with a `Door` in its scope, or answer 401, 421, 403 or 413."""

    def __init__(self, app: AsgiApp, *, transport: str) -> None:
        self.app = app
        self.transport = transport

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        plain: AsgiScope = scope  # type: ignore[assignment]  # asgiref's union of TypedDicts is a mapping
        if plain["type"] != "http":
            return await self.app(scope, receive, send)
        headers = headers_of(plain)
        try:
            identity = await access.identify(access.key_in(headers))
        except DevFlowError as exc:
            return await self._refuse_key(plain, send, exc)
        if fault := fault_of_place(headers):
            status, message = fault
            return await refuse(send, status, DevFlowError(ErrorCode.FORBIDDEN, message))
        declared = whole(headers.get("content-length", "0"), digits=19)
        if declared is None or declared > MAX_BODY:
            return await refuse_too_large(send)
        query = dict(parse_qsl(plain.get("query_string", b"").decode("latin-1")))
        door = Door(identity=identity, transport=self.transport, headers=headers, query=query)
        # White space round a header's value is no part of it (RFC 9110, 5.5); not every parser takes it off.
        trimmed = [(name, value.strip(b" \t")) for name, value in plain["headers"]]
        return await self.app({**plain, "headers": trimmed, DOOR: door}, receive, send)

    @staticmethod
    async def _refuse_key(scope: AsgiScope, send: ASGISendCallable, error: DevFlowError) -> None:
        if error.code is not ErrorCode.UNAUTHENTICATED:
            return await refuse(send, ERROR_TABLE[error.code].http, error, (b"retry-after", b"1"))
        address = (scope.get("client") or ("", 0))[0]
        count = run_blocking(failed_too_often, address) if config.current().redis_url else None
        wait = await count if count is not None else failed_too_often(address)
        if wait:
            limited = DevFlowError(
                ErrorCode.RATE_LIMITED, "Too many refused keys from this address.", retry_after_ms=wait * 1000
            )
            return await refuse(send, 429, limited, (b"retry-after", str(wait).encode()))
        return await refuse(send, 401, error, (b"www-authenticate", access.CHALLENGE.encode()))
