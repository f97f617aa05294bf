"""What must fit together in what is brought in. Every fault is found, each with its place, before a row is written."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from devflow.errors import DevFlowError, invalid
from workflow.models import Priority
from workflow.services.projects import LIMITED_COLUMNS
from workflow.services.transfer.formats import EventRow, ProjectFile, TaskRow

MOST_SHOWN = 50
"""Faults that are listed; the others are counted."""

LISTED = ("blocked_by", "definitions", "to")
_ONE = {
    **{f"{word}s": word for word in ("phase", "task", "note", "event", "member", "row")},
    "dependencies": "dependency",
    "pieces of evidence": "piece of evidence",
}
_RANKS = {repr(rank.value) for rank in Priority}


@dataclass(frozen=True, slots=True)
class Problem:
    """Why something is refused. `place`: `line 12, phase` of a table, `tasks[3].notes[0].body` of a project file."""

    place: str
    words: str

    def __str__(self) -> str:
        return f"{self.place}: {self.words}"


@dataclass(frozen=True, slots=True)
class Preview:
    """What an import would do: how many of what, what stands in its way, and what will be otherwise than in the file.

    `counts`: words to number, in the order they are shown. Nothing is written where there is a problem.
    """

    counts: Mapping[str, int]
    problems: Sequence[Problem] = ()
    notices: Sequence[str] = ()

    @property
    def is_good(self) -> bool:
        return not self.problems

    @property
    def said(self) -> str:
        """The counts in words: `3 phases, 1 task`."""
        return ", ".join(
            f"{number:,} {_ONE.get(words, words) if number == 1 else words}" for words, number in self.counts.items()
        )

    @property
    def shown(self) -> Sequence[Problem]:
        return self.problems[:MOST_SHOWN]

    @property
    def more(self) -> int:
        return max(0, len(self.problems) - MOST_SHOWN)

    def refusal(self, what: str) -> DevFlowError:
        """The error an import with problems ends with."""
        first, others = self.problems[0], len(self.problems) - 1
        more = f" ({others} more)" if others else ""
        details = {problem.place: problem.words for problem in self.problems[:20]}
        return invalid(f"{what} was not imported, nothing was changed. {first}{more}", **details)


def find_cycle(edges: Mapping[int, Iterable[int]]) -> list[int]:
    """The nodes of one cycle of a graph (node to those it leads to), closed by its first; empty where there is none."""
    done: set[int] = set()
    for start in edges:
        path: list[int] = []
        on_path: dict[int, int] = {}
        waiting = [(start, iter(edges.get(start, ())))] if start not in done else []
        while waiting:
            node, ways = waiting[-1]
            if node not in on_path:
                on_path[node] = len(path)
                path.append(node)
            following = next((there for there in ways if there not in done), None)
            if following is None:
                done.add(node)
                del on_path[path.pop()]
                waiting.pop()
            elif following in on_path:
                return [*path[on_path[following] :], following]
            else:
                waiting.append((following, iter(edges.get(following, ()))))
    return []


def _by_ref(ref: int) -> str:
    return f"#{ref}"


def links(
    tasks: Sequence[TaskRow], place: Callable[[int, str], str], name: Callable[[int], str] = _by_ref
) -> list[Problem]:
    """Faults between tasks: refs used twice, blockers and parents that are not there, and cycles.

    `place` gives the place of a field of the task at an index, `name` what a task is called by its ref.
    """
    found: list[Problem] = []
    where: dict[int, int] = {}
    for index, task in enumerate(tasks):
        if task.ref in where:
            found.append(Problem(place(index, "ref"), f"#{task.ref} is used twice."))
        where[task.ref] = index
    for index, task in enumerate(tasks):
        found += [
            Problem(place(index, "blocked_by"), f"there is no task #{ref} here.")
            for ref in task.blocked_by
            if ref not in where
        ]
        if task.parent is not None and task.parent not in where:
            found.append(Problem(place(index, "parent"), f"there is no task #{task.parent} here."))
    if found:
        return found
    for field, verb, edges in (
        ("blocked_by", "waits for", {task.ref: task.blocked_by for task in tasks}),
        ("parent", "is part of", {task.ref: [task.parent] for task in tasks if task.parent is not None}),
    ):
        if cycle := find_cycle(edges):
            named = [name(ref) for ref in cycle]
            shown = named if len(named) <= 9 else [*named[:7], "…", named[-1]]
            words = f" {verb} ".join(shown)
            found.append(Problem(place(where[cycle[0]], field), f"a circle that never ends: {words}."))
    return found


def _twice(values: Iterable[object]) -> set[object]:
    seen: set[object] = set()
    return {value for value in values if value in seen or seen.add(value)}  # type: ignore[func-returns-value]  # add gives None


def whole(file: ProjectFile) -> list[Problem]:
    """Faults between the parts of a project file."""
    found = [
        Problem(f"project.column_limits.{column}", f"there is no limit for it, only for {', '.join(LIMITED_COLUMNS)}.")
        for column in file.project.column_limits
        if column not in LIMITED_COLUMNS
    ]
    for part, names in (
        ("phases", [phase.number for phase in file.phases]),
        ("agents", [agent.name for agent in file.agents]),
        ("members", [member.user for member in file.members]),
    ):
        found += [Problem(part, f"{name} is there twice.") for name in sorted(_twice(names), key=str)]
    definitions = {phase.number: set(phase.done_definitions) for phase in file.phases}
    found += _phases(file, definitions)
    for index, task in enumerate(file.tasks):
        here = f"tasks[{index}]"
        if task.phase not in definitions:
            found.append(Problem(f"{here}.phase", f"there is no phase {task.phase} in this file."))
        seen: set[tuple[int, str]] = set()
        for number, proof in enumerate(task.evidence):
            of = (proof.phase or task.phase, proof.definition)
            if proof.definition not in definitions.get(of[0], ()):
                words = f"phase {of[0]} has no done definition “{proof.definition[:80]}”."
                found.append(Problem(f"{here}.evidence[{number}].definition", words))
            elif of in seen:
                found.append(Problem(f"{here}.evidence[{number}].definition", "it has evidence already."))
            seen.add(of)
    found += links(file.tasks, lambda index, field: f"tasks[{index}] (#{file.tasks[index].ref}).{field}")
    refs = {task.ref for task in file.tasks}
    for index, event in enumerate(file.events):
        if event.task is not None and event.task not in refs:
            found.append(Problem(f"events[{index}].task", f"there is no task #{event.task} here."))
        if event.phase is not None and event.phase not in definitions:
            found.append(Problem(f"events[{index}].phase", f"there is no phase {event.phase} in this file."))
        found += _told(event, f"events[{index}]")
    return found


def _told(event: EventRow, here: str) -> list[Problem]:
    """Fields of an event that the pages put into words, where they are not what those words are made of."""
    found = [
        Problem(f"{here}.{side}.{name}", "is not a list of texts.")
        for side, fields in (("before", event.before), ("after", event.after))
        for name in LISTED
        if not _are_texts(fields.get(name, []))
    ]
    if event.kind == "task.edited":
        if "priority" in event.after and not {*map(repr, _both(event, "priority"))} <= _RANKS:
            found.append(Problem(f"{here}.after.priority", "is not 1, 2 or 3, before and after."))
        if "phase" in event.after and "phase" not in event.before:
            found.append(Problem(f"{here}.before.phase", "is missing."))
    return found


def _both(event: EventRow, name: str) -> tuple[object, object]:
    return event.before.get(name), event.after.get(name)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _phases(file: ProjectFile, known: Mapping[int, set[str]]) -> list[Problem]:
    found: list[Problem] = []
    for index, phase in enumerate(file.phases):
        if len(known[phase.number]) < len(phase.done_definitions):
            found.append(Problem(f"phases[{index}].done_definitions", "one of them is there twice."))
        if phase.entry is not None and phase.entry.phase not in known:
            found.append(Problem(f"phases[{index}].entry", f"there is no phase {phase.entry.phase} in this file."))
    entries = {phase.number: [phase.entry.phase] for phase in file.phases if phase.entry is not None}
    if cycle := find_cycle(entries):
        chain = " through ".join(str(number) for number in cycle)
        found.append(Problem("phases", f"they would wait for each other: {chain}."))
    return found
