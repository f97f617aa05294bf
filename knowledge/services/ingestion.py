"""One reading of a source: find its documents, bring each up to date, drop those that are gone.

Every document is a transaction of its own, so a reading that was killed goes on where it stopped: what it had stored
is unchanged the next time. A source is read by one process at a time, which shows by a beat every few seconds.
"""

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from django.db import OperationalError, transaction
from django.db.models import Q
from django.utils import timezone

from devflow.errors import DevFlowError
from devflow.vectors.base import EmbeddingError
from knowledge.indexing import fetching, walking
from knowledge.indexing.parsed import ParseError
from knowledge.models import Document, Source
from knowledge.services import discovery, documents
from knowledge.services.discovery import Item
from knowledge.services.documents import SourceGoneError
from knowledge.services.sources import told

logger = logging.getLogger(__name__)

SILENT_SECONDS = 60
"""A reading without a beat for this long belongs to a process that is gone."""

BEAT_SECONDS = 0.5
_SHOWN_ERRORS = 3


def claim() -> Source | None:
    """Take a source that waits to be read; None when there is none."""
    now = timezone.now()
    waiting = (
        Source.objects.filter(run_wanted=True)
        .exclude(status=Source.Status.PAUSED)
        .filter(Q(run_beat=None) | Q(run_beat__lt=now - timedelta(seconds=SILENT_SECONDS)))
    )
    for source in waiting.order_by("updated_at")[:20]:
        taken = waiting.filter(pk=source.pk, run_beat=source.run_beat).update(
            run_beat=now, status=Source.Status.INDEXING
        )
        if taken:
            source.refresh_from_db()
            return source
    return None


def forget_beats() -> None:
    """Let every reading be taken again at once: for the one process that reads, when it starts."""
    Source.objects.filter(run_wanted=True).update(run_beat=None)


def read(source: Source, *, stop: Callable[[], bool]) -> None:
    """Read a claimed source to its end, or until `stop`, a pause or its deletion."""
    progress = _Progress(source)
    told(source, "source.progress")
    try:
        found = discovery.discover(source, stop)
        for item in found.items:
            if stop():
                progress.let_go()
                return
            progress.at(item)
            _bring(source, item)
        _finish(source, found.missed(), progress)
    except SourceGoneError:
        return
    except EmbeddingError as exc:
        _fail(source, f"Passages are measured with the embedder, which cannot be used: {exc}")
    except (DevFlowError, fetching.FetchError) as exc:
        _fail(source, exc.message if isinstance(exc, DevFlowError) else str(exc))
    except OperationalError:
        progress.let_go()
        raise
    except Exception:
        logger.exception("a source could not be read", extra={"source": source.public_id})
        _fail(source, "Something went wrong on the server while reading this source; the log tells what.")


def _bring(source: Source, item: Item) -> None:
    """One document: stored, seen again, or its error recorded."""
    if len(item.path.encode()) > documents.MAX_PATH_BYTES:
        logger.warning("a document's path is too long to be kept: %.100s", item.path)
        return
    if item.unchanged:
        documents.touch_seen(source_id=source.pk, run=source.run, path=item.path)
        return
    try:
        if item.read is None:
            raise ParseError(item.error)
        documents.store(source_id=source.pk, run=source.run, read=item.read(), force=source.run_force)
    except (ParseError, fetching.FetchError, walking.ReadError) as exc:
        documents.fail(source_id=source.pk, run=source.run, path=item.path, error=str(exc))
    except DevFlowError as exc:
        documents.fail(source_id=source.pk, run=source.run, path=item.path, error=exc.message)
    except OSError as exc:
        documents.fail(
            source_id=source.pk, run=source.run, path=item.path, error=f"The file could not be read: {exc.strerror}."
        )


class _Progress:
    """Writes how far a reading is, a few times a second at most, and notices when it must end."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.done = 0
        self.total = 0
        self._next = 0.0

    def at(self, item: Item) -> None:
        self.total = max(item.total, self.done + 1)
        if time.monotonic() >= self._next:
            self._beat()
        self.done += 1

    def _beat(self) -> None:
        self._next = time.monotonic() + BEAT_SECONDS
        alive = Source.objects.filter(pk=self.source.pk, run=self.source.run, status=Source.Status.INDEXING).update(
            run_beat=timezone.now(), run_done=self.done, run_total=self.total
        )
        if not alive:
            raise SourceGoneError
        told(self.source, "source.progress")

    def let_go(self) -> None:
        """Leave the rest to the next process."""
        Source.objects.filter(pk=self.source.pk, run=self.source.run).update(run_beat=None)


@transaction.atomic
def _finish(source: Source, missed: str, progress: _Progress) -> None:
    row = documents.lock(source.pk)
    if row.run != source.run:
        return  # somebody wants it read again from the start
    if not missed:
        gone = Document.objects.filter(source=row).exclude(seen_in_run=source.run).defer("text")
        documents.remove(source_id=row.pk, documents=gone)
        row.refresh_from_db()
    failed = Document.objects.filter(source=row, status=Document.Status.ERROR)
    row.error = _summary(row, missed, list(failed.values_list("path", "error")[: _SHOWN_ERRORS + 1]))
    nothing = row.document_count == row.failed_count and (row.failed_count or missed)
    row.status = Source.Status.ERROR if nothing else Source.Status.ACTIVE
    row.run_wanted, row.run_force, row.run_beat = False, False, None
    row.run_done = row.run_total = progress.done
    row.checked_at = timezone.now()
    if row.type == Source.Type.GIT:
        row.metadata = {**row.metadata, "commit": walking.git_head(Path(row.url))}
    row.save()
    told(row, "source.updated")


def _summary(source: Source, missed: str, failed: list[tuple[str, str]]) -> str:
    lines = [f"{missed} Nothing was removed."] if missed else []
    if failed:
        lines.append(f"{source.failed_count} of {source.document_count} documents could not be read:")
        lines += [f"{path}: {error}" for path, error in failed[:_SHOWN_ERRORS]]
    if not source.document_count and not missed:
        lines.append("Nothing was found there that can be read.")
    return "\n".join(lines)


@transaction.atomic
def _fail(source: Source, error: str) -> None:
    Source.objects.filter(pk=source.pk, run=source.run).update(
        status=Source.Status.ERROR,
        error=error[:2000],
        run_wanted=False,
        run_beat=None,
        checked_at=timezone.now(),
        updated_at=timezone.now(),
    )
    told(source, "source.updated")
