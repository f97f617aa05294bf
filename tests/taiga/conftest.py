"""A project with an epic, a story, a task and an issue, whoever keeps it, and calls of the agile tools on it."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from mcpbridge import access, dispatcher, ratelimit
from mcpbridge.audit import recorder
from mcpbridge.envelopes import Outcome, as_taiga
from mcpbridge.models import ApiKey
from mcpbridge.tooling import Caller

Object = dict[str, Any]
KINDS = ("epic", "user_story", "task", "issue")


@dataclass
class Scene:
    """What a test starts from.

    `project` and `elsewhere` are DevFlow's own ids of two projects the key sees. `ids`, `refs` and `foreign` map kinds
    to the items of the one and of the other. `statuses` and `foreign_statuses` map kinds to the ids of their statuses.
    `caller` works in the project, `lost` has chosen none.
    """

    project: int
    slug: str
    elsewhere: int
    ids: Mapping[str, int]
    refs: Mapping[str, int]
    foreign: Mapping[str, int]
    statuses: Mapping[str, list[int]]
    foreign_statuses: Mapping[str, list[int]]
    member: int
    type_id: int
    sprint: int
    role: str
    role_id: int
    caller: Caller
    lost: Caller
    is_remote: bool = False
    more: Object = field(default_factory=dict)

    def outcome(self, tool: str, arguments: Object, caller: Caller | None = None, **more: Any) -> Outcome:
        return asyncio.run(dispatcher.call(tool, arguments, caller or self.caller, **more))

    def answer(self, tool: str, arguments: Object, caller: Caller | None = None) -> Object:
        """The envelope of `taiga.<tool>`."""
        return as_taiga(self.outcome(f"taiga.{tool}", arguments, caller))

    def data(self, tool: str, **arguments: Any) -> Any:
        """What `taiga.<tool>` gives; the test fails where it gives an error."""
        answer = self.answer(tool, arguments)
        assert answer["ok"], (tool, arguments, answer["error"])
        return answer["data"]

    def error(self, tool: str, caller: Caller | None = None, **arguments: Any) -> Any:
        answer = self.answer(tool, arguments, caller)
        assert not answer["ok"], (tool, arguments, answer)
        return answer["error"]

    def local(self, **fields: Any) -> Object:
        """Fields that only DevFlow's own projects have."""
        return {} if self.is_remote else fields


Prepare = Callable[[pytest.FixtureRequest], Scene]


def callers(*, agent: str = "planner", slug: str | None = None, rate: int = 0, **key: Any) -> Caller:
    issued, _ = ApiKey.objects.issue(
        name=f"taiga-{agent}", scopes=key.pop("scopes", ["read", "write"]), rate_per_minute=rate, **key
    )
    identity = access.keyring.look_up(issued.digest)
    assert identity is not None
    headers = {"x-agent-id": agent} | ({"x-project": slug} if slug else {})
    return access.caller_for(identity, transport="rest", headers=headers)


def local_scene(request: pytest.FixtureRequest) -> Scene:
    """DevFlow's own tables."""
    from django.contrib.auth import get_user_model

    from devflow.actors import SYSTEM
    from workflow.models import AgileRole, IssueType, ItemStatus, Kind, MemberRole, Membership, Project, Sprint
    from workflow.services import projects
    from workflow.services.agile import items, work

    user = get_user_model()._default_manager.create_user(username="ada", first_name="Ada", last_name="Byron")

    def made(slug: str) -> tuple[Project, dict[str, int], dict[str, int]]:
        project = projects.create(slug=slug, name=slug.title(), owner_id=user.pk)
        epic = items.create(Kind.EPIC, project=project, actor=SYSTEM, fields={"subject": f"Epic of {slug}"})
        story = items.create(
            Kind.USER_STORY,
            project=project,
            actor=SYSTEM,
            fields={"subject": f"Story of {slug}", "epic_id": epic.pk, "description": "As somebody I want this."},
        )
        task = work.create(project=project, story_id=story.pk, actor=SYSTEM, fields={"subject": f"Task of {slug}"})
        issue = items.create(Kind.ISSUE, project=project, actor=SYSTEM, fields={"subject": f"Issue of {slug}"})
        rows = {"epic": epic, "user_story": story, "task": task, "issue": issue}
        return project, {kind: row.pk for kind, row in rows.items()}, {kind: row.ref for kind, row in rows.items()}

    def statuses(project: Project) -> dict[str, list[int]]:
        return {
            kind: list(ItemStatus.objects.filter(project=project, kind=kind).values_list("pk", flat=True))
            for kind in KINDS
        }

    project, ids, refs = made("shop")
    other, foreign, _ = made("bank")
    role = AgileRole.objects.get(project=project, slug="back")
    MemberRole.objects.create(membership=Membership.objects.get(project=project, user=user), role=role)
    sprint = Sprint.objects.create(
        project=project, name="One", slug="one", starts_on="2026-01-01", ends_on="2026-01-14"
    )
    issue_type = IssueType.objects.filter(project=project).first()
    assert issue_type is not None
    return Scene(
        project=project.pk,
        slug=project.slug,
        elsewhere=other.pk,
        ids=ids,
        refs=refs,
        foreign=foreign,
        statuses=statuses(project),
        foreign_statuses=statuses(other),
        member=user.pk,
        type_id=issue_type.pk,
        sprint=sprint.pk,
        role=role.slug,
        role_id=role.pk,
        caller=callers(slug=project.slug),
        lost=callers(agent="lost"),
    )


def remote_scene(request: pytest.FixtureRequest) -> Scene:
    """A Taiga on loopback."""
    from tests.taiga_remote.contract import remote_scene

    return remote_scene(request)


PREPARE: dict[str, Prepare] = {"local": local_scene, "remote": remote_scene}
"""Who can keep the scene: the contract's tests run once for each. A remote one adds itself here."""


@pytest.fixture(params=sorted(PREPARE))
def scene(request: pytest.FixtureRequest, transactional_db: None) -> Iterator[Scene]:
    access.keyring.forget()
    ratelimit._limiter.cache_clear()
    recorder.__init__()  # type: ignore[misc]  # a new process would have a chain of its own too
    yield PREPARE[request.param](request)
    recorder.stop()


@pytest.fixture
def shop(request: pytest.FixtureRequest, transactional_db: None) -> Iterator[Scene]:
    """The scene in DevFlow's own tables, for what only they have."""
    access.keyring.forget()
    ratelimit._limiter.cache_clear()
    recorder.__init__()  # type: ignore[misc]  # as above
    yield local_scene(request)
    recorder.stop()
