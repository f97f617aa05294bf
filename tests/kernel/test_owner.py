import os
import stat
import subprocess
import sys
from pathlib import Path

from devflow import owner
from devflow.config import PROJECT_ROOT

HOLDER = """
import pathlib, sys
from devflow import owner
held = owner.try_acquire(pathlib.Path(sys.argv[1]))
held.publish("http://127.0.0.1:1", "k")
print("held", flush=True)
sys.stdin.read()
"""


ASKING = """
import pathlib, sys
from devflow import owner
for _ in range(20000):
    owner.is_owned(pathlib.Path(sys.argv[1]))
"""


def holder(home: Path) -> "subprocess.Popen[str]":
    """Another process that owns `home` until it is killed."""
    command = [sys.executable, "-c", HOLDER, str(home)]
    process = subprocess.Popen(command, cwd=PROJECT_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_a_data_directory_has_one_owner(tmp_path: Path) -> None:
    first = owner.try_acquire(tmp_path)
    assert first is not None
    with first:
        assert owner.try_acquire(tmp_path) is None
        assert owner.is_owned(tmp_path)
    assert not owner.is_owned(tmp_path)
    with owner.try_acquire(tmp_path) or first as second:
        assert second is not first


def test_where_it_is_served_is_known_while_it_is_served_and_only_to_this_user(tmp_path: Path) -> None:
    with owner.try_acquire(tmp_path) or exit() as held:
        assert owner.read_published(tmp_path) is None
        held.publish("http://127.0.0.1:8051", "dvf_key")
        assert owner.read_published(tmp_path) == owner.Published("http://127.0.0.1:8051", "dvf_key", os.getpid())
        assert stat.S_IMODE((tmp_path / "owner.json").stat().st_mode) == 0o600
    assert owner.read_published(tmp_path) is None
    assert not (tmp_path / "owner.json").exists()


def test_a_killed_owner_leaves_nothing_that_counts(tmp_path: Path) -> None:
    process = holder(tmp_path)
    try:
        published = owner.read_published(tmp_path)
        assert published is not None and published.pid == process.pid
        assert owner.try_acquire(tmp_path) is None
    finally:
        process.kill()
        process.communicate()
    assert (tmp_path / "owner.json").exists()
    assert owner.read_published(tmp_path) is None
    with owner.try_acquire(tmp_path) or exit():
        assert not (tmp_path / "owner.json").exists()


def test_asking_never_keeps_anybody_from_becoming_the_owner(tmp_path: Path) -> None:
    with owner.try_acquire(tmp_path) or exit():
        pass
    process = subprocess.Popen([sys.executable, "-c", ASKING, str(tmp_path)], cwd=PROJECT_ROOT)
    try:
        while process.poll() is None:
            with owner.try_acquire(tmp_path) or exit():
                pass
    finally:
        process.kill()
        process.wait()


def test_a_damaged_file_is_as_good_as_none(tmp_path: Path) -> None:
    with owner.try_acquire(tmp_path) or exit():
        for text in ("", "{}", "[1]", '{"url": 1}', '{"url": "u", "key": "k", "pid": -1}'):
            (tmp_path / "owner.json").write_text(text)
            assert owner.read_published(tmp_path) is None
