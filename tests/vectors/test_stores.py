"""One owner per data directory: who it is, how others reach it, and what happens when it goes."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from devflow import config, owner
from devflow.config import PROJECT_ROOT
from devflow.vectors import stores
from devflow.vectors.base import DENSE, MissingCollectionError, Query, StoreError
from devflow.vectors.qdrant import QdrantStore
from devflow.vectors.stores import SharedStore
from tests.vectors.points import DIMENSIONS, numbers, point, uid, vector
from tests.vectors.processes import ended, started, until

OWNER = """
import pathlib, sys
from devflow.vectors.stores import SharedStore
from tests.vectors.points import DIMENSIONS, point
store = SharedStore(pathlib.Path(sys.argv[1]))
store.create("things", DIMENSIONS)
store.upsert("things", [point(number, project=number % 2) for number in range(100)])
assert store.is_owner
print("ready", flush=True)
sys.stdin.readline()
store.close()
"""


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[SharedStore]:
    made = SharedStore(tmp_path)
    yield made
    made.close()


def test_a_second_process_uses_the_store_of_the_first(tmp_path: Path, shared: SharedStore) -> None:
    process = started(OWNER, tmp_path)
    try:
        assert shared.count("things") == 100
        assert not shared.is_owner
        shared.upsert("things", [point(200, project=7)])
        shared.delete("things", [uid(3)])
        hits = shared.search("things", Query(where={"project": [7]}, dense=vector(1)))
        assert numbers(hits[DENSE]) == [200]
        assert len(list(shared.scroll("things"))) == 100
        assert shared.ping() == "edge, 100 points (in another process)"
        assert shared.tend() == ""
        with pytest.raises(MissingCollectionError, match="there is no collection missing"):
            shared.count("missing")
    finally:
        ended(process)


def test_nothing_is_opened_before_it_is_used(tmp_path: Path) -> None:
    SharedStore(tmp_path / "new").close()
    assert not (tmp_path / "new").exists()


def test_whoever_comes_next_owns_the_store_when_the_owner_is_killed(tmp_path: Path, shared: SharedStore) -> None:
    process = started(OWNER, tmp_path)
    try:
        shared.upsert("things", [point(200)])
    finally:
        ended(process)
    assert shared.count("things") == 101
    assert shared.is_owner
    published = owner.read_published(tmp_path)
    assert published is not None and published.pid == os.getpid()


def test_an_owner_that_closes_hands_over_while_it_lives(tmp_path: Path, shared: SharedStore) -> None:
    process = started(OWNER, tmp_path)
    try:
        assert shared.count("things") == 100
        process.communicate("\n", timeout=30)
        assert process.returncode == 0
        assert shared.count("things") == 100
        assert shared.is_owner
    finally:
        ended(process)


def test_two_stores_of_one_process_hand_over_too(tmp_path: Path, shared: SharedStore) -> None:
    first = SharedStore(tmp_path)
    first.create("things", DIMENSIONS)
    assert shared.collections() == {"things"}
    assert (first.is_owner, shared.is_owner) == (True, False)
    first.close()
    shared.upsert("things", [point(1)])
    assert (first.is_owner, shared.is_owner) == (False, True)
    assert first.count("things") == 1
    first.close()


def test_a_call_under_way_when_the_owner_dies_is_an_error_and_the_next_one_is_not(
    tmp_path: Path, shared: SharedStore
) -> None:
    process = started(OWNER, tmp_path)
    try:
        assert shared.count("things") == 100
        process.send_signal(signal.SIGSTOP)
        waiting = SharedStore(tmp_path, timeout=0.3)
        with pytest.raises(StoreError, match="does not answer"):
            waiting.count("things")
        waiting.close()
    finally:
        ended(process)
    assert shared.count("things") == 100


def test_an_owner_that_never_listens_is_an_error_in_time(tmp_path: Path) -> None:
    held = owner.try_acquire(tmp_path)
    assert held is not None
    waiting = SharedStore(tmp_path, timeout=0.2)
    try:
        with pytest.raises(StoreError, match="does not listen yet"):
            waiting.count("things")
    finally:
        waiting.close()
        held.release()


def test_only_the_holder_of_the_token_is_served(tmp_path: Path, shared: SharedStore) -> None:
    shared.create("things", DIMENSIONS)
    published = owner.read_published(tmp_path)
    assert published is not None
    assert stat.S_IMODE((tmp_path / "owner.json").stat().st_mode) == 0o600
    with httpx.Client(base_url=published.url, trust_env=False) as client:
        for headers in ({}, {"Authorization": "Bearer"}, {"Authorization": "Bearer wrong"}, {"Authorization": "é"}):
            raw = {name: value.encode() for name, value in headers.items()}
            assert client.post("/collections", json={}, headers=raw).status_code == 403
        right = {"Authorization": f"Bearer {published.key}"}
        assert client.post("/collections", json={}, headers=right).json() == {"result": ["things"]}
        assert client.get("/collections", headers=right).status_code == 501


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/nothing", b"{}"),
        ("/close", b"{}"),
        ("/count", b"{"),
        ("/count", b"[]"),
        ("/count", b"{}"),
        ("/count", b'{"collection": 5}'),
        ("/count", b""),
        ("/delete", b'{"collection": "things", "ids": ["x"]}'),
        ("/upsert", b'{"collection": "things", "points": [{}]}'),
        ("/upsert", b'{"collection": "things", "points": 5}'),
        ("/search", b'{"collection": "things", "query": {"where": 5}}'),
        ("/page", b'{"collection": "things", "after": 5}'),
    ],
)
def test_a_call_that_makes_no_sense_is_refused_and_the_store_goes_on(
    tmp_path: Path, shared: SharedStore, path: str, body: bytes
) -> None:
    shared.create("things", DIMENSIONS)
    published = owner.read_published(tmp_path)
    assert published is not None
    with httpx.Client(base_url=published.url, trust_env=False) as client:
        answer = client.post(path, content=body, headers={"Authorization": f"Bearer {published.key}"})
        assert answer.status_code == 400
        assert answer.json()["error"].startswith("The call cannot be read")
    assert shared.count("things") == 0


def test_a_deleted_directory_is_noticed_and_begun_anew(tmp_path: Path) -> None:
    home = tmp_path / "vectors"
    store, other = SharedStore(home), SharedStore(home)
    try:
        store.create("things", DIMENSIONS)
        store.upsert("things", [point(1)])
        subprocess.run(["rm", "-r", str(home)], check=True)
        assert other.collections() == set()
        assert other.is_owner
        with pytest.raises(StoreError, match="there is no collection things"):
            store.count("things")
        assert not store.is_owner
        store.create("things", DIMENSIONS)
        assert other.count("things") == 0
    finally:
        store.close()
        other.close()


def test_a_directory_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = SharedStore(tmp_path / "file" / "vectors")
    with pytest.raises(StoreError, match="cannot be used"):
        store.count("things")
    store.close()


def test_a_fork_neither_uses_nor_closes_its_parents_store(tmp_path: Path) -> None:
    program = """
import os, pathlib, sys
from devflow.vectors import stores
from tests.vectors.points import DIMENSIONS, point
store = stores.store()
store.create("things", DIMENSIONS)
child = os.fork()
if child == 0:
    mine = stores.store()
    assert mine is not store and not mine.is_owner
    mine.upsert("things", [point(1)])
    assert not mine.is_owner
    stores.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert store.is_owner and store.count("things") == 1
"""
    environment = {**os.environ, "DEVFLOW_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        cwd=PROJECT_ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "vectors" / "owner.json").exists()


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    monkeypatch.setenv("DEVFLOW_HOME", str(tmp_path))
    config.current.cache_clear()
    stores.forget()
    yield monkeypatch
    stores.forget()
    monkeypatch.undo()
    config.current.cache_clear()


def test_the_configuration_chooses_the_store(tmp_path: Path, configured: pytest.MonkeyPatch) -> None:
    embedded = stores.store()
    assert isinstance(embedded, SharedStore)
    assert stores.store() is embedded
    embedded.create("things", DIMENSIONS)
    assert (tmp_path / "vectors" / "things" / "live.json").is_file()
    assert stores.tend() == ""
    stores.forget()
    assert owner.read_published(tmp_path / "vectors") is None
    configured.setenv("DEVFLOW_QDRANT_URL", ":memory:")
    config.current.cache_clear()
    assert isinstance(stores.store(), QdrantStore)
    assert stores.store().collections() == set()


def test_a_process_that_ends_lets_go_of_the_store(tmp_path: Path, shared: SharedStore) -> None:
    program = "from devflow.vectors import stores; stores.store().create('things', 3); print('ready', flush=True)"
    environment = {**os.environ, "DEVFLOW_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT_ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")
    assert not (tmp_path / "vectors" / "owner.json").exists()
    store = SharedStore(tmp_path / "vectors")
    until(lambda: store.collections() == {"things"}, "the collection")
    store.close()
