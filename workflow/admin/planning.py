"""Epics, stories, issues, sprints, and the words of planning: edited through their services."""

from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.db.models import Count, Model, QuerySet
from django.http import HttpRequest

from devflow.administration import ModelAdmin, ReadOnlyAdmin, TabularInline, each, person_of
from devflow.errors import DevFlowError
from workflow.models import (
    AgileRole,
    Comment,
    Epic,
    Issue,
    IssueType,
    ItemStatus,
    Kind,
    MemberRole,
    Point,
    Sprint,
    UserStory,
)
from workflow.services.agile import items, sprints, words


class CommentInline(TabularInline):
    model = Comment
    extra = 0
    fields = ("created_at", "actor_name", "body")
    readonly_fields = fields
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


IDS = {
    **{name: f"{name}_id" for name in ("status", "epic", "sprint", "phase", "type", "assigned_to")},
}
"""The model's fields that services take as ids."""


class ServedAdmin(ModelAdmin):
    """Saves and deletes through services; what they refuse is said, and nothing is written."""

    show_full_result_count = False

    def changed(self, form: Any) -> dict[str, Any]:
        said = {name: form.cleaned_data[name] for name in form.changed_data if name in form.cleaned_data}
        return {
            IDS.get(name, name): (value.pk if isinstance(value, Model) else value) if name in IDS else value
            for name, value in said.items()
            if name != "project"
        }

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        try:
            self.write(request, obj, self.changed(form), is_new=not change)
        except DevFlowError as exc:
            self.message_user(request, f"Not saved: {exc.message} {exc.suggestion or ''}", messages.ERROR)

    def write(self, request: HttpRequest, obj: Any, fields: dict[str, Any], *, is_new: bool) -> None:
        raise NotImplementedError

    def drop(self, request: HttpRequest, obj: Any) -> None:
        raise NotImplementedError

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        try:
            self.drop(request, obj)
        except DevFlowError as exc:
            self.message_user(request, f"Not deleted: {exc.message} {exc.suggestion or ''}", messages.ERROR)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        each(self, request, queryset.select_related("project"), "deleted", lambda row, actor: self.drop(request, row))


class ItemAdmin(ServedAdmin):
    """Made on the pages, by tools and over REST: they know each project's statuses. Here they are changed."""

    kind: Kind
    list_display_links = ("subject",)
    search_fields = ("subject", "description", "=ref")
    date_hierarchy = "created_at"
    inlines = (CommentInline,)
    raw_id_fields: ClassVar = ("assigned_to",)
    told = ("project", "ref", "version", "created_by", "created_at", "updated_at", "closed_at")
    readonly_fields = told

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Only what its own project has; statuses of its own kind."""
        number = request.resolver_match and request.resolver_match.kwargs.get("object_id")
        if number and str(number).isdigit() and db_field.name in IDS and db_field.name != "assigned_to":
            project = self.model._default_manager.filter(pk=number).values("project")
            rows = db_field.related_model._default_manager.filter(project__in=project)
            kwargs["queryset"] = rows.filter(kind=self.kind) if db_field.name == "status" else rows
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def write(self, request: HttpRequest, obj: Any, fields: dict[str, Any], *, is_new: bool) -> None:
        if fields:
            items.update(self.kind, project=obj.project, pk=obj.pk, actor=person_of(request), fields=fields)

    def drop(self, request: HttpRequest, obj: Any) -> None:
        items.delete(self.kind, project=obj.project, pk=obj.pk, actor=person_of(request))


@admin.register(Epic)
class EpicAdmin(ItemAdmin):
    kind = Kind.EPIC
    list_display = ("ref", "subject", "project", "status", "assigned_to", "is_blocked", "stories_count", "updated_at")
    list_select_related = ("project", "status", "assigned_to")
    list_filter = ("status__category", "is_blocked", "project")
    fields = (
        *("subject", "description", "status", "assigned_to", "tags", "color", "is_blocked", "blocked_reason"),
        *ItemAdmin.told,
    )

    def get_queryset(self, request: HttpRequest) -> Any:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.select_related("project", "status").annotate(held=Count("stories"))

    @admin.display(description="stories", ordering="held")
    def stories_count(self, epic: Any) -> int:
        return int(epic.held)


@admin.register(UserStory)
class UserStoryAdmin(ItemAdmin):
    kind = Kind.USER_STORY
    list_display = (
        *("ref", "subject", "project", "epic", "sprint", "status", "assigned_to", "priority", "total_points"),
        "updated_at",
    )
    list_select_related = ("project", "status", "assigned_to", "epic", "sprint")
    list_filter = ("status__category", "priority", "is_blocked", "project", ("epic", admin.EmptyFieldListFilter))
    autocomplete_fields = ("epic",)
    fields = (
        *("subject", "description", "status", "epic", "sprint", "phase", "assigned_to", "priority", "points"),
        *("due_on", "tags", "is_blocked", "blocked_reason"),
        *ItemAdmin.told,
    )

    @admin.display(description="points")
    def total_points(self, story: UserStory) -> float:
        return story.total_points


@admin.register(Issue)
class IssueAdmin(ItemAdmin):
    kind = Kind.ISSUE
    list_display = (
        *("ref", "subject", "project", "type", "severity", "priority", "status", "assigned_to", "updated_at"),
    )
    list_select_related = ("project", "status", "assigned_to", "type")
    list_filter = ("status__category", "severity", "priority", "is_blocked", "project")
    fields = (
        *("subject", "description", "type", "severity", "priority", "status", "sprint", "assigned_to", "tags"),
        *("is_blocked", "blocked_reason"),
        *ItemAdmin.told,
    )


@admin.register(Sprint)
class SprintAdmin(ServedAdmin):
    list_display = ("name", "project", "starts_on", "ends_on", "is_closed", "stories_count")
    list_select_related = ("project",)
    list_filter = ("is_closed", "project")
    search_fields = ("name", "project__name")
    date_hierarchy = "starts_on"
    autocomplete_fields = ("project",)
    actions = ("close_sprints",)

    def get_fields(self, request: HttpRequest, obj: Sprint | None = None) -> Any:
        own = ("project", "name", "starts_on", "ends_on")
        return (*own, "slug", "is_closed") if obj else own

    def get_readonly_fields(self, request: HttpRequest, obj: Sprint | None = None) -> Any:
        return ("project", "slug") if obj else ()

    def get_queryset(self, request: HttpRequest) -> Any:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.select_related("project").annotate(held=Count("stories"))

    @admin.display(description="stories", ordering="held")
    def stories_count(self, sprint: Any) -> int:
        return int(sprint.held)

    def write(self, request: HttpRequest, obj: Sprint, fields: dict[str, Any], *, is_new: bool) -> None:
        actor = person_of(request)
        if is_new:
            days = {"starts_on": obj.starts_on, "ends_on": obj.ends_on}
            made = sprints.create(project=obj.project, name=obj.name, actor=actor, **days)
            obj.pk, obj._state.adding = made.pk, False
        else:
            sprints.change(project=obj.project, pk=obj.pk, actor=actor, fields=fields)

    def drop(self, request: HttpRequest, obj: Sprint) -> None:
        sprints.delete(project=obj.project, pk=obj.pk, actor=person_of(request))

    @admin.action(description="Close", permissions=["change"])
    def close_sprints(self, request: HttpRequest, queryset: QuerySet[Sprint]) -> None:
        each(
            self, request, queryset.select_related("project"), "closed", lambda row, actor: sprints.change(
                project=row.project, pk=row.pk, actor=actor, fields={"is_closed": True}
            )
        )  # fmt: skip


class WordAdmin(ServedAdmin):
    """A project's words. One that is used is not deleted."""

    list_select_related = ("project",)
    search_fields = ("name", "project__name")
    autocomplete_fields = ("project",)
    own: tuple[str, ...]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fixed = ("slug", "order") if self.model is not Point else ("order",)
        return ("project", *self.own, *(fixed if obj else ()))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fixed = ("slug",) if self.model is not Point else ()
        return ("project", "kind", "order", *fixed) if obj else ()

    def write(self, request: HttpRequest, obj: Any, fields: dict[str, Any], *, is_new: bool) -> None:
        who: dict[str, Any] = {"project": obj.project, "actor": person_of(request)}
        if not is_new:
            words.change(self.model, pk=obj.pk, **who, **fields)
            return
        values = {name: getattr(obj, name) for name in self.own if name != "kind"}
        if isinstance(obj, ItemStatus):
            values["kind"] = Kind(obj.kind)
        made: Any = words.add(self.model, **who, **values)
        obj.pk, obj._state.adding = made.pk, False

    def drop(self, request: HttpRequest, obj: Any) -> None:
        words.delete(self.model, project=obj.project, pk=obj.pk, actor=person_of(request))


@admin.register(ItemStatus)
class ItemStatusAdmin(WordAdmin):
    list_display = ("name", "kind", "category", "core", "color", "project", "order")
    list_filter = ("kind", "category", "project")
    own = ("kind", "name", "category", "color", "core")


@admin.register(IssueType)
class IssueTypeAdmin(WordAdmin):
    list_display = ("name", "color", "project", "order")
    list_filter = ("project",)
    own = ("name", "color")


@admin.register(AgileRole)
class AgileRoleAdmin(WordAdmin):
    list_display = ("name", "estimates", "project", "order")
    list_filter = ("estimates", "project")
    own = ("name", "estimates")


@admin.register(Point)
class PointAdmin(WordAdmin):
    list_display = ("name", "value", "project", "order")
    list_filter = ("project",)
    own = ("name", "value")


class MemberRoleForm(forms.ModelForm):  # type: ignore[type-arg]  # takes no parameters at run time
    class Meta:
        model = MemberRole
        fields = ("membership", "role")

    def clean(self) -> dict[str, Any]:
        said = super().clean() or {}
        membership = said.get("membership") or (self.instance.membership if self.instance.pk else None)
        if membership and said.get("role") and membership.project_id != said["role"].project_id:
            raise forms.ValidationError("That role is of another project.")
        return said


@admin.register(MemberRole)
class MemberRoleAdmin(ServedAdmin):
    form = MemberRoleForm
    list_display = ("member", "role", "project")
    list_select_related = ("membership__user", "membership__project", "role")
    list_filter = ("membership__project",)
    search_fields = ("membership__user__username", "role__name")
    raw_id_fields = ("membership",)
    autocomplete_fields = ("role",)

    @admin.display(ordering="membership__user__username")
    def member(self, row: MemberRole) -> str:
        return row.membership.user.get_username()

    @admin.display(ordering="membership__project__name")
    def project(self, row: MemberRole) -> str:
        return str(row.membership.project)

    def get_readonly_fields(self, request: HttpRequest, obj: MemberRole | None = None) -> Any:
        return ("membership",) if obj else ()

    def write(self, request: HttpRequest, obj: MemberRole, fields: dict[str, Any], *, is_new: bool) -> None:
        self._set(request, obj, obj.role_id)
        if is_new:
            obj.pk, obj._state.adding = MemberRole.objects.get(membership=obj.membership).pk, False

    def drop(self, request: HttpRequest, obj: MemberRole) -> None:
        self._set(request, obj, None)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for row in queryset.select_related("membership__project"):
            self.drop(request, row)

    def _set(self, request: HttpRequest, obj: MemberRole, role_id: int | None) -> None:
        words.set_member_role(
            project=obj.membership.project,
            user_id=obj.membership.user_id,
            role_id=role_id,
            actor=person_of(request),
        )


@admin.register(Comment)
class CommentAdmin(ReadOnlyAdmin):
    list_display = ("body", "about", "actor_name", "actor_kind", "created_at")
    list_select_related = ("epic", "story", "issue")
    list_filter = ("actor_kind",)
    search_fields = ("body", "actor_name")
    date_hierarchy = "created_at"

    @admin.display(description="on")
    def about(self, comment: Comment) -> str:
        return str(comment.epic or comment.story or comment.issue)
