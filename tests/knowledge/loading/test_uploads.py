import errno
import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from devflow import config
from devflow.errors import DevFlowError, ErrorCode
from knowledge.indexing import uploads
from tests.knowledge.loading.conftest import Configure

MB = 1024 * 1024


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configure: Configure) -> Path:
    monkeypatch.setenv("DEVFLOW_HOME", str(tmp_path / "home"))
    configure(knowledge_upload_max_mb=1)
    return config.home()


def files(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())


def test_a_file_is_kept_under_its_hash_and_read_again(home: Path) -> None:
    stored = uploads.keep(7, "guide.md", [b"# Gui", b"de"])
    digest = hashlib.sha256(b"# Guide").hexdigest()
    assert stored == uploads.Stored("guide.md", digest, 7)
    assert uploads.read(7, digest) == b"# Guide"
    assert uploads.names(7) == [digest]
    assert files(home) == [f"uploads/7/{digest}"]
    assert (home / "uploads/7" / digest).stat().st_mode & 0o777 == 0o600


def test_the_same_content_is_kept_once_and_each_source_has_its_own(home: Path) -> None:
    first = uploads.keep(1, "a.md", [b"x"])
    assert uploads.keep(1, "b.md", [b"x"]).sha256 == first.sha256
    uploads.keep(2, "a.md", [b"x"])
    assert len(files(home)) == 2
    uploads.discard(1)
    assert uploads.names(1) == [] and uploads.read(2, first.sha256) == b"x"
    uploads.discard(1)


def test_one_file_can_be_removed_again_and_again() -> None:
    stored = uploads.keep(1, "a.md", [b"x"])
    uploads.remove(1, stored.sha256)
    uploads.remove(1, stored.sha256)
    with pytest.raises(DevFlowError) as missing:
        uploads.read(1, stored.sha256)
    assert missing.value.code is ErrorCode.NOT_FOUND


def test_a_file_over_the_limit_is_refused_while_it_arrives_and_leaves_nothing(home: Path) -> None:
    taken = 0

    def chunks() -> Iterator[bytes]:
        nonlocal taken
        for _ in range(100):
            taken += 1
            yield b"x" * MB

    with pytest.raises(DevFlowError) as refused:
        uploads.keep(1, "large.md", chunks())
    assert refused.value.code is ErrorCode.TOO_LARGE and taken == 2
    assert files(home) == [] and uploads.names(1) == [] and not (home / "uploads/1").exists()
    assert uploads.keep(1, "fits.md", [b"x" * MB]).size == MB


@pytest.mark.parametrize("chunks", [[], [b""], [b"", b""]])
def test_an_empty_file_is_refused(home: Path, chunks: list[bytes]) -> None:
    with pytest.raises(DevFlowError) as refused:
        uploads.keep(1, "empty.md", chunks)
    assert refused.value.code is ErrorCode.INVALID_INPUT and files(home) == []


def test_an_upload_that_breaks_off_leaves_nothing(home: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"x"
        raise ConnectionResetError(errno.ECONNRESET, "gone")

    with pytest.raises(ConnectionResetError):
        uploads.keep(1, "a.md", chunks())
    assert files(home) == []


def test_a_full_disk_is_said_and_leaves_nothing(home: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"x"
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DevFlowError) as refused:
        uploads.keep(1, "a.md", chunks())
    assert refused.value.code is ErrorCode.UNAVAILABLE and files(home) == []


def test_what_a_killed_upload_left_is_swept_away_but_not_what_is_under_way(home: Path) -> None:
    (home / "uploads").mkdir(parents=True)
    (home / "uploads/.part-old").write_bytes(b"x")
    os.utime(home / "uploads/.part-old", (1000, 1000))
    (home / "uploads/.part-new").write_bytes(b"x")
    stored = uploads.keep(1, "a.md", [b"y"])
    assert files(home) == ["uploads/.part-new", f"uploads/1/{stored.sha256}"]


def test_many_uploads_at_once_are_all_whole() -> None:
    def keep(number: int) -> None:
        uploads.keep(1, "a.md", [bytes([number % 4])] * 1000)

    threads = [threading.Thread(target=keep, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert uploads.names(1) == sorted(hashlib.sha256(bytes([n]) * 1000).hexdigest() for n in range(4))


@pytest.mark.parametrize("digest", ["", "..", "../2/" + "a" * 64, "a" * 63, "A" * 64, "a" * 64 + "\n", "/etc/passwd"])
def test_what_is_no_digest_is_not_found(digest: str) -> None:
    for operation in (uploads.read, uploads.remove):
        with pytest.raises(DevFlowError) as missing:
            operation(1, digest)
        assert missing.value.code is ErrorCode.NOT_FOUND


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("guide.md", "guide.md"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\x\\notes.txt", "notes.txt"),
        ("a/b/", "b"),
        ("/", "upload"),
        ("", "upload"),
        ("...", "upload"),
        (".env", "env"),
        ("  x.md  ", "x.md"),
        ("a\x00b\r\nc\x1b.md", "abc.md"),
        ("photo\u202egpj.md", "photogpj.md"),
        ("cafe\u0301.md", "café.md"),
        ("日本語.md", "日本語.md"),
        ("\ud800.md", "?.md"),
        ("x" * 300 + ".md", "x" * 197 + ".md"),
        ("é" * 300 + ".md", "é" * 98 + ".md"),
        ("x." + "y" * 300, "x." + "y" * 198),
    ],
)
def test_names_are_made_safe(name: str, safe: str) -> None:
    assert uploads.safe_name(name) == safe
    assert uploads.safe_name(safe) == safe
    assert len(safe.encode()) <= 200
