"""The words a project plans with: statuses, issue types, roles and points, and which member has which role.

Whoever calls has checked that the actor administers the project.
"""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from django.db import transaction
from django.db.models import Max, Q
from django.utils import timezone

from devflow.actors import Actor
from devflow.errors import conflict, invalid, not_found
from workflow.models import (
    AgileRole,
    Category,
    Issue,
    IssueType,
    ItemStatus,
    Kind,
    MemberRole,
    Membership,
    Point,
    Project,
    Status,
    Task,
    UserStory,
)
from workflow.services import activity
from workflow.services.agile import items, vocabulary
from workflow.services.rows import locked_project

Word = ItemStatus | IssueType | AgileRole | Point
WordT = TypeVar("WordT", bound=Word)

CALLED: Mapping[type[Any], str] = {
    ItemStatus: "status",
    IssueType: "issue type",
    AgileRole: "role",
    Point: "points value",
}
FIELDS: Mapping[type[Any], frozenset[str]] = {
    ItemStatus: frozenset({"name", "category", "color", "core"}),
    IssueType: frozenset({"name", "color"}),
    AgileRole: frozenset({"name", "estimates"}),
    Point: frozenset({"name", "value"}),
}
MOST = 100
"""Words of one sort (statuses: of one kind) a project may have."""
COLOR = re.compile(r"#[0-9A-Fa-f]{6}", re.ASCII)
FEW_POINTS = 1000


@transaction.atomic
def add(model: type[WordT], *, project: Project, actor: Actor, kind: Kind | None = None, **fields: Any) -> WordT:
    """Add a word behind the others. A status needs its `kind`. Raises `invalid_input`, `conflict` for a name in use."""
    locked_project(project.pk)
    vocabulary.ensure(project)
    if (kind is None) is (model is ItemStatus):
        raise invalid("kind: for a status, and only for it", kind=f"one of {', '.join(Kind.values)}")
    values = _checked(model, fields, kind)
    if "name" not in values:
        raise invalid("name: Required", name="Required")
    siblings = _siblings(model, project.pk, kind)
    if siblings.count() >= MOST:
        raise conflict(f"A project has at most {MOST} of them.", suggestion="Delete one that nothing uses.")
    _check_free(model, siblings, values["name"])
    if model is not Point:
        values["slug"] = _free_slug(siblings, values["name"])
    if kind is not None:
        values["kind"] = kind
        values.setdefault("category", Category.NEW)
    last = siblings.aggregate(last=Max("order"))["last"] or 0
    rows: Any = model._default_manager
    made: WordT = rows.create(project=project, order=last + 1, **values)
    _record(project, actor, model, "added", made)
    return made


@transaction.atomic
def change(model: type[WordT], *, project: Project, pk: int, actor: Actor, **fields: Any) -> WordT:
    """Rename it, recolour it, give it another meaning. Its slug stays.

    Raises `not_found`, `invalid_input`, `conflict` for a name in use.
    """
    locked_project(project.pk)
    word = _word(model, project.pk, pk)
    kind = word.kind if isinstance(word, ItemStatus) else None
    values = _checked(model, fields, kind)
    changed = {name: value for name, value in values.items() if getattr(word, name) != value}
    if not changed:
        return word
    if "name" in changed:
        _check_free(model, _siblings(model, project.pk, kind).exclude(pk=pk), changed["name"])
    before = {name: getattr(word, name) for name in changed}
    was_closed = isinstance(word, ItemStatus) and word.is_closed
    for name, value in changed.items():
        setattr(word, name, value)
    word.save(update_fields=list(changed))
    if isinstance(word, ItemStatus) and word.is_closed is not was_closed:
        _close_or_open(word)
    _record(project, actor, model, "changed", word, before=before, after=changed)
    return word


@transaction.atomic
def order(
    model: type[WordT], *, project: Project, ids: list[int], actor: Actor, kind: Kind | None = None
) -> list[WordT]:
    """Put all words of a sort (statuses: of a `kind`) into the order of `ids`. Raises `invalid_input`."""
    locked_project(project.pk)
    rows = {word.pk: word for word in _siblings(model, project.pk, kind)}
    if len(ids) != len(rows) or set(ids) != set(rows):
        raise invalid("Name each of them once, in the order they are to have.", ids=f"all of {sorted(rows)}")
    before = [word.name for word in rows.values()]
    placed: list[Any] = [rows[pk] for pk in ids]
    for number, word in enumerate(placed, 1):
        word.order = number
    if [word.name for word in placed] != before:
        model._default_manager.bulk_update(placed, ["order"])
        _record(project, actor, model, "ordered", None, before={"order": before}, after={"order": ids})
    return placed


@transaction.atomic
def delete(model: type[WordT], *, project: Project, pk: int, actor: Actor) -> None:
    """Delete a word nothing uses. Raises `not_found`, and `conflict` for one in use or the last of its sort."""
    locked_project(project.pk)
    word = _word(model, project.pk, pk)
    kind = word.kind if isinstance(word, ItemStatus) else None
    if used := _uses(word):
        raise conflict(
            f"{used:,} use{'s' if used == 1 else ''} {word.name}.", suggestion="Give them another one first."
        )
    if isinstance(word, ItemStatus) and _siblings(model, project.pk, kind).count() == 1:
        raise conflict(f"{word.name} is the last status of its kind.", suggestion="Add another one first.")
    _record(project, actor, model, "deleted", word)
    word.delete()


@transaction.atomic
def set_member_role(*, project: Project, user_id: int, role_id: int | None, actor: Actor) -> None:
    """Give a member an agile role; None takes it away. Raises `not_found`, `invalid_input`."""
    membership = Membership.objects.filter(project=project, user_id=user_id).select_related("user").first()
    if membership is None:
        raise not_found("Member", user_id, suggestion="The project's settings list its members.")
    role = None
    if role_id is not None:
        role = AgileRole.objects.filter(project=project, pk=role_id).first()
        if role is None:
            raise invalid("Invalid roleId", roleId="not a role of this project")
    had = MemberRole.objects.filter(membership=membership).select_related("role").first()
    if (had.role if had else None) == role:
        return
    if role is None:
        MemberRole.objects.filter(membership=membership).delete()
    else:
        MemberRole.objects.update_or_create(membership=membership, defaults={"role": role})
    activity.record(
        kind="project.member",
        project=project,
        actor=actor,
        before={"agile_role": had.role.name if had else None},
        after={"user": membership.user.get_username(), "agile_role": role.name if role else None},
    )


def _siblings(model: type[Any], project_id: int, kind: str | None) -> Any:
    rows: Any = model._default_manager.filter(project_id=project_id).order_by("order", "pk")
    return rows.filter(kind=kind) if model is ItemStatus else rows


def _word(model: type[WordT], project_id: int, pk: int) -> WordT:
    rows: Any = model._default_manager
    found: WordT | None = rows.filter(project_id=project_id, pk=pk).first()
    if found is None:
        raise not_found(CALLED[model].capitalize(), pk)
    return found


def _uses(word: Word) -> int:
    if isinstance(word, ItemStatus):
        rows: Any = Task.objects.filter(item_status=word)
        if word.kind != Kind.TASK:
            rows = items.MODELS[Kind(word.kind)]._default_manager.filter(status=word)
    elif isinstance(word, IssueType):
        rows = Issue.objects.filter(type=word)
    elif isinstance(word, AgileRole):
        members = MemberRole.objects.filter(role=word).count()
        return members + UserStory.objects.filter(project=word.project_id, points__has_key=word.slug).count()
    else:
        return 0  # stories keep the value itself
    return int(rows.count())


def _close_or_open(status: ItemStatus) -> None:
    """What a status means changed: items under it are finished since now, or not any more."""
    if status.kind == Kind.TASK:
        return
    rows: Any = items.MODELS[Kind(status.kind)]._default_manager.filter(status=status)
    if status.is_closed:
        rows.filter(closed_at=None).update(closed_at=timezone.now())
    else:
        rows.update(closed_at=None)


def _checked(model: type[Any], fields: Mapping[str, Any], kind: str | None) -> dict[str, Any]:
    if unknown := sorted(fields.keys() - FIELDS[model]):
        raise invalid(f"{unknown[0]}: a {CALLED[model]} has no such field", **{unknown[0]: "unknown"})
    values = dict(fields)
    if "name" in values:
        most = model._meta.get_field("name").max_length or 80
        values["name"] = " ".join(str(values["name"]).split())
        if not 1 <= len(values["name"]) <= most:
            raise invalid(f"name: 1 to {most} characters", name=f"{len(values['name'])} given")
    if "color" in values and not COLOR.fullmatch(values["color"]):
        raise invalid("color: a colour such as #4da6ff", color="#rrggbb")
    if "category" in values and values["category"] not in Category.values:
        raise invalid("Invalid category", category=f"one of {', '.join(Category.values)}")
    if values.get("core") and (kind != Kind.TASK or values["core"] not in Status.values):
        raise invalid("core: a state of the board, for a status of tasks", core=f"one of {', '.join(Status.values)}")
    if values.get("value") is not None and not 0 <= values["value"] <= FEW_POINTS:
        raise invalid(f"value: from 0 to {FEW_POINTS}", value="out of range")
    return values


def _check_free(model: type[Any], siblings: Any, name: str) -> None:
    if siblings.filter(Q(name__iexact=name)).exists():
        raise conflict(f"There is a {CALLED[model]} called {name} already.", suggestion="Choose another name.")


def _free_slug(siblings: Any, name: str) -> str:
    wanted = vocabulary.slug_of(name)[:70]
    taken = set(siblings.filter(slug__startswith=wanted).values_list("slug", flat=True))
    number = next(n for n in range(1, len(taken) + 2) if (f"{wanted}-{n}" if n > 1 else wanted) not in taken)
    return f"{wanted}-{number}" if number > 1 else wanted


def _record(
    project: Project,
    actor: Actor,
    model: type[Any],
    did: str,
    word: Word | None,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    told = {"what": CALLED[model], "did": did, **({"name": word.name} if word else {}), **(after or {})}
    activity.record(kind="project.words", project=project, actor=actor, before=before, after=told)
