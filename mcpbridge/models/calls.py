"""The log of calls, and stored answers of repeated calls."""

import json
from typing import Any, ClassVar

from django.db import models
from django.utils import timezone

from mcpbridge.models.access import ApiKey


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
    backend = models.CharField(max_length=64, blank=True, help_text="The backend that ran it; empty: DevFlow itself.")
    spans = models.JSONField(default=list, help_text="How long its steps took: [name, milliseconds].")
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
            models.Index(fields=["backend", "-id"], name="toolcall_backend"),
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
            self.backend,
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
