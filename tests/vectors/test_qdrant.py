"""A Qdrant server that is away, hangs or refuses; everything else about it is in the contract."""

import time
from collections.abc import Iterator

import grpc
import pytest

from devflow.vectors.base import PAYLOAD_INDEXES, Query, StoreError
from devflow.vectors.qdrant import QdrantStore
from tests.fakes.qdrant_server import QdrantServer
from tests.vectors.points import DIMENSIONS, point, vector
from tests.vectors.processes import until


@pytest.fixture
def server() -> Iterator[QdrantServer]:
    with QdrantServer() as running:
        yield running


@pytest.fixture
def store(server: QdrantServer) -> Iterator[QdrantStore]:
    made = QdrantStore(server.url, grpc_port=server.port, timeout=1)
    made.create("things", DIMENSIONS)
    made.upsert("things", [point(1)])
    yield made
    made.close()


def answers(store: QdrantStore) -> bool:
    try:
        return store.count("things") == 1
    except StoreError:
        return False


def test_a_server_that_is_gone_is_an_error_at_once_and_used_again_when_it_is_back(
    server: QdrantServer, store: QdrantStore
) -> None:
    server.stop()
    began = time.monotonic()
    for _ in range(3):
        with pytest.raises(StoreError, match="Qdrant: UNAVAILABLE"):
            store.search("things", Query(where={}, dense=vector(1)))
        with pytest.raises(StoreError, match="UNAVAILABLE"):
            store.upsert("things", [point(2)])
    with pytest.raises(StoreError):
        store.ping()
    assert time.monotonic() - began < 2
    server.start()
    until(lambda: answers(store), "the server's return", 10)


def test_a_server_that_hangs_is_an_error_in_time(server: QdrantServer, store: QdrantStore) -> None:
    server.hang()
    began = time.monotonic()
    with pytest.raises(StoreError, match="DEADLINE_EXCEEDED"):
        store.search("things", Query(where={}, dense=vector(1)))
    assert time.monotonic() - began < 2
    server.work()
    assert answers(store)


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.INTERNAL, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.PERMISSION_DENIED]
)
def test_a_refusal_is_an_error_with_the_servers_words(
    server: QdrantServer, store: QdrantStore, code: grpc.StatusCode
) -> None:
    server.fail(code)
    for call in (
        lambda: store.count("things"),
        lambda: store.upsert("things", [point(2)]),
        lambda: store.delete("things", [point(2).id]),
        lambda: list(store.scroll("things")),
        lambda: store.create("others", 3),
        lambda: store.drop("things"),
        lambda: store.collections(),
    ):
        with pytest.raises(StoreError, match=f"Qdrant: {code.name}: scripted"):
            call()


def test_a_wrong_key_is_an_error_and_the_right_one_is_sent() -> None:
    with QdrantServer(api_key="right") as server:
        for key in ("", "wrong"):
            store = QdrantStore(server.url, grpc_port=server.port, api_key=key)
            with pytest.raises(StoreError, match="Invalid API key"):
                store.ping()
            store.close()
        store = QdrantStore(server.url, grpc_port=server.port, api_key="right")
        assert store.ping() == f"Qdrant at {server.url}, 0 collections"
        store.close()


def test_payload_fields_are_indexed_even_when_making_the_collection_was_cut_short(
    server: QdrantServer, store: QdrantStore
) -> None:
    assert {field: kind.value for field, kind in server.indexes["things"].items()} == PAYLOAD_INDEXES
    del server.indexes["things"]["tags"]
    server.calls.clear()
    store.create("things", DIMENSIONS)
    assert server.calls.count("index") == 1
    assert set(server.indexes["things"]) == set(PAYLOAD_INDEXES)


def test_an_address_nobody_has_is_an_error() -> None:
    store = QdrantStore("http://127.0.0.1:1", grpc_port=1)
    with pytest.raises(StoreError, match="UNAVAILABLE"):
        store.ping()
    store.close()
    store = QdrantStore("ftp://127.0.0.1", grpc_port=1)
    with pytest.raises(StoreError, match="Unknown scheme"):
        store.ping()
    store.close()
