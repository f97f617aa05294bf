"""The guardian: agents that hold a task and lose their thread get one message, quoting the phase's done definitions."""

from datetime import timedelta

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from devflow.actors import Actor
from workflow.models import Agent, Message
from workflow.selectors import agents as agent_selectors
from workflow.services import messages

THRESHOLD = 0.7
QUIET = timedelta(minutes=5)

GUARDIAN = Actor(kind="system", name="guardian")


def guard() -> int:
    """Write to every agent under a live lease whose coherence fell below 0.7, at most once in 5 minutes each.

    Returns how many messages were sent. Safe to run on several workers at once.
    """
    now = timezone.now()
    sent = 0
    for state in agent_selectors.working(at=now):
        task, score = state.task, state.coherence.score
        if task is None or score is None or score >= THRESHOLD:
            continue
        with transaction.atomic():
            first = (
                Agent.objects.filter(pk=state.agent.pk)
                .filter(Q(warned_at__isnull=True) | Q(warned_at__lte=now - QUIET))
                .update(warned_at=now)
            )
            if first:
                weakest = min(state.coherence.signals, key=lambda name: state.coherence.signals[name])
                definitions = "\n".join(f"- {item.text}" for item in task.phase.done_definitions.all())
                messages.deliver(
                    recipients=[state.agent],
                    actor=GUARDIAN,
                    task=task,
                    kind=Message.Kind.GUARDIAN,
                    body=f"Your coherence on {task.public_id} ({task.subject}) is {score:.2f}; the weakest signal is "
                    f"{weakest.replace('_', ' ')}. Done in phase {task.phase} means:\n{definitions}\n"
                    "Write a note on where you stand, release the task, or ask for help.",
                )
                sent += 1
    return sent
