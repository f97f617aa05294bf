"""What was deleted is gone from every answer within a second, over real HTTP and on every worker."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.acceptance.conftest import make_projects
from tests.acceptance.library import Library, job_worker, library
from tests.conftest import StartServer
from tests.running import RunningServer, running

GONE_SECONDS = 1.0
MODES = ("semantic", "hybrid", "reranked")
WORD = "quicksilver"


def text_about(part: str) -> str:
    return f"""# The {WORD} pump

## {part}

The {WORD} pump of {part} is opened by hand. Use this:

```python
def open_{WORD}_{part}(valve):
    return valve.open()
```
"""


def seen(reader: Library, document: str, source: str) -> dict[str, str]:
    """Every way to see something of a document or source, as the text of the answer."""
    ways: dict[str, Callable[[], str]] = {
        **{
            mode: lambda mode=mode: (
                reader.post(  # type: ignore[misc]  # a default binds it
                    "search_knowledge",
                    {"query": f"open the {WORD} pump", "mode": mode, "include_code_examples": True},
                ).text
            )
            for mode in MODES
        },
        "filtered": lambda: str(reader.search(f"{WORD} pump", filters={"has_code": True, "tags": ["pumps"]})),
        "code": lambda: reader.post("get_code_examples", {"topic": f"open the {WORD} pump"}).text,
        "document": lambda: str(reader.resource(f"devflow://document/{document}")),
        "rest search": lambda: reader.request("GET", "/api/v1/knowledge/search/?q=opened+by+hand").text,
        "chunks": lambda: reader.request("GET", f"/api/v1/chunks/?source={source}").text,
        "examples": lambda: reader.request("GET", f"/api/v1/code-examples/?source={source}").text,
    }
    return {name: way() for name, way in ways.items()}


def until_gone(look: Callable[[], dict[str, str]], word: str) -> float:
    """Seconds until no answer has the word any more; fails after a second."""
    began = time.monotonic()
    while True:
        asked = time.monotonic()
        left = {name for name, text in look().items() if word in text}
        if not left:
            return asked - began
        assert asked - began < GONE_SECONDS, f"{word} is still in {left}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("deletion") / "home", arguments=("--no-demo",)) as started:
        make_projects(started, "pumps-", 4)
        yield started


def two_documents(reader: Library) -> tuple[str, str, str]:
    """An upload of two files about two parts; gives the source and its documents."""
    sent = reader.upload({"east.md": text_about("east").encode(), "west.md": text_about("west").encode()}, tags="pumps")
    assert sent.status_code == 201, sent.text
    source = sent.json()["source_id"]
    reader.wait(source)
    known = {one["path"]: one["id"] for one in reader.info(source)["documents"]}
    return source, known["east.md"], known["west.md"]


def delete(reader: Library, path: str) -> None:
    deleted = reader.request("DELETE", path)
    assert deleted.status_code == 204, deleted.text


def test_a_deleted_document_is_gone_from_every_answer(server: RunningServer) -> None:
    with library(server, "pumps-0") as reader:
        source, east, _ = two_documents(reader)
        for _ in range(2):  # the second time from the cache
            assert all("east" in text for text in seen(reader, east, source).values())
        delete(reader, f"/api/v1/documents/{east}/")
        until_gone(lambda: seen(reader, east, source), f"open_{WORD}_east")
        left = seen(reader, east, source)
        assert all("west" in text for name, text in left.items() if name != "document"), left
        assert "error" in reader.resource(f"devflow://document/{east}")
        info = reader.info(source)
        assert (info["document_count"], info["chunk_count"]) == (1, len(chunks(reader, source)))


def chunks(reader: Library, source: str) -> list[str]:
    return [one["text"] for one in reader.request("GET", f"/api/v1/chunks/?source={source}").json()["results"]]


def test_a_deleted_source_is_gone_from_every_answer(server: RunningServer) -> None:
    with library(server, "pumps-1") as reader:
        source, east, west = two_documents(reader)
        for _ in range(2):
            assert all(WORD in text for text in seen(reader, west, source).values())
        delete(reader, f"/api/v1/sources/{source}/")
        until_gone(lambda: seen(reader, east, source), f"open_{WORD}")
        assert "error" in reader.resource(f"devflow://source/{source}")
        assert reader.call("list_knowledge_sources")["sources"] == []
        assert reader.request("GET", f"/api/v1/sources/{source}/").status_code == 404


def memories_seen(reader: Library, memory: str) -> dict[str, str]:
    return {
        "query": reader.post("query_memories", {"query": f"the {WORD} smell"}).text,
        "filtered": reader.post("query_memories", {"query": "smell", "category": "problem", "tags": ["air"]}).text,
        "resource": str(reader.resource(f"devflow://memory/{memory}")),
        "list": reader.request("GET", "/api/v1/memories/").text,
        "asked list": reader.request("GET", "/api/v1/memories/?q=smell").text,
    }


def test_a_deleted_memory_is_gone_from_every_answer(server: RunningServer) -> None:
    with library(server, "pumps-2") as reader:
        made = reader.call("save_memory", content=f"The {WORD} smell comes at noon.", category="problem", tags=["air"])
        reader.call("save_memory", content="The smell of pines is harmless.", category="problem", tags=["air"])
        memory = made["memory_id"]
        for _ in range(2):
            assert all(WORD in text for text in memories_seen(reader, memory).values())
        reader.call("delete_memory", memory_id=memory)
        until_gone(lambda: memories_seen(reader, memory), WORD)
        assert "pines" in reader.post("query_memories", {"query": "smell"}).text
        similar = reader.call("save_memory", content=f"The {WORD} smell comes at noon.", category="problem")["similar"]
        assert similar == []


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.redis
def test_what_one_worker_deletes_is_gone_on_all_of_them(
    start_server: StartServer, postgres_url: str, redis_url: str
) -> None:
    """Many connections, so that both processes answer and have the answers in their caches."""
    env = {"DEVFLOW_DATABASE_URL": postgres_url, "DEVFLOW_REDIS_URL": redis_url}
    with ExitStack() as stack:
        server = start_server(workers=2, env=env, arguments=("--no-demo",))
        stack.enter_context(job_worker(server))
        make_projects(server, "pumps-", 1)
        readers = [stack.enter_context(library(server, "pumps-0", name=f"reader-{n}")) for n in range(8)]
        source, east, _ = two_documents(readers[0])
        memory = readers[0].call("save_memory", content=f"The {WORD} smell.", category="problem", tags=["air"])
        number = memory["memory_id"]
        for reader in readers:
            for _ in range(2):
                assert all("east" in text for text in seen(reader, east, source).values())
                assert all(WORD in text for text in memories_seen(reader, number).values())

        delete(readers[0], f"/api/v1/documents/{east}/")
        asked = f"open the {WORD} pump"

        def answers() -> dict[str, str]:
            return {
                f"{mode} {place}": reader.post(
                    "search_knowledge", {"query": asked, "mode": mode, "include_code_examples": True}
                ).text
                for place, reader in enumerate(readers)
                for mode in MODES
            }

        until_gone(answers, f"open_{WORD}_east")
        for reader in readers:
            left = seen(reader, east, source)
            assert not any(f"open_{WORD}_east" in text for text in left.values())
        readers[1].call("delete_memory", memory_id=number)
        for reader in readers:
            until_gone(lambda reader=reader: memories_seen(reader, number), WORD)  # type: ignore[misc]  # a default binds it
