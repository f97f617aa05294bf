"""Insights: what the page shows, to whom, and its tables as files."""

import csv
import io
import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from devflow import actors
from mcpbridge.models import ToolCall
from tests.pages.conftest import LogIn
from workflow.models import Event, Kind, Phase, Project, Task
from workflow.services import agents, claims, projects, tasks, transitions
from workflow.services.agile import items, sprints
from workflow.views.figures import Cell, lasting
from workflow.views.insight_figures import FIGURES


@pytest.fixture
def lived(project: Project) -> Project:
    """A project with a task done by an agent, one that waits for it no more, and some calls."""
    agent = agents.contact(project_id=project.pk, name="ada", session="", client="", transport="http")
    actor = actors.agent(agent_id=agent.pk, name=agent.name)
    first = Task.objects.filter(project=project).earliest("pk")
    claims.start(project_id=project.pk, task_id=first.pk, actor=actor)
    transitions.finish(project_id=project.pk, task_id=first.pk, actor=actor)
    today = timezone.now().date()
    sprint = sprints.create(project=project, name="One", starts_on=today, ends_on=today, actor=actor)
    items.create(Kind.USER_STORY, project=project, actor=actor, fields={"subject": "Pay", "sprint_id": sprint.pk})
    for number in range(4):
        call(project, "get_tasks", duration_ms=10 * (number + 1))
    call(project, "=cmd()", outcome="not_found", duration_ms=1200)
    return project


def call(project: Project, tool: str, **fields: Any) -> None:
    fields = {"outcome": "ok", "at": timezone.now(), "client": "cursor", "duration_ms": 10, **fields}
    ToolCall.objects.create(project=project, tool=tool, trace_id="t", worker="w", transport="http", **fields)


def text_of(response: Any) -> str:
    assert response.status_code == 200, response.content
    content: str = response.content.decode()
    return content


def cells(page: str, figure: str) -> list[list[str]]:
    """The rows of a figure's table as they are read."""
    table = page.partition(f'id="{figure}"')[2].partition("</table>")[0].partition("<tbody>")[2]
    rows = table.split("<tr>")[1:]
    return [
        [" ".join(re.sub(r"<[^>]+>", "", cell).split()) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)]
        for row in rows
    ]


def read_csv(client: Client, name: str, **query: Any) -> list[list[str]]:
    response = client.get(f"/insights/{name}.csv", query)
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
    return list(csv.reader(io.StringIO(response.content.decode())))


def test_every_figure_has_a_chart_a_table_and_a_file(mia: Client, lived: Project) -> None:
    page = text_of(mia.get("/insights/"))
    for name in FIGURES:
        assert f'id="{name}"' in page
        assert cells(page, name), name
        assert f'href="/insights/{name}.csv?' in page
    assert page.count('<canvas role="img"') == len(FIGURES) == 12
    assert "1</b><span>task done in 30 days" in page
    assert "80.0 %</b><span>of 5 tool calls succeeded" in page


def test_the_tables_say_what_happened(mia: Client, lived: Project) -> None:
    page = text_of(mia.get("/insights/?days=7"))
    today = f"{timezone.now():%-d %b}"
    assert [len(cells(page, name)) for name in ("flow", "burndown", "attempts", "calls")] == [7, 7, 7, 7]
    assert cells(page, "flow")[-1] == [today, "0", "1", "0", "0", "1"]
    assert cells(page, "flow")[0][1:] == ["0", "0", "0", "0", "0"]
    assert cells(page, "burndown")[-1] == [today, "1", "2", "1", "0"]
    assert cells(page, "throughput")[-1] == [today, "1", "1"]
    assert cells(page, "attempts")[-1] == [today, "1", "0", "0", "0"]
    assert cells(page, "calls")[-1] == [today, "4", "1", "80.0 %"]
    assert cells(page, "tools")[0] == ["get_tasks", "4", "0", "100.0 %", "20 ms", "40 ms"]
    assert cells(page, "errors") == [["not_found", "1", "20.0 %"]]
    assert cells(page, "cycle")[-1][1] == "1"
    assert cells(page, "cycle")[-1][4:] == ["0", "–", "–"]


def test_the_period_is_in_the_address_and_nonsense_is_the_usual_one(mia: Client, lived: Project) -> None:
    for asked, days in (("7", 7), ("30", 30), ("90", 90), ("", 30), ("31", 30), ("-1", 30), ("9" * 40, 30)):
        page = text_of(mia.get("/insights/", {"days": asked, "of": "phase-99"}))
        assert len(cells(page, "flow")) == days
        assert re.search(rf'aria-current="true">\s*{days} days', page)
    assert len(cells(text_of(mia.get("/insights/?days=90")), "throughput")) == 13


def test_a_part_of_the_work_is_burned_down_by_itself(mia: Client, lived: Project) -> None:
    epic = Task.objects.filter(project=lived).latest("pk")
    for name in ("One", "Two", "Three"):
        tasks.create(project_id=lived.pk, phase_number=3, description=name, actor=actors.SYSTEM, parent=epic.pk)
    assert cells(text_of(mia.get("/insights/")), "burndown")[-1][1] == "4"
    for part in ("phase-3", f"epic-{epic.pk}"):
        page = text_of(mia.get("/insights/", {"of": part}))
        assert cells(page, "burndown")[-1][1] == "3"
        assert re.search(rf'<option value="{part}"\s+dir="auto"\s+selected', page)
        assert f"of={part}" in page.partition('href="/insights/burndown.csv')[2][:100]
        assert read_csv(mia, "burndown", of=part)[-1][1] == "3"
    page = text_of(mia.get("/insights/", {"of": "phase-2"}))
    assert "it has no tasks yet" in page.partition('id="burndown"')[2].partition("</section>")[0]


def test_a_file_has_plain_numbers_and_no_formula(mia: Client, lived: Project) -> None:
    Phase.objects.filter(project=lived, number=1).update(name="Plan; =1+1")
    lines = read_csv(mia, "tools", days=7)
    assert lines[0] == ["Tool", "Succeeded", "Failed", "Success rate (%)", "p50 (seconds)", "p95 (seconds)"]
    assert lines[1:] == [["get_tasks", "4", "0", "100.0", "0.02", "0.04"], ["'=cmd()", "0", "1", "0.0", "1.2", "1.2"]]
    assert read_csv(mia, "throughput")[0] == ["Day", "1. Plan; =1+1", "All"]
    flow = read_csv(mia, "flow", days=7)
    assert len(flow) == 8
    assert flow[-1] == [f"{timezone.now():%Y-%m-%d}", "0", "1", "0", "0", "1"]
    response = mia.get("/insights/flow.csv?days=7")
    assert response.headers["Content-Disposition"] == 'attachment; filename="shop-flow-7-days.csv"'
    assert response.headers["Cache-Control"] == "private, no-store"


@pytest.mark.parametrize("name", list(FIGURES))
def test_a_file_has_the_rows_of_the_table_beside_the_chart(mia: Client, lived: Project, name: str) -> None:
    shown = cells(text_of(mia.get("/insights/?days=90")), name)
    lines = read_csv(mia, name, days=90)
    assert len(lines) == len(shown) + 1
    assert {len(line) for line in lines} == {len(shown[0])}


def test_a_new_project_is_told_what_has_to_happen_first(log_in: LogIn, db: None) -> None:
    client = log_in(projects.create(slug="empty", name="Empty"))
    page = text_of(client.get("/insights/"))
    assert "Nothing to count yet" in page
    assert 'href="/board/empty/"' in page
    assert "<canvas" not in page
    assert read_csv(client, "flow") == [["Day", "Backlog", "Ready", "In progress", "Review", "Done"]]
    assert "Ask an administrator" in text_of(log_in(name="nobody").get("/insights/"))


def test_a_figure_without_rows_says_what_it_waits_for(mia: Client, project: Project) -> None:
    page = text_of(mia.get("/insights/"))
    assert "No task was done in this time" in page
    assert "once a client is connected" in page
    assert 'href="/insights/flow.csv?' in page
    assert 'href="/insights/cycle.csv?' not in page


def test_others_and_viewers_see_what_is_theirs(log_in: LogIn, lived: Project) -> None:
    other = projects.create(slug="other", name="Other")
    stranger = log_in(other, name="sid")
    for path in ("/insights/?project=shop", "/insights/flow.csv?project=shop"):
        assert stranger.get(path).status_code == 404
    assert "Nothing to count yet" in text_of(stranger.get("/insights/"))
    viewer = log_in(lived, name="vic", role="viewer")
    assert cells(text_of(viewer.get("/insights/?project=shop")), "flow")
    assert len(read_csv(viewer, "calls", project="shop", days=7)) == 8
    assert viewer.get("/insights/nothing.csv").status_code == 404
    assert viewer.post("/insights/").status_code == 405
    assert Client().get("/insights/flow.csv").status_code == 302
    nobody = log_in(name="nobody")
    assert nobody.get("/insights/flow.csv").status_code == 404


def test_names_that_people_gave_do_nothing_but_stand_there(mia: Client, lived: Project) -> None:
    Phase.objects.filter(project=lived, number=1).update(name="<script>alert(1)</script>")
    call(lived, "<img src=x>", client="\u202eevil")
    page = text_of(mia.get("/insights/"))
    assert "<script>alert" not in page
    assert "<img src=x>" not in page
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=|javascript:", page)


def test_the_page_takes_the_same_queries_however_long_the_history(mia: Client, lived: Project) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            mia.get("/insights/?days=90&of=phase-1")
        return len(seen)

    before = queries()
    phase = Phase.objects.get(project=lived, number=1)
    now = timezone.now()
    made = Task.objects.bulk_create(
        Task(project=lived, phase=phase, ref=1000 + n, subject="x", description="x", status="ready") for n in range(50)
    )
    Event.objects.bulk_create(
        Event(project=lived, kind="task.created", actor_kind="system", actor_name="x", task=task,
              at=now - timedelta(days=number), after={"status": "ready"})
        for number, task in enumerate(made)
    )  # fmt: skip
    for number in range(30):
        call(lived, f"tool_{number}", at=now - timedelta(days=number))
    assert queries() == before <= 16


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        *((0.0004, "0.4 ms"), (0.0074, "7.4 ms"), (0.34, "340 ms"), (1.25, "1.25 s"), (59.4, "59.4 s")),
        *((59.9, "1 min"), (250, "4 min 10 s"), (3600, "1 h"), (12_000, "3 h 20 min"), (187_200, "2 d 4 h")),
    ],
)
def test_durations_are_said_in_two_units_at_most(seconds: float, said: str) -> None:
    assert lasting(seconds) == said
    assert str(Cell(seconds, "s")) == said


def test_a_burndown_that_goes_down_says_when_nothing_is_left(mia: Client, project: Project) -> None:
    page = text_of(mia.get("/insights/?days=7"))
    assert "2 added and 0 done in 7 days, 2 open." in page
    Event.objects.filter(project=project).update(at=timezone.now() - timedelta(days=40))
    first = Task.objects.filter(project=project).earliest("pk")
    agent = agents.contact(project_id=project.pk, name="ada", session="", client="", transport="http")
    actor = actors.agent(agent_id=agent.pk, name="ada")
    claims.start(project_id=project.pk, task_id=first.pk, actor=actor)
    transitions.finish(project_id=project.pk, task_id=first.pk, actor=actors.SYSTEM)
    empty_on = timezone.now().date() + timedelta(days=7)
    page = text_of(mia.get("/insights/?days=7"))
    assert f"0 added and 1 done in 7 days, 1 open. At this pace nothing is left about {empty_on:%-d %B %Y}." in page
