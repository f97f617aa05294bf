"""The jobs of the index: draining its outbox, and looking for what the outbox missed."""

import logging
from functools import lru_cache

from devflow.jobs import is_embedded, periodic, queue, standing
from devflow.vectors import cache, index, stores
from devflow.vectors.base import EmbeddingError, StoreError
from devflow.vectors.kinds import kinds

logger = logging.getLogger(__name__)


@standing(seconds=3)
def drain() -> None:
    """Bring the index up to date; once in a process, look first whether the store is still the one it was."""
    _look_at_start()
    index.drain(stop=lambda: drain.is_stopping)


@lru_cache(maxsize=1)
def _look_at_start() -> None:
    if not queue().immediate:
        if is_embedded():
            index.forget_claims()
        _reconcile(thoroughly=False)


def _reconcile(*, thoroughly: bool) -> None:
    for kind in kinds:
        try:
            if found := index.reconcile(kind, thoroughly=thoroughly):
                logger.warning("%d points of %s differed from their rows and are written again", found, kind)
                drain.wake()
        except (StoreError, EmbeddingError) as exc:
            logger.warning("the index of %s could not be compared with its rows: %s", kind, exc)


@periodic(minutes=5)
def reconcile() -> None:
    """Find what is missing in the store, or too much, and let it build its graph when it has grown."""
    _reconcile(thoroughly=False)
    stores.tend()


@periodic(hours=24)
def reconcile_thoroughly() -> None:
    """Compare every hash, and drop embeddings nobody needs."""
    _reconcile(thoroughly=True)
    cache.prune()
