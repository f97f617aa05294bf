"""Projects, who belongs to them, and the phases their work goes through."""

from datetime import timedelta

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from devflow import config


class Project(models.Model):
    """A board of its own: every task, agent and message belongs to exactly one."""

    slug = models.SlugField(max_length=50, unique=True, help_text="The name in addresses and in X-Project.")
    name = models.CharField(max_length=100)
    description = models.TextField(blank=True)
    require_review = models.BooleanField(default=False, help_text="Finished tasks of every phase wait for a review.")
    gates_enabled = models.BooleanField(
        default=False, help_text="Changes through gateway backends need an analysis-done marker first."
    )
    column_limits = models.JSONField(
        default=dict, blank=True, help_text='Most cards a column takes, such as {"in_progress": 5}.'
    )
    next_ref = models.PositiveIntegerField(default=1, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    archived_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["name", "id"]
        constraints = [models.CheckConstraint(condition=~Q(slug=""), name="project_has_a_slug")]

    def __str__(self) -> str:
        return self.name

    def limit_of(self, column: str) -> int | None:
        """Most cards `column` takes, or None."""
        limit = self.column_limits.get(column) if isinstance(self.column_limits, dict) else None
        return limit if isinstance(limit, int) and limit > 0 else None


class Membership(models.Model):
    """What a person may do in a project: a viewer reads, a member works, an admin also changes the project."""

    class Role(models.TextChoices):
        VIEWER = "viewer"
        MEMBER = "member"
        ADMIN = "admin"

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="memberships")
    project = models.ForeignKey(Project, models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role, default=Role.MEMBER)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["project", "id"]
        constraints = [
            models.UniqueConstraint(fields=["user", "project"], name="one_membership_per_project"),
            models.CheckConstraint(condition=Q(role__in=["viewer", "member", "admin"]), name="membership_role_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user} in {self.project}: {self.role}"

    @property
    def may_write(self) -> bool:
        return self.role in (self.Role.MEMBER, self.Role.ADMIN)


class Phase(models.Model):
    """A stage of the work with its instructions. Clients name it by `number`, which counts inside the project."""

    project = models.ForeignKey(Project, models.CASCADE, related_name="phases")
    number = models.PositiveIntegerField(validators=[MinValueValidator(1), MaxValueValidator(10_000)])
    name = models.CharField(max_length=100)
    description = models.TextField(blank=True)
    additional_notes = models.TextField(blank=True)
    working_directory = models.CharField(max_length=500, blank=True)
    lease_minutes = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(1440)],
        help_text="Minutes a claim lives without a sign of its holder; empty: the server's setting.",
    )
    wip_limit = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1)], help_text="Most tasks in progress at once."
    )
    requires_review = models.BooleanField(default=False)
    requires_evidence = models.BooleanField(
        default=False, help_text="A task is done only when every done definition has its evidence."
    )
    entry_phase = models.ForeignKey(
        "self",
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="opens",
        help_text="Tasks here become ready only after work in that phase is done.",
    )
    entry_done_tasks = models.PositiveIntegerField(
        default=1, validators=[MinValueValidator(1)], help_text="How many done tasks the entry phase needs."
    )
    allowed_toolsets = models.JSONField(
        default=list, blank=True, help_text="Toolsets meant for this phase; empty: all."
    )

    class Meta:
        ordering = ["project", "number"]
        constraints = [
            models.UniqueConstraint(fields=["project", "number"], name="one_phase_per_number"),
            models.CheckConstraint(condition=Q(number__gte=1), name="phase_number_from_1"),
            models.CheckConstraint(
                condition=Q(lease_minutes__isnull=True) | Q(lease_minutes__range=(1, 1440)), name="phase_lease_in_a_day"
            ),
            models.CheckConstraint(
                condition=Q(wip_limit__isnull=True) | Q(wip_limit__gte=1), name="phase_wip_limit_from_1"
            ),
            models.CheckConstraint(
                condition=Q(entry_phase__isnull=True) | ~Q(entry_phase=F("id")), name="phase_does_not_wait_for_itself"
            ),
            models.CheckConstraint(condition=Q(entry_done_tasks__gte=1), name="phase_entry_from_1"),
        ]

    def __str__(self) -> str:
        return f"{self.number}. {self.name}"

    @property
    def lease(self) -> timedelta:
        """How long a claim in this phase lives without a sign of its holder."""
        return timedelta(minutes=self.lease_minutes or config.current().workflow.lease_minutes)


class DoneDefinition(models.Model):
    """One condition a task of the phase meets when it is done."""

    phase = models.ForeignKey(Phase, models.CASCADE, related_name="done_definitions")
    position = models.PositiveIntegerField(default=0)
    text = models.CharField(max_length=500)

    class Meta:
        ordering = ["phase", "position", "id"]
        constraints = [
            models.UniqueConstraint(fields=["phase", "text"], name="one_done_definition_per_text"),
            models.CheckConstraint(condition=~Q(text=""), name="done_definition_says_something"),
        ]

    def __str__(self) -> str:
        return self.text


class SavedView(models.Model):
    """Filters of a board that a person keeps under a name; `query` is the part of its address after `?`."""

    project = models.ForeignKey(Project, models.CASCADE, related_name="saved_views")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    name = models.CharField(max_length=60)
    query = models.TextField(blank=True)

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.UniqueConstraint(fields=["project", "user", "name"], name="one_saved_view_per_name"),
            models.CheckConstraint(condition=~Q(name=""), name="saved_view_has_a_name"),
        ]

    def __str__(self) -> str:
        return self.name


class ActiveProject(models.Model):
    """The project `set_project` chose for an agent of a key."""

    key_id = models.BigIntegerField()
    agent_name = models.CharField(max_length=120)
    project = models.ForeignKey(Project, models.CASCADE, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["key_id", "agent_name"], name="one_active_project_per_agent")]

    def __str__(self) -> str:
        return f"{self.agent_name} of key {self.key_id}"
