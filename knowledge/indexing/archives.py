"""Uploaded .zip and .tar.gz files as the documents in them, in memory; nothing of them is ever written to disk.

An archive is looked through before its first file is given, so one that is a bomb is refused as a whole.
"""

import gzip
import io
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from devflow import config
from devflow.errors import DevFlowError, ErrorCode, invalid
from knowledge.indexing.walking import is_skipped

MAX_FILES: Final = 5_000
MAX_TOTAL: Final = 200 * 1024 * 1024  # bytes, unpacked
_MAX_RATIO: Final = 100  # unpacked to packed; prose reaches 10
_ANY_RATIO: Final = 10 * 1024 * 1024  # bytes below which the ratio does not matter
_MAX_HEADERS: Final = 1024 * 1024  # bytes of a tar between two files
_MAX_PATH: Final = 500  # characters
_ZIP_ENTRY = b"PK\x01\x02"  # opens each entry of a zip's directory


def is_archive(name: str) -> bool:
    """Whether an upload of this name is unpacked."""
    return name.lower().endswith((".zip", ".tar.gz", ".tgz"))


def unpack(
    name: str, data: bytes, *, supported: Callable[[str], bool], max_bytes: int | None = None
) -> Iterator[tuple[str, bytes]]:
    """Give the supported files of an archive as (path in it, content); links, devices and hidden files are left out.

    `max_bytes` bounds one file (default: `max_document_mb`). Raises, before the first file, `invalid_input` for an
    archive that is broken, encrypted or has paths that lead out of it, and `too_large` for one that has more than
    5,000 files, a file that is too large, or unpacks to more than 200 MB or 100 times its size.
    """
    if max_bytes is None:
        max_bytes = config.current().knowledge.max_document_mb * 1024 * 1024
    is_zip = name.lower().endswith(".zip")
    archive: _Zip | _Tar = (_Zip if is_zip else _Tar)(data, supported, max_bytes)
    try:
        archive.check()
    except _BROKEN:
        _refuse_broken()
    return _files(archive)


_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, ValueError, NotImplementedError)


@dataclass(slots=True)
class _Zip:
    data: bytes
    supported: Callable[[str], bool]
    max_bytes: int

    def check(self) -> None:
        # zipfile makes an object of each entry before it can be asked how many there are.
        if self.data.count(_ZIP_ENTRY) > 10 * MAX_FILES:
            raise _too_many()
        total = count = 0
        with zipfile.ZipFile(io.BytesIO(self.data)) as archive:
            for entry in archive.infolist():
                count += not entry.is_dir()
                if count > MAX_FILES:
                    raise _too_many()
                if path := self._path(entry):
                    if entry.flag_bits & 1:
                        raise _refused("It is encrypted. Upload it without a password.")
                    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                        raise _refused("It is not compressed by deflate. Make it again with the usual settings.")
                    _check_size(path, entry.file_size, self.max_bytes)
                    total += entry.file_size
                    _check_total(total, len(self.data))

    def files(self) -> Iterator[tuple[str, bytes]]:
        with zipfile.ZipFile(io.BytesIO(self.data)) as archive:
            for entry in archive.infolist():
                if path := self._path(entry):
                    # zipfile never gives more than the size that was checked; what differs fails its checksum.
                    yield path, archive.read(entry)

    def _path(self, entry: zipfile.ZipInfo) -> str:
        path = _checked(entry.filename)
        is_file = not entry.is_dir() and stat.S_IFMT(entry.external_attr >> 16) in (0, stat.S_IFREG)
        return path if is_file and not is_skipped(path) and self.supported(path) else ""


@dataclass(slots=True)
class _Tar:
    data: bytes
    supported: Callable[[str], bool]
    max_bytes: int

    def check(self) -> None:
        files = 0
        for count, (member, path, _) in enumerate(self._members()):
            files += member.isreg()
            if files > MAX_FILES or count > 4 * MAX_FILES:
                raise _too_many()
            if path:
                _check_size(path, member.size, self.max_bytes)

    def files(self) -> Iterator[tuple[str, bytes]]:
        for member, path, archive in self._members():
            if path and (file := archive.extractfile(member)):
                yield path, file.read(self.max_bytes)

    def _members(self) -> Iterator[tuple[tarfile.TarInfo, str, tarfile.TarFile]]:
        """Each member with the path it is wanted under, or an empty one."""
        metered = _Metered(self.data)
        with tarfile.open(fileobj=metered, mode="r|") as archive:
            while member := archive.next():
                if member.issparse():
                    raise _refused("It has sparse files. Make it again without them.")
                path = _checked(member.name)
                wanted = member.isreg() and not is_skipped(path) and self.supported(path)
                metered.allow(member.size)
                yield member, path if wanted else "", archive


class _Metered(io.RawIOBase):
    """The stream inside a .tar.gz, up to what a member's size and the limits allow.

    tarfile reads headers of any length and sparse maps of any number into memory.
    """

    def __init__(self, data: bytes) -> None:
        self._packed = len(data)
        self._stream = gzip.GzipFile(fileobj=io.BytesIO(data))
        self._total = 0
        self._allowed = _MAX_HEADERS

    def allow(self, size: int) -> None:
        _check_total(self._total + size, self._packed)
        self._allowed = size + _MAX_HEADERS

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._total += len(data)
        self._allowed -= len(data)
        _check_total(self._total, self._packed)
        if self._allowed < 0:
            raise _refused("Its headers are too long.")
        return data


def _files(archive: _Zip | _Tar) -> Iterator[tuple[str, bytes]]:
    given = set()
    try:
        for path, content in archive.files():
            if path not in given:
                given.add(path)
                yield path, content
    except _BROKEN:
        _refuse_broken()


def _checked(name: str) -> str:
    """Give a member's path, with slashes and without what cannot be stored."""
    path = name.replace("\\", "/")
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or re.match(r"[A-Za-z]:", path) or len(path) > _MAX_PATH:
        raise _refused("It has files whose paths lead out of it or are too long.")
    path = "/".join(part for part in parts if part not in ("", "."))
    path = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(char if char.isprintable() else "\ufffd" for char in path)


def _check_size(path: str, size: int, limit: int) -> None:
    if size > limit:
        raise _too_large(f"Its file {path[-100:]!r} is larger than {limit / 1024 / 1024:.3g} MB.")


def _check_total(total: int, packed: int) -> None:
    if total > MAX_TOTAL:
        raise _too_large(f"It unpacks to more than {MAX_TOTAL // 1024 // 1024} MB.")
    if total > max(_ANY_RATIO, packed * _MAX_RATIO):
        raise _too_large(f"It unpacks to more than {_MAX_RATIO} times its size.")


def _too_many() -> DevFlowError:
    return _too_large(f"It has more than {MAX_FILES:,} files.")


def _too_large(reason: str) -> DevFlowError:
    return DevFlowError(
        ErrorCode.TOO_LARGE,
        f"This archive is not unpacked. {reason}",
        suggestion="Upload its parts one by one, or make a directory source of it.",
    )


def _refused(reason: str) -> DevFlowError:
    return invalid(f"This archive is not unpacked. {reason}", file=reason)


def _refuse_broken() -> NoReturn:
    raise _refused("It is broken or not what its name says.") from None
