"""What a tool notes of the call it serves."""

from mcpbridge.tooling import Caller
from workflow.models import Agent, Task


def note_scope(caller: Caller, task: Task) -> None:
    """Remember for the coherence score whether this write was on the agent's own task or phase."""
    own = caller.agent.id in (task.assigned_agent_id, task.creator_agent_id)
    if not own and not Agent.objects.filter(pk=caller.agent.id, phase_id=task.phase_id).exists():
        caller.facts["in_scope"] = False
