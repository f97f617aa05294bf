"""What the history says in figures: flow, times, tries, by day, and for a part of the work."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext

from devflow.actors import Actor
from workflow.models import Event, Project, Task
from workflow.selectors import board, insights
from workflow.selectors.insights import Scope, Span, percentile
from workflow.services import board as moves
from workflow.services import claims, tasks, transitions
from workflow.services.rows import phase_numbered

from .scenes import fresh, made, person_named

TODAY = date(2025, 6, 20)
SPAN = Span.ending(TODAY, 7)


@contextmanager
def on(days_ago: int, *, hour: int = 12) -> Iterator[None]:
    at = datetime(TODAY.year, TODAY.month, TODAY.day, hour, tzinfo=UTC) - timedelta(days=days_ago)
    with time_machine.travel(at, tick=False):
        yield


def flow_of(project: Project, span: Span = SPAN, **part: int) -> dict[int, insights.Day]:
    """The days of the span by how many days ago they were."""
    found = insights.flow(scope=Scope(project.pk, **part), span=span)
    return {(TODAY - day.date).days: day for day in found}


@pytest.fixture
def mia(db: None) -> Actor:
    """A person: no lease of an agent keeps her from closing a task days later."""
    return person_named("mia")


def finish(task: Task, actor: Actor) -> None:
    transitions.finish(project_id=task.project_id, task_id=task.pk, actor=actor)


def start(task: Task, actor: Actor) -> None:
    claims.start(project_id=task.project_id, task_id=task.pk, actor=actor)


def test_every_day_shows_where_the_tasks_stood_when_it_ended(project: Project, ada: Actor, mia: Actor) -> None:
    with on(20):
        old = made(project, ada, "Old")
    with on(5):
        new = made(project, ada, "New")
        waits = made(project, ada, "Waits", blocked_by=[new.pk])
    with on(4):
        start(new, ada)
    with on(3):
        finish(new, mia)
        start(old, ada)
    with on(1):
        transitions.fail(project_id=project.pk, task_id=old.pk, actor=mia)
        transitions.cancel(project_id=project.pk, task_id=waits.pk, actor=mia)
    with on(0):
        days = flow_of(project)
        now = board.counts(tasks=Task.objects.filter(project=project), at=datetime.now(UTC))
    stood = {ago: tuple(day.columns.values()) for ago, day in days.items()}
    assert stood == {
        6: (0, 1, 0, 0, 0),
        5: (1, 2, 0, 0, 0),
        4: (1, 1, 1, 0, 0),
        3: (0, 1, 1, 0, 1),
        2: (0, 1, 1, 0, 1),
        1: (0, 0, 0, 1, 1),
        0: (0, 0, 0, 1, 1),
    }
    assert days[0].columns == now.columns
    assert [days[ago].open for ago in range(6, -1, -1)] == [1, 3, 3, 2, 2, 1, 1]
    assert (days[5].added, days[3].done, days[1].cancelled) == (2, 1, 1)
    assert sum(day.added for day in days.values()) == 2


def test_a_move_taken_back_leaves_nothing_behind(project: Project, ada: Actor, mia: Actor) -> None:
    with on(2):
        task = made(project, ada)
        start(task, ada)
    with on(1):
        finish(task, mia)
        moves.undo_last_move(project_id=project.pk, task_id=task.pk, actor=mia)
    with on(0):
        days = flow_of(project)
    assert (days[1].done, days[1].columns["in_progress"], days[1].columns["done"]) == (0, 1, 0)


def test_a_deleted_task_and_another_projects_tasks_are_in_no_figure(
    project: Project, other: Project, ada: Actor, mia: Actor
) -> None:
    with on(3):
        made(project, ada, "Stays")
        gone = made(project, ada, "Goes")
        made(other, mia, "Elsewhere")
    gone.delete()
    with on(0):
        days = flow_of(project)
    assert [sum(days[ago].columns.values()) for ago in (4, 3, 0)] == [0, 1, 1]


def test_a_phase_and_an_epic_are_burned_down_by_themselves(project: Project, ada: Actor) -> None:
    with on(4):
        epic = made(project, ada, "Epic", phase=1)
        child = made(project, ada, "Child", phase=2, parent=epic.pk)
        made(project, ada, "Apart", phase=3)
    with on(2):
        start(child, ada)
        finish(child, ada)
    with on(0):
        of_phase = flow_of(project, phase_id=phase_numbered(project_id=project.pk, number=2).pk)
        of_epic = flow_of(project, epic_id=epic.pk)
        parts = insights.parts(project_id=project.pk)
    for days in (of_phase, of_epic):
        assert [days[ago].open for ago in (5, 4, 3, 2, 0)] == [0, 1, 1, 0, 0]
    assert [item.pk for item in parts.epics] == [epic.pk]
    assert [phase.number for phase in parts.phases] == [1, 2, 3]


def test_a_task_without_an_event_stands_where_it_is_from_the_beginning(project: Project, ada: Actor) -> None:
    with on(3):
        made(project, ada)
    Event.objects.all().delete()
    with on(0):
        days = flow_of(project)
    assert {day.columns["ready"] for day in days.values()} == {1}


def test_cycle_and_lead_times_tell_agents_from_people(project: Project, ada: Actor, mia: Actor) -> None:
    with on(3, hour=10):
        by_agent, by_hand, never_started = (made(project, mia, name) for name in ("A", "B", "C"))
    with on(2, hour=10):
        start(by_agent, ada)
        moves.move(project_id=project.pk, task_id=by_hand.pk, column="in_progress", actor=mia)
    with on(2, hour=12):
        finish(by_agent, mia)
    with on(1, hour=10):
        finish(by_hand, mia)
        finish(never_started, mia)
    with on(0):
        found = insights.finished(project_id=project.pk, span=SPAN)
        assert insights.finished(project_id=project.pk, span=Span.ending(TODAY, 1)) == []
    hour = 3600
    assert [(task.by_agent, task.cycle, task.lead) for task in found] == [
        (True, 2 * hour, 26 * hour),
        (False, 24 * hour, 48 * hour),
        (False, None, 48 * hour),
    ]


def test_tries_are_counted_by_how_they_ended(project: Project, ada: Actor, mia: Actor) -> None:
    with on(2, hour=10):
        task = made(project, ada)
        start(task, ada)
    for hour in (12, 14, 16):
        with on(2, hour=hour):
            claims.sweep_expired_leases()
            if fresh(task).status == "ready":
                start(task, ada)
    with on(1):
        transitions.retry(project_id=project.pk, task_id=task.pk, actor=mia)
        start(task, ada)
        transitions.fail(project_id=project.pk, task_id=task.pk, actor=ada)
    with on(0):
        days = insights.attempts(project_id=project.pk, span=SPAN)
    assert len(days) == 7
    assert days[TODAY - timedelta(days=2)] == {"started": 3, "expired": 3, "given_up": 1}
    assert days[TODAY - timedelta(days=1)] == {"started": 1, "given_up": 1}
    assert not days[TODAY]


def test_a_task_sent_back_by_review_counts_as_a_try(project: Project, ada: Actor, mia: Actor) -> None:
    project.require_review = True
    project.save()
    with on(0):
        task = made(project, ada)
        start(task, ada)
        finish(task, ada)
        transitions.review(project_id=project.pk, task_id=task.pk, decision="reject", feedback="More", actor=mia)
        days = insights.attempts(project_id=project.pk, span=SPAN)
    assert days[TODAY] == {"started": 1, "sent_back": 1}


@pytest.mark.parametrize(("days", "steps", "first"), [(7, 7, 1), (30, 30, 1), (90, 13, 6)])
def test_long_spans_are_cut_into_weeks_that_end_today(days: int, steps: int, first: int) -> None:
    span = Span.ending(TODAY, days)
    assert len(span.days) == days
    assert len(span.steps) == steps
    by_step = [span.step_of(day) for day in span.days]
    assert sorted(set(by_step)) == span.steps
    assert by_step.count(span.steps[0]) == first
    assert by_step.count(span.steps[-1]) == span.step


def test_percentiles_are_values_that_occurred() -> None:
    values = [5.0, 1.0, 3.0, 2.0, 4.0]
    assert [percentile(values, part) for part in (0.5, 0.85, 1.0)] == [3.0, 5.0, 5.0]
    assert percentile([7.0], 0.5) == 7.0
    assert percentile([], 0.5) is None


def test_the_number_of_queries_grows_with_nothing(project: Project, ada: Actor) -> None:
    def queries(span: Span) -> int:
        with CaptureQueriesContext(connection) as seen:
            flow_of(project, span)
            insights.finished(project_id=project.pk, span=span)
            insights.attempts(project_id=project.pk, span=span)
            insights.parts(project_id=project.pk)
        return len(seen)

    before = queries(SPAN)
    with on(1):
        for number in range(12):
            task = tasks.create(project_id=project.pk, phase_number=1, description=f"Task {number}", actor=ada)
            start(task, ada)
            finish(task, ada)
    assert queries(Span.ending(TODAY, 90)) == before == 6
