"""Prompts that clients offer to people: how to start, to plan, and to hand over."""

from devflow.digits import whole
from devflow.errors import invalid
from mcpbridge.tooling import Caller, PromptArgument, prompt
from workflow.models import Phase
from workflow.selectors import projects as project_selectors


def _phase(caller: Caller, number: str) -> Phase:
    named = whole(number.strip(), digits=5)
    if named is None:
        raise invalid("A phase is named by its number.", phase="a number such as 2")
    return project_selectors.phase(project_id=caller.project.id, number=named)


@prompt(
    name="start_phase_work",
    arguments=(PromptArgument("phase", "The phase's number, such as 2."),),
    toolset="workflow",
)
def start_phase_work(caller: Caller, *, phase: str) -> str:
    """Start working in a phase: claim tasks one after the other and finish each properly."""
    row = _phase(caller, phase)
    definitions = "\n".join(f"- {item.text}" for item in row.done_definitions.all())
    notes = f"\n\nNotes for this phase:\n{row.additional_notes.strip()}" if row.additional_notes.strip() else ""
    directory = f"\n\nWork in the directory {row.working_directory}." if row.working_directory else ""
    return (
        f"You work in phase {row.number} ({row.name}) of the project {row.project.name}.\n\n{row.description}\n\n"
        f"Done here means:\n{definitions}{notes}{directory}\n\n"
        f"1. Call get_messages and answer what is open, then claim_task(phase_id={row.number}).\n"
        "2. Read the task, its notes and memories; search the knowledge base before you decide anything.\n"
        "3. Work. Write add_task_note when you find or decide something; create_task for work that is not yours.\n"
        "4. When every done definition holds, call update_task_status with `done` and a result that sums it up.\n"
        "   If it cannot be done, call it with `failed` and the reason.\n"
        "5. Save what others should know with save_memory, then claim the next task. Stop when the answer says why "
        "there is none."
    )


@prompt(
    name="plan_from_goal",
    arguments=(PromptArgument("goal", "What should be true in the end."),),
    toolset="workflow",
)
def plan_from_goal(caller: Caller, *, goal: str) -> str:
    """Turn a goal into tasks with dependencies over the project's phases."""
    if not goal.strip():
        raise invalid("Say what should be true in the end.", goal="is empty")
    listed = "\n".join(
        f"{phase.number}. {phase.name}: {phase.description}"
        for phase in project_selectors.phases(project_id=caller.project.id)
    )
    return (
        f"Plan work in the project {caller.project.name} for this goal:\n\n{goal.strip()}\n\n"
        f"The phases are:\n{listed}\n\n"
        "Look first: get_kanban_board for what exists, search_knowledge and query_memories for what is known.\n"
        "Then cut the goal into tasks that one agent finishes in one sitting, each with a way to tell it is done.\n"
        "Create them with create_task in an order in which blocked_by can name the earlier ones; use the right phase, "
        "high priority only for what everything else waits for, and the same tag for all of them.\n"
        "End with a summary: the tasks with their ids, what can start now, and what you left open."
    )


@prompt(
    name="hand_over",
    arguments=(PromptArgument("to", "The agent who takes over; left out: whoever claims it.", required=False),),
    toolset="workflow",
)
def hand_over(caller: Caller, *, to: str = "") -> str:
    """Stop cleanly: write down where the work stands so that another agent can go on."""
    told = (
        f"Tell {to.strip()} with send_message_to_agent which task it is and what to do first.\n" if to.strip() else ""
    )
    return (
        "Hand your work over.\n\n"
        "1. Call get_my_task and compare what is there with the done definitions.\n"
        "2. If everything holds, finish it with update_task_status instead.\n"
        "3. Otherwise save decisions and traps with save_memory, and call release_task with a reason that says what is "
        "done, what is left, which files are touched, and the next step.\n"
        f"4. {told or 'Nobody has to be told: the task is ready for the next agent.'}"
    )
