"""A large source embedded by a server outside: what changes is embedded again, and nothing else."""

from collections.abc import Iterator

import pytest

from devflow import config
from devflow.vectors import embedders, index, stores
from devflow.vectors.models import CachedEmbedding, Collection, PendingPoint
from knowledge.models import Chunk
from knowledge.services import sources
from tests.acceptance.outside import MoodyServer
from tests.fakes.openai_server import status
from workflow.models import Project

from .conftest import ADA, Add
from .test_search import ask

CHUNKS = 5000
CHANGED = CHUNKS // 100


@pytest.fixture
def outside(read_at_once: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[MoodyServer]:
    with MoodyServer(dimensions=32) as server:
        embedding = config.Embedding(provider="openai", base_url=server.url, model="bag", batch_size=64)
        conf = config.current().model_copy(update={"embedding": embedding})
        monkeypatch.setattr(config, "current", lambda: conf)
        embedders.forget()
        yield server
        embedders.forget()


def embedded(server: MoodyServer) -> list[str]:
    """The texts it was sent so far, in order."""
    return [text for request in server.requests for text in request.body["input"]]


def section(number: int, word: str = "nut") -> str:
    """A section that is a chunk of its own: smaller ones are put together."""
    return (
        f"## Section {number}\n\nPart {number} is held by {word} number {number * 3}, which is turned {number + 7} "
        f"times by hand, then {number + 2} times by the machine of hall {number % 9}; nobody else may touch it.\n"
    )


@pytest.mark.slow
def test_a_changed_hundredth_of_5000_chunks_embeds_a_hundredth(outside: MoodyServer, add: Add, shop: Project) -> None:
    sections = [section(number) for number in range(CHUNKS)]
    source = add("Parts", "\n".join(sections), type="upload", path="parts.md")
    assert source.chunk_count == Chunk.objects.count() == CHUNKS
    first = [text for text in embedded(outside) if text.startswith("Section")]
    assert len(first) == len(set(first)) == CHUNKS, "each once"

    outside.requests.clear()
    for number in range(0, CHUNKS, 100):
        sections[number] = section(number, "bolt")  # a word,
        if number % 200:
            sections[number] += "\nIt was oiled in May.\n"  # and a paragraph more
    sources.add_files(source=source, files=[("parts.md", ["\n".join(sections).encode()])], actor=ADA)

    again = [text for text in embedded(outside) if text.startswith("Section")]
    assert CHANGED <= len(again) <= CHANGED * 1.1, f"{len(again)} of {CHUNKS} for {CHANGED} changed"
    assert all("bolt" in text for text in again)
    assert not PendingPoint.objects.exists()
    assert stores.store().count(Collection.objects.get(kind="knowledge").name) == CHUNKS
    assert any("bolt" in one["content"] for one in ask(shop, "bolt", top_k=200)["results"])  # type: ignore[attr-defined]

    outside.requests.clear()
    sources.request_run(source=source, actor=ADA, force=True)
    assert embedded(outside) == [], "reading it again as it is costs nothing"


def test_moving_text_about_embeds_nothing(outside: MoodyServer, add: Add) -> None:
    sections = [section(number) for number in range(40)]
    source = add("Parts", "# Parts\n\n" + "\n".join(sections))
    outside.requests.clear()
    sources.rewrite(source=source, content="# Parts\n\n" + "\n".join(reversed(sections)), actor=ADA)
    assert embedded(outside) == []
    lines = list(Chunk.objects.order_by("ordinal").values_list("start_line", flat=True))
    assert lines == sorted(lines)


def test_the_same_text_in_another_source_is_not_embedded_again(outside: MoodyServer, add: Add) -> None:
    add("Parts", section(1))
    outside.requests.clear()
    add("Copy", section(1))
    assert embedded(outside) == []
    assert Chunk.objects.count() == 2


def test_a_fault_in_the_middle_keeps_what_was_embedded(outside: MoodyServer, add: Add, shop: Project) -> None:
    """Batches before the fault are done; the others wait, with the reason, and are made later, once each."""
    outside.patience, outside.mood = 3, status(400, message="no more today")
    add("Parts", "\n".join(section(number) for number in range(200)))
    made = CachedEmbedding.objects.count()
    assert 0 < made < 200
    assert PendingPoint.objects.count() == 200 - made
    collection = Collection.objects.get(kind="knowledge")
    assert "no more today" in collection.fault
    found = ask(shop, "Part 150 is held by nut")
    assert "nut number 450" in str(found["results"])
    assert found["index_lag"]["pending_chunks"] == 200 - made  # type: ignore[index]

    outside.mood = None
    index.drain()
    assert not PendingPoint.objects.exists()
    assert Collection.objects.get(kind="knowledge").fault == ""
    texts = [text for text in embedded(outside) if text.startswith("Section")]
    assert len(set(texts)) == 200
    assert len(texts) <= 200 + 3 * index.BATCH, "only what was refused was sent again"
