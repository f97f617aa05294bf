"""Writing epics, user stories and issues. Tasks of stories are in `work`."""

from collections.abc import Mapping
from datetime import date
from typing import Any, TypeVar

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from devflow.actors import Actor
from devflow.errors import conflict, invalid, not_found
from workflow.models import (
    POSITION_GAP,
    AgileRole,
    Comment,
    Epic,
    Issue,
    IssueType,
    ItemStatus,
    Kind,
    Membership,
    Phase,
    Project,
    Severity,
    Sprint,
    Urgency,
    UserStory,
)
from workflow.models.agile import MAX_REASON, MAX_SUBJECT, WorkItem
from workflow.services import activity
from workflow.services.agile import vocabulary
from workflow.services.tasks import MAX_TEXT, next_ref

Item = Epic | UserStory | Issue
ItemT = TypeVar("ItemT", Epic, UserStory, Issue)

MODELS: Mapping[Kind, type[Epic] | type[UserStory] | type[Issue]] = {
    Kind.EPIC: Epic,
    Kind.USER_STORY: UserStory,
    Kind.ISSUE: Issue,
}
MAX_TAGS, MAX_TAG = 32, 40
COMMENTED = {Kind.EPIC: "epic", Kind.USER_STORY: "story", Kind.ISSUE: "issue"}


def kind_of(item: Item) -> Kind:
    return next(kind for kind, model in MODELS.items() if isinstance(item, model))


def locked(kind: Kind, *, project_id: int, pk: int) -> Item:
    """The row, locked until the transaction ends. Raises `not_found` for an unknown id and another project's."""
    model = MODELS[kind]
    found = model._default_manager.select_for_update(of=("self",)).filter(project_id=project_id, pk=pk)
    item: Item | None = found.select_related("project", "status", "assigned_to").first()
    if item is None:
        raise not_found(kind.label.replace("_", " ").capitalize(), pk)
    return item


@transaction.atomic
def create(kind: Kind, *, project: Project, actor: Actor, fields: Mapping[str, Any], comment: str = "") -> Item:
    """Make an item. `fields` are the model's own names, with ids for what it points to (`status_id`, `epic_id` ...).

    Raises `invalid_input` naming the field, with ids that name nothing in this project as `Invalid statusId`.
    """
    vocabulary.ensure(project)
    model = MODELS[kind]
    values = _checked(kind, project, fields)
    if "subject" not in values:
        raise invalid("subject: Required", subject="Required")
    if "status" not in values:
        values["status"] = ItemStatus.objects.filter(project=project, kind=kind).first()
    if kind is Kind.ISSUE and "type" not in values:
        values["type"] = IssueType.objects.filter(project=project).first()
    last = model._default_manager.filter(project=project).aggregate(last=Max("position"))["last"] or 0
    item: Item = model._default_manager.create(
        project=project,
        ref=next_ref(project),
        position=last + POSITION_GAP,
        created_by=actor.name,
        creator_user_id=actor.user_id,
        closed_at=timezone.now() if values["status"].is_closed else None,
        **values,
    )
    _record(item, "created", actor, after=_plain(values))
    if comment:
        say(item, body=comment, actor=actor)
    return item


@transaction.atomic
def update(
    kind: Kind,
    *,
    project: Project,
    pk: int,
    actor: Actor,
    fields: Mapping[str, Any],
    version: int | None = None,
    comment: str = "",
) -> Item:
    """Change what `fields` names; what is the same already stays. Raises `conflict` for a stale version."""
    item = locked(kind, project_id=project.pk, pk=pk)
    if version is not None and version != item.version:
        raise conflict(
            f"It changed meanwhile (version {item.version}, yours is {version}).",
            suggestion="Read it again, then repeat your change on what it is now.",
            version=item.version,
            yours=version,
        )
    values = _checked(kind, project, fields)
    if values.get("is_blocked") is False:
        values["blocked_reason"] = ""
    changed = {name: value for name, value in values.items() if getattr(item, name) != value}
    before = {name: getattr(item, name) for name in changed}
    if changed:
        if "status" in changed:
            is_closed = changed["status"].is_closed
            changed["closed_at"] = (item.closed_at or timezone.now()) if is_closed else None
        for name, value in changed.items():
            setattr(item, name, value)
        item.version += 1
        item.updated_at = timezone.now()
        item.save(update_fields=[*changed, "version", "updated_at"])
        changed.pop("closed_at", None)
        _record(item, "changed", actor, before=_plain(before), after=_plain(changed))
    if comment:
        say(item, body=comment, actor=actor)
    return item


@transaction.atomic
def delete(kind: Kind, *, project: Project, pk: int, actor: Actor) -> None:
    """Delete an item. An epic's stories and a story's tasks stay, and belong to nothing. Raises `not_found`."""
    item = locked(kind, project_id=project.pk, pk=pk)
    _record(item, "deleted", actor, before={"subject": item.subject, "ref": item.ref})
    item.delete()


@transaction.atomic
def say(item: Item, *, body: str, actor: Actor) -> Comment:
    """Write a comment. Raises `invalid_input` for an empty one."""
    if not body.strip() or len(body) > MAX_TEXT:
        raise invalid(f"A comment has 1 to {MAX_TEXT} characters.", comment=f"{len(body)} given")
    place = {COMMENTED[kind_of(item)]: item}
    made = Comment.objects.create(body=body, actor_kind=actor.kind, actor_name=actor.name, **place)
    _record(item, "commented", actor, after={"comment": made.pk, "text": body[:200]})
    return made


def _record(
    item: WorkItem,
    what: str,
    actor: Actor,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    kind = {Epic: "epic", UserStory: "story", Issue: "issue"}[type(item)]
    project: Project = item.project  # type: ignore[attr-defined]  # every one of the three has it
    told = {"ref": item.ref, "subject": item.subject, **(after or {})}
    activity.record(
        kind=f"{kind}.{what}", project=project, actor=actor, subject_id=f"{kind}-{item.pk}", before=before, after=told
    )


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Changed fields as the log keeps them."""

    def plain(value: Any) -> Any:
        if hasattr(value, "pk"):
            return str(value)
        if isinstance(value, date):
            return value.isoformat()
        return value[:200] if isinstance(value, str) else value

    return {name: plain(value) for name, value in values.items()}


def _checked(kind: Kind, project: Project, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The model's values for what was asked. Raises `invalid_input` for what this kind or project does not have."""
    values: dict[str, Any] = {}
    for name, value in fields.items():
        if name == "subject":
            values[name] = _text(name, value, MAX_SUBJECT, needed=True)
        elif name == "description":
            values[name] = _text(name, value, MAX_TEXT)
        elif name == "tags":
            values[name] = checked_tags(value)
        elif name == "status_id":
            values["status"] = status_of(project, kind, value)
        elif name == "assigned_to_id":
            values["assigned_to"] = assignee(project, value)
        elif name == "epic_id" and kind is Kind.USER_STORY:
            values["epic"] = _one(Epic, project, value, "epicId")
        elif name == "sprint_id" and kind in (Kind.USER_STORY, Kind.ISSUE):
            values["sprint"] = _one(Sprint, project, value, "sprintId")
        elif name == "phase_id" and kind is Kind.USER_STORY:
            values["phase"] = _one(Phase, project, value, "phaseId")
        elif name == "type_id" and kind is Kind.ISSUE:
            values["type"] = _one(IssueType, project, value, "typeId")
        elif name == "points" and kind is Kind.USER_STORY:
            values["points"] = _points(project, value)
        elif name in ("is_blocked", "due_on", "color"):
            values[name] = value
        elif name == "blocked_reason":
            values[name] = _text(name, value, MAX_REASON)
        elif name in ("priority", "severity"):
            values[name] = _choice(name, value)
        else:
            raise invalid(f"{name}: {kind.label} has no such field", **{name: "unknown"})
    return values


def _text(name: str, value: str, most: int, *, needed: bool = False) -> str:
    text = value.strip() if needed else value
    if (needed and not text) or len(text) > most:
        raise invalid(f"{name}: {'1' if needed else '0'} to {most} characters", **{name: f"{len(text)} given"})
    return text


def _choice(name: str, value: str) -> str:
    known = Severity.values if name == "severity" else Urgency.values
    if value not in known:
        raise invalid(f"Invalid {name}", **{name: f"one of {', '.join(known)}"})
    return value


def checked_tags(tags: list[str]) -> list[str]:
    clean = list(dict.fromkeys(tag.strip() for tag in tags if tag.strip()))
    if len(clean) > MAX_TAGS or any(len(tag) > MAX_TAG or "," in tag for tag in clean):
        raise invalid(
            f"tags: at most {MAX_TAGS} of at most {MAX_TAG} characters, without commas", tags="too many or long"
        )
    return clean


def status_of(project: Project, kind: Kind, status_id: int) -> ItemStatus:
    """Raises `invalid_input`, `Invalid statusId`, for one of another kind or project."""
    found = ItemStatus.objects.filter(project=project, kind=kind, pk=status_id).first()
    if found is None:
        known = ItemStatus.objects.filter(project=project, kind=kind).values_list("pk", "name")
        listed = ", ".join(f"{pk} ({name})" for pk, name in known)
        raise invalid("Invalid statusId", statusId=f"one of {listed}")
    return found


def assignee(project: Project, user_id: int | None) -> Any:
    """The member with this user id, or nobody. Raises `invalid_input`, `Invalid assignedToId`."""
    if user_id is None:
        return None
    membership = Membership.objects.filter(project=project, user_id=user_id).select_related("user").first()
    if membership is None or not membership.user.is_active:
        raise invalid("Invalid assignedToId", assignedToId="no active member of this project; get_members lists them")
    return membership.user


def _one(model: Any, project: Project, pk: int | None, name: str) -> Any:
    if pk is None:
        return None
    found = model.objects.filter(project=project, pk=pk).first()
    if found is None:
        raise invalid(f"Invalid {name}", **{name: "not of this project"})
    return found


def _points(project: Project, points: Mapping[str, float | None]) -> dict[str, float]:
    """Estimates by role; a value of None takes one away."""
    roles = set(AgileRole.objects.filter(project=project, estimates=True).values_list("slug", flat=True))
    if unknown := sorted(set(points) - roles):
        raise invalid(f"points: there is no estimating role {unknown[0]}", points=f"some of {', '.join(sorted(roles))}")
    if any(value is not None and not 0 <= value <= 1000 for value in points.values()):
        raise invalid("points: from 0 to 1000", points="out of range")
    return {role: value for role, value in points.items() if value is not None}
