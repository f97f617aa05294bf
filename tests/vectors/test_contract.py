"""What every vector store does, whichever it is."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from devflow.vectors.base import DENSE, SYMBOLS, TEXT, Hits, MissingCollectionError, Query, Sparse, StoreError
from devflow.vectors.edge import EdgeStore
from devflow.vectors.qdrant import QdrantStore
from devflow.vectors.remote import RemoteStore, Served
from devflow.vectors.stores import SharedStore, Store
from tests.fakes.qdrant_server import QdrantServer
from tests.vectors.points import DIMENSIONS, numbers, point, uid, vector

KINDS = ["edge", "remote", "shared", "qdrant memory", "qdrant server"]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[str], Store]]:
    with ExitStack() as stack:

        def made(kind: str) -> Store:
            store: Store
            if kind == "edge":
                store = EdgeStore(tmp_path / "edge")
            elif kind == "remote":
                own = EdgeStore(tmp_path / "owned")
                stack.callback(own.close)
                served = Served(own)
                stack.callback(served.close)
                store = RemoteStore(served.url, served.token)
            elif kind == "shared":
                store = SharedStore(tmp_path / "shared")
            elif kind == "qdrant memory":
                store = QdrantStore(":memory:")
            else:
                server = stack.enter_context(QdrantServer(api_key="key"))
                store = QdrantStore(server.url, grpc_port=server.port, api_key="key")
            stack.callback(store.close)
            return store

        yield made


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, make: Callable[[str], Store]) -> Store:
    made = make(request.param)
    made.create("things", DIMENSIONS)
    return made


def test_a_collection_is_made_once_and_dropped_as_often_as_you_like(store: Store) -> None:
    store.upsert("things", [point(1)])
    store.create("things", DIMENSIONS)
    assert store.count("things") == 1
    store.create("others", 3)
    assert store.collections() == {"things", "others"}
    store.drop("things")
    store.drop("things")
    assert store.collections() == {"others"}
    store.create("things", DIMENSIONS + 1)
    assert store.count("things") == 0


def test_a_collection_keeps_its_dimensions(store: Store) -> None:
    with pytest.raises(StoreError, match=f"things has {DIMENSIONS} dimensions, not 9"):
        store.create("things", 9)
    with pytest.raises(StoreError):
        store.upsert("things", [point(1, dimensions=9)])
    with pytest.raises(StoreError):
        store.search("things", Query(where={}, dense=vector(1, 9)))
    assert store.count("things") == 0


def test_an_unknown_collection_is_an_error(store: Store) -> None:
    for call in (
        lambda: store.upsert("missing", [point(1)]),
        lambda: store.delete("missing", [uid(1)]),
        lambda: store.search("missing", Query(where={}, dense=vector(1))),
        lambda: store.search("missing", Query(where={})),
        lambda: list(store.scroll("missing")),
        lambda: store.count("missing"),
    ):
        with pytest.raises(MissingCollectionError, match="missing"):
            call()
    assert store.collections() == {"things"}


def test_points_are_written_overwritten_and_deleted(store: Store) -> None:
    store.upsert("things", [point(number, digest=f"v1 {number}") for number in range(250)])
    assert store.count("things") == 250
    store.upsert("things", [point(7, digest="v2", seed=1000)])
    assert store.count("things") == 250
    hashes = dict(store.scroll("things"))
    assert len(hashes) == 250
    assert hashes[uid(7)] == "v2"
    assert hashes[uid(8)] == "v1 8"
    [(best, score)] = store.search("things", Query(where={}, dense=vector(1000), limit=1))[DENSE]
    assert best == uid(7)
    assert score == pytest.approx(1.0, abs=1e-5)
    store.delete("things", [uid(7), uid(8), uid(9999)])
    store.delete("things", [uid(7)])
    store.delete("things", [])
    assert store.count("things") == 248
    assert uid(7) not in dict(store.scroll("things"))


def test_an_overwritten_point_is_not_found_by_what_it_was(store: Store) -> None:
    store.upsert("things", [point(1, words=[5], symbols=[6], project=1), point(2, words=[9], project=1)])
    store.upsert("things", [point(1, words=[9], project=2)])
    asked = Query(where={}, text=Sparse((5,), (1.0,)), symbols=Sparse((6,), (1.0,)))
    assert store.search("things", asked) == {TEXT: [], SYMBOLS: []}
    asked = Query(where={"project": [1]}, dense=vector(1))
    assert numbers(store.search("things", asked)[DENSE]) == [2]


def test_scrolling_gives_every_point_once(store: Store) -> None:
    store.upsert("things", [point(number) for number in range(2100)])
    seen = [found for found, _ in store.scroll("things")]
    assert len(seen) == 2100
    assert set(seen) == {uid(number) for number in range(2100)}


def test_only_the_asked_legs_answer_each_with_its_best(store: Store) -> None:
    store.upsert(
        "things",
        [point(1, words=[1, 2], symbols=[7]), point(2, words=[1]), point(3, symbols=[7, 8]), point(4)],
    )
    hits = store.search(
        "things",
        Query(where={}, dense=vector(4), text=Sparse((1, 2), (1.0, 1.0)), symbols=Sparse((8,), (1.0,)), limit=2),
    )
    assert set(hits) == {DENSE, TEXT, SYMBOLS}
    assert len(hits[DENSE]) == 2
    assert numbers(hits[DENSE])[0] == 4
    assert numbers(hits[TEXT]) == [1, 2]
    assert numbers(hits[SYMBOLS]) == [3]
    assert set(store.search("things", Query(where={}, text=Sparse((1,), (1.0,))))) == {TEXT}
    assert store.search("things", Query(where={})) == {}


def test_a_rare_word_weighs_more_than_a_common_one(store: Store) -> None:
    store.upsert("things", [point(number, words=[1]) for number in range(1, 20)] + [point(20, words=[2])])
    hits = store.search("things", Query(where={}, text=Sparse((1, 2), (1.0, 1.0)), limit=3))
    assert numbers(hits[TEXT])[0] == 20
    assert hits[TEXT][0][1] > 2 * hits[TEXT][1][1]


def test_words_nobody_has_find_nothing(store: Store) -> None:
    store.upsert("things", [point(1, words=[1])])
    assert store.search("things", Query(where={}, text=Sparse((4_000_000_000,), (1.0,)))) == {TEXT: []}


FILTERS: list[tuple[dict[str, list[str | int | bool]], set[int]]] = [
    ({}, {1, 2, 3, 4}),
    ({"project": [1]}, {1, 2}),
    ({"project": [1, 2]}, {1, 2, 3}),
    ({"project": []}, set()),
    ({"project": [99]}, set()),
    ({"project": ["1"]}, set()),
    ({"source": [10, 11], "project": [1]}, {1, 2}),
    ({"source": [11]}, {2, 3}),
    ({"has_code": [True]}, {1, 3}),
    ({"has_code": [False]}, {2}),
    ({"has_code": [True, False]}, {1, 2, 3}),
    ({"tags": ["python"]}, {1, 3}),
    ({"tags": ["web", "rust"]}, {1, 2}),
    ({"tags": ["python"], "has_code": [True], "project": [2]}, {3}),
    ({"category": ["decision"]}, {4}),
    ({"category": ["decision", "pattern", 5]}, {3, 4}),
    ({"languages": ["python"]}, {3}),
    ({"unknown": ["x"]}, set()),
]


def test_filters_hold_on_every_leg(store: Store) -> None:
    store.upsert(
        "things",
        [
            point(1, words=[1], symbols=[1], project=1, source=10, has_code=True, tags=["python", "web"]),
            point(2, words=[1], symbols=[1], project=1, source=11, has_code=False, tags=("rust",)),
            point(3, words=[1], symbols=[1], project=2, source=11, has_code=True, tags=["python"], category="pattern",
                  languages=["python"]),
            point(4, words=[1], symbols=[1], project=3, source=12, tags=[], category="decision"),
        ],
    )  # fmt: skip
    one = Sparse((1,), (1.0,))
    for where, expected in FILTERS:
        hits = store.search("things", Query(where=where, dense=vector(1), text=one, symbols=one))
        found = {leg: set(numbers(answer)) for leg, answer in hits.items()}
        assert found == dict.fromkeys((DENSE, TEXT, SYMBOLS), expected), where


def test_no_points_and_no_limit_are_fine(store: Store) -> None:
    store.upsert("things", [])
    assert list(store.scroll("things")) == []
    assert store.count("things") == 0
    store.upsert("things", [point(1)])
    assert store.search("things", Query(where={}, dense=vector(1), limit=0)) == {DENSE: []}


def test_a_store_says_what_it_is_and_has_nothing_to_tend(store: Store) -> None:
    assert any(name in store.ping() for name in ("edge, 0 points", "Qdrant"))
    assert store.tend() == ""


def test_a_closed_store_is_an_error(store: Store) -> None:
    if isinstance(store, SharedStore):
        pytest.skip("opens again: another process may own it meanwhile")
    store.close()
    store.close()
    with pytest.raises(StoreError):
        store.count("things")


def test_all_stores_rank_alike(make: Callable[[str], Store]) -> None:
    asked = Query(
        where={"project": [1]},
        dense=vector(5000),
        text=Sparse((3, 101, 235), (1.0, 2.0, 1.0)),
        symbols=Sparse((4,), (1.0,)),
        limit=20,
    )
    answers: dict[str, Hits] = {}
    for kind in KINDS:
        store = make(kind)
        store.create("things", DIMENSIONS)
        store.upsert(
            "things",
            [
                point(one, words=[one % 7, 100 + one % 3, 200 + one], symbols=[one % 11], project=one % 2)
                for one in range(120)
            ],
        )
        answers[kind] = store.search("things", asked)
    expected = answers["edge"]
    assert len(expected[DENSE]) == 20
    for kind, answer in answers.items():
        assert numbers(answer[DENSE]) == numbers(expected[DENSE]), kind
        for leg, hits in expected.items():  # where scores are equal the order is anybody's
            assert [score for _, score in answer[leg]] == pytest.approx([score for _, score in hits], abs=1e-3), kind
