"""The ledger of children, and the reaper that ends what a killed server left behind.

The mark in a child's environment (`marks`) says whose it is; the rows are for people and for children that wiped
their environment. Rows are written together, a moment later, off the loop: a child that lives shorter leaves none.
"""

import asyncio
import logging
import os
import shutil
import signal
import socket
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from django.db import DatabaseError, transaction
from django.utils import timezone

from devflow import config
from mcpbridge.gateway.marks import Mark, installation, kill_marked, start_ticks
from mcpbridge.models import Backend, ChildProcess
from mcpbridge.threads import run_blocking

logger = logging.getLogger(__name__)

WRITE_SECONDS = 0.2
REAP_SECONDS = 60.0
FORGOTTEN_AFTER = timedelta(days=7)
"""Rows of another host: nobody here can tell whether their processes live."""

_expected: set[str] = set()
_to_enter: dict[str, ChildProcess] = {}
_to_strike: set[str] = set()
_writing: "asyncio.Task[None] | None" = None


def expected(child_id: str) -> None:
    """A child is started now: the reaper leaves it alone."""
    _expected.add(child_id)


def entered(mark: Mark, pid: int, *, backend: int | None, kind: str) -> None:
    """A child was started."""
    _to_enter[mark.child_id] = ChildProcess(
        child_id=mark.child_id,
        backend_id=backend,
        kind=kind,
        host=_host(),
        pid=pid,
        started_ticks=start_ticks(pid) or 0,
        owner_pid=mark.owner_pid,
        owner_ticks=mark.owner_ticks,
    )
    _write_soon()


def struck(child_id: str) -> None:
    """A child has ended, with all that carried its mark."""
    _expected.discard(child_id)
    if _to_enter.pop(child_id, None) is None:
        _to_strike.add(child_id)
        _write_soon()


def directory_of(mark: Mark) -> Path:
    """Where a child may be given files, secrets among them; what a dead owner left there is removed."""
    return config.home() / "children" / str(mark)


def _host() -> str:
    return f"{socket.gethostname()[:80]}/{installation()}"


def _write_soon() -> None:
    global _writing
    loop = asyncio.get_running_loop()
    if _writing is None or _writing.done() or _writing.get_loop() is not loop:
        _writing = loop.create_task(_write_later())


async def _write_later() -> None:
    while _to_enter or _to_strike:
        await asyncio.sleep(WRITE_SECONDS)
        await written()


async def written() -> None:
    """Write what has to be written now."""
    rows, gone = list(_to_enter.values()), list(_to_strike)
    _to_enter.clear()
    _to_strike.clear()
    if not rows and not gone:
        return
    try:
        await run_blocking(_write, rows, gone)
    except DatabaseError as exc:  # a child does not fail because its row cannot be written; its mark is enough
        logger.warning("the ledger of processes was not written: %s", exc)


@transaction.atomic
def _write(rows: list[ChildProcess], gone: list[str]) -> None:
    known = set(Backend.objects.filter(pk__in={row.backend_id for row in rows}).values_list("pk", flat=True))
    for row in rows:
        row.backend_id = row.backend_id if row.backend_id in known else None
    ChildProcess.objects.bulk_create(rows, ignore_conflicts=True)
    ChildProcess.objects.filter(child_id__in=gone).delete()


def _is_left_over(mark: Mark) -> bool:
    """Whether a process of this installation belongs to an owner that is dead, or to this one, who knows nothing of
    it."""
    if mark.installation != installation():
        return False
    if mark.is_of_this_process:
        return mark.child_id not in _expected
    return not mark.owner_is_alive


def reap() -> list[int]:
    """End what dead owners left behind, and bring the rows up to date (blocks). Gives the pids it ended.

    Children of another installation, and of a worker that lives, are never touched.
    """
    ended = kill_marked(_is_left_over)
    for directory in config.home().glob("children/*"):
        mark = Mark.parse(directory.name)
        if mark is None or not mark.owner_is_alive:
            shutil.rmtree(directory, ignore_errors=True)
    for row in ChildProcess.objects.filter(host=_host()):
        is_there = row.started_ticks > 0 and start_ticks(row.pid) == row.started_ticks
        owner_lives = start_ticks(row.owner_pid) == row.owner_ticks
        if is_there and not owner_lives:  # it wiped its environment: the row alone knows it
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(row.pid, signal.SIGKILL)
            ended.append(row.pid)
        if not is_there or not owner_lives:
            row.delete()
    ChildProcess.objects.exclude(host=_host()).filter(started_at__lt=timezone.now() - FORGOTTEN_AFTER).delete()
    if ended:
        logger.warning("ended %s processes that nobody owned any more: %s", len(ended), ended[:50])
    return ended


async def run() -> None:
    """Reap now and every minute, until cancelled."""
    while True:
        try:
            await run_blocking(reap)
        except DatabaseError as exc:
            logger.warning("the ledger of processes was not looked at: %s", exc)
        await asyncio.sleep(REAP_SECONDS)
