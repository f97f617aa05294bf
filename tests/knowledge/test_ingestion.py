"""From a source to rows: incremental, one document at a time, never half done."""

from collections.abc import Callable
from pathlib import Path

import pytest

from devflow import config
from devflow.errors import DevFlowError
from devflow.vectors import index, stores
from devflow.vectors.models import CachedEmbedding, Collection, PendingPoint
from knowledge.models import Chunk, CodeExample, Document, Source
from knowledge.services import documents, ingestion, sources
from workflow.models import Project

from .conftest import ADA, Add

GUIDE = """# Guide

## Caching

Pages are cached for a minute. Call `purge_cache()` after a deployment.

```python
def purge_cache():
    cache.clear()
```

## Retries

Requests are repeated three times, with growing pauses.
"""


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    conf = config.current().model_copy(update={"allowed_roots": [str(tmp_path)]})
    monkeypatch.setattr(config, "current", lambda: conf)
    return tmp_path


def points_in_store() -> set[object]:
    collection = Collection.objects.get(kind="knowledge")
    return {point for point, _ in stores.store().scroll(collection.name)}


def points_of_rows() -> set[object]:
    return set(Chunk.objects.values_list("point", flat=True))


def test_a_text_becomes_a_document_chunks_examples_and_points(add: Add) -> None:
    source = add("Guide", GUIDE)

    assert source.status == Source.Status.ACTIVE
    document = Document.objects.get()
    assert document.status == Document.Status.INDEXED
    assert (source.document_count, source.chunk_count) == (1, Chunk.objects.count())
    lines = document.text.split("\n")
    for chunk in Chunk.objects.all():
        assert chunk.text.strip() in "\n".join(lines[chunk.start_line - 1 : chunk.end_line])
    example = CodeExample.objects.get()
    assert example.language == "python"
    assert lines[example.start_line - 1 : example.end_line] != []
    assert points_in_store() == points_of_rows()
    assert not PendingPoint.objects.exists()


def test_reading_again_changes_nothing_and_embeds_nothing(add: Add) -> None:
    source = add("Guide", GUIDE)
    before = set(Chunk.objects.values_list("pk", "point"))
    embedded = CachedEmbedding.objects.count()

    sources.request_run(source=source, actor=ADA)
    sources.request_run(source=source, actor=ADA, force=True)

    assert set(Chunk.objects.values_list("pk", "point")) == before
    assert CachedEmbedding.objects.count() == embedded
    source.refresh_from_db()
    assert (source.status, source.document_count, source.chunk_count) == ("active", 1, len(before))


def test_a_changed_paragraph_makes_only_its_own_chunk_anew(add: Add) -> None:
    source = add("Guide", GUIDE)
    before = dict(Chunk.objects.values_list("point", "pk"))

    sources.rewrite(source=source, content=GUIDE.replace("three times", "five times"), actor=ADA)

    after = dict(Chunk.objects.values_list("point", "pk"))
    assert len(before.keys() - after.keys()) == 1
    assert all(after[point] == pk for point, pk in before.items() if point in after)
    assert points_in_store() == points_of_rows()


def test_a_file_that_is_gone_leaves_rows_index_and_counts(roots: Path, add: Add) -> None:
    (roots / "a.md").write_text(GUIDE)
    (roots / "b.md").write_text("# Other\n\nSomething else entirely.\n")
    source = add("Docs", type="directory", path=str(roots))
    assert source.document_count == 2

    (roots / "a.md").unlink()
    sources.request_run(source=source, actor=ADA)

    source.refresh_from_db()
    assert (source.document_count, source.chunk_count, source.example_count) == (1, 1, 0)
    assert points_in_store() == points_of_rows()


def test_a_broken_document_says_why_and_the_others_go_on(roots: Path, add: Add) -> None:
    (roots / "good.md").write_text(GUIDE)
    (roots / "bad.pdf").write_bytes(b"%PDF-1.7 this is no PDF")
    (roots / "bad.docx").write_bytes(b"PK\x03\x04 broken")
    source = add("Docs", type="directory", path=str(roots))

    assert source.status == Source.Status.ACTIVE
    assert (source.document_count, source.failed_count) == (3, 2)
    failed = Document.objects.filter(status="error")
    assert all(document.error for document in failed)
    assert "bad.docx" in source.error


def test_a_document_that_breaks_keeps_what_was_indexed_of_it(roots: Path, add: Add) -> None:
    (roots / "a.md").write_text(GUIDE)
    source = add("Docs", type="directory", path=str(roots))
    chunks = source.chunk_count

    (roots / "a.md").write_bytes(b"\x00\x01\x02\xff" * 100)
    sources.request_run(source=source, actor=ADA)
    source.refresh_from_db()
    assert (source.failed_count, source.chunk_count, source.status) == (1, chunks, "error")

    (roots / "a.md").write_text(GUIDE)
    sources.retry_failed(source=source, actor=ADA)
    source.refresh_from_db()
    assert (source.failed_count, source.chunk_count, source.status) == (0, chunks, "active")


def test_a_paused_source_waits_and_goes_on_where_it_was(add: Add, monkeypatch: pytest.MonkeyPatch) -> None:
    source = add("Guide", GUIDE)
    sources.pause(source=source, actor=ADA)
    Source.objects.filter(pk=source.pk).update(run_wanted=True)

    assert ingestion.claim() is None
    with pytest.raises(DevFlowError, match="paused already"):
        sources.pause(source=source, actor=ADA)

    sources.resume(source=source, actor=ADA)
    source.refresh_from_db()
    assert source.status == "active"


def test_only_one_process_reads_a_source_and_a_silent_one_is_replaced(add: Add) -> None:
    source = add("Guide", GUIDE)
    Source.objects.filter(pk=source.pk).update(run_wanted=True, status="pending")

    first = ingestion.claim()
    assert first is not None
    assert ingestion.claim() is None

    ingestion.forget_beats()
    second = ingestion.claim()
    assert second is not None
    ingestion.read(second, stop=lambda: False)
    source.refresh_from_db()
    assert (source.status, source.run_wanted) == ("active", False)


def test_a_reading_that_was_stopped_is_finished_by_the_next(roots: Path, add: Add) -> None:
    for number in range(6):
        (roots / f"{number}.md").write_text(f"# Note {number}\n\nText number {number} of the notes.\n")
    source = add("Docs", type="directory", path=str(roots))
    Document.objects.filter(source=source).delete()
    Source.objects.filter(pk=source.pk).update(run_wanted=True, run=2, document_count=0, chunk_count=0)
    countdown = iter([False] * 3 + [True] * 100)

    claimed = ingestion.claim()
    assert claimed is not None
    ingestion.read(claimed, stop=lambda: next(countdown))
    assert Document.objects.count() == 3

    claimed = ingestion.claim()
    assert claimed is not None
    ingestion.read(claimed, stop=lambda: False)
    source.refresh_from_db()
    assert (source.status, source.document_count, source.chunk_count) == ("active", 6, Chunk.objects.count())


def test_deleting_a_source_leaves_nothing_to_find(add: Add, shop: Project) -> None:
    source = add("Guide", GUIDE)
    sources.delete(source=source, actor=ADA)

    assert not Chunk.objects.exists()
    assert points_in_store() == set()
    assert not (config.home() / "uploads" / str(source.pk)).exists()


def test_a_source_deleted_while_it_is_read_stays_deleted(roots: Path, add: Add) -> None:
    for number in range(4):
        (roots / f"{number}.md").write_text(f"# Note {number}\n\nText {number}.\n")
    source = add("Docs", type="directory", path=str(roots))
    Source.objects.filter(pk=source.pk).update(run_wanted=True, run_force=True, run=2)
    claimed = ingestion.claim()
    assert claimed is not None
    deleted: list[bool] = []

    def stop() -> bool:
        if not deleted:
            sources.delete(source=source, actor=ADA)
            deleted.append(True)
        return False

    ingestion.read(claimed, stop=stop)

    assert not Source.objects.exists()
    assert not Chunk.objects.exists()


def test_deleting_a_document_of_an_upload_takes_its_file_along(add: Add) -> None:
    source = add("Guide", GUIDE, type="upload", path="guide.md")
    sources.delete_document(document=Document.objects.get(), actor=ADA)
    sources.request_run(source=source, actor=ADA)

    source.refresh_from_db()
    assert (source.document_count, source.chunk_count) == (0, 0)
    assert points_in_store() == set()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"type": "manual"}, "content"),
        ({"type": "web", "content": "x"}, "url"),
        ({"type": "web", "url": "file:///etc/passwd"}, "http"),
        ({"type": "web", "url": "http://169.254.169.254/latest"}, ""),
        ({"type": "directory", "path": "/etc"}, "DEVFLOW_ALLOWED_ROOTS"),
        ({"type": "manual", "content": "x", "options": {"max_pages": 3}}, "options"),
        ({"type": "web", "url": "https://example.org/", "options": {"depth": 3}}, "depth"),
        ({"type": "web", "url": "https://example.org/", "options": {"max_pages": -1}}, "max_pages"),
    ],
)
def test_what_does_not_go_together_is_refused_and_makes_nothing(given: dict[str, object], said: str, add: Add) -> None:
    with pytest.raises(DevFlowError) as refused:
        add("Nothing", **given)
    assert said in f"{refused.value.message} {refused.value.suggestion}"
    assert not Source.objects.exists()


def test_one_percent_of_changes_embeds_about_one_percent(add: Add) -> None:
    def part(number: int) -> str:
        facts = " ".join(f"Fact {fact} of part {number} speaks of topic {number * fact}." for fact in range(14))
        return f"## Part {number}\n\n{facts}"

    parts = [part(number) for number in range(100)]
    source = add("Many", "\n\n".join(parts))
    made = CachedEmbedding.objects.count()
    assert made >= 100

    parts[50] = parts[50].replace("Fact 3 ", "The third fact, put in other words, ")
    sources.rewrite(source=source, content="\n\n".join(parts), actor=ADA)

    assert 1 <= CachedEmbedding.objects.count() - made <= 3


def test_counts_are_those_of_the_rows_after_everything(add: Add, roots: Path) -> None:
    (roots / "a.md").write_text(GUIDE)
    (roots / "b.md").write_bytes(b"\x00\xff" * 50)
    source = add("Docs", type="directory", path=str(roots))
    (roots / "c.py").write_text("def purge():\n    return 1\n")
    (roots / "a.md").write_text(GUIDE + "\n## More\n\nText.\n")
    sources.request_run(source=source, actor=ADA)
    source.refresh_from_db()

    assert source.document_count == Document.objects.count()
    assert source.failed_count == Document.objects.filter(status="error").count()
    assert source.chunk_count == Chunk.objects.count()
    assert source.example_count == CodeExample.objects.count()


def test_progress_is_told_and_a_whole_run_ends_complete(roots: Path, add: Add, heard: Callable[[], list[str]]) -> None:
    for number in range(5):
        (roots / f"{number}.md").write_text(f"# Note {number}\n\nText.\n")
    source = add("Docs", type="directory", path=str(roots))

    assert (source.run_done, source.run_total, source.run_wanted) == (5, 5, False)
    assert {"source.created", "source.progress", "source.updated"} <= set(heard())


def test_a_lost_store_is_found_and_filled_again(add: Add) -> None:
    add("Guide", GUIDE)
    collection = Collection.objects.get(kind="knowledge")
    stores.store().drop(collection.name)

    assert index.reconcile("knowledge", thoroughly=False) == Chunk.objects.count()
    index.drain()

    assert points_in_store() == points_of_rows()


def test_reconciling_removes_what_has_no_row_and_renews_what_differs(add: Add) -> None:
    add("Guide", GUIDE)
    add("Other", "# Other\n\nSomething else entirely.\n")
    kept, changed = Chunk.objects.order_by("pk")[:2]
    Chunk.objects.filter(pk=changed.pk).update(hash="0" * 64)
    Chunk.objects.filter(pk=kept.pk).delete()

    assert index.reconcile("knowledge") == 2
    index.drain()

    assert points_in_store() == points_of_rows()
    assert index.reconcile("knowledge") == 0


def test_a_document_longer_than_memory_of_its_path_is_left_out(roots: Path, add: Add) -> None:
    deep = roots
    for _ in range(6):
        deep = deep / ("d" * 200)
    deep.mkdir(parents=True)
    (deep / "a.md").write_text("# Deep\n\nText.\n")
    (roots / "b.md").write_text("# Shallow\n\nText.\n")
    source = add("Docs", type="directory", path=str(roots))

    assert source.document_count == 1
    assert documents.MAX_PATH_BYTES == 1000
