"""Insights in a real browser: charts drawn from the tables beside them, in the colours of the scheme."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.pages.test_browser import PHONE, OpenPage, browser, faults, login, opened, violations
from tests.running import RunningServer, running

__all__ = ["browser", "faults", "login", "opened"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

DESKTOP = {"width": 1280, "height": 900}
CHARTS = 12
DRAWN = """(canvas) => {
    const chart = Chart.getChart(canvas);
    const { width, height } = canvas;
    const pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data;
    return {
        name: canvas.closest(".figure").id,
        labels: chart.data.labels,
        series: chart.data.datasets.map(({ label, data, borderColor }) => ({ label, data, colour: borderColor })),
        animated: chart.options.animation !== false,
        blank: !pixels.some((value) => value),
    };
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """The demo project with a story in a sprint, after a few calls of two clients, one of them refused."""
    with running(tmp_path_factory.mktemp("insights") / "home") as server:
        calls: list[tuple[str, dict[str, str]]] = [("get_kanban_board", {})] * 4 + [
            ("release_task", {"task_id": "task-9999"})
        ]
        for client in ("cursor/1.0", "opencode/2.0"):
            headers = {"X-API-Key": server.key, "X-Agent-Id": "a", "X-Project": "demo", "User-Agent": client}
            for tool, args in calls:
                httpx.post(f"{server.url}/mcp/execute", json={"tool": tool, "args": args}, headers=headers)
        plan(server)
        yield server


def plan(server: RunningServer) -> None:
    """One story in a sprint that runs."""
    today = datetime.now(UTC).date()
    days = {"starts_on": str(today - timedelta(days=7)), "ends_on": str(today + timedelta(days=6))}
    with httpx.Client(base_url=f"{server.url}/api/v1/", headers={"X-API-Key": server.key}) as client:
        sprint = client.post("sprints/", json={"project": "demo", "name": "Sprint 1", **days}).raise_for_status().json()
        story = {"project": "demo", "subject": "Pay by card", "sprint": sprint["id"], "points": {"back": 3}}
        client.post("stories/", json=story).raise_for_status()


def charts(page: Any) -> dict[str, Any]:
    """What is drawn, by figure, once every call was written down and every chart is there."""
    page.wait_for_function(
        "count => document.querySelectorAll('.chart:not([hidden]) canvas').length === count", arg=CHARTS
    )
    found = [canvas.evaluate(DRAWN) for canvas in page.locator("canvas[data-chart]").all()]
    return {chart["name"]: chart for chart in found}


def ready(page: Any) -> Any:
    """Reload until the recorder has written the calls down, which it does once a second."""
    for _ in range(20):
        if page.locator("canvas[data-chart]").count() == CHARTS:
            break
        page.reload()
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_every_chart_is_drawn_and_no_rule_is_broken(
    server: RunningServer, opened: OpenPage, viewport: Any, scheme: str
) -> None:
    page = ready(opened("/insights/?project=demo", viewport=viewport, color_scheme=scheme, reduced_motion="reduce"))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    drawn = charts(page)
    assert [name for name, chart in drawn.items() if chart["blank"] or chart["animated"]] == []
    assert all(url.startswith(server.url) for url in asked), asked
    for summary in page.locator(".under summary").all():
        summary.click()
    assert violations(page) == []
    assert not page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")


def test_a_chart_shows_what_its_table_says(opened: OpenPage) -> None:
    page = ready(opened("/insights/?project=demo&days=7"))
    drawn = charts(page)
    last = page.locator("#flow tbody tr").last
    heads = page.locator("#flow thead th").all_text_contents()
    row = dict(zip(heads, last.locator("th, td").all_text_contents(), strict=True))
    flow = {one["label"]: one["data"][-1] for one in drawn["flow"]["series"]}
    assert flow == {name: int(row[name]) for name in flow}
    assert sum(flow.values()) == 14
    assert drawn["flow"]["labels"][-1] == row["Day"]
    assert drawn["tools"]["labels"] == page.locator("#tools tbody th").all_text_contents()
    assert set(drawn["clients"]["labels"]) == {"cursor", "opencode"}
    assert drawn["flow"]["animated"]


def test_the_colours_follow_the_scheme_of_the_system_and_of_the_page(opened: OpenPage) -> None:
    page = ready(opened("/insights/?project=demo", color_scheme="light"))

    def colours() -> list[str]:
        return [one["colour"] for one in charts(page)["flow"]["series"]]

    light = colours()
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(
        "before => Chart.getChart(document.querySelector('#flow canvas')).data.datasets[0].borderColor !== before",
        arg=light[0],
    )
    dark = colours()
    assert not set(light) & set(dark)
    page.locator("#scheme").click()
    assert page.evaluate("document.documentElement.dataset.scheme") == "light"
    assert colours() == light
    page.locator("#scheme").click()
    assert colours() == dark


def test_the_period_the_part_and_the_file_are_reached_with_the_keyboard(opened: OpenPage) -> None:
    page = ready(opened("/insights/?project=demo"))
    page.get_by_role("link", name="7 days").press("Enter")
    page.wait_for_url("**days=7**")
    part = page.get_by_label("Burn down")
    part.select_option(label="Phase 1. Analysis")
    page.get_by_role("button", name="Show").press("Enter")
    page.wait_for_url("**of=phase-1#burndown")
    assert "days=7" in page.url
    assert "Phase 1. Analysis" in page.locator("#burndown").inner_text()
    page.locator("#burndown summary").press("Enter")
    assert page.locator("#burndown tbody tr").count() == 7
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV of Burndown").press("Enter")
    assert download.value.suggested_filename == "demo-burndown-7-days.csv"
    assert download.value.path().read_text().startswith("Day,Open,Added,Done,Called off\n")
