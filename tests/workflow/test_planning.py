"""Sprints, the order of the backlog, the words of planning, and how a sprint burns down."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from devflow import actors
from devflow.actors import Actor
from devflow.errors import ErrorCode
from tests.workflow.scenes import person_named, refused
from workflow.models import (
    POSITION_GAP,
    AgileRole,
    Epic,
    IssueType,
    ItemStatus,
    Kind,
    MemberRole,
    Point,
    Project,
    Sprint,
    UserStory,
)
from workflow.selectors import planning
from workflow.services import projects
from workflow.services.agile import items, order, sprints, vocabulary, words, work

FIRST, LAST = date(2027, 1, 4), date(2027, 1, 8)


@pytest.fixture
def mia(project: Project) -> Actor:
    return person_named("mia")


def story(project: Project, subject: str = "Pay", **fields: Any) -> UserStory:
    made = items.create(Kind.USER_STORY, project=project, actor=actors.SYSTEM, fields={"subject": subject, **fields})
    assert isinstance(made, UserStory)
    return made


def sprint(project: Project, name: str = "Sprint 1") -> Sprint:
    return sprints.create(project=project, name=name, starts_on=FIRST, ends_on=LAST, actor=actors.SYSTEM)


def kinds(project: Project) -> list[str]:
    return list(project.events.order_by("pk").values_list("kind", flat=True))


# --- sprints ----------------------------------------------------------------------------------------------------------


def test_a_sprint_has_a_slug_of_its_own_and_days_in_order(project: Project, mia: Actor) -> None:
    assert [sprint(project).slug for _ in range(3)] == ["sprint-1", "sprint-1-2", "sprint-1-3"]
    who: dict[str, Any] = {"project": project, "actor": mia}
    with refused(ErrorCode.INVALID_INPUT, "ends on or after"):
        sprints.create(name="x", starts_on=LAST, ends_on=FIRST, **who)
    with refused(ErrorCode.INVALID_INPUT, "a year"):
        sprints.create(name="x", starts_on=FIRST, ends_on=FIRST + timedelta(days=400), **who)
    for name in ("", "   ", "x" * 81):
        with refused(ErrorCode.INVALID_INPUT, "name"):
            sprints.create(name=name, starts_on=FIRST, ends_on=LAST, **who)
    assert sprints.create(name="One day", starts_on=FIRST, ends_on=FIRST, **who).ends_on == FIRST


def test_changing_a_sprint_twice_changes_it_once(project: Project, mia: Actor) -> None:
    made = sprint(project)
    for _ in range(2):
        sprints.change(project=project, pk=made.pk, actor=mia, fields={"is_closed": True})
    with refused(ErrorCode.INVALID_INPUT, "ends on or after"):
        sprints.change(project=project, pk=made.pk, actor=mia, fields={"ends_on": FIRST - timedelta(days=1)})
    with refused(ErrorCode.INVALID_INPUT, "no such field"):
        sprints.change(project=project, pk=made.pk, actor=mia, fields={"slug": "x"})
    assert kinds(project)[-2:] == ["sprint.created", "sprint.closed"]


def test_another_projects_sprint_is_unknown(project: Project, other: Project, mia: Actor) -> None:
    foreign = sprint(other)
    with refused(ErrorCode.NOT_FOUND):
        sprints.change(project=project, pk=foreign.pk, actor=mia, fields={"name": "Mine"})
    with refused(ErrorCode.NOT_FOUND):
        sprints.delete(project=project, pk=foreign.pk, actor=mia)
    with refused(ErrorCode.INVALID_INPUT, "sprintId"):
        story(project, sprint_id=foreign.pk)


def test_a_sprint_with_stories_is_not_deleted(project: Project, mia: Actor) -> None:
    made = sprint(project)
    held = story(project, sprint_id=made.pk)
    with refused(ErrorCode.CONFLICT, "still has 1 story", "close the sprint"):
        sprints.delete(project=project, pk=made.pk, actor=mia)
    items.update(Kind.USER_STORY, project=project, pk=held.pk, actor=mia, fields={"sprint_id": None})
    sprints.delete(project=project, pk=made.pk, actor=mia)
    with refused(ErrorCode.NOT_FOUND):
        sprints.delete(project=project, pk=made.pk, actor=mia)


# --- burning down -----------------------------------------------------------------------------------------------------


def at(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, 12, tzinfo=UTC)


def made_on(row: UserStory, created: date, closed: date | None = None) -> None:
    UserStory.objects.filter(pk=row.pk).update(created_at=at(created), closed_at=closed and at(closed))


def test_what_is_left_falls_with_what_is_finished_and_rises_with_what_is_added(project: Project) -> None:
    made = sprint(project)
    made_on(story(project, sprint_id=made.pk, points={"back": 5}), FIRST - timedelta(days=9))
    made_on(story(project, sprint_id=made.pk, points={"back": 3}), FIRST, FIRST + timedelta(days=1))
    made_on(story(project, sprint_id=made.pk, points={"back": 2}), FIRST + timedelta(days=2))
    found = planning.burndown(made, on=FIRST + timedelta(days=3))
    assert [day.left for day in found.days] == [8, 5, 7, 7, None]
    assert [day.ideal for day in found.days] == [10, 7.5, 5, 2.5, 0]
    assert [day.stories for day in found.days] == [2, 1, 2, 2, None]
    assert (found.total, found.in_points) == (10, True)


def test_stories_are_counted_where_nothing_is_estimated(project: Project) -> None:
    made = sprint(project)
    made_on(story(project, sprint_id=made.pk), FIRST, FIRST)
    made_on(story(project, sprint_id=made.pk), FIRST)
    found = planning.burndown(made, on=LAST + timedelta(days=9))
    assert [day.left for day in found.days] == [1] * 5
    assert not found.in_points


def test_an_empty_sprint_and_one_of_a_single_day_have_no_slope(project: Project) -> None:
    assert planning.burndown(sprint(project)).days == []
    one = sprints.create(project=project, name="Day", starts_on=FIRST, ends_on=FIRST, actor=actors.SYSTEM)
    story(project, sprint_id=one.pk)
    assert [day.ideal for day in planning.burndown(one, on=FIRST).days] == [0]


def test_the_sprint_that_runs_is_the_current_one(project: Project) -> None:
    assert planning.current([]) is None
    first = sprint(project)
    later = sprints.create(
        project=project, name="Next", starts_on=LAST + timedelta(days=1), ends_on=LAST + timedelta(days=5),
        actor=actors.SYSTEM,
    )  # fmt: skip
    assert planning.current([later, first], on=FIRST) == first
    assert planning.current([later, first], on=date(2030, 1, 1)) == later
    assert [
        planning.days_left(first, on=day) for day in (FIRST - timedelta(days=1), FIRST, LAST, date(2030, 1, 1))
    ] == [
        *(None, 5, 1, 0),
    ]


# --- order ------------------------------------------------------------------------------------------------------------


def subjects(project: Project) -> list[str]:
    return list(UserStory.objects.filter(project=project).order_by("position", "pk").values_list("subject", flat=True))


def test_there_is_always_room_between_two_stories(project: Project, mia: Actor) -> None:
    first, last, moved = (story(project, name) for name in ("a", "z", "m"))
    who: dict[str, Any] = {"project": project, "actor": mia}
    for _ in range(2 * POSITION_GAP.bit_length()):
        order.place(Kind.USER_STORY, pk=moved.pk, after=first.pk, **who)
        order.place(Kind.USER_STORY, pk=last.pk, after=first.pk, **who)
        assert subjects(project) == ["a", "z", "m"]
    assert UserStory.objects.get(pk=moved.pk).version == 1  # a place is no new version


def test_a_story_is_shifted_among_those_of_its_epic(project: Project, mia: Actor) -> None:
    epic = items.create(Kind.EPIC, project=project, actor=mia, fields={"subject": "E"})
    a, b, c = story(project, "a", epic_id=epic.pk), story(project, "b"), story(project, "c", epic_id=epic.pk)
    who: dict[str, Any] = {"project": project, "actor": mia}
    order.shift(Kind.USER_STORY, pk=c.pk, where="up", **who)
    assert subjects(project) == ["c", "a", "b"]
    order.shift(Kind.USER_STORY, pk=c.pk, where="top", **who)
    order.shift(Kind.USER_STORY, pk=b.pk, where="bottom", **who)
    assert subjects(project) == ["c", "a", "b"]
    assert kinds(project).count("story.moved") == 1
    wrong: Any = "sideways"
    with refused(ErrorCode.INVALID_INPUT, "top, up, down or bottom"):
        order.shift(Kind.USER_STORY, pk=a.pk, where=wrong, **who)


def test_another_projects_story_is_no_neighbour(project: Project, other: Project, mia: Actor) -> None:
    own, foreign = story(project), story(other)
    with refused(ErrorCode.NOT_FOUND):
        order.place(Kind.USER_STORY, project=project, pk=own.pk, after=foreign.pk, actor=mia)
    with refused(ErrorCode.NOT_FOUND):
        order.place(Kind.USER_STORY, project=project, pk=foreign.pk, after=own.pk, actor=mia)
    issue = items.create(Kind.ISSUE, project=project, actor=mia, fields={"subject": "x"})
    with refused(ErrorCode.INVALID_INPUT):
        order.place(Kind.ISSUE, project=project, pk=issue.pk, actor=mia)


# --- words ------------------------------------------------------------------------------------------------------------


def test_words_are_added_renamed_ordered_and_deleted(project: Project, mia: Actor) -> None:
    who: dict[str, Any] = {"project": project, "actor": mia}
    made = words.add(ItemStatus, kind=Kind.ISSUE, name=" On  ice ", category="blocked", **who)
    assert (made.name, made.slug, made.order, made.category) == ("On ice", "on-ice", 7, "blocked")
    words.change(ItemStatus, pk=made.pk, name="Frozen", **who)
    words.change(ItemStatus, pk=made.pk, name="Frozen", **who)
    ids = list(ItemStatus.objects.filter(project=project, kind="issue").values_list("pk", flat=True))
    placed = words.order(ItemStatus, kind=Kind.ISSUE, ids=[made.pk, *ids[:-1]], **who)
    assert [word.order for word in placed] == [1, 2, 3, 4, 5, 6, 7]
    words.delete(ItemStatus, pk=made.pk, **who)
    with refused(ErrorCode.NOT_FOUND):
        words.delete(ItemStatus, pk=made.pk, **who)
    for model, fields in ((IssueType, {"color": "#123abc"}), (AgileRole, {"estimates": False}), (Point, {"value": 4})):
        word: Any = words.add(model, name="X1", **fields, **who)
        words.change(model, pk=word.pk, name="X2", **who)
        with refused(ErrorCode.CONFLICT, "already"):
            words.add(model, name="x2", **who)
        words.delete(model, pk=word.pk, **who)
    assert set(kinds(project)) == {"project.created", "project.words"} or "project.words" in kinds(project)
    assert kinds(project).count("project.words") == 4 + 9


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (ItemStatus, {"name": "x"}), (IssueType, {"name": "x", "kind": Kind.EPIC}), (IssueType, {"name": ""}),
        (IssueType, {"name": "x" * 81}), (Point, {"name": "x" * 21}), (Point, {"name": "x", "value": -1}),
        (IssueType, {"name": "x", "color": "red"}), (IssueType, {"name": "x", "slug": "y"}), (IssueType, {}),
        (ItemStatus, {"name": "x", "kind": Kind.EPIC, "category": "odd"}),
        (ItemStatus, {"name": "x", "kind": Kind.EPIC, "core": "done"}),
        (ItemStatus, {"name": "x", "kind": Kind.TASK, "core": "odd"}),
    ],
)  # fmt: skip
def test_a_word_that_cannot_be_is_refused(project: Project, mia: Actor, model: Any, fields: dict[str, Any]) -> None:
    vocabulary.ensure(project)
    before = model.objects.count()
    with refused(ErrorCode.INVALID_INPUT):
        words.add(model, project=project, actor=mia, **fields)
    assert model.objects.count() == before


def test_a_word_in_use_stays(project: Project, mia: Actor) -> None:
    who: dict[str, Any] = {"project": project, "actor": mia}
    row = story(project, points={"back": 3})
    with refused(ErrorCode.CONFLICT, "1 uses New"):
        words.delete(ItemStatus, pk=row.status_id, **who)
    with refused(ErrorCode.CONFLICT, "uses Back"):
        words.delete(AgileRole, pk=AgileRole.objects.get(project=project, slug="back").pk, **who)
    for status in ItemStatus.objects.filter(project=project, kind="epic").order_by("-pk")[:3]:
        words.delete(ItemStatus, pk=status.pk, **who)
    with refused(ErrorCode.CONFLICT, "last status"):
        words.delete(ItemStatus, pk=ItemStatus.objects.get(project=project, kind="epic").pk, **who)


def test_another_projects_words_are_unknown(project: Project, other: Project, mia: Actor) -> None:
    vocabulary.ensure(project)
    vocabulary.ensure(other)
    foreign = IssueType.objects.filter(project=other).earliest("pk")
    for act in (words.change, words.delete):
        with refused(ErrorCode.NOT_FOUND):
            act(IssueType, project=project, pk=foreign.pk, actor=mia)
    with refused(ErrorCode.INVALID_INPUT, "each of them once"):
        words.order(IssueType, project=project, ids=[foreign.pk], actor=mia)


def test_what_a_status_means_decides_what_is_finished(project: Project, mia: Actor) -> None:
    row = story(project)
    words.change(ItemStatus, project=project, pk=row.status_id, actor=mia, category="done")
    assert UserStory.objects.get(pk=row.pk).closed_at is not None
    words.change(ItemStatus, project=project, pk=row.status_id, actor=mia, category="new")
    assert UserStory.objects.get(pk=row.pk).closed_at is None


def test_a_member_has_one_agile_role(project: Project, other: Project, mia: Actor) -> None:
    vocabulary.ensure(project)
    vocabulary.ensure(other)
    user_id = int(mia.user_id or 0)
    roles = list(AgileRole.objects.filter(project=project))
    who: dict[str, Any] = {"project": project, "user_id": user_id, "actor": mia}
    with refused(ErrorCode.NOT_FOUND):
        words.set_member_role(role_id=roles[0].pk, **who)
    projects.set_member(project_id=project.pk, user_id=user_id, role="member", actor=mia)
    for role in (roles[0], roles[1], roles[1]):
        words.set_member_role(role_id=role.pk, **who)
    assert MemberRole.objects.get().role == roles[1]
    with refused(ErrorCode.INVALID_INPUT, "Invalid roleId"):
        words.set_member_role(role_id=AgileRole.objects.filter(project=other).earliest("pk").pk, **who)
    words.set_member_role(role_id=None, **who)
    assert not MemberRole.objects.exists()
    assert kinds(project).count("project.member") == 4


# --- the backlog ------------------------------------------------------------------------------------------------------


def test_epics_are_paged_and_stories_without_one_come_last(project: Project, mia: Actor) -> None:
    for number in range(planning.EPICS + 3):
        items.create(Kind.EPIC, project=project, actor=mia, fields={"subject": f"E{number}"})
    story(project, "beside")
    usual = planning.ItemFilter()
    first = planning.backlog(project_id=project.pk, wanted=usual)
    assert (len(first.groups), first.page.last) == (planning.EPICS, 2)
    last = planning.backlog(project_id=project.pk, wanted=usual, page="2")
    assert [group.key for group in last.groups][-1] == planning.NO_EPIC and len(last.groups) == 4
    assert planning.backlog(project_id=project.pk, wanted=usual, page="99").page.number == 2


def test_a_finished_epic_is_shown_while_it_has_an_open_story(project: Project, mia: Actor) -> None:
    vocabulary.ensure(project)
    done = ItemStatus.objects.get(project=project, kind="epic", category="done")
    epic = items.create(Kind.EPIC, project=project, actor=mia, fields={"subject": "E", "status_id": done.pk})
    usual = planning.ItemFilter()
    assert planning.backlog(project_id=project.pk, wanted=usual).groups == []
    row = story(project, epic_id=epic.pk)
    work.create(project=project, story_id=row.pk, actor=mia, fields={"subject": "t"})
    (group,) = planning.backlog(project_id=project.pk, wanted=usual).groups
    assert isinstance(group.epic, Epic) and group.progress == planning.Progress(1, 0)
