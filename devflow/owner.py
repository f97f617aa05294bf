"""One server per data directory: whoever holds `owner.lock` serves it and says in `owner.json` how to reach it.

The lock is the kernel's (flock), so it ends with its process however that ends; `owner.json` counts only while
the lock is held by the process named in it.
"""

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from devflow import config


@dataclass(frozen=True, slots=True)
class Published:
    """Where a data directory is being served: `url` on loopback without a path, an API key for it, the owner's pid."""

    url: str
    key: str
    pid: int


class Owner:
    """The right to serve a data directory, held until `release()` or the end of the `with` block."""

    def __init__(self, home: Path, lock: IO[str]) -> None:
        self._home = home
        self._lock = lock
        _json(home).unlink(missing_ok=True)  # what a killed owner left behind
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()

    def publish(self, url: str, key: str) -> None:
        """Tell other processes of this user where the data directory is served; call it once the server listens."""
        path = _json(self._home)
        fresh = path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        fresh.touch(mode=0o600)
        fresh.write_text(json.dumps(asdict(Published(url=url, key=key, pid=os.getpid()))), encoding="utf-8")
        fresh.replace(path)

    def holds(self) -> bool:
        """Whether the lock is still the directory's: somebody may have deleted the directory meanwhile."""
        try:
            return os.path.samestat(os.fstat(self._lock.fileno()), (self._home / "owner.lock").stat())
        except (OSError, ValueError):
            return False

    def release(self) -> None:
        if not self._lock.closed:
            if self.holds():  # else the file is the next owner's
                _json(self._home).unlink(missing_ok=True)
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def try_acquire(home: Path | None = None) -> Owner | None:
    """Become the owner of the data directory (default: this process's), or give None while another process is."""
    home = home or config.home()
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = (home / "owner.lock").open("a+", encoding="ascii")  # opening must not empty what an owner has written
    while not _lock(lock, fcntl.LOCK_EX):
        # Refused by an owner, or only by somebody asking whether there is one: such a question lasts microseconds.
        if not _lock(lock, fcntl.LOCK_SH):
            lock.close()
            return None
    return Owner(home, lock)


def is_owned(home: Path | None = None) -> bool:
    """Whether a living process owns the data directory."""
    return _holder(home or config.home()) is not None


def read_published(home: Path | None = None) -> Published | None:
    """Give where the data directory is served, or None when nobody serves it or the owner does not listen yet."""
    home = home or config.home()
    holder = _holder(home)
    if holder is None:
        return None
    try:
        published = Published(**json.loads(_json(home).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return published if str(published.pid) == holder else None


def _holder(home: Path) -> str | None:
    """What the owner wrote into the lock (its pid; empty in its first moment), None without an owner."""
    try:
        with (home / "owner.lock").open(encoding="ascii") as lock:
            return None if _lock(lock, fcntl.LOCK_SH) else lock.read()
    except OSError:
        return None


def _lock(lock: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _json(home: Path) -> Path:
    return home / "owner.json"
