"""A model outside that embeds and reranks: used well, and in each of its faults answered around, told, recovered."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.acceptance.library import Library, eventually, library
from tests.acceptance.outside import CHAT, EMBEDDINGS, MoodyServer
from tests.fakes.openai_server import Json, Reply, changed, filtered, hang, raw, refuses, reset, says, status
from tests.running import RunningServer, running

pytestmark = pytest.mark.slow

SEARCH_SECONDS = 3.0
"""Two for a part that does not answer, and the search itself on a machine that does other things."""
RECOVER_SECONDS = 15.0
"""Ten, and what a loaded machine adds."""

FERRY = "# Ferry\n\nThe ferry to the island leaves at seven and takes eleven cars.\n"
BRIDGE = "# Bridge\n\nThe bridge is closed to lorries while the wind blows.\n"


@dataclass
class Scene:
    server: RunningServer
    outside: MoodyServer
    reader: Library


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with MoodyServer() as outside:
        env = {**outside.embedding, **outside.reranking, "DEVFLOW_LLM_TIMEOUT_SECONDS": "2"}
        env["DEVFLOW_EMBEDDING_TIMEOUT_SECONDS"] = "5"  # of texts: a silence of the endpoint is noticed after it
        with (
            running(tmp_path_factory.mktemp("outside") / "home", env=env, arguments=("--no-demo",)) as server,
            library(server, "demo") as reader,
        ):
            server.run_python("from workflow.services import projects; projects.create(slug='demo')")
            for title, text in (("Ferry", FERRY), ("Bridge", BRIDGE)):
                reader.read(title, type="manual", content=text)
            yield Scene(server, outside, reader)


@pytest.fixture(autouse=True)
def good_mood(scene: Scene) -> Iterator[None]:
    yield
    scene.outside.mood = None
    scene.outside.chat = lambda body: "{}"
    eventually(lambda: not timed(scene.reader, "ferry")[0]["degraded"], "it recovers", seconds=RECOVER_SECONDS)


numbers = iter(range(1_000_000))


def timed(reader: Library, words: str, **more: Any) -> tuple[dict[str, Any], float]:
    """A question nobody has asked before (so that nothing is cached), and the seconds its answer took."""
    began = time.monotonic()
    found = reader.search(f"{words} {next(numbers)}", **more)
    return found, time.monotonic() - began


def titles(found: dict[str, Any]) -> list[str]:
    return [hit["source"] for hit in found["results"]]


# --- embedding --------------------------------------------------------------------------------------------------------


def test_it_embeds_what_is_read_and_what_is_asked(scene: Scene) -> None:
    assert {text for text in scene.outside.texts if "ferry to the island" in text}
    found, _ = timed(scene.reader, "When does the ferry leave?", mode="semantic", explain=True)
    assert titles(found)[0] == "Ferry"
    assert (found["degraded"], found["reason"]) == (False, "")
    assert found["results"][0]["explain"]["legs"].keys() == {"dense"}


def wrong_count(answer: Json) -> None:
    answer["data"] = answer["data"] * 2


def not_numbers(answer: Json) -> None:
    answer["data"][0]["embedding"][0] = float("nan")


def another_length(answer: Json) -> None:
    for row in answer["data"]:
        row["embedding"] = row["embedding"][:7]


FAULTS: dict[str, Reply] = {
    "a refused key": status(401),
    "an unknown model": status(404),
    "a server error": status(500),
    "a gateway's page": raw(b"<html>Bad gateway</html>"),
    "no embeddings": raw(b'{"data": []}'),
    "too many embeddings": changed(wrong_count),
    "NaN": changed(not_numbers),
    "vectors of another length": changed(another_length),
    "too many requests": status(429, {"Retry-After": "600"}),
    "silence": hang(),
    "a reset before the answer": reset(),
    "a reset in the middle": reset(after=40),
}


def lag_of(reader: Library, source: str) -> int:
    """Chunks of a source that wait for their vectors."""
    listed = reader.call("list_knowledge_sources")["sources"]
    return next((int(one["pending_chunks"]) for one in listed if one["id"] == source), 0)


@pytest.mark.parametrize("what", FAULTS)
def test_an_embedder_at_fault_is_answered_around_and_told(what: str, scene: Scene) -> None:
    """Words still find, within the time; what is added meanwhile is found too, and has its vector soon after."""
    reader, outside = scene.reader, scene.outside
    outside.mood = FAULTS[what]
    for attempt in range(3):
        found, took = timed(reader, "the ferry to the island")
        assert titles(found)[0] == "Ferry"
        assert found["degraded"] is True
        assert found["reason"]
        assert took < SEARCH_SECONDS, f"search {attempt} took {took:.1f} s"
    added = reader.note("Tunnel", f"# Tunnel\n\nThe tunnel {next(numbers)} is lit by orange lamps.\n")
    eventually(lambda: lag_of(reader, added) == 1, "the lag is told", seconds=10)
    assert "Tunnel" in titles(timed(reader, "orange lamps of the tunnel")[0])
    eventually(lambda: health(reader).get("knowledge_hub"), "health tells the lag and the fault", seconds=15)
    assert "devflow_index_pending_points" in metrics(reader)
    assert waiting(reader) >= 1

    outside.mood = None
    began = time.monotonic()
    reader.wait(added, seconds=RECOVER_SECONDS)
    eventually(lambda: not timed(reader, "tunnel")[0]["degraded"], "search is whole again", seconds=RECOVER_SECONDS)
    assert time.monotonic() - began < RECOVER_SECONDS
    assert waiting(reader) == 0
    found, _ = timed(reader, "orange lamps", mode="semantic")
    assert "Tunnel" in titles(found)
    assert reader.request("DELETE", f"/api/v1/sources/{added}/").status_code == 204


def health(reader: Library) -> dict[str, str]:
    details: dict[str, str] = reader.request("GET", "/mcp/health").json().get("details", {})
    return details


def metrics(reader: Library) -> str:
    return reader.request("GET", "/metrics").text


def waiting(reader: Library) -> float:
    lines = [line for line in metrics(reader).splitlines() if line.startswith("devflow_index_pending_points{")]
    return sum(float(line.split()[-1]) for line in lines if "knowledge" in line)


def test_a_search_is_not_held_up_by_others_who_wait_for_a_silent_embedder(scene: Scene) -> None:
    """The threads calls run on are few: a silent embedder must not keep all of them."""
    import threading

    scene.outside.mood = hang()
    took: list[float] = []

    def ask() -> None:
        with library(scene.server, "demo") as reader:
            for _ in range(4):
                found, seconds = timed(reader, "the ferry to the island")
                assert titles(found)[0] == "Ferry"
                took.append(seconds)

    callers = [threading.Thread(target=ask) for _ in range(8)]
    for caller in callers:
        caller.start()
    began = time.monotonic()
    for caller in callers:
        caller.join(60)
    assert len(took) == 32
    assert time.monotonic() - began < 12
    assert max(took) < 5, sorted(took)


# --- reranking --------------------------------------------------------------------------------------------------------


def backwards(body: Json) -> str:
    """The model puts the passages in the opposite order."""
    count = body["messages"][-1]["content"].count("\n\n[")
    return str({"ranking": list(range(count, 0, -1))}).replace("'", '"')


def test_it_reranks(scene: Scene) -> None:
    plain = scene.reader.search("ferry bridge island wind")
    scene.outside.chat = backwards
    asked = len(scene.outside.requests)
    found = scene.reader.search("ferry bridge island wind", mode="reranked")
    assert found["reranker"] == "model"
    assert (found["degraded"], found["reason"]) == (False, "")
    assert titles(found) == titles(plain)[::-1]
    (request,) = [one for one in scene.outside.requests[asked:] if one.path == CHAT]
    assert request.body["model"] == "orderly"
    assert request.body["response_format"]
    assert "ferry bridge island wind" in str(request.body["messages"])


RANKING_FAULTS: dict[str, Reply] = {
    "a refusal": refuses(),
    "a content filter": filtered(),
    "words": says("The ferry is best."),
    "another shape": says('{"order": [1, 2]}'),
    "a list": says("[1, 2]"),
    "passages that do not exist": says('{"ranking": [1, 99]}'),
    "texts for numbers": says('{"ranking": ["1", "2"]}'),
    "one twice": says('{"ranking": [1, 1]}'),
    "none": says('{"ranking": []}'),
    "true": says('{"ranking": [true]}'),
    "no choices": raw(b'{"choices": []}'),
    "no JSON": raw(b"<html>"),
    "null": raw(b"null"),
    "nested 100,000 deep": raw(b"[" * 100_000),
    "nested inside": says("[" * 100_000),
    "a huge number": says('{"ranking": [' + "9" * 5000 + "]}"),
    "a refused key": status(401),
    "too many requests": status(429, {"Retry-After": "1"}),
    "a server error": status(503),
    "silence": hang(),
    "a reset": reset(),
    "a reset in the middle": reset(after=30),
}


@pytest.mark.parametrize("what", RANKING_FAULTS)
def test_a_reranker_at_fault_leaves_the_searchs_own_order_and_is_told(what: str, scene: Scene) -> None:
    scene.outside.mood_of = {CHAT: RANKING_FAULTS[what]}
    began = time.monotonic()
    try:
        found = scene.reader.search(f"ferry bridge {what}", mode="reranked")
    finally:
        scene.outside.mood_of = {}
    took = time.monotonic() - began
    assert titles(found) == titles(scene.reader.search(f"ferry bridge {what}"))
    assert found["reranker"] == "fallback"
    assert found["degraded"] is True
    assert "reranking model" in found["reason"]
    assert took < SEARCH_SECONDS, f"{took:.1f} s"
    scene.outside.chat = backwards
    found, _ = timed(scene.reader, "ferry bridge", mode="reranked")
    assert found["reranker"] == "model", "it is asked again at once"


def test_an_answer_that_drips_is_given_up_in_time(scene: Scene) -> None:
    """Some servers send blanks to keep a connection while the model works."""
    for path, mode in ((CHAT, "reranked"), (EMBEDDINGS, "hybrid")):
        scene.outside.drips = path
        try:
            found, took = timed(scene.reader, "the ferry to the island", mode=mode)
        finally:
            scene.outside.drips = ""
        assert titles(found)[0] == "Ferry"
        assert found["degraded"] is True
        assert took < SEARCH_SECONDS + 1, f"{path}: {took:.1f} s"
        eventually(lambda: not timed(scene.reader, "ferry")[0]["degraded"], "it recovers", seconds=RECOVER_SECONDS)


def test_an_endless_answer_is_given_up(scene: Scene) -> None:
    for path, mode in ((CHAT, "reranked"), (EMBEDDINGS, "hybrid")):
        scene.outside.floods = path
        try:
            found, took = timed(scene.reader, "the ferry to the island", mode=mode)
        finally:
            scene.outside.floods = ""
        assert titles(found)[0] == "Ferry"
        assert found["degraded"] is True
        assert took < SEARCH_SECONDS + 1, f"{path}: {took:.1f} s"
        eventually(lambda: not timed(scene.reader, "ferry")[0]["degraded"], "it recovers", seconds=RECOVER_SECONDS)
