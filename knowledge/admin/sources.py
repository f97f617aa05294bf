"""Sources: added, changed, read again and deleted through their services."""

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string

from devflow.actors import Actor
from devflow.administration import ModelAdmin, each, person_of
from devflow.tables import Portable
from knowledge.admin.definitions import SourceDefinitions
from knowledge.admin.forms import EDITABLE, SourceAdd, SourceChange
from knowledge.models import Source
from knowledge.selectors.sources import pending_chunks
from knowledge.services import sources


class SourceList(ChangeList):
    """Counts what waits for its vectors once for the whole page."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows: list[Any] = list(self.result_list)
        waiting = pending_chunks(rows)
        for row in rows:
            row.waiting_count = waiting.get(row.pk, 0)


@admin.register(Source)
class SourceAdmin(Portable, ModelAdmin):
    resource_classes: ClassVar = [SourceDefinitions]
    list_display = (
        *("title", "project", "type", "status_badge", "document_count", "failed_count", "chunk_count", "waiting"),
        *("priority", "checked_at"),
    )
    list_select_related = ("project",)
    list_filter = ("status", "type", "project", ("error", admin.EmptyFieldListFilter))
    search_fields = ("title", "description", "url")
    autocomplete_fields = ("project",)
    date_hierarchy = "created_at"
    actions = ("reindex", "reindex_from_scratch", "retry_failed", "pause", "resume")
    fields = (
        *EDITABLE,
        *("project", "type", "url", "status", "error", "document_count", "failed_count", "chunk_count"),
        *("example_count", "waiting", "run_done", "run_total", "created_by", "created_at", "updated_at", "checked_at"),
    )
    readonly_fields = tuple(set(fields) - set(EDITABLE))

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return SourceList

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        return super().get_form(request, obj, change, **{"form": SourceChange if obj else SourceAdd, **kwargs})

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.fields if obj else ("project", "type", "title", "url", "content", *EDITABLE[1:])

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.readonly_fields if obj else ()

    @admin.display(description="status", ordering="status")
    def status_badge(self, source: Source) -> str:
        return render_to_string("admin/knowledge/source/_status.html", {"source": source})

    @admin.display(description="waiting", empty_value="0")
    def waiting(self, source: Any) -> int:
        """Chunks whose vectors are still to come."""
        known: int | None = getattr(source, "waiting_count", None)
        return pending_chunks([source]).get(source.pk, 0) if known is None else known

    def view_on_site(self, obj: Source) -> str:
        return f"/knowledge/sources/{obj.pk}/"

    def save_model(self, request: HttpRequest, obj: Source, form: Any, change: bool) -> None:
        actor, given = person_of(request), form.cleaned_data
        if change:
            fresh = Source.objects.get(pk=obj.pk)
            sources.configure(source=fresh, actor=actor, **{name: given[name] for name in form.changed_data})
            return
        said = {name: given[name] for name in EDITABLE}
        made = sources.create(project_id=obj.project_id, actor=actor, type=given["type"], **said, **form.place())
        obj.pk, obj._state.adding = made.pk, False

    # --- deleting ---------------------------------------------------------------------------------------------------

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """How much goes with them: Django's own way loads every chunk to list it."""
        rows: Sequence[Source] = list(objs)
        counts = {
            "sources": len(rows),
            "documents": sum(row.document_count for row in rows),
            "chunks": sum(row.chunk_count for row in rows),
            "code examples": sum(row.example_count for row in rows),
        }
        allowed = self.has_delete_permission(request)
        return [str(row) for row in rows], counts, set() if allowed else {self.opts.verbose_name}, []

    def delete_model(self, request: HttpRequest, obj: Source) -> None:
        sources.delete(source=obj, actor=person_of(request))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Source]) -> None:
        for row in queryset:
            self.delete_model(request, row)

    # --- actions ----------------------------------------------------------------------------------------------------

    @admin.action(description="Re-index", permissions=["change"])
    def reindex(self, request: HttpRequest, queryset: QuerySet[Source]) -> None:
        self._each(request, queryset, "will be read again", sources.request_run)

    @admin.action(description="Re-index from scratch", permissions=["change"])
    def reindex_from_scratch(self, request: HttpRequest, queryset: QuerySet[Source]) -> None:
        self._each(request, queryset, "will be read from scratch", sources.request_run, force=True)

    @admin.action(description="Retry failed documents", permissions=["change"])
    def retry_failed(self, request: HttpRequest, queryset: QuerySet[Source]) -> None:
        self._each(request, queryset, "will be tried again", sources.retry_failed)

    @admin.action(description="Pause", permissions=["change"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Source]) -> None:
        self._each(request, queryset, "paused", sources.pause)

    @admin.action(description="Resume", permissions=["change"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Source]) -> None:
        self._each(request, queryset, "resumed", sources.resume)

    def _each(self, request: HttpRequest, queryset: QuerySet[Source], done: str, service: Any, **values: Any) -> None:
        def serve(row: Any, actor: Actor) -> None:
            service(source=row, actor=actor, **values)

        each(self, request, queryset, done, serve)
