"""The log of calls in figures: how many, how quick, by whom, and what went wrong."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from math import ceil

from django.db.models import TextField
from django.db.models.functions import Cast, Substr

from devflow.ports import CallFigures, CallTally
from mcpbridge.models import ToolCall

MOST_CALLS = 300_000
MOST_NAMES = 50

# The database's clock is UTC: the text of a time begins with its day. A tenth of what TruncDate costs on SQLite.
DAY = Substr(Cast("at", TextField()), 1, 10)


class CountedCalls:
    """`devflow.ports.CallCounts` over the rows of the log: one query and one pass, the newest `MOST_CALLS` at most."""

    def figures(self, project_id: int, *, since: datetime) -> CallFigures:
        rows = (
            ToolCall.objects.filter(project_id=project_id, at__gte=since)
            .annotate(day=DAY)
            .order_by("-pk")
            .values_list("day", "tool", "client", "outcome", "duration_ms")
        )
        everything, days, tools, clients, errors = (_Group() for _ in range(5))
        for day, tool, client, outcome, milliseconds in rows[:MOST_CALLS].iterator(chunk_size=5000):
            failed = outcome != "ok"
            everything.add("", milliseconds, failed)
            days.add(day, milliseconds, failed)
            tools.add(tool, milliseconds, failed)
            clients.add(client or "unknown", milliseconds, failed)
            if failed:
                errors.add(outcome, milliseconds, failed)
        total = everything.tally("")
        first = since.date().isoformat()
        if total.calls == MOST_CALLS and len(days.names) > 1:  # the day it stopped in is not whole
            first = (date.fromisoformat(days.drop(min(days.names))) + timedelta(days=1)).isoformat()
        return CallFigures(
            counted_from=first,
            total=total,
            days=[days.tally(day) for day in sorted(days.names)],
            tools=tools.most(),
            clients=clients.most(),
            errors=errors.most(),
        )


class _Group:
    """Calls by name: the milliseconds each took, and how many failed."""

    def __init__(self) -> None:
        self._took: defaultdict[str, list[float]] = defaultdict(list)
        self._failed: defaultdict[str, int] = defaultdict(int)

    @property
    def names(self) -> Sequence[str]:
        return list(self._took)

    def add(self, name: str, milliseconds: float, failed: bool) -> None:
        self._took[name].append(milliseconds)
        self._failed[name] += failed

    def drop(self, name: str) -> str:
        self._took.pop(name)
        return name

    def tally(self, name: str) -> CallTally:
        took = sorted(self._took.get(name, ()))
        return CallTally(name, len(took), self._failed[name], _rank(took, 0.5) / 1000, _rank(took, 0.95) / 1000)

    def most(self) -> list[CallTally]:
        names = sorted(self._took, key=lambda name: (-len(self._took[name]), name))
        return [self.tally(name) for name in names[:MOST_NAMES]]


def _rank(ordered: Sequence[float], part: float) -> float:
    """The smallest value that is not less than `part` of them (nearest rank); 0 where there is none."""
    return ordered[max(0, ceil(part * len(ordered)) - 1)] if ordered else 0.0
