import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devflow import config
from devflow.errors import DevFlowError, ErrorCode
from knowledge.indexing import walking
from knowledge.indexing.walking import Entry, ReadError, git_head, is_skipped, resolve_root, walk
from tests.knowledge.loading.conftest import Configure

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Allow = Callable[..., None]


@pytest.fixture
def root(tmp_path: Path, configure: Configure) -> Path:
    directory = tmp_path / "root"
    directory.mkdir()
    configure(allowed_roots=directory)
    return directory


def write(root: Path, *paths: str, text: str = "text") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def entries(root: Path, *, max_bytes: int = 1000, suffixes: tuple[str, ...] = (".md", ".py")) -> list[Entry]:
    return list(walk(root, supported=lambda path: path.endswith(suffixes), max_bytes=max_bytes))


def paths(root: Path) -> list[str]:
    return [entry.path for entry in entries(root)]


def error_of(root: Path, path: str) -> str:
    return next(entry.error for entry in entries(root) if entry.path == path)


def refusal(path: str) -> DevFlowError:
    with pytest.raises(DevFlowError) as refused:
        resolve_root(path)
    return refused.value


# Roots


def test_a_directory_inside_an_allowed_root_is_taken(root: Path) -> None:
    (root / "a" / "b").mkdir(parents=True)
    (root / "link").symlink_to(root / "a")
    assert resolve_root(str(root)) == root
    assert resolve_root(f"{root}/a/../a/b/") == root / "a" / "b"
    assert resolve_root(f"{root}/link/b") == root / "a" / "b"


def test_what_is_outside_is_refused_in_one_way_whether_it_exists_or_not(root: Path) -> None:
    (root.parent / "rootother").mkdir()
    (root / "out").symlink_to(root.parent)
    (root / "loop").symlink_to(root / "loop")
    write(root.parent, "secret.md")
    refusals = [
        refusal(path)
        for path in (
            str(root.parent),
            f"{root}other",
            f"{root}/..",
            f"{root}/out",
            f"{root}/out/secret.md",
            f"{root}/out/nothing",
            f"{root}/loop",
            "/",
            "/etc",
            "/does/not/exist",
            f"{root.parent}/nothing",
            "/proc/self/cwd/../etc",
        )
    ]
    assert {error.code for error in refusals} == {ErrorCode.FORBIDDEN}
    assert len({(error.message, error.suggestion) for error in refusals}) == 1
    assert "DEVFLOW_ALLOWED_ROOTS" in refusals[0].suggestion


def test_without_allowed_roots_nothing_is_read(root: Path, configure: Configure) -> None:
    configure(allowed_roots="")
    assert refusal(str(root)).code is ErrorCode.FORBIDDEN
    assert "sets allowed_roots" in refusal(str(root)).suggestion


@pytest.mark.parametrize("path", ["", "relative", "./x", "~/x", "/a\0b", "file:///tmp"])
def test_what_is_no_absolute_path_is_refused(root: Path, path: str) -> None:
    assert refusal(path).code is ErrorCode.INVALID_INPUT


def test_a_file_or_nothing_inside_a_root_is_no_directory(root: Path) -> None:
    write(root, "a.md")
    for path in (f"{root}/a.md", f"{root}/nothing", f"{root}/{'x' * 300}", f"{root}/a.md/b"):
        assert refusal(path).code is ErrorCode.INVALID_INPUT


def test_the_data_directory_is_never_a_source(
    root: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = root / "data"
    monkeypatch.setenv("DEVFLOW_HOME", str(home))
    configure(allowed_roots=root)
    write(home, "uploads/1/secret.md")
    write(root, "a.md")
    assert refusal(f"{home}/uploads").code is ErrorCode.FORBIDDEN
    assert paths(root) == ["a.md"]


# Walking


def test_supported_files_come_in_order_with_their_size_and_time(root: Path) -> None:
    write(root, "b.md", "a.py", "sub/c.md", "sub/deep/d.md", "e.bin", "Z.md")
    os.utime(root / "a.py", (1000, 1000))
    assert paths(root) == ["Z.md", "a.py", "b.md", "sub/c.md", "sub/deep/d.md"]
    first = entries(root)[1]
    assert first == Entry("a.py", root / "a.py", size=4, mtime=1000)
    assert walking.read(first, root) == b"text"


def test_an_empty_directory_has_no_files(root: Path) -> None:
    assert paths(root) == []


def test_hidden_files_and_installed_packages_are_left_out(root: Path) -> None:
    write(
        root,
        *(".env.md", ".git/x.md", ".github/x.md", "node_modules/p/x.md", "a/node_modules/x.md", "__pycache__/x.py"),
        *("venv/lib/x.py", "lib/site-packages/x.py", "kept.md", "environment/kept.md"),
    )
    write(root, "myenv/pyvenv.cfg", "myenv/lib/x.py")
    assert paths(root) == ["kept.md", "environment/kept.md"]
    assert is_skipped("a/.b/c.md") and not is_skipped("a/b/c.md")


def test_gitignore_files_are_honoured_in_every_directory(root: Path) -> None:
    write(root, ".gitignore", text="*.py\n/build/\n!kept.py\nsub/inner.md\n# comment\n\ndocs/**/draft-*.md\n")
    write(root, "sub/.gitignore", text="!again.py\nlocal.md\n")
    write(root, ".git/info/exclude", text="mine.md\n")
    write(root, "a.py", "kept.py", "build/x.md", "sub/build/x.md", "sub/again.py", "sub/other.py", "sub/inner.md")
    write(root, "sub/local.md", "local.md", "docs/a/b/draft-1.md", "docs/a/final.md", "mine.md", "sub/mine.md")
    assert paths(root) == ["kept.py", "local.md", "docs/a/final.md", "sub/again.py", "sub/build/x.md"]


@pytest.mark.parametrize(
    "line", ["[", "[z-a]", "\\", "!", "***", "/", "//", "[[:alpha:]]", "a\0b", "x" * 10_000, "\udcff"]
)
def test_odd_gitignore_lines_do_no_harm(root: Path, line: str) -> None:
    (root / ".gitignore").write_bytes(os.fsencode(f"{line}\nignored.md\n"))
    write(root, "a/kept.md", "ignored.md")
    assert "ignored.md" not in paths(root)


def test_a_hostile_gitignore_takes_bounded_time(root: Path) -> None:
    (root / ".gitignore").write_text("\n".join(["*a*a*a*a*a*a*a*a*b", "**/a/**/a/**/a/**/a/**/b", "*a*a*b"] * 3))
    write(root, f"{'a' * 240}.md", "a/" * 100 + "c.md")
    started = time.perf_counter()
    assert len(paths(root)) == 2
    assert time.perf_counter() - started < 5


def test_a_gitignore_that_is_no_file_is_none(root: Path) -> None:
    os.mkfifo(root / ".gitignore")
    (root / "sub").mkdir()
    (root / "sub" / ".gitignore").symlink_to("/dev/zero")
    write(root, "sub/a.md")
    assert paths(root) == ["sub/a.md"]


def test_linked_directories_are_not_followed_so_loops_end(root: Path) -> None:
    write(root, "a/x.md")
    write(root.parent, "outside/y.md")
    (root / "a" / "up.md").symlink_to(root)
    (root / "a" / "again").symlink_to(root / "a")
    (root / "out").symlink_to(root.parent / "outside")
    assert paths(root) == ["a/x.md"]


def test_a_link_to_a_file_inside_is_that_file(root: Path) -> None:
    write(root, "docs/real.md", text="real")
    (root / "link.md").symlink_to("docs/real.md")
    (root / "twice.md").symlink_to("link.md")
    found = {entry.path: walking.read(entry, root) for entry in entries(root)}
    assert found == {"docs/real.md": b"real", "link.md": b"real", "twice.md": b"real"}


def test_a_link_out_of_the_root_or_to_nothing_is_an_error_that_tells_neither(root: Path) -> None:
    write(root.parent, "secret.md")
    for name, target in (("a.md", "../secret.md"), ("b.md", "/etc/passwd"), ("c.md", "../nothing"), ("d.md", "d.md")):
        (root / name).symlink_to(target)
    write(root, "kept.md")
    found = entries(root)
    assert [entry.path for entry in found if not entry.error] == ["kept.md"]
    assert len({entry.error for entry in found[:3]}) == 1
    for entry in found[:4]:
        with pytest.raises(ReadError):
            walking.read(entry, root)


def test_a_link_does_not_bring_in_what_is_left_out(root: Path) -> None:
    write(root, ".env", ".git/config", "ignored/secret.md", "node_modules/x.md")
    write(root, ".gitignore", text="ignored/\n")
    for number, target in enumerate((".env", ".git/config", "ignored/secret.md", "node_modules/x.md")):
        (root / f"{number}.md").symlink_to(target)
    assert paths(root) == []


def test_hard_links_are_files(root: Path) -> None:
    write(root, "a.md")
    (root / "b.md").hardlink_to(root / "a.md")
    assert paths(root) == ["a.md", "b.md"]


def test_pipes_sockets_and_devices_are_left_out_at_once(root: Path) -> None:
    os.mkfifo(root / "pipe.md")
    (root / "null.md").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "s.md"))
        assert [entry.path for entry in entries(root) if not entry.error] == []


def test_a_file_over_the_limit_is_its_own_error(root: Path) -> None:
    write(root, "large.md", text="x" * 1001)
    write(root, "fits.md", text="x" * 1000)
    assert error_of(root, "fits.md") == ""
    assert "larger than" in error_of(root, "large.md")


def test_names_that_are_no_text_are_an_error_with_a_name_that_can_be_stored(root: Path) -> None:
    (Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9.md"))).write_text("x")
    write(root, "naïve ünïcode 日本.md", "with\nnewline.md")
    directory = os.fsencode(root) + b"/d\xe9"
    Path(os.fsdecode(directory)).mkdir()
    Path(os.fsdecode(directory + b"/x.md")).write_text("x")
    found = {entry.path: entry.error for entry in entries(root)}
    assert "UTF-8" in found["caf\ufffd.md"] and "UTF-8" in found["d\ufffd/x.md"]
    assert found["naïve ünïcode 日本.md"] == found["with\nnewline.md"] == ""
    for path in found:
        path.encode()


@contextmanager
def as_nobody() -> Iterator[Path]:
    """A directory of somebody else's, and this process without the rights of root."""
    directory = Path(tempfile.mkdtemp())
    is_root = os.geteuid() == 0
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        if is_root:
            os.seteuid(0)
        for below in directory.rglob("*"):
            below.chmod(0o755)
        shutil.rmtree(directory)


def test_what_may_not_be_read_is_an_error_and_the_rest_goes_on() -> None:
    with as_nobody() as directory:
        write(directory, "a.md", "closed.md", "sub/x.md", "z/y.md")
        (directory / "closed.md").chmod(0)
        (directory / "sub").chmod(0)
        if os.geteuid() == 0:
            os.seteuid(65534)
        found = {entry.path: entry.error for entry in entries(directory)}
        assert list(found) == ["a.md", "closed.md", "sub/", "z/y.md"]
        assert "permission" in found["closed.md"].lower() and "Cannot be listed" in found["sub/"]
        assert found["a.md"] == found["z/y.md"] == ""


def test_a_directory_with_too_many_files_is_an_error_after_the_first_ones(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walking, "MAX_FILES", 3)
    write(root, *(f"{number}.md" for number in range(5)))
    walked = walk(root, supported=lambda path: True, max_bytes=100)
    assert [next(walked).path for _ in range(3)] == ["0.md", "1.md", "2.md"]
    with pytest.raises(DevFlowError) as refused:
        next(walked)
    assert refused.value.code is ErrorCode.TOO_LARGE
    monkeypatch.setattr(walking, "_MAX_LISTED", 4)
    with pytest.raises(DevFlowError):
        list(walk(root, supported=lambda path: False, max_bytes=100))


def test_very_deep_directories_end(root: Path) -> None:
    handle = os.open(root, os.O_RDONLY)
    for _ in range(30):  # deeper than a path may be long
        os.mkdir("d" * 200, dir_fd=handle)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = below
    os.close(handle)
    found = entries(root)
    assert len(found) == 1 and "Cannot be listed" in found[0].error
    shutil.rmtree(root)


# Reading


def test_a_link_put_in_place_of_a_file_or_directory_after_the_walk_leads_nowhere(root: Path) -> None:
    write(root.parent, "outside/x.md", text="secret")
    write(root, "a/x.md", "x.md", "y.md")
    inside_directory, file, piped = entries(root)[2], entries(root)[0], entries(root)[1]
    assert (inside_directory.path, file.path, piped.path) == ("a/x.md", "x.md", "y.md")
    shutil.rmtree(root / "a")
    (root / "a").symlink_to(root.parent / "outside")
    (root / "x.md").unlink()
    (root / "x.md").symlink_to(root.parent / "outside" / "x.md")
    (root / "y.md").unlink()
    os.mkfifo(root / "y.md")
    for entry in (inside_directory, file, piped):
        with pytest.raises(ReadError):
            walking.read(entry, root)


def test_a_file_that_grew_or_went_since_the_walk_is_an_error(root: Path) -> None:
    write(root, "a.md", "b.md")
    grown, gone = entries(root)
    write(root, "a.md", text="x" * 2000)
    (root / "b.md").unlink()
    with pytest.raises(ReadError, match="larger"):
        walking.read(grown, root, max_bytes=1000)
    with pytest.raises(ReadError):
        walking.read(gone, root)


@pytest.mark.parametrize("path", ["../secret.md", "/etc/passwd", "a/../../secret.md", "."])
def test_an_entry_made_up_by_hand_reads_nothing_outside(root: Path, path: str) -> None:
    write(root.parent, "secret.md")
    (root / "a").mkdir()
    with pytest.raises(ReadError):
        walking.read(Entry("x", root / path), root)


def test_reading_keeps_no_files_open(root: Path) -> None:
    write(root, "a/b/c.md")
    (entry,) = entries(root)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        walking.read(entry, root)
        with pytest.raises(ReadError):
            walking.read(Entry("x", root / "a/nothing/x.md"), root)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# Git


def test_the_commit_of_a_checkout_is_read_without_git(root: Path) -> None:
    write(root, ".git/HEAD", text="ref: refs/heads/feature/x#1\n")
    assert git_head(root) == ""
    write(root, ".git/packed-refs", text=f"# pack-refs\n{'f' * 40} refs/heads/main\n{COMMIT} refs/heads/feature/x#1\n")
    assert git_head(root) == COMMIT
    write(root, ".git/refs/heads/feature/x#1", text="a" * 40 + "\n")
    assert git_head(root) == "a" * 40
    write(root, ".git/HEAD", text=f"{COMMIT}\n")
    assert git_head(root) == COMMIT


def test_a_worktree_is_read_where_its_repository_may_be(root: Path, configure: Configure) -> None:
    write(root, "main/.git/HEAD", text="ref: refs/heads/main\n")
    write(root, "main/.git/refs/heads/side", text=COMMIT)
    write(root, "main/.git/worktrees/tree/HEAD", text="ref: refs/heads/side\n")
    write(root, "main/.git/worktrees/tree/commondir", text="../..\n")
    write(root, "tree/.git", text=f"gitdir: {root}/main/.git/worktrees/tree\n")
    assert git_head(root / "tree") == COMMIT
    configure(allowed_roots=root / "tree")
    assert git_head(root / "tree") == ""


@pytest.mark.parametrize(
    "head",
    ["", "ref: refs/heads/none", "ref: ../../secret", "ref: refs/../../../secret", "x" * 40, "ref: /etc/passwd", "\0"],
)
def test_an_odd_head_is_no_commit(root: Path, head: str) -> None:
    write(root.parent, "secret", text=COMMIT)
    write(root, ".git/HEAD", text=head)
    assert git_head(root) == ""


def test_what_is_no_checkout_has_no_commit(root: Path) -> None:
    assert git_head(root) == ""
    write(root.parent, "git/HEAD", text=COMMIT)
    (root / ".git").symlink_to(root.parent / "git")
    assert git_head(root) == ""


def test_the_limits_come_from_the_configuration(configure: Configure) -> None:
    configure(knowledge_max_document_mb=3)
    assert config.current().knowledge.max_document_mb == 3
