"""The scene of the contract's tests in a Taiga on loopback: two projects with the same things in them."""

from typing import Any

import pytest

from devflow.actors import SYSTEM
from tests.fakes.taiga_server import TaigaServer
from tests.taiga.conftest import Scene, callers

from .scenes import ADMIN, PASSWORD

PATHS = {"epic": "epics", "user_story": "userstories", "task": "tasks", "issue": "issues"}


def remote_scene(request: pytest.FixtureRequest) -> Scene:
    from workflow.models import Project
    from workflow.services import projects
    from workflow.taiga import remotes, transport

    taiga = TaigaServer()
    taiga.__enter__()
    request.addfinalizer(lambda: taiga.__exit__(None, None, None))
    request.addfinalizer(transport.close)
    world = taiga.world
    author = world.users[5]
    for at, table in enumerate(("epic", "userstory", "task", "issue"), 1):  # Taiga counts each kind's from 1
        world.counts[f"{table}-statuses"] = 1000 * at
    ada = world.user("ada", "secret", name="Ada Byron")

    def made(slug: str) -> tuple[Project, int, dict[str, dict[str, Any]]]:
        far = world.project({"name": slug.title()})["id"]
        world.join(far, ada, "back")
        epic = world.create("epics", {"project": far, "subject": f"Epic of {slug}"}, author)
        fields = {"project": far, "subject": f"Story of {slug}", "description": "As somebody I want this."}
        story = world.create("userstories", fields, author)
        world.relate(epic["id"], {"epic": epic["id"], "user_story": story["id"]})
        task = world.create("tasks", {"project": far, "subject": f"Task of {slug}", "user_story": story["id"]}, author)
        issue = world.create("issues", {"project": far, "subject": f"Issue of {slug}"}, author)
        project = projects.create(slug=slug, name=slug.title())
        remotes.connect(
            project, url=taiga.url, actor=SYSTEM, username=ADMIN, password=PASSWORD, remote=str(far), is_trusted=True
        )
        return project, far, {"epic": epic, "user_story": story, "task": task, "issue": issue}

    def statuses(far: int) -> dict[str, list[int]]:
        tables = {"epic": "epic", "user_story": "userstory", "task": "task", "issue": "issue"}
        return {kind: [row["id"] for row in world.own(f"{name}-statuses", far)] for kind, name in tables.items()}

    project, far, items = made("shop")
    other, far_other, foreign = made("bank")
    days = {"estimated_start": "2026-01-01", "estimated_finish": "2026-01-14"}
    sprint = world.milestone({"project": far, "name": "One", **days})
    role = next(row for row in world.own("roles", far) if row["slug"] == "back")
    return Scene(
        project=project.pk,
        slug=project.slug,
        elsewhere=other.pk,
        ids={kind: row["id"] for kind, row in items.items()},
        refs={kind: row["ref"] for kind, row in items.items()},
        foreign={kind: row["id"] for kind, row in foreign.items()},
        statuses=statuses(far),
        foreign_statuses=statuses(far_other),
        member=ada["id"],
        type_id=world.own("issue-types", far)[0]["id"],
        sprint=sprint["id"],
        role="back",
        role_id=role["id"],
        caller=callers(slug=project.slug),
        lost=callers(agent="lost"),
        is_remote=True,
        more={"taiga": taiga},
    )
