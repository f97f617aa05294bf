"""Tasks as CSV: written with cells no spreadsheet takes for formulas, and read with whatever headers others give."""

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from devflow.tables import guarded, unguarded
from workflow.models import Task
from workflow.services.transfer.checks import Problem
from workflow.services.transfer.formats import MOST_TASKS

BOM = "\ufeff"
COLUMNS = (
    *("ref", "subject", "description", "phase", "status", "priority", "tags", "blocked_by", "parent", "manual_block"),
    *("result", "created_by", "agent", "attempts", "iteration", "created_at", "started_at", "completed_at"),
)
TAKEN: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "subject": ("Title", ("title", "summary", "name", "task")),
    "description": ("Description", ("body", "details", "text")),
    "phase": ("Phase", ("stage", "phase number", "phase name")),
    "status": ("Status", ("state", "column", "list")),
    "priority": ("Priority", ()),
    "tags": ("Tags", ("labels", "tag", "label")),
    "ref": ("Number in this file", ("id", "key", "no", "number", "#", "issue key", "issue id")),
    "blocked_by": ("Waits for", ("depends on", "dependencies", "blockers", "blocked by issues")),
    "parent": ("Part of", ("parent id", "parent key", "epic")),
    "manual_block": ("Held back because", ("blocked reason", "held back")),
    "result": ("Result", ("resolution",)),
    "created_at": ("Created", ("created", "created date")),
    "started_at": ("Started", ("started",)),
    "completed_at": ("Done at", ("completed", "done", "closed at", "resolved", "completed date")),
}
"""The fields a column can become: what people call each, and headers that mean it beside its own name."""

_MEANS = {name: field for field, (_, others) in TAKEN.items() for name in (field.replace("_", " "), *others)}


def tasks_csv(*, project_id: int) -> str:
    """A project's tasks, one a row, in the order of their refs. Four queries."""
    tasks = list(
        Task.objects.filter(project_id=project_id)
        .select_related("phase", "assigned_agent")
        .prefetch_related("dependencies")
        .order_by("ref")
    )
    refs = {task.pk: task.ref for task in tasks}
    out = io.StringIO()
    out.write(BOM)
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for task in tasks:
        cells = {name: getattr(task, name) for name in COLUMNS if hasattr(task, name)}
        cells |= {
            "phase": task.phase.number,
            "priority": task.priority_name,
            "tags": ", ".join(task.tags),
            "blocked_by": ", ".join(str(refs[link.blocker_id]) for link in task.dependencies.all()),
            "parent": refs.get(task.parent_id or 0),
            "agent": task.assigned_agent.name if task.assigned_agent else None,
            **{name: _written(getattr(task, name)) for name in ("created_at", "started_at", "completed_at")},
        }
        writer.writerow([guarded(cells[name]) for name in COLUMNS])
    return out.getvalue()


def _written(at: datetime | None) -> str | None:
    return None if at is None else f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table: its header, and its rows with the number of the line each begins on."""

    header: tuple[str, ...]
    rows: tuple[tuple[int, list[str]], ...]


def sheet(data: bytes) -> tuple[Sheet | None, list[Problem]]:
    """Read CSV: UTF-8 (or UTF-16 with its mark), separated by commas, semicolons or tabs."""
    text, fault = _text(data)
    if fault is not None:
        return None, [fault]
    first = next((line for line in text.splitlines() if line.strip()), "")
    if not first:
        return None, [Problem("the file", "is empty; its first line names the columns.")]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count), strict=True)
    header: tuple[str, ...] = ()
    rows: list[tuple[int, list[str]]] = []
    problems: list[Problem] = []
    count, line = 0, 1
    try:
        for cells in reader:
            begins, line = line, reader.line_num + 1
            if not any(cell.strip() for cell in cells):
                continue
            if not header:
                header = tuple(cell.strip() for cell in cells)
                continue
            count += 1
            if count > MOST_TASKS:
                continue  # counted only, so that the refusal can say how many there are
            if len(cells) > len(header):
                words = f"has {len(cells)} cells, the header names {len(header)} columns. Is a quotation mark missing?"
                problems.append(Problem(f"line {begins}", words))
            rows.append((begins, [unguarded(cell) for cell in cells]))
    except csv.Error as exc:
        return None, [Problem(f"line {reader.line_num}", f"is not CSV: {exc}.")]
    if count > MOST_TASKS:
        words = (
            f"has {count:,} rows; it may have {MOST_TASKS:,} at most. Split it, and bring in one part after another."
        )
        return None, [Problem("the file", words)]
    return Sheet(header, tuple(rows)), problems


def _text(data: bytes) -> tuple[str, Problem | None]:
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return data.decode(encoding), None
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        return "", Problem(f"line {line}", "is not UTF-8 text. Save the table as “CSV UTF-8” and choose it again.")


def guess(header: Iterable[str]) -> list[str]:
    """What each column becomes, told from its header; empty: it is left out. A field is taken from one column."""
    found: list[str] = []
    for name in header:
        field = _MEANS.get(" ".join(name.lower().replace("_", " ").replace("-", " ").split()), "")
        found.append("" if field in found else field)
    return found
