"""Uploaded files, kept in the data directory: uploads/<source id>/<sha256 of the content>.

The names people gave them are kept by the rows that refer to them; a file here is content only.
"""

import errno
import hashlib
import os
import re
import shutil
import tempfile
import time
import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from devflow import config
from devflow.errors import DevFlowError, ErrorCode, invalid, not_found
from knowledge.indexing.archives import unpack

__all__ = [
    *("Received", "Stored", "discard", "is_archive", "keep", "names", "read", "receive", "remove", "safe_name"),
    "unpack",
]

_PART: Final = ".part-"
_STALE_SECONDS: Final = 24 * 3600
_MAX_NAME: Final = 200  # bytes


@dataclass(frozen=True, slots=True)
class Stored:
    """A kept file: the safe form of its name, the sha256 of its content in hex, its size in bytes."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Received:
    """A file that is on disk and belongs to no source yet. `adopt` gives it to one, `drop` deletes it."""

    stored: Stored
    part: Path

    def adopt(self, source_id: int) -> Stored:
        """Keep it for a source: a rename, so it may happen inside a transaction. The same content is kept once."""
        directory = _directory(source_id)
        directory.mkdir(exist_ok=True, mode=0o700)
        self.part.replace(directory / self.stored.sha256)
        _sync(directory)
        return self.stored

    def drop(self) -> None:
        self.part.unlink(missing_ok=True)


def keep(source_id: int, name: str, chunks: Iterable[bytes]) -> Stored:
    """Receive a file and keep it for a source at once."""
    received = receive(name, chunks)
    try:
        return received.adopt(source_id)
    finally:
        received.drop()


def receive(name: str, chunks: Iterable[bytes]) -> Received:
    """Write an uploaded file to disk, whole or not at all.

    Raises `too_large` past `upload_max_mb`, `invalid_input` for an empty file, `unavailable` when the disk is full.
    """
    limit = config.current().knowledge.upload_max_mb
    directory = config.home() / "uploads"
    digest, size, part = hashlib.sha256(), 0, None
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _sweep(directory)
        handle, part = tempfile.mkstemp(prefix=_PART, dir=directory)
        with os.fdopen(handle, "wb") as file:
            for chunk in chunks:
                size += len(chunk)
                if size > limit * 1024 * 1024:
                    raise DevFlowError(
                        ErrorCode.TOO_LARGE,
                        f"An uploaded file may have at most {limit} MB.",
                        suggestion="Split the file, or ask an administrator to raise knowledge.upload_max_mb.",
                    )
                digest.update(chunk)
                file.write(chunk)
            if not size:
                raise invalid("The uploaded file is empty.", file="is empty")
            file.flush()
            os.fsync(file.fileno())
    except BaseException as exc:
        if part:
            Path(part).unlink(missing_ok=True)
        if not isinstance(exc, OSError) or exc.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DevFlowError(
            ErrorCode.UNAVAILABLE, "The disk is full; the file was not kept.", suggestion="Free disk space, try again."
        ) from None
    return Received(Stored(safe_name(name), digest.hexdigest(), size), Path(part))


def read(source_id: int, sha256: str) -> bytes:
    """Give a kept file's content. Raises `not_found`."""
    try:
        return _file(source_id, sha256).read_bytes()
    except FileNotFoundError:
        raise not_found("Upload", sha256[:12]) from None


def names(source_id: int) -> list[str]:
    """Give the digests of the files kept for a source."""
    directory = _directory(source_id)
    return sorted(file.name for file in directory.iterdir() if _is_digest(file.name)) if directory.is_dir() else []


def remove(source_id: int, sha256: str) -> None:
    """Delete one kept file; that there is none is fine."""
    _file(source_id, sha256).unlink(missing_ok=True)


def discard(source_id: int) -> None:
    """Delete every file kept for a source; that there are none is fine."""
    shutil.rmtree(_directory(source_id), ignore_errors=True)


def safe_name(name: str) -> str:
    """Give a file name that is one: no directories, no control characters, at most 200 bytes, its suffix kept."""
    name = name.encode("utf-8", "replace").decode("utf-8")
    name = unicodedata.normalize("NFC", name.replace("\\", "/").rstrip("/").rpartition("/")[2])
    # Format characters can show "exe.md" for a name that ends otherwise.
    name = "".join(char for char in name if unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp"))
    name = name.strip().lstrip(".") or "upload"
    stem, dot, suffix = name.rpartition(".")
    if not stem or len(suffix.encode()) > 20:
        stem, dot, suffix = name, "", ""
    room = _MAX_NAME - len((dot + suffix).encode())
    return stem.encode()[:room].decode("utf-8", "ignore") + dot + suffix


def _directory(source_id: int) -> Path:
    return config.home() / "uploads" / str(int(source_id))


def _file(source_id: int, sha256: str) -> Path:
    if not _is_digest(sha256):
        raise not_found("Upload", sha256[:12])
    return _directory(source_id) / sha256


def _is_digest(text: str) -> bool:
    return bool(re.fullmatch(r"[0-9a-f]{64}", text))


def _sweep(directory: Path) -> None:
    """Delete what an upload left behind whose process was killed."""
    for part in directory.glob(f"{_PART}*"):
        with suppress(FileNotFoundError):
            if part.stat().st_mtime < time.time() - _STALE_SECONDS:
                part.unlink()


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
