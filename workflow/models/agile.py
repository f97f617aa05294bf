"""Epics, user stories, issues and sprints: a vocabulary of planning over the same tasks the board shows."""

from collections.abc import Sequence
from typing import Any, ClassVar

from django.conf import settings
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from devflow.fields import TagsField
from workflow.models.projects import Membership, Phase, Project
from workflow.models.tasks import CLOSED, Task
from workflow.models.tasks import Status as TaskStatus

MAX_SUBJECT = 200
MAX_REASON = 500
COLOR = RegexValidator(r"^#[0-9A-Fa-f]{6}$", "a colour such as #4da6ff")


class Kind(models.TextChoices):
    """The kinds of work item that have statuses of their own."""

    EPIC = "epic"
    USER_STORY = "user_story"
    TASK = "task"
    ISSUE = "issue"


class Category(models.TextChoices):
    """What a status means, whatever a project calls it."""

    NEW = "new"
    IN_PROGRESS = "in_progress"
    BLOCKED = "blocked"
    DONE = "done"
    CLOSED = "closed"
    OTHER = "other"


CLOSING = (Category.DONE, Category.CLOSED)


class Severity(models.TextChoices):
    TRIVIAL = "trivial"
    MINOR = "minor"
    NORMAL = "normal"
    MAJOR = "major"
    CRITICAL = "critical"
    BLOCKER = "blocker"


class Urgency(models.TextChoices):
    """The five priorities of the agile tools; a task's own three are high, normal and low."""

    LOWEST = "lowest"
    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"
    HIGHEST = "highest"


class _Named(models.Model):
    """A value a project chooses from: a name, a slug that is unique in the project, a place in the order."""

    name = models.CharField(max_length=80)
    slug = models.SlugField(max_length=80)
    order = models.PositiveIntegerField(default=0)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.name


class ItemStatus(_Named):
    """A status of one kind of work item in one project."""

    project = models.ForeignKey(Project, models.CASCADE, related_name="item_statuses")
    kind = models.CharField(max_length=12, choices=Kind)
    category = models.CharField(max_length=12, choices=Category)
    color = models.CharField(max_length=7, default="#8d99ae", validators=[COLOR])
    core = models.CharField(
        max_length=12,
        choices=TaskStatus,
        blank=True,
        help_text="Tasks: the state of the board it stands for, where its category does not say.",
    )

    class Meta:
        ordering = ["project", "kind", "order", "id"]
        verbose_name_plural = "item statuses"
        constraints = [
            models.UniqueConstraint(fields=["project", "kind", "slug"], name="one_item_status_per_slug"),
            models.CheckConstraint(condition=Q(kind__in=Kind.values), name="item_status_kind_known"),
            models.CheckConstraint(condition=Q(category__in=Category.values), name="item_status_category_known"),
        ]

    @property
    def is_closed(self) -> bool:
        return self.category in CLOSING


def category_of(task: Task) -> Category:
    """What the board's state means in the vocabulary of planning."""
    if task.manual_block and task.status not in CLOSED:
        return Category.BLOCKED
    return {
        TaskStatus.PENDING: Category.NEW,
        TaskStatus.READY: Category.NEW,
        TaskStatus.IN_PROGRESS: Category.IN_PROGRESS,
        TaskStatus.DONE: Category.DONE,
        TaskStatus.CANCELLED: Category.CLOSED,
    }.get(TaskStatus(task.status), Category.OTHER)


def is_shown_as(task: Task, status: ItemStatus) -> bool:
    """Whether a project's status still says where the task is."""
    if status.core:
        return status.core == task.status and not (task.manual_block and task.status not in CLOSED)
    if status.category == Category.OTHER:
        return task.status not in CLOSED
    if status.category == Category.CLOSED:
        return task.status in (TaskStatus.DONE, TaskStatus.CANCELLED)
    return status.category == category_of(task)


def shown_status(task: Task, statuses: Sequence[ItemStatus]) -> ItemStatus:
    """The project's status of a task: the one chosen, while it holds, else the first that fits."""
    if task.item_status is not None and is_shown_as(task, task.item_status):
        return task.item_status
    fitting = [status for status in statuses if is_shown_as(task, status)]
    pinned = [status for status in fitting if status.core]
    exact = [status for status in fitting if status.category == category_of(task)]
    return next(iter(pinned or exact or fitting or statuses))


class IssueType(_Named):
    project = models.ForeignKey(Project, models.CASCADE, related_name="issue_types")
    color = models.CharField(max_length=7, default="#8d99ae", validators=[COLOR])

    class Meta:
        ordering = ["project", "order", "id"]
        constraints = [models.UniqueConstraint(fields=["project", "slug"], name="one_issue_type_per_slug")]


class AgileRole(_Named):
    """What a member does; roles that estimate give a story its points."""

    project = models.ForeignKey(Project, models.CASCADE, related_name="agile_roles")
    estimates = models.BooleanField(default=True)

    class Meta:
        ordering = ["project", "order", "id"]
        constraints = [models.UniqueConstraint(fields=["project", "slug"], name="one_agile_role_per_slug")]


class Point(models.Model):
    """One value of a project's scale of estimates; `value` is None for what is not known yet."""

    project = models.ForeignKey(Project, models.CASCADE, related_name="points")
    name = models.CharField(max_length=20)
    value = models.FloatField(null=True, blank=True)
    order = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["project", "order", "id"]
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="one_point_per_name")]

    def __str__(self) -> str:
        return self.name


class MemberRole(models.Model):
    """The agile role of a member of a project."""

    membership = models.OneToOneField(Membership, models.CASCADE, related_name="agile")
    role = models.ForeignKey(AgileRole, models.CASCADE, related_name="members")

    def __str__(self) -> str:
        return f"{self.membership_id}: {self.role}"


class Sprint(_Named):
    """A stretch of days a team plans stories into."""

    project = models.ForeignKey(Project, models.CASCADE, related_name="sprints")
    starts_on = models.DateField()
    ends_on = models.DateField()
    is_closed = models.BooleanField("closed", default=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["project", "-starts_on", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["project", "slug"], name="one_sprint_per_slug"),
            models.CheckConstraint(condition=Q(ends_on__gte=F("starts_on")), name="sprint_ends_after_its_start"),
        ]


class WorkItem(models.Model):
    """What epics, stories and issues have in common. `ref` counts in the project over every kind of item."""

    ref = models.PositiveIntegerField(editable=False)
    subject = models.CharField(max_length=MAX_SUBJECT)
    description = models.TextField(blank=True)
    tags = TagsField(default=list, blank=True)
    is_blocked = models.BooleanField("blocked", default=False)
    blocked_reason = models.CharField(max_length=MAX_REASON, blank=True)
    position = models.BigIntegerField(default=0)
    version = models.PositiveIntegerField(default=1, editable=False)
    created_by = models.CharField(max_length=150, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(default=timezone.now, editable=False)
    closed_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"#{self.ref} {self.subject}"


class Epic(WorkItem):
    project = models.ForeignKey(Project, models.CASCADE, related_name="epics")
    status = models.ForeignKey(ItemStatus, models.RESTRICT, related_name="+")
    assigned_to = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="assigned_epics"
    )
    creator_user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+", editable=False
    )
    color = models.CharField(max_length=7, default="#4da6ff", validators=[COLOR])

    class Meta:
        ordering = ["project", "position", "id"]
        constraints = [models.UniqueConstraint(fields=["project", "ref"], name="one_epic_per_ref")]
        indexes = [models.Index(fields=["project", "position", "id"], name="epic_order")]


class UserStory(WorkItem):
    project = models.ForeignKey(Project, models.CASCADE, related_name="user_stories")
    status = models.ForeignKey(ItemStatus, models.RESTRICT, related_name="+")
    assigned_to = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="assigned_stories"
    )
    creator_user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+", editable=False
    )
    epic = models.ForeignKey(Epic, models.SET_NULL, null=True, blank=True, related_name="stories")
    sprint = models.ForeignKey(Sprint, models.SET_NULL, null=True, blank=True, related_name="stories")
    phase = models.ForeignKey(
        Phase, models.SET_NULL, null=True, blank=True, related_name="+", help_text="Where its new tasks go."
    )
    points = models.JSONField(default=dict, blank=True, help_text="Estimates by role: {slug: value}.")
    priority = models.CharField(max_length=8, choices=Urgency, default=Urgency.NORMAL)
    due_on = models.DateField(null=True, blank=True)

    class Meta:
        ordering = ["project", "position", "id"]
        verbose_name_plural = "user stories"
        constraints = [
            models.UniqueConstraint(fields=["project", "ref"], name="one_story_per_ref"),
            models.CheckConstraint(condition=Q(priority__in=Urgency.values), name="story_priority_known"),
        ]
        indexes = [
            models.Index(fields=["project", "position", "id"], name="story_order"),
            models.Index(fields=["epic", "position"], name="story_epic"),
            models.Index(fields=["sprint", "position"], name="story_sprint"),
        ]

    @property
    def total_points(self) -> float:
        return float(sum(value for value in self.points.values() if isinstance(value, int | float)))


class Issue(WorkItem):
    project = models.ForeignKey(Project, models.CASCADE, related_name="issues")
    status = models.ForeignKey(ItemStatus, models.RESTRICT, related_name="+")
    assigned_to = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="assigned_issues"
    )
    creator_user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+", editable=False
    )
    type = models.ForeignKey(IssueType, models.SET_NULL, null=True, blank=True, related_name="issues")
    sprint = models.ForeignKey(Sprint, models.SET_NULL, null=True, blank=True, related_name="issues")
    severity = models.CharField(max_length=8, choices=Severity, default=Severity.NORMAL)
    priority = models.CharField(max_length=8, choices=Urgency, default=Urgency.NORMAL)

    class Meta:
        ordering = ["project", "position", "id"]
        constraints = [
            models.UniqueConstraint(fields=["project", "ref"], name="one_issue_per_ref"),
            models.CheckConstraint(condition=Q(severity__in=Severity.values), name="issue_severity_known"),
            models.CheckConstraint(condition=Q(priority__in=Urgency.values), name="issue_priority_known"),
        ]
        indexes = [models.Index(fields=["project", "position", "id"], name="issue_order")]


class Comment(models.Model):
    """A comment on an epic, a story or an issue; those on tasks are notes."""

    epic = models.ForeignKey(Epic, models.CASCADE, null=True, blank=True, related_name="comments")
    story = models.ForeignKey(UserStory, models.CASCADE, null=True, blank=True, related_name="comments")
    issue = models.ForeignKey(Issue, models.CASCADE, null=True, blank=True, related_name="comments")
    body = models.TextField()
    actor_kind = models.CharField(max_length=10)
    actor_name = models.CharField(max_length=150)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(condition=~Q(body=""), name="comment_says_something"),
            models.CheckConstraint(
                condition=Q(epic__isnull=False, story__isnull=True, issue__isnull=True)
                | Q(epic__isnull=True, story__isnull=False, issue__isnull=True)
                | Q(epic__isnull=True, story__isnull=True, issue__isnull=False),
                name="comment_is_on_one_thing",
            ),
        ]

    def __str__(self) -> str:
        return self.body[:80]


class RemoteProject(models.Model):
    """A real Taiga this project is worked on in. `sealed_login` is never given out again."""

    class State(models.TextChoices):
        NEW = "new"
        UP = "up"
        AWAY = "away"
        REFUSED = "refused"

    project = models.OneToOneField(Project, models.CASCADE, related_name="remote")
    url = models.CharField(max_length=500, help_text="Its API, such as https://taiga.example.com/api/v1.")
    remote_id = models.PositiveIntegerField()
    remote_slug = models.CharField(max_length=250, blank=True)
    sealed_login = models.TextField(blank=True, editable=False)
    attributes = models.JSONField(default=dict, editable=False, help_text="Its statuses, roles, points: last read.")
    attributes_at = models.DateTimeField(null=True, editable=False)
    state = models.CharField(max_length=8, choices=State, default=State.NEW, editable=False)
    detail = models.TextField(blank=True, editable=False)
    checked_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering: ClassVar[list[Any]] = ["project"]

    def __str__(self) -> str:
        return f"{self.project_id} at {self.url}"


class ImportedItem(models.Model):
    """What an import from a Taiga made of one of its objects, so that the next one finds it again.

    `source` names the project there, `key` the object; `version` is the one that was read last.
    """

    project = models.ForeignKey(Project, models.CASCADE, related_name="+")
    source = models.CharField(max_length=520)
    kind = models.CharField(max_length=12)
    key = models.CharField(max_length=40)
    local_id = models.BigIntegerField()
    version = models.PositiveIntegerField(default=0)

    class Meta:
        ordering: ClassVar[list[Any]] = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["project", "source", "kind", "key"], name="one_import_per_object"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"
