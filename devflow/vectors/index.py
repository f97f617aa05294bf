"""Keep every collection equal to the rows it is made from.

A room writes its row and `touch`es its point in one transaction; the outbox (`PendingPoint`) is drained here: the row
is read, embedded and upserted, or its point deleted when the row is gone. Doing that twice, or late, or in another
order changes nothing. What the outbox missed (a lost store, a restored backup) is found by `reconcile`.
"""

import logging
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice

from django.db import connection, transaction
from django.db.models import Count, Min, Q
from django.utils import timezone

from devflow.vectors import cache, embedders, stores, terms
from devflow.vectors.base import Embedder, EmbeddingError, Point, StoreError
from devflow.vectors.kinds import kinds
from devflow.vectors.models import Collection, PendingPoint

logger = logging.getLogger(__name__)

BATCH = 32
TURN = 4  # batches
CLAIM_SECONDS = 60
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a collection is behind its rows: rows waiting, and since when the oldest waits."""

    pending: int
    since: datetime | None

    @property
    def seconds(self) -> float:
        return (timezone.now() - self.since).total_seconds() if self.since else 0.0


def _name(kind: str, embedder: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{kind}-{embedder}")[:200]


def collections(kind: str) -> list[Collection]:
    """The kind's collections, live first; made for the configured embedder where there is none yet."""
    found = list(Collection.objects.filter(kind=kind).order_by("-state"))
    if not found:
        name = embedders.current().name
        with transaction.atomic():
            Collection.objects.bulk_create(
                [Collection(kind=kind, embedder=name, name=_name(kind, name), state=Collection.State.LIVE)],
                ignore_conflicts=True,
            )
        found = list(Collection.objects.filter(kind=kind).order_by("-state"))
    return found


def touch(kind: str, points: Iterable[uuid.UUID]) -> None:
    """Have these rows' points brought up to date. Call it in the transaction that writes or deletes the rows."""
    points = list(points)
    if not points:
        return
    try:
        targets = collections(kind)
    except EmbeddingError as exc:  # the first row ever, and a model that is not there: `reconcile` finds it later
        logger.warning("%s has no index yet: %s", kind, exc)
        return
    _enqueue(targets, points)
    from devflow.vectors.jobs import drain

    drain.wake()


def _enqueue(targets: Iterable[Collection], points: Iterable[uuid.UUID]) -> None:
    waiting = (PendingPoint(collection=target, point=point) for target in targets for point in points)
    while page := list(islice(waiting, _PAGE)):
        PendingPoint.objects.bulk_create(page)


def lag(kind: str) -> Lag:
    """How far the live collection is behind."""
    row = PendingPoint.objects.filter(collection__kind=kind, collection__state=Collection.State.LIVE).aggregate(
        pending=Count("pk"), since=Min("since")
    )
    return Lag(row["pending"], row["since"])


# --- draining -------------------------------------------------------------------------------------------------------


def _never() -> bool:
    return False


def drain(*, stop: Callable[[], bool] = _never) -> int:
    """Bring every collection up to date; the number of points written or deleted.

    The kinds take turns, so that a memory does not wait behind a library. A store or an embedder that is away leaves
    its points waiting, with the reason in `Collection.fault`.
    """
    done = 0
    started = [kind for kind in kinds if Collection.objects.filter(kind=kind).exists()]
    for kind in started:
        try:
            _follow_configuration(kind)
        except EmbeddingError as exc:
            _warn_once(f"the configured embedder cannot be used, the index of {kind} stays as it is: {exc}")
    while not stop():
        turn = 0
        for kind in started:
            for collection in collections(kind):
                turn += _drain_collection(collection, stop)
                _swap_when_built(collection)
        if not turn:
            break
        done += turn
    return done


@lru_cache(maxsize=32)
def _warn_once(message: str) -> None:
    logger.warning(message)


def _drain_collection(collection: Collection, stop: Callable[[], bool]) -> int:
    """One turn of a collection: a few batches; how many points were brought up to date."""
    done = 0
    if not PendingPoint.objects.filter(collection=collection).exists() and collection.dimensions:
        return 0
    try:
        embedder = embedders.by_name(collection.embedder)
        if embedder is None:
            raise EmbeddingError(
                f"{collection.embedder} is no longer configured; search by meaning waits for the new index."
            )
        _prepare(collection, embedder)
        for _ in range(TURN):
            if stop() or not (batch := _claim(collection)):
                break
            try:
                _bring(collection, embedder, list(dict.fromkeys(batch.values())))
            except (StoreError, EmbeddingError):
                PendingPoint.objects.filter(pk__in=batch).update(claimed_until=None)
                raise
            PendingPoint.objects.filter(pk__in=batch).delete()
            done += len(batch)
        _say(collection, "")
    except (StoreError, EmbeddingError) as exc:
        _say(collection, str(exc))
    return done


def _say(collection: Collection, fault: str) -> None:
    fault = fault[:500]
    if collection.fault != fault:
        if fault:
            logger.warning("the index %s waits: %s", collection.name, fault)
        collection.fault = fault
        collection.save(update_fields=["fault"])


def _prepare(collection: Collection, embedder: Embedder) -> None:
    """Have the store hold the collection. One it held before and lost is filled again from the rows."""
    if collection.dimensions and collection.name not in stores.store().collections():
        logger.warning("the store has lost %s, which is written again", collection.name)
        with transaction.atomic():
            _enqueue([collection], (point for point, _ in kinds[collection.kind].hashes()))
    stores.store().create(collection.name, embedder.dimensions)
    if collection.dimensions != embedder.dimensions:
        collection.dimensions = embedder.dimensions
        collection.save(update_fields=["dimensions"])


def _claim(collection: Collection) -> dict[int, uuid.UUID]:
    """The next waiting points, reserved for this process for a minute.

    A point somebody is at is left alone: what they read of its row may be older than what made the new entry.
    """
    now = timezone.now()
    with transaction.atomic():
        waiting = PendingPoint.objects.filter(collection=collection)
        taken = waiting.filter(claimed_until__gte=now).values("point")
        free = waiting.filter(Q(claimed_until=None) | Q(claimed_until__lt=now)).exclude(point__in=taken)
        if connection.features.has_select_for_update_skip_locked:
            free = free.select_for_update(skip_locked=True)
        batch = dict(free.order_by("pk").values_list("pk", "point")[:BATCH])
        PendingPoint.objects.filter(pk__in=batch).update(claimed_until=now + timedelta(seconds=CLAIM_SECONDS))
    return batch


def forget_claims() -> None:
    """Let every waiting point be taken again at once: for the one process that drains, when it starts."""
    PendingPoint.objects.exclude(claimed_until=None).update(claimed_until=None)


def _bring(collection: Collection, embedder: Embedder, points: Sequence[uuid.UUID]) -> None:
    """Make these points equal to their rows."""
    entries = kinds[collection.kind].entries(points)
    if entries:
        vectors, _ = cache.embed(embedder, [entry.text for entry in entries])
        stores.store().upsert(
            collection.name,
            [
                Point(
                    id=entry.id,
                    dense=vector,
                    text=terms.document_terms(entry.words),
                    symbols=terms.symbol_terms(entry.symbols),
                    payload={**entry.payload, "hash": entry.hash},
                )
                for entry, vector in zip(entries, vectors, strict=True)
            ],
        )
    gone = set(points) - {entry.id for entry in entries}
    if gone:
        stores.store().delete(collection.name, gone)


# --- another model --------------------------------------------------------------------------------------------------


def _follow_configuration(kind: str) -> None:
    """Start a collection beside the live one when another embedder is configured; drop one nobody wants any more."""
    wanted = embedders.current().name
    found = {collection.embedder: collection for collection in collections(kind)}
    for name, collection in found.items():
        if name != wanted and collection.state == Collection.State.BUILDING:
            _discard(collection)
    if wanted not in found:
        with transaction.atomic():
            fresh = Collection.objects.create(
                kind=kind, embedder=wanted, name=_name(kind, wanted), state=Collection.State.BUILDING
            )
            _enqueue([fresh], (point for point, _ in kinds[kind].hashes()))


def _swap_when_built(collection: Collection) -> None:
    if collection.state != Collection.State.BUILDING or collection.fault:
        return
    with transaction.atomic():
        if PendingPoint.objects.filter(collection=collection).exists():
            return
        old = list(Collection.objects.filter(kind=collection.kind, state=Collection.State.LIVE))
        Collection.objects.filter(pk__in=[one.pk for one in old]).delete()
        collection.state = Collection.State.LIVE
        collection.save(update_fields=["state"])
    for one in old:
        _drop_quietly(one.name)
    logger.info("the index %s is complete and answers now", collection.name)


def _discard(collection: Collection) -> None:
    collection.delete()
    _drop_quietly(collection.name)


def _drop_quietly(name: str) -> None:
    try:
        stores.store().drop(name)
    except StoreError as exc:
        logger.warning("the old index %s stays in the store: %s", name, exc)


# --- repair ---------------------------------------------------------------------------------------------------------


def reconcile(kind: str, *, thoroughly: bool = True) -> int:
    """Compare the live collection with the rows and enqueue every difference; how many there were.

    Not `thoroughly`: compare the numbers first and the hashes only when these differ. Raises `StoreError`.
    """
    if not Collection.objects.filter(kind=kind).exists() and next(kinds[kind].hashes(), None) is None:
        return 0
    collection = collections(kind)[0]
    store = stores.store()
    pending = set(PendingPoint.objects.filter(collection=collection).values_list("point", flat=True))
    kept: dict[uuid.UUID, str] = {}
    if collection.name in store.collections():
        if not thoroughly and not pending and store.count(collection.name) == sum(1 for _ in kinds[kind].hashes()):
            return 0
        kept = dict(store.scroll(collection.name))
    wrong: list[uuid.UUID] = []
    for point, digest in kinds[kind].hashes():
        if kept.pop(point, None) != digest and point not in pending:
            wrong.append(point)
    wrong += [point for point in kept if point not in pending]
    with transaction.atomic():
        _enqueue([collection], wrong)
        Collection.objects.filter(pk=collection.pk).update(reconciled_at=timezone.now())
    return len(wrong)


def forget_everything(kind: str) -> int:
    """Drop the kind's collections and enqueue every row again, as `devflow reindex` does; the number of rows."""
    for collection in Collection.objects.filter(kind=kind):
        stores.store().drop(collection.name)
        collection.delete()
    with transaction.atomic():
        points = [point for point, _ in kinds[kind].hashes()]
        _enqueue(collections(kind), points)
    return len(points)
