"""JSON-RPC over a byte stream in either framing: one message a line, or headers with Content-Length as LSP has them.

The first bytes of a connection decide, and answers go out in the same framing.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MAX_MESSAGE = 4 * 1024 * 1024
MAX_HEADER = 4096
_HEADER = re.compile(rb"[A-Za-z][A-Za-z0-9-]*[ \t]*:")
_LENGTH = re.compile(rb"(?im)^content-length[ \t]*:[ \t]*(\d{1,15})[ \t]*\r?$")
_END = re.compile(rb"\r?\n\r?\n")


class BrokenFramingError(Exception):
    """Nothing that follows can be told apart any more."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """A message that could not be read; the next one can be."""

    why: str


class Reader:
    """Bytes in, messages out."""

    def __init__(self) -> None:
        self.has_headers: bool | None = None
        self._buffer = bytearray()
        self._skip = 0
        """Bytes of a message that is too large, still to be thrown away."""
        self._skips_line = False

    def feed(self, data: bytes) -> "Iterator[Any | Malformed]":
        """Each message that is complete now. Raises `BrokenFramingError`."""
        self._buffer += data
        if self.has_headers is None and not self._decide():
            return
        yield from self._framed() if self.has_headers else self._lines()

    def _decide(self) -> bool:
        start = self._buffer.lstrip()
        if not start:
            self._buffer.clear()
            return False
        if b"\n" not in start and len(start) < 64 and start[:1] not in b"{[":
            return False
        self.has_headers = _HEADER.match(start) is not None
        self._buffer = start
        return True

    def _lines(self) -> "Iterator[Any | Malformed]":
        while (end := self._buffer.find(b"\n")) >= 0:
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            if self._skips_line:
                self._skips_line = False
            elif len(line) > MAX_MESSAGE:
                yield _too_large()
            elif line.strip():
                yield _message(line)
        if len(self._buffer) > MAX_MESSAGE or self._skips_line:
            self._buffer.clear()
            if not self._skips_line:
                self._skips_line = True
                yield _too_large()

    def _framed(self) -> "Iterator[Any | Malformed]":
        while True:
            if self._skip:
                thrown = min(self._skip, len(self._buffer))
                del self._buffer[:thrown]
                self._skip -= thrown
                if self._skip:
                    return
            while self._buffer.startswith((b"\r", b"\n")):
                del self._buffer[:1]
            end = _END.search(self._buffer, 0, MAX_HEADER)
            if end is None:
                if len(self._buffer) >= MAX_HEADER:
                    raise BrokenFramingError("The headers have no end.")
                return
            length = _LENGTH.search(bytes(self._buffer[: end.start()]))
            if length is None:
                raise BrokenFramingError("The headers name no Content-Length.")
            size = int(length[1])
            if size > MAX_MESSAGE:
                del self._buffer[: end.end()]
                self._skip = size
                yield _too_large()
                continue
            if len(self._buffer) < end.end() + size:
                return
            body = bytes(self._buffer[end.end() : end.end() + size])
            del self._buffer[: end.end() + size]
            yield _message(body)


def framed(message: dict[str, Any], *, has_headers: bool) -> bytes:
    body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body) if has_headers else body + b"\n"


def _too_large() -> Malformed:
    return Malformed(f"A message may have {MAX_MESSAGE // 2**20} MiB at most.")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _message(body: bytes) -> "Any | Malformed":
    try:
        return json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return Malformed("This is no JSON.")
