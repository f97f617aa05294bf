"""Reading agents with their task and coherence, and their inboxes."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db import connection
from django.db.models import QuerySet
from django.utils import timezone

from workflow.models import Agent, Message, Task
from workflow.selectors.coherence import Coherence, measure

MAX_AGENTS = 200


@dataclass(frozen=True, slots=True)
class AgentState:
    """An agent as the status list shows it; `task` is the newest it holds a live lease on."""

    agent: Agent
    task: Task | None
    status: str
    coherence: Coherence

    @property
    def phase_number(self) -> int | None:
        phase = self.task.phase if self.task else self.agent.phase
        return phase.number if phase else None


def states(*, project_id: int, at: datetime | None = None, include_retired: bool = False) -> list[AgentState]:
    """The agents of a project, last seen first, at most 200. Two queries."""
    agents = Agent.objects.filter(project_id=project_id).select_related("phase")
    if not include_retired:
        agents = agents.filter(retired_at__isnull=True)
    return _states(agents.order_by("-last_seen", "pk")[:MAX_AGENTS], at=at or timezone.now())


def state(agent: Agent) -> AgentState:
    """One agent's state. One query."""
    return _states([agent], at=timezone.now())[0]


def working(*, at: datetime) -> list[AgentState]:
    """The states of all agents that hold a live lease, in any project. Three queries."""
    holders = Task.objects.held(at).values("assigned_agent")
    agents = Agent.objects.filter(pk__in=holders, retired_at__isnull=True).select_related("phase", "project")
    return _states(agents, at=at, with_definitions=True)


def _states(agents: Iterable[Agent], *, at: datetime, with_definitions: bool = False) -> list[AgentState]:
    known = list(agents)
    tasks = (
        Task.objects.held(at).filter(assigned_agent__in=[agent.pk for agent in known]).defer("description", "result")
    )
    tasks = tasks.select_related("phase", "project").order_by("started_at", "pk")
    if with_definitions:
        tasks = tasks.prefetch_related("phase__done_definitions")
    held = {task.assigned_agent_id: task for task in tasks}
    return [
        AgentState(
            agent=agent,
            task=held.get(agent.pk),
            status=agent.presence(at=at, holds_lease=agent.pk in held),
            coherence=measure(agent, task=held.get(agent.pk), at=at),
        )
        for agent in known
    ]


def inbox(*, agent_id: int, include_acknowledged: bool = False) -> QuerySet[Message]:
    """An agent's messages, oldest first, with their task."""
    found = Message.objects.filter(recipient_id=agent_id).select_related("task").order_by("pk")
    return found if include_acknowledged else found.filter(acknowledged_at__isnull=True)


def unread(*, agent_id: int) -> int:
    """Messages not acknowledged yet. Asked with every call, so without the ORM's work of building the statement."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT COUNT(*) FROM workflow_message WHERE recipient_id = %s AND acknowledged_at IS NULL", [agent_id]
        )
        (number,) = cursor.fetchone()
        return int(number)
