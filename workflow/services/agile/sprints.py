"""Sprints: making, changing, closing and deleting them. Stories are put into one by `items.update`."""

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from django.db import transaction

from devflow.actors import Actor
from devflow.errors import conflict, invalid, not_found
from workflow.models import Project, Sprint
from workflow.services import activity
from workflow.services.agile.vocabulary import slug_of
from workflow.services.rows import locked_project

MAX_NAME = 80
LONGEST = timedelta(days=366)


def locked(*, project_id: int, pk: int) -> Sprint:
    """The row, locked until the transaction ends. Raises `not_found`, also for another project's."""
    found = Sprint.objects.select_for_update(of=("self",)).select_related("project")
    sprint = found.filter(project_id=project_id, pk=pk).first()
    if sprint is None:
        raise not_found("Sprint", pk, suggestion="The sprints of the project are listed on its Sprints page.")
    return sprint


@transaction.atomic
def create(*, project: Project, name: str, starts_on: date, ends_on: date, actor: Actor) -> Sprint:
    """Make a sprint. Days are both included. Raises `invalid_input`."""
    locked_project(project.pk)
    name = _name(name)
    _check_days(starts_on, ends_on)
    made = Sprint.objects.create(
        project=project, name=name, slug=_free_slug(project.pk, name), starts_on=starts_on, ends_on=ends_on
    )
    _record("sprint.created", made, actor, after={"starts_on": str(starts_on), "ends_on": str(ends_on)})
    return made


@transaction.atomic
def change(*, project: Project, pk: int, actor: Actor, fields: Mapping[str, Any]) -> Sprint:
    """Change `name`, `starts_on`, `ends_on`, `is_closed`; what is the same already stays. Raises `invalid_input`.

    A closed sprint keeps its stories: those not finished are moved by whoever plans the next one.
    """
    sprint = locked(project_id=project.pk, pk=pk)
    wanted = dict(fields)
    if unknown := sorted(wanted.keys() - {"name", "starts_on", "ends_on", "is_closed"}):
        raise invalid(f"{unknown[0]}: a sprint has no such field", **{unknown[0]: "unknown"})
    if "name" in wanted:
        wanted["name"] = _name(wanted["name"])
    _check_days(wanted.get("starts_on", sprint.starts_on), wanted.get("ends_on", sprint.ends_on))
    changed = {name: value for name, value in wanted.items() if getattr(sprint, name) != value}
    if not changed:
        return sprint
    before = {name: _plain(getattr(sprint, name)) for name in changed}
    for name, value in changed.items():
        setattr(sprint, name, value)
    sprint.save(update_fields=list(changed))
    after = {name: _plain(value) for name, value in changed.items()}
    kind = "sprint.changed"
    if changed.keys() == {"is_closed"}:
        kind = "sprint.closed" if sprint.is_closed else "sprint.reopened"
    _record(kind, sprint, actor, before=before, after=after)
    return sprint


@transaction.atomic
def delete(*, project: Project, pk: int, actor: Actor) -> None:
    """Delete a sprint that holds nothing. Raises `not_found`, `conflict` where stories or issues are in it."""
    sprint = locked(project_id=project.pk, pk=pk)
    held = sprint.stories.count() + sprint.issues.count()
    if held:
        raise conflict(
            f"{sprint.name} still has {held} {'story or issue' if held == 1 else 'stories and issues'}.",
            suggestion="Move them to another sprint or out of it, or close the sprint instead.",
        )
    _record("sprint.deleted", sprint, actor)
    sprint.delete()


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value


def _name(name: str) -> str:
    clean = " ".join(name.split())
    if not clean or len(clean) > MAX_NAME:
        raise invalid(f"name: 1 to {MAX_NAME} characters", name=f"{len(clean)} given")
    return clean


def _check_days(starts_on: date, ends_on: date) -> None:
    if ends_on < starts_on:
        raise invalid("A sprint ends on or after its first day.", ends_on="before its start")
    if ends_on - starts_on > LONGEST:
        raise invalid("A sprint lasts a year at most.", ends_on=f"at most {starts_on + LONGEST}")


def _free_slug(project_id: int, name: str) -> str:
    wanted = slug_of(name)[:70]
    taken = set(Sprint.objects.filter(project=project_id, slug__startswith=wanted).values_list("slug", flat=True))
    number = next(n for n in range(1, len(taken) + 2) if (f"{wanted}-{n}" if n > 1 else wanted) not in taken)
    return f"{wanted}-{number}" if number > 1 else wanted


def _record(
    kind: str,
    sprint: Sprint,
    actor: Actor,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    activity.record(
        kind=kind,
        project=sprint.project,
        actor=actor,
        subject_id=f"sprint-{sprint.pk}",
        before=before,
        after={"sprint": sprint.pk, "name": sprint.name, **(after or {})},
    )
