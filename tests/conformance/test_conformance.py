"""The official MCP conformance suites against DevFlow, with and without the fixtures they ask for."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from devflow.config import PROJECT_ROOT
from tests.acceptance.serving import serving
from tests.conformance.suites import Report, run

pytestmark = pytest.mark.slow

APPLICATION = "tests.conformance.asgi:application"
STABLE, NEXT = "conformance-stable", "conformance-next"
EXCEPTIONS: dict[str, str] = yaml.safe_load(Path(__file__).with_name("exceptions.yaml").read_text())

NEED_NO_FIXTURE = frozenset(
    {
        "server-initialize",
        "server-session-lifecycle",
        "logging-set-level",
        "ping",
        "completion-complete",
        "tools-list",
        "server-sse-polling",
        "server-sse-multiple-streams",
        "resources-list",
        "prompts-list",
        "dns-rebinding-protection",
        "sep-2164-resource-not-found",
        "caching",
        "http-header-validation",
        "input-required-result-missing-input-response",
        "input-required-result-unsupported-methods",
        "input-required-result-ignore-extra-params",
        "input-required-result-validate-input",
        "tasks-status-notifications",
        "sep-2640-skills-directory",
        "sep-2640-skills-enumeration",
        "sep-2640-skills-manifest",
    }
)


def without_fixtures(key: str) -> dict[str, str]:
    return {"DEVFLOW_TEST_CONFORMANCE_KEY": key}


def with_fixtures(key: str) -> dict[str, str]:
    return {**without_fixtures(key), "DEVFLOW_TEST_CONFORMANCE_FIXTURES": "1"}


def explained(report: Report) -> str:
    return f"fails without being listed: {sorted(report.failed - EXCEPTIONS.keys())}\n{report.output}"


@pytest.fixture(scope="module", params=["uvicorn", "daphne"])
def url_with_fixtures(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("fixtures") / "home"
    with serving(home, APPLICATION, server=request.param, env=with_fixtures) as server:
        yield server.url


@pytest.fixture(scope="module")
def url_of_the_product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("plain") / "home", APPLICATION, env=without_fixtures) as server:
        yield server.url


@pytest.mark.parametrize("suite", [STABLE, NEXT])
def test_every_scenario_passes_but_the_listed_ones(suite: str, url_with_fixtures: str, tmp_path: Path) -> None:
    report = run(suite, url_with_fixtures, tmp_path)
    assert report.failed <= EXCEPTIONS.keys(), explained(report)
    assert not report.passed & EXCEPTIONS.keys(), "these pass now: take them off the list of exceptions"


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
def test_every_scenario_of_a_revision_passes_on_its_wire_but_the_listed_ones(
    revision: str, url_with_fixtures: str, tmp_path: Path
) -> None:
    report = run(NEXT, url_with_fixtures, tmp_path, "--spec-version", revision)
    assert report.failed <= EXCEPTIONS.keys(), explained(report)
    if revision == "2026-07-28":
        assert not report.failed, "the newest revision has no exceptions"


@pytest.mark.parametrize("suite", [STABLE, NEXT])
def test_what_needs_no_fixture_passes_on_the_product_as_it_is(
    suite: str, url_of_the_product: str, tmp_path: Path
) -> None:
    report = run(suite, url_of_the_product, tmp_path)
    assert report.passed == NEED_NO_FIXTURE & (report.passed | report.failed), report.output


def test_the_page_explains_every_exception() -> None:
    page = (PROJECT_ROOT / "docs" / "conformance.md").read_text()
    assert [name for name in EXCEPTIONS if f"`{name}`" not in page] == []
