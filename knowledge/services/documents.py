"""One document: from its bytes to rows. What did not change keeps its chunks, and chunks that say the same keep
their vectors."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from devflow.vectors import embedders, index
from devflow.vectors.terms import split_identifiers
from knowledge.indexing.chunking import Piece, chunk
from knowledge.indexing.examples import Example, extract
from knowledge.indexing.parsed import Parsed, ParseError, parse
from knowledge.models import Chunk, CodeExample, Document, Source
from knowledge.selectors.sources import KIND

PARSER = 1
"""Raise it when parsing or chunking changes: the next ingestion reads unchanged documents anew."""

MAX_PATH_BYTES = 1000
_BATCH = 500


class SourceGoneError(Exception):
    """The source was deleted or paused while it was being read."""


@dataclass(frozen=True, slots=True)
class Read:
    """What was read for a document. `modified` is a Last-Modified header or a file's time as text."""

    path: str
    data: bytes
    media_type: str = ""
    etag: str = ""
    modified: str = ""


def is_unchanged(document: Document | None, read: Read) -> bool:
    return (
        document is not None
        and document.status == Document.Status.INDEXED
        and document.parser == PARSER
        and document.raw_hash == hashlib.sha256(read.data).hexdigest()
    )


def store(*, source_id: int, run: int, read: Read, force: bool = False) -> bool:
    """Bring one document up to date; False when there was nothing to do. Raises `ParseError`, `SourceGoneError`."""
    known = Document.objects.filter(source_id=source_id, path=read.path)
    if not force and is_unchanged(known.defer("text").first(), read):
        known.update(seen_in_run=run, etag=read.etag[:200], modified=read.modified[:100])
        return False
    parsed = parse(read.data, name=read.path, media_type=read.media_type)
    pieces = chunk(parsed, count_tokens=embedders.current().count_tokens, limit=_limit())
    _write(source_id, run, read, parsed, pieces, extract(parsed))
    return True


def _limit() -> int:
    return min(240, embedders.current().max_tokens - 16)


@transaction.atomic
def _write(source_id: int, run: int, read: Read, parsed: Parsed, pieces: list[Piece], examples: list[Example]) -> None:
    source = lock(source_id)
    known = Document.objects.filter(source=source, path=read.path).defer("text").first()
    document = known or Document(source=source, project_id=source.project_id, path=read.path)
    old_chunks, old_examples = (known.chunks.count(), known.examples.count()) if known else (0, 0)
    had_failed = document.status == Document.Status.ERROR
    document.title = parsed.title[:500]
    document.status, document.error = Document.Status.INDEXED, ""
    document.media_type, document.language = read.media_type[:200], parsed.language
    document.text, document.pages = parsed.text, list(parsed.pages)
    document.raw_hash = hashlib.sha256(read.data).hexdigest()
    document.text_hash = hashlib.sha256(parsed.text.encode()).hexdigest()
    document.parser, document.size = PARSER, len(read.data)
    document.etag, document.modified = read.etag[:200], read.modified[:100]
    document.seen_in_run, document.indexed_at = run, timezone.now()
    document.save()
    _replace_chunks(source, document, pieces)
    _replace_examples(source, document, examples)
    count(
        source_id,
        documents=int(known is None),
        failed=-int(had_failed),
        chunks=len(pieces) - old_chunks,
        examples=len(examples) - old_examples,
    )


def lock(source_id: int) -> Source:
    """The source's row, held until the transaction ends. Raises `SourceGoneError`."""
    source = Source.objects.select_for_update().filter(pk=source_id).first()
    if source is None or source.status == Source.Status.PAUSED:
        raise SourceGoneError
    return source


def count(source_id: int, *, documents: int = 0, failed: int = 0, chunks: int = 0, examples: int = 0) -> None:
    """Add to the source's counts, and say that answers from it may have changed."""
    Source.objects.filter(pk=source_id).update(
        document_count=F("document_count") + documents,
        failed_count=F("failed_count") + failed,
        chunk_count=F("chunk_count") + chunks,
        example_count=F("example_count") + examples,
        revision=F("revision") + 1,
        updated_at=timezone.now(),
    )


def _digest(piece: Piece) -> str:
    return hashlib.sha256(piece.embed_text.encode()).hexdigest()


def _replace_chunks(source: Source, document: Document, pieces: list[Piece]) -> None:
    known = {chunk.point: chunk for chunk in document.chunks.all()}
    seen: Counter[str] = Counter()
    fresh: list[Chunk] = []
    moved: list[Chunk] = []
    for ordinal, piece in enumerate(pieces):
        digest = _digest(piece)
        point = Chunk.point_of(document_id=document.pk, digest=digest, occurrence=seen[digest])
        seen[digest] += 1
        place = {"ordinal": ordinal, "start_line": piece.start_line, "end_line": piece.end_line}
        if (row := known.pop(point, None)) is not None:
            if any(getattr(row, name) != value for name, value in place.items()):
                for name, value in place.items():
                    setattr(row, name, value)
                moved.append(row)
            continue
        heading = " > ".join(piece.heading)
        fresh.append(
            Chunk(
                project_id=source.project_id,
                source=source,
                document=document,
                point=point,
                heading=heading,
                text=piece.text,
                keywords=split_identifiers(f"{heading}\n{piece.text}"),
                tokens=min(piece.tokens, 32767),
                hash=digest,
                symbols=list(piece.symbols),
                languages=list(piece.languages),
                has_code=bool(piece.languages),
                **place,
            )
        )
    Chunk.objects.filter(pk__in=[row.pk for row in known.values()]).delete()
    Chunk.objects.bulk_create(fresh, batch_size=_BATCH)
    Chunk.objects.bulk_update(moved, ["ordinal", "start_line", "end_line"], batch_size=_BATCH)
    index.touch(KIND, [*(row.point for row in fresh), *known])


def _replace_examples(source: Source, document: Document, examples: list[Example]) -> None:
    document.examples.all().delete()
    CodeExample.objects.bulk_create(
        [
            CodeExample(
                project_id=source.project_id,
                source=source,
                document=document,
                code=example.code,
                language=example.language[:40],
                context=example.context,
                symbols=list(example.symbols),
                start_line=example.start_line,
                end_line=example.end_line,
                hash=hashlib.sha256(example.code.encode()).hexdigest(),
                is_valid=example.is_valid,
            )
            for example in examples
        ],
        batch_size=_BATCH,
    )


@transaction.atomic
def fail(*, source_id: int, run: int, path: str, error: str) -> None:
    """Record why a document could not be read. What was indexed of it before stays, and counts as stale."""
    source = lock(source_id)
    document, made = Document.objects.get_or_create(
        source=source, path=path, defaults={"project_id": source.project_id, "status": Document.Status.PENDING}
    )
    had_failed = document.status == Document.Status.ERROR
    document.status, document.error, document.seen_in_run = Document.Status.ERROR, error[:2000], run
    document.save(update_fields=["status", "error", "seen_in_run"])
    count(source_id, documents=int(made), failed=int(not had_failed))


def touch_seen(*, source_id: int, run: int, path: str) -> None:
    """The document is still there and has not changed."""
    Document.objects.filter(source_id=source_id, path=path).update(seen_in_run=run)


@transaction.atomic
def remove(*, source_id: int, documents: Iterable[Document]) -> int:
    """Delete documents with everything a search could find of them; how many."""
    rows = list(documents)
    if not rows:
        return 0
    lock_any(source_id)
    chunks = Chunk.objects.filter(document__in=rows)
    points = list(chunks.values_list("point", flat=True))
    examples = CodeExample.objects.filter(document__in=rows).count()
    failed = sum(1 for row in rows if row.status == Document.Status.ERROR)
    Document.objects.filter(pk__in=[row.pk for row in rows]).delete()
    index.touch(KIND, points)
    count(source_id, documents=-len(rows), failed=-failed, chunks=-len(points), examples=-examples)
    return len(rows)


def lock_any(source_id: int) -> Source | None:
    return Source.objects.select_for_update().filter(pk=source_id).first()


__all__ = ["ParseError", "Read", "SourceGoneError", "count", "fail", "is_unchanged", "remove", "store", "touch_seen"]
