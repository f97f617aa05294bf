"""Serve an ASGI application of the tests (DevFlow with more in it) as a process, on uvicorn or daphne."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from devflow.config import PROJECT_ROOT
from tests import running
from tests.running import RunningServer

START_SECONDS = 60


@contextmanager
def serving(
    home: Path,
    application: str,
    *,
    server: str = "uvicorn",
    env: Callable[[str], Mapping[str, str]] = lambda key: {},
) -> Iterator[RunningServer]:
    """Serve `application` with the data directory `home` and the demo project; `env(key)` is added to its settings."""
    home.mkdir(mode=0o700)
    key = running.create_key(home, "tests", "--scopes", "read,write,execute", "--rate", "0")["key"]
    seeded = running.devflow(home, "demo")
    assert seeded.returncode == 0, seeded.stderr
    extra = dict(env(key))
    log = home.parent / f"{home.name}.log"
    with socket.socket() as sock, log.open("wb") as output:
        sock.bind(("127.0.0.1", 0))
        sock.listen(128)
        process = subprocess.Popen(
            [sys.executable, "-m", server, "--fd", str(sock.fileno()), application],
            cwd=PROJECT_ROOT,
            env=running.environment(home, extra),
            pass_fds=[sock.fileno()],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        started = RunningServer(f"http://127.0.0.1:{sock.getsockname()[1]}", key, home, log, extra, process)
        try:
            _wait_until_ready(started)
            yield started
        finally:
            started.stop()


def _wait_until_ready(server: RunningServer) -> None:
    """The socket listens already, so the first request waits for the server instead of failing."""
    deadline = time.monotonic() + START_SECONDS
    while server.process.poll() is None and time.monotonic() < deadline:
        try:
            if httpx.get(f"{server.url}/readyz", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            continue
    raise AssertionError(f"the server did not start:\n{server.output}")
