"""The log every change is written to: the feed, undo, charts and the audit all read it."""

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.sql.compiler import SQLCompiler
from django.utils import timezone

from workflow.models.agents import Agent
from workflow.models.projects import Phase, Project
from workflow.models.tasks import Task


class TransactionNumber(models.Func):
    """The number of the writing transaction on PostgreSQL; elsewhere one writer at a time makes ids ordered anyway."""

    template = "0"
    output_field = models.BigIntegerField()

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **extra: Any
    ) -> tuple[str, list[Any]]:
        return "(pg_current_xact_id()::text::bigint)", []


class Event(models.Model):
    """One change: who did it, through which tool, to what, and the fields before and after. Never updated.

    Ids are given before commit, so on PostgreSQL a lower one can appear after a higher one was read; `transaction`
    lets a reader stay below the transactions that are still open (`selectors.activity.since`).
    """

    class ActorKind(models.TextChoices):
        AGENT = "agent"
        PERSON = "person"
        SYSTEM = "system"

    project = models.ForeignKey(Project, models.CASCADE, related_name="events")
    kind = models.CharField(max_length=40)
    actor_kind = models.CharField(max_length=10, choices=ActorKind)
    actor_name = models.CharField(max_length=150)
    tool = models.CharField(max_length=128, blank=True)
    agent = models.ForeignKey(Agent, models.SET_NULL, null=True, blank=True, related_name="events")
    task = models.ForeignKey(Task, models.SET_NULL, null=True, blank=True, related_name="events")
    phase = models.ForeignKey(Phase, models.SET_NULL, null=True, blank=True, related_name="events")
    before = models.JSONField(default=dict)
    after = models.JSONField(default=dict)
    at = models.DateTimeField(default=timezone.now)
    transaction = models.BigIntegerField(db_default=TransactionNumber(), editable=False)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(actor_kind__in=["agent", "person", "system"]), name="event_actor_known"
            )
        ]
        indexes = [
            models.Index(fields=["project", "-id"], name="event_feed"),
            models.Index(fields=["project", "transaction", "id"], name="event_order"),
            models.Index(fields=["task", "-id"], name="event_task"),
            models.Index(fields=["project", "kind", "at"], name="event_kind"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} by {self.actor_name}"
