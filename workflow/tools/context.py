"""Who calls, as the services know them."""

from devflow import ports
from devflow.errors import forbidden
from mcpbridge.tooling import Caller
from workflow.models import Agent, Task
from workflow.services import actors
from workflow.services.actors import Actor
from workflow.services.agents import MAX_SESSION


def session_of(caller: Caller) -> str:
    return caller.session[:MAX_SESSION]


def actor_of(caller: Caller, tool: str) -> Actor:
    """The calling agent as an actor that may write. Raises `forbidden` where the key's owner may only read."""
    if not ports.directory().role_allows(caller.scope, caller.project.id, write=True):
        raise forbidden(
            f"The owner of this key may only read in the project {caller.project.slug}.",
            suggestion="Ask an admin of the project for the role `member`.",
        )
    agent = caller.agent
    return actors.agent(agent_id=agent.id, name=agent.name, session=session_of(caller), tool=tool)


def note_scope(caller: Caller, task: Task) -> None:
    """Remember for the coherence score whether this write was on the agent's own task or phase."""
    own = caller.agent.id in (task.assigned_agent_id, task.creator_agent_id)
    if not own and not Agent.objects.filter(pk=caller.agent.id, phase_id=task.phase_id).exists():
        caller.facts["in_scope"] = False
