"""Answers in pieces over REST: progress while a call is at work, and long texts without holding them twice.

A client that accepts `application/x-ndjson` is sent one JSON object a line: `{"type": "progress", "progress", "total",
"message"}` as often as the call reports, then `{"type": "answer", "status", "body"}` with what it would have been sent
at once. Leaving before that cancels the call.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from django.http import StreamingHttpResponse
from rest_framework.request import Request

from mcpbridge.tooling import Caller

MEDIA_TYPE = "application/x-ndjson"
PIECE = 64 * 1024
MAX_WAITING = 1000

Run = Callable[[Caller], Awaitable[tuple[int, Any]]]


def is_wanted(request: Request) -> bool:
    return any(part.partition(";")[0].strip() == MEDIA_TYPE for part in request.headers.get("Accept", "").split(","))


def answer(caller: Caller, run: Run) -> StreamingHttpResponse:
    """Stream one call: `run` gives its status and body."""
    response = StreamingHttpResponse(_lines(caller, run), content_type=MEDIA_TYPE)
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response


async def _lines(caller: Caller, run: Run) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[bytes | None] = asyncio.Queue()

    def put(line: bytes | None) -> None:
        if line is None or waiting.qsize() < MAX_WAITING:  # a client that reads too slowly misses progress, no more
            waiting.put_nowait(line)

    def report(progress: float, total: float | None = None, message: str | None = None) -> None:
        event = {"type": "progress", "progress": progress, "total": total, "message": message}
        loop.call_soon_threadsafe(put, json.dumps(event).encode() + b"\n")

    task = asyncio.ensure_future(run(caller.with_changes(report=report)))
    task.add_done_callback(lambda _: loop.call_soon(put, None))
    try:
        while (line := await waiting.get()) is not None:
            yield line
        status, body = task.result()
        async for piece in pieces(json.dumps({"type": "answer", "status": status, "body": body}) + "\n"):
            yield piece
    finally:
        task.cancel()


async def pieces(text: str) -> AsyncIterator[bytes]:
    """A text in pieces of 64 Ki characters."""
    for start in range(0, len(text), PIECE):
        yield text[start : start + PIECE].encode(errors="replace")
