"""What the planning pages show: the backlog, sprints and issues, and how a sprint burns down.

Every function is a fixed number of queries, whatever the number of rows.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from math import ceil
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth import get_user_model
from django.db.models import Count, F, Q, QuerySet, Window
from django.db.models.functions import RowNumber
from django.http import QueryDict
from django.utils import timezone

from devflow.digits import whole
from workflow.models import (
    AgileRole,
    Epic,
    Issue,
    IssueType,
    ItemStatus,
    Kind,
    Point,
    Severity,
    Sprint,
    Task,
    Urgency,
    UserStory,
)
from workflow.models.agile import CLOSING
from workflow.selectors import agile
from workflow.selectors.agile import Progress

EPICS = 20
"""Epics on a page of the backlog."""
FIRST = 10
"""Stories of each that are shown with it."""
STORIES = 50
"""Stories on a page of one epic's."""
ISSUES = 50
SPRINTS = 20
MOST_CHOICES = 500
MOST_TEXT = 200
OPEN, EVERY, NONE = "open", "all", "-"
NO_EPIC = 0


@dataclass(frozen=True, slots=True)
class ItemFilter:
    """What part of a list an address asks for. `status`: `open` (the usual), `all` or an id; sprint, assignee: an id
    or `-` for none; type, severity, priority: issues only. What cannot be meant is left out."""

    text: str = ""
    status: str = OPEN
    sprint: str = ""
    assignee: str = ""
    type: str = ""
    severity: str = ""
    priority: str = ""

    @classmethod
    def of(cls, given: QueryDict) -> "ItemFilter":
        def number(name: str) -> str:
            value = str(given.get(name, ""))
            return value if value == NONE or whole(value, digits=9) is not None else ""

        status = str(given.get("status", OPEN))
        return cls(
            text=" ".join(str(given.get("q", "")).replace("\0", "").split())[:MOST_TEXT],
            status=status if status == EVERY or whole(status, digits=9) is not None else OPEN,
            sprint=number("sprint"),
            assignee=number("assignee"),
            type=number("type"),
            severity=one if (one := str(given.get("severity", ""))) in Severity.values else "",
            priority=one if (one := str(given.get("priority", ""))) in Urgency.values else "",
        )

    @property
    def is_usual(self) -> bool:
        return self == ItemFilter()

    @property
    def narrows(self) -> bool:
        """Whether it asks for more than `status`."""
        return replace(self, status=OPEN) != ItemFilter()

    def pairs(self) -> list[tuple[str, str]]:
        found = [("q", self.text), ("status", "" if self.status == OPEN else self.status), ("sprint", self.sprint)]
        found += [("assignee", self.assignee), ("type", self.type), ("severity", self.severity)]
        found.append(("priority", self.priority))
        return [pair for pair in found if pair[1]]

    def query(self, **more: object) -> str:
        return urlencode([*self.pairs(), *((name, str(value)) for name, value in more.items() if value)])

    def apply(self, rows: Any) -> Any:
        """Of stories or issues."""
        rows = agile.narrowed(rows, query=self.text) if self.text else rows
        if self.status == OPEN:
            rows = rows.exclude(status__category__in=CLOSING)
        elif self.status != EVERY:
            rows = rows.filter(status=int(self.status))
        for name, value in (("sprint", self.sprint), ("assigned_to", self.assignee), ("type", self.type)):
            if value:
                rows = rows.filter(**({f"{name}__isnull": True} if value == NONE else {name: int(value)}))
        for name, value in (("severity", self.severity), ("priority", self.priority)):
            if value:
                rows = rows.filter(**{name: value})
        return rows


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of `total` rows is shown. Pages count from 1; one behind the last shows the last."""

    number: int
    total: int
    size: int

    @classmethod
    def of(cls, asked: str, *, total: int, size: int) -> "Page":
        last = max(1, ceil(total / size))
        return cls(min(max(1, whole(asked, digits=7) or 1), last), total, size)

    @property
    def slice(self) -> slice:
        return slice((self.number - 1) * self.size, self.number * self.size)

    @property
    def last(self) -> int:
        return max(1, ceil(self.total / self.size))

    @property
    def earlier(self) -> int:
        return self.number - 1

    @property
    def later(self) -> int:
        return self.number + 1 if self.number < self.last else 0


@dataclass(frozen=True, slots=True)
class Group:
    """An epic (None: the stories without one) with the first of its stories. `count`: how many the filter leaves."""

    epic: Epic | None
    stories: list[UserStory]
    count: int

    @property
    def key(self) -> int:
        return self.epic.pk if self.epic else NO_EPIC

    @property
    def progress(self) -> Progress | None:
        return agile.epic_progress(self.epic) if self.epic else None

    @property
    def hidden(self) -> int:
        return self.count - len(self.stories)


@dataclass(frozen=True, slots=True)
class Backlog:
    groups: list[Group]
    page: Page
    shown: int
    """Stories the filter leaves."""
    total: int
    """Stories of the project."""


def backlog(*, project_id: int, wanted: ItemFilter, page: str = "", epic: int | None = None) -> Backlog:
    """A page of epics, each with its first stories; with `epic` (0: without one) a page of one's stories."""
    every = UserStory.objects.filter(project_id=project_id)
    asked = wanted.apply(every)
    counts: dict[int, int] = {
        pk or NO_EPIC: number for pk, number in asked.order_by().values_list("epic").annotate(n=Count("pk"))
    }
    total, shown = every.count(), sum(counts.values())
    if epic is not None:
        one = agile.epics(project_id).filter(pk=epic).first() if epic else None
        cut = Page.of(page, total=counts.get(epic, 0), size=STORIES)
        ids = list(asked.filter(epic=epic or None).order_by("position", "pk").values_list("pk", flat=True)[cut.slice])
        rows = _stories(project_id, ids)
        return Backlog([Group(one, rows.get(epic, []), cut.total)], cut, shown, total)
    epics = _epics(project_id, wanted, counts)
    cut = Page.of(page, total=epics.count(), size=EPICS)
    drawn = list(epics.order_by("position", "pk")[cut.slice])
    keys = [one.pk for one in drawn]
    is_last = cut.number == cut.last
    own = Q(epic__in=keys) | Q(epic__isnull=True) if is_last else Q(epic__in=keys)
    numbered = asked.filter(own).annotate(
        nth=Window(RowNumber(), partition_by=[F("epic")], order_by=[F("position").asc(), F("pk").asc()])
    )
    rows = _stories(project_id, list(numbered.filter(nth__lte=FIRST).order_by().values_list("pk", flat=True)))
    groups = [Group(one, rows.get(one.pk, []), counts.get(one.pk, 0)) for one in drawn]
    if is_last and counts.get(NO_EPIC):
        groups.append(Group(None, rows.get(NO_EPIC, []), counts[NO_EPIC]))
    return Backlog(groups, cut, shown, total)


def _epics(project_id: int, wanted: ItemFilter, counts: Mapping[int, int]) -> QuerySet[Epic]:
    """Those with stories that are wanted, and those that are meant themselves."""
    epics = agile.epics(project_id)
    if wanted.is_usual:
        return epics.filter(Q(pk__in=[pk for pk in counts if pk]) | ~Q(status__category__in=CLOSING))
    if not wanted.narrows and wanted.status == EVERY:
        return epics
    named = Q(pk__in=[pk for pk in counts if pk])
    if wanted.text and replace(wanted, text="", status=OPEN) == ItemFilter():
        named |= Q(subject__icontains=wanted.text)
    return epics.filter(named)


def _stories(project_id: int, ids: Sequence[int]) -> dict[int, list[UserStory]]:
    found: dict[int, list[UserStory]] = defaultdict(list)
    for story in agile.stories(project_id).filter(pk__in=ids).order_by("position", "pk"):
        found[story.epic_id or NO_EPIC].append(story)
    return found


@dataclass(frozen=True, slots=True)
class Words:
    """What the planning pages offer to choose from."""

    statuses: Mapping[str, list[ItemStatus]] = field(default_factory=dict)
    types: list[IssueType] = field(default_factory=list)
    roles: list[AgileRole] = field(default_factory=list)
    scale: list[Point] = field(default_factory=list)
    epics: list[Epic] = field(default_factory=list)
    sprints: list[Sprint] = field(default_factory=list)
    people: list[Any] = field(default_factory=list)


def words(*, project_id: int) -> Words:
    """Seven queries."""
    statuses: dict[str, list[ItemStatus]] = {kind.value: [] for kind in Kind}
    for status in agile.statuses(project_id):
        statuses[status.kind].append(status)
    people = get_user_model()._default_manager.filter(memberships__project=project_id, is_active=True)
    return Words(
        statuses=statuses,
        types=list(IssueType.objects.filter(project_id=project_id)),
        roles=list(AgileRole.objects.filter(project_id=project_id, estimates=True)),
        scale=list(Point.objects.filter(project_id=project_id)),
        epics=list(
            Epic.objects.filter(project_id=project_id)
            .only("pk", "ref", "subject", "project_id")
            .order_by("position", "pk")[:MOST_CHOICES]
        ),
        sprints=list(Sprint.objects.filter(project_id=project_id).order_by("is_closed", "-starts_on")[:MOST_CHOICES]),
        people=list(people.order_by("username")[:MOST_CHOICES]),
    )


@dataclass(frozen=True, slots=True)
class Load:
    """What a sprint holds: stories and points, all and done."""

    stories: int = 0
    stories_done: int = 0
    points: float = 0
    points_done: float = 0

    @property
    def percent(self) -> int:
        whole_, done = (self.points, self.points_done) if self.points else (self.stories, self.stories_done)
        return int(100 * done / whole_) if whole_ else 0


def loads(sprint_ids: Iterable[int]) -> dict[int, Load]:
    """By sprint. One query."""
    found: dict[int, Load] = {}
    rows = UserStory.objects.filter(sprint__in=list(sprint_ids)).only("sprint_id", "points", "status__category")
    for story in rows.select_related("status").order_by():
        had, points, done = found.get(int(story.sprint_id or 0), Load()), story.total_points, story.status.is_closed
        found[int(story.sprint_id or 0)] = Load(
            had.stories + 1, had.stories_done + done, had.points + points, had.points_done + points * done
        )
    return found


def days_left(sprint: Sprint, *, on: date | None = None) -> int | None:
    """Days that remain, today among them; 0 after the last, None before the first."""
    today = on or timezone.now().astimezone(UTC).date()
    return None if today < sprint.starts_on else max(0, (sprint.ends_on - today).days + 1)


@dataclass(frozen=True, slots=True)
class Row:
    """A story of a sprint with its tasks, by the board's columns."""

    story: UserStory
    cells: Sequence[tuple[str, str, list[Any]]]
    """(column, its title, tasks)"""


@dataclass(frozen=True, slots=True)
class Burned:
    """The end of a day of a sprint: what its stories still hold. None: that day is not over yet, or not begun."""

    date: date
    left: float | None
    ideal: float
    stories: int | None


@dataclass(frozen=True, slots=True)
class Burndown:
    """`in_points`: measured in points; else no story has an estimate, and stories are counted."""

    days: list[Burned]
    total: float
    in_points: bool


def burndown(sprint: Sprint, *, on: date | None = None) -> Burndown:
    """Every day of the sprint, of the stories that are in it now: each counts from the day it was made. One query."""
    today = on or timezone.now().astimezone(UTC).date()
    rows = [
        (float(sum(value for value in points.values() if isinstance(value, int | float))), created, closed)
        for points, created, closed in UserStory.objects.filter(sprint=sprint).values_list(
            "points", "created_at", "closed_at"
        )
    ]
    in_points = any(points for points, _, _ in rows)
    sizes = [(points if in_points else 1.0, _day(created), closed and _day(closed)) for points, created, closed in rows]
    total = sum(size for size, _, _ in sizes)
    length = (sprint.ends_on - sprint.starts_on).days
    found = []
    for number in range(length + 1):
        day = sprint.starts_on + timedelta(days=number)
        still = [size for size, made, closed in sizes if made <= day and (closed is None or closed > day)]
        is_past = day <= today
        found.append(
            Burned(
                date=day,
                left=round(sum(still), 2) if is_past else None,
                ideal=round(total * (1 - number / length), 2) if length else 0.0,
                stories=len(still) if is_past else None,
            )
        )
    return Burndown(found if rows else [], total, in_points)


def _day(at: datetime) -> date:
    return at.astimezone(UTC).date()


def current(sprints: Sequence[Sprint], *, on: date | None = None) -> Sprint | None:
    """The one that runs, else the first of those not closed, else the first."""
    today = on or timezone.now().astimezone(UTC).date()
    open_ones = [one for one in sprints if not one.is_closed]
    runs = [one for one in open_ones if one.starts_on <= today <= one.ends_on]
    return next(iter(runs or open_ones or sprints), None)


def issue_counts(project_id: int) -> dict[str, int]:
    """How many issues are open and how many there are. One query."""
    rows = Issue.objects.filter(project_id=project_id)
    return rows.aggregate(total=Count("pk"), open=Count("pk", filter=~Q(status__category__in=CLOSING)))


def tasks_of(story_id: int) -> QuerySet[Task]:
    return Task.objects.filter(user_story=story_id).order_by("position", "pk")
