"""Rows of the protocol: API keys, the log of calls, stored answers of repeated calls."""

import hashlib
import hmac
import json
import secrets
import zlib
from datetime import datetime, timedelta
from typing import Any, ClassVar, Self

from django.conf import settings
from django.db import models
from django.utils import timezone

KEY_PREFIX = "dvf"
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def key_checksum(body: str) -> str:
    """Six characters that tell a mistyped key from a wrong one without a look at the database."""
    number, digits = zlib.crc32(body.encode()), ""
    for _ in range(6):
        number, digit = divmod(number, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return digits


def key_digest(raw: str) -> str:
    return hashlib.sha256(raw.encode()).hexdigest()


def well_formed(raw: str) -> bool:
    """Whether `raw` has the shape `dvf_<id>_<secret>_<checksum>` with the right checksum."""
    body, _, checksum = raw.rpartition("_")
    return (
        len(raw) <= 128
        and raw.isascii()
        and raw.startswith(f"{KEY_PREFIX}_")
        and raw.count("_") == 3
        and hmac.compare_digest(key_checksum(body), checksum)
    )


class ApiKeyQuerySet(models.QuerySet["ApiKey"]):
    def live(self, at: datetime | None = None) -> Self:
        at = at or timezone.now()
        return self.filter(
            models.Q(expires_at__isnull=True) | models.Q(expires_at__gt=at),
            models.Q(owner__isnull=True) | models.Q(owner__is_active=True),
            revoked_at__isnull=True,
        )


class ApiKeyManager(models.Manager["ApiKey"]):
    def get_queryset(self) -> ApiKeyQuerySet:
        return ApiKeyQuerySet(self.model, using=self._db)

    def live(self) -> ApiKeyQuerySet:
        return self.get_queryset().live()

    def issue(
        self,
        *,
        name: str,
        scopes: list[str],
        project_id: int | None = None,
        owner_id: int | None = None,
        expires_in: timedelta | None = None,
        rate_per_minute: int | None = None,
        toolsets: list[str] | None = None,
    ) -> tuple["ApiKey", str]:
        """Make a key. Returns the row and the key itself, which is stored nowhere."""
        identifier = _random(12)
        body = f"{KEY_PREFIX}_{identifier}_{_random(40)}"
        raw = f"{body}_{key_checksum(body)}"
        key = self.create(
            identifier=identifier,
            digest=key_digest(raw),
            name=name,
            scopes=sorted(set(scopes)),
            project_id=project_id,
            owner_id=owner_id,
            expires_at=timezone.now() + expires_in if expires_in else None,
            rate_per_minute=rate_per_minute,
            toolsets=toolsets or [],
        )
        return key, raw


class ApiKey(models.Model):
    """A credential for machines. The key itself is shown once; the row keeps its sha256."""

    identifier = models.CharField(max_length=16, unique=True, editable=False)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    name = models.CharField(max_length=100)
    scopes = models.JSONField(default=list)
    project = models.ForeignKey("workflow.Project", models.CASCADE, null=True, blank=True, related_name="+")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, null=True, blank=True, related_name="api_keys")
    toolsets = models.JSONField(default=list, blank=True, help_text="Toolsets this key may use; empty: all.")
    expose = models.CharField(max_length=16, blank=True, help_text="direct or search; empty: the server's setting.")
    names = models.CharField(max_length=16, blank=True, help_text="dotted or underscore; empty: the server's setting.")
    rate_per_minute = models.PositiveIntegerField(
        null=True, blank=True, help_text="Calls a minute; 0: unlimited; empty: the server's setting."
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects: ClassVar[ApiKeyManager] = ApiKeyManager()

    class Meta:
        ordering: ClassVar = ["-created_at"]
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @property
    def prefix(self) -> str:
        return f"{KEY_PREFIX}_{self.identifier}"

    @property
    def is_live(self) -> bool:
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > timezone.now())

    def revoke(self) -> None:
        if self.revoked_at is None:
            self.revoked_at = timezone.now()
            self.save(update_fields=["revoked_at"])


class ToolCall(models.Model):
    """One call through any door: who, what, outcome. Append-only; `seal_position` and `seal` chain the rows.

    Rows are written by many transactions at once, so the chain is closed afterwards: each worker seals its
    committed rows in id order (`mcpbridge.audit`).
    """

    at = models.DateTimeField(default=timezone.now)
    trace_id = models.CharField(max_length=32)
    worker = models.CharField(max_length=32)
    # Without constraints in the database: the log keeps its rows as they were, whatever is deleted beside it.
    key = models.ForeignKey(ApiKey, models.DO_NOTHING, null=True, related_name="calls", db_constraint=False)
    key_name = models.CharField(max_length=100, blank=True)
    agent_name = models.CharField(max_length=120, blank=True)
    project = models.ForeignKey("workflow.Project", models.DO_NOTHING, null=True, related_name="+", db_constraint=False)
    transport = models.CharField(max_length=16)
    client = models.CharField(max_length=120, blank=True)
    tool = models.CharField(max_length=128)
    effect = models.CharField(max_length=16)
    outcome = models.CharField(max_length=32, help_text="ok, or the error code.")
    duration_ms = models.FloatField()
    arguments = models.JSONField(default=dict)
    arguments_hash = models.CharField(max_length=64, blank=True)
    error = models.TextField(blank=True)
    seal_position = models.BigIntegerField(null=True)
    seal = models.CharField(max_length=64, blank=True)

    class Meta:
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [
            models.Index(fields=["at"], name="toolcall_at"),
            models.Index(fields=["tool", "-id"], name="toolcall_tool"),
            models.Index(fields=["agent_name", "-id"], name="toolcall_agent"),
            models.Index(fields=["project", "-id"], name="toolcall_project"),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["worker", "seal_position"], name="one_place_in_a_chain"),
        ]

    def __str__(self) -> str:
        return f"{self.tool} by {self.agent_name or self.key_name}: {self.outcome}"

    def content(self) -> list[Any]:
        """What the seal vouches for: everything recorded at the time of the call, in a fixed order."""
        return [
            self.at.isoformat(),
            self.trace_id,
            self.worker,
            self.key_name,
            self.agent_name,
            self.transport,
            self.client,
            self.tool,
            self.effect,
            self.outcome,
            self.duration_ms,
            json.dumps(self.arguments, sort_keys=True),  # PostgreSQL's jsonb keeps no order of names
            self.arguments_hash,
            self.error,
        ]


class AuditCheckpoint(models.Model):
    """Where a worker's chain stood when older rows were deleted by retention: verification starts here."""

    worker = models.CharField(max_length=32)
    position = models.BigIntegerField()
    seal = models.CharField(max_length=64)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering: ClassVar = ["id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["worker", "position"], name="checkpoint_once"),
        ]

    def __str__(self) -> str:
        return f"{self.worker} at {self.position}"


class StoredAnswer(models.Model):
    """The answer of a call made with an idempotency key, so that a repeat has one effect."""

    key = models.ForeignKey(ApiKey, models.CASCADE, related_name="+")
    idempotency_key = models.CharField(max_length=255)
    request_hash = models.CharField(max_length=64)
    answer = models.JSONField(null=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["key", "idempotency_key"], name="one_answer_per_idempotency_key"),
        ]
        indexes: ClassVar = [models.Index(fields=["created_at"], name="stored_answer_age")]

    def __str__(self) -> str:
        return self.idempotency_key
