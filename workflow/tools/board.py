"""Tools that show the work: the board, tasks by filter, phases; and the gates."""

from typing import Annotated, Literal

from pydantic import Field

from devflow import ports
from devflow.errors import invalid
from mcpbridge.tooling import (
    MAX_LIST,
    Caller,
    Effect,
    Intent,
    Limit,
    Offset,
    OptionalText,
    PhaseNumber,
    Result,
    ShortText,
    Tags,
    TaskId,
    tool,
)
from workflow.models import Gate, Project
from workflow.selectors import board as board_selectors
from workflow.selectors import projects as project_selectors
from workflow.selectors import tasks as task_selectors
from workflow.services import gates
from workflow.tools.results import GateName, KanbanBoard, PhaseInfo, TaskList, kanban, phase_info, task_item


class ProjectChosen(Result):
    project: str = Field(description="The slug of the project your calls work in from now on.")
    name: str


class GateItem(Result):
    name: str
    is_set: bool
    task_id: str | None = None
    phase_id: int | None = None
    version: int = Field(description="Give it as expected_version to change only what you have seen.")
    set_by: str
    reason: str
    changed_at: str


class GateList(Result):
    gates: list[GateItem]
    gates_enabled: bool = Field(description="Whether the gateway asks for them in this project.")


@tool(intent=Intent.MODIFY, effect=Effect.MUTATING, toolset="workflow", needs_project=False, idempotent=True)
def set_project(caller: Caller, *, project: ShortText) -> ProjectChosen:
    """Choose the project your calls work in. It is remembered for you until you choose another.

    Needed only where your key sees several projects; a call that needs it says so and lists them.

    Args:
        project: The project's slug.
    """
    chosen = ports.directory().remember_project(caller.scope, slug=project, agent_name=caller.agent_name)
    return ProjectChosen(project=chosen.slug, name=chosen.name)


@tool(intent=Intent.QUERY, effect=Effect.READ_ONLY, toolset="workflow")
def get_tasks(
    caller: Caller,
    *,
    phase_id: PhaseNumber | None = None,
    status: Literal["pending", "ready", "in_progress", "review", "done", "failed", "cancelled", "blocked"]
    | None = None,
    tags: Tags | None = None,
    limit: Limit = MAX_LIST,
    offset: Offset = 0,
) -> TaskList:
    """Query tasks, oldest first. To get work use claim_task instead: looking reserves nothing.

    Args:
        phase_id: Only tasks of this phase.
        status: Only tasks in this status; `blocked` means those that wait for another task or are held back.
        tags: Only tasks that carry all of these.
        limit: How many at most.
        offset: How many to skip, to read on.
    """
    if phase_id is not None:
        project_selectors.phase(project_id=caller.project.id, number=phase_id)
    found = task_selectors.find(project_id=caller.project.id, phase_number=phase_id, status=status, tags=tags or ())
    total = found.count()
    cards = task_selectors.cards(found[offset : offset + limit])
    return TaskList(tasks=[task_item(card) for card in cards], total=total, truncated=total > offset + len(cards))


@tool(intent=Intent.QUERY, effect=Effect.READ_ONLY, toolset="workflow")
def get_phase_info(caller: Caller, *, phase_id: PhaseNumber) -> PhaseInfo:
    """Read what a phase is for, how to work in it, and what done means there. Do this before your first claim.

    Args:
        phase_id: The phase's number.
    """
    return phase_info(project_selectors.phase(project_id=caller.project.id, number=phase_id))


@tool(
    intent=Intent.QUERY,
    effect=Effect.READ_ONLY,
    toolset="workflow",
    fingerprint=lambda caller: board_selectors.fingerprint(project_id=caller.project.id),
)
def get_kanban_board(caller: Caller) -> KanbanBoard:
    """See the whole board: backlog (waiting or blocked), ready, in progress, review (also failed tasks), done.

    Counts in stats are exact; a column lists at most 200 cards (done: the newest 50), get_tasks reads on. Use it to
    see what is stuck and what to create next; claim_task picks your work for you.
    """
    project = Project.objects.get(pk=caller.project.id)
    return kanban(board_selectors.board(project=project))


def _gate_item(gate: Gate) -> GateItem:
    return GateItem(
        name=gate.name,
        is_set=gate.is_set,
        task_id=f"task-{gate.task_id}" if gate.task_id else None,
        phase_id=gate.phase.number if gate.phase else None,
        version=gate.version,
        set_by=gate.actor_name,
        reason=gate.reason,
        changed_at=gate.changed_at.isoformat(),
    )


@tool(intent=Intent.MODIFY, effect=Effect.MUTATING, toolset="workflow", idempotent=True)
def set_gate(
    caller: Caller,
    *,
    name: GateName,
    is_set: bool = True,
    task_id: TaskId | None = None,
    phase_id: PhaseNumber | None = None,
    reason: OptionalText = "",
    expected_version: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None,
    project_root: Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00]*$")] | None = None,
) -> GateItem:
    """Set or clear a marker, such as `analysis-done`, that gated changes through the gateway ask for.

    Set `analysis-done` on your task once you understand what a change will touch; the change consumes it and leaves
    `execution-done`. Without task_id and phase_id the marker is the project's.

    Args:
        name: The marker: analysis-done, execution-done, or one of your own.
        is_set: False clears it.
        task_id: The task it is about.
        phase_id: The phase it is about.
        reason: Why, for whoever reads the log.
        expected_version: Change it only if it still has this version; 0 means that it must not exist yet.
        project_root: A directory in which the marker is also kept as a file (.analysis-done).
    """
    if task_id is not None and phase_id is not None:
        raise invalid("A gate belongs to a task or to a phase, not to both.", phase_id="leave one of them out")
    gate = gates.set_gate(
        project_id=caller.project.id,
        name=name,
        is_set=is_set,
        task_id=task_id,
        phase_number=phase_id,
        reason=reason,
        expected_version=expected_version,
        project_root=project_root,
        actor=caller.writer("set_gate"),
    )
    return _gate_item(gate)


@tool(intent=Intent.QUERY, effect=Effect.READ_ONLY, toolset="workflow")
def get_gates(caller: Caller, *, task_id: TaskId | None = None, name: GateName | None = None) -> GateList:
    """List the markers of the project, or of one task: who set them, when and why.

    Args:
        task_id: Only the markers of this task.
        name: Only markers of this name.
    """
    found = Gate.objects.filter(project_id=caller.project.id).select_related("phase")
    if task_id is not None:
        found = found.filter(task=task_selectors.by_id(project_id=caller.project.id, task_id=task_id))
    if name is not None:
        found = found.filter(name=name)
    enabled = Project.objects.values_list("gates_enabled", flat=True).get(pk=caller.project.id)
    listed = [_gate_item(gate) for gate in found.order_by("-changed_at", "-pk")[:MAX_LIST]]
    return GateList(gates=listed, gates_enabled=enabled)
