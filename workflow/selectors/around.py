"""What stands around a task: the tasks it waits for and those that wait for it, and who held it when."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Prefetch

from devflow.ports import Span
from workflow.models import Agent, Dependency, Event, Status, Task

MOST = 60
"""Second-hand dependencies that are read in each direction."""
MOST_SPANS = 10
MOST_EVENTS = 500


@dataclass(frozen=True, slots=True)
class Near:
    """A task of the graph; `steps` is -2..2: how far before (waited for) or after (waiting) the one in the middle."""

    pk: int
    ref: int
    subject: str
    status: str
    steps: int


@dataclass(frozen=True, slots=True)
class Graph:
    """`edges` are (blocker, waiting task)."""

    nodes: tuple[Near, ...]
    edges: tuple[tuple[int, int], ...]

    @property
    def further(self) -> list[Near]:
        return [node for node in self.nodes if abs(node.steps) == 2]


def graph(task: Task) -> Graph:
    """The task with two steps of dependencies either way. Two queries, where `blockers` and `dependents` are read."""
    nodes = {task.pk: Near(task.pk, task.ref, task.subject, task.status, 0)}
    edges: dict[tuple[int, int], None] = {}
    for row in task.blockers.all():
        nodes[row.pk] = Near(row.pk, row.ref, row.subject, row.status, -1)
        edges[row.pk, task.pk] = None
    for row in task.dependents.all():
        nodes[row.pk] = Near(row.pk, row.ref, row.subject, row.status, 1)
        edges[task.pk, row.pk] = None
    if len(nodes) > 1:
        shown = ("pk", "ref", "subject", "status")
        before = Dependency.objects.filter(task__dependent_links__task=task.pk).order_by("pk")
        after = Dependency.objects.filter(blocker__dependencies__blocker=task.pk).order_by("pk")
        for links, end, steps in ((before, "blocker", -2), (after, "task", 2)):
            rows = links.values_list("blocker_id", "task_id", *(f"{end}__{name}" for name in shown))[:MOST]
            for blocker, waiting, pk, ref, subject, status in rows:
                nodes.setdefault(pk, Near(pk, ref, subject, status, steps))
                edges[blocker, waiting] = None
    return Graph(tuple(nodes.values()), tuple(edges))


def spans(task: Task) -> list[Span]:
    """When agents held the task, oldest first, the last ten times, as the log has it. Two queries."""
    events = Event.objects.filter(task=task, kind__startswith="task.").order_by("-pk").values_list("at", "after")
    found: list[tuple[int, datetime, datetime | None]] = []
    holder: int | None = None
    for at, after in reversed(events[:MOST_EVENTS]):
        if "status" not in after:
            continue
        holder = after.get("assigned_agent_id", None if after["status"] in (Status.PENDING, Status.READY) else holder)
        held = holder if after["status"] == Status.IN_PROGRESS else None
        is_open = bool(found) and found[-1][2] is None
        if is_open and found[-1][0] != held:
            found[-1] = (found[-1][0], found[-1][1], at)
            is_open = False
        if held is not None and not is_open:
            found.append((held, at, None))
    recent = found[-MOST_SPANS:]
    names = dict(Agent.objects.filter(pk__in={pk for pk, _, _ in recent}).values_list("pk", "name"))
    return [Span(names[pk], since, until) for pk, since, until in recent if pk in names]


def whole(*, project_id: int, task_id: int) -> Task | None:
    """A task with all its page shows but its notes and its log. Seven queries, whatever stands around it."""
    light = Task.objects.defer("description", "result", "metadata")
    return (
        Task.objects.select_related("project", "phase", "assigned_agent", "reserved_for", "parent", "user_story__epic")
        .prefetch_related(
            "phase__done_definitions",
            "evidence",
            Prefetch("blockers", light.order_by("ref")),
            Prefetch("dependents", light.order_by("ref")),
            Prefetch("children", light.select_related("assigned_agent").order_by("position", "pk")),
        )
        .filter(project_id=project_id, pk=task_id)
        .first()
    )
