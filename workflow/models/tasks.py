"""Tasks, what blocks them, and what is written beside them."""

from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar, Self

from django.conf import settings
from django.db import models
from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone

from devflow.fields import TagsField
from workflow.models.agents import Agent
from workflow.models.projects import DoneDefinition, Phase, Project

POSITION_GAP = 1024
"""Distance between two cards that were never moved."""


class Status(models.TextChoices):
    PENDING = "pending"
    READY = "ready"
    IN_PROGRESS = "in_progress"
    REVIEW = "review"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


CLOSED = (Status.DONE, Status.FAILED, Status.CANCELLED)


class Priority(models.IntegerChoices):
    """Stored as a rank so that the order of claims is an index; clients see the label."""

    HIGH = 1, "high"
    MEDIUM = 2, "medium"
    LOW = 3, "low"

    @classmethod
    def of(cls, name: str) -> "Priority":
        return cls[name.upper()]


class TaskQuerySet(models.QuerySet["Task"]):
    def held(self, at: datetime) -> Self:
        """Tasks under a live lease."""
        return self.filter(lease_token__isnull=False, lease_expires_at__gt=at)

    def expired(self, at: datetime) -> Self:
        """Tasks whose holder fell silent: not tidied yet, but nobody's any more."""
        return self.filter(lease_token__isnull=False, lease_expires_at__lte=at)

    def tagged(self, tags: Iterable[str]) -> Self:
        """Tasks that carry every one of `tags`."""
        found = self
        for tag in tags:
            found = found.filter(tags__has=tag)
        return found


def open_blocker() -> Exists:
    """True for a task with a blocker that is not done (a failed or cancelled one blocks until somebody decides)."""
    return Exists(Dependency.objects.filter(task=OuterRef("pk")).exclude(blocker__status=Status.DONE))


def held_up() -> Q:
    """True for a task that waits: for a blocker, or because somebody holds it back."""
    return Q(open_blocker()) | ~Q(manual_block="")


class Task(models.Model):
    """A piece of work. Its public id is `task-<pk>`, its `ref` counts inside the project."""

    project = models.ForeignKey(Project, models.CASCADE, related_name="tasks")
    phase = models.ForeignKey(Phase, models.RESTRICT, related_name="tasks")
    ref = models.PositiveIntegerField(editable=False)
    subject = models.CharField(max_length=255)
    description = models.TextField()
    status = models.CharField(max_length=12, choices=Status, default=Status.PENDING)
    priority = models.PositiveSmallIntegerField(choices=Priority, default=Priority.MEDIUM)
    boosted = models.BooleanField(default=False, help_text="Claimed before everything else.")
    tags = TagsField(default=list, blank=True)
    metadata = models.JSONField(default=dict, blank=True)
    position = models.BigIntegerField(default=0)
    parent = models.ForeignKey("self", models.SET_NULL, null=True, blank=True, related_name="children")
    blockers: "models.ManyToManyField[Task, Dependency]" = models.ManyToManyField(
        "self", symmetrical=False, through="Dependency", through_fields=("task", "blocker"), related_name="dependents"
    )
    manual_block = models.CharField(
        max_length=500, blank=True, help_text="Why it must wait although nothing else blocks it."
    )

    created_by = models.CharField(max_length=150)
    creator_agent = models.ForeignKey(Agent, models.SET_NULL, null=True, blank=True, related_name="created_tasks")
    creator_user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="created_tasks"
    )
    assigned_agent = models.ForeignKey(Agent, models.SET_NULL, null=True, blank=True, related_name="tasks")
    reserved_for = models.ForeignKey(
        Agent,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="reserved",
        help_text="Only this agent may claim it; nobody: everybody may.",
    )
    user_story = models.ForeignKey(
        "workflow.UserStory",
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="tasks",
        help_text="What it is part of.",
    )
    item_status = models.ForeignKey(
        "workflow.ItemStatus",
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        editable=False,
        help_text="The project's own word for where it is, as long as that holds.",
    )
    assigned_to = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="assigned_tasks"
    )
    urgency = models.CharField(
        max_length=8, blank=True, editable=False, help_text="lowest or highest, where the priority says less."
    )
    result = models.TextField(blank=True)
    attempts = models.PositiveIntegerField(default=0, help_text="Leases that expired.")
    iteration = models.PositiveIntegerField(default=1, help_text="Grows when a review sends it back.")
    version = models.PositiveIntegerField(default=1)

    lease_token = models.CharField(max_length=64, null=True, blank=True, editable=False)  # noqa: DJ001  # null: no lease
    lease_session = models.CharField(max_length=200, blank=True, editable=False)
    lease_expires_at = models.DateTimeField(null=True, blank=True, editable=False)
    lease_renew_at = models.DateTimeField(null=True, blank=True, editable=False)
    lease_minutes = models.PositiveIntegerField(default=0, editable=False)
    closed_with = models.CharField(
        max_length=64, blank=True, editable=False, help_text="The lease it was closed under."
    )

    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(default=timezone.now, editable=False)
    ready_since = models.DateTimeField(null=True, blank=True, editable=False)
    started_at = models.DateTimeField(null=True, blank=True, editable=False)
    completed_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects: ClassVar[models.Manager["Task"]] = models.Manager.from_queryset(TaskQuerySet)()

    class Meta:
        ordering = ["project", "position", "id"]
        constraints = [
            models.UniqueConstraint(fields=["project", "ref"], name="one_task_per_ref"),
            models.CheckConstraint(condition=Q(status__in=Status.values), name="task_status_known"),
            models.CheckConstraint(condition=Q(priority__in=Priority.values), name="task_priority_known"),
            models.CheckConstraint(
                condition=Q(lease_token__isnull=True, lease_expires_at__isnull=True)
                | Q(
                    lease_token__isnull=False,
                    lease_expires_at__isnull=False,
                    assigned_agent__isnull=False,
                    status=Status.IN_PROGRESS,
                ),
                name="task_lease_only_in_progress",
            ),
            models.CheckConstraint(
                condition=~Q(status=Status.DONE) | Q(completed_at__isnull=False), name="task_done_has_a_time"
            ),
            models.CheckConstraint(
                condition=~Q(status=Status.READY) | Q(manual_block=""), name="task_ready_is_not_held_back"
            ),
            models.CheckConstraint(
                condition=Q(parent__isnull=True) | ~Q(parent=F("id")), name="task_not_its_own_parent"
            ),
            models.UniqueConstraint(
                fields=["lease_token"], condition=Q(lease_token__isnull=False), name="one_task_per_lease"
            ),
        ]
        indexes = [
            models.Index(
                "phase", F("boosted").desc(), "priority", "position", "ready_since", "id",
                condition=Q(status="ready"), name="task_claim_order",
            ),
            models.Index(fields=["project", "status", "position"], name="task_board"),
            models.Index(fields=["project", "status", "-completed_at"], name="task_newest_done"),
            models.Index(fields=["phase", "status"], name="task_phase_status"),
            models.Index(fields=["user_story", "status"], name="task_story"),
            models.Index(
                fields=["assigned_agent", "lease_session"], condition=Q(lease_token__isnull=False), name="task_holder"
            ),
            models.Index(
                fields=["lease_expires_at"], condition=Q(lease_token__isnull=False), name="task_lease_expiry"
            ),
        ]  # fmt: skip

    def __str__(self) -> str:
        return f"#{self.ref} {self.subject}"

    @property
    def public_id(self) -> str:
        return f"task-{self.pk}"

    @property
    def priority_name(self) -> str:
        return Priority(self.priority).label

    def is_held(self, at: datetime) -> bool:
        return self.lease_token is not None and self.lease_expires_at is not None and self.lease_expires_at > at

    def has_expired(self, at: datetime) -> bool:
        return self.lease_expires_at is not None and self.lease_expires_at <= at


class Dependency(models.Model):
    """`task` waits until `blocker` is done."""

    task = models.ForeignKey(Task, models.CASCADE, related_name="dependencies")
    blocker = models.ForeignKey(Task, models.CASCADE, related_name="dependent_links")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["id"]
        verbose_name_plural = "dependencies"
        constraints = [
            models.UniqueConstraint(fields=["task", "blocker"], name="one_dependency_per_pair"),
            models.CheckConstraint(condition=~Q(task=F("blocker")), name="task_does_not_block_itself"),
        ]

    def __str__(self) -> str:
        return f"task-{self.task_id} waits for task-{self.blocker_id}"


class Evidence(models.Model):
    """What shows that a task meets one done definition of its phase."""

    class Kind(models.TextChoices):
        TEXT = "text"
        URL = "url"
        COMMIT = "commit"
        TEST_OUTPUT = "test_output"

    task = models.ForeignKey(Task, models.CASCADE, related_name="evidence")
    definition = models.ForeignKey(DoneDefinition, models.CASCADE, related_name="evidence")
    kind = models.CharField(max_length=12, choices=Kind, default=Kind.TEXT)
    content = models.TextField()
    actor_kind = models.CharField(max_length=10)
    actor_name = models.CharField(max_length=150)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["id"]
        verbose_name_plural = "evidence"
        constraints = [
            models.UniqueConstraint(fields=["task", "definition"], name="one_evidence_per_definition"),
            models.CheckConstraint(condition=~Q(content=""), name="evidence_says_something"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} for {self.definition_id}"


class Note(models.Model):
    """A comment on a task: progress, a hand-over, or the feedback of a review."""

    class Kind(models.TextChoices):
        NOTE = "note"
        HANDOVER = "handover"
        FEEDBACK = "feedback"

    task = models.ForeignKey(Task, models.CASCADE, related_name="notes")
    kind = models.CharField(max_length=10, choices=Kind, default=Kind.NOTE)
    body = models.TextField()
    actor_kind = models.CharField(max_length=10)
    actor_name = models.CharField(max_length=150)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["id"]
        constraints = [models.CheckConstraint(condition=~Q(body=""), name="note_says_something")]

    def __str__(self) -> str:
        return self.body[:80]
