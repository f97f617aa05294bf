"""The rows of the workflow: projects and phases, tasks, agents, and the log of what happened."""

from workflow.models.activity import Event
from workflow.models.agents import OBSERVATIONS, Agent, Gate, Message
from workflow.models.projects import ActiveProject, DoneDefinition, Membership, Phase, Project
from workflow.models.tasks import CLOSED, POSITION_GAP, Dependency, Evidence, Note, Priority, Status, Task, open_blocker

__all__ = [
    "CLOSED",
    "OBSERVATIONS",
    "POSITION_GAP",
    "ActiveProject",
    "Agent",
    "Dependency",
    "DoneDefinition",
    "Event",
    "Evidence",
    "Gate",
    "Membership",
    "Message",
    "Note",
    "Phase",
    "Priority",
    "Project",
    "Status",
    "Task",
    "open_blocker",
]
