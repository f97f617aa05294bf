"""Documents: what was read, and why something could not be."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from devflow.actors import Actor
from devflow.administration import ReadOnlyAdmin, each
from knowledge.models import Document
from knowledge.services import sources

SHOWN = 100_000
"""Characters of a document the admin shows; its page shows the rest."""


@admin.register(Document)
class DocumentAdmin(ReadOnlyAdmin):
    list_display = ("path", "title", "source", "project", "status", "size", "indexed_at", "reason")
    list_select_related = ("source", "project")
    list_filter = ("status", "project", ("source", admin.RelatedOnlyFieldListFilter))
    search_fields = ("path", "title")
    ordering = ("-id",)
    actions = ("retry", "delete_documents")
    fields = (
        *("source", "project", "path", "title", "status", "error", "media_type", "language", "size", "pages"),
        *("raw_hash", "text_hash", "parser", "etag", "modified", "created_at", "indexed_at", "beginning"),
    )

    def get_queryset(self, request: HttpRequest) -> Any:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.defer("text")

    @admin.display(description="error")
    def reason(self, document: Document) -> str:
        return document.error[:120]

    @admin.display(description="text")
    def beginning(self, document: Document) -> str:
        return document.text[:SHOWN]

    def view_on_site(self, obj: Document) -> str:
        return f"/knowledge/documents/{obj.pk}/"

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("knowledge.change_document")

    def has_remove_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("knowledge.delete_document")

    @admin.action(description="Retry (those that could not be read)", permissions=["retry"])
    def retry(self, request: HttpRequest, queryset: QuerySet[Document]) -> None:
        def serve(row: Any, actor: Actor) -> None:
            sources.retry_document(document=row, actor=actor)

        each(self, request, queryset.select_related("source"), "will be read again", serve)

    @admin.action(description="Delete (comes back while its source has it)", permissions=["remove"])
    def delete_documents(self, request: HttpRequest, queryset: QuerySet[Document]) -> None:
        def serve(row: Any, actor: Actor) -> None:
            sources.delete_document(document=row, actor=actor)

        each(self, request, queryset.select_related("source"), "deleted", serve)
