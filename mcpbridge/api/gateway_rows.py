"""What backends, their actions, composite tools and plans look like over REST, and who may see and change what.

Whoever may read sees what a backend is and does; how it is started or reached is shown to administrators alone, and
what is secret (values of `env` and `headers`) to nobody.
"""

from typing import Any

import django_filters
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request

from devflow import actors
from devflow.actors import Actor
from devflow.errors import forbidden
from devflow.rest import Exact, Json, Text
from mcpbridge import keys
from mcpbridge.gateway import backends
from mcpbridge.models import Action, Backend, CompositeTool, EffectChoice, IntentChoice, Isolation, Plan, Transport
from mcpbridge.models.gateway import BACKEND_ID


def administers(request: Request) -> bool:
    """Whether somebody may manage backends: a superuser, or a key that `keys.administers`."""
    identity: Any = request.auth
    if identity is None:
        return bool(request.user.is_superuser)
    return keys.administers(identity.scope, identity.scopes)


def require_administrator(request: Request) -> Actor:
    """Who manages. Raises `forbidden`."""
    if not administers(request):
        raise forbidden(
            "Only an administrator of this server manages backends: they run commands on it.",
            suggestion="Use a key with the scope `admin` that is bound to no project, or ask an administrator.",
        )
    name = request.user.get_username()
    if request.auth is None:
        return actors.person(user_id=int(request.user.pk or 0), name=name, tool="rest")
    return Actor(kind="system", name=getattr(request.auth, "name", name), tool="rest")


class Names(serializers.ListField):
    """Texts, such as arguments of a command."""

    def __init__(self, **options: Any) -> None:
        super().__init__(child=serializers.CharField(), **options)


@extend_schema_field({"type": "object", "additionalProperties": {}})
class AnObject(serializers.JSONField):
    """A JSON object."""


class BackendSerializer(serializers.ModelSerializer[Backend]):
    ADMIN_ONLY = (
        *("command", "args", "env_names", "inherit_env", "url", "wraps", "header_names", "allowed_roots"),
        *("activation", "warnings"),
    )
    id = serializers.CharField(source="backend_id", read_only=True)
    args = Names(read_only=True, allow_null=True)
    command = serializers.CharField(read_only=True, allow_null=True, help_text="Shown to administrators, as is `args`.")
    env_names = serializers.SerializerMethodField(help_text="Names of the variables it is given; values are sealed.")
    header_names = serializers.SerializerMethodField(help_text="Names of the headers it is sent; values are sealed.")
    inherit_env = Names(read_only=True, allow_null=True)
    url = serializers.CharField(read_only=True, allow_null=True)
    wraps = serializers.CharField(read_only=True, allow_null=True)
    allowed_roots = Names(read_only=True, allow_null=True)
    activation = AnObject(read_only=True, allow_null=True)
    timeouts = AnObject(read_only=True)
    server_info = AnObject(read_only=True)
    warnings = serializers.SerializerMethodField(help_text="What is allowed and still worth a second look.")
    tools = serializers.IntegerField(read_only=True, help_text="Actions it has now.")
    held = serializers.IntegerField(read_only=True, help_text="Actions that changed and wait for approval.")

    class Meta:
        model = Backend
        fields = (
            *(
                "id",
                "display_name",
                "transport",
                "is_enabled",
                "status",
                "status_detail",
                "checked_at",
                "tools",
                "held",
            ),
            *("version", "isolation", "timeouts", "concurrency", "memory_mb", "warm_spares", "sandbox", "may_ask"),
            *("command", "args", "env_names", "inherit_env", "url", "wraps", "header_names"),
            *("allowed_roots", "activation"),
            *("warnings", "server_info", "protocol_version", "created_at", "changed_at"),
        )
        read_only_fields = fields

    @extend_schema_field({"type": ["array", "null"], "items": {"type": "string"}})
    def get_env_names(self, row: Backend) -> list[str]:
        return backends.secret_names(row, "env")

    @extend_schema_field({"type": ["array", "null"], "items": {"type": "string"}})
    def get_header_names(self, row: Backend) -> list[str]:
        return backends.secret_names(row, "headers")

    @extend_schema_field({"type": ["array", "null"], "items": {"type": "string"}})
    def get_warnings(self, row: Backend) -> list[str]:
        return backends.warnings_of(row)

    def to_representation(self, row: Backend) -> Any:
        shown = super().to_representation(row)
        return shown if self.context.get("is_administrator") else shown | dict.fromkeys(self.ADMIN_ONLY)


class BackendChange(Exact):
    display_name = Text(max_length=100, required=False, allow_blank=True)
    transport = serializers.ChoiceField(choices=Transport.choices, required=False)
    command = Text(max_length=500, required=False, allow_blank=True)
    args = serializers.ListField(child=Text(max_length=4000, allow_blank=True), max_length=200, required=False)
    env = serializers.DictField(
        child=Text(max_length=10_000, allow_blank=True, allow_null=True),
        required=False,
        help_text="Variables to add or replace; null drops one. `${NAME}` stands for this server's own variable.",
    )
    inherit_env = serializers.ListField(child=Text(max_length=200), max_length=100, required=False)
    url = Text(max_length=500, required=False, allow_blank=True)
    wraps = Text(max_length=64, required=False, allow_blank=True, help_text="For agent_cli: another backend's id.")
    headers = serializers.DictField(
        child=Text(max_length=10_000, allow_blank=True, allow_null=True),
        required=False,
        help_text="Headers to add or replace; null drops one.",
    )
    version = Text(max_length=64, required=False, allow_blank=True)
    isolation = serializers.ChoiceField(choices=Isolation.choices, required=False)
    timeouts = serializers.DictField(
        child=serializers.IntegerField(min_value=1, max_value=600_000),
        required=False,
        help_text="Milliseconds by intent: QUERY, ANALYZE, GENERATE, MODIFY, EXECUTE.",
    )
    concurrency = serializers.IntegerField(min_value=1, max_value=64, required=False)
    memory_mb = serializers.IntegerField(min_value=0, max_value=1024 * 1024, required=False)
    warm_spares = serializers.IntegerField(min_value=0, max_value=8, required=False)
    sandbox = serializers.BooleanField(required=False)
    may_ask = serializers.BooleanField(required=False)
    allowed_roots = serializers.ListField(child=Text(max_length=4096), max_length=50, required=False)
    activation = Json(required=False, allow_null=True)
    is_enabled = serializers.BooleanField(required=False)


class BackendCreate(BackendChange):
    id = serializers.RegexField(BACKEND_ID)


class LookedSerializer(serializers.Serializer[Any]):
    ok = serializers.BooleanField()
    duration_ms = serializers.FloatField()
    server = AnObject()
    protocol_version = serializers.CharField(allow_blank=True)
    tools = serializers.IntegerField()
    new = Names(help_text="Tools nobody knew yet.")
    gone = Names(help_text="Tools it no longer has.")
    held = Names(help_text="Tools that changed and wait for approval.")
    problems = AnObject(help_text="Tools that cannot be called, with the reason.")
    error = serializers.CharField(allow_blank=True, help_text="Why it could not be asked.")
    suggestion = serializers.CharField(allow_blank=True)


class ImportGiven(Exact):
    text = Text(max_length=1_000_000, help_text="The file: .mcp.json, VS Code's mcp.json, or agentify's backends.")
    preview = serializers.BooleanField(default=False, help_text="Say what would come of it, and write nothing.")


class ImportEntry(serializers.Serializer[Any]):
    id = serializers.CharField()
    what = serializers.ChoiceField(choices=["create", "change", "same", "skip"])
    changes = Names(help_text="Settings that change.")
    why = serializers.CharField(allow_blank=True, help_text="Why it is skipped.")
    warnings = Names()


class ImportDone(serializers.Serializer[Any]):
    entries = ImportEntry(many=True)


class ActionSerializer(serializers.ModelSerializer[Action]):
    backend = serializers.CharField(source="backend.backend_id", read_only=True)
    full_name = serializers.CharField(source="__str__", read_only=True)
    intent = serializers.SerializerMethodField(help_text="As the policy takes it, overrides included.")
    effect = serializers.SerializerMethodField(help_text="As the policy takes it, overrides included.")
    input_schema = AnObject(read_only=True)
    output_schema = AnObject(read_only=True, allow_null=True)
    annotations = AnObject(read_only=True)
    held = AnObject(read_only=True, allow_null=True, help_text="What it wants to be now, until somebody approves.")
    aliases = Names(read_only=True)
    lookup = AnObject(read_only=True, allow_null=True)
    references = AnObject(read_only=True, allow_null=True)

    class Meta:
        model = Action
        fields = (
            *("name", "full_name", "backend", "title", "description", "intent", "effect", "intent_override"),
            *("effect_override", "artifact", "aliases", "lookup", "references", "is_enabled", "is_federated"),
            *("is_gone", "problem", "held", "held_since", "input_schema", "output_schema", "annotations"),
            *("fingerprint", "first_seen", "changed_at"),
        )
        read_only_fields = fields

    def get_intent(self, row: Action) -> str:
        return row.intent_override or row.intent

    def get_effect(self, row: Action) -> str:
        return row.effect_override or row.effect


class ActionChange(Exact):
    intent_override = serializers.ChoiceField(choices=IntentChoice.choices, allow_blank=True, required=False)
    effect_override = serializers.ChoiceField(choices=EffectChoice.choices, allow_blank=True, required=False)
    artifact = serializers.ChoiceField(
        choices=["TEXT", "JSON", "CODE_PY", "CODE_TS", "PATCH", "BINARY"], required=False
    )
    aliases = serializers.ListField(child=Text(max_length=128), max_length=20, required=False)
    lookup = Json(required=False, allow_null=True)
    references = Json(required=False, allow_null=True)
    is_enabled = serializers.BooleanField(required=False)
    is_federated = serializers.BooleanField(required=False)


class Approval(Exact):
    fingerprint = Text(
        max_length=64, required=False, help_text="Of the definition you looked at (`held_fingerprint` of the diff)."
    )


class DiffSerializer(serializers.Serializer[Any]):
    held_fingerprint = serializers.CharField(allow_null=True, help_text="Give it to `approve`; null: nothing waits.")
    diff = serializers.CharField(allow_blank=True, help_text="Approved against wanted, as a unified diff.")


class CompositeSerializer(serializers.ModelSerializer[CompositeTool]):
    input_schema = AnObject(read_only=True)
    steps = serializers.ListField(child=AnObject(), read_only=True)

    class Meta:
        model = CompositeTool
        fields = (
            *("id", "name", "version", "description", "input_schema", "steps", "is_enabled", "retired_at"),
            *("created_at", "changed_at"),
        )
        read_only_fields = fields


class CompositeGiven(Exact):
    name = Text(max_length=48)
    description = Text(max_length=4000)
    input_schema = Json()
    steps = serializers.ListField(child=Json(), min_length=1, max_length=20)
    is_enabled = serializers.BooleanField(default=True)


class PlanSerializer(serializers.ModelSerializer[Plan]):
    id = serializers.CharField(source="plan_id", read_only=True)
    project = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True, allow_null=True)
    request = AnObject(read_only=True)
    answer = AnObject(read_only=True, allow_null=True)

    class Meta:
        model = Plan
        fields = (
            *("id", "project", "agent_name", "query", "request", "effect", "state", "answer", "decided_by"),
            *("created_at", "expires_at"),
        )
        read_only_fields = fields


class BackendRows(django_filters.FilterSet):
    class Meta:
        model = Backend
        fields = ("transport", "status", "is_enabled", "isolation")


class ActionRows(django_filters.FilterSet):
    held = django_filters.BooleanFilter(field_name="held", lookup_expr="isnull", exclude=True, label="Held back")

    class Meta:
        model = Action
        fields = ("intent", "effect", "is_enabled", "is_federated", "is_gone")


class CompositeRows(django_filters.FilterSet):
    retired = django_filters.BooleanFilter(field_name="retired_at", lookup_expr="isnull", exclude=True, label="Retired")

    class Meta:
        model = CompositeTool
        fields = ("name", "is_enabled")


class PlanRows(django_filters.FilterSet):
    project = django_filters.CharFilter(field_name="project__slug", label="Project (slug)")

    class Meta:
        model = Plan
        fields = ("state", "effect")
