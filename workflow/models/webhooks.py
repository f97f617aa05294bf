"""Addresses that are told what happens in a project, and what they were told."""

import uuid

from django.db import models
from django.db.models import Q
from django.utils import timezone

from workflow.models.projects import Project

KINDS = (
    *("task.created", "task.edited", "task.started", "task.claimed", "task.released", "task.lease_expired"),
    *("task.ready", "task.waiting", "task.blocked", "task.unblocked", "task.blocked_by", "task.unblocked_from"),
    *("task.submitted", "task.approved", "task.rejected", "task.done", "task.failed", "task.retried"),
    *("task.cancelled", "task.noted", "task.evidence", "task.reserved", "task.unreserved", "task.reordered"),
    *("task.undone", "agent.joined", "agent.retired", "message.sent", "gate.set", "gate.cleared", "gate.consumed"),
    *("phase.created", "phase.changed", "project.created", "project.changed", "project.member"),
    *("project.archived", "project.restored", "project.imported", "project.tasks_imported"),
    *("project.connected", "project.disconnected"),
    *("project.words", "task.deleted", "epic.created", "epic.changed", "epic.moved", "epic.commented", "epic.deleted"),
    *("story.created", "story.changed", "story.moved", "story.commented", "story.deleted"),
    *("issue.created", "issue.changed", "issue.commented", "issue.deleted"),
    *("sprint.created", "sprint.changed", "sprint.closed", "sprint.reopened", "sprint.deleted"),
    *("webhook.created", "webhook.changed", "webhook.disabled", "webhook.deleted"),
)
"""Kinds of events a webhook can be asked to tell of; a subject's are all meant by `task.*`."""

MOST_URL = 2000
MOST_NAME = 100
MOST_WORDS = 500
"""Characters of an error or a reason that are kept."""


class Webhook(models.Model):
    """An address that is told of events. Its secret is kept sealed; people are shown it once.

    `cursor` is the last Event deliveries were made for. `held_until`: a sender has it in hand until then;
    `rests_until`: nothing is sent before, because its last try failed or it asked to wait.
    """

    project = models.ForeignKey(Project, models.CASCADE, related_name="webhooks")
    name = models.CharField(max_length=MOST_NAME, blank=True)
    url = models.CharField(max_length=MOST_URL)
    kinds = models.JSONField(default=list, blank=True, help_text='Such as ["task.done", "agent.*"]; empty: all.')
    active = models.BooleanField(default=True)
    disabled_reason = models.CharField(max_length=MOST_WORDS, blank=True)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    secret = models.TextField(editable=False)
    old_secret = models.TextField(blank=True, editable=False)
    old_secret_until = models.DateTimeField(null=True, blank=True, editable=False)

    failures = models.PositiveIntegerField(default=0, help_text="Tries that failed since the last that did not.")
    failing_since = models.DateTimeField(null=True, blank=True)
    delivered_at = models.DateTimeField(null=True, blank=True, help_text="When it last took something.")
    cursor = models.BigIntegerField(default=0, editable=False)
    held_until = models.DateTimeField(null=True, blank=True, editable=False)
    rests_until = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["project", "id"]
        constraints = [models.CheckConstraint(condition=~Q(url=""), name="webhook_has_a_url")]

    def __str__(self) -> str:
        return self.name or self.host

    @property
    def public_id(self) -> str:
        return f"webhook-{self.pk}"

    @property
    def host(self) -> str:
        """The address without its path, which can hold a secret of its own."""
        return self.url.split("/")[2] if self.url.count("/") > 1 else self.url

    def wants(self, kind: str) -> bool:
        return not self.kinds or kind in self.kinds or f"{kind.partition('.')[0]}.*" in self.kinds


class Delivery(models.Model):
    """One message to one webhook: the body exactly as it is sent, and how the last try went.

    `sequence` is the Event it tells of (none: a test). The same `message` id goes with every try, also one that a
    person asked for, so that a receiver can tell repeats.
    """

    class Status(models.TextChoices):
        WAITING = "waiting"
        DELIVERED = "delivered"
        FAILED = "failed"

    webhook = models.ForeignKey(Webhook, models.CASCADE, related_name="deliveries")
    message = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    kind = models.CharField(max_length=40)
    sequence = models.BigIntegerField(null=True, blank=True)
    payload = models.TextField()
    status = models.CharField(max_length=10, choices=Status, default=Status.WAITING)
    attempts = models.PositiveIntegerField(default=0, help_text="Tries since it was made, or last sent again by hand.")
    next_try_at = models.DateTimeField(null=True, blank=True, default=timezone.now)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    tried_at = models.DateTimeField(null=True, blank=True)
    signature = models.CharField(max_length=200, blank=True)
    duration_ms = models.PositiveIntegerField(null=True, blank=True)
    response_status = models.PositiveIntegerField(null=True, blank=True)
    response_type = models.CharField(max_length=200, blank=True)
    response_body = models.TextField(blank=True, help_text="Its first characters.")
    error = models.CharField(max_length=MOST_WORDS, blank=True)

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "deliveries"
        constraints = [
            models.UniqueConstraint(fields=["webhook", "sequence"], name="one_delivery_per_event"),
            models.CheckConstraint(
                condition=Q(status__in=["waiting", "delivered", "failed"]), name="delivery_status_known"
            ),
            models.CheckConstraint(
                condition=Q(status="waiting", next_try_at__isnull=False)
                | (~Q(status="waiting") & Q(next_try_at__isnull=True)),
                name="delivery_waits_for_a_moment",
            ),
        ]
        indexes = [
            models.Index(fields=["webhook", "next_try_at"], name="delivery_due", condition=Q(status="waiting")),
            models.Index(fields=["webhook", "-id"], name="delivery_log"),
            models.Index(fields=["created_at"], name="delivery_age", condition=~Q(status="waiting")),
        ]

    def __str__(self) -> str:
        return f"{self.kind}: {self.status}"

    @property
    def message_id(self) -> str:
        """The `webhook-id` header of every try."""
        return f"msg_{self.message.hex}"
