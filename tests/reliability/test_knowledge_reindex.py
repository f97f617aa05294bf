"""A lost or damaged vector directory: the rows bring the same answers back, by a start or by `devflow reindex`."""

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.library import Library, eventually, library, write_notes
from tests.reliability.index_state import assert_whole, state
from tests.running import RunningServer, devflow, running

pytestmark = pytest.mark.slow

QUESTIONS = (
    "How often does engine 3 turn for valve 1?",
    "fact 5 of part 2",
    "authentication patterns",
    "is_genuine",
    "What happens to a refund that exceeds the charge?",
    "engine turning",
)
MODES = ("semantic", "hybrid")
Asked = dict[str, Any]


def answers(reader: Library) -> Asked:
    """What is found, in order, with scores to three digits; by every mode, in memories too."""
    found: Asked = {}
    for question in QUESTIONS:
        for mode in MODES:
            answer = reader.search(question, mode=mode, top_k=10)
            assert not answer["degraded"], answer["reason"]
            found[f"{mode}: {question}"] = [
                (hit["metadata"]["document_id"], hit["metadata"]["lines"], round(hit["score"], 3))
                for hit in answer["results"]
            ]
        recalled = reader.call("query_memories", query=question)
        assert not recalled["degraded"], recalled["reason"]
        memories = recalled["memories"]
        found[f"memories: {question}"] = [(one["memory_id"], round(one["score"], 3)) for one in memories]
        code = reader.call("get_code_examples", topic=question)["examples"]
        found[f"code: {question}"] = [(one["metadata"]["document_id"], one["metadata"]["lines"]) for one in code]
    return found


def same(before: Asked, after: Asked) -> None:
    assert before.keys() == after.keys()
    for question, found in before.items():
        assert after[question] == found, question


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    notes = tmp_path_factory.mktemp("reindexed") / "notes"
    write_notes(notes, 12, paragraphs=3)
    return notes


@pytest.fixture(scope="module")
def filled(folder: Path) -> Iterator[tuple[Path, Asked]]:
    """A data directory nobody serves, and what it answered when it was whole."""
    home = folder.parent / "home"
    with running(home, env=roots(folder)) as server, library(server) as reader:
        reader.read("Notes", type="directory", path=str(folder))
        reader.wait_for_all()
        yield_this = answers(reader)
    yield home, yield_this


def roots(folder: Path) -> dict[str, str]:
    return {"DEVFLOW_ALLOWED_ROOTS": str(folder.parent)}


def whole_again(server: RunningServer, before: Asked) -> None:
    with library(server) as reader:
        eventually(
            lambda: (
                not reader.search("anything")["degraded"]
                and reader.call("list_knowledge_sources")["index_lag"]["pending_chunks"] == 0
            ),
            "the index is whole again",
            pause=0.2,
        )
        assert_whole(state(server))
        same(before, answers(reader))


def deleted(vectors: Path) -> None:
    shutil.rmtree(vectors)


def truncated(vectors: Path) -> None:
    for path in vectors.rglob("*"):
        if path.is_file() and path.stat().st_size and path.name not in ("owner.lock", "owner.json"):
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def half_deleted(vectors: Path) -> None:
    for name in vectors.glob("*/live.json"):
        name.unlink()


DAMAGES: dict[str, Callable[[Path], None]] = {
    "deleted": deleted,
    "half deleted": half_deleted,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_start_brings_the_same_answers_back(damage: str, folder: Path, filled: tuple[Path, Asked]) -> None:
    home, before = filled
    DAMAGES[damage](home / "vectors")
    with running(home, env=roots(folder)) as server:
        whole_again(server, before)


@pytest.mark.parametrize("damage", [deleted, truncated])
def test_reindex_without_a_server_brings_the_same_answers_back(
    damage: Callable[[Path], None], folder: Path, filled: tuple[Path, Asked]
) -> None:
    home, before = filled
    damage(home / "vectors")
    done = devflow(home, "reindex", extra=roots(folder), timeout=120)
    assert done.returncode == 0, done.stderr
    assert "complete" in done.stdout
    with running(home, env=roots(folder)) as server:
        whole_again(server, before)


def test_reindex_with_a_running_server_brings_the_same_answers_back_while_it_answers(
    folder: Path, filled: tuple[Path, Asked]
) -> None:
    home, before = filled
    with running(home, env=roots(folder)) as server:
        whole_again(server, before)
        with library(server) as reader:
            done = devflow(home, "reindex", "--no-wait", extra=roots(folder), timeout=120)
            assert done.returncode == 0, done.stderr
            during = reader.search("authentication patterns")
            assert during["results"], "keywords answer meanwhile"
            done = devflow(home, "reindex", extra=roots(folder), timeout=120)
            assert done.returncode == 0, done.stderr
        whole_again(server, before)


def test_a_directory_deleted_under_a_running_server_is_made_anew(folder: Path, filled: tuple[Path, Asked]) -> None:
    home, before = filled
    with running(home, env=roots(folder)) as server:
        whole_again(server, before)
        shutil.rmtree(home / "vectors")
        with library(server) as reader:
            found = reader.search("authentication patterns, again")
            assert found["results"], "keywords answer"
        done = devflow(home, "reindex", extra=roots(folder), timeout=120)
        assert done.returncode == 0, done.stderr
        whole_again(server, before)
        assert server.stop(signal.SIGTERM) == 0


def test_a_start_over_damaged_files_answers_by_keywords_and_names_the_way_out(
    folder: Path, filled: tuple[Path, Asked]
) -> None:
    home, before = filled
    truncated(home / "vectors")
    with running(home, env=roots(folder)) as server:
        with library(server) as reader:
            found = reader.search("authentication patterns")
            assert found["results"]
            if found["degraded"]:
                assert "devflow reindex" in found["reason"]
        done = devflow(home, "reindex", extra=roots(folder), timeout=120)
        assert done.returncode == 0, done.stderr
        whole_again(server, before)
