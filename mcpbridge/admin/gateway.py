"""Backends, their actions, composite tools, plans and children in the admin. Everything is written by services.

Only superusers change anything here: a backend is a command that this server runs.
"""

import json
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from devflow.administration import ModelAdmin, ReadOnlyAdmin, each, person_of
from mcpbridge.gateway import backends, composites, differences, looking
from mcpbridge.gateway_forms import OF_ACTION, ActionForm, BackendForm, CompositeForm
from mcpbridge.models import Action, Backend, ChildProcess, CompositeTool, Plan


class OfSuperusers(ModelAdmin):
    """Seen by whoever has the permission, changed by superusers alone."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_superuser)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return bool(request.user.is_superuser)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return bool(request.user.is_superuser)


@admin.register(Backend)
class BackendAdmin(OfSuperusers):
    form = BackendForm
    list_display = ("backend_id", "display_name", "transport", "is_enabled", "status", "checked_at", "actions_of_it")
    list_filter = ("transport", "status", "is_enabled")
    search_fields = ("backend_id", "display_name")
    readonly_fields = ("status", "status_detail", "checked_at", "server_info", "protocol_version", "created_at")
    actions = ("ask", "switch_on", "switch_off")

    @admin.display(description="actions")
    def actions_of_it(self, row: Backend) -> SafeString:
        place = reverse("admin:mcpbridge_action_changelist")
        return format_html('<a href="{}?backend__id__exact={}">actions</a>', place, row.pk)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **options: Any) -> Any:
        """Its fields are those of the form, of which some come and go with what is stored."""
        if obj is not None and not self.has_change_permission(request, obj):
            return super().get_form(request, obj, change, fields=(), form=forms.ModelForm)
        return BackendForm

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        shown = self.get_readonly_fields(request, obj) if obj is not None else ()
        if obj is not None and not self.has_change_permission(request, obj):
            return shown
        return [*BackendForm(instance=obj).fields, *shown]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is not None and not self.has_change_permission(request, obj):
            return ("backend_id", "display_name", "transport", "is_enabled", *self.readonly_fields)
        return self.readonly_fields if obj is not None else ()

    def save_model(self, request: HttpRequest, obj: Backend, form: Any, change: bool) -> None:
        kept = form.write(person_of(request))
        obj.__dict__.update(kept.backend.__dict__)
        for words in kept.warnings:
            self.message_user(request, words, messages.WARNING)

    def delete_model(self, request: HttpRequest, obj: Backend) -> None:
        backends.remove(obj.backend_id, by=person_of(request))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Backend]) -> None:
        for row in queryset:
            backends.remove(row.backend_id, by=person_of(request))

    def _each(self, request: HttpRequest, queryset: QuerySet[Backend], done: str, service: Any) -> None:
        each(self, request, queryset, done, service)

    @admin.action(description="Ask for its tools now", permissions=["change"])
    def ask(self, request: HttpRequest, queryset: QuerySet[Backend]) -> None:
        for row in queryset:
            looked = looking.look(row.backend_id)
            words = f"{row.backend_id}: {looked.tools} tools." if looked.ok else looked.error
            self.message_user(request, words, messages.SUCCESS if looked.ok else messages.ERROR)

    @admin.action(description="Switch on", permissions=["change"])
    def switch_on(self, request: HttpRequest, queryset: QuerySet[Backend]) -> None:
        self._each(
            request, queryset, "switched on", lambda row, by: backends.change(row.backend_id, by=by, is_enabled=True)
        )

    @admin.action(description="Switch off", permissions=["change"])
    def switch_off(self, request: HttpRequest, queryset: QuerySet[Backend]) -> None:
        self._each(
            request, queryset, "switched off", lambda row, by: backends.change(row.backend_id, by=by, is_enabled=False)
        )


@admin.register(Action)
class ActionAdmin(OfSuperusers):
    form = ActionForm
    list_display = ("name", "backend", "the_intent", "the_effect", "is_enabled", "is_federated", "is_held", "is_gone")
    list_select_related = ("backend",)
    list_filter = ("backend", "effect", ("held_since", admin.EmptyFieldListFilter), "is_enabled", "is_federated")
    search_fields = ("name", "title", "description", "backend__backend_id")
    readonly_fields = (
        *("backend", "name", "title", "description", "intent", "effect", "problem", "is_gone", "held_since"),
        *("difference", "schema", "annotations", "fingerprint", "first_seen"),
    )
    fields = (*readonly_fields[:10], *OF_ACTION, *readonly_fields[10:])
    actions = ("approve",)

    @admin.display(description="intent")
    def the_intent(self, row: Action) -> str:
        return row.intent_override or row.intent

    @admin.display(description="effect")
    def the_effect(self, row: Action) -> str:
        return row.effect_override or row.effect

    @admin.display(description="held back", boolean=True)
    def is_held(self, row: Action) -> bool:
        return row.held is not None

    @admin.display(description="what changed")
    def difference(self, row: Action) -> SafeString | str:
        lines = differences.as_text(row).splitlines()
        return format_html("<pre>{}</pre>", format_html_join("\n", "{}", ((line,) for line in lines))) if lines else "–"

    @admin.display(description="parameters")
    def schema(self, row: Action) -> SafeString:
        return format_html("<pre>{}</pre>", json.dumps(row.input_schema, indent=2, ensure_ascii=False))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # actions are found, not made

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Action, form: Any, change: bool) -> None:
        form.write(person_of(request))

    @admin.action(description="Approve what they want to be now (read what changed first)", permissions=["change"])
    def approve(self, request: HttpRequest, queryset: QuerySet[Action]) -> None:
        each(
            self,
            request,
            queryset.select_related("backend"),
            "approved",
            lambda row, by: backends.approve(row.backend.backend_id, row.name, by=by),
        )


@admin.register(CompositeTool)
class CompositeToolAdmin(OfSuperusers):
    form = CompositeForm
    list_display = ("name", "version", "is_enabled", "retired_at", "created_at")
    list_filter = ("is_enabled", ("retired_at", admin.EmptyFieldListFilter))
    search_fields = ("name", "description")
    readonly_fields = ("version", "retired_at", "created_at")
    actions = ("retire",)

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> Any:
        """The form's check has saved it: a change is another row, the next version."""
        form.save_m2m = lambda: None
        return form.cleaned_data["saved"]

    def save_model(self, request: HttpRequest, obj: CompositeTool, form: Any, change: bool) -> None:
        return None

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False  # versions are retired and stay for the record

    @admin.action(description="Retire these versions", permissions=["change"])
    def retire(self, request: HttpRequest, queryset: QuerySet[CompositeTool]) -> None:
        each(self, request, queryset, "retired", lambda row, _by: composites.retire(row.name, row.version))


@admin.register(Plan)
class PlanAdmin(ReadOnlyAdmin):
    list_display = ("__str__", "effect", "state", "agent_name", "project", "decided_by", "created_at", "expires_at")
    list_select_related = ("project",)
    list_filter = ("state", "effect", "project")
    search_fields = ("query", "agent_name", "decided_by")
    exclude = ("signature",)
    date_hierarchy = "created_at"


@admin.register(ChildProcess)
class ChildProcessAdmin(ReadOnlyAdmin):
    list_display = ("pid", "kind", "backend", "host", "owner_pid", "started_at")
    list_select_related = ("backend",)
    list_filter = ("kind", "backend")
