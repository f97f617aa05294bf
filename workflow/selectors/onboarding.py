"""How far a new project is from its first claimed task."""

from dataclasses import dataclass

from django.db.models import QuerySet

from workflow.models import Agent, Event, Phase, Status, Task

CLAIMS = ("task.claimed", "task.done", "task.submitted")
"""What only an agent that took up a task does."""


@dataclass(frozen=True, slots=True)
class Steps:
    """What is done on the way to a first claimed task, in its order.

    `agent`: the first client that called, where one did; `first_task`: what there is to claim (or was claimed);
    `phase`: the number of the phase it is claimed from.
    """

    has_project: bool
    agent: Agent | None = None
    first_task: Task | None = None
    is_claimed: bool = False
    phase: int = 1

    @property
    def is_connected(self) -> bool:
        return self.agent is not None

    @property
    def has_task(self) -> bool:
        return self.first_task is not None

    @property
    def is_complete(self) -> bool:
        """A client is connected and has claimed a task: nothing is left to lead to."""
        return self.has_project and self.is_connected and self.is_claimed

    @property
    def done(self) -> int:
        return sum((self.has_project, self.is_connected, self.has_task, self.is_claimed))


def steps(project_id: int | None) -> Steps:
    """Where a project stands; None: there is no project yet. At most four queries, two where it is under way."""
    if project_id is None:
        return Steps(has_project=False)
    agents = Agent.objects.filter(project_id=project_id, retired_at__isnull=True)
    agent = agents.order_by("started_at", "pk").first()
    claim = next(iter(_claims(project_id)[:1]), None) if agent else None
    if claim is not None:
        number = claim.task.phase.number if claim.task else 1
        return Steps(True, agent=claim.agent or agent, first_task=claim.task, is_claimed=True, phase=number)
    task = _claimable(project_id).first()
    phase = task.phase.number if task else _first_phase(project_id)
    return Steps(True, agent=agent, first_task=task, phase=phase)


def _claims(project_id: int) -> QuerySet[Event]:
    """What agents took up here; what an imported history tells of others does not count: they are retired."""
    return (
        Event.objects.filter(
            project_id=project_id, kind__in=CLAIMS, agent__isnull=False, agent__retired_at__isnull=True
        )
        .select_related("agent", "task__phase")
        .order_by()  # any will do, and a long history is not sorted for it
    )


def _claimable(project_id: int) -> QuerySet[Task]:
    """Open tasks, those that can be claimed now before those that wait."""
    return (
        Task.objects.filter(project_id=project_id, status__in=[Status.READY, Status.PENDING, Status.IN_PROGRESS])
        .select_related("phase")
        .defer("description", "result")
        .order_by("-status", "phase__number", "priority", "position", "pk")  # ready before pending before in progress
    )


def _first_phase(project_id: int) -> int:
    return Phase.objects.filter(project_id=project_id).order_by("number").values_list("number", flat=True).first() or 1
