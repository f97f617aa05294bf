"""Ask a server outside, and read its answer within a time and a size in all: httpx bounds each read only, so that an
answer may drip for hours or fill the memory."""

import time
from collections.abc import Mapping
from typing import Any

import httpx


def post(
    client: httpx.Client,
    url: str,
    *,
    body: Mapping[str, Any],
    seconds: float,
    most_bytes: int,
    headers: Mapping[str, str] | None = None,
) -> httpx.Response:
    """POST JSON and give the whole answer. Blocks for `seconds` at most (but for a server that drips its headers).

    Raises `httpx.ReadTimeout`, `httpx.ReadError` for more than `most_bytes`, and whatever else httpx raises.
    """
    until = time.monotonic() + seconds
    read = bytearray()
    with client.stream("POST", url, json=dict(body), headers=headers, timeout=seconds) as answer:
        for piece in answer.iter_bytes():
            read += piece
            if len(read) > most_bytes:
                raise httpx.ReadError(f"the answer has more than {most_bytes:,} bytes")
            if time.monotonic() > until:
                raise httpx.ReadTimeout("the answer did not end in time")
        kept = {name: value for name, value in answer.headers.items() if name != "content-encoding"}
        return httpx.Response(answer.status_code, headers=kept, content=bytes(read))
