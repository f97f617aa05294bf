"""What a person does to an agent at work."""

from django.db import transaction

from devflow.actors import Actor
from workflow.services import claims
from workflow.services.rows import check_version, locked_task
from workflow.services.transitions import Moved, tell_agent


@transaction.atomic
def take_back(
    *, project_id: int, task_id: str | int, actor: Actor, reason: str = "", version: int | None = None
) -> Moved:
    """Release a task from its holder, who is told. Raises `conflict` unless it is in progress (at that `version`)."""
    task = locked_task(project_id=project_id, task_id=task_id)
    check_version(task, version)
    holder = task.assigned_agent if task.lease_token is not None else None
    moved = claims.release(project_id=project_id, task_id=task_id, actor=actor, reason=reason)
    if holder is not None:
        said = f"{task.public_id} was taken back from you by {actor.name}{': ' + reason if reason.strip() else '.'}"
        tell_agent(moved.task, actor=actor, body=said, holder=holder)
    return moved
