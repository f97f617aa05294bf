"""Jobs for the tests of `devflow.jobs`; the queue finds them by their names."""

import threading
from dataclasses import dataclass, field

from django.contrib.auth.models import Group
from django.db import connection

from devflow.jobs import job, periodic


@dataclass
class Seen:
    """What ran, and a condition to wait on (bounded) until it did."""

    calls: list[object] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def add(self, call: object) -> None:
        with self.changed:
            self.calls.append(call)
            self.changed.notify_all()

    def wait_for(self, count: int, seconds: float = 20) -> list[object]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.calls) >= count, seconds), self.calls
            return list(self.calls)


seen, swept = Seen(), Seen()


@job()
def record(number: int, *, label: str = "") -> None:
    seen.add((number, label))


@job(retries=2, retry_delay=0)
def fails_twice() -> None:
    seen.add("tried")
    if len(seen.calls) < 3:
        raise RuntimeError("not yet")


@job()
def writes(name: str) -> None:
    Group.objects.create(name=name)
    seen.add((threading.current_thread().name, id(connection.connection)))


@job()
def connection_state() -> None:
    seen.add("open" if connection.connection is not None else "closed")


@periodic(minutes=5)
def sweep() -> None:
    swept.add("swept")
