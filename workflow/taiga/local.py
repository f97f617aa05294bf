"""DevFlow's own tables as the provider of a project's items."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

from django.db.models import Q

from devflow.actors import Actor
from devflow.errors import DevFlowError, ErrorCode, invalid, not_found
from workflow.models import Comment, ItemStatus, Kind, Membership, Note, Project, Task, UserStory
from workflow.selectors import agile
from workflow.services.agile import items, vocabulary, work
from workflow.taiga import shapes
from workflow.taiga.provider import Filters, KindName, Page, Which

MOST_MEMBERS = 50

_PEOPLE = ("assigned_to", "creator_user")
_SHOWN: Mapping[KindName, tuple[str, ...]] = {
    "epic": _PEOPLE,
    "user_story": _PEOPLE,
    "task": ("phase", "assigned_agent", *_PEOPLE),
    "issue": _PEOPLE,
}
"""What is joined to a row to show it."""

_EVERY = (
    *("ref", "project", "subject", "tags", "version", "created_by", "created_at", "updated_at"),
    *(f"{person}__{name}" for person in _PEOPLE for name in ("username", "first_name", "last_name")),
)
_ITEM = (*_EVERY, "status", "is_blocked", "blocked_reason")
_LISTED: Mapping[KindName, tuple[str, ...]] = {
    "epic": (*_ITEM, "color"),
    "user_story": (*_ITEM, "epic", "sprint", "points", "priority", "due_on"),
    "task": (
        *_EVERY,
        *("status", "item_status", "manual_block", "user_story", "priority", "urgency", "lease_expires_at"),
        *("phase__number", "assigned_agent__name"),
    ),
    "issue": (*_ITEM, "type", "severity", "priority", "sprint"),
}
"""The columns of a row in a list: half of what a list costs is making rows."""

_NAMES: Mapping[str, str] = {
    "subject": "subject",
    "description": "description",
    "color": "color",
    "statusId": "status_id",
    "assignedToId": "assigned_to_id",
    "tags": "tags",
    "epicId": "epic_id",
    "sprintId": "sprint_id",
    "priority": "priority",
    "severity": "severity",
    "typeId": "type_id",
    "points": "points",
    "dueDate": "due_on",
    "userStoryId": "user_story_id",
}


def _own_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The services' names for the tools' fields."""
    made: dict[str, Any] = {}
    for name, value in fields.items():
        if name == "blocked":
            made["is_blocked"] = value["isBlocked"]
            made["blocked_reason"] = value.get("reason", "") if value["isBlocked"] else ""
        elif name == "dueDate" and isinstance(value, str):
            made["due_on"] = date.fromisoformat(value)
        else:
            made[_NAMES[name]] = value
    return made


class LocalProvider:
    """One project's own items, as `actor` sees and changes them."""

    def __init__(self, project: Project, actor: Actor) -> None:
        self._project = project
        self._actor = actor
        vocabulary.ensure(project)

    def project(self) -> dict[str, Any]:
        row = self._project
        found = row.memberships.select_related("user", "agile__role").order_by("pk")
        members = [shapes.member(item) for item in found[:MOST_MEMBERS]]
        owner = next((item for item in members if item["isAdmin"]), None)
        return shapes.project_line(row) | {
            "description": row.description,
            "isPrivate": True,
            "owner": {name: owner[name] for name in ("id", "username", "fullName")} if owner else None,
            "members": members,
            "tags": [],
            "color": None,
        }

    # Reading

    def find(self, kind: KindName, filters: Filters, *, offset: int, limit: int) -> Page:
        rows = self._narrowed(kind, filters)
        total = rows.count()
        rows = rows.only(*_LISTED[kind], *(("description",) if filters.include_details else ()))
        part = list(rows[offset : offset + limit])
        return Page(self._shown(kind, part, details=filters.include_details), total)

    def _rows(self, kind: KindName) -> Any:
        pk = self._project.pk
        rows: Any = {"epic": agile.epics, "user_story": agile.stories, "task": agile.tasks, "issue": agile.issues}
        return rows[kind](pk).select_related(None).select_related(*_SHOWN[kind])

    def _narrowed(self, kind: KindName, wanted: Filters) -> Any:
        rows = agile.narrowed(
            self._rows(kind),
            query=wanted.query,
            tags=wanted.tags,
            match=wanted.match,
            assignee_ids=wanted.assignee_ids,
            unassigned=wanted.unassigned,
            modified_since=wanted.modified_since,
        )
        statuses = self._statuses_in(kind, wanted)
        if statuses is not None:
            rows = agile.tasks_in(rows, statuses) if kind == "task" else rows.filter(status__in=statuses)
        if wanted.is_blocked is not None:
            is_blocked = ~Q(manual_block="") if kind == "task" else Q(is_blocked=True)
            rows = rows.filter(is_blocked if wanted.is_blocked else ~is_blocked)
        for name, value in (
            ("epic", wanted.epic_id),
            ("sprint", wanted.sprint_id),
            ("user_story", wanted.user_story_id),
            ("severity__in", wanted.severity or None),
            ("priority__in", wanted.priority or None),
            ("type__in", wanted.type_ids or None),
        ):
            if value is not None:
                rows = rows.filter(**{name: value})
        return rows.order_by("position", "pk")

    def _statuses_in(self, kind: KindName, wanted: Filters) -> list[ItemStatus] | None:
        if not wanted.status_ids and not wanted.status_category:
            return None
        found = agile.statuses(self._project.pk, Kind(kind))
        if wanted.status_category:
            found = found.filter(category=wanted.status_category)
        if wanted.status_ids:
            known = set(agile.statuses(self._project.pk, Kind(kind)).values_list("pk", flat=True))
            if unknown := sorted(set(wanted.status_ids) - known):
                raise invalid("Invalid statusId", statusIds=f"{unknown[0]} is no {kind} status of this project")
            found = found.filter(pk__in=wanted.status_ids)
        return list(found)

    def _shown(self, kind: KindName, rows: Iterable[Any], *, details: bool) -> list[dict[str, Any]]:
        rows, statuses = list(rows), list(agile.statuses(self._project.pk, Kind(kind)))
        known: dict[int | None, ItemStatus] = {status.pk: status for status in statuses}
        if kind == "task":
            for row in rows:
                row.item_status = known.get(row.item_status_id)
            return [shapes.task(row, statuses=statuses, details=details) for row in rows]
        for row in rows:
            if (status := known.get(row.status_id)) is not None:
                row.status = status
        if kind == "issue":
            return [shapes.issue(row, details=details) for row in rows]
        below: defaultdict[int, list[int]] = defaultdict(list)
        ids = [row.pk for row in rows]
        if kind == "epic":
            for owner, pk in (
                UserStory.objects.filter(epic__in=ids).order_by("position", "pk").values_list("epic", "pk")
            ):
                below[owner or 0].append(pk)
            return [shapes.epic(row, story_ids=below[row.pk], details=details) for row in rows]
        for owner, pk in (
            Task.objects.filter(user_story__in=ids).order_by("position", "pk").values_list("user_story", "pk")
        ):
            below[owner or 0].append(pk)
        return [shapes.user_story(row, task_ids=below[row.pk], details=details) for row in rows]

    def get(self, kind: KindName, which: Which, *, comments: bool = False) -> dict[str, Any]:
        pk = self._pk(kind, which)
        made = self._whole(kind, pk)
        if comments:
            made["comments"] = [shapes.comment(row) for row in self._comments(kind, pk)]
        return made

    def _pk(self, kind: KindName, which: Which) -> int:
        """The item's primary key. Raises `not_found`."""
        rows = self._rows(kind)
        found = rows.filter(pk=which.id) if which.id is not None else rows.filter(ref=which.ref)
        pk: int | None = found.values_list("pk", flat=True).first()
        if pk is None:
            named = which.id if which.id is not None else f"#{which.ref}"
            raise not_found(kind.replace("_", " ").capitalize(), named)
        return pk

    def _whole(self, kind: KindName, pk: int) -> dict[str, Any]:
        return next(iter(self._shown(kind, [self._rows(kind).get(pk=pk)], details=True)))

    @staticmethod
    def _comments(kind: KindName, pk: int) -> Iterable[Comment | Note]:
        if kind == "task":
            return Note.objects.filter(task=pk)
        place: dict[str, Any] = {items.COMMENTED[Kind(kind)]: pk}
        return Comment.objects.filter(**place)

    # Writing

    def create(self, kind: KindName, fields: Mapping[str, Any]) -> dict[str, Any]:
        own = _own_names(fields)
        if kind == "task":
            story = own.pop("user_story_id")
            pk = work.create(project=self._project, story_id=story, actor=self._actor, fields=own).pk
        else:
            pk = items.create(Kind(kind), project=self._project, actor=self._actor, fields=own).pk
        return self._whole(kind, pk)

    def update(
        self,
        kind: KindName,
        which: Which,
        fields: Mapping[str, Any],
        *,
        version: int | None = None,
        comment: str = "",
    ) -> dict[str, Any]:
        pk = self._pk(kind, which)
        own = _own_names(fields)
        said: dict[str, Any] = {"project": self._project, "pk": pk, "actor": self._actor, "comment": comment}
        try:
            if kind == "task":
                work.update(**said, fields=own, version=version)
            else:
                items.update(Kind(kind), **said, fields=own, version=version)
        except DevFlowError as exc:
            if exc.code is ErrorCode.CONFLICT and version is not None and "yours" in exc.details:
                details = {**exc.details, "current": self._whole(kind, pk)}
                raise DevFlowError(exc.code, exc.message, details=details, suggestion=exc.suggestion) from exc
            raise
        return self._whole(kind, pk)

    def delete(self, kind: KindName, id: int) -> None:
        if kind == "task":
            work.delete(project=self._project, pk=id, actor=self._actor)
        else:
            items.delete(Kind(kind), project=self._project, pk=id, actor=self._actor)

    # What there is to choose from

    def statuses(self, kind: KindName | None) -> list[dict[str, Any]]:
        found = agile.statuses(self._project.pk, None if kind is None else Kind(kind))
        return [shapes.status(row) | {"entityType": row.kind} for row in found]

    def members(self, *, query: str, role_id: int | None, include_inactive: bool, offset: int, limit: int) -> Page:
        rows = Membership.objects.filter(project=self._project).select_related("user", "agile__role").order_by("pk")
        if query:
            name = Q(user__username__icontains=query)
            rows = rows.filter(name | Q(user__first_name__icontains=query) | Q(user__last_name__icontains=query))
        if role_id is not None:
            rows = rows.filter(agile__role=role_id)
        if not include_inactive:
            rows = rows.filter(user__is_active=True)
        return Page([shapes.member(row) for row in rows[offset : offset + limit]], rows.count())
