"""Sources, the documents read from them, and what a search finds: chunks and code examples.

Rows are the truth; vectors (`devflow.vectors`) and the keyword index are made from them.
"""

import uuid

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from devflow.fields import TagsField

COLUMNS = ("heading", "text", "keywords")
"""Columns of the keyword index over chunks."""

_POINTS = uuid.UUID("7c1d4a52-6f0e-5c39-9d0a-2f5f3d1f6f10")


class Source(models.Model):
    """Something to read knowledge from. Its public id is `source-<pk>`."""

    class Type(models.TextChoices):
        UPLOAD = "upload"
        DIRECTORY = "directory"
        GIT = "git"
        WEB = "web"
        MANUAL = "manual"

    class Status(models.TextChoices):
        PENDING = "pending"
        INDEXING = "indexing"
        ACTIVE = "active"
        PAUSED = "paused"
        ERROR = "error"

    project = models.ForeignKey("workflow.Project", models.CASCADE, related_name="sources")
    title = models.CharField(max_length=255)
    description = models.TextField(blank=True)
    type = models.CharField(max_length=10, choices=Type)
    url = models.CharField(max_length=2000, blank=True, help_text="The address or path it is read from.")
    tags = TagsField(default=list, blank=True)
    priority = models.PositiveSmallIntegerField(
        default=5,
        validators=[MinValueValidator(1), MaxValueValidator(10)],
        help_text="1 to 10; higher ones rank higher among equals.",
    )
    options = models.JSONField(
        default=dict, blank=True, help_text="For web: max_depth, max_pages, same_path, include, exclude."
    )
    metadata = models.JSONField(default=dict, blank=True)
    status = models.CharField(max_length=10, choices=Status, default=Status.PENDING)
    error = models.TextField(blank=True)

    document_count = models.PositiveIntegerField(default=0, editable=False)
    failed_count = models.PositiveIntegerField(default=0, editable=False)
    chunk_count = models.PositiveIntegerField(default=0, editable=False)
    example_count = models.PositiveIntegerField(default=0, editable=False)

    run = models.PositiveIntegerField(default=0, editable=False, help_text="Counts the ingestions of this source.")
    run_wanted = models.BooleanField(default=True, editable=False, help_text="An ingestion waits or is going on.")
    run_force = models.BooleanField(default=False, editable=False, help_text="Also chunk unchanged documents anew.")
    run_done = models.PositiveIntegerField(default=0, editable=False)
    run_total = models.PositiveIntegerField(default=0, editable=False)
    run_beat = models.DateTimeField(null=True, editable=False, help_text="The last sign of the process that ingests.")

    created_by = models.CharField(max_length=150, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(auto_now=True)
    checked_at = models.DateTimeField(null=True, editable=False, help_text="When it was last read through.")
    revision = models.PositiveBigIntegerField(default=0, editable=False)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=Q(priority__gte=1) & Q(priority__lte=10), name="source_priority_bounds"),
            models.CheckConstraint(condition=~Q(title=""), name="source_has_a_title"),
        ]
        indexes = [
            models.Index(fields=["project", "-id"], name="source_list"),
            models.Index(fields=["run_beat"], condition=Q(run_wanted=True), name="source_waiting"),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def public_id(self) -> str:
        return f"source-{self.pk}"

    @property
    def is_local(self) -> bool:
        """Whether its documents are files that can be looked at again for nothing."""
        return self.type in (self.Type.DIRECTORY, self.Type.GIT)


class Document(models.Model):
    """One file or page of a source, as normalised Markdown (code files verbatim) whose lines citations count."""

    class Status(models.TextChoices):
        PENDING = "pending"
        INDEXED = "indexed"
        ERROR = "error"

    source = models.ForeignKey(Source, models.CASCADE, related_name="documents")
    project = models.ForeignKey("workflow.Project", models.CASCADE, related_name="+")
    path = models.CharField(max_length=1000, help_text="Path inside the source, or URL.")
    title = models.CharField(max_length=500, blank=True)
    status = models.CharField(max_length=10, choices=Status, default=Status.PENDING)
    error = models.TextField(blank=True)
    media_type = models.CharField(max_length=200, blank=True)
    language = models.CharField(max_length=40, blank=True, help_text="Programming language of a code file.")
    text = models.TextField(blank=True)
    pages = models.JSONField(default=list, blank=True, help_text="PDF: the first line of each page.")
    raw_hash = models.CharField(max_length=64, blank=True, help_text="sha256 of what was read.")
    text_hash = models.CharField(max_length=64, blank=True)
    parser = models.PositiveSmallIntegerField(default=0, help_text="Version of the parser that read it.")
    size = models.PositiveBigIntegerField(default=0)
    etag = models.CharField(max_length=200, blank=True)
    modified = models.CharField(max_length=100, blank=True, help_text="Last-Modified, or the file's time.")
    seen_in_run = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now)
    indexed_at = models.DateTimeField(null=True, blank=True, help_text="When its text last changed here.")

    class Meta:
        ordering = ["path", "id"]
        constraints = [models.UniqueConstraint(fields=["source", "path"], name="document_once")]
        indexes = [models.Index(fields=["source", "status"], name="document_status")]

    def __str__(self) -> str:
        return self.title or self.path

    @property
    def public_id(self) -> str:
        return f"document-{self.pk}"

    def page_of(self, line: int) -> int | None:
        """The page a line is on, for documents that have pages."""
        return sum(1 for first in self.pages if first <= line) or None


class Chunk(models.Model):
    """A passage a search can find: at most 240 tokens under its heading, with the lines it comes from.

    `point` is derived from what it says and where, so unchanged passages keep their vector.
    """

    project = models.ForeignKey("workflow.Project", models.CASCADE, related_name="+")
    source = models.ForeignKey(Source, models.CASCADE, related_name="chunks")
    document = models.ForeignKey(Document, models.CASCADE, related_name="chunks")
    point = models.UUIDField(unique=True)
    ordinal = models.PositiveIntegerField()
    heading = models.TextField(blank=True, help_text="The headings it stands under, joined with ' > '.")
    text = models.TextField()
    keywords = models.TextField(blank=True, help_text="Parts of camelCase identifiers, for the keyword index.")
    start_line = models.PositiveIntegerField()
    end_line = models.PositiveIntegerField()
    tokens = models.PositiveSmallIntegerField()
    hash = models.CharField(max_length=64)
    symbols = models.JSONField(default=list)
    languages = models.JSONField(default=list)
    has_code = models.BooleanField(default=False)

    class Meta:
        ordering = ["document", "ordinal"]
        indexes = [
            models.Index(fields=["document", "ordinal"], name="chunk_order"),
            models.Index(fields=["source", "id"], name="chunk_source"),
            models.Index(fields=["project", "id"], name="chunk_project"),
        ]

    def __str__(self) -> str:
        return f"{self.heading or self.document_id} L{self.start_line}-L{self.end_line}"

    @property
    def embed_text(self) -> str:
        """What is embedded: the heading path, then the passage."""
        return f"{self.heading}\n{self.text}" if self.heading else self.text

    @staticmethod
    def point_of(*, document_id: int, digest: str, occurrence: int) -> uuid.UUID:
        """The point of the `occurrence`-th passage with this hash in a document."""
        return uuid.uuid5(_POINTS, f"{document_id}:{digest}:{occurrence}")


class CodeExample(models.Model):
    """A fenced block, a doctest session, or a function or class of a code file."""

    project = models.ForeignKey("workflow.Project", models.CASCADE, related_name="+")
    source = models.ForeignKey(Source, models.CASCADE, related_name="examples")
    document = models.ForeignKey(Document, models.CASCADE, related_name="examples")
    code = models.TextField()
    language = models.CharField(max_length=40, blank=True)
    context = models.TextField(blank=True, help_text="The sentence before it.")
    symbols = models.JSONField(default=list)
    start_line = models.PositiveIntegerField()
    end_line = models.PositiveIntegerField()
    hash = models.CharField(max_length=64)
    is_valid = models.BooleanField(null=True, help_text="Whether its syntax is right, where a parser could tell.")

    class Meta:
        ordering = ["document", "start_line", "id"]
        indexes = [models.Index(fields=["document", "start_line"], name="example_order")]

    def __str__(self) -> str:
        return f"{self.language or 'code'} L{self.start_line}-L{self.end_line}"
