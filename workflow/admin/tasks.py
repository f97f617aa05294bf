"""Tasks: edited and acted upon through their services."""

from typing import Any, ClassVar

from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from import_export.admin import ExportMixin
from import_export.resources import ModelResource

from devflow.administration import ModelAdmin, TabularInline, each, person_of
from devflow.errors import DevFlowError
from workflow.models import (
    Note,
    Priority,
    Task,
)
from workflow.services import claims, tasks, transitions


class NoteInline(TabularInline):
    model = Note
    extra = 0
    fields = ("created_at", "kind", "actor_name", "body")
    readonly_fields = fields
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


EDITABLE = ("subject", "description", "priority", "boosted", "tags", "manual_block")


class TaskRows(ModelResource):
    class Meta:
        model = Task
        fields = (
            *("id", "ref", "project__slug", "phase__number", "subject", "description", "status", "priority"),
            *("tags", "created_by", "assigned_agent__name", "result", "attempts", "iteration"),
            *("created_at", "started_at", "completed_at"),
        )


@admin.register(Task)
class TaskAdmin(ExportMixin, ModelAdmin):
    resource_classes: ClassVar = [TaskRows]
    list_display = (
        *("ref", "subject", "project", "phase", "status", "priority", "assigned_agent", "lease_expires_at"),
        *("attempts", "updated_at"),
    )
    list_display_links = ("subject",)
    list_select_related = ("project", "phase", "assigned_agent")
    list_filter = ("status", "priority", "boosted", "project", ("assigned_agent", admin.EmptyFieldListFilter))
    search_fields = ("subject", "description", "=ref")
    date_hierarchy = "created_at"
    show_full_result_count = False
    inlines = (NoteInline,)
    actions = ("release_lease", "retry_failed", "cancel_tasks")
    fields = (
        *EDITABLE,
        *("project", "phase", "ref", "status", "metadata", "parent", "created_by", "assigned_agent", "result"),
        *("attempts", "iteration", "version", "lease_expires_at", "created_at", "ready_since", "started_at"),
        "completed_at",
    )
    readonly_fields = tuple(set(fields) - set(EDITABLE))

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False  # the board and the API make tasks; they know phases and blockers

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> Any:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.select_related("project", "phase", "assigned_agent", "parent")

    def save_model(self, request: HttpRequest, obj: Task, form: Any, change: bool) -> None:
        changed = {name: form.cleaned_data[name] for name in form.changed_data}
        who: dict[str, Any] = {"project_id": obj.project_id, "task_id": obj.pk, "actor": person_of(request)}
        block = changed.pop("manual_block", None)
        if "priority" in changed:
            changed["priority"] = Priority(changed["priority"]).label
        try:
            if changed:
                tasks.edit(**who, **changed)
            if block is not None:
                tasks.hold_back(**who, reason=block)
        except DevFlowError as exc:
            self.message_user(request, f"Not saved: {exc.message} {exc.suggestion}", messages.ERROR)

    @admin.action(description="Release the lease (ready again)", permissions=["change"])
    def release_lease(self, request: HttpRequest, queryset: QuerySet[Task]) -> None:
        each(
            self, request, queryset, "released", lambda task, actor: claims.release(
                project_id=task.project_id, task_id=task.pk, actor=actor, reason="released in the admin"
            )
        )  # fmt: skip

    @admin.action(description="Retry failed tasks", permissions=["change"])
    def retry_failed(self, request: HttpRequest, queryset: QuerySet[Task]) -> None:
        each(
            self, request, queryset, "put back to work", lambda task, actor: transitions.retry(
                project_id=task.project_id, task_id=task.pk, actor=actor
            )
        )  # fmt: skip

    @admin.action(description="Cancel", permissions=["change"])
    def cancel_tasks(self, request: HttpRequest, queryset: QuerySet[Task]) -> None:
        each(
            self, request, queryset, "cancelled", lambda task, actor: transitions.cancel(
                project_id=task.project_id, task_id=task.pk, actor=actor, reason="cancelled in the admin"
            )
        )  # fmt: skip
