"""An OpenAI-compatible server on loopback: `/v1/embeddings` and `/v1/chat/completions`, with every fault on demand.

    with OpenAiServer() as server:
        server.script(status(429, {"Retry-After": "0"}))   # the next request; then it answers again
        server.chat = lambda body: '{"order": [2, 1]}'     # what the model says to everything else

Embeddings are bags of words, so texts that share words are near.
"""

import json
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Json = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """One scripted answer. `change` edits the good answer; otherwise `body` is sent as it is."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    change: Callable[[Json], object] | None = None
    hangs: bool = False
    cut_after: int | None = None  # bytes of the body after which the connection is reset


@dataclass(frozen=True)
class Request:
    path: str
    headers: Mapping[str, str]
    body: Json


def status(code: int, headers: Mapping[str, str] | None = None, message: str = "scripted") -> Reply:
    return Reply(code, headers or {}, json.dumps({"error": {"message": message}}).encode())


def raw(body: bytes) -> Reply:
    return Reply(body=body)


def changed(change: Callable[[Json], object]) -> Reply:
    """The good answer after `change` has edited it in place."""
    return Reply(change=change)


def hang() -> Reply:
    """Accept the request and say nothing until the server closes."""
    return Reply(hangs=True)


def reset(after: int = 0) -> Reply:
    """Cut the connection: before the answer, or in the middle of its body."""
    return Reply(cut_after=after)


def says(content: str) -> Reply:
    """A chat answer of this text."""

    def change(answer: Json) -> None:
        answer["choices"][0]["message"]["content"] = content

    return Reply(change=change)


def refuses(why: str = "I cannot help with that.") -> Reply:
    """A chat answer in which the model refuses."""

    def change(answer: Json) -> None:
        answer["choices"][0]["message"].update(content=None, refusal=why)

    return Reply(change=change)


def filtered() -> Reply:
    """A chat answer that a content filter has ended."""

    def change(answer: Json) -> None:
        answer["choices"][0].update(finish_reason="content_filter")
        answer["choices"][0]["message"]["content"] = ""

    return Reply(change=change)


def bag_of_words(text: str, dimensions: int) -> list[float]:
    vector = [0.01] * dimensions
    for word in text.lower().split():
        vector[zlib.crc32(word.encode()) % dimensions] += 1.0
    return vector


class OpenAiServer:
    """Listens from `__enter__` to `__exit__`; `requests` is everything it was asked."""

    def __init__(self, *, dimensions: int = 16, api_key: str = "") -> None:
        self.dimensions = dimensions
        self.api_key = api_key
        self.chat: Callable[[Json], str] = lambda body: "{}"
        self.requests: list[Request] = []
        self._script: list[Reply] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()

    def script(self, *replies: Reply) -> None:
        """Answer the next requests so, one each."""
        with self._lock:
            self._script += replies

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        outer = self

        class Handler(_Handler):
            fake = outer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _next(self, request: Request) -> Reply:
        with self._lock:
            self.requests.append(request)
            return self._script.pop(0) if self._script else Reply(change=lambda answer: None)

    def _good(self, request: Request) -> Json:
        if request.path == "/v1/chat/completions":
            message = {"role": "assistant", "content": self.chat(request.body)}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            return {"id": "chat-1", "object": "chat.completion", "choices": [choice], "usage": {"total_tokens": 1}}
        texts = request.body["input"]
        texts = [texts] if isinstance(texts, str) else texts
        dimensions = request.body.get("dimensions", self.dimensions)
        rows = [
            {"object": "embedding", "index": at, "embedding": bag_of_words(text, dimensions)}
            for at, text in enumerate(texts)
        ]
        return {"object": "list", "data": rows, "model": request.body["model"], "usage": {"total_tokens": 1}}


class _Handler(BaseHTTPRequestHandler):
    fake: OpenAiServer
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = Request(self.path, dict(self.headers), body)
        if self.path not in ("/v1/embeddings", "/v1/chat/completions"):
            return self._send(404, {}, b'{"error": {"message": "no such path"}}')
        if self.fake.api_key and self.headers["Authorization"] != f"Bearer {self.fake.api_key}":
            return self._send(401, {}, b'{"error": {"message": "Incorrect API key provided"}}')
        reply = self.fake._next(request)
        if reply.hangs:
            self.fake._closing.wait(60)
            self.close_connection = True
            return None
        content = reply.body
        if reply.change is not None or reply.cut_after is not None:
            answer = self.fake._good(request)
            if reply.change is not None:
                reply.change(answer)
            content = json.dumps(answer).encode()
        return self._send(reply.status, reply.headers, content, reply.cut_after)

    def _send(self, code: int, headers: Mapping[str, str], content: bytes, cut_after: int | None = None) -> None:
        self.close_connection = self.close_connection or cut_after is not None
        if cut_after == 0:
            return
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content if cut_after is None else content[:cut_after])

    def log_message(self, format: str, *args: object) -> None:
        pass
