"""`devflow mcp`: MCP on standard input and output.

Messages are passed on as they are, to a server named in the configuration or to whoever serves the data directory
(`upstreams`). When that server goes away the client's session stays: calls under way get an error, the handshake
and the subscriptions are repeated to the next server, which knows the session by its signed id.
"""

import asyncio
import logging
import math
import signal
import sys
import time
from contextlib import suppress
from typing import Any

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared._stream_protocols import WriteStream
from mcp.shared.message import SessionMessage
from mcp.types import (
    INVALID_PARAMS,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from devflow import config, logs
from devflow.errors import ERROR_TABLE, ErrorCode
from mcpbridge.transports.upstreams import AwayError, FarServer, Link, LocalHome, Prepare, RefusedError, Upstream

logger = logging.getLogger(__name__)

MAX_IN_FLIGHT = 60  # a little less than one connection takes
PATIENCE_SECONDS = 30.0
PAUSE_SECONDS = 0.5
OURS = "devflow-resume-"


def main(prepare: Prepare) -> int:
    """Serve until standard input ends. Returns the exit code; 2 when it is not configured to run, saying why.

    `prepare` makes the data directory ready, should this process come to serve it.
    """
    conf = config.current()
    if not conf.mcp_gateway.stdio_enabled:
        return _say("MCP over stdio is switched off: set mcp_gateway.stdio_enabled to true.", 2)
    if conf.api_url and not conf.api_key.get_secret_value():
        return _say(f"set DEVFLOW_API_KEY to a key of {conf.api_url}; `devflow createkey NAME` makes one there.", 2)
    logs.configure(logs.logging_config(conf.log_level, conf.log_format))
    logging.getLogger("mcp.client").setLevel(logging.CRITICAL)  # what breaks there is answered or retried here
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # reading standard input cannot be interrupted otherwise
    upstream: Upstream = (
        FarServer(conf.api_url, conf.api_key.get_secret_value(), conf.agent_id)
        if conf.api_url
        else LocalHome(prepare, conf.agent_id)
    )
    try:
        asyncio.run(Bridge(upstream).run())
    except RefusedError as exc:
        return _say(str(exc), 2)
    except AwayError as exc:
        return _say(str(exc), 1)
    return 0


def _say(message: str, code: int) -> int:
    sys.stderr.write(f"devflow: {message}\n")
    return code


async def _cancelled(*tasks: "asyncio.Task[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _error(identifier: RequestId | None, code: int, message: str) -> SessionMessage:
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=identifier, error=ErrorData(code=code, message=message)))


def _is_finite(value: object) -> bool:
    """Whether every number in `value` can be passed on: the SDK's client would write infinity as null."""
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


class Bridge:
    """Between one client on standard input and output, and the server that is there at the moment."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._client: WriteStream[SessionMessage] | None = None
        self._reading = asyncio.Event()
        self._link: Link | None = None
        self._linked = asyncio.Event()
        self._lost_at = 0.0
        self._why_not = "The server cannot be reached."
        self._session_id = ""
        self._in_flight: dict[RequestId, JSONRPCRequest] = {}
        self._handshake: JSONRPCRequest | None = None
        self._subscribed: dict[str, JSONRPCRequest] = {}

    async def run(self) -> None:
        """Bridge until standard input ends. Raises `RefusedError` or `AwayError` if nobody is there at first."""
        keeping = asyncio.create_task(self._keep_linked())
        linked = asyncio.create_task(self._linked.wait())
        try:
            await asyncio.wait((keeping, linked), return_when=asyncio.FIRST_COMPLETED)
            if keeping.done():
                await keeping
            async with stdio_server() as (read, self._client):
                self._reading.set()
                async for item in read:
                    await self._from_client(item)
                await _cancelled(keeping)
                await self._client.aclose()
        finally:
            await _cancelled(linked, keeping)

    # The server's side

    async def _keep_linked(self) -> None:
        while True:
            try:
                async with self._upstream.open(self._session_id) as link:
                    self._session_id = link.session_id or self._session_id
                    await self._resume(link)
                    self._link = link
                    self._linked.set()
                    await self._reading.wait()
                    await self._pass_on_until_lost(link)
                    self._why_not = "The server went away."
            except (AwayError, RefusedError) as exc:
                if not self._reading.is_set():
                    raise
                self._why_not = str(exc)
            finally:
                if self._link is not None:
                    self._lost_at = time.monotonic()
                self._link = None
                self._linked.clear()
            await self._give_up_calls()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _resume(self, link: Link) -> None:
        """Repeat to a new server what the client told the one before."""
        if self._handshake is None:
            return
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await link.write.send(_again(self._handshake, 0))
                async for item in link.read:
                    if isinstance(item, SessionMessage) and getattr(item.message, "id", None) == f"{OURS}0":
                        break
                await link.write.send(
                    SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized"))
                )
                for number, request in enumerate(self._subscribed.values(), 1):
                    await link.write.send(_again(request, number))
        except (TimeoutError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise AwayError("The server went away.") from None

    async def _pass_on_until_lost(self, link: Link) -> None:
        passing = asyncio.create_task(self._pass_on(link))
        lost = asyncio.create_task(link.lost.wait())
        try:
            await asyncio.wait((passing, lost), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancelled(passing, lost)

    async def _pass_on(self, link: Link) -> None:
        async for item in link.read:
            if isinstance(item, Exception):
                continue
            message = item.message
            if not isinstance(message, JSONRPCResponse | JSONRPCError):
                await self._to_client(item)
            elif not str(message.id).startswith(OURS):
                await self._to_client(item)
                self._learn_from(message)

    def _learn_from(self, answer: JSONRPCResponse | JSONRPCError) -> None:
        request = self._in_flight.pop(answer.id, None) if answer.id is not None else None
        if request is None or isinstance(answer, JSONRPCError):
            return
        uri = str((request.params or {}).get("uri", ""))
        if request.method == "initialize":
            self._handshake = request
        elif request.method == "resources/subscribe":
            self._subscribed[uri] = request
        elif request.method == "resources/unsubscribe":
            self._subscribed.pop(uri, None)

    async def _give_up_calls(self) -> None:
        """Nobody knows whether a call that was under way had its effect: the client has to look."""
        given_up, self._in_flight = self._in_flight, {}
        for identifier in given_up:
            await self._refuse(identifier, "The server went away before it answered; look at what it did.")

    # The client's side

    async def _from_client(self, item: SessionMessage | Exception) -> None:
        if isinstance(item, Exception):
            return await self._to_client(_error(None, PARSE_ERROR, "This line is no JSON-RPC message."))
        message = item.message
        link = await self._current_link()
        if isinstance(message, JSONRPCRequest):
            if link is None:
                return await self._refuse(message.id, self._why_not)
            if len(self._in_flight) >= MAX_IN_FLIGHT:
                return await self._refuse(message.id, "Too many calls are under way; wait for one to finish.")
            if not _is_finite(message.params):
                refusal = _error(message.id, INVALID_PARAMS, "A number is not finite or too large.")
                return await self._to_client(refusal)
            self._in_flight[message.id] = message
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            cancelled = (message.params or {}).get("requestId")
            if isinstance(cancelled, str | int):
                self._in_flight.pop(cancelled, None)
        if link is not None:
            try:
                await link.write.send(item)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                link.lost.set()  # what is in flight is answered where the link is given up
        return None

    async def _current_link(self) -> Link | None:
        """The link, or the next one if it comes while patience lasts."""
        if self._link is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._lost_at + PATIENCE_SECONDS - time.monotonic())):
                    await self._linked.wait()
        return self._link

    async def _refuse(self, identifier: RequestId, message: str) -> None:
        await self._to_client(_error(identifier, ERROR_TABLE[ErrorCode.UNAVAILABLE].jsonrpc, message))

    async def _to_client(self, item: SessionMessage) -> None:
        if self._client is not None:
            await self._client.send(item)


def _again(request: JSONRPCRequest, number: int) -> SessionMessage:
    return SessionMessage(request.model_copy(update={"id": f"{OURS}{number}"}))
