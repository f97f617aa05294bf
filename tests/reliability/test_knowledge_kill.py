"""kill -9 while sources are read and vectors are made: the next start finishes it, nothing twice, nothing lost."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devflow.config import PROJECT_ROOT
from tests.acceptance.library import eventually, library, write_notes
from tests.reliability.index_state import CHUNKS, DOCUMENTS, UNREAD, WAITING, assert_whole, count, state
from tests.running import RunningServer, devflow, environment, running

pytestmark = pytest.mark.slow

FILES = 60
FINISH_SECONDS = 60


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed") / "notes"
    write_notes(folder, FILES, paragraphs=3)
    (folder / "code.py").write_text('def turn(valve):\n    """Turn it."""\n    return valve.turn()\n')
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 this is no PDF")
    return folder


def settings(roots: Path) -> dict[str, str]:
    return {"DEVFLOW_ALLOWED_ROOTS": str(roots.parent)}


def add(server: RunningServer, roots: Path) -> None:
    with library(server) as reader:
        reader.add("Notes", type="directory", path=str(roots))
        reader.call("save_memory", content="The valves were renumbered in spring.", category="decision")


def until_finished(server: RunningServer) -> dict[str, Any]:
    eventually(
        lambda: count(server, UNREAD) + count(server, WAITING) == 0,
        "the restart finishes what was begun",
        seconds=FINISH_SECONDS,
        pause=0.1,
    )
    return state(server)


@pytest.fixture(scope="module")
def undisturbed(roots: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with running(
        tmp_path_factory.mktemp("undisturbed") / "home", env=settings(roots), arguments=("--no-demo",)
    ) as server:
        make_demo(server)
        add(server, roots)
        found = until_finished(server)
    assert_whole(found)
    assert found["sources"][0]["counted"][:2] == [FILES + 2, 1]
    assert found["points"] == {"knowledge": len(found["chunks"]), "memory": 1}
    return found


def make_demo(server: RunningServer) -> None:
    """A project called demo, without the demo's own sources."""
    server.run_python("from workflow.services import projects; projects.create(slug='demo')")


Moment = Callable[[RunningServer], bool]
MOMENTS: dict[str, Moment] = {
    "half the documents are stored": lambda server: count(server, DOCUMENTS) >= FILES // 2,
    "half the vectors are made": lambda server: (
        count(server, UNREAD) == 0 and 0 < count(server, WAITING) < count(server, CHUNKS) // 2
    ),
}


def kill_at(server: RunningServer, what: str) -> None:
    eventually(lambda: MOMENTS[what](server), what, seconds=FINISH_SECONDS, pause=0.002)
    server.kill()


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_ingestion_is_finished_by_the_next_start(
    moment: str, roots: Path, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with running(home, env=settings(roots), arguments=("--no-demo",)) as server:
        make_demo(server)
        add(server, roots)
        kill_at(server, moment)
    with running(home, env=settings(roots)) as again:
        found = until_finished(again)
        assert_whole(found)
        assert found == undisturbed
        with library(again) as reader:
            hit = reader.search("How often does engine 17 turn for valve 3?")
            assert (hit["degraded"], hit["index_lag"]["pending_chunks"]) == (False, 0)
            assert "engine 17 " in hit["results"][0]["content"]


def test_three_kills_in_a_row_lose_and_double_nothing(roots: Path, undisturbed: dict[str, Any], tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running(home, env=settings(roots), arguments=("--no-demo",)) as server:
        make_demo(server)
        add(server, roots)
        eventually(lambda: count(server, DOCUMENTS) >= 2, "it has begun", seconds=FINISH_SECONDS, pause=0.002)
        server.kill()
    for _ in range(2):
        with running(home, env=settings(roots)) as again:
            again.kill()  # wherever it is just now
    with running(home, env=settings(roots)) as last:
        found = until_finished(last)
    assert_whole(found)
    assert found == undisturbed


@pytest.fixture
def killed_command(roots: Path, tmp_path: Path) -> Iterator[Path]:
    """A data directory in which `devflow ingest` was killed while it read."""
    home = tmp_path / "home"
    with running(home, env=settings(roots), arguments=("--no-demo",)) as server:
        make_demo(server)
    process = subprocess.Popen(
        [sys.executable, "-m", "devflow", "ingest", str(roots), "--title", "Notes"],
        cwd=PROJECT_ROOT,
        env=environment(home, settings(roots)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        eventually(lambda: count(server, DOCUMENTS) >= 5, "the command reads", seconds=FINISH_SECONDS, pause=0.005)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    yield home


def test_a_killed_ingest_command_is_finished_by_the_server(
    roots: Path, undisturbed: dict[str, Any], killed_command: Path
) -> None:
    """And the same directory again, as a source of its own, by a command that ends by itself."""
    with running(killed_command, env=settings(roots)) as server:
        found = until_finished(server)
        assert_whole(found)
        assert found["documents"] == undisturbed["documents"]
        assert found["chunks"] == undisturbed["chunks"]
    done = devflow(killed_command, "ingest", str(roots), "--title", "Again", extra=settings(roots), timeout=120)
    assert done.returncode == 0, done.stderr
    with running(killed_command, env=settings(roots)) as server:
        found = until_finished(server)
    assert_whole(found)
    assert [source["counted"] for source in found["sources"]] == [undisturbed["sources"][0]["counted"]] * 2
