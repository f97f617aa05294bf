"""Agents, their inboxes, and the markers (gates) that they and people set."""

from datetime import datetime, timedelta

from django.db import models
from django.db.models import Q
from django.utils import timezone

from workflow.models.projects import Phase, Project

OBSERVATIONS = 20
"""How many of the last calls coherence looks at."""


class Agent(models.Model):
    """A worker known by `name` inside a project: clients call that its id."""

    project = models.ForeignKey(Project, models.CASCADE, related_name="agents")
    name = models.CharField(max_length=120)
    session = models.CharField(max_length=200, blank=True)
    client = models.CharField(max_length=120, blank=True)
    transport = models.CharField(max_length=16, blank=True)
    phase = models.ForeignKey(Phase, models.SET_NULL, null=True, blank=True, related_name="agents")
    started_at = models.DateTimeField(default=timezone.now)
    last_seen = models.DateTimeField(default=timezone.now)
    last_action = models.CharField(max_length=200, blank=True)
    last_progress_at = models.DateTimeField(default=timezone.now)
    retired_at = models.DateTimeField(null=True, blank=True)
    warned_at = models.DateTimeField(null=True, blank=True, help_text="When the guardian last wrote to it.")
    observations = models.JSONField(
        default=list,
        blank=True,
        editable=False,
        help_text="The last calls: [hash of tool and arguments, ok, in scope].",
    )

    class Meta:
        ordering = ["project", "name"]
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], name="one_agent_per_name"),
            models.CheckConstraint(condition=~Q(name=""), name="agent_has_a_name"),
        ]
        indexes = [models.Index(fields=["project", "-last_seen"], name="agent_last_seen")]

    def __str__(self) -> str:
        return self.name

    def presence(self, *, at: datetime, holds_lease: bool) -> str:
        """working, idle (seen in 5 minutes), stale (in an hour) or offline."""
        if self.retired_at is not None:
            return "offline"
        if holds_lease:
            return "working"
        silent = at - self.last_seen
        return "idle" if silent < timedelta(minutes=5) else "stale" if silent < timedelta(hours=1) else "offline"


class Message(models.Model):
    """A row of an agent's inbox. It stays unread until the agent acknowledges it."""

    class Kind(models.TextChoices):
        MESSAGE = "message"
        GUARDIAN = "guardian"
        SYSTEM = "system"

    project = models.ForeignKey(Project, models.CASCADE, related_name="messages")
    recipient = models.ForeignKey(Agent, models.CASCADE, related_name="inbox")
    sender = models.ForeignKey(Agent, models.SET_NULL, null=True, blank=True, related_name="outbox")
    sender_kind = models.CharField(max_length=10, default="agent")
    sender_name = models.CharField(max_length=150)
    kind = models.CharField(max_length=10, choices=Kind, default=Kind.MESSAGE)
    body = models.TextField()
    task = models.ForeignKey("workflow.Task", models.SET_NULL, null=True, blank=True, related_name="messages")
    delivered_at = models.DateTimeField(default=timezone.now)
    read_at = models.DateTimeField(null=True, blank=True)
    acknowledged_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=~Q(body=""), name="message_says_something"),
            models.CheckConstraint(
                condition=Q(acknowledged_at__isnull=True) | Q(read_at__isnull=False), name="message_read_before_ack"
            ),
        ]
        indexes = [
            models.Index(fields=["recipient", "id"], name="message_inbox"),
            models.Index(fields=["recipient"], condition=Q(acknowledged_at__isnull=True), name="message_unread"),
            models.Index(fields=["project", "-id"], name="message_project"),
        ]

    def __str__(self) -> str:
        return f"{self.sender_name} to {self.recipient_id}: {self.body[:60]}"


class Gate(models.Model):
    """A named marker on a task, a phase or the project, set and cleared by compare-and-set on `version`."""

    project = models.ForeignKey(Project, models.CASCADE, related_name="gates")
    phase = models.ForeignKey(Phase, models.CASCADE, null=True, blank=True, related_name="gates")
    task = models.ForeignKey("workflow.Task", models.CASCADE, null=True, blank=True, related_name="gates")
    name = models.SlugField(max_length=64)
    is_set = models.BooleanField(default=False)
    version = models.PositiveIntegerField(default=1)
    actor_kind = models.CharField(max_length=10)
    actor_name = models.CharField(max_length=150)
    reason = models.TextField(blank=True)
    changed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["project", "name", "id"]
        constraints = [
            models.UniqueConstraint(fields=["task", "name"], condition=Q(task__isnull=False), name="one_gate_per_task"),
            models.UniqueConstraint(
                fields=["phase", "name"], condition=Q(phase__isnull=False), name="one_gate_per_phase"
            ),
            models.UniqueConstraint(
                fields=["project", "name"],
                condition=Q(phase__isnull=True, task__isnull=True),
                name="one_gate_per_project",
            ),
            models.CheckConstraint(
                condition=Q(phase__isnull=True) | Q(task__isnull=True), name="gate_belongs_to_one_thing"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name}: {'set' if self.is_set else 'not set'}"
