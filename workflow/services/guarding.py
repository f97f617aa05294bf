"""The workflow's side of the gateway's ports: gates round changes, and word to those whose files changed."""

from collections.abc import Sequence

from django.utils import timezone

from devflow.actors import Actor
from workflow.models import Project, Task
from workflow.services import claims, gates, messages

MAX_NAMED = 10


class WorkflowGates:
    def are_on(self, project_id: int) -> bool:
        return Project.objects.filter(pk=project_id, gates_enabled=True).exists()

    def take(self, project_id: int, actor: Actor, *, session: str, project_root: str | None) -> None:
        gates.consume(
            project_id=project_id,
            name=gates.ANALYSIS_DONE,
            actor=actor,
            task_id=_held(actor, session),
            project_root=project_root,
        )

    def leave(
        self, project_id: int, actor: Actor, *, analysed: bool, session: str, project_root: str | None, reason: str
    ) -> None:
        gates.set_gate(
            project_id=project_id,
            name=gates.ANALYSIS_DONE if analysed else gates.EXECUTION_DONE,
            actor=actor,
            task_id=_held(actor, session),
            project_root=project_root,
            reason=reason,
        )


class WorkflowWatchers:
    def files_changed(self, project_id: int, files: Sequence[str], actor: Actor, *, by: str) -> int:
        """A task names a file when its description has the path, or its metadata's `files` list does."""
        held = (
            Task.objects.held(timezone.now())
            .filter(project_id=project_id, assigned_agent__isnull=False)
            .select_related("assigned_agent", "project")
        )
        told = 0
        for task in held:
            holder = task.assigned_agent
            if holder is None or holder.pk == actor.agent_id:
                continue
            listed = task.metadata.get("files")
            words = {item for item in listed if isinstance(item, str)} if isinstance(listed, list) else set()
            if named := [name for name in files if name in words or name in task.description]:
                more = f" and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
                body = (
                    f"{actor.name} changed files that {task.public_id} names, through {by}: "
                    f"{', '.join(named[:MAX_NAMED])}{more}. Look at them before you go on."
                )
                messages.deliver(recipients=[holder], body=body, actor=actor, task=task)
                told += 1
        return told


def _held(actor: Actor, session: str) -> int | None:
    """The task this run of the agent holds, the latest claim first."""
    if actor.agent_id is None:
        return None
    task = claims.current(agent_id=actor.agent_id, session=session)
    return task.pk if task else None
