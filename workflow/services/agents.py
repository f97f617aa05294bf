"""Agents: registered on first contact, alive with every call, retired by a person."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Exists, Value
from django.utils import timezone

from devflow.actors import MAX_SESSION, Actor
from devflow.errors import not_found
from devflow.ports import CallSeen
from workflow.models import OBSERVATIONS, Agent, Status, Task
from workflow.services import activity, claims, leases

MAX_NAME = 120

PROGRESS = frozenset(
    {"claim_task", "update_task_status", "add_task_note", "create_task", "save_memory", "update_memory", "review_task"}
)
"""Tools whose success is a sign of progress (status, note, evidence, memory, child task)."""


def contact(*, project_id: int, name: str, session: str, client: str, transport: str) -> Agent:
    """The agent called `name`, registered on first contact. One query for a known agent that calls as it did before."""
    name = name[:MAX_NAME]
    agent = Agent.objects.filter(project_id=project_id, name=name).first()
    if agent is None:
        return _register(project_id=project_id, name=name, session=session, client=client, transport=transport)
    fields: dict[str, Any] = {}
    if client and agent.client != client[:120]:
        fields["client"] = client[:120]
    if transport and agent.transport != transport[:16]:
        fields["transport"] = transport[:16]
    if agent.retired_at is not None:
        fields["retired_at"] = None
    if fields:
        for field, value in fields.items():
            setattr(agent, field, value)
        agent.save(update_fields=list(fields))
    return agent


@transaction.atomic
def _register(*, project_id: int, name: str, session: str, client: str, transport: str) -> Agent:
    agent, is_new = Agent.objects.get_or_create(
        project_id=project_id,
        name=name,
        defaults={"session": session[:200], "client": client[:120], "transport": transport[:16]},
    )
    if is_new:
        activity.record(
            kind="agent.joined",
            project=agent.project,
            actor=Actor(kind="agent", name=name, agent_id=agent.pk),
            subject_id=f"agent-{agent.pk}",
            after={"client": agent.client, "transport": agent.transport},
        )
    return agent


def in_words(tool: str, *, ok: bool) -> str:
    """The last call as people read it: `claim task`, `search knowledge (failed)`."""
    words = tool.replace("_", " ").replace(".", ": ")[:180]
    return words if ok else f"{words} (failed)"


@transaction.atomic(savepoint=False)
def record_calls(*, agent_id: int, calls: Sequence[CallSeen]) -> None:
    """Calls are heartbeats: two statements for all of them, and two more when a lease is due for renewal.

    Two processes that record for one agent at the same instant may lose observations of the last 20; nothing
    depends on them.
    """
    last = calls[-1]
    sessions = {call.session[:MAX_SESSION]: call.at for call in calls}
    seen = (
        Agent.objects.filter(pk=agent_id)
        .annotate(lease_due=Exists(leases.due(agent_id=agent_id, sessions=sessions, at=last.at)))
        .values_list("observations", "lease_due")
        .first()
    )
    if seen is None:
        return
    observations, lease_due = seen
    noted = [[call.arguments_hash[:16], int(call.ok), int(call.in_scope)] for call in calls]
    fields: dict[str, Any] = {
        "last_seen": last.at,
        "last_action": in_words(last.tool, ok=last.ok),
        "session": last.session[:MAX_SESSION],
        "observations": Value(
            [*observations, *noted][-OBSERVATIONS:], output_field=Agent._meta.get_field("observations")
        ),
    }
    if progress := [call.at for call in calls if call.ok and call.tool in PROGRESS]:
        fields["last_progress_at"] = progress[-1]
    Agent.objects.filter(pk=agent_id).update(**fields)
    if lease_due:  # after the agent's row: claims and retirement lock an agent before its tasks, too
        for session, at in sessions.items():
            leases.renew(agent_id=agent_id, session=session, at=at)


@transaction.atomic
def heartbeat(*, agent_id: int, session: str) -> datetime:
    """Say that the agent is alive and renew its leases now. Returns the time of it."""
    now, session = timezone.now(), session[:MAX_SESSION]
    Agent.objects.filter(pk=agent_id).update(last_seen=now)
    leases.renew(agent_id=agent_id, session=session, at=now)
    return now


@transaction.atomic
def retire(*, project_id: int, agent_id: int, actor: Actor) -> Agent:
    """Take an agent off the list and its tasks back. It returns with its next call. Raises `not_found`."""
    agent = Agent.objects.select_related("project").filter(project_id=project_id, pk=agent_id).first()
    if agent is None:
        raise not_found("Agent", agent_id)
    if agent.retired_at is None:
        held = list(Task.objects.filter(assigned_agent=agent, status=Status.IN_PROGRESS, lease_token__isnull=False))
        for task in held:
            claims.release(project_id=project_id, task_id=task.pk, actor=actor, reason=f"{agent.name} was retired")
        Task.objects.filter(reserved_for=agent).update(reserved_for=None)
        agent.retired_at = timezone.now()
        agent.save(update_fields=["retired_at"])
        activity.record(
            kind="agent.retired",
            project=agent.project,
            actor=actor,
            subject_id=f"agent-{agent.pk}",
            after={"agent": agent.name},
        )
    return agent
