"""One collection of the embedded store: a folder, its points in one live generation of it.

    knowledge-minilm-l6-v2-int8/
        live.json    which generation counts; replaced atomically
        g3/          the live generation (see `shards`)

`compact` makes the next generation: it copies the live one, has another process build the graphs of the copy, brings
over what was written since, and swaps. Searches go on all the while; writes wait for the copy and the last few points.
Whatever lies beside the live generation was left behind by a killed process and is deleted when it is opened.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from devflow.config import PROJECT_ROOT
from devflow.vectors.base import Point, StoreError
from devflow.vectors.shards import Shard, engine, slices

FLUSH_SECONDS = 10.0
QUIET_SECONDS = 10.0
MIN_FREE_BYTES = 200 * 1024 * 1024
_LAST_POINTS = 200  # so few are brought over while writers wait


def _need_room(folder: Path) -> None:
    """Refuse to write on a disk that is nearly full: the engine maps its files, and would take the process with it."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError as exc:
        raise StoreError(f"{folder} cannot be used: {exc}") from exc
    if free < MIN_FREE_BYTES:
        raise StoreError(f"the disk of {folder} has {free >> 20} MB left; free some space, then it goes on by itself")


class EdgeCollection:
    """One collection: its live generation, who writes and who reads it. Raises `StoreError`."""

    def __init__(self, folder: Path, shard: Shard, *, dimensions: int, optimized: int) -> None:
        self.folder = folder
        self.dimensions = dimensions
        self.changed = abs(shard.count() - optimized)
        """Points written or deleted since the graphs were built."""
        self._live = shard
        self._writing = threading.Lock()
        self._readers = threading.Condition()
        self._written_at = time.monotonic()
        self._flush_at = time.monotonic() + FLUSH_SECONDS
        self._is_dirty = False
        self._since_copy: set[uuid.UUID] | None = None  # what a running `compact` has to bring over
        self._builder: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    @classmethod
    def create(cls, folder: Path, dimensions: int) -> "EdgeCollection":
        shutil.rmtree(folder, ignore_errors=True)  # a creation that was killed
        _need_room(folder.parent)
        shard = Shard.create(folder / "g1", dimensions)
        made = cls(folder, shard, dimensions=dimensions, optimized=0)
        made._say_live(shard, optimized=0)
        return made

    @classmethod
    def open(cls, folder: Path) -> "EdgeCollection":
        try:
            said: dict[str, Any] = json.loads((folder / "live.json").read_text(encoding="utf-8"))
            live, dimensions, optimized = str(said["live"]), int(said["dimensions"]), int(said["optimized"])
            for left in folder.iterdir():
                if left.name not in ("live.json", live):
                    shutil.rmtree(left, ignore_errors=True)
            shard = Shard.load(folder / live)
        except (OSError, ValueError, KeyError, TypeError, StoreError) as exc:
            raise StoreError(f"{folder} cannot be opened ({exc}); `devflow reindex` makes it anew") from exc
        return cls(folder, shard, dimensions=dimensions, optimized=optimized)

    # --- reading and writing ----------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[Shard]:
        """The live generation, which stays open inside the block."""
        with self._readers:
            if self._is_closed:
                raise StoreError(f"{self.folder.name} was closed")
            shard = self._live
            shard.readers += 1
        try:
            yield shard
        finally:
            with self._readers:
                shard.readers -= 1
                self._readers.notify_all()

    @contextmanager
    def _writer(self) -> Iterator[Shard]:
        with self._writing:
            if self._is_closed:
                raise StoreError(f"{self.folder.name} was closed")
            yield self._live

    def upsert(self, points: Sequence[Point]) -> None:
        for one in points:
            if len(one.dense) != self.dimensions:
                raise StoreError(f"{self.folder.name} takes {self.dimensions} dimensions, not {len(one.dense)}")
        _need_room(self.folder)
        for part in slices(points):
            with self._writer() as shard:
                shard.upsert(part)
                self._wrote([one.id for one in part])
            time.sleep(0)  # others have waited for the GIL

    def delete(self, ids: Sequence[uuid.UUID]) -> None:
        for part in slices(ids):
            with self._writer() as shard:
                shard.delete(part)
                self._wrote(part)
            time.sleep(0)

    def _wrote(self, ids: Sequence[uuid.UUID]) -> None:
        if self._since_copy is not None:
            self._since_copy.update(ids)
        self.changed += len(ids)
        self._written_at = time.monotonic()
        self._is_dirty = True
        if self._written_at > self._flush_at:
            self._flush()

    def _flush(self) -> None:
        """Keep the log short; until then it is the log that survives a kill. Costs writers one part in a hundred."""
        began = time.monotonic()
        self._live.flush()
        self._is_dirty = False
        ended = time.monotonic()
        self._flush_at = ended + max(FLUSH_SECONDS, 100 * (ended - began))

    def flush(self) -> None:
        if self._is_dirty:
            with self._writer():
                self._flush()

    @property
    def is_building(self) -> bool:
        return self._since_copy is not None

    @property
    def is_quiet(self) -> bool:
        return time.monotonic() - self._written_at > QUIET_SECONDS

    def close(self) -> None:
        """Flush and close once whoever reads or writes is done; ends a running build."""
        with self._writing, self._readers:
            if self._is_closed:
                return
            self._is_closed = True
            if self._builder is not None:
                self._builder.kill()
            self._readers.wait_for(lambda: self._live.readers == 0)
            try:
                if self._is_dirty:
                    self._live.flush()
            finally:
                self._live.close()

    # --- generations ------------------------------------------------------------------------------------------------

    def _say_live(self, shard: Shard, *, optimized: int) -> None:
        fresh = self.folder / "live.new"
        said = {"live": shard.folder.name, "dimensions": self.dimensions, "optimized": optimized}
        with engine("writing live.json"), fresh.open("w", encoding="utf-8") as file:
            json.dump(said, file)
            file.flush()
            os.fsync(file.fileno())
            fresh.replace(self.folder / "live.json")

    def compact(self) -> None:
        """Build the graphs in another process and swap the result in. One call at a time. Raises `StoreError`."""
        folder = self.folder / f"g{int(self._live.folder.name.removeprefix('g')) + 1}"
        changed = self.changed
        try:
            with self._writer():
                _need_room(self.folder)
                self._flush()
                shutil.copytree(self._live.folder, folder)
                self._since_copy = set()
                self.changed = 0
            self._build(folder)
            self._swap(Shard.load(folder))
        except (OSError, StoreError) as exc:
            self.changed += changed  # so that it is tried again
            raise StoreError(f"{self.folder.name} could not be compacted: {exc}") from exc
        finally:
            self._since_copy = None
            if self._live.folder != folder:
                shutil.rmtree(folder, ignore_errors=True)

    def _build(self, folder: Path) -> None:
        command = [sys.executable, "-m", "devflow.vectors.build", str(folder), str(os.getpid())]
        with self._writing:
            if self._is_closed:
                raise StoreError("the store was closed")
            self._builder = subprocess.Popen(  # noqa: S603  # no shell
                command, cwd=PROJECT_ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
        _, said = self._builder.communicate()
        status, self._builder = self._builder.returncode, None
        if status:
            raise StoreError(
                f"the building process ended with {status}: {said.decode(errors='replace')[-300:].strip()}"
            )

    def _swap(self, built: Shard) -> None:
        try:
            while len(touched := self._take_touched()) > _LAST_POINTS:
                with self.reading() as live:
                    live.copy(touched, built)
            with self._writer() as old:
                old.copy([*touched, *(self._since_copy or ())], built)
                built.flush()
                self._say_live(built, optimized=built.count())
                self._since_copy, self._is_dirty = None, False
                with self._readers:
                    self._live = built
        except BaseException:
            built.close()
            raise
        with self._readers:
            self._readers.wait_for(lambda: old.readers == 0)
        old.close()
        shutil.rmtree(old.folder, ignore_errors=True)

    def _take_touched(self) -> list[uuid.UUID]:
        with self._writing:
            touched, self._since_copy = self._since_copy or set(), set()
        return list(touched)
