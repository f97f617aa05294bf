"""Projects with their members, and phases with their done definitions and YAML files."""

import io
import zipfile
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path

from devflow.actors import Actor
from devflow.administration import ModelAdmin, ModelForm, TabularInline, person_of
from devflow.errors import DevFlowError
from workflow.models import (
    DoneDefinition,
    Membership,
    Phase,
    Project,
)
from workflow.services import activity, phases, projects, readiness
from workflow.services.transfer import phase_files


class MembershipInline(TabularInline):
    model = Membership
    extra = 0
    autocomplete_fields = ("user",)


class ProjectForm(ModelForm):
    template = forms.ChoiceField(
        choices=[("", "No phases"), *((name, name) for name in phases.templates())],
        required=False,
        initial="analysis",
        help_text="The phases a new project starts with.",
    )

    class Meta:
        model = Project
        fields: ClassVar = ["slug", "name", "description", "require_review", "gates_enabled", "column_limits"]

    def clean_column_limits(self) -> dict[str, int]:
        try:
            return projects.checked_limits(self.cleaned_data["column_limits"] or {})
        except (DevFlowError, AttributeError) as exc:
            raise forms.ValidationError(str(exc)) from None


@admin.register(Project)
class ProjectAdmin(ModelAdmin):
    form = ProjectForm
    list_display = ("name", "slug", "open_tasks", "done_tasks", "require_review", "gates_enabled", "archived_at")
    list_filter = ("require_review", "gates_enabled", ("archived_at", admin.EmptyFieldListFilter))
    search_fields = ("name", "slug")
    inlines = (MembershipInline,)

    def get_queryset(self, request: HttpRequest) -> Any:
        closed = ["done", "failed", "cancelled"]
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.annotate(
            open_count=Count("tasks", filter=~Q(tasks__status__in=closed)),
            done_count=Count("tasks", filter=Q(tasks__status="done")),
        )

    @admin.display(description="open tasks", ordering="open_count")
    def open_tasks(self, project: Any) -> int:
        return int(project.open_count)

    @admin.display(description="done", ordering="done_count")
    def done_tasks(self, project: Any) -> int:
        return int(project.done_count)

    def get_fields(self, request: HttpRequest, obj: Project | None = None) -> Any:
        names = [*ProjectForm.Meta.fields]
        return [*names, "archived_at"] if obj else [*names, "template"]

    def get_readonly_fields(self, request: HttpRequest, obj: Project | None = None) -> Any:
        return ("slug",) if obj else ()

    def save_model(self, request: HttpRequest, obj: Project, form: Any, change: bool) -> None:
        if change:
            values = {name: form.cleaned_data[name] for name in form.changed_data if name in ProjectForm.Meta.fields}
            projects.configure(project_id=obj.pk, actor=person_of(request), **values)
            if "archived_at" in form.changed_data:
                put = projects.archive if obj.archived_at else projects.unarchive
                put(project_id=obj.pk, actor=person_of(request))
            return
        made = projects.create(
            slug=obj.slug,
            name=obj.name,
            description=obj.description,
            template=form.cleaned_data.get("template") or None,
            actor=person_of(request),
        )
        obj.pk, obj._state.adding = made.pk, False
        projects.configure(
            project_id=made.pk,
            actor=person_of(request),
            require_review=obj.require_review,
            gates_enabled=obj.gates_enabled,
            column_limits=obj.column_limits,
        )


class DoneDefinitionInline(TabularInline):
    model = DoneDefinition
    extra = 1
    min_num = 1
    validate_min = True


class PhaseFiles(forms.Form):
    """YAML files `NN_name.yaml` for one project."""

    project = forms.ModelChoiceField(Project.objects.order_by("name"))
    archive = forms.FileField(
        label="File", help_text="One NN_name.yaml, or a .zip of them as the export makes it; at most 1 MB."
    )

    def texts(self) -> dict[str, str]:
        """Name to text. Raises `invalid_input` for what cannot be read."""
        uploaded = self.cleaned_data["archive"]
        return phase_files.texts([(uploaded.name, b"".join(uploaded.chunks()))])


@admin.register(Phase)
class PhaseAdmin(ModelAdmin):
    list_display = (
        *("number", "name", "project", "definitions", "open_tasks", "wip_limit", "lease_minutes"),
        *("requires_review", "requires_evidence", "entry_phase"),
    )
    list_display_links = ("name",)
    list_select_related = ("project", "entry_phase__project")
    list_filter = ("project", "requires_review", "requires_evidence")
    search_fields = ("name", "description", "project__name")
    autocomplete_fields = ("project", "entry_phase")
    inlines = (DoneDefinitionInline,)
    actions = ("export_yaml",)
    change_list_template = "admin/workflow/phase/change_list.html"

    def get_queryset(self, request: HttpRequest) -> Any:
        open_ones = Q(tasks__status__in=["pending", "ready", "in_progress", "review"])
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.annotate(
            definition_count=Count("done_definitions", distinct=True),
            open_count=Count("tasks", filter=open_ones, distinct=True),
        )

    @admin.display(description="done definitions", ordering="definition_count")
    def definitions(self, phase: Any) -> int:
        return int(phase.definition_count)

    @admin.display(description="open tasks", ordering="open_count")
    def open_tasks(self, phase: Any) -> int:
        return int(phase.open_count)

    def has_delete_permission(self, request: HttpRequest, obj: Phase | None = None) -> bool:
        return super().has_delete_permission(request, obj) and (obj is None or not obj.tasks.exists())

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        phase = form.instance
        phases_record(phase, person_of(request), is_new=not change)
        readiness.phase_refreshed(phase_ids=[phase.pk], actor=person_of(request))

    @admin.action(description="Export as YAML files (zip)")
    def export_yaml(self, request: HttpRequest, queryset: QuerySet[Phase]) -> HttpResponse:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            several = len(set(queryset.values_list("project", flat=True))) > 1
            for phase in queryset.prefetch_related("done_definitions"):
                folder = f"{phase.project.slug}/" if several else ""
                archive.writestr(folder + phases.file_name(phase), phases.dump(phase))
        response = HttpResponse(out.getvalue(), content_type="application/zip")
        response["Content-Disposition"] = 'attachment; filename="phases.zip"'
        return response

    def get_urls(self) -> list[URLPattern]:
        own = path("import/", self.admin_site.admin_view(self.import_yaml), name="workflow_phase_import")
        return [own, *super().get_urls()]

    def import_yaml(self, request: HttpRequest) -> HttpResponse:
        if not self.has_change_permission(request) or not self.has_add_permission(request):
            return redirect("admin:workflow_phase_changelist")
        form = PhaseFiles(request.POST or None, request.FILES or None)
        if request.method == "POST" and form.is_valid():
            try:
                made = phases.import_files(
                    project_id=form.cleaned_data["project"].pk, files=form.texts(), actor=person_of(request)
                )
            except DevFlowError as exc:
                form.add_error("archive", exc.message)
            else:
                self.message_user(request, f"{len(made)} phases imported.", messages.SUCCESS)
                return redirect("admin:workflow_phase_changelist")
        context = {**self.admin_site.each_context(request), "title": "Import phases", "form": form, "opts": self.opts}
        return TemplateResponse(request, "admin/workflow/phase/import.html", context)


def phases_record(phase: Phase, actor: Actor, *, is_new: bool) -> None:
    kind = "phase.created" if is_new else "phase.changed"
    activity.record(kind=kind, project=phase.project, actor=actor, phase=phase, after={"name": phase.name})
