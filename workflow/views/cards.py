"""Cards, columns and lanes as the board's templates draw them."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock

from cachetools import LRUCache
from django.db.models import Count
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.safestring import SafeString

from devflow.templatetags.look import ago
from workflow.models import Note, Phase, Priority, Project, Task
from workflow.selectors import board as board_selectors
from workflow.selectors.filters import Lanes, TaskFilter
from workflow.selectors.tasks import Card, cards, with_status

Phases = Mapping[int, Phase]
"""By number."""

PAGE = 50
"""Cards of a column that are drawn at first, and with every look further down."""
MOST_IN_LANES = 200
SOON = timedelta(minutes=5)

TITLES = {
    "backlog": "Backlog",
    "ready": "Ready",
    "in_progress": "In progress",
    "review": "Review",
    "done": "Done",
}
EMPTY = {
    "backlog": "Nothing waits. Tasks with open blockers appear here.",
    "ready": "Nothing to claim. Add a task, or let an agent plan some.",
    "in_progress": "Nobody is at work. Connect a client: it calls claim_task.",
    "review": "Nothing waits for a person.",
    "done": "Nothing is finished yet.",
}

_drawing = Lock()
_drawn: LRUCache[Hashable, SafeString] = LRUCache(4096)


@dataclass(frozen=True, slots=True)
class Shown:
    """A card with what only the page shows: its phase, its notes, where it stands, how long its lease is."""

    card: Card
    phase: Phase | None
    notes: int
    column: str
    lane: str
    whole: int
    left: int

    @property
    def hue(self) -> int:
        return (self.card.phase - 1) % 5 + 1

    @property
    def place(self) -> str:
        return board_selectors.place(self.card)

    @property
    def ring(self) -> float:
        """The part of the lease that is left, 0..54: the length of the ring round the initials."""
        return round(54 * min(1.0, self.left / self.whole), 1) if self.whole else 0.0

    @property
    def soon(self) -> bool:
        return bool(self.whole) and self.left < SOON.total_seconds()

    @property
    def html(self) -> SafeString:
        """Drawn once for everybody who may see it: a card's template costs more than reading it."""
        key = self._looks()
        with _drawing:
            if (found := _drawn.get(key)) is not None:
                return found
        made = render_to_string("workflow/_card.html", {"shown": self})
        with _drawing:
            _drawn[key] = made
        return made

    def _looks(self) -> tuple[Hashable, ...]:
        """Everything the template shows that can change while the task's version does not, and that."""
        card = self.card
        return (
            *(card.pk, card.version, card.status, card.agent, card.reserved_for, card.parent_subject, card.blockers),
            *(card.story_ref, card.story_subject),
            *(self.phase and self.phase.name, self.notes, self.lane, self.whole, self.left // 10),
            *(self.place, card.lease_expires_at, ago(card.completed_at)),
        )


@dataclass(frozen=True, slots=True)
class Column:
    """`more`: there are cards behind the last one drawn."""

    name: str
    title: str
    cards: Sequence[Shown]
    count: int
    limit: int | None
    more: bool
    empty: str

    @property
    def is_full(self) -> bool:
        return self.limit is not None and self.count >= self.limit

    @property
    def is_quick(self) -> bool:
        return self.name in board_selectors.FIRST_COLUMNS


@dataclass(frozen=True, slots=True)
class Lane:
    key: str
    title: str
    columns: Sequence[Column] = field(default_factory=list)


def lane_of(card: Card, lanes: Lanes, phases: Phases) -> tuple[str, str]:
    """Which lane a card stands in, and how that is called."""
    if lanes == "phase":
        return str(card.phase), str(phases.get(card.phase, card.phase))
    if lanes == "epic":
        return (f"epic-{card.epic}", f"#{card.epic_ref} {card.epic_subject}") if card.epic else ("-", "Without an epic")
    if lanes == "story":
        return (f"story-{card.story}", f"#{card.story_ref} {card.story_subject}") if card.story else ("-", "No story")
    if lanes == "parent":
        return (f"task-{card.parent}", card.parent_subject or "") if card.parent else ("-", "Part of nothing")
    if lanes == "agent":
        return (card.agent, card.agent) if card.agent else ("-", "Nobody")
    if lanes == "priority":
        return card.priority_name, card.priority_name.capitalize()
    return "", ""


def phases_of(project: Project) -> Phases:
    return {phase.number: phase for phase in Phase.objects.filter(project=project)}


def shown(found: Sequence[Card], phases: Phases, lanes: Lanes = "", *, at: datetime | None = None) -> list[Shown]:
    """Cards as they are drawn. One query."""
    now = at or timezone.now()
    counted = Note.objects.filter(task__in=[card.pk for card in found]).order_by().values_list("task")
    notes = dict(counted.annotate(n=Count("pk")))
    drawn = []
    for card in found:
        column = board_selectors.COLUMN_OF.get(card.status)
        if column is None:
            continue
        left = whole = 0
        if card.lease_expires_at is not None and card.status == "in_progress":
            phase = phases.get(card.phase)
            left = max(0, int((card.lease_expires_at - now).total_seconds()))
            whole = max(left, int((phase.lease if phase else timedelta(minutes=30)).total_seconds()))
        lane = lane_of(card, lanes, phases)[0]
        drawn.append(Shown(card, phases.get(card.phase), notes.get(card.pk, 0), column, lane, whole, left))
    return drawn


def by_id(project: Project, wanted: TaskFilter, ids: Iterable[int]) -> list[Shown]:
    """Those of the tasks that the filter leaves, as cards."""
    now = timezone.now()
    tasks = wanted.apply(Task.objects.filter(project=project, pk__in=list(ids)))
    return shown(cards(with_status(tasks, now)), phases_of(project), wanted.lanes, at=now)


def lanes_of(project: Project, phases: Phases, wanted: TaskFilter) -> tuple[board_selectors.Board, list[Lane]]:
    """The board as the page draws it. A fixed number of queries whatever the number of tasks."""
    now = timezone.now()
    most = MOST_IN_LANES if wanted.lanes else PAGE
    tasks = wanted.apply(Task.objects.filter(project=project))
    board = board_selectors.board(project=project, tasks=tasks, at=now, max_cards=most, max_done=most)
    every = [card for some in board.columns.values() for card in some]
    placed: dict[str, dict[str, list[Shown]]] = {}
    for one in shown(every, phases, wanted.lanes, at=now):
        placed.setdefault(one.lane, {}).setdefault(one.column, []).append(one)
    if not wanted.lanes:
        columns = [_column(board, name, placed.get("", {}).get(name, []), board.counts[name]) for name in TITLES]
        return board, [Lane("", "", columns)]
    titles = dict(sorted({lane_of(card, wanted.lanes, phases) for card in every}, key=_lane_order(wanted.lanes)))
    found = []
    for key, title in titles.items():
        if some := placed.get(key):
            cells = {name: some.get(name, []) for name in TITLES}
            columns = [_column(board, name, cell, len(cell), wanted.lanes) for name, cell in cells.items()]
            found.append(Lane(key, title, columns))
    return board, found


def _lane_order(lanes: Lanes) -> Callable[[tuple[str, str]], tuple[bool, int, str]]:
    def order(lane: tuple[str, str]) -> tuple[bool, int, str]:
        key, title = lane
        number = int(key) if lanes == "phase" else Priority.of(key) if lanes == "priority" else 0
        if lanes in ("epic", "story") and key != "-":
            number = int(title[1:].split(" ", 1)[0])
        return key == "-", number, title.casefold()

    return order


def _column(board: board_selectors.Board, name: str, some: Sequence[Shown], count: int, lanes: Lanes = "") -> Column:
    return Column(
        name=name,
        title=TITLES[name],
        cards=some,
        count=count,
        limit=board.limits[name],
        more=not lanes and board.truncated[name],
        empty=EMPTY[name],
    )
