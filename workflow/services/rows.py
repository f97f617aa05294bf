"""Locking a task's row and changing it, so that every change has a before, an after and a new version."""

from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from devflow.digits import whole
from devflow.errors import conflict, not_found
from workflow.models import Phase, Project, Task
from workflow.services.activity import plain

LET_GO: dict[str, Any] = {
    "lease_token": None,
    "lease_session": "",
    "lease_expires_at": None,
    "lease_renew_at": None,
    "lease_minutes": 0,
}
"""The fields of a task that nobody holds."""

SECRET = frozenset({"lease_token", "closed_with", "lease_renew_at"})


@dataclass(frozen=True, slots=True)
class Change:
    """The changed fields of a row, before and after, as the Event log keeps them."""

    before: dict[str, Any]
    after: dict[str, Any]


def task_number(task_id: str | int) -> int:
    """The primary key in `task-12`, `"12"` or `12`; raises `not_found` for anything else."""
    number = whole(str(task_id).removeprefix("task-"), digits=16)
    if number is None:
        raise not_found("Task", task_id, suggestion="A task id looks like task-123; get_tasks lists them.")
    return number


def locked_task(*, project_id: int, task_id: str | int) -> Task:
    """The task's row, locked until the transaction ends, with its project, phase and holder.

    Raises `not_found` for an unknown id and for another project's.
    """
    try:
        return (
            Task.objects.select_for_update(of=("self",))
            .select_related("project", "phase", "assigned_agent")
            .get(project_id=project_id, pk=task_number(task_id))
        )
    except Task.DoesNotExist:
        raise not_found("Task", task_id, suggestion="get_tasks lists the tasks of this project.") from None


def locked_project(project_id: int) -> Project:
    """The project's row, locked: what serialises changes of the dependency graph and of limits."""
    return Project.objects.select_for_update(no_key=True).get(pk=project_id)


def phase_numbered(*, project_id: int, number: int) -> Phase:
    """A phase by its number, with its project. Raises `not_found`."""
    try:
        return Phase.objects.select_related("project").get(project_id=project_id, number=number)
    except Phase.DoesNotExist:
        known = ", ".join(str(n) for n in Phase.objects.filter(project_id=project_id).values_list("number", flat=True))
        raise not_found(
            "Phase", number, suggestion=f"The phases of this project: {known}." if known else "It has no phases yet."
        ) from None


def change(task: Task, **fields: Any) -> Change:
    """Write `fields` of a locked task, with the next version."""
    fields = {name: value for name, value in fields.items() if getattr(task, name) != value}
    before = {name: plain(getattr(task, name)) for name in fields if name not in SECRET}
    after = {name: plain(value) for name, value in fields.items() if name not in SECRET}
    before |= {"status": task.status, "version": task.version}
    for name, value in fields.items():
        setattr(task, name, value)
    task.version += 1
    task.updated_at = timezone.now()
    task.save(update_fields=[*fields, "version", "updated_at"])
    return Change(before, after | {"status": task.status, "version": task.version})


def check_version(task: Task, version: int | None) -> None:
    """Refuse a change that was decided on an older state. Raises `conflict` with both versions."""
    if version is not None and version != task.version:
        raise conflict(
            f"{task.public_id} changed meanwhile (version {task.version}, yours is {version}).",
            suggestion="Read the task again, then repeat your change on what it is now.",
            version=task.version,
            yours=version,
        )
