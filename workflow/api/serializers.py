"""How rows look in the API, and what a change may carry. Public ids throughout: slugs, phase numbers, `task-12`."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from devflow.rest import Exact, Json, Text
from workflow.models import (
    Agent,
    Dependency,
    Event,
    Gate,
    Membership,
    Message,
    Note,
    Phase,
    Priority,
    Project,
    Status,
    Task,
)
from workflow.selectors.board import COLUMN_NAMES, FIRST_COLUMNS

PRIORITIES = [(item.label, item.label) for item in Priority]
TASK_ID = r"^(task-)?[1-9][0-9]{0,15}$"


class TaskId(serializers.RegexField):
    def __init__(self, **options: Any) -> None:
        super().__init__(TASK_ID, **options)


class ProjectSerializer(serializers.ModelSerializer[Project]):
    class Meta:
        model = Project
        fields = (
            *("slug", "name", "description", "require_review", "gates_enabled", "column_limits"),
            *("created_at", "archived_at"),
        )
        read_only_fields = fields


class ProjectCreate(Exact):
    slug = serializers.SlugField(max_length=50)
    name = Text(max_length=100, required=False, allow_blank=True)
    description = Text(required=False, allow_blank=True)
    template = serializers.ChoiceField(choices=["analysis", "bugfix", "documentation"], default="analysis")


class ProjectChange(Exact):
    name = Text(max_length=100, required=False)
    description = Text(required=False, allow_blank=True)
    require_review = serializers.BooleanField(required=False)
    gates_enabled = serializers.BooleanField(required=False)
    column_limits = serializers.DictField(
        child=serializers.IntegerField(min_value=1, max_value=100_000, allow_null=True), required=False
    )


class PhaseSerializer(serializers.ModelSerializer[Phase]):
    project = serializers.SlugRelatedField[Project](slug_field="slug", read_only=True)
    entry_phase = serializers.SlugRelatedField[Phase](slug_field="number", read_only=True, allow_null=True)
    done_definitions = serializers.SlugRelatedField[Any](slug_field="text", many=True, read_only=True)

    class Meta:
        model = Phase
        fields = (
            *("id", "project", "number", "name", "description", "done_definitions", "additional_notes"),
            *("working_directory", "lease_minutes", "wip_limit", "requires_review", "requires_evidence"),
            *("entry_phase", "entry_done_tasks", "allowed_toolsets"),
        )
        read_only_fields = fields


class PhaseChange(Exact):
    name = Text(max_length=100)
    description = Text(required=False, allow_blank=True)
    done_definitions = serializers.ListField(child=Text(max_length=500), min_length=1, max_length=100)
    additional_notes = Text(required=False, allow_blank=True)
    working_directory = Text(max_length=500, required=False, allow_blank=True)
    lease_minutes = serializers.IntegerField(min_value=1, max_value=1440, required=False, allow_null=True)
    wip_limit = serializers.IntegerField(min_value=1, max_value=100_000, required=False, allow_null=True)
    requires_review = serializers.BooleanField(required=False)
    requires_evidence = serializers.BooleanField(required=False)
    entry_phase = serializers.IntegerField(min_value=1, max_value=10_000, required=False, allow_null=True)
    entry_done_tasks = serializers.IntegerField(min_value=1, max_value=100_000, required=False)
    allowed_toolsets = serializers.ListField(child=Text(max_length=64), max_length=20, required=False)


class PhaseCreate(PhaseChange):
    project = serializers.SlugField()
    number = serializers.IntegerField(min_value=1, max_value=10_000)


class TaskSerializer(serializers.ModelSerializer[Task]):
    id = serializers.CharField(source="public_id", read_only=True)
    project = serializers.SlugRelatedField[Project](slug_field="slug", read_only=True)
    phase = serializers.SlugRelatedField[Phase](slug_field="number", read_only=True)
    status = serializers.ChoiceField(source="current_status", choices=Status.choices, read_only=True)
    priority = serializers.ChoiceField(source="priority_name", choices=PRIORITIES, read_only=True)
    assigned_agent = serializers.SlugRelatedField[Agent](slug_field="name", read_only=True, allow_null=True)
    reserved_for = serializers.SlugRelatedField[Agent](slug_field="name", read_only=True, allow_null=True)
    parent = serializers.SerializerMethodField()  # type: ignore[assignment]  # declared fields leave the class again
    blocked_by = serializers.SerializerMethodField(help_text="Open blockers.")

    class Meta:
        model = Task
        fields = (
            *("id", "ref", "project", "phase", "subject", "description", "status", "priority", "boosted", "tags"),
            *(
                "metadata",
                "blocked_by",
                "manual_block",
                "parent",
                "created_by",
                "assigned_agent",
                "reserved_for",
                "result",
            ),
            *("attempts", "iteration", "version", "lease_expires_at", "created_at", "updated_at", "ready_since"),
            *("started_at", "completed_at"),
        )
        read_only_fields = fields

    def get_parent(self, task: Task) -> str | None:
        return None if task.parent_id is None else f"task-{task.parent_id}"

    def get_blocked_by(self, task: Task) -> list[str]:
        return [f"task-{link.blocker_id}" for link in task.dependencies.all() if link.blocker.status != Status.DONE]


class TaskChange(Exact):
    version = serializers.IntegerField(
        min_value=1, max_value=2**31 - 1, required=False, help_text="The version the change was decided on."
    )
    phase = serializers.IntegerField(min_value=1, max_value=10_000, required=False)
    subject = Text(max_length=255, required=False)
    description = Text(required=False)
    priority = serializers.ChoiceField(choices=PRIORITIES, required=False)
    boosted = serializers.BooleanField(required=False)
    tags = serializers.ListField(child=Text(max_length=64), max_length=50, required=False)
    metadata = Json(required=False)
    manual_block = Text(max_length=500, required=False, allow_blank=True, help_text="Why it must wait; empty: go on.")


class TaskCreate(Exact):
    project = serializers.SlugField()
    phase = serializers.IntegerField(min_value=1, max_value=10_000)
    description = Text()
    subject = Text(max_length=255, required=False, allow_blank=True)
    priority = serializers.ChoiceField(choices=PRIORITIES, default="medium")
    tags = serializers.ListField(child=Text(max_length=64), max_length=50, required=False)
    metadata = Json(required=False)
    blocked_by = serializers.ListField(child=TaskId(), max_length=200, required=False)
    parent = TaskId(required=False, allow_null=True)  # type: ignore[assignment]  # as above
    manual_block = Text(max_length=500, required=False, allow_blank=True)
    column = serializers.ChoiceField(
        choices=FIRST_COLUMNS,
        required=False,
        help_text="Where its card is wanted: `backlog` holds it back by hand, `in_progress` starts it for the caller.",
    )


class Bulk(Exact):
    ids = serializers.ListField(child=TaskId(), min_length=1, max_length=200)
    action = serializers.ChoiceField(choices=["move", "tag", "untag", "assign", "cancel"])
    column = serializers.ChoiceField(choices=COLUMN_NAMES, required=False)
    tag = Text(max_length=64, required=False)
    agent = Text(
        max_length=120, required=False, allow_blank=True, help_text="Whom they are reserved for; empty: nobody."
    )
    reason = Text(max_length=2_000, required=False, allow_blank=True)


class BulkOutcome(serializers.Serializer[Any]):
    id = serializers.CharField(source="task_id")
    ok = serializers.BooleanField()
    version = serializers.IntegerField(allow_null=True, help_text="The task's version after the change.")
    error = serializers.CharField(allow_blank=True, help_text="Why it was refused; empty: it was not.")


class BulkOutcomes(serializers.Serializer[Any]):
    results = BulkOutcome(many=True)


class Reason(Exact):
    reason = Text(max_length=2_000, required=False, allow_blank=True)


class Undo(Exact):
    version = serializers.IntegerField(
        min_value=1, max_value=2**31 - 1, required=False, help_text="The version the move left; refused if it changed."
    )


class Review(Exact):
    decision = serializers.ChoiceField(choices=["approve", "reject"])
    feedback = Text(required=False, allow_blank=True)
    version = serializers.IntegerField(min_value=1, max_value=2**31 - 1, required=False)


class Move(Exact):
    column = serializers.ChoiceField(choices=COLUMN_NAMES)
    after = TaskId(required=False)
    before = TaskId(required=False)
    version = serializers.IntegerField(min_value=1, max_value=2**31 - 1, required=False)
    reason = Text(max_length=2_000, required=False, allow_blank=True)


class NoteSerializer(serializers.ModelSerializer[Note]):
    class Meta:
        model = Note
        fields = ("id", "kind", "body", "actor_kind", "actor_name", "created_at")
        read_only_fields = fields


class NoteCreate(Exact):
    body = Text()
    kind = serializers.ChoiceField(choices=["note", "handover"], default="note")


class DependencySerializer(serializers.ModelSerializer[Dependency]):
    project = serializers.CharField(source="task.project.slug", read_only=True)
    task = serializers.SerializerMethodField()
    blocker = serializers.SerializerMethodField()
    blocker_status = serializers.CharField(source="blocker.status", read_only=True)

    class Meta:
        model = Dependency
        fields = ("id", "project", "task", "blocker", "blocker_status", "created_at")
        read_only_fields = fields

    def get_task(self, link: Dependency) -> str:
        return f"task-{link.task_id}"

    def get_blocker(self, link: Dependency) -> str:
        return f"task-{link.blocker_id}"


class DependencyCreate(Exact):
    task = TaskId()
    blocker = TaskId()


class AgentSerializer(serializers.ModelSerializer[Agent]):
    agent_id = serializers.CharField(source="name", read_only=True)
    project = serializers.SlugRelatedField[Project](slug_field="slug", read_only=True)
    phase = serializers.SlugRelatedField[Phase](slug_field="number", read_only=True, allow_null=True)
    status = serializers.SerializerMethodField()

    class Meta:
        model = Agent
        fields = (
            *("id", "agent_id", "project", "status", "phase", "client", "transport", "last_action", "last_seen"),
            *("started_at", "retired_at"),
        )
        read_only_fields = fields

    @extend_schema_field(serializers.ChoiceField(choices=["working", "idle", "stale", "offline"]))
    def get_status(self, agent: Any) -> str:
        status: str = agent.presence(at=self.context["now"], holds_lease=agent.holds_lease)
        return status


class MessageSerializer(serializers.ModelSerializer[Message]):
    project = serializers.SlugRelatedField[Project](slug_field="slug", read_only=True)
    recipient = serializers.SlugRelatedField[Agent](slug_field="name", read_only=True)
    task = serializers.SerializerMethodField()

    class Meta:
        model = Message
        fields = (
            *("id", "project", "recipient", "sender_kind", "sender_name", "kind", "body", "task"),
            *("delivered_at", "read_at", "acknowledged_at"),
        )
        read_only_fields = fields

    def get_task(self, message: Message) -> str | None:
        return None if message.task_id is None else f"task-{message.task_id}"


class MessageCreate(Exact):
    project = serializers.SlugField()
    to = Text(max_length=120, help_text="An agent, `*` for all of them, `phase:2` for those in a phase.")
    body = Text()
    task = TaskId(required=False, allow_null=True)


class GateSerializer(serializers.ModelSerializer[Gate]):
    project = serializers.SlugRelatedField[Project](slug_field="slug", read_only=True)
    phase = serializers.SlugRelatedField[Phase](slug_field="number", read_only=True, allow_null=True)
    task = serializers.SerializerMethodField()

    class Meta:
        model = Gate
        fields = (
            *("id", "project", "name", "is_set", "version", "phase", "task", "actor_kind", "actor_name"),
            *("reason", "changed_at"),
        )
        read_only_fields = fields

    def get_task(self, gate: Gate) -> str | None:
        return None if gate.task_id is None else f"task-{gate.task_id}"


class GateSet(Exact):
    project = serializers.SlugField()
    name = serializers.RegexField(r"^[a-z0-9][a-z0-9-]{0,63}$")
    is_set = serializers.BooleanField(default=True)
    task = TaskId(required=False, allow_null=True)
    phase = serializers.IntegerField(min_value=1, max_value=10_000, required=False, allow_null=True)
    reason = Text(max_length=2_000, required=False, allow_blank=True)
    expected_version = serializers.IntegerField(min_value=0, max_value=2**31 - 1, required=False, allow_null=True)


class EventSerializer(serializers.ModelSerializer[Event]):
    project = serializers.SlugRelatedField[Project](slug_field="slug", read_only=True)
    phase = serializers.SlugRelatedField[Phase](slug_field="number", read_only=True, allow_null=True)
    task = serializers.SerializerMethodField()

    class Meta:
        model = Event
        fields = (
            *("id", "project", "kind", "actor_kind", "actor_name", "tool", "task", "phase", "before", "after", "at"),
        )
        read_only_fields = fields

    def get_task(self, event: Event) -> str | None:
        return None if event.task_id is None else f"task-{event.task_id}"


class MembershipSerializer(serializers.ModelSerializer[Membership]):
    project = serializers.SlugRelatedField[Project](slug_field="slug", read_only=True)
    user = serializers.SlugRelatedField[Any](slug_field="username", read_only=True)

    class Meta:
        model = Membership
        fields = ("id", "project", "user", "role", "created_at")
        read_only_fields = fields


class MembershipSet(Exact):
    project = serializers.SlugField()
    user = Text(max_length=150)
    role = serializers.ChoiceField(choices=Membership.Role.choices)


class MembershipChange(Exact):
    role = serializers.ChoiceField(choices=Membership.Role.choices)
