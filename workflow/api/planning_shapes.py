"""How epics, stories, issues, sprints and the words of planning look in the API, and what a change may carry.

Statuses and types go by their slug, people by their user name, sprints and epics by their id.
"""

from typing import Any

from rest_framework import serializers

from devflow.rest import Exact, Text
from workflow.models import (
    Category,
    Epic,
    Issue,
    IssueType,
    ItemStatus,
    Kind,
    Project,
    Severity,
    Sprint,
    Status,
    Urgency,
    UserStory,
)
from workflow.models.agile import MAX_REASON, MAX_SUBJECT
from workflow.selectors import agile

COLOR = r"^#[0-9A-Fa-f]{6}$"
KINDS = Kind.choices
CATEGORIES = Category.choices
URGENCIES = Urgency.choices
SEVERITIES = Severity.choices
_BASE = ("id", "ref", "project", "subject", "description", "status", "assigned_to", "tags")
_STATE = ("is_blocked", "blocked_reason", "version", "created_by", "created_at", "updated_at", "closed_at")


class _Item(serializers.ModelSerializer[Any]):
    project = serializers.SlugRelatedField[Project](slug_field="slug", read_only=True)
    status = serializers.SlugRelatedField[ItemStatus](slug_field="slug", read_only=True)
    assigned_to = serializers.SlugRelatedField[Any](slug_field="username", read_only=True, allow_null=True)


class ProgressSerializer(serializers.Serializer[Any]):
    total = serializers.IntegerField()
    completed = serializers.IntegerField()
    percent = serializers.IntegerField()


class EpicSerializer(_Item):
    progress = serializers.SerializerMethodField()

    class Meta:
        model = Epic
        fields = (*_BASE, "color", "progress", *_STATE)
        read_only_fields = fields

    def get_progress(self, epic: Epic) -> ProgressSerializer:
        return ProgressSerializer(agile.epic_progress(epic)).data  # type: ignore[return-value]  # what the schema is told


class StorySerializer(_Item):
    epic = serializers.IntegerField(source="epic_id", read_only=True, allow_null=True)
    sprint = serializers.IntegerField(source="sprint_id", read_only=True, allow_null=True)
    points = serializers.DictField(child=serializers.FloatField(), read_only=True, help_text="Estimates by role.")
    total_points = serializers.FloatField(read_only=True)
    progress = serializers.SerializerMethodField()

    class Meta:
        model = UserStory
        fields = (
            *(*_BASE, "epic", "sprint", "priority", "points", "total_points", "due_on", "position", "progress"),
            *_STATE,
        )
        read_only_fields = fields

    def get_progress(self, story: UserStory) -> ProgressSerializer:
        return ProgressSerializer(agile.story_progress(story)).data  # type: ignore[return-value]  # as above


class IssueSerializer(_Item):
    type = serializers.SlugRelatedField[IssueType](slug_field="slug", read_only=True, allow_null=True)
    sprint = serializers.IntegerField(source="sprint_id", read_only=True, allow_null=True)

    class Meta:
        model = Issue
        fields = (*_BASE, "type", "severity", "priority", "sprint", *_STATE)
        read_only_fields = fields


class SprintSerializer(serializers.ModelSerializer[Sprint]):
    project = serializers.SlugRelatedField[Project](slug_field="slug", read_only=True)

    class Meta:
        model = Sprint
        fields = ("id", "project", "name", "slug", "starts_on", "ends_on", "is_closed", "created_at")
        read_only_fields = fields


class StatusSerializer(serializers.ModelSerializer[ItemStatus]):
    project = serializers.SlugRelatedField[Project](slug_field="slug", read_only=True)
    is_closed = serializers.BooleanField(read_only=True)

    class Meta:
        model = ItemStatus
        fields = ("id", "project", "kind", "name", "slug", "order", "category", "is_closed", "color", "core")
        read_only_fields = fields


class TypeSerializer(serializers.ModelSerializer[IssueType]):
    project = serializers.SlugRelatedField[Project](slug_field="slug", read_only=True)

    class Meta:
        model = IssueType
        fields = ("id", "project", "name", "slug", "order", "color")
        read_only_fields = fields


class _Id(serializers.IntegerField):
    def __init__(self, **options: Any) -> None:
        super().__init__(min_value=1, max_value=2**53, required=False, allow_null=True, **options)


class _ItemChange(Exact):
    subject = Text(max_length=MAX_SUBJECT, required=False)
    description = Text(required=False, allow_blank=True)
    status = serializers.SlugField(max_length=80, required=False, help_text="Slug of one of the project's statuses.")
    assigned_to = Text(max_length=150, required=False, allow_null=True, help_text="User name of a member.")
    tags = serializers.ListField(child=Text(max_length=40), max_length=32, required=False)
    is_blocked = serializers.BooleanField(required=False)
    blocked_reason = Text(max_length=MAX_REASON, required=False, allow_blank=True)


class _Versioned(Exact):
    version = serializers.IntegerField(
        min_value=1, max_value=2**31 - 1, required=False, help_text="The version the change was decided on."
    )


class _New(Exact):
    project = serializers.SlugField()


class EpicChange(_ItemChange, _Versioned):
    color = serializers.RegexField(COLOR, required=False)


class StoryChange(_ItemChange, _Versioned):
    epic = _Id()
    sprint = _Id()
    priority = serializers.ChoiceField(choices=URGENCIES, required=False)
    points = serializers.DictField(
        child=serializers.FloatField(min_value=0, max_value=1000, allow_null=True), required=False
    )
    due_on = serializers.DateField(required=False, allow_null=True)


class IssueChange(_ItemChange, _Versioned):
    type = serializers.SlugField(max_length=80, required=False, allow_null=True)
    severity = serializers.ChoiceField(choices=SEVERITIES, required=False)
    priority = serializers.ChoiceField(choices=URGENCIES, required=False)
    sprint = _Id()


class EpicCreate(EpicChange, _New):
    subject = Text(max_length=MAX_SUBJECT)
    version = None  # type: ignore[assignment]  # nothing to have read before


class StoryCreate(StoryChange, _New):
    subject = Text(max_length=MAX_SUBJECT)
    version = None  # type: ignore[assignment]  # as above


class IssueCreate(IssueChange, _New):
    subject = Text(max_length=MAX_SUBJECT)
    version = None  # type: ignore[assignment]  # as above


class SprintChange(Exact):
    name = Text(max_length=80, required=False)
    starts_on = serializers.DateField(required=False)
    ends_on = serializers.DateField(required=False)
    is_closed = serializers.BooleanField(required=False)


class SprintCreate(_New):
    name = Text(max_length=80)
    starts_on = serializers.DateField()
    ends_on = serializers.DateField()


class StatusChange(Exact):
    name = Text(max_length=80, required=False)
    category = serializers.ChoiceField(choices=CATEGORIES, required=False)
    color = serializers.RegexField(COLOR, required=False)
    core = serializers.ChoiceField(
        choices=Status.choices,
        required=False,
        allow_blank=True,
        help_text="Tasks: the state of the board it stands for.",
    )


class StatusCreate(StatusChange, _New):
    name = Text(max_length=80)
    kind = serializers.ChoiceField(choices=KINDS)


class TypeChange(Exact):
    name = Text(max_length=80, required=False)
    color = serializers.RegexField(COLOR, required=False)


class TypeCreate(TypeChange, _New):
    name = Text(max_length=80)


class CommentCreate(Exact):
    body = Text()


class CommentSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    body = serializers.CharField()
    actor_kind = serializers.CharField()
    actor_name = serializers.CharField()
    created_at = serializers.DateTimeField()


class Order(Exact):
    """All words of a sort, in the order they are to have."""

    project = serializers.SlugField()
    ids = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=2**53), min_length=1, max_length=200
    )


class StatusOrder(Order):
    kind = serializers.ChoiceField(choices=KINDS)
