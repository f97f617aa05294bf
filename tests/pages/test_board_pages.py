"""The board's pages without a browser: what they show, to whom, and what they refuse."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from devflow.actors import SYSTEM
from tests.pages.conftest import LogIn
from workflow.models import Event, Project, SavedView, Task
from workflow.selectors.board import place
from workflow.selectors.tasks import cards, with_status
from workflow.services import projects, tasks, views

PARTIAL = {"HX-Request": "true"}


def shown(page: Any) -> list[str]:
    return re.findall(r'class="card [a-z]+"\s+id="(task-[0-9]+)"', page.content.decode())


def place_of(public_id: str) -> str:
    (card,) = cards(with_status(Task.objects.filter(pk=public_id[5:]), timezone.now()))
    return place(card)


def add(project: Project, number: int, **more: Any) -> list[Task]:
    values: dict[str, Any] = {"phase_number": 1, "actor": SYSTEM, **more}
    return [tasks.create(project_id=project.pk, description=f"More {one}", **values) for one in range(number)]


def test_a_board_shows_only_what_its_address_asks_for(mia: Client, project: Project) -> None:
    (tagged,) = add(project, 1, tags=["rare"])
    assert shown(mia.get("/board/shop/?tag=rare")) == [tagged.public_id]
    assert shown(mia.get("/board/shop/?tag=rare", headers=PARTIAL)) == [tagged.public_id]
    page = mia.get("/board/shop/?tag=never").content.decode()
    assert "Nothing matches" in page
    assert "tag: never" in page


def test_lanes_hold_every_card_once(mia: Client, project: Project) -> None:
    every = sorted(one.public_id for one in Task.objects.filter(project=project))
    for lanes in ("phase", "epic", "agent", "priority"):
        page = mia.get(f"/board/shop/?lanes={lanes}")
        assert sorted(shown(page)) == every
        assert 'class="lane"' in page.content.decode()


def test_a_long_column_goes_on_behind_its_last_card(mia: Client, project: Project) -> None:
    add(project, 60)
    first = shown(mia.get("/board/shop/"))
    ready = [
        f"task-{pk}"
        for pk in Task.objects.filter(project=project, status="ready").order_by("position").values_list("pk", flat=True)
    ]
    assert [one for one in first if one in ready] == ready[:50]
    page = mia.get(f"/board/shop/more?column=ready&after={place_of(ready[49])}")
    assert shown(page) == ready[50:]
    assert "data-more" not in page.content.decode()


def test_done_tasks_go_on_from_the_newest(mia: Client, project: Project) -> None:
    made = add(project, 55)
    now = timezone.now()
    for number, task in enumerate(made):
        Task.objects.filter(pk=task.pk).update(
            status="done", completed_at=now - timedelta(minutes=number // 2), ready_since=None
        )
    newest = [
        f"task-{pk}"
        for pk in Task.objects.filter(status="done").order_by("-completed_at", "-pk").values_list("pk", flat=True)
    ]
    first = [one for one in shown(mia.get("/board/shop/")) if one in newest]
    assert first == newest[:50]
    last = place_of(newest[49])
    assert shown(mia.get(f"/board/shop/more?column=done&after={place_of(newest[49])}")) == newest[50:]
    Task.objects.filter(pk=newest[49][5:]).delete()
    assert shown(mia.get(f"/board/shop/more?column=done&after={last}")) == newest[50:]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "column=ready",
        "column=nowhere&after=1",
        "column=ready&after=x",
        "column=ready&after=" + "9" * 30,
        "column=done&after=1" + "0" * 17 + "." + "0" * 17,
        "column=ready&after=" + "0" * 17 + "." + "0" * 17,
    ],
)
def test_more_of_nothing_is_refused_in_words(query: str, mia: Client, project: Project) -> None:
    page = mia.get(f"/board/shop/more?{query}")
    assert page.status_code == 400
    assert "Name a column" in page.content.decode()


def test_another_projects_cards_are_not_shown_as_more(mia: Client, log_in: LogIn, project: Project) -> None:
    other = projects.create(slug="other", name="Other")
    (foreign,) = add(other, 1)
    first = f"0{0:017d}.{0:017d}"
    assert mia.get(f"/board/other/more?column=ready&after={first}").status_code == 404
    seen = shown(mia.get(f"/board/shop/more?column=ready&after={first}"))
    assert seen
    assert foreign.public_id not in seen


def test_a_view_is_kept_written_over_and_forgotten_by_the_one_whose_it_is(
    mia: Client, log_in: LogIn, project: Project
) -> None:
    page = mia.post("/board/shop/views?tag=auth&nonsense=1", {"name": "Sign-in"})
    assert (page.status_code, page.headers["Location"]) == (302, "/board/shop/?tag=auth")
    mia.post("/board/shop/views?tag=auth&q=token", {"name": "Sign-in"})
    view = SavedView.objects.get()
    assert view.query == "tag=auth&q=token"
    assert "Sign-in" in mia.get("/board/shop/").content.decode()
    noa = log_in(project, name="noa", role="viewer")
    assert "Sign-in" not in noa.get("/board/shop/").content.decode()
    noa.post("/board/shop/views", {"name": "Sign-in", "forget": "1"})
    assert SavedView.objects.count() == 1
    mia.post("/board/shop/views", {"name": "Sign-in", "forget": "1"})
    assert not SavedView.objects.exists()


def test_a_person_keeps_so_many_views_and_none_without_a_name(
    mia: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "MOST", 1)
    for name in ("One", "Two"):
        page = mia.post("/board/shop/views", {"name": name}, follow=True)
    assert "Forget one of them first" in page.content.decode()
    for name in ("", " ", "x" * 61):
        assert "needs a name" in mia.post("/board/shop/views", {"name": name}, follow=True).content.decode()
    assert [view.name for view in SavedView.objects.all()] == ["One"]


def test_somebody_who_may_only_look_changes_nothing(log_in: LogIn, project: Project) -> None:
    looker = log_in(project, role="viewer")
    task = Task.objects.filter(project=project).earliest("pk")
    before = Event.objects.count()
    page = looker.get("/board/shop/").content.decode()
    assert "data-writes" not in page
    assert "data-quick" not in page
    assert looker.post("/board/shop/", {"description": "x", "phase": 1, "priority": "low"}).status_code == 403
    for path, body in (
        (f"/api/v1/tasks/{task.pk}/move", {"column": "in_progress"}),
        (f"/api/v1/tasks/{task.pk}/undo", {}),
        ("/api/v1/tasks/bulk", {"ids": [task.public_id], "action": "cancel"}),
        ("/api/v1/tasks", {"project": "shop", "phase": 1, "description": "x"}),
    ):
        assert looker.post(path, body, content_type="application/json").status_code == 403, path
    assert Event.objects.count() == before


def test_a_task_is_made_where_its_card_is_wanted(mia: Client, project: Project) -> None:
    for column, status in (("backlog", "pending"), ("ready", "ready"), ("in_progress", "in_progress")):
        body = {"project": "shop", "phase": 1, "description": column, "column": column}
        made = mia.post("/api/v1/tasks", body, content_type="application/json")
        assert (made.status_code, made.json()["status"]) == (201, status), made.content
    body = {"project": "shop", "phase": 1, "description": "x", "column": "done"}
    assert mia.post("/api/v1/tasks", body, content_type="application/json").status_code == 422
    Project.objects.update(column_limits={"in_progress": 1})
    before = Task.objects.count()
    body |= {"column": "in_progress"}
    assert mia.post("/api/v1/tasks", body, content_type="application/json").status_code == 409
    assert Task.objects.count() == before, "refused: nothing is made"
