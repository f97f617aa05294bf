"""The embedded store: what survives, what is cleaned up, and that it answers while graphs are built."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from devflow.vectors import generations
from devflow.vectors.base import DENSE, Query, StoreError
from devflow.vectors.edge import EdgeStore
from tests.vectors.points import DIMENSIONS, numbers, point, uid, vector
from tests.vectors.processes import builders, ended, started, until

WRITER = """
import pathlib, sys
from devflow.vectors.edge import EdgeStore
from tests.vectors.points import DIMENSIONS, point, uid
store = EdgeStore(pathlib.Path(sys.argv[1]))
store.create("things", DIMENSIONS)
store.upsert("things", [point(number) for number in range(10)])
print("ready", flush=True)
for start in range(10, 1_000_000, 50):
    store.upsert("things", [point(number) for number in range(start, start + 50)])
    store.delete("things", [uid(start)])
    print(start, flush=True)
"""

COMPACTER = """
import pathlib, sys
from devflow.vectors.edge import EdgeStore
store = EdgeStore(pathlib.Path(sys.argv[1]))
print("ready", flush=True)
store.compact("things")
"""

BIG = 384


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EdgeStore]:
    made = EdgeStore(tmp_path, optimize_above=100)
    made.create("things", DIMENSIONS)
    yield made
    made.close()


@pytest.fixture
def large(tmp_path: Path) -> Iterator[EdgeStore]:
    """A store whose graphs take a moment to build."""
    made = EdgeStore(tmp_path, optimize_above=1000)
    made.create("things", BIG)
    made.upsert("things", [point(number, dimensions=BIG, project=number % 2) for number in range(8000)])
    yield made
    made.close()


def folders(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "things").iterdir())


def test_points_are_there_after_closing_and_opening(tmp_path: Path, store: EdgeStore) -> None:
    store.upsert("things", [point(number, tags=["a"]) for number in range(300)])
    store.close()
    again = EdgeStore(tmp_path)
    try:
        assert again.collections() == {"things"}
        assert again.count("things") == 300
        assert numbers(again.search("things", Query(where={"tags": ["a"]}, dense=vector(7), limit=1))[DENSE]) == [7]
    finally:
        again.close()


def test_everything_acknowledged_survives_kill_9_in_the_middle_of_writing(tmp_path: Path) -> None:
    process = started(WRITER, tmp_path)
    assert process.stdout is not None
    try:
        last = 0
        while last < 2000:
            last = int(process.stdout.readline())
    finally:
        process.kill()
        rest, _ = process.communicate()
    last = max([last, *(int(line) for line in rest.splitlines()[:-1])])
    store = EdgeStore(tmp_path)
    try:
        hashes = dict(store.scroll("things"))
        deleted = {uid(start) for start in range(10, last + 1, 50)}
        written = {uid(number) for number in range(last + 50)}
        assert written - deleted <= set(hashes)
        assert deleted & set(hashes) == set()
        assert all(digest == f"hash {found.int}" for found, digest in hashes.items())
    finally:
        store.close()


def test_compacting_keeps_every_point_and_one_generation(tmp_path: Path, store: EdgeStore) -> None:
    store.upsert("things", [point(number, words=[number % 5], project=number % 3) for number in range(500)])
    asked = Query(where={"project": [1]}, dense=vector(1000), limit=50)
    before = store.search("things", asked)
    store.compact("things")
    store.compact("things")
    assert store.search("things", asked) == before
    assert folders(tmp_path) == ["g3", "live.json"]
    store.upsert("things", [point(9000)])
    store.delete("things", [uid(0)])
    assert store.count("things") == 500
    store.close()
    again = EdgeStore(tmp_path)
    try:
        assert again.count("things") == 500
        assert again.search("things", asked) == before
    finally:
        again.close()


@pytest.mark.slow
def test_searches_and_writes_go_on_while_graphs_are_built(tmp_path: Path, large: EdgeStore) -> None:
    done = threading.Event()
    asked = Query(where={"project": [1]}, dense=vector(1, BIG), limit=10)
    gaps, rounds = [0.0], [8000]

    def search() -> None:
        last = time.monotonic()
        while not done.is_set():
            assert numbers(large.search("things", asked)[DENSE])[0] == 1
            gaps.append(time.monotonic() - last)
            last = time.monotonic()
            time.sleep(0.002)

    def write() -> None:
        while not done.is_set():
            number = rounds[-1] + 20
            large.upsert("things", [point(at, dimensions=BIG, project=5) for at in range(number, number + 20)])
            large.delete("things", [uid(number), uid(number - 8000)])
            large.upsert("things", [point(3001, dimensions=BIG, digest=f"round {number}")])
            rounds.append(number)
            time.sleep(0.01)

    with ThreadPoolExecutor(3) as pool:
        others = [pool.submit(search), pool.submit(write)]
        try:
            compacting = pool.submit(large.compact, "things")
            until(lambda: builders(os.getpid()), "a building process")
            searched, wrote = len(gaps), len(rounds)
            until(lambda: not builders(os.getpid()), "the end of the building process", 120)
            assert len(gaps) > searched + 20
            assert len(rounds) > wrote + 5
            compacting.result()
        finally:
            done.set()
        for other in others:
            other.result()
    assert max(gaps) < 2
    changed = rounds[1:]
    expected = {*range(8000), *range(8020, changed[-1] + 20)} - {at for one in changed for at in (one, one - 8000)}
    hashes = dict(large.scroll("things"))
    assert {found.int for found in hashes} == expected
    assert hashes[uid(3001)] == f"round {changed[-1]}"
    assert folders(tmp_path) == ["g2", "live.json"]


@pytest.mark.slow
def test_a_build_that_is_killed_changes_nothing(tmp_path: Path, large: EdgeStore) -> None:
    with ThreadPoolExecutor(1) as pool:
        compacting = pool.submit(large.compact, "things")
        until(lambda: builders(os.getpid()), "a building process")
        os.kill(builders(os.getpid())[0], signal.SIGKILL)
        with pytest.raises(StoreError, match="things could not be compacted: the building process ended with -9"):
            compacting.result()
    assert folders(tmp_path) == ["g1", "live.json"]
    large.upsert("things", [point(9000, dimensions=BIG)])
    assert large.count("things") == 8001


@pytest.mark.slow
def test_a_build_ends_with_its_parent_and_what_it_left_is_removed(tmp_path: Path, large: EdgeStore) -> None:
    large.close()
    process = started(COMPACTER, tmp_path)
    try:
        until(lambda: builders(process.pid), "a building process")
        [builder] = builders(process.pid)
    finally:
        ended(process)
    until(lambda: not builders(process.pid), f"the end of {builder}", 10)
    assert folders(tmp_path) == ["g1", "g2", "live.json"]
    store = EdgeStore(tmp_path)
    try:
        assert store.count("things") == 8000
        assert folders(tmp_path) == ["g1", "live.json"]
    finally:
        store.close()


@pytest.mark.slow
def test_dropping_ends_a_running_build(large: EdgeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generations, "QUIET_SECONDS", -1)
    assert large.tend() == "compacting things"
    assert large.tend() == ""
    until(lambda: builders(os.getpid()), "a building process")
    large.drop("things")
    until(lambda: not builders(os.getpid()), "the end of the building process", 10)
    assert large.collections() == set()


@pytest.mark.slow
def test_closing_ends_a_running_build(tmp_path: Path, large: EdgeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generations, "QUIET_SECONDS", -1)
    assert large.tend() == "compacting things"
    until(lambda: builders(os.getpid()), "a building process")
    large.close()
    assert builders(os.getpid()) == []
    assert folders(tmp_path) == ["g1", "live.json"]


def test_a_collection_is_compacted_when_it_has_grown_and_rests(
    store: EdgeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.upsert("things", [point(number) for number in range(101)])
    assert store.tend() == ""
    monkeypatch.setattr(generations, "QUIET_SECONDS", -1)
    store.delete("things", [])
    assert store.tend() == "compacting things"
    until(lambda: folders(tmp_path) == ["g2", "live.json"], "the next generation")
    assert json.loads((tmp_path / "things" / "live.json").read_text()) == {
        "live": "g2", "dimensions": DIMENSIONS, "optimized": 101
    }  # fmt: skip
    store.upsert("things", [point(number) for number in range(100)])
    assert store.tend() == ""
    assert store.count("things") == 101


def test_never_compacts_when_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generations, "QUIET_SECONDS", -1)
    store = EdgeStore(tmp_path, optimize_above=0)
    try:
        store.create("things", DIMENSIONS)
        store.upsert("things", [point(number) for number in range(100)])
        assert store.tend() == ""
    finally:
        store.close()


def test_what_a_killed_process_left_is_removed(tmp_path: Path, store: EdgeStore) -> None:
    store.upsert("things", [point(1)])
    store.close()
    (tmp_path / "things" / "g2" / "segments").mkdir(parents=True)
    (tmp_path / "half" / "g1").mkdir(parents=True)
    again = EdgeStore(tmp_path)
    try:
        assert again.collections() == {"things"}
        assert again.count("things") == 1
        assert folders(tmp_path) == ["g1", "live.json"]
        again.create("half", DIMENSIONS)
        assert again.count("half") == 0
    finally:
        again.close()


@pytest.mark.parametrize("damage", ["live.json", "config", "segments", "gone"])
def test_a_damaged_collection_says_so_and_can_be_made_anew(tmp_path: Path, store: EdgeStore, damage: str) -> None:
    store.upsert("things", [point(1)])
    store.close()
    if damage == "live.json":
        (tmp_path / "things" / "live.json").write_text("[]")
    elif damage == "config":
        (tmp_path / "things" / "g1" / "edge_config.json").write_text("{")
    elif damage == "segments":
        for path in (tmp_path / "things" / "g1" / "segments").rglob("*"):
            if path.is_file():
                path.write_bytes(b"\xff" * 10)
    else:
        subprocess.run(["rm", "-r", str(tmp_path / "things" / "g1")], check=True)
    again = EdgeStore(tmp_path)
    try:
        with pytest.raises(StoreError, match="`devflow reindex` makes it anew"):
            again.count("things")
        with pytest.raises(StoreError, match="reindex"):
            again.ping()
        again.drop("things")
        again.create("things", DIMENSIONS)
        again.upsert("things", [point(1)])
        assert again.count("things") == 1
    finally:
        again.close()


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a" * 300, "a\0b"])
def test_a_collection_cannot_be_named_out_of_the_directory(store: EdgeStore, name: str) -> None:
    for call in (lambda: store.create(name, DIMENSIONS), lambda: store.drop(name), lambda: store.count(name)):
        with pytest.raises(StoreError):
            call()


def test_a_disk_that_is_nearly_full_is_an_error_and_searches_go_on(
    store: EdgeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.upsert("things", [point(1)])
    with monkeypatch.context() as patched:
        patched.setattr(generations, "MIN_FREE_BYTES", 2**60)
        for call in (
            lambda: store.upsert("things", [point(2)]),
            lambda: store.create("others", DIMENSIONS),
            lambda: store.compact("things"),
        ):
            with pytest.raises(StoreError, match="MB left"):
                call()
        assert numbers(store.search("things", Query(where={}, dense=vector(1)))[DENSE]) == [1]
        store.delete("things", [uid(7)])
    store.upsert("things", [point(2)])
    store.create("others", DIMENSIONS)
    assert store.count("things") == 2


def test_many_threads_read_and_write(store: EdgeStore) -> None:
    def work(mine: int) -> None:
        for start in range(0, 400, 40):
            store.upsert("things", [point(mine * 1000 + at) for at in range(start, start + 40)])
            store.search("things", Query(where={}, dense=vector(mine), limit=5))
            store.delete("things", [uid(mine * 1000 + start)])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert store.count("things") == 6 * (400 - 10)
