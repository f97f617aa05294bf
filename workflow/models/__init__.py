"""The rows of the workflow: projects and phases, tasks, agents, and the log of what happened."""

from workflow.models.activity import Event
from workflow.models.agents import OBSERVATIONS, Agent, Gate, Message
from workflow.models.projects import ActiveProject, DoneDefinition, Membership, Phase, Project, SavedView
from workflow.models.tasks import (
    CLOSED,
    POSITION_GAP,
    Dependency,
    Evidence,
    Note,
    Priority,
    Status,
    Task,
    held_up,
    open_blocker,
)
from workflow.models.webhooks import KINDS, Delivery, Webhook

__all__ = [
    "CLOSED",
    "KINDS",
    "OBSERVATIONS",
    "POSITION_GAP",
    "ActiveProject",
    "Agent",
    "Delivery",
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
    "SavedView",
    "Status",
    "Task",
    "Webhook",
    "held_up",
    "open_blocker",
]
