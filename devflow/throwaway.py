"""PostgreSQL and Redis servers that live as long as they are needed: for tests, benchmarks and `make up-scale`.

Each listens on loopback on a free port, belongs to this process, and is ended by its pid.
"""

import hashlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 60


class MissingServerError(Exception):
    """The server program is not installed; the message says how to get it."""


class ServerFailedError(Exception):
    """The server did not start; the message ends with what it said."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def postgres_program(name: str) -> str:
    """The newest installed `initdb`, `postgres` ...; Debian keeps them off the PATH. Raises `MissingServerError`."""
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parts[-3]))
    found = str(installed[-1]) if installed else shutil.which(name)
    if found is None:
        raise MissingServerError("PostgreSQL is not installed: apt-get install postgresql")
    return found


def redis_program() -> str:
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None:
        raise MissingServerError("Redis is not installed: apt-get install redis-server")
    return found


def _unprivileged() -> str | None:
    """The user a server is to run as, which matters for root: PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    return None


def _reachable(path: Path, user: str | None) -> bool:
    """Whether another user may enter every directory on the way to `path`."""
    return user is None or all(parent.stat().st_mode & 0o001 for parent in path.absolute().parents if parent.exists())


@contextmanager
def _directory(data: Path | None, user: str | None, name: str) -> Iterator[Path]:
    """A directory the server's user owns: `data` kept (or its stand-in outside a private home), else a passing one."""
    if data is not None:
        if not _reachable(data, user):
            digest = hashlib.sha256(str(data.absolute()).encode()).hexdigest()[:12]
            data = Path("/var/tmp") / f"devflow-{name}-{digest}"  # noqa: S108  # kept across restarts, and enterable
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        if user:
            shutil.chown(data, user, user)
        yield data
        return
    passing = Path(tempfile.mkdtemp(prefix=f"devflow-{name}-", dir="/tmp" if user else None))  # noqa: S108  # others enter it
    try:
        if user:
            shutil.chown(passing, user, user)
        yield passing
    finally:
        shutil.rmtree(passing, ignore_errors=True)


def _ended(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    if process.poll() is None:
        process.send_signal(how)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise ServerFailedError(f"{process.args!r} did not start: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)


@contextmanager
def postgres(data: Path | None = None, *, max_connections: int = 200) -> Iterator[str]:
    """Run a PostgreSQL server and give the URL of an empty database (with `data`: the one kept there).

    Without `data` nothing is kept and nothing is synced to disk. Raises `MissingServerError`, `ServerFailedError`.
    """
    initdb, program = postgres_program("initdb"), postgres_program("postgres")
    user = _unprivileged()
    with _directory(data, user, "postgres") as directory:
        cluster, port = directory / "cluster", free_port()
        if not (cluster / "PG_VERSION").exists():
            subprocess.run(  # noqa: S603  # no shell
                [
                    initdb,
                    "--pgdata",
                    str(cluster),
                    "--username=devflow",
                    "--auth=trust",
                    "--encoding=UTF8",
                    "--no-locale",
                ]
                + ([] if data else ["--no-sync"]),
                user=user,
                cwd=directory,
                check=True,
                capture_output=True,
            )
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": str(max_connections),
            **({} if data else {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}),
        }
        log = directory / "log"
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603  # no shell
                [program, "-D", str(cluster), "-p", str(port)]
                + [part for key, value in settings.items() for part in ("-c", f"{key}={value}")],
                user=user,
                cwd=directory,
                stdout=output,
                stderr=output,
            )
        url = f"postgres://devflow@127.0.0.1:{port}/devflow"
        try:
            _until(lambda: _create_database(port), process, log)
            yield url
        finally:
            _ended(process, signal.SIGINT)  # PostgreSQL's fast shutdown


def _create_database(port: int) -> bool:
    import psycopg

    try:
        with psycopg.connect(f"postgres://devflow@127.0.0.1:{port}/postgres", autocommit=True) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = 'devflow'").fetchone():
                connection.execute("CREATE DATABASE devflow")
    except psycopg.OperationalError:
        return False
    return True


class RedisServer:
    """A Redis server that can be killed and started again on the same port, for tests of a restart."""

    def __init__(self, directory: Path, user: str | None) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._directory, self._user = directory, user
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = self._directory / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603  # no shell
                [redis_program(), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
                user=self._user,
                cwd=self._directory,
                stdout=output,
                stderr=output,
            )
        _until(self._answers, self._process, log)

    def stop(self) -> None:
        if self._process is not None:
            _ended(self._process, signal.SIGTERM)
            self._process = None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False


@contextmanager
def redis() -> Iterator[RedisServer]:
    """Run a Redis server that keeps nothing. Raises `MissingServerError`, `ServerFailedError`."""
    user = _unprivileged()
    with _directory(None, user, "redis") as directory:
        server = RedisServer(directory, user)
        try:
            server.start()
            yield server
        finally:
            server.stop()
