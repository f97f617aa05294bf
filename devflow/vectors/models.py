"""What the index remembers: which collections there are, which points still have to be brought up to date, and
embeddings made before."""

from typing import Any

from django.db import models
from django.db.models import Q
from django.utils import timezone


class Collection(models.Model):
    """The points of one kind made with one embedder. Searches read the live one; another may be built beside it."""

    class State(models.TextChoices):
        BUILDING = "building"
        LIVE = "live"

    kind = models.CharField(max_length=20)
    embedder = models.CharField(max_length=150)
    dimensions = models.PositiveIntegerField(default=0)
    name = models.CharField(max_length=200, unique=True)
    state = models.CharField(max_length=10, choices=State)
    fault = models.CharField(max_length=500, blank=True, help_text="Why it is not being brought up to date.")
    reconciled_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["kind", "embedder"], name="collection_once"),
            models.UniqueConstraint(fields=["kind"], condition=Q(state="live"), name="collection_one_live"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.state})"


class PendingPoint(models.Model):
    """A row that was written, changed or deleted and whose point must follow. The row itself says which."""

    collection = models.ForeignKey(Collection, models.CASCADE, related_name="pending")
    point = models.UUIDField()
    since = models.DateTimeField(default=timezone.now)
    claimed_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["collection", "id"], name="pending_order"),
            models.Index(fields=["point"], name="pending_point"),
        ]

    def __str__(self) -> str:
        return str(self.point)


class CachedEmbedding(models.Model):
    """The embedding of a text that was seen before, as half-precision floats."""

    key: "models.BinaryField[Any, Any]" = models.BinaryField(max_length=32, unique=True)  # sha256 of embedder and text
    vector = models.BinaryField()
    used_on = models.DateField(default=timezone.localdate)

    class Meta:
        indexes = [models.Index(fields=["used_on"], name="embedding_age")]

    def __str__(self) -> str:
        return bytes(self.key).hex()[:12]
