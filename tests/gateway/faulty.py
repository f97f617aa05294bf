"""Backends that misbehave: rows for them without asking them anything, and a look at what is left of them."""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from devflow.config import PROJECT_ROOT
from mcpbridge.gateway.catalog import backend_spec, catalog
from mcpbridge.gateway.marks import installation, marked
from mcpbridge.gateway.specs import BackendSpec
from mcpbridge.models import Action, Backend
from tests.mcpbridge.conftest import in_thread

SCRIPT = PROJECT_ROOT / "tests" / "fakes" / "fault_backend.py"
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
GONE_SECONDS = 10.0


def arguments(mode: str, *more: str) -> list[str]:
    return ["-S", "-E", str(SCRIPT), mode, *more]


def spec_of(mode: str, *more: str, **fields: Any) -> BackendSpec:
    """A backend that no row describes."""
    given = {"id": mode, "transport": "stdio", "command": sys.executable, "args": tuple(arguments(mode, *more))}
    return BackendSpec(**{**given, **fields})


async def faulty(mode: str, *more: str, identifier: str = "", **fields: Any) -> BackendSpec:
    """A row with the actions `act`, `echo` and `change`; the backend itself is not started."""
    given = {"transport": "stdio", "command": sys.executable, "args": arguments(mode, *more), **fields}

    def make() -> BackendSpec:
        row = Backend.objects.create(backend_id=identifier or mode, **given)
        for name, intent, effect in (
            ("act", "QUERY", "READ_ONLY"),
            ("echo", "QUERY", "READ_ONLY"),
            ("change", "MODIFY", "MUTATING"),
        ):
            Action.objects.create(
                backend=row, name=name, input_schema=SCHEMA, fingerprint="-", intent=intent, effect=effect
            )
        return backend_spec(row)

    spec = await asyncio.to_thread(in_thread, make)
    catalog.forget()
    return spec


def survivors() -> list[int]:
    """Processes of this installation's backends that are alive."""
    mine = installation()
    return [pid for pid, marks in marked() if any(mark.installation == mine for mark in marks) and pid != os.getpid()]


async def until(is_so: Callable[[], bool], seconds: float = GONE_SECONDS) -> bool:
    """Whether something becomes so in time."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.02)
    return True


async def nothing_is_left(seconds: float = GONE_SECONDS) -> bool:
    return await until(lambda: not survivors(), seconds)


def open_files() -> int:
    """Open files of this process, without its threads' database connections, which come and go."""
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            count += ".sqlite3" not in str(entry.readlink())
    return count
