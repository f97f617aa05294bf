"""Other processes that use vectors, and how to watch them."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from devflow.config import PROJECT_ROOT


def until(condition: Callable[[], object], what: str, seconds: float = 30) -> None:
    """Wait for the condition, for a bounded time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def started(program: str, *arguments: object) -> "subprocess.Popen[str]":
    """A Python program that has printed its first line, `ready`."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=PROJECT_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "ready\n", line
    return process


def ended(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def builders(parent: int) -> list[int]:
    """The pids of the processes that build graphs for `parent`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if b"devflow.vectors.build" in arguments and str(parent).encode() in arguments and state != "Z":
                found.append(int(entry.name))
    return found
