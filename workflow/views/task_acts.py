"""What a person does to a task: each is one POST, and what was typed comes back where it is refused."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from devflow.digits import whole
from devflow.errors import ERROR_TABLE, DevFlowError, invalid, not_found
from workflow.forms import Act
from workflow.models import Task
from workflow.services import board, dependencies, steering, tasks, transitions
from workflow.services import messages as inboxes
from workflow.services.tasks import Proof
from workflow.views.shell import may_write, page, person_of
from workflow.views.task import context_of, refused_page, related, task_of


@dataclass(frozen=True, slots=True)
class Asked:
    """An action on a task: `who` are the arguments every service takes, `said` the cleaned form."""

    task: Task
    who: dict[str, Any]
    said: dict[str, Any]

    @property
    def text(self) -> str:
        return str(self.said["text"])

    @property
    def version(self) -> int | None:
        found: int | None = self.said["version"]
        return found


def _approve(asked: Asked) -> str:
    transitions.review(**asked.who, decision="approve", feedback=asked.text, version=asked.version)
    return "Approved."


def _reject(asked: Asked) -> str:
    transitions.review(**asked.who, decision="reject", feedback=asked.text, version=asked.version)
    return "Sent back with your feedback."


def _retry(asked: Asked) -> str:
    transitions.retry(**asked.who, version=asked.version)
    return "Put back to work."


def _release(asked: Asked) -> str:
    steering.take_back(**asked.who, reason=asked.text, version=asked.version)
    return "Released; somebody else can claim it."


def _cancel(asked: Asked) -> str:
    transitions.cancel(**asked.who, reason=asked.text, version=asked.version)
    return "Cancelled. Undo takes it back."


def _undo(asked: Asked) -> str:
    moved = board.undo_last_move(**asked.who, version=asked.version).task
    return f"Taken back: it is {moved.status.replace('_', ' ')} again."


def _note(asked: Asked) -> str:
    tasks.add_note(**asked.who, body=asked.text)
    return ""


def _evidence(asked: Asked) -> str:
    definition = asked.said["definition"]
    if definition is None or not asked.text.strip():
        raise invalid("Evidence says what shows it: a text, an address, a commit or the output of a test.")
    proof = Proof(definition=definition, content=asked.text.strip(), kind=asked.said["kind"] or "text")
    tasks.add_evidence(**asked.who, proofs=[proof])
    return ""


def _message(asked: Asked) -> str:
    to = asked.said["to"]
    if not to:
        raise invalid("Say which agent the message is for.", to="is required")
    inboxes.send(
        project_id=asked.task.project_id, to=to, body=asked.text, actor=asked.who["actor"], task_id=asked.task.pk
    )
    return f"Sent. {to} reads it with its next call."


def _block(asked: Asked) -> str:
    blocker = _named(asked.task, asked.said["blocker"])
    try:
        dependencies.add(**asked.who, blocked_by=[blocker.pk])
    except DevFlowError as exc:
        if "cycle" in exc.details:
            raise _in_names(exc) from None
        raise
    return f"It waits for #{blocker.ref} {blocker.subject}."


def _unblock(asked: Asked) -> str:
    dependencies.remove(**asked.who, blocker_id=asked.said["blocker"])
    return ""


ACTIONS: dict[str, Callable[[Asked], str]] = {
    "approve": _approve,
    "reject": _reject,
    "retry": _retry,
    "release": _release,
    "cancel": _cancel,
    "undo": _undo,
    "note": _note,
    "evidence": _evidence,
    "message": _message,
    "block": _block,
    "unblock": _unblock,
}
PLACES = {"reject": "decide", "approve": "decide", "retry": "decide", "note": "notes", "evidence": "checks",
          "message": "message", "block": "around", "unblock": "around"}  # fmt: skip


def _named(task: Task, words: str) -> Task:
    """A task of the same project by `#12` (or `12`, as cards show it), or by `task-34`."""
    first = words.split()[0] if words.split() else ""
    number = whole(first.removeprefix("task-").removeprefix("#"), digits=9)
    if number is None:
        raise invalid("Name a task by its number, such as #12 or task-34.", blocker=words[:80] or "is empty")
    key = {"pk": number} if first.startswith("task-") else {"ref": number}
    found = Task.objects.filter(project=task.project_id, **key).first()
    if found is None:
        raise not_found("Task", first, suggestion="The board shows each task's number.")
    return found


def _in_names(exc: DevFlowError) -> DevFlowError:
    """A cycle as people know its tasks."""
    numbers = [int(one.removeprefix("task-")) for one in exc.details["cycle"]]
    names = {row.pk: f"#{row.ref} {row.subject}" for row in Task.objects.filter(pk__in=numbers).only("ref", "subject")}
    circle = " waits for ".join(names[number] for number in numbers)
    said = f"That would close a circle: {circle}."
    return DevFlowError(exc.code, said, details=exc.details, suggestion="Remove one of these first.")


@page
@require_POST
def act(request: HttpRequest, number: int, action: str) -> HttpResponse:
    """One of `ACTIONS`. A refusal answers the page again, with the reason and what was typed."""
    row = task_of(request, number)
    if not may_write(request, row.project):
        return refused_page(request, row.project)
    if action not in ACTIONS:
        raise Http404("There is no such action.")
    form = Act(request.POST)
    try:
        if not form.is_valid():
            raise invalid(next(str(some[0]) for some in form.errors.values()))
        who = {"project_id": row.project_id, "task_id": row.pk, "actor": person_of(request)}
        done = ACTIONS[action](Asked(row, who, form.cleaned_data))
    except DevFlowError as exc:
        messages.error(request, f"{exc.message} {exc.suggestion or ''}")
        return _again(request, number, action, status=ERROR_TABLE[exc.code].http)
    if done:
        messages.success(request, done)
    response = redirect("task", row.pk)
    response["Location"] += f"#part-{PLACES[action]}" if action in PLACES and not done else ""
    return response


def _again(request: HttpRequest, number: int, action: str, *, status: int) -> HttpResponse:
    row = task_of(request, number)
    context = context_of(request, row) | related(row)
    typed = {name: request.POST.get(name, "") for name in ("text", "definition", "kind", "blocker")}
    has_place = {
        "approve": row.status == "review",
        "reject": row.status == "review",
        "note": True,
        "message": context["talks_to"] is not None,
        "evidence": typed["definition"] in [str(number) for number, _ in enumerate(context["checks"], 1)],
    }
    is_lost = bool(typed["text"].strip()) and not has_place.get(action, False)
    context["typed"] = {**typed, "action": action, "is_lost": is_lost}
    return render(request, "workflow/task.html", context, status=status)
