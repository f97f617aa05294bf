"""Vectors on a Qdrant server: used; while it is stopped or hangs answered around at once; repaired after its return."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.acceptance.library import Library, eventually, library
from tests.fakes.qdrant_server import QdrantServer
from tests.reliability.index_state import assert_whole, state
from tests.running import RunningServer, devflow, running

pytestmark = pytest.mark.slow

AWAY_SECONDS = 3.0
"""Two for the server that does not answer, and the search itself on a machine that does other things."""
AT_ONCE_SECONDS = 1.0
BACK_SECONDS = 15.0
"""Ten, and what a loaded machine adds."""

MILL = "# Mill\n\nThe mill grinds rye on Tuesdays; call `grind_rye(kilos)` first.\n"
QUARRY = "# Quarry\n\nThe quarry sounds a horn before every blast.\n"


@dataclass
class Scene:
    server: RunningServer
    qdrant: QdrantServer
    reader: Library


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with QdrantServer(api_key="sesame") as qdrant:
        env = {
            "DEVFLOW_QDRANT_URL": qdrant.url,
            "DEVFLOW_QDRANT_GRPC_PORT": str(qdrant.port),
            "DEVFLOW_QDRANT_API_KEY": "sesame",
        }
        home = tmp_path_factory.mktemp("qdrant") / "home"
        with (
            running(home, env=env, arguments=("--no-demo",)) as server,
            library(server, "demo") as reader,
        ):
            server.run_python("from workflow.services import projects; projects.create(slug='demo')")
            reader.read("Mill", type="manual", content=MILL)
            reader.read("Quarry", type="manual", content=QUARRY)
            reader.call("save_memory", content="The mill wheel was replaced by an engine.", category="decision")
            yield Scene(server, qdrant, reader)


numbers = iter(range(1_000_000))


def asked(reader: Library, words: str = "grinding rye at the mill", **more: object) -> tuple[dict[str, object], float]:
    """A question nobody has asked before, and the seconds its answer took."""
    began = time.monotonic()
    found = reader.search(f"{words} {next(numbers)}", **more)
    return found, time.monotonic() - began


def titles(found: dict[str, object]) -> list[str]:
    return [hit["source"] for hit in found["results"]]  # type: ignore[attr-defined]


def test_it_is_searched_on_the_server(scene: Scene) -> None:
    for mode in ("semantic", "hybrid"):
        found, _ = asked(scene.reader, mode=mode)
        assert (titles(found)[0], found["degraded"]) == ("Mill", False)
    found, _ = asked(scene.reader, "grind_rye", explain=True)
    assert {"dense", "symbols"} <= found["results"][0]["explain"]["legs"].keys()  # type: ignore[index]
    filtered, _ = asked(scene.reader, filters={"has_code": True})
    assert titles(filtered) == []
    assert not (scene.server.home / "vectors").exists(), "nothing is kept here beside it"
    assert_whole(state(scene.server))
    health = scene.reader.request("GET", "/mcp/health").json()
    assert health["backend_services"]["qdrant"] == "up"
    assert "Qdrant at" in health["details"]["qdrant"]


def go_away(qdrant: QdrantServer, how: str) -> None:
    qdrant.stop() if how == "stopped" else qdrant.hang()


def come_back(qdrant: QdrantServer, how: str) -> None:
    qdrant.start() if how == "stopped" else qdrant.work()


@pytest.mark.parametrize("how", ["stopped", "hanging"])
def test_while_it_is_away_words_answer_and_afterwards_nothing_is_missing(how: str, scene: Scene) -> None:
    reader, qdrant = scene.reader, scene.qdrant
    go_away(qdrant, how)
    took = []
    for _ in range(5):
        found, seconds = asked(reader)
        took.append(seconds)
        assert titles(found)[0] == "Mill"
        assert found["degraded"] is True
        assert "vector store" in str(found["reason"])
    assert took[0] < AWAY_SECONDS, took
    assert max(took[1:]) < AT_ONCE_SECONDS, f"only the first may wait: {took}"
    memories = reader.call("query_memories", query="mill wheel engine")
    assert memories["memories"]
    assert memories["degraded"] is True
    added = reader.note(f"Bakery {how}", f"# Bakery\n\nThe bakery {how} opens its ovens at four.\n")
    eventually(lambda: titles(asked(reader, "ovens of the bakery")[0]), "what is added is found", seconds=10)
    eventually(lambda: reader.info(added)["pending_chunks"] == 1, "and waits for its vector", seconds=10)
    gone = reader.note(f"Gone {how}", "# Gone\n\nThis is deleted while the server is away.\n")
    eventually(lambda: reader.info(gone)["chunk_count"], "it is read", seconds=10)
    assert reader.request("DELETE", f"/api/v1/sources/{gone}/").status_code == 204
    health = eventually(
        lambda: (said := reader.request("GET", "/mcp/health").json())["status"] != "healthy" and said,
        "health tells",
        seconds=10,
    )
    assert health["backend_services"]["qdrant"] == "down"
    assert reader.request("GET", "/readyz").status_code in (200, 503)
    assert reader.request("GET", "/healthz").status_code == 200

    come_back(qdrant, how)
    began = time.monotonic()
    eventually(lambda: not asked(reader)[0]["degraded"], "good answers again", seconds=BACK_SECONDS, pause=0.2)
    reader.wait(added, seconds=BACK_SECONDS)
    found, _ = asked(reader, "When do the ovens start?", mode="semantic")
    assert f"Bakery {how}" in titles(found)
    assert time.monotonic() - began < BACK_SECONDS
    eventually(
        lambda: reader.call("list_knowledge_sources")["index_lag"]["pending_chunks"] == 0,
        "nothing waits any more",
        seconds=BACK_SECONDS,
    )
    assert_whole(state(scene.server))
    assert reader.request("DELETE", f"/api/v1/sources/{added}/").status_code == 204


def lose_everything(scene: Scene) -> None:
    eventually(lambda: not state(scene.server)["pending"], "nothing waits", seconds=BACK_SECONDS)
    qdrant = scene.qdrant
    with qdrant.lock:
        for one in qdrant.data.get_collections().collections:
            qdrant.data.delete_collection(one.name)


def test_a_server_that_lost_everything_is_filled_again_by_a_command(scene: Scene) -> None:
    """Started again with an empty disk."""
    lose_everything(scene)
    found, _ = asked(scene.reader)
    assert titles(found)[0] == "Mill"
    assert found["degraded"] is True
    done = devflow(scene.server.home, "reindex", extra=scene.server.env, timeout=120)
    assert done.returncode == 0, done.stderr
    eventually(lambda: not asked(scene.reader)[0]["degraded"], "whole again", seconds=BACK_SECONDS, pause=0.2)
    assert_whole(state(scene.server))


def test_a_server_that_lost_everything_is_filled_again_with_the_next_write(scene: Scene) -> None:
    """An empty collection made for one row must not pass for the whole index."""
    lose_everything(scene)
    source = scene.reader.note("Kiln", "# Kiln\n\nThe kiln bakes bricks in June.\n")
    scene.reader.call("save_memory", content="The kiln was rebuilt.", category="decision")
    scene.reader.wait(source, seconds=BACK_SECONDS)
    eventually(
        lambda: {"Mill", "Quarry"} <= set(titles(asked(scene.reader, "rye", mode="semantic")[0])),
        "whole again",
        seconds=BACK_SECONDS,
        pause=0.2,
    )
    eventually(lambda: not state(scene.server)["pending"], "nothing waits", seconds=BACK_SECONDS)
    assert_whole(state(scene.server))


def test_a_refused_key_is_told(scene: Scene) -> None:
    scene.qdrant.api_key = "another"
    try:
        found, seconds = asked(scene.reader)
        assert titles(found)[0] == "Mill"
        assert found["degraded"] is True
        assert seconds < AWAY_SECONDS
        assert "sesame" not in str(found)
    finally:
        scene.qdrant.api_key = "sesame"
    eventually(lambda: not asked(scene.reader)[0]["degraded"], "whole again", seconds=BACK_SECONDS, pause=0.2)


def test_the_log_names_no_secret_and_no_traceback(scene: Scene) -> None:
    assert "sesame" not in scene.server.output
    assert "Traceback" not in scene.server.output, scene.server.output[-4000:]
