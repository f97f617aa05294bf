from typing import Any

import pytest

from devflow.actors import Actor
from devflow.events import LiveEvent, bus
from workflow.models import Event, Project
from workflow.selectors import activity as activity_selectors
from workflow.selectors import board
from workflow.services import demo, messages, tasks

from .scenes import joined, made

pytestmark = pytest.mark.django_db


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[LiveEvent]:
    """What the bus delivers."""
    delivered: list[LiveEvent] = []
    monkeypatch.setattr(bus, "deliver", delivered.append)
    return delivered


def test_a_change_is_announced_on_commit_with_the_resources_to_read_again(
    project: Project, ada: Actor, heard: list[LiveEvent], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        task = made(project, ada)
        assert heard == []
    assert [event.type for event in heard] == ["task.created"]
    assert heard[0].id == task.public_id
    assert heard[0].uris == ("devflow://board/shop", f"devflow://task/{task.public_id}")
    assert [event.sequence for event in heard] == list(
        Event.objects.filter(task=task).order_by("pk").values_list("pk", flat=True)
    )


def test_a_message_is_announced_to_its_recipients_alone(
    project: Project, ada: Actor, ben: Actor, heard: list[LiveEvent], django_capture_on_commit_callbacks: Any
) -> None:
    joined(project, "vera")
    with django_capture_on_commit_callbacks(execute=True):
        messages.send(project_id=project.pk, to="*", body="hi", actor=ada)
    assert sorted(event.agent or "" for event in heard) == ["ben", "vera"]
    assert {event.type for event in heard} == {"message.sent"}


def test_the_feed_shows_a_project_alone_newest_first_in_one_query(
    project: Project, other: Project, ada: Actor, django_assert_num_queries: Any
) -> None:
    task = made(project, ada)
    made(other, joined(other, "zoe"))
    tasks.add_note(project_id=project.pk, task_id=task.pk, body="x", actor=ada)
    with django_assert_num_queries(1):
        seen = [
            (event.kind, event.task and event.task.subject) for event in activity_selectors.feed(project_id=project.pk)
        ]
    assert seen[:2] == [("task.noted", "Do it"), ("task.created", "Do it")]
    assert {event.task_id for event in activity_selectors.feed(project_id=project.pk, task_id=task.pk)} == {task.pk}


def test_the_demo_has_tasks_in_every_column_and_is_made_once(db: None) -> None:
    shop = demo.seed_demo()
    seen = board.board(project=shop)
    assert seen.total == 14
    assert all(seen.counts.values())
    assert seen.failed == 1
    assert shop.agents.count() == 3
    assert shop.messages.exists()
    count = shop.events.count()
    assert demo.seed_demo() == shop
    assert shop.events.count() == count


def test_a_reset_demo_is_the_same_project_as_on_the_first_day(db: None) -> None:
    shop = demo.seed_demo()
    before = board.board(project=shop).counts
    tasks.create(project_id=shop.pk, phase_number=1, description="mine", actor=Actor(kind="system", name="x"))
    again = demo.seed_demo(reset=True)
    assert again.pk == shop.pk
    assert board.board(project=again).counts == before
    assert again.tasks.order_by("ref").values_list("ref", flat=True)[0] == 1
