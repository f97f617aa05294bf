"""The way back to a client of stateless Streamable HTTP: messages of ours between the SDK's, in the stream a POST is
answered with, and the client's answers, posted to whichever process."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Protocol

from mcp.types import JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter
from pydantic import ValidationError

from devflow.errors import DevFlowError, ErrorCode
from mcpbridge import asking


class Relay(Protocol):
    """Brings messages to the process they are for."""

    @property
    def channel(self) -> str: ...

    async def bring(self, channel: str, session: str, body: bytes) -> int:
        """An HTTP status: 202, 404 where nobody waits there, 503."""


class StreamedWay:
    """One request's stream. `passing` is the ASGI `send` for the SDK, `send` that for questions."""

    def __init__(self, send: Any, relay: Relay) -> None:
        self._send = send
        self._relay = relay
        self._begun = asyncio.Event()
        self._turn = asyncio.Lock()
        self._is_open = False

    @property
    def channel(self) -> str:
        return self._relay.channel

    async def passing(self, message: Any) -> None:
        async with self._turn:
            await self._send(message)
            if message["type"] == "http.response.start":
                kinds = [value for name, value in message["headers"] if name.lower() == b"content-type"]
                self._is_open = any(kind.startswith(b"text/event-stream") for kind in kinds)
                self._begun.set()
            elif not message.get("more_body", False):
                self._is_open = False

    async def send(self, message: Mapping[str, Any]) -> None:
        """Raises `precondition_failed` where the answer is no stream, or was sent."""
        await self._begun.wait()
        async with self._turn:
            if not self._is_open:
                raise DevFlowError(ErrorCode.PRECONDITION_FAILED, "The client's request is no longer open.")
            event = f"event: message\r\ndata: {json.dumps(message)}\r\n\r\n"
            await self._send({"type": "http.response.body", "body": event.encode(), "more_body": True})


def is_answer(body: bytes) -> bool:
    """Whether a POST may be a client's answer: every other message names its method."""
    if b'"method"' not in body:
        return True
    if b'"result"' not in body and b'"error"' not in body:
        return False
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and "method" not in message  # an answer may hold one, such as a way to pay


async def handed_over(body: bytes, session: str, relay: Relay) -> int:
    """Bring a client's answer to the call that waits for it. Gives an HTTP status."""
    try:
        message = jsonrpc_message_adapter.validate_json(body, by_name=False)
    except ValidationError:
        return 400
    if not isinstance(message, JSONRPCResponse | JSONRPCError):
        return 400
    channel = asking.channel_of(message)
    if channel is None:
        return 404
    if channel == relay.channel:
        return 202 if asking.take(session, message) else 404
    return await relay.bring(channel, session, body)
