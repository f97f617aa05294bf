"""Real loopback servers for the loaders: a site of fixed answers, and a raw one that may break every rule."""

import http.server
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import httpcore


@dataclass
class Answer:
    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Request:
    path: str
    headers: dict[str, str]


class Site:
    """Serves `pages` (path with query to answer) and remembers what was asked."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.pages: dict[str, Answer | Callable[[Request], Answer]] = {}
        self.asked: list[Request] = []

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.asked]

    def html(self, path: str, *links: str, head: str = "", headers: Mapping[str, str] | None = None) -> None:
        anchors = "".join(f'<a href="{link}">x</a>' for link in links)
        body = f"<html><head>{head}</head><body><h1>{path}</h1>{anchors}</body></html>".encode()
        self.pages[path] = Answer(body, headers={"Content-Type": "text/html; charset=utf-8", **(headers or {})})

    def text(self, path: str, text: str, kind: str = "text/plain") -> None:
        self.pages[path] = Answer(text.encode(), headers={"Content-Type": kind})

    def answer(self, request: Request) -> Answer:
        self.asked.append(request)
        found = self.pages.get(request.path, Answer(b"nothing here", 404))
        return found(request) if callable(found) else found


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[Site]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 65536  # head and body in one packet

        def do_GET(self) -> None:
            answer = site.answer(Request(self.path, {k.lower(): v for k, v in self.headers.items()}))
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if answer.status != 304:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if answer.status != 304:
                with suppress(OSError):
                    self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            pass  # clients here hang up on purpose

    with Server(("127.0.0.1", 0), Handler) as server:
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        site = Site(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join(5)


@contextmanager
def misbehaving(behave: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    """The URL of a server that reads a request and leaves the rest to `behave`, until the event says to end."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)

        def serve() -> None:
            while not over.is_set():
                with suppress(OSError):
                    connection, _ = listener.accept()
                    with connection, suppress(OSError):
                        connection.settimeout(5)
                        connection.recv(65536)
                        behave(connection, over)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            over.set()
            thread.join(5)


class Internet(httpcore.NetworkBackend):
    """A network on which every address is the one loopback server; `connected` says which were connected to."""

    def __init__(self, port: int, unreachable: tuple[str, ...] = ()) -> None:
        self.port = port
        self.connected: list[str] = []
        self.unreachable = unreachable

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *args: object, **kwargs: object
    ) -> httpcore.NetworkStream:
        self.connected.append(host)
        if host in self.unreachable:
            raise httpcore.ConnectError("Connection refused")
        return httpcore.SyncBackend().connect_tcp("127.0.0.1", self.port, timeout)
