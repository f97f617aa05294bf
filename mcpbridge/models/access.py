"""API keys: credentials for machines, kept as digests."""

import hashlib
import hmac
import secrets
import zlib
from datetime import datetime, timedelta
from typing import ClassVar, Self

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
    expose = models.CharField(
        max_length=16, blank=True, help_text="direct, search or intent; empty: the server's setting."
    )
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
