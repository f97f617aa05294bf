"""Several processes share the embedded vectors: one owns them, and when it is killed another takes its place."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.acceptance.library import Library, eventually, job_worker, library, write_notes
from tests.conftest import StartServer
from tests.reliability.index_state import assert_whole, state
from tests.running import RunningServer

pytestmark = [pytest.mark.slow, pytest.mark.postgres, pytest.mark.redis]

READERS = 8
AGAIN_SECONDS = 60.0
"""It takes a few; a machine that does other work too adds its own."""
QUESTION = "How often does engine 7 turn for valve 1?"


@dataclass
class Scene:
    server: RunningServer
    folder: Path
    readers: list[Library] = field(default_factory=list)

    @property
    def owner(self) -> int:
        """The process that has the vectors open; waits while another takes them over."""
        lock = self.server.home / "vectors" / "owner.lock"
        return int(eventually(lambda: lock.exists() and lock.read_text(), "the owner wrote its number down"))


@contextmanager
def scaled(start_server: StartServer, tmp_path: Path, postgres_url: str, redis_url: str) -> Iterator[Scene]:
    """Two server processes on PostgreSQL and Redis, with connections that reach both."""
    folder = tmp_path / "notes"
    write_notes(folder, 16, paragraphs=3)
    env = {
        "DEVFLOW_DATABASE_URL": postgres_url,
        "DEVFLOW_REDIS_URL": redis_url,
        "DEVFLOW_ALLOWED_ROOTS": str(tmp_path),
        "DEVFLOW_CACHE_ENABLED": "false",
    }
    with ExitStack() as stack:
        server = start_server(workers=2, env=env, arguments=("--no-demo",))
        server.run_python("from workflow.services import projects; projects.create(slug='demo')")
        readers = [stack.enter_context(library(server, name=f"reader-{number}")) for number in range(READERS)]
        yield Scene(server, folder, readers)


def all_answer(scene: Scene) -> bool:
    """Whether every connection finds it, by meaning too. One into a process that is just dying is opened again."""
    for number, reader in enumerate(scene.readers):
        try:
            found = reader.search(f"{QUESTION} {number} {time.monotonic_ns()}")
        except httpx.TransportError:
            reader.reopen()
            return False
        if found["degraded"] or "engine 7 " not in found["results"][0]["content"]:
            return False
    return True


def reopen(scene: Scene) -> None:
    for reader in scene.readers:
        reader.reopen()


def kill_the_owner(scene: Scene) -> None:
    """kill -9, and then every connection is answered well again."""
    killed = scene.owner
    os.kill(killed, signal.SIGKILL)
    reopen(scene)
    eventually(lambda: all_answer(scene), "everybody is answered again", seconds=AGAIN_SECONDS, pause=0.1)
    assert scene.owner != killed


def test_one_process_owns_the_vectors_and_its_end_loses_nothing(
    start_server: StartServer, tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    with scaled(start_server, tmp_path, postgres_url, redis_url) as scene:
        assert scene.readers[0].request("GET", "/mcp/health").json()["backend_services"]["qdrant"] == "up"
        first = scene.owner
        with job_worker(scene.server) as worker:
            assert first not in (worker.pid, scene.server.pid), "a server process was asked first"
            source = scene.readers[0].read("Notes", type="directory", path=str(scene.folder))
            eventually(lambda: all_answer(scene), "everybody is answered", seconds=AGAIN_SECONDS, pause=0.1)
            before = state(scene.server)
            assert_whole(before)

            kill_the_owner(scene)  # a process that serves; the supervisor starts another
            after = state(scene.server)
            assert after == before

            kill_while_vectors_are_made(scene)
            assert scene.readers[1].request("DELETE", f"/api/v1/sources/{source}/").status_code == 204
            eventually(lambda: state(scene.server)["pending"] == 0, "deletions reach the vectors", pause=0.2)
            assert_whole(state(scene.server))


def kill_while_vectors_are_made(scene: Scene) -> None:
    more = scene.folder.parent / "more"
    write_notes(more, 30, paragraphs=4)
    source = scene.readers[2].add("More", type="directory", path=str(more))
    info = eventually(
        lambda: (info := scene.readers[2].info(source))["pending_chunks"] > 10 and info, "vectors are made", pause=0.01
    )
    assert info["pending_chunks"]
    kill_the_owner(scene)
    # What the killed process had reserved waits a minute for it.
    eventually(
        lambda: scene.readers[2].is_read(source), "what was begun is finished", seconds=90 + AGAIN_SECONDS, pause=0.2
    )
    assert_whole(state(scene.server))


def test_a_killed_job_worker_that_owned_the_vectors_is_replaced_by_a_server(
    start_server: StartServer, tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    with scaled(start_server, tmp_path, postgres_url, redis_url) as scene:
        with job_worker(scene.server) as worker:
            scene.readers[0].read("Notes", type="directory", path=str(scene.folder))
            before = state(scene.server)
            os.kill(scene.owner, signal.SIGKILL)  # a server process: its first call asked for the vectors
            reopen(scene)
            last = scene.readers[1].note("Last", "# Last\n\nThe worker is the first to need the vectors now.\n")
            eventually(lambda: scene.owner == worker.pid, "the worker owns them", pause=0.1)
            worker.kill()
            worker.wait(10)
        reopen(scene)
        eventually(lambda: all_answer(scene), "everybody is answered", seconds=AGAIN_SECONDS, pause=0.1)
        saved = scene.readers[0].call("save_memory", content="Nobody runs the jobs just now.", category="decision")
        found = scene.readers[1].call("query_memories", query="Who runs the jobs?")
        assert [one["memory_id"] for one in found["memories"]] == [saved["memory_id"]]
        with job_worker(scene.server):
            # What the killed worker had reserved waits a minute for it.
            eventually(
                lambda: scene.readers[0].is_read(last), "a new worker ends it", seconds=90 + AGAIN_SECONDS, pause=0.2
            )
            eventually(lambda: state(scene.server)["pending"] == 0, "a new worker makes its vector", pause=0.2)
            after = state(scene.server)
            assert_whole(after)
            assert len(after["chunks"]) == len(before["chunks"]) + 1
