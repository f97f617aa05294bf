"""DevFlow for the conformance suites, without and with the fixtures they ask for (DEVFLOW_TEST_CONFORMANCE_FIXTURES).

The suites send no API key, so every request gets the test's own here; nothing in the product knows of it.
"""

import os
from typing import Any

import devflow.asgi
from mcpbridge.server import build_server
from mcpbridge.transports import streamable

KEY = os.environ["DEVFLOW_TEST_CONFORMANCE_KEY"].encode()


async def application(scope: Any, receive: Any, send: Any) -> None:
    """DevFlow, called with the key of the test."""
    if scope["type"] == "http":
        scope = {**scope, "headers": [*scope["headers"], (b"x-api-key", KEY)]}
    await devflow.asgi.application(scope, receive, send)


if os.environ.get("DEVFLOW_TEST_CONFORMANCE_FIXTURES"):
    from tests.conformance import declared, raw  # noqa: F401  # importing `declared` publishes its tools

    streamable.build_server = raw.with_fixtures(build_server)  # type: ignore[attr-defined]  # the name its run() calls
