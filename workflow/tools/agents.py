"""Tools for working beside other agents: who is there, messages, signs of life."""

from typing import Annotated

from django.utils import timezone
from pydantic import Field

from mcpbridge.tooling import MAX_LIST, Caller, Effect, Intent, Limit, Offset, Result, ShortText, TaskId, tool
from workflow.models import Task
from workflow.selectors import agents as agent_selectors
from workflow.selectors.agents import AgentState
from workflow.selectors.coherence import METHOD
from workflow.services import agents, messages
from workflow.tools.results import MessageId, MessageItem, Prose, message_item


class AgentItem(Result):
    id: str = Field(description="The agent's id: send_message_to_agent takes it.")
    phase_id: int | None
    task_id: str | None
    status: str = Field(description="working (holds a task), idle (seen in 5 minutes), stale (in an hour) or offline.")
    coherence_score: float | None = Field(description="0..1 from what the server saw; null below 5 calls.")
    last_action: str
    started_at: str
    last_seen: str
    signals: dict[str, float] = Field(description="The parts of the score, each 0..1.")
    observations: int
    client: str


class AgentStatusList(Result):
    agents: list[AgentItem]
    coherence_method: str


class MessageSent(Result):
    status: str = Field(description="delivered: it is in the inbox, also if the agent is away.")
    delivered_at: str
    recipients: list[str]
    message_ids: list[int]


class Inbox(Result):
    messages: list[MessageItem]
    unread: int = Field(description="How many you have not acknowledged, also beyond the limit.")


class Acknowledged(Result):
    acknowledged: int = Field(description="How many were still open.")
    unread: int


class Lease(Result):
    task_id: str
    lease_token: str
    lease_expires_at: str


class Alive(Result):
    agent_id: str
    at: str
    leases: list[Lease]
    unread: int


def _item(state: AgentState) -> AgentItem:
    agent = state.agent
    return AgentItem(
        id=agent.name,
        phase_id=state.phase_number,
        task_id=state.task.public_id if state.task else None,
        status=state.status,
        coherence_score=state.coherence.score,
        last_action=agent.last_action,
        started_at=agent.started_at.isoformat(),
        last_seen=agent.last_seen.isoformat(),
        signals=dict(state.coherence.signals),
        observations=state.coherence.observations,
        client=agent.client,
    )


@tool(intent=Intent.QUERY, effect=Effect.READ_ONLY, toolset="agents")
def get_agent_status(caller: Caller) -> AgentStatusList:
    """See who else works here: each agent's phase, task, status, coherence and last action, last seen first.

    Use it before you write to somebody, or to find out who holds a task that blocks yours.
    """
    found = agent_selectors.states(project_id=caller.project.id)
    return AgentStatusList(agents=[_item(state) for state in found], coherence_method=METHOD)


@tool(intent=Intent.MODIFY, effect=Effect.MUTATING, toolset="agents")
def send_message_to_agent(
    caller: Caller, *, agent_id: ShortText, message: Prose, task_id: TaskId | None = None
) -> MessageSent:
    """Send a message to another agent: a question, a warning, a hand-over. It stays in the inbox until acknowledged.

    Prefer add_task_note for what belongs to a task and create_task for work to be done.

    Args:
        agent_id: An agent's id from get_agent_status; `*` for everybody else, `phase:2` for those in a phase.
        message: What to say.
        task_id: The task it is about.
    """
    sent = messages.send(
        project_id=caller.project.id,
        to=agent_id,
        body=message,
        task_id=task_id,
        actor=caller.writer("send_message_to_agent"),
    )
    return MessageSent(
        status="delivered",
        delivered_at=sent[0].delivered_at.isoformat(),
        recipients=[row.recipient.name for row in sent[:MAX_LIST]],
        message_ids=[row.pk for row in sent[:MAX_LIST]],
    )


@tool(intent=Intent.QUERY, effect=Effect.READ_ONLY, toolset="agents")
def get_messages(caller: Caller, *, include_acknowledged: bool = False, limit: Limit = 50, offset: Offset = 0) -> Inbox:
    """Read your inbox, oldest first. Reading keeps messages unread: ack_message says that you dealt with them.

    Args:
        include_acknowledged: Also show the ones you dealt with.
        limit: How many at most.
        offset: How many to skip, to read on.
    """
    found = agent_selectors.inbox(agent_id=caller.agent.id, include_acknowledged=include_acknowledged)
    return Inbox(
        messages=[message_item(message) for message in found[offset : offset + limit]],
        unread=agent_selectors.unread(agent_id=caller.agent.id),
    )


@tool(intent=Intent.MODIFY, effect=Effect.MUTATING, toolset="agents", idempotent=True)
def ack_message(
    caller: Caller, *, message_ids: Annotated[list[MessageId], Field(min_length=1, max_length=200)] | None = None
) -> Acknowledged:
    """Say that you have dealt with messages, so that they are no longer counted as unread.

    Args:
        message_ids: Their ids from get_messages; left out: all of them.
    """
    caller.writer("ack_message")
    closed = messages.acknowledge(agent_id=caller.agent.id, message_ids=message_ids)
    return Acknowledged(acknowledged=closed, unread=agent_selectors.unread(agent_id=caller.agent.id))


@tool(intent=Intent.MODIFY, effect=Effect.MUTATING, toolset="agents", idempotent=True)
def heartbeat(caller: Caller) -> Alive:
    """Say that you are still there and renew the leases of your tasks. Every other call does this too.

    Call it only when you work for a long time without calling anything else.
    """
    caller.writer("heartbeat")
    at = agents.heartbeat(agent_id=caller.agent.id, session=caller.kept_session)
    held = Task.objects.held(timezone.now()).filter(
        assigned_agent_id=caller.agent.id, lease_session=caller.kept_session
    )
    return Alive(
        agent_id=caller.agent.name,
        at=at.isoformat(),
        leases=[
            Lease(
                task_id=f"task-{pk}", lease_token=token or "", lease_expires_at=expires.isoformat() if expires else ""
            )
            for pk, token, expires in held.order_by("pk").values_list("pk", "lease_token", "lease_expires_at")
        ],
        unread=agent_selectors.unread(agent_id=caller.agent.id),
    )
