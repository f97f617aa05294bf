"""The two official suites as programs, and a server for them."""

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from devflow.config import PROJECT_ROOT
from tests import running
from tests.nodetools import program

START_SECONDS = 60
SUITE_SECONDS = 300

_RESULT = re.compile(r"^[✓✗] (?P<name>[\w-]+): \d+ passed, (?P<failed>\d+) failed$", re.MULTILINE)


@dataclass(frozen=True)
class Report:
    """How each scenario of one run ended, and everything the suite printed."""

    passed: frozenset[str]
    failed: frozenset[str]
    output: str


def run(suite: str, url: str, results: Path, *arguments: str) -> Report:
    """Run `conformance-stable` or `conformance-next` against a server."""
    done = subprocess.run(
        [*program(suite), "server", "--url", f"{url}/mcp", "--suite", "all", "--output-dir", str(results), *arguments],
        capture_output=True,
        text=True,
        timeout=SUITE_SECONDS,
        check=False,
    )
    output = done.stdout + done.stderr
    ended = {found["name"]: int(found["failed"]) for found in _RESULT.finditer(output)}
    started = set(re.findall(r"^=== Running scenario: ([\w-]+) ===$", output, re.MULTILINE))
    assert ended and started == ended.keys(), output[-2000:]
    failed = frozenset(name for name, count in ended.items() if count)
    return Report(passed=frozenset(ended.keys() - failed), failed=failed, output=output)


@contextmanager
def serving(home: Path, *, server: str = "uvicorn", fixtures: bool) -> Iterator[str]:
    """Serve `tests.conformance.asgi` until the block ends; gives its URL without a path."""
    home.mkdir(mode=0o700)
    key = running.create_key(home, "suite", "--scopes", "read,write,execute", "--rate", "0")["key"]
    seeded = running.devflow(home, "demo")
    assert seeded.returncode == 0, seeded.stderr
    env = {"DEVFLOW_TEST_CONFORMANCE_KEY": key} | ({"DEVFLOW_TEST_CONFORMANCE_FIXTURES": "1"} if fixtures else {})
    log = home.parent / f"{home.name}.log"
    with socket.socket() as sock, log.open("wb") as output:
        sock.bind(("127.0.0.1", 0))
        sock.listen(128)
        command = [sys.executable, "-m", server, "--fd", str(sock.fileno()), "tests.conformance.asgi:application"]
        process = subprocess.Popen(
            command,
            cwd=PROJECT_ROOT,
            env=running.environment(home, env),
            pass_fds=[sock.fileno()],
            stdout=output,
            stderr=output,
        )
        try:
            url = f"http://127.0.0.1:{sock.getsockname()[1]}"
            _wait_until_ready(url, process, log)
            yield url
        finally:
            process.terminate()
            process.wait(running.STOP_SECONDS)


def _wait_until_ready(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """The socket listens already, so the first request waits for the server instead of failing."""
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if httpx.get(f"{url}/readyz", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            continue
    raise AssertionError(f"the server did not start:\n{log.read_text(errors='replace')}")
