"""The order of epics and stories in the backlog."""

from typing import Any, Literal

from django.db import transaction

from devflow.actors import Actor
from devflow.errors import invalid, not_found
from workflow.models import POSITION_GAP, Epic, Kind, Project, UserStory
from workflow.services import activity
from workflow.services.agile import items

Where = Literal["top", "up", "down", "bottom"]


@transaction.atomic
def place(
    kind: Kind,
    *,
    project: Project,
    pk: int,
    actor: Actor,
    after: int | None = None,
    before: int | None = None,
    epic_id: int | Literal[False] | None = False,
) -> items.Item:
    """Put an epic or a story right behind `after`, or right before `before`. A story goes into `epic_id` where given.

    Raises `not_found`, `invalid_input`.
    """
    if epic_id is not False:
        items.update(kind, project=project, pk=pk, actor=actor, fields={"epic_id": epic_id})
    item = _ordered(items.locked(kind, project_id=project.pk, pk=pk))
    if after is None and before is None:
        return item
    others: Any = type(item)._default_manager.filter(project=project).exclude(pk=pk)
    neighbour = after if after is not None else before
    at = others.filter(pk=neighbour).values_list("position", flat=True).first()
    if at is None:
        raise not_found(kind.label.replace("_", " ").capitalize(), neighbour)
    position = _between(others, at, int(neighbour or 0), behind=after is not None)
    if position is None:
        _renumber(type(item), project.pk)
        at = others.filter(pk=neighbour).values_list("position", flat=True).get()
        position = _between(others, at, int(neighbour or 0), behind=after is not None)
    return _moved(item, position or 0, actor)


@transaction.atomic
def shift(kind: Kind, *, project: Project, pk: int, where: Where, actor: Actor) -> items.Item:
    """Move an epic among the epics, a story among those of its epic: to an end, or by one. At the end it stays."""
    item = _ordered(items.locked(kind, project_id=project.pk, pk=pk))
    rows: Any = type(item)._default_manager.filter(project=project)
    if isinstance(item, UserStory):
        rows = rows.filter(epic=item.epic_id)
    ids = list(rows.order_by("position", "pk").values_list("pk", flat=True))
    now = ids.index(pk)
    wanted = {"top": 0, "up": max(0, now - 1), "down": min(len(ids) - 1, now + 1), "bottom": len(ids) - 1}.get(where)
    if wanted is None:
        raise invalid("Say top, up, down or bottom.", where=str(where)[:20])
    if wanted == now:
        return item
    side = "after" if wanted > now else "before"
    return place(kind, project=project, pk=pk, actor=actor, **{side: ids[wanted]})


def _ordered(item: items.Item) -> Epic | UserStory:
    if not isinstance(item, Epic | UserStory):
        raise invalid("Epics and stories have an order.", kind="epic or user_story")
    return item


def _between(others: Any, at: int, neighbour: int, *, behind: bool) -> int | None:
    """A position right behind or before the neighbour's, or None where there is no room."""
    around = others.exclude(pk=neighbour).order_by("position").values_list("position", flat=True)
    if behind:
        beyond = around.filter(position__gte=at).first()
        beyond = at + 2 * POSITION_GAP if beyond is None else beyond
    else:
        beyond = around.filter(position__lte=at).last()
        beyond = at - 2 * POSITION_GAP if beyond is None else beyond
    middle = (at + beyond) // 2
    return middle if middle not in (at, beyond) else None


def _renumber(model: type[Epic] | type[UserStory], project_id: int) -> None:
    rows: Any = list(model._default_manager.filter(project=project_id).order_by("position", "pk").only("pk"))
    for number, row in enumerate(rows, 1):
        row.position = number * POSITION_GAP
    model._default_manager.bulk_update(rows, ["position"], batch_size=500)


def _moved(item: Epic | UserStory, position: int, actor: Actor) -> items.Item:
    """A new place is no new version: nobody's words are older for it."""
    item.position = position
    item.save(update_fields=["position"])
    name = "epic" if isinstance(item, Epic) else "story"
    told = {"ref": item.ref, "subject": item.subject}
    activity.record(kind=f"{name}.moved", project=item.project, actor=actor, subject_id=f"{name}-{item.pk}", after=told)
    return item
