"""The mark every child carries in its environment, and how processes are found by it (Linux, /proc).

A process inherits it, whatever group or session it moves to, so what escaped its group is still found. Everything
here blocks for milliseconds: call it in a thread.
"""

import hashlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from devflow import config

CHILD_VARIABLE = "DEVFLOW_CHILD"
KILL_SECONDS = 5.0
_NAME = CHILD_VARIABLE.encode() + b"="


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None where it is not alive. Pids come again, this does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    return None if fields[0] in b"ZX" else int(fields[19])


def installation() -> str:
    """Which data directory this is, among all whose processes are seen from here."""
    try:
        seen_from = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        seen_from = ""
    return hashlib.sha256(f"{config.home().resolve()} {seen_from}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Mark:
    """Whose child a process is: of which installation, of which of its processes, and which child."""

    installation: str
    owner_pid: int
    owner_ticks: int
    child_id: str

    def __str__(self) -> str:
        return f"{self.installation}.{self.owner_pid}.{self.owner_ticks}.{self.child_id}"

    @classmethod
    def parse(cls, text: str) -> "Mark | None":
        try:
            installed, pid, ticks, child_id = text.split(".")
            return cls(installed, int(pid), int(ticks), child_id)
        except ValueError:
            return None

    @property
    def owner_is_alive(self) -> bool:
        return start_ticks(self.owner_pid) == self.owner_ticks

    @property
    def is_of_this_process(self) -> bool:
        return self.owner_pid == os.getpid() and self.owner_is_alive


def new_mark(child_id: str) -> Mark:
    return Mark(installation(), os.getpid(), start_ticks(os.getpid()) or 0, child_id)


def environment_of(mark: Mark) -> dict[str, str]:
    """The variable for a child: its mark, after those this process was given by a DevFlow above it."""
    return {CHILD_VARIABLE: f"{os.environ.get(CHILD_VARIABLE, '')} {mark}".strip()}


def marked() -> Iterator[tuple[int, list[Mark]]]:
    """Every process of this user that carries marks, with them."""
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():  # noqa: PTH208, PTH112  # three times faster
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:  # noqa: PTH123  # likewise
                environ = file.read()
        except OSError:
            continue
        if _NAME not in environ:
            continue
        for line in environ.split(b"\0"):
            if line.startswith(_NAME):
                words = line[len(_NAME) :].decode(errors="replace").split()
                yield int(name), [mark for word in words if (mark := Mark.parse(word)) is not None]


def kill_marked(wanted: Callable[[Mark], bool], *, seconds: float = KILL_SECONDS) -> list[int]:
    """KILL whatever carries a wanted mark, and again what it started meanwhile, until none is left.

    Gives the pids that were found; one that stays in the kernel is left after `seconds`.
    """
    end, found = time.monotonic() + seconds, list[int]()
    own = os.getpid()
    while True:
        alive = [pid for pid, marks in marked() if pid != own and any(wanted(mark) for mark in marks)]
        for pid in alive:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        found += [pid for pid in alive if pid not in found]
        if not alive or time.monotonic() > end:
            return found
        time.sleep(0.005)
