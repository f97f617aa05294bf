"""Messages out of bytes, whole or in pieces, in either framing, and what is not one."""

import json
from typing import Any

import pytest

from mcpbridge.agentify.framing import MAX_MESSAGE, BrokenFramingError, Malformed, Reader, framed

ONE: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"text": "ü\n"}}


@pytest.mark.parametrize("has_headers", [True, False])
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_messages_come_whole_however_they_arrive(has_headers: bool, size: int) -> None:
    data = framed(ONE, has_headers=has_headers) * 3
    reader = Reader()
    found = [message for at in range(0, len(data), size) for message in reader.feed(data[at : at + size])]
    assert found == [ONE] * 3
    assert reader.has_headers is has_headers


@pytest.mark.parametrize("end", [b"\r\n\r\n", b"\n\n"])
@pytest.mark.parametrize("name", [b"Content-Length", b"content-length"])
def test_other_headers_and_spellings_are_taken(end: bytes, name: bytes) -> None:
    body = json.dumps(ONE).encode()
    line = end[: len(end) // 2]
    data = b"Content-Type: application/vscode-jsonrpc; charset=utf-8" + line + name + b": %d" % len(body) + end + body
    assert list(Reader().feed(data)) == [ONE]


@pytest.mark.parametrize("bad", [b"hello\n", b"{]\n", b'{"a": NaN}\n', b"\xff\xfe{}\n", b"[" * 100_000 + b"\n"])
def test_what_is_no_json_is_named_and_the_next_message_is_read(bad: bytes) -> None:
    reader = Reader()
    found = list(reader.feed(bad + framed(ONE, has_headers=False)))
    assert isinstance(found[0], Malformed)
    assert found[1:] == [ONE]


def test_a_message_that_is_too_large_is_thrown_away_as_it_comes() -> None:
    for has_headers in (True, False):
        reader = Reader()
        list(reader.feed(framed(ONE, has_headers=has_headers)))
        start = b"Content-Length: %d\r\n\r\n" % (MAX_MESSAGE * 2) if has_headers else b""
        found = list(reader.feed(start))
        for _ in range(2):
            found += reader.feed(b"x" * MAX_MESSAGE)
            assert len(reader._buffer) <= MAX_MESSAGE
        found += reader.feed(b"" if has_headers else b"xx\n")
        assert len(found) == 1
        assert isinstance(found[0], Malformed)
        assert list(reader.feed(framed(ONE, has_headers=has_headers))) == [ONE]


@pytest.mark.parametrize("bad", [b"Content-Type: x\r\n\r\n{}", b"Content-Length: -1\r\n\r\n", b"A: " + b"x" * 5000])
def test_broken_headers_end_the_stream(bad: bytes) -> None:
    reader = Reader()
    with pytest.raises(BrokenFramingError):
        list(reader.feed(bad))
        list(reader.feed(b"\n"))
