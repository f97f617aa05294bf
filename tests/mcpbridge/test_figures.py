"""The log of calls in figures."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from devflow import ports
from mcpbridge import figures
from mcpbridge.models import ToolCall
from workflow.models import Project
from workflow.services import projects

SINCE = datetime(2025, 6, 14, tzinfo=UTC)


@pytest.fixture
def project(db: None) -> Project:
    return projects.create(slug="shop", name="Shop")


def called(project: Project, tool: str = "get_tasks", *, ms: float = 10, day: int = 14, **fields: Any) -> ToolCall:
    fields = {"outcome": "ok", "client": "cursor", **fields}
    at = datetime(2025, 6, day, 23, 59, tzinfo=UTC)
    return ToolCall.objects.create(
        project=project, tool=tool, duration_ms=ms, at=at, trace_id="t", worker="w", transport="http", **fields
    )


def of(project: Project) -> ports.CallFigures:
    return ports.call_figures().figures(project.pk, since=SINCE)


def test_calls_are_counted_by_day_tool_client_and_error(project: Project) -> None:
    for number in range(1, 21):
        called(project, ms=number)
    called(project, "create_task", ms=500, day=15, outcome="conflict", client="")
    with CaptureQueriesContext(connection) as seen:
        found = of(project)
    assert len(seen) == 1
    assert (found.total.calls, found.total.failed, found.counted_from) == (21, 1, "2025-06-14")
    assert [(day.name, day.calls, day.failed) for day in found.days] == [("2025-06-14", 20, 0), ("2025-06-15", 1, 1)]
    assert (found.days[0].p50, found.days[0].p95) == (0.010, 0.019)
    assert [(tool.name, tool.calls) for tool in found.tools] == [("get_tasks", 20), ("create_task", 1)]
    assert [client.name for client in found.clients] == ["cursor", "unknown"]
    assert [(error.name, error.calls) for error in found.errors] == [("conflict", 1)]


def test_older_calls_and_those_of_another_project_are_not_counted(project: Project) -> None:
    called(project, day=13)
    called(projects.create(slug="other", name="Other"))
    found = of(project)
    assert found.total == ports.CallTally("", 0, 0, 0.0, 0.0)
    assert not [*found.days, *found.tools, *found.clients, *found.errors]


def test_of_very_many_calls_the_newest_are_counted_and_the_first_whole_day_is_said(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "MOST_CALLS", 5)
    for day in (14, 14, 15, 15, 15, 16):
        called(project, day=day)
    found = of(project)
    assert found.total.calls == 5
    assert found.counted_from == "2025-06-15"
    assert [(day.name, day.calls) for day in found.days] == [("2025-06-15", 3), ("2025-06-16", 1)]


def test_no_more_names_are_given_than_somebody_reads(project: Project) -> None:
    for number in range(figures.MOST_NAMES + 5):
        called(project, f"tool_{number}")
    called(project, "tool_54")
    found = of(project)
    assert len(found.tools) == figures.MOST_NAMES
    assert found.tools[0].name == "tool_54"


def test_a_days_calls_end_at_midnight_utc(project: Project) -> None:
    call = called(project)
    ToolCall.objects.filter(pk=call.pk).update(at=SINCE + timedelta(days=1))
    assert [day.name for day in of(project).days] == ["2025-06-15"]
