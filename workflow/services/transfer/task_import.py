"""A table of tasks brought into a project that is there: looked at row by row, then written whole or not at all."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db import transaction
from django.db.models import Count, F
from django.utils.dateparse import parse_datetime
from pydantic import ValidationError

from devflow.actors import Actor
from devflow.errors import conflict, invalid
from workflow.models import Phase, Priority, Project, Status, Task
from workflow.services import activity, readiness
from workflow.services.rows import locked_project
from workflow.services.tasks import subject_of
from workflow.services.transfer import writing
from workflow.services.transfer.checks import Preview, Problem, links
from workflow.services.transfer.formats import TaskRow
from workflow.services.transfer.tables import TAKEN, Sheet, guess, sheet

MOST_PHASES_NAMED = 12
_SPLIT = re.compile(r"[,;\n]")
_STATUSES = {
    **{status.value.replace("_", " "): status for status in Status},
    **dict.fromkeys(("backlog", "to do", "todo", "open", "new", "waiting", "blocked"), Status.PENDING),
    **dict.fromkeys(("doing", "started", "active"), Status.IN_PROGRESS),
    **dict.fromkeys(("in review",), Status.REVIEW),
    **dict.fromkeys(("closed", "complete", "completed", "resolved", "finished"), Status.DONE),
    **dict.fromkeys(("canceled", "won't do", "rejected"), Status.CANCELLED),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the file: its number, its header, the field it becomes (empty: none), and its first value."""

    number: int
    header: str
    field: str
    sample: str


@dataclass(frozen=True, slots=True)
class TableReading:
    """A table, its columns as they are understood, and what would come of it."""

    preview: Preview
    columns: Sequence[Column] = ()
    tasks: Sequence[TaskRow] = field(default=(), repr=False)


def read(
    data: bytes, *, project_id: int, columns: Sequence[str] | None = None, phase_number: int | None = None
) -> TableReading:
    """Look at a table of tasks for a project. Two queries, and nothing is written.

    `columns`: the field each column becomes (a key of `TAKEN`, empty: left out), else told from the headers.
    `phase_number`: the phase of rows that name none, else the first of the project.
    """
    table, problems = sheet(data)
    if table is None:
        return TableReading(Preview({}, problems))
    chosen = list(columns) if columns is not None and len(columns) == len(table.header) else guess(table.header)
    seen = [
        Column(number, name, became, next((cells[number][:60] for _, cells in table.rows if _has(cells, number)), ""))
        for number, (name, became) in enumerate(zip(table.header, chosen, strict=True))
    ]
    phases = list(Phase.objects.filter(project_id=project_id).order_by("number"))
    problems = [*problems, *_columns(chosen), *_default(phases, phase_number)]
    if not table.rows:
        problems.append(Problem("the file", "has a header, but no rows."))
    if any(problem.place in ("line 1", "phase", "the file") for problem in problems):
        return TableReading(Preview({"rows": len(table.rows)}, problems), seen)
    work = _Rows(table, chosen, phases, phase_number or phases[0].number)
    work.run()
    counts = {"tasks": len(work.tasks), "dependencies": sum(len(set(task.blocked_by)) for task in work.tasks)}
    closed = Counter(task.status for task in work.tasks if task.status not in writing.OPEN)
    counts |= {f"of them {status.replace('_', ' ')}": number for status, number in closed.items()}
    shown = {words: number for words, number in counts.items() if number or words == "tasks"}
    notices = _notices(seen, work.tasks, project_id)
    return TableReading(Preview(shown, [*problems, *work.problems], notices), seen, work.tasks)


def _has(cells: Sequence[str], number: int) -> bool:
    return number < len(cells) and bool(cells[number].strip())


def _columns(chosen: Sequence[str]) -> list[Problem]:
    found = [
        Problem("line 1", f"there is no field “{name}”; there are: {', '.join(TAKEN)}.")
        for name in dict.fromkeys(chosen)
        if name and name not in TAKEN
    ]
    for name, number in Counter(filter(None, chosen)).items():
        if number > 1 and name in TAKEN:
            at = ", ".join(str(place) for place, one in enumerate(chosen, 1) if one == name)
            found.append(Problem("line 1", f"columns {at} are all the {TAKEN[name][0].lower()}; choose one."))
    if "subject" not in chosen and "description" not in chosen:
        words = "no column holds a title or a description. Say which one does, or give it the header “subject”."
        found.append(Problem("line 1", words))
    return found


def _default(phases: Sequence[Phase], number: int | None) -> list[Problem]:
    if not phases:
        return [Problem("phase", "the project has no phases yet; import some, or make one.")]
    if number is not None and number not in {phase.number for phase in phases}:
        return [Problem("phase", f"there is no phase {number} in this project.")]
    return []


class _Rows:
    """One pass over a table: its rows as tasks that are numbered from 1, and what is wrong with them."""

    def __init__(self, table: Sheet, chosen: Sequence[str], phases: Sequence[Phase], default: int) -> None:
        self._table = table
        self._at = {name: number for number, name in enumerate(chosen) if name}
        self._default = default
        self._listed = ", ".join(f"{phase.number} ({phase.name})" for phase in phases[:MOST_PHASES_NAMED])
        self._phases = {phase.name.strip().casefold(): phase.number for phase in reversed(phases)}
        self._phases |= {str(phase.number): phase.number for phase in phases}
        self._keys: dict[str, int] = {}
        self.tasks: list[TaskRow] = []
        self.problems: list[Problem] = []

    def run(self) -> None:
        for number, (line, cells) in enumerate(self._table.rows, 1):
            if key := _key(self._cell(cells, "ref")):
                if key in self._keys:
                    first = self._table.rows[self._keys[key] - 1][0]
                    self._fault(line, "ref", f"“{key[:60]}” is on line {first} already.")
                self._keys.setdefault(key, number)
        for number, (line, cells) in enumerate(self._table.rows, 1):
            if (task := self._task(number, line, cells)) is not None:
                self.tasks.append(task)
        self.problems.sort(key=lambda problem: int(problem.place.removeprefix("line ").partition(",")[0]))
        if not self.problems:
            lines = [line for line, _ in self._table.rows]
            names = {number: self._cell(self._table.rows[number - 1][1], "ref") for number in self._keys.values()}
            self.problems += links(
                self.tasks,
                lambda index, name: f"line {lines[index]}, {name}",
                lambda ref: names.get(ref, f"line {lines[ref - 1]}"),
            )

    def _cell(self, cells: Sequence[str], name: str) -> str:
        number = self._at.get(name)
        return "" if number is None or number >= len(cells) else cells[number].strip()

    def _fault(self, line: int, name: str, words: str) -> None:
        self.problems.append(Problem(f"line {line}, {name}", words))

    def _task(self, number: int, line: int, cells: Sequence[str]) -> TaskRow | None:
        given = {name: self._cell(cells, name) for name in self._at}
        subject, description = given.get("subject", ""), given.get("description", "")
        if not subject and not description:
            self._fault(line, "subject", "says neither a title nor a description.")
            return None
        values: dict[str, Any] = {
            "ref": number,
            "subject": subject or subject_of(description),
            "description": description or subject,
            "phase": self._phase(line, given.get("phase", "")),
            "status": self._one_of(line, "status", given.get("status", ""), _STATUSES) or Status.PENDING,
            "priority": self._one_of(line, "priority", given.get("priority", ""), {p.label: p.label for p in Priority})
            or "medium",
            "tags": list(dict.fromkeys(_parts(given.get("tags", "")))),
            "blocked_by": self._refs(line, "blocked_by", given.get("blocked_by", "")),
            "parent": next(iter(self._refs(line, "parent", given.get("parent", ""))), None),
            "manual_block": given.get("manual_block", ""),
            "result": given.get("result", ""),
        }
        values |= {name: self._moment(line, name, given[name]) for name in given if name.endswith("_at")}
        try:
            return TaskRow.model_validate(values)
        except ValidationError as exc:
            for error in exc.errors(include_url=False, include_input=False):
                said = error["msg"].removeprefix("Value error, ")
                held = "holds a character that cannot be kept" if error["type"] == "string_pattern_mismatch" else said
                self._fault(line, str(error["loc"][0]), f"{held[:1].lower()}{held[1:]}.")
            return None

    def _phase(self, line: int, cell: str) -> int:
        if not cell:
            return self._default
        found = self._phases.get(cell.casefold())
        if found is None:
            self._fault(line, "phase", f"there is no phase “{cell[:60]}” here. There are: {self._listed}.")
        return found or self._default

    def _one_of(self, line: int, name: str, cell: str, known: Mapping[str, Any]) -> Any:
        found = known.get(" ".join(cell.lower().replace("_", " ").replace("-", " ").split()))
        if cell and found is None:
            values = [value.label if isinstance(value, Status) else value for value in dict.fromkeys(known.values())]
            listed = ", ".join(str(value).lower() for value in values)
            self._fault(line, name, f"“{cell[:60]}” is none of {listed}.")
        return found

    def _refs(self, line: int, name: str, cell: str) -> list[int]:
        found = []
        for part in _parts(cell):
            number = self._keys.get(_key(part))
            if number is None:
                why = "is in no row of the column “ref”." if self._keys else "can be told only by a column “ref”."
                self._fault(line, name, f"“{part[:60]}” {why}")
            else:
                found.append(number)
        return found

    def _moment(self, line: int, name: str, cell: str) -> datetime | None:
        if not cell:
            return None
        try:
            at = parse_datetime(cell) or parse_datetime(f"{cell}T00:00:00")
        except ValueError:
            at = None
        if at is None:
            self._fault(line, name, f"“{cell[:60]}” is no time; write it as 2026-03-14 or 2026-03-14T15:09:26Z.")
            return None
        return at if at.tzinfo else at.replace(tzinfo=UTC)


def _parts(cell: str) -> list[str]:
    return [part.strip() for part in _SPLIT.split(cell) if part.strip()]


def _key(cell: str) -> str:
    return cell.strip().lstrip("#").casefold()


def _notices(columns: Sequence[Column], tasks: Sequence[TaskRow], project_id: int) -> list[str]:
    found = []
    if left_out := [
        f"“{one.header[:40] or '(no header)'}” (column {one.number + 1})" for one in columns if not one.field
    ]:
        more = f" and {len(left_out) - 10} more" if len(left_out) > 10 else ""
        found.append(f"Left out: {', '.join(left_out[:10])}{more}.")
    if running := sum(task.status == Status.IN_PROGRESS for task in tasks):
        said = "1 task in progress becomes" if running == 1 else f"{running:,} tasks in progress become"
        found.append(f"{said} ready or waiting again: nobody holds them here.")
    known = set(Task.objects.filter(project_id=project_id).values_list("subject", flat=True))
    if again := sum(task.subject in known for task in tasks):
        found.append(f"{again:,} of these titles are on the board already; they will be there twice.")
    return found


@transaction.atomic
def write(reading: TableReading, *, project_id: int, actor: Actor) -> int:
    """Make the tasks of a table, all of them or none. Returns how many.

    Raises `invalid_input` naming the line of the first problem, `conflict` where a phase went away meanwhile.
    """
    if not reading.preview.is_good or not reading.tasks:
        raise reading.preview.refusal("The table") if reading.preview.problems else invalid("The table has no rows.")
    project = locked_project(project_id)
    phases = {
        phase.number: phase for phase in Phase.objects.filter(project=project).select_related("project", "entry_phase")
    }
    if gone := {task.phase for task in reading.tasks} - set(phases):
        raise conflict(f"Phase {min(gone)} went away meanwhile; nothing was imported.", suggestion="Look at it again.")
    done = Task.objects.filter(project=project, status=Status.DONE).order_by().values_list("phase__number")
    offset = project.next_ref - 1
    Project.objects.filter(pk=project_id).update(next_ref=F("next_ref") + len(reading.tasks))
    made = writing.tasks(
        project,
        reading.tasks,
        phases=phases,
        agents={},
        actor=actor,
        done_before=dict(done.annotate(number=Count("pk"))),
        offset=offset,
    )
    activity.record(
        kind="project.tasks_imported",
        project=project,
        actor=actor,
        subject_id=f"project-{project.slug}",
        after=dict(reading.preview.counts),
    )
    writing.log_made(made.values(), actor=actor)
    for number in sorted({task.phase for task in reading.tasks if task.status == Status.DONE}):
        readiness.entry_changed(phase=phases[number], actor=actor)
    return len(made)
