"""What a change did to a project's files: a look before, a look after, both bounded.

git says what differs where there is a repository, otherwise times and sizes do; for Python files, the definitions
whose lines changed are named.
"""

import ast
import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

MAX_FILES = 20_000
MAX_SECONDS = 2.0
MAX_SOURCE = 512 * 1024
MAX_SOURCES = 16 * 1024 * 1024
SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache"})

State = tuple[int, int]


@dataclass
class Look:
    """The files of a root at one moment; after `compared()`, what changed since: `files` and `symbols`, sorted."""

    root: str
    states: dict[str, State]
    sources: dict[str, str]
    is_whole: bool
    files: list[str] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)

    async def compared(self) -> "Look":
        return await asyncio.to_thread(self._compare)

    def _compare(self) -> "Look":
        now = _states(self.root)[0]
        changed = {name for name in self.states.keys() | now.keys() if self.states.get(name) != now.get(name)}
        if not self.is_whole:  # beyond the bound, what is new cannot be told from what was not seen
            changed = {name for name in changed & self.states.keys() if name in now or self._is_gone(name)}
        self.files = sorted(changed)
        self.symbols = sorted(symbol for name in changed if name.endswith(".py") for symbol in self._symbols(name))
        return self

    def _is_gone(self, name: str) -> bool:
        return not os.path.lexists(os.path.join(self.root, name))  # noqa: PTH118  # as below

    def _symbols(self, name: str) -> Iterator[str]:
        before = self.sources.get(name, "")
        after = _source(Path(self.root) / name) or ""
        old, new = _definitions(before), _definitions(after)
        for symbol in sorted(old.keys() | new.keys()):
            if symbol not in old or symbol not in new or _is_changed(before, old[symbol], after, new[symbol]):
                yield f"{name}:{symbol}"


async def look_at(root: str) -> Look:
    """Look at a directory: at most 20,000 files and two seconds, Python sources up to 16 MiB in all."""
    return await asyncio.to_thread(_look, root)


def _look(root: str) -> Look:
    states, is_whole = _states(root)
    sources: dict[str, str] = {}
    left = MAX_SOURCES
    for name, (_, size) in states.items():
        if name.endswith(".py") and size <= MAX_SOURCE and size <= left:
            text = _source(Path(root) / name)
            if text is not None:
                sources[name] = text
                left -= size
    return Look(root, states, sources, is_whole)


def _states(root: str) -> tuple[dict[str, State], bool]:
    """Time and size of each file, and whether all of them were seen."""
    until = time.monotonic() + MAX_SECONDS
    found: dict[str, State] = {}
    names = _tracked(root)
    for name in names if names is not None else _walked(root):
        if len(found) >= MAX_FILES or time.monotonic() > until:
            return found, False
        try:
            status = os.lstat(os.path.join(root, name))  # noqa: PTH118  # a Path for each of 20,000 names costs 60 ms
        except OSError:
            continue
        found[name] = (status.st_mtime_ns, status.st_size)
    return found, True


def _tracked(root: str) -> list[str] | None:
    """The files git knows or would know of; None where there is no repository, or no git."""
    command = ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    environment = {"PATH": os.environ.get("PATH", ""), "GIT_CONFIG_NOSYSTEM": "1", "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(command, capture_output=True, timeout=MAX_SECONDS, check=False, env=environment)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def _walked(root: str) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        for name in sorted(names):
            yield os.path.relpath(os.path.join(folder, name), root)  # noqa: PTH118  # as above


def _source(path: Path) -> str | None:
    try:
        if path.is_symlink() or path.stat().st_size > MAX_SOURCE:
            return None
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _definitions(source: str) -> dict[str, tuple[int, int]]:
    """Functions and classes by dotted name, with their first and last line."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[str, tuple[int, int]] = {}
    left: list[tuple[ast.AST, str]] = [(tree, "")]
    while left:
        node, prefix = left.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                first = min([child.lineno, *(item.lineno for item in child.decorator_list)])
                found[name] = (first, child.end_lineno or child.lineno)
                left.append((child, f"{name}."))
            elif isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):  # a definition under `if` or `try`
                left.append((child, prefix))
    return found


def _is_changed(before: str, old: tuple[int, int], after: str, new: tuple[int, int]) -> bool:
    was = before.splitlines()[old[0] - 1 : old[1]]
    now = after.splitlines()[new[0] - 1 : new[1]]
    return was != now
