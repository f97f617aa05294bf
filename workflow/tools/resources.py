"""Things clients can read and watch: the board, a task, a phase, the own inbox. Changes come with their URIs."""

from urllib.parse import quote, unquote

from devflow import ports
from devflow.digits import whole
from devflow.errors import not_found
from mcpbridge.tooling import MAX_LIST, Caller, Result, resource
from workflow.models import Project
from workflow.selectors import agents as agent_selectors
from workflow.selectors import board as board_selectors
from workflow.selectors import projects as project_selectors
from workflow.selectors import tasks as task_selectors
from workflow.tools.results import MessageItem, NoteItem, iso, kanban, message_item, note_item, phase_info

LISTED_TASKS = 50
SHOWN_NOTES = 100


class TaskResource(Result):
    """A task as `devflow://task/{id}` shows it."""

    id: str
    ref: int
    subject: str
    description: str
    phase_id: int
    status: str
    priority: str
    tags: list[str]
    assigned_agent_id: str | None
    created_by: str
    created_at: str
    completed_at: str | None
    result: str
    iteration: int
    attempts: int
    version: int
    blocked_by: list[str]
    unblocks: list[str]
    notes: list[NoteItem]


def _boards(caller: Caller) -> list[tuple[str, str]]:
    return [(project.slug, f"Board of {project.name}") for project in ports.directory().visible_projects(caller.scope)]


def _tasks(caller: Caller) -> list[tuple[str, str]]:
    open_ones = task_selectors.find(project_id=caller.project.id).filter(status__in=["ready", "in_progress", "review"])
    return [(f"task-{pk}", subject) for pk, subject in open_ones.values_list("pk", "subject")[:LISTED_TASKS]]


def _phases(caller: Caller) -> list[tuple[str, str]]:
    return [(str(phase.number), phase.name) for phase in project_selectors.phases(project_id=caller.project.id)]


@resource(name="board", uri_template="devflow://board/{project}", listing=_boards, toolset="workflow")
def board(caller: Caller, value: str) -> str:
    """The board of a project: its columns with their cards, and exact counts."""
    seen = ports.directory().project_of(caller.scope, slug=value, agent_name=caller.agent_name)
    caller.facts["project_id"] = seen.id
    return kanban(board_selectors.board(project=Project.objects.get(pk=seen.id))).model_dump_json()


@resource(name="task", uri_template="devflow://task/{id}", listing=_tasks, toolset="workflow")
def task(caller: Caller, value: str) -> str:
    """A task with its text, status, dependencies and notes."""
    row = task_selectors.detail(project_id=caller.project.id, task_id=value)
    return TaskResource(
        id=row.public_id,
        ref=row.ref,
        subject=row.subject,
        description=row.description,
        phase_id=row.phase.number,
        status=row.status,
        priority=row.priority_name,
        tags=row.tags,
        assigned_agent_id=row.assigned_agent.name if row.assigned_agent else None,
        created_by=row.created_by,
        created_at=row.created_at.isoformat(),
        completed_at=iso(row.completed_at),
        result=row.result,
        iteration=row.iteration,
        attempts=row.attempts,
        version=row.version,
        blocked_by=[blocker.public_id for blocker in row.blockers.all() if blocker.status != "done"],
        unblocks=[dependent.public_id for dependent in row.dependents.all()],
        notes=[note_item(note) for note in list(row.notes.all())[-SHOWN_NOTES:]],
    ).model_dump_json()


@resource(name="phase", uri_template="devflow://phase/{n}", listing=_phases, toolset="workflow")
def phase(caller: Caller, value: str) -> str:
    """A phase: what it is for, how to work in it, what done means there."""
    number = whole(value, digits=5)
    if number is None:
        raise not_found("Phase", value, suggestion="A phase is named by its number, such as devflow://phase/2.")
    return phase_info(project_selectors.phase(project_id=caller.project.id, number=number)).model_dump_json()


class InboxResource(Result):
    """What waits in the caller's inbox, as `devflow://inbox/{agent}` shows it."""

    agent: str
    messages: list[MessageItem]


def _inbox(caller: Caller) -> list[tuple[str, str]]:
    return [(quote(caller.agent.name, safe=""), f"Inbox of {caller.agent.name}")]


@resource(name="inbox", uri_template="devflow://inbox/{agent}", listing=_inbox, toolset="agents")
def inbox(caller: Caller, value: str) -> str:
    """The messages you have not acknowledged. Only your own inbox can be read."""
    if unquote(value) != caller.agent.name:
        raise not_found("Inbox", value, suggestion=f"Yours is devflow://inbox/{quote(caller.agent.name, safe='')}.")
    waiting = agent_selectors.inbox(agent_id=caller.agent.id)[:MAX_LIST]
    return InboxResource(agent=caller.agent.name, messages=[message_item(row) for row in waiting]).model_dump_json()
