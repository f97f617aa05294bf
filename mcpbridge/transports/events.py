"""A stream of events as MCP's HTTP transports write it."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

PING = b": ping\r\n\r\n"
HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


def encoded(message: Mapping[str, Any]) -> bytes:
    """A JSON-RPC message as JSON, which knows neither NaN nor infinity."""
    try:
        return to_json(message, inf_nan_mode="null")
    except PydanticSerializationError:  # half of a surrogate pair: only an escape can carry it
        return json.dumps(message, separators=(",", ":")).encode()


def event_of(message: Mapping[str, Any]) -> bytes:
    """A JSON-RPC message as an event."""
    return b"event: message\r\ndata: " + encoded(message) + b"\r\n\r\n"
