"""What waits for what. A cycle of any length is refused when it would be written."""

from collections.abc import Iterable, Sequence

from django.db import transaction

from devflow.actors import Actor
from devflow.errors import conflict, invalid, not_found
from workflow.models import Dependency, Status, Task
from workflow.services import activity, readiness
from workflow.services.rows import locked_project, locked_task, task_number

MAX_BLOCKERS = 200


def locked_blockers(*, project_id: int, task_ids: Iterable[str | int]) -> list[Task]:
    """The named tasks, locked so that none of them closes unseen. Raises `not_found` naming the unknown ones."""
    numbers = sorted({task_number(task_id) for task_id in task_ids})
    if len(numbers) > MAX_BLOCKERS:
        raise invalid(f"A task can wait for at most {MAX_BLOCKERS} others.", blocked_by=f"{len(numbers)} given")
    if not numbers:
        return []
    found = list(Task.objects.select_for_update().filter(project_id=project_id, pk__in=numbers).order_by("pk"))
    missing = sorted(set(numbers) - {task.pk for task in found})
    if missing:
        raise not_found(
            "Task", ", ".join(f"task-{pk}" for pk in missing), suggestion="get_tasks lists the tasks of this project."
        )
    return found


def find_path(edges: Iterable[tuple[int, int]], *, start: int, goal: int) -> Sequence[int] | None:
    """A way from `start` to `goal` along `edges` (task, blocker), as the tasks on it; None when there is none."""
    blockers: dict[int, list[int]] = {}
    for task, blocker in edges:
        blockers.setdefault(task, []).append(blocker)
    came_from: dict[int, int] = {start: start}
    frontier = [start]
    while frontier:
        here = frontier.pop()
        if here == goal:
            path = [here]
            while path[-1] != start:
                path.append(came_from[path[-1]])
            return path[::-1]
        for there in blockers.get(here, ()):
            if there not in came_from:
                came_from[there] = here
                frontier.append(there)
    return None


@transaction.atomic
def add(*, project_id: int, task_id: str | int, blocked_by: Iterable[str | int], actor: Actor) -> Task:
    """Make a task wait for others; repeating it changes nothing.

    Raises `not_found` for unknown ids, `conflict` for a task that is already closed or when a cycle would close
    (naming it).
    """
    locked_project(project_id)
    task = locked_task(project_id=project_id, task_id=task_id)
    if task.status in (Status.DONE, Status.CANCELLED):
        raise conflict(f"{task.public_id} is {task.status}; a closed task cannot wait for another.")
    blockers = locked_blockers(project_id=project_id, task_ids=blocked_by)
    edges = list(Dependency.objects.filter(task__project_id=project_id).values_list("task_id", "blocker_id"))
    for blocker in blockers:
        if (path := find_path(edges, start=blocker.pk, goal=task.pk)) is not None:
            cycle = " waits for ".join(f"task-{pk}" for pk in [task.pk, *path])
            raise conflict(
                f"That would close a cycle: {cycle}.",
                suggestion="Leave out one of these dependencies.",
                cycle=[f"task-{pk}" for pk in [task.pk, *path]],
            )
    known = {blocker for waiting, blocker in edges if waiting == task.pk}
    fresh = [blocker for blocker in blockers if blocker.pk not in known]
    if fresh:
        Dependency.objects.bulk_create(Dependency(task=task, blocker=blocker) for blocker in fresh)
        activity.record(
            kind="task.blocked_by",
            project=task.project,
            actor=actor,
            task=task,
            after={"blocked_by": [blocker.public_id for blocker in fresh]},
        )
        readiness.refresh(task_ids=[task.pk], actor=actor)
        task.refresh_from_db(fields=["status", "version", "ready_since"])
    return task


@transaction.atomic
def remove(*, project_id: int, task_id: str | int, blocker_id: str | int, actor: Actor) -> Task:
    """Stop a task from waiting for another. Raises `not_found` when it does not wait for it."""
    locked_project(project_id)
    task = locked_task(project_id=project_id, task_id=task_id)
    gone, _ = Dependency.objects.filter(task=task, blocker_id=task_number(blocker_id)).delete()
    if not gone:
        raise not_found("Blocker", blocker_id, suggestion=f"{task.public_id} does not wait for it.")
    activity.record(
        kind="task.unblocked_from",
        project=task.project,
        actor=actor,
        task=task,
        before={"blocked_by": [f"task-{task_number(blocker_id)}"]},
    )
    readiness.refresh(task_ids=[task.pk], actor=actor)
    task.refresh_from_db(fields=["status", "version", "ready_since"])
    return task
