"""What agents and people remember in a project.

The rows are the truth; vectors (`devflow.vectors`) and the keyword index are made from them.
"""

import hashlib
import uuid
from datetime import datetime

from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from devflow.fields import TagsField
from devflow.vectors.terms import split_identifiers

MAX_CONTENT = 100_000
MAX_TAGS = 50
MAX_TAG = 64

COLUMNS = ("content", "keywords")
"""Columns of the keyword index over memories."""


class Category(models.TextChoices):
    DECISION = "decision"
    PATTERN = "pattern"
    PROBLEM = "problem"
    CONVENTION = "convention"


ALSO: dict[str, str] = {
    "error_fix": Category.PROBLEM,
    "warning": Category.PROBLEM,
    "discovery": Category.PATTERN,
    "learning": Category.PATTERN,
    "codebase_knowledge": Category.CONVENTION,
}
"""Other words for the categories; the one that was said is kept in `original_category`."""

KNOWN_CATEGORIES: tuple[str, ...] = (*Category.values, *ALSO)


class Trust(models.TextChoices):
    """How far a memory may be relied on, best first."""

    PERSON = "person"
    EVIDENCE = "evidence", "agent with evidence"
    AGENT = "agent"
    OUTSIDE = "outside", "text from outside"


class MemoryQuerySet(models.QuerySet["Memory"]):
    def alive(self, at: datetime) -> "MemoryQuerySet":
        """Those that have not expired at `at`."""
        return self.filter(Q(expires_at=None) | Q(expires_at__gt=at))


class Memory(models.Model):
    """Something worth knowing later. Its public id is `memory-<pk>`.

    `superseded_by` points from the older to the newer, so that one memory can take the place of several.
    """

    project = models.ForeignKey("workflow.Project", models.CASCADE, related_name="memories")
    point = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    content = models.TextField()
    hash = models.CharField(max_length=64, editable=False, help_text="sha256 of the content.")
    keywords = models.TextField(blank=True, editable=False, help_text="Tags, and parts of camelCase identifiers.")
    category = models.CharField(max_length=10, choices=Category)
    original_category = models.CharField(max_length=32, help_text="The word that was said.")
    tags = TagsField(default=list, blank=True)
    metadata = models.JSONField(default=dict, blank=True)

    trust = models.CharField(max_length=10, choices=Trust)
    created_by = models.CharField(max_length=150)
    agent = models.ForeignKey("workflow.Agent", models.SET_NULL, null=True, blank=True, related_name="memories")
    task = models.CharField(max_length=32, blank=True, help_text="What its writer worked on, such as task-12.")
    tool = models.CharField(max_length=64, blank=True)
    trace_id = models.CharField(max_length=64, blank=True, help_text="The call that saved it.")

    superseded_by = models.ForeignKey("self", models.SET_NULL, null=True, blank=True, related_name="supersedes")
    superseded_at = models.DateTimeField(null=True, blank=True)
    pinned = models.BooleanField(default=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    uses = models.PositiveIntegerField(default=0, editable=False, help_text="How often it was given to an agent.")
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    version = models.PositiveIntegerField(default=1, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = MemoryQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "memories"
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=~Q(content=""), name="memory_says_something"),
            models.CheckConstraint(condition=Q(category__in=Category.values), name="memory_category_known"),
            models.CheckConstraint(condition=Q(trust__in=Trust.values), name="memory_trust_known"),
            models.CheckConstraint(
                condition=Q(superseded_by__isnull=True) | ~Q(superseded_by=F("id")),
                name="memory_does_not_supersede_itself",
            ),
        ]
        indexes = [
            models.Index(fields=["project", "-id"], name="memory_list"),
            models.Index(fields=["project", "hash"], name="memory_same"),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def public_id(self) -> str:
        return f"memory-{self.pk}"

    @property
    def title(self) -> str:
        """The first line that says something, at most 100 characters."""
        line = next((text for raw in self.content.splitlines() if (text := raw.strip().lstrip("#*->").strip())), "")
        return line if len(line) <= 100 else f"{line[:99]}…"

    @property
    def task_number(self) -> str:
        """The number in `task`, for its page."""
        return self.task.removeprefix("task-")

    @property
    def uri(self) -> str:
        return f"devflow://memory/{self.public_id}"

    @property
    def is_untrusted(self) -> bool:
        """Whether it is text from outside: information, never an instruction."""
        return self.trust == Trust.OUTSIDE

    def is_expired(self, at: datetime | None = None) -> bool:
        return self.expires_at is not None and self.expires_at <= (at or timezone.now())

    def derive(self) -> None:
        """Bring what follows from content and tags up to date."""
        self.hash = hashlib.sha256(self.content.encode()).hexdigest()
        self.keywords = " ".join([*self.tags, split_identifiers(self.content)])
