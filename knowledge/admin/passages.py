"""Chunks and code examples, looked at and searched through the keyword index."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from devflow.administration import ReadOnlyAdmin
from knowledge.models import Chunk, CodeExample
from knowledge.selectors import words


class PassageAdmin(ReadOnlyAdmin):
    list_select_related = ("document", "source", "project")
    ordering = ("id",)
    search_help_text = "Words: the best 200 passages."

    def get_queryset(self, request: HttpRequest) -> Any:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.defer("document__text", "document__pages", "source__description", "source__metadata")

    @admin.display(description="lines", ordering="start_line")
    def lines(self, passage: Any) -> str:
        return f"{passage.start_line}-{passage.end_line}"

    def view_on_site(self, obj: Any) -> str:
        return f"/knowledge/documents/{obj.document_id}/#L{obj.start_line}-L{obj.end_line}"


@admin.register(Chunk)
class ChunkAdmin(PassageAdmin):
    list_display = ("beginning", "heading", "document", "source", "project", "lines", "tokens", "has_code")
    list_filter = ("has_code", "project", ("source", admin.RelatedOnlyFieldListFilter))
    search_fields = ("text",)  # by `get_search_results`

    @admin.display(description="text")
    def beginning(self, chunk: Chunk) -> str:
        return chunk.text[:80]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        return (words.best_chunks(queryset, search_term) if search_term.strip() else queryset), False


@admin.register(CodeExample)
class CodeExampleAdmin(PassageAdmin):
    list_display = ("beginning", "language", "is_valid", "document", "source", "project", "lines")
    list_filter = ("is_valid", "language", "project")
    search_fields = ("code",)  # by `get_search_results`

    @admin.display(description="code")
    def beginning(self, example: CodeExample) -> str:
        return example.code[:80]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        return (words.examples_near(queryset, search_term) if search_term.strip() else queryset), False
