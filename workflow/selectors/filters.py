"""What part of a board somebody looks at, as it stands in the page's address."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import urlencode

from django.db.models import Q, QuerySet
from django.http import QueryDict

from devflow.digits import whole
from workflow.models import Agent, Priority, Status, Task, held_up

Lanes = Literal["", "phase", "epic", "story", "parent", "agent", "priority"]
LANES: tuple[Lanes, ...] = ("phase", "epic", "story", "parent", "agent", "priority")
"""`epic` is that of a card's story, `parent` the task it is a part of."""
NOBODY = "-"
"""The agent of tasks that nobody holds."""
MOST_VALUES = 50
MAX_TEXT = 200


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Phases by number, agents by name (`-`: nobody), priorities by name: one of each; tags: all; text: everywhere.
    Stories and epics by their number in the project.

    `blocked` True shows only blocked tasks, False only those that are not.
    """

    phases: tuple[int, ...] = ()
    agents: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    priorities: tuple[str, ...] = ()
    stories: tuple[int, ...] = ()
    epics: tuple[int, ...] = ()
    blocked: bool | None = None
    text: str = ""
    lanes: Lanes = ""

    @classmethod
    def of(cls, given: QueryDict) -> "TaskFilter":
        """Read an address. What cannot be meant is left out: an address is typed, shared and outlives its phases."""
        names = {priority.label for priority in Priority}
        phases = (whole(one, digits=7) for one in _values(given, "phase"))
        stories, epics = ((whole(one, digits=9) for one in _values(given, name)) for name in ("story", "epic"))
        lanes = str(given.get("lanes", ""))
        return cls(
            phases=tuple(one for one in phases if one is not None),
            agents=_values(given, "agent"),
            tags=_values(given, "tag"),
            priorities=tuple(one for one in _values(given, "priority") if one in names),
            stories=tuple(one for one in stories if one is not None),
            epics=tuple(one for one in epics if one is not None),
            blocked={"yes": True, "no": False}.get(str(given.get("blocked", ""))),
            text=" ".join(str(given.get("q", "")).replace("\0", "").split())[:MAX_TEXT],
            lanes=lanes if lanes in LANES else "",
        )

    @property
    def is_empty(self) -> bool:
        return self == TaskFilter(lanes=self.lanes)

    def pairs(self) -> list[tuple[str, str]]:
        """As an address writes it, in one fixed order: equal filters, equal addresses."""
        found = [("phase", str(one)) for one in self.phases]
        found += [("agent", one) for one in self.agents]
        found += [("tag", one) for one in self.tags]
        found += [("priority", one) for one in self.priorities]
        found += [("story", str(one)) for one in self.stories]
        found += [("epic", str(one)) for one in self.epics]
        if self.blocked is not None:
            found.append(("blocked", "yes" if self.blocked else "no"))
        if self.text:
            found.append(("q", self.text))
        if self.lanes:
            found.append(("lanes", self.lanes))
        return found

    def query(self) -> str:
        """The part of an address after `?`; empty where everything is shown."""
        return urlencode(self.pairs())

    def without(self, name: str, value: str) -> "TaskFilter":
        """The same without one of its conditions."""
        if name == "blocked":
            return replace(self, blocked=None)
        if name == "q":
            return replace(self, text="")
        plural = {"phase": "phases", "agent": "agents", "tag": "tags", "priority": "priorities",
                  "story": "stories", "epic": "epics"}[name]  # fmt: skip
        kept: Any = {plural: tuple(one for one in getattr(self, plural) if str(one) != value)}
        return replace(self, **kept)

    def apply(self, tasks: QuerySet[Task]) -> QuerySet[Task]:
        """Those of `tasks` that are meant."""
        wanted: Any = tasks
        if self.phases:
            wanted = wanted.filter(phase__number__in=self.phases)
        if self.agents:
            named = Q(assigned_agent__name__in=[one for one in self.agents if one != NOBODY])
            wanted = wanted.filter(named | Q(assigned_agent=None) if NOBODY in self.agents else named)
        if self.priorities:
            wanted = wanted.filter(priority__in=[Priority.of(one) for one in self.priorities])
        if self.stories:
            wanted = wanted.filter(user_story__ref__in=self.stories)
        if self.epics:
            wanted = wanted.filter(user_story__epic__ref__in=self.epics)
        for tag in self.tags:
            wanted = wanted.filter(tags__has=tag)
        if self.blocked is not None:
            waits = held_up() & ~Q(status__in=[Status.DONE, Status.CANCELLED])
            wanted = wanted.filter(waits if self.blocked else ~waits)
        if self.text:
            wanted = wanted.filter(_mentions(self.text))
        found: QuerySet[Task] = wanted
        return found


def _values(given: QueryDict, name: str) -> tuple[str, ...]:
    found = (str(one).replace("\0", "").strip()[:200] for one in given.getlist(name)[:MOST_VALUES])
    return tuple(dict.fromkeys(one for one in found if one))


def _mentions(text: str) -> Q:
    """Every word in the subject, the description or a tag; a number also as the task's own."""
    found = Q()
    for word in text.split():
        either = Q(subject__icontains=word) | Q(description__icontains=word) | Q(tags__icontains=word)
        number = whole(word.removeprefix("#").removeprefix("task-"), digits=9)
        if number is not None:
            either |= Q(pk=number) if word.startswith("task-") else Q(ref=number)
        found &= either
    return found


@dataclass(frozen=True, slots=True)
class Choices:
    """What the filter menu offers: (value, label) of each kind."""

    phases: list[tuple[str, str]] = field(default_factory=list)
    agents: list[tuple[str, str]] = field(default_factory=list)
    tags: list[tuple[str, str]] = field(default_factory=list)
    priorities: list[tuple[str, str]] = field(default_factory=list)


def choices(*, project_id: int, phases: Mapping[int, str]) -> Choices:
    """Everything the open tasks of a project can be narrowed by. Two queries."""
    rows = Task.objects.filter(project_id=project_id)
    agents = Agent.objects.filter(project_id=project_id).values_list("name", flat=True)[:200]
    tags = rows.exclude(tags=[]).order_by().values_list("tags", flat=True).distinct()[:2000]
    named = sorted({tag for some in tags for tag in some}, key=str.casefold)
    return Choices(
        phases=[(str(number), name) for number, name in phases.items()],
        agents=[(NOBODY, "nobody"), *((name, name) for name in sorted(agents, key=str.casefold))],
        tags=[(tag, tag) for tag in named[:200]],
        priorities=[(one.label, one.label) for one in Priority],
    )
