"""The ASGI servers behind `devflow up`: uvicorn in this process, uvicorn's supervisor with several, or daphne.

All of them serve a socket that listens already, set `drain.draining` when they are told to stop, and call
`on_listening` once connections are answered.
"""

import errno
import multiprocessing
import os
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from multiprocessing.connection import wait
from types import FrameType

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors import multiprocess

from devflow import config
from devflow.config import ConfigError
from devflow.drain import draining

APPLICATION = "devflow.asgi:application"
BACKLOG = 2048
MAX_HEAD = 512 * 1024  # a chunk that ends one body and begins the next request counts whole, and chunks have 256 KiB
_HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class PortInUseError(Exception):
    """Somebody listens there already; the message names the way out."""


def listen(host: str, port: int) -> socket.socket:
    """Listen on a TCP socket; port 0 picks a free one. Raises `PortInUseError` or `ConfigError`.

    It listens before the application is loaded: early connections wait instead of being refused, and of two
    servers that start at once one is told.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError as exc:
        sock.close()
        if exc.errno == errno.EADDRINUSE:
            raise PortInUseError(
                f"port {port} on {host} is in use: stop what listens there, or choose another with --port {port + 1}."
            ) from exc
        if exc.errno == errno.EACCES:
            raise ConfigError(f"port: {port} needs rights this user does not have; use one above 1023.") from exc
        raise ConfigError(f"host: {host} is no address of this machine.") from exc
    return sock


def loopback_of(host: str) -> str:
    """The address a process on this machine uses for a server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # compared with, not bound to


def url_of(sock: socket.socket) -> str:
    """The loopback URL (without a path) of a listening socket."""
    host, port = sock.getsockname()[:2]
    host = loopback_of(host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Protocol(HttpToolsProtocol):
    """uvicorn's HTTP, with a bound on a request's line and headers: llhttp gathers them whatever their size."""

    _head: int | None = 0
    """Bytes read since this request's first; None once its headers are complete."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head is not None:
            self._head += len(data)
            if self._head > MAX_HEAD and not self.transport.is_closing():
                self.transport.write(_HEAD_TOO_LARGE)
                self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = 0

    def on_headers_complete(self) -> None:
        self._head = None
        super().on_headers_complete()


class Server(uvicorn.Server):
    """uvicorn that says when it listens, and starts draining the moment it is told to stop."""

    def __init__(self, conf: uvicorn.Config, on_listening: Callable[[], None] | None = None) -> None:
        super().__init__(conf)
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started and self._on_listening is not None:
            self._on_listening()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        draining.set()
        super().handle_exit(sig, frame)


class _Worker(multiprocess.Process):
    """One server process under the supervisor; it does not outlive a supervisor that was killed."""

    def target(self, sockets: list[socket.socket] | None = None) -> None:
        threading.Thread(target=_end_with_parent, daemon=True).start()
        super().target(sockets)

    @property
    def server(self) -> uvicorn.Server:
        if self._server is None:
            self._server = Server(self.config)
        return self._server


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


def uvicorn_config(workers: int = 1) -> uvicorn.Config:
    """How DevFlow wants to be served: the same for `devflow up`, its worker processes and `devflow mcp`."""
    conf = config.current()
    return uvicorn.Config(
        APPLICATION,
        host=conf.mcp_gateway.host,
        port=conf.mcp_gateway.port,
        workers=workers,
        loop="uvloop",
        http=_Protocol,
        ws="websockets-sansio",
        ws_max_size=1024 * 1024,
        lifespan="on",
        backlog=BACKLOG,
        proxy_headers=conf.production,
        server_header=False,
        log_config=None,
        access_log=False,
        timeout_keep_alive=65,  # longer than what proxies and clients keep, so that they close first
        timeout_graceful_shutdown=conf.drain_seconds,
        timeout_worker_healthcheck=30,
    )


def serve(sock: socket.socket, *, on_listening: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT with the configured server and number of workers."""
    conf = config.current()
    if conf.server == "daphne":
        _serve_daphne(sock, on_listening)
    elif conf.workers > 1:
        _serve_processes(sock, conf.workers, on_listening)
    else:
        Server(uvicorn_config(), on_listening).run(sockets=[sock])


def _serve_processes(sock: socket.socket, workers: int, on_listening: Callable[[], None]) -> None:
    multiprocess.Process = _Worker  # type: ignore[misc]  # Multiprocess names its class in four places: its only seam
    threading.Thread(target=_announce, args=(url_of(sock), on_listening), daemon=True).start()
    multiprocess.Multiprocess(uvicorn_config(workers), sockets=[sock]).run()


def _announce(url: str, on_listening: Callable[[], None]) -> None:
    """Call `on_listening` once a worker answers."""
    while not draining.wait(0.1):
        try:
            with urllib.request.urlopen(f"{url}/healthz", timeout=5):  # noqa: S310  # our own loopback address
                break
        except urllib.error.HTTPError:
            break
        except OSError:
            continue
    on_listening()


def _serve_daphne(sock: socket.socket, on_listening: Callable[[], None]) -> None:
    # Importing daphne.server installs its reactor, which must happen before anything else imports Twisted's.
    from daphne.server import Server as DaphneServer
    from django.utils.module_loading import import_string
    from twisted.internet import reactor

    reactor.addSystemEventTrigger("before", "shutdown", draining.set)  # type: ignore[arg-type]  # the stub swaps two
    DaphneServer(
        application=import_string(APPLICATION.replace(":", ".")),
        endpoints=[f"fd:fileno={sock.fileno()}"],
        ready_callable=on_listening,
        application_close_timeout=config.current().drain_seconds,
        verbosity=0,
    ).run()
