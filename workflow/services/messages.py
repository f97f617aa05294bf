"""The agents' inboxes. A message is delivered when it is committed and unread until it is acknowledged."""

from collections.abc import Iterable, Sequence

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Coalesce
from django.utils import timezone

from devflow.actors import Actor
from devflow.digits import whole
from devflow.errors import conflict, invalid, not_found
from workflow.models import Agent, Message, Project, Status, Task
from workflow.services import activity
from workflow.services.rows import phase_numbered, task_number

MAX_BODY = 100_000


def deliver(
    *, recipients: Sequence[Agent], body: str, actor: Actor, task: Task | None = None, kind: str = Message.Kind.MESSAGE
) -> list[Message]:
    """Put one message into each inbox and log it once. All recipients are of one project."""
    now = timezone.now()
    sent = Message.objects.bulk_create(
        Message(
            project_id=agent.project_id,
            recipient=agent,
            sender_id=actor.agent_id,
            sender_kind=actor.kind,
            sender_name=actor.name,
            kind=kind,
            body=body,
            task=task,
            delivered_at=now,
        )
        for agent in recipients
    )
    project = task.project if task is not None else Project.objects.get(pk=recipients[0].project_id)
    names = [agent.name for agent in recipients]
    activity.record(
        kind="message.sent",
        project=project,
        actor=actor,
        task=task,
        subject_id=f"message-{sent[0].pk}",
        after={"to": names[:20], "recipients": len(names), "kind": kind, "text": body[:200]},
        heard_by=names,
    )
    return sent


def recipients_of(*, project_id: int, to: str, sender_id: int | None) -> list[Agent]:
    """The agents that `to` means: a name, `*` for every other one, `phase:2` for those working in that phase.

    Raises `not_found` for an unknown agent or phase, `conflict` for a retired agent or an empty broadcast.
    """
    alive = Agent.objects.filter(project_id=project_id, retired_at__isnull=True)
    if sender_id is not None:
        alive = alive.exclude(pk=sender_id)
    if to == "*":
        found = list(alive)
    elif to.startswith("phase:"):
        number = whole(to.removeprefix("phase:").strip(), digits=5)
        if number is None:
            raise invalid("A phase is addressed as phase:2.", agent_id="phase: is followed by the phase's number")
        phase = phase_numbered(project_id=project_id, number=number)
        working = Task.objects.filter(phase=phase, status=Status.IN_PROGRESS, assigned_agent__isnull=False)
        found = list(alive.filter(Q(phase=phase) | Q(pk__in=working.values("assigned_agent"))))
    else:
        agent = Agent.objects.filter(project_id=project_id, name=to).first()
        if agent is None:
            raise not_found("Agent", to, suggestion="get_agent_status lists the agents of this project.")
        if agent.retired_at is not None:
            raise conflict(
                f"Agent {to} is retired and reads no messages.", suggestion="get_agent_status lists who is here."
            )
        return [agent]
    if not found:
        raise conflict(f"No other agent is there to hear {to!r}.", suggestion="get_agent_status lists who is here.")
    return found


@transaction.atomic
def send(*, project_id: int, to: str, body: str, actor: Actor, task_id: str | int | None = None) -> list[Message]:
    """Send a message to an agent, `*` or `phase:N`. Raises as `recipients_of` does, and for an unknown task."""
    if not body.strip() or len(body) > MAX_BODY:
        raise invalid(f"A message has 1 to {MAX_BODY} characters.", body=f"{len(body)} given")
    task = None
    if task_id is not None:
        task = Task.objects.select_related("project").filter(project_id=project_id, pk=task_number(task_id)).first()
        if task is None:
            raise not_found("Task", task_id)
    recipients = recipients_of(project_id=project_id, to=to, sender_id=actor.agent_id)
    return deliver(recipients=recipients, body=body, actor=actor, task=task)


@transaction.atomic
def acknowledge(*, agent_id: int, message_ids: Iterable[int] | None = None) -> int:
    """Mark messages of the agent's inbox as read and dealt with (all of them without ids). Returns how many were open.

    Acknowledging again changes nothing. Raises `not_found` for ids that are not in this inbox.
    """
    inbox = Message.objects.filter(recipient_id=agent_id)
    if message_ids is not None:
        wanted = set(message_ids)
        inbox = inbox.filter(pk__in=wanted)
        unknown = wanted - set(inbox.values_list("pk", flat=True))
        if unknown:
            raise not_found(
                "Message", ", ".join(str(pk) for pk in sorted(unknown)), suggestion="get_messages lists your inbox."
            )
    now = timezone.now()
    return inbox.filter(acknowledged_at__isnull=True).update(acknowledged_at=now, read_at=Coalesce("read_at", now))
