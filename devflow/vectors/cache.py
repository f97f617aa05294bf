"""Embeddings made before, by sha256 of the embedder's name and the text: a re-index of unchanged text costs nothing.

Kept in half precision, and every vector goes through it, so that a rebuilt index answers exactly as the old one did.
"""

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from django.db.models import Q
from django.utils import timezone

from devflow.vectors.base import Embedder, Vectors
from devflow.vectors.models import CachedEmbedding, Collection

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

KEEP_DAYS = 90


def key_of(embedder: str, text: str) -> bytes:
    """The cache's key of a text under an embedder."""
    return hashlib.sha256(f"{embedder}\0{text}".encode("utf-8", "surrogatepass")).digest()


def _single(stored: bytes) -> "npt.NDArray[np.float32]":
    import numpy as np

    return np.frombuffer(stored, np.float16).astype(np.float32)


def embed(embedder: Embedder, texts: Sequence[str]) -> tuple[Vectors, int]:
    """Give one vector per text, and how many of them had to be made. Raises `EmbeddingError`."""
    import numpy as np

    keys = [key_of(embedder.name, text) for text in texts]
    known = {bytes(row.key): row for row in CachedEmbedding.objects.filter(key__in=keys)}
    missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
    vectors = {key: _single(bytes(row.vector)) for key, row in known.items()}
    if missing:
        made = embedder.embed(list(missing.values())).astype(np.float16)
        rows = [CachedEmbedding(key=key, vector=row.tobytes()) for key, row in zip(missing, made, strict=True)]
        CachedEmbedding.objects.bulk_create(rows, ignore_conflicts=True)
        vectors |= {key: row.astype(np.float32) for key, row in zip(missing, made, strict=True)}
    today = timezone.localdate()
    if stale := [row.pk for row in known.values() if row.used_on != today]:
        CachedEmbedding.objects.filter(pk__in=stale).update(used_on=today)
    return np.stack([vectors[key] for key in keys]), len(missing)


def forget(texts: Sequence[str]) -> None:
    """Drop the embeddings of texts that were deleted; where such a text is still indexed, it is made again."""
    made_by = Collection.objects.order_by().values_list("embedder", flat=True).distinct()
    keys = [key_of(embedder, text) for embedder in made_by for text in texts]
    CachedEmbedding.objects.filter(key__in=keys).delete()


def prune() -> int:
    """Drop embeddings nobody asked for in the last months; a text that is still indexed is made again when needed."""
    too_old = timezone.localdate() - timedelta(days=KEEP_DAYS)
    return CachedEmbedding.objects.filter(Q(used_on__lt=too_old)).delete()[0]
