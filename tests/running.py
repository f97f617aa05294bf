"""Real `devflow` processes for tests and benchmarks: start one, talk to it, end it by its pid."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from devflow import owner
from devflow.config import ENV_PREFIX, PROJECT_ROOT

START_SECONDS = 120
STOP_SECONDS = 30


def environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without its own DevFlow settings, for a `devflow` with the data directory `home`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
    return {**clean, "DEVFLOW_HOME": str(home), "PYTHONUNBUFFERED": "1", **(extra or {})}


def devflow(
    home: Path, *arguments: str, extra: Mapping[str, str] | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run one `devflow` command to its end; look at `returncode`, `stdout`, `stderr`."""
    return subprocess.run(
        [sys.executable, "-m", "devflow", *arguments],
        cwd=PROJECT_ROOT,
        env=environment(home, extra),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def create_key(home: Path, name: str, *arguments: str, extra: Mapping[str, str] | None = None) -> dict[str, Any]:
    """`devflow createkey NAME --json` with more `arguments`; gives what it prints."""
    done = devflow(home, "createkey", name, *arguments, "--json", extra=extra)
    assert done.returncode == 0, done.stderr
    made: dict[str, Any] = json.loads(done.stdout)
    return made


@dataclass
class RunningServer:
    """A `devflow up` that answers: `url` without a path, `key` with every scope and no rate limit."""

    url: str
    key: str
    home: Path
    log: Path
    env: dict[str, str]
    process: subprocess.Popen[bytes]
    ready_after: float = 0.0
    """Seconds from the start of the process to the first 200 of /readyz."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        """What the server printed so far, banner and log."""
        return self.log.read_text(errors="replace")

    def create_key(self, name: str, *arguments: str) -> dict[str, Any]:
        return create_key(self.home, name, *arguments, extra=self.env)

    def run_python(self, code: str) -> str:
        """Run code in the server's data directory and settings, with Django set up; gives what it prints."""
        done = subprocess.run(
            [sys.executable, "-c", f"import django; django.setup()\n{code}"],
            cwd=PROJECT_ROOT,
            env={**environment(self.home, self.env), "DJANGO_SETTINGS_MODULE": "devflow.settings"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def kill(self) -> None:
        """End the server at once, as a power cut would."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(STOP_SECONDS)

    def kill_a_worker(self) -> int:
        """kill -9 one process that serves requests (of several); gives its pid."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        serving = [pid for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(int(serving[0]), signal.SIGKILL)
        return int(serving[0])

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End the server; gives its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)  # its own group: start_new_session below
                self.process.wait()
                raise
        return self.process.returncode


@contextmanager
def running(
    home: Path,
    *,
    server: str = "uvicorn",
    workers: int = 1,
    env: Mapping[str, str] | None = None,
    arguments: tuple[str, ...] = (),
) -> Iterator[RunningServer]:
    """Run `devflow up` on a free port with the data directory `home` until the block ends; `/readyz` is 200 before."""
    extra = dict(env or {})
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = home.parent / f"{home.name}.log"
    command = [sys.executable, "-m", "devflow", "up", "--port", "0", "--server", server, "--workers", str(workers)]
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*command, *arguments],
            cwd=PROJECT_ROOT,
            env=environment(home, extra),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    began = time.monotonic()
    started = RunningServer("", "", home, log, extra, process)
    try:
        started.url = _wait_until_ready(started)
        started.ready_after = time.monotonic() - began
        started.key = started.create_key("tests", "--scopes", "read,write,execute,admin", "--rate", "0")["key"]
        yield started
    finally:
        started.stop()


def _wait_until_ready(server: RunningServer) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            raise AssertionError(f"devflow up ended with {server.process.returncode}:\n{server.output}")
        published = owner.read_published(server.home)
        if published is not None and _answers(f"{published.url}/readyz"):
            return published.url
        time.sleep(0.05)
    raise AssertionError(f"devflow up was not ready in {START_SECONDS} s:\n{server.output}")


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False
