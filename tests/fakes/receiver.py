"""A webhook's receiver on loopback: it keeps what it is sent, checks the signature as a receiver would, and answers as
it is told.

    with Receiver() as receiver:
        receiver.script(Reply(500), Reply(429, {"Retry-After": "60"}))   # the next ones; then 204 again
"""

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Reply:
    status: int = 204
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    hangs: bool = False


@dataclass(frozen=True)
class Received:
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def is_signed_with(self, secret: str) -> bool:
        """What the Standard Webhooks libraries do."""
        key = base64.b64decode(secret.removeprefix("whsec_"))
        signed = f"{self.id}.{self.headers['webhook-timestamp']}.".encode() + self.body
        expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        return expected in self.headers["webhook-signature"].split(" ")


class Receiver:
    """`mood` is how every request is answered when nothing is scripted."""

    def __init__(self) -> None:
        self.mood = Reply()
        self.received: list[Received] = []
        self._scripted: list[Reply] = []
        self._changed = threading.Condition()
        self._over = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                receiver._answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # senders here hang up on purpose

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def script(self, *replies: Reply) -> None:
        self._scripted += replies

    @property
    def kinds(self) -> list[str]:
        return [one.json["type"] for one in self.received]

    def wait_for(self, count: int, *, seconds: float = 30) -> list[Received]:
        """What was received, once it is `count` messages."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.received) >= count, seconds), self.kinds
        return self.received

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["content-length"]))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        with self._changed:
            reply = self._scripted.pop(0) if self._scripted else self.mood
            self.received.append(Received(handler.path, headers, body))
            self._changed.notify_all()
        if reply.hangs:
            self._over.wait()
            return
        handler.send_response(reply.status)
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        if reply.status != 204:
            handler.send_header("Content-Length", str(len(reply.body)))
        handler.end_headers()
        with suppress(OSError):
            handler.wfile.write(reply.body)
