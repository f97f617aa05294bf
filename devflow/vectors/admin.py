"""The index in the admin: looked at, and built anew from the rows."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import Count, QuerySet
from django.http import HttpRequest

from devflow.administration import ReadOnlyAdmin
from devflow.vectors.base import StoreError
from devflow.vectors.models import CachedEmbedding, Collection, PendingPoint


@admin.register(Collection)
class CollectionAdmin(ReadOnlyAdmin):
    list_display = (
        "name",
        "kind",
        "state",
        "embedder",
        "dimensions",
        "waiting",
        "fault",
        "reconciled_at",
        "created_at",
    )
    list_filter = ("kind", "state")
    actions = ("rebuild",)

    def get_queryset(self, request: HttpRequest) -> Any:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.annotate(waiting_count=Count("pending"))

    @admin.display(description="waiting", ordering="waiting_count")
    def waiting(self, collection: Any) -> int:
        return int(collection.waiting_count)

    def has_rebuild_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("vectors.change_collection")

    @admin.action(description="Rebuild from the rows (searches use keywords until it is done)", permissions=["rebuild"])
    def rebuild(self, request: HttpRequest, queryset: QuerySet[Collection]) -> None:
        from devflow.vectors import index  # with it come the stores' libraries
        from devflow.vectors.jobs import drain

        for kind in sorted(set(queryset.order_by().values_list("kind", flat=True))):
            try:
                count = index.forget_everything(kind)
            except StoreError as exc:
                self.message_user(request, f"{kind}: the vector store does not answer: {exc}", messages.WARNING)
            else:
                self.message_user(request, f"{kind}: {count} rows will be indexed anew.", messages.SUCCESS)
        drain.wake()


@admin.register(PendingPoint)
class PendingPointAdmin(ReadOnlyAdmin):
    list_display = ("point", "collection", "since", "claimed_until")
    list_select_related = ("collection",)
    list_filter = ("collection",)
    ordering = ("id",)


@admin.register(CachedEmbedding)
class CachedEmbeddingAdmin(ReadOnlyAdmin):
    list_display = ("__str__", "used_on")
    date_hierarchy = "used_on"
    ordering = ("-id",)
    fields = ("used_on",)
