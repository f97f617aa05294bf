"""Memories in the admin: changed through services, brought in and out as CSV or JSON."""

import json
import uuid
from datetime import datetime
from typing import Any, ClassVar

from django import forms
from django.apps import apps
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from import_export.fields import Field
from import_export.resources import ModelResource
from import_export.widgets import ForeignKeyWidget, Widget
from tablib import Dataset

from devflow.actors import SYSTEM, Actor
from devflow.administration import ModelAdmin, ModelForm, each, person_of
from devflow.errors import DevFlowError, invalid
from devflow.tables import Portable
from memory.models import Memory, Trust
from memory.selectors import moments
from memory.services import memories
from memory.services.memories import Provenance


class JsonCell(Widget):
    """JSON as text, or as it is in a JSON file. The library's own writes an empty list as nothing."""

    def __init__(self, empty: type) -> None:
        super().__init__()
        self.empty = empty

    def clean(self, value: Any, row: Any = None, **kwargs: Any) -> Any:
        if isinstance(value, str) and value.strip():
            return json.loads(value)
        return self.empty() if value in (None, "") else value

    def render(self, value: Any, obj: Any = None, **kwargs: Any) -> str:
        return json.dumps(value, ensure_ascii=False)


class MomentCell(Widget):
    """A moment to the microsecond."""

    def clean(self, value: Any, row: Any = None, **kwargs: Any) -> datetime | None:
        try:
            return moments.read(str(value), field="moment") if value else None
        except DevFlowError as exc:
            raise ValueError(exc.message) from None

    def render(self, value: datetime | None, obj: Any = None, **kwargs: Any) -> str:
        return value.isoformat() if value else ""


class PointCell(Widget):
    def clean(self, value: Any, row: Any = None, **kwargs: Any) -> uuid.UUID | None:
        return uuid.UUID(str(value)) if value else None

    def render(self, value: uuid.UUID | None, obj: Any = None, **kwargs: Any) -> str:
        return str(value or "")


class MemoryRows(ModelResource):
    """Rows are recognised by `point`; without one they are new. `superseded_by` is the point of the newer memory."""

    point = Field("point", "point", PointCell())
    project = Field("project", "project", ForeignKeyWidget(apps.get_model("workflow", "Project"), "slug"))
    tags = Field("tags", "tags", JsonCell(list))
    metadata = Field("metadata", "metadata", JsonCell(dict))
    expires_at = Field("expires_at", "expires_at", MomentCell())
    created_at = Field("created_at", "created_at", MomentCell())
    superseded_by = Field("superseded_by__point", "superseded_by", readonly=True)

    class Meta:
        model = Memory
        import_id_fields = ("point",)
        skip_unchanged = True
        fields = (
            *("point", "project", "content", "category", "original_category", "tags", "metadata", "trust"),
            *("created_by", "task", "pinned", "expires_at", "created_at", "superseded_by"),
        )

    def __init__(self, actor: Actor = SYSTEM, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.actor = actor

    def before_import(self, dataset: Dataset, **kwargs: Any) -> None:
        if "point" not in dataset.headers:
            dataset.append_col([""] * len(dataset), header="point")

    def after_init_instance(self, instance: Memory, new: bool, row: Any, **kwargs: Any) -> None:
        self.home = None if new else instance.project_id

    def do_instance_save(self, instance: Memory, is_create: bool) -> None:
        said = {
            "content": instance.content,
            "category": instance.category,
            "tags": instance.tags,
            "metadata": instance.metadata,
            "pinned": instance.pinned,
            "expires_at": instance.expires_at,
        }
        if is_create:
            if instance.trust not in ("", *Trust.values):
                raise invalid(f"There is no trust {instance.trust!r}.", trust=f"one of {', '.join(Trust.values)}")
            known = Provenance(
                created_by=instance.created_by[:150],
                trust=instance.trust,
                task=instance.task[:32],
                original_category=instance.original_category[:32],
                point=instance.point,
                created_at=instance.created_at,
            )
            made = memories.save(project_id=instance.project_id, actor=self.actor, known=known, **said)
            instance.pk, instance._state.adding = made.pk, False
        elif instance.project_id != self.home:
            raise invalid("This memory is in another project; leave `point` out to copy it.", project="not its own")
        else:
            memories.update(project_id=instance.project_id, memory_id=instance.pk, actor=self.actor, **said)

    def after_import(self, dataset: Dataset, result: Any, **kwargs: Any) -> None:
        """Tie the chains together again, once every row is there."""
        for row in dataset.dict:
            if not (row.get("superseded_by") and row.get("point")):
                continue
            old = Memory.objects.filter(point=row["point"]).first()
            new = Memory.objects.filter(point=row["superseded_by"]).first()
            if old is not None and new is not None and old.superseded_by_id is None:
                memories.update(
                    project_id=old.project_id, memory_id=new.pk, actor=self.actor, supersedes=[old.public_id]
                )


class MemoryForm(ModelForm):
    class Meta:
        model = Memory
        fields: ClassVar = ["project", "content", "category", "tags", "metadata", "pinned", "expires_at"]

    def _checked(self, name: str, check: Any, default: Any) -> Any:
        try:
            return check(self.cleaned_data[name] if self.cleaned_data[name] is not None else default)
        except DevFlowError as exc:
            raise forms.ValidationError(exc.message) from None

    def clean_content(self) -> Any:
        return self._checked("content", memories.checked_content, "")

    def clean_tags(self) -> Any:
        return self._checked("tags", memories.checked_tags, [])

    def clean_metadata(self) -> Any:
        return self._checked("metadata", memories.checked_metadata, {})


EDITABLE = ("content", "category", "tags", "metadata", "pinned", "expires_at")


@admin.register(Memory)
class MemoryAdmin(Portable, ModelAdmin):
    form = MemoryForm
    resource_classes: ClassVar = [MemoryRows]
    list_display = (
        *("title", "project", "category", "trust", "pinned", "created_by", "uses", "superseded_by_id", "expires_at"),
        "created_at",
    )
    list_select_related = ("project",)
    list_filter = (
        *("category", "trust", "pinned", "project"),
        ("superseded_by", admin.EmptyFieldListFilter),
        ("expires_at", admin.EmptyFieldListFilter),
    )
    search_fields = ("content", "created_by", "task")
    date_hierarchy = "created_at"
    show_full_result_count = False
    actions = ("pin", "unpin", "expire")
    fields = (
        *("project", *EDITABLE),
        *("original_category", "trust", "created_by", "agent", "task", "tool", "trace_id", "superseded_by"),
        *("superseded_at", "uses", "last_used_at", "version", "created_at", "updated_at"),
    )

    def get_fields(self, request: HttpRequest, obj: Memory | None = None) -> Any:
        return self.fields if obj else ("project", *EDITABLE)

    def get_readonly_fields(self, request: HttpRequest, obj: Memory | None = None) -> Any:
        return tuple(name for name in self.fields if name not in EDITABLE) if obj else ()

    def get_queryset(self, request: HttpRequest) -> Any:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.select_related("project", "agent", "superseded_by")

    def save_model(self, request: HttpRequest, obj: Memory, form: Any, change: bool) -> None:
        if change:
            given: dict[str, Any] = {name: form.cleaned_data[name] for name in form.changed_data}
            memories.update(project_id=obj.project_id, memory_id=obj.pk, actor=person_of(request), **given)
            return
        values = {name: form.cleaned_data[name] for name in EDITABLE}
        made = memories.save(project_id=obj.project_id, actor=person_of(request), **values)
        obj.pk, obj._state.adding = made.pk, False

    def delete_model(self, request: HttpRequest, obj: Memory) -> None:
        memories.delete(project_id=obj.project_id, memory_id=obj.pk)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Memory]) -> None:
        for row in queryset:
            self.delete_model(request, row)

    def _change(self, request: HttpRequest, queryset: QuerySet[Memory], done: str, **changes: Any) -> None:
        def change(row: Memory, actor: Actor) -> None:
            memories.update(project_id=row.project_id, memory_id=row.pk, actor=actor, **changes)

        each(self, request, queryset, done, change)

    @admin.action(description="Pin", permissions=["change"])
    def pin(self, request: HttpRequest, queryset: QuerySet[Memory]) -> None:
        self._change(request, queryset, "pinned", pinned=True)

    @admin.action(description="Unpin", permissions=["change"])
    def unpin(self, request: HttpRequest, queryset: QuerySet[Memory]) -> None:
        self._change(request, queryset, "unpinned", pinned=False)

    @admin.action(description="Expire now", permissions=["change"])
    def expire(self, request: HttpRequest, queryset: QuerySet[Memory]) -> None:
        self._change(request, queryset, "expired", expires_at=timezone.now())
