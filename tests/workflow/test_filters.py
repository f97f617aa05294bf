"""The filters of a board: what an address means, and what it leaves."""

from typing import Any

import pytest
from django.http import QueryDict

from devflow.actors import Actor
from workflow.models import Project, Task
from workflow.selectors.filters import NOBODY, TaskFilter, choices
from workflow.services import claims, tasks

from .scenes import made, refused

pytestmark = pytest.mark.django_db


def of(address: str) -> TaskFilter:
    return TaskFilter.of(QueryDict(address))


def found(project: Project, address: str) -> set[str]:
    return {task.subject for task in of(address).apply(Task.objects.filter(project=project))}


@pytest.fixture
def some(project: Project, ada: Actor) -> dict[str, Task]:
    first = made(project, ada, "Sign in", phase=1, tags=["auth", "api"], priority="high")
    second = made(project, ada, "Sign out\nas *quietly* as in", phase=2, tags=["auth"], blocked_by=[first.pk])
    third = made(project, ada, "Übersicht der Zahlungen", phase=3, priority="low")
    claims.start(project_id=project.pk, task_id=first.pk, actor=ada)
    return {"first": first, "second": second, "third": third}


@pytest.mark.parametrize(
    ("address", "left"),
    [
        ("", {"Sign in", "Sign out", "Übersicht der Zahlungen"}),
        ("phase=1", {"Sign in"}),
        ("phase=1&phase=3", {"Sign in", "Übersicht der Zahlungen"}),
        ("phase=99", set()),
        ("tag=auth", {"Sign in", "Sign out"}),
        ("tag=auth&tag=api", {"Sign in"}),
        ("priority=high&priority=low", {"Sign in", "Übersicht der Zahlungen"}),
        ("agent=ada", {"Sign in"}),
        (f"agent={NOBODY}", {"Sign out", "Übersicht der Zahlungen"}),
        (f"agent=ada&agent={NOBODY}", {"Sign in", "Sign out", "Übersicht der Zahlungen"}),
        ("blocked=yes", {"Sign out"}),
        ("blocked=no", {"Sign in", "Übersicht der Zahlungen"}),
        ("q=quietly+sign", {"Sign out"}),
        ("q=api", {"Sign in"}),
        ("q=%2", set()),
        ("q=3", {"Übersicht der Zahlungen"}),
        ("q=%233", {"Übersicht der Zahlungen"}),
        ("phase=1&priority=low", set()),
    ],
)
def test_a_filter_leaves_what_it_says(address: str, left: set[str], project: Project, some: dict[str, Task]) -> None:
    assert found(project, address) == left


def test_a_task_is_found_by_its_public_id(project: Project, some: dict[str, Task]) -> None:
    assert found(project, f"q={some['second'].public_id}") == {"Sign out"}


@pytest.mark.parametrize(
    "address",
    ["phase=x", "phase=-1", "phase=" + "9" * 400, "phase=²", "priority=urgent", "blocked=maybe", "lanes=colour",
     "tag=", "q=+", "q=%00", "nonsense=1"],
)  # fmt: skip
def test_what_cannot_be_meant_is_left_out(address: str, project: Project, some: dict[str, Task]) -> None:
    assert of(address).is_empty
    assert of(address).query() == ""
    assert len(found(project, address)) == 3


def test_an_address_is_bounded(project: Project) -> None:
    wanted = of("q=" + "x" * 5000 + "".join(f"&tag=t{number}" for number in range(500)))
    assert (len(wanted.text), len(wanted.tags)) == (200, 50)
    assert not wanted.apply(Task.objects.filter(project=project)).exists()


def test_a_filter_writes_itself_as_one_address_whatever_the_order() -> None:
    assert of("q=a++b&tag=x&phase=2&lanes=epic").query() == of("lanes=epic&phase=2&tag=x&q=a+b").query()
    assert of("phase=2&tag=x&q=a+b&lanes=epic&blocked=no").query() == "phase=2&tag=x&blocked=no&q=a+b&lanes=epic"


def test_a_condition_can_be_taken_away() -> None:
    wanted = of("phase=1&phase=2&agent=ada&tag=x&priority=high&blocked=yes&q=a")
    for name, value in wanted.pairs():
        rest = wanted.without(name, value)
        assert (name, value) not in rest.pairs()
        assert len(rest.pairs()) == len(wanted.pairs()) - 1


def test_the_menu_offers_what_the_project_has(project: Project, other: Project, ada: Actor, some: Any) -> None:
    offered = choices(project_id=project.pk, phases={1: "One"})
    assert offered.tags == [("api", "api"), ("auth", "auth")]
    assert offered.agents == [(NOBODY, "nobody"), ("ada", "ada")]
    assert choices(project_id=other.pk, phases={}).tags == []


def test_a_task_can_wait_for_one_agent(project: Project, ada: Actor, ben: Actor) -> None:
    task = made(project, ada, phase=1)
    tasks.reserve(project_id=project.pk, task_id=task.pk, agent="ben", actor=ada)
    assert claims.claim(project_id=project.pk, phase_number=1, actor=ada).task is None
    with refused_to_start():
        claims.start(project_id=project.pk, task_id=task.pk, actor=ada)
    got = claims.claim(project_id=project.pk, phase_number=1, actor=ben).task
    assert got is not None
    assert got.pk == task.pk


def refused_to_start() -> Any:
    from devflow.errors import ErrorCode

    return refused(ErrorCode.CONFLICT, "reserved for ben")
