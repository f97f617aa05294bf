"""Which of a project's own words a task shows: decided in Python for one task, and in SQL for a filter."""

import itertools

import pytest
from django.utils import timezone

from workflow.models import CLOSED, Category, ItemStatus, Kind, Project, Status, Task
from workflow.models.agile import shown_status
from workflow.selectors import agile
from workflow.services import projects
from workflow.services.agile import vocabulary

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    made = projects.create(slug="words", name="Words")
    vocabulary.ensure(made)
    last = ItemStatus.objects.filter(project=made, kind=Kind.TASK).count()
    for number, category in enumerate(Category, last + 1):  # words of its own beside the usual ones
        ItemStatus.objects.create(
            project=made,
            kind=Kind.TASK,
            name=f"Own {category}",
            slug=f"own-{category}",
            order=number,
            category=category,
        )
    return made


def test_the_filter_finds_what_is_shown(project: Project) -> None:
    statuses = list(agile.statuses(project.pk, Kind.TASK))
    phase = project.phases.first()
    assert phase is not None
    now = timezone.now()
    chosen: list[ItemStatus | None] = [None, *statuses]
    for ref, (state, held, choice) in enumerate(itertools.product(Status, ("", "it waits"), chosen), 1000):
        if held and (state in CLOSED or state == Status.READY):
            continue
        Task.objects.create(
            project=project,
            phase=phase,
            ref=ref,
            subject=f"{state} {held} {choice}",
            description="x",
            status=state,
            manual_block=held,
            item_status=choice,
            completed_at=now if state == Status.DONE else None,
        )
    rows = agile.tasks(project.pk)
    shown = {task.pk: shown_status(task, statuses).pk for task in rows}
    assert len(shown) > 100
    for status in statuses:
        found = set(agile.tasks_in(rows, [status]).values_list("pk", flat=True))
        assert found == {pk for pk, word in shown.items() if word == status.pk}, status
    assert set(shown.values()) == {status.pk for status in statuses}, "each word is shown by some task"
