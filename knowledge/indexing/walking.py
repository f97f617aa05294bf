"""Directories and git checkouts as sources: which files they have, and reading one without leaving the directory.

Only what lies inside a directory of `allowed_roots` is ever opened. A name is checked when it is listed and again
when it is opened, component by component, so that a link put there in between leads nowhere.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from devflow import config
from devflow.errors import DevFlowError, ErrorCode, forbidden, invalid
from knowledge.indexing.ignoring import Ignored

MAX_FILES: Final = 50_000
_MAX_LISTED: Final = 500_000  # names looked at, kept or not
_MAX_GIT_FILE: Final = 16 * 1024 * 1024
_SKIPPED = frozenset({"node_modules", "bower_components", "__pycache__", "venv", "site-packages", "__MACOSX", "CVS"})


class ReadError(Exception):
    """A file that could not be read; the message is shown as that document's error."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a directory: `path` is relative to it, with slashes; `absolute` is where its content is, links
    resolved; `size` in bytes, `mtime` in seconds. With an `error` it cannot be read. A path that ends in a slash is
    a directory that could not be listed: nothing is known of the files below it.
    """

    path: str
    absolute: Path
    size: int = 0
    mtime: float = 0.0
    error: str = ""


def resolve_root(path: str) -> Path:
    """Give the directory a path names, links resolved.

    Raises `forbidden` if it is not inside `allowed_roots`, whether it exists or not, and `invalid_input` if it is
    no absolute path of a directory.
    """
    if "\0" in path or not path.startswith("/"):
        raise invalid("The path of a directory source must be absolute.", path="not an absolute path")
    roots = [Path(root).expanduser().resolve() for root in config.current().allowed_roots]
    try:
        found = Path(path).resolve()
    except (OSError, RuntimeError):  # RuntimeError: a loop of links
        found = Path("/")
    home = config.home()
    if not any(found.is_relative_to(root) for root in roots) or found.is_relative_to(home):
        raise forbidden(
            "This directory is not inside the directories DevFlow may read.",
            suggestion="Ask an administrator to add it to allowed_roots (DEVFLOW_ALLOWED_ROOTS)."
            if roots
            else "No directory may be read until an administrator sets allowed_roots (DEVFLOW_ALLOWED_ROOTS).",
        )
    try:
        is_directory = found.is_dir()
    except OSError:
        is_directory = False
    if not is_directory:
        raise invalid("There is no directory at this path.", path="not a directory")
    return found


def is_skipped(path: str) -> bool:
    """Whether a file, by its relative path, is none of a source's own: hidden, or of installed packages."""
    return any(part.startswith(".") or part in _SKIPPED for part in path.split("/"))


def walk(root: Path, *, supported: Callable[[str], bool], max_bytes: int) -> Iterator[Entry]:
    """Yield the supported files below a directory, sorted by name within each directory.

    Left out: hidden files, installed packages, what .gitignore names, linked directories, devices and pipes. Files
    that are too large, unreadable or linked from outside come with an error. Raises `too_large` after 50,000 files.
    """
    root = root.resolve()
    ignored = Ignored(root)
    home, waiting, listed, count = config.home(), [""], 0, 0
    while waiting:
        directory = waiting.pop()
        try:
            with os.scandir(root / directory) as entries:
                names = sorted(entries, key=lambda entry: entry.name)
        except OSError as exc:
            yield Entry(_readable(directory) + "/", root / directory, error=f"Cannot be listed: {exc.strerror}.")
            continue
        below = []
        listed += len(names)
        if listed > _MAX_LISTED:
            raise _too_many()
        for found in names:
            path = f"{directory}/{found.name}".lstrip("/")
            if is_skipped(found.name):
                continue
            if found.is_dir(follow_symlinks=False):
                if not ignored(path, is_directory=True) and root / path != home and not _is_venv(root / path):
                    below.append(path)
            elif supported(path) and not ignored(path) and (entry := _entry(root, path, ignored, max_bytes)):
                count += 1
                if count > MAX_FILES:
                    raise _too_many()
                yield entry
        waiting += reversed(below)


def read(entry: Entry, root: Path, *, max_bytes: int | None = None) -> bytes:
    """Read a file that `walk` yielded, up to `max_bytes` (default: `max_document_mb`).

    Raises `ReadError`, also when it is no longer a file inside the root.
    """
    if max_bytes is None:
        max_bytes = config.current().knowledge.max_document_mb * 1024 * 1024
    if entry.error:
        raise ReadError(entry.error)
    return _read_inside(root.resolve(), entry.absolute, max_bytes)


def git_head(root: Path) -> str:
    """Give the commit id a checkout is at, empty if the directory is none. Git itself is not run."""
    try:
        directory = _git_directory(root.resolve())
        head = _read_text(directory / "HEAD")
        if match := re.fullmatch(r"ref: (refs/\S+)\n?", head):
            head = _ref(directory, match[1])
    except (ReadError, OSError):
        return ""
    head = head.strip()
    return head if re.fullmatch(r"[0-9a-f]{40}([0-9a-f]{24})?", head) else ""


def _entry(root: Path, path: str, ignored: Ignored, max_bytes: int) -> Entry | None:
    absolute = root / path
    try:
        path.encode()
    except UnicodeEncodeError:
        return Entry(_readable(path), absolute, error="Its name is not valid UTF-8; rename the file.")
    try:
        status = absolute.lstat()
        if stat.S_ISLNK(status.st_mode):
            absolute = absolute.resolve()
            if not absolute.is_relative_to(root) or not absolute.exists():
                return Entry(path, root / path, error="It is a link that leads out of the directory or nowhere.")
            target = absolute.relative_to(root).as_posix()
            if is_skipped(target) or ignored.with_parents(target):
                return None
            status = absolute.lstat()
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size > max_bytes:
            error = f"It is larger than {max_bytes / 1024 / 1024:.3g} MB."
        else:
            readable = os.access(absolute, os.R_OK, effective_ids=os.access in os.supports_effective_ids)
            error = "" if readable else "It may not be read: permission denied."
    except (OSError, RuntimeError):
        return Entry(path, root / path, error="It cannot be looked at.")
    return Entry(path, absolute, status.st_size, status.st_mtime, error)


def _too_many() -> DevFlowError:
    return DevFlowError(
        ErrorCode.TOO_LARGE,
        f"The directory has more than {MAX_FILES:,} files.",
        suggestion="Make a source of each part of it, or name what to leave out in .gitignore.",
    )


def _is_venv(directory: Path) -> bool:
    try:
        return (directory / "pyvenv.cfg").exists()
    except OSError:  # listing it will say why
        return False


def _readable(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "replace")


def _read_inside(root: Path, path: Path, max_bytes: int) -> bytes:
    """Read a regular file by opening every directory on the way from `root` without following links."""
    try:
        parts = path.relative_to(root).parts
        if not parts or ".." in parts:
            raise ValueError
        opened = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        *directories, name = parts
        for part in directories:
            outer, opened = opened, -1
            try:
                opened = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=outer)
            finally:
                os.close(outer)
        try:
            # O_NONBLOCK: a pipe put there since it was listed must not hold the reader.
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=opened)
        finally:
            os.close(opened)
        with os.fdopen(file, "rb") as stream:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise ReadError("It is no longer a file.")
            data = stream.read(max_bytes + 1)
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else "it is not inside the directory"
        raise ReadError(f"It cannot be read: {reason}.") from None
    if len(data) > max_bytes:
        raise ReadError(f"It is larger than {max_bytes / 1024 / 1024:.3g} MB.")
    return data


def _git_directory(root: Path) -> Path:
    """The repository of a checkout; that of a worktree lies elsewhere, but must be inside an allowed root."""
    pointer = root / ".git"
    if pointer.is_dir() and not pointer.is_symlink():
        return pointer
    match = re.fullmatch(r"gitdir: (.+)\n?", _read_text(pointer))
    return _allowed_directory(root / match[1]) if match else pointer


def _ref(directory: Path, name: str) -> str:
    common = directory
    if (directory / "commondir").is_file():
        common = _allowed_directory(directory / _read_text(directory / "commondir").strip())
    if ".." in name:
        return ""
    for place in (directory, common):
        if (place / name).is_file():
            return _read_text(place / name)
    for line in _read_text(common / "packed-refs").splitlines():
        if line.endswith(f" {name}"):
            return line.partition(" ")[0]
    return ""


def _allowed_directory(path: Path) -> Path:
    try:
        return resolve_root(str(path))
    except DevFlowError as exc:
        raise ReadError(str(exc)) from None


def _read_text(path: Path) -> str:
    return _read_inside(path.parent, path, _MAX_GIT_FILE).decode("utf-8", "replace")
