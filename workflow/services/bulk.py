"""The same change to many tasks: each stands for itself, and what is refused says why."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from django.db import transaction

from devflow.actors import Actor
from devflow.errors import DevFlowError, invalid
from workflow.models import Task
from workflow.selectors.board import Column
from workflow.services import board, tasks, transitions
from workflow.services.rows import locked_task, task_number

Action = Literal["move", "tag", "untag", "assign", "cancel"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one task; `error` is empty where it was done."""

    task_id: str
    error: str = ""
    version: int | None = None

    @property
    def ok(self) -> bool:
        return not self.error


@dataclass(frozen=True, slots=True)
class Change:
    """What is done to each: `column` for a move, `tag`, the `agent` it is reserved for (empty: nobody), a `reason`."""

    action: Action
    column: Column | None = None
    tag: str = ""
    agent: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        if self.action == "move" and self.column is None:
            raise invalid("Say which column the tasks go to.", column="is required to move")
        if self.action in ("tag", "untag") and not self.tag.strip():
            raise invalid("Say which tag.", tag="is required")


def apply(*, project_id: int, task_ids: Iterable[str | int], change: Change, actor: Actor) -> list[Outcome]:
    """Change tasks of one project, in the order given. A refused one does not stop the rest."""
    return [_one(project_id=project_id, task_id=one, change=change, actor=actor) for one in task_ids]


def _one(*, project_id: int, task_id: str | int, change: Change, actor: Actor) -> Outcome:
    name = f"task-{str(task_id).removeprefix('task-')}"
    try:
        with transaction.atomic():
            _do(project_id, task_id, change, actor)
            version = Task.objects.values_list("version", flat=True).get(project_id=project_id, pk=task_number(task_id))
    except DevFlowError as exc:
        return Outcome(name, f"{exc.message} {exc.suggestion or ''}".strip())
    return Outcome(name, version=version)


def _do(project_id: int, task_id: str | int, change: Change, actor: Actor) -> None:
    if change.action == "cancel":
        transitions.cancel(project_id=project_id, task_id=task_id, actor=actor, reason=change.reason)
    elif change.action == "assign":
        tasks.reserve(project_id=project_id, task_id=task_id, agent=change.agent, actor=actor)
    elif change.action == "move" and change.column is not None:
        board.move(project_id=project_id, task_id=task_id, column=change.column, actor=actor, reason=change.reason)
    else:
        task = locked_task(project_id=project_id, task_id=task_id)
        tag = change.tag.strip()
        kept = [one for one in task.tags if one != tag]
        wanted = [*kept, tag] if change.action == "tag" else kept
        if sorted(wanted) != sorted(task.tags):
            tasks.edit(project_id=project_id, task_id=task_id, actor=actor, tags=wanted)
