"""What a checkout's .gitignore files leave out."""

import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_MAX_BYTES: Final = 256 * 1024
_MAX_LINES: Final = 2_000
# A pattern with n stars in one name can cost the n-th power of the name's length.
_TOO_MANY_STARS = re.compile(r"\*[^/*]+\*[^/*]+\*[^/*]+\*|(?:\*\*.*){4}")


class Ignored:
    """Whether .gitignore files below a directory, or its .git/info/exclude, name a path; each file is read once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._rules: dict[str, GitIgnoreSpec | None] = {}

    def __call__(self, path: str, *, is_directory: bool = False) -> bool:
        """Ask for one path, relative with slashes. Its parents are taken to be walked, so not ignored."""
        path += "/" if is_directory else ""
        directory = path.rstrip("/")
        while directory:  # the nearest file that says something decides
            directory = directory.rpartition("/")[0]
            verdict = self._verdict(self._rules_of(directory), path[len(directory) :].lstrip("/"))
            if verdict is not None:
                return verdict
        return bool(self._verdict(self._excluded, path))

    def with_parents(self, path: str) -> bool:
        """Ask for a path and every directory above it."""
        parts = path.split("/")
        above = ("/".join(parts[:end]) for end in range(1, len(parts)))
        return any(self(directory, is_directory=True) for directory in above) or self(path)

    def _verdict(self, rules: "GitIgnoreSpec | None", path: str) -> bool | None:
        return rules.check_file(path).include if rules else None

    @cached_property
    def _excluded(self) -> "GitIgnoreSpec | None":
        return _rules(self._root / ".git" / "info" / "exclude")

    def _rules_of(self, directory: str) -> "GitIgnoreSpec | None":
        if directory not in self._rules:
            self._rules[directory] = _rules(self._root / directory / ".gitignore")
        return self._rules[directory]


def _rules(file: Path) -> "GitIgnoreSpec | None":
    from pathspec import GitIgnoreSpec
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    try:
        if file.is_symlink() or not file.is_file():
            return None
        with file.open("rb") as stream:
            text = stream.read(_MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    patterns = []
    for line in text.splitlines()[:_MAX_LINES]:
        if _TOO_MANY_STARS.search(line):
            continue
        try:
            patterns.append(GitIgnoreSpecPattern(line))
        except (ValueError, re.error, Warning):  # git ignores what it cannot read, too
            continue
    return GitIgnoreSpec(patterns)
