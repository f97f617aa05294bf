"""The workflow's side of `devflow.ports.Directory`: projects and agents for the protocol layer.

Every call asks for its project and agent, so both are remembered for a few seconds per process. What is remembered
is which rows they are, never what they may do.
"""

import time
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from django.db import DatabaseError, transaction

from devflow.ports import AgentRef, CallSeen, HealthReport, KeyScope, ProjectRef
from workflow.models import Project
from workflow.selectors import agents as agent_selectors
from workflow.selectors import projects as project_selectors
from workflow.services import agents, claims, projects

REMEMBER_SECONDS = 3.0
REMEMBER_AT_MOST = 10_000

T = TypeVar("T")


def health() -> HealthReport:
    """The engine works in this process: it is up when its tables answer."""
    try:
        Project.objects.exists()
    except DatabaseError as exc:
        return HealthReport("down", str(exc))
    return HealthReport("up")


class Remembered(Generic[T]):
    """Values by key, each for `REMEMBER_SECONDS` after the transaction that looked them up has committed."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[float, T]] = {}

    def get(self, key: Hashable) -> T | None:
        until, value = self._known.get(key, (0.0, None))
        return value if until > time.monotonic() else None

    def put(self, key: Hashable, value: T) -> None:
        transaction.on_commit(lambda: self._keep(key, value), robust=True)

    def _keep(self, key: Hashable, value: T) -> None:
        if len(self._known) >= REMEMBER_AT_MOST:
            self._known.clear()
        self._known[key] = (time.monotonic() + REMEMBER_SECONDS, value)

    def forget(self) -> None:
        self._known.clear()


def _ref(project: Project) -> ProjectRef:
    return ProjectRef(id=project.pk, slug=project.slug, name=project.name)


class WorkflowDirectory:
    def __init__(self) -> None:
        self._projects: Remembered[ProjectRef] = Remembered()
        self._agents: Remembered[AgentRef] = Remembered()

    def forget(self) -> None:
        """Look everything up anew."""
        self._projects.forget()
        self._agents.forget()

    def project_of(self, scope: KeyScope, *, slug: str | None, agent_name: str) -> ProjectRef:
        key = (scope, slug, agent_name)
        known = self._projects.get(key)
        if known is None:
            known = _ref(project_selectors.of_call(scope, slug=slug, agent_name=agent_name))
            self._projects.put(key, known)
        return known

    def remember_project(self, scope: KeyScope, *, slug: str, agent_name: str) -> ProjectRef:
        chosen = _ref(projects.remember(scope=scope, slug=slug, agent_name=agent_name))
        transaction.on_commit(self._projects.forget)
        return chosen

    def visible_projects(self, scope: KeyScope) -> Sequence[ProjectRef]:
        return [_ref(project) for project in project_selectors.visible(scope)]

    def role_allows(self, scope: KeyScope, project_id: int, *, write: bool) -> bool:
        if scope.project_id not in (None, project_id):
            return False
        if scope.user_id is None:
            return True
        if write:
            return project_selectors.may_write(user_id=scope.user_id, project_id=project_id)
        return project_selectors.visible(scope).filter(pk=project_id).exists()

    def may_administer(self, scope: KeyScope, project_id: int) -> bool:
        if scope.project_id not in (None, project_id):
            return False
        return scope.user_id is None or project_selectors.may_administer(user_id=scope.user_id, project_id=project_id)

    def contact(self, project_id: int, agent_name: str, *, session: str, client: str, transport: str) -> AgentRef:
        key = (project_id, agent_name, session, client, transport)
        known = self._agents.get(key)
        if known is None:
            agent = agents.contact(
                project_id=project_id, name=agent_name, session=session, client=client, transport=transport
            )
            known = AgentRef(id=agent.pk, name=agent.name, project_id=project_id)
            self._agents.put(key, known)
        return known

    def record_calls(self, agent_id: int, calls: Sequence[CallSeen]) -> None:
        agents.record_calls(agent_id=agent_id, calls=calls)

    def unread(self, agent_id: int) -> int:
        return agent_selectors.unread(agent_id=agent_id)

    def held_task(self, agent_id: int, *, session: str) -> str:
        task = claims.current(agent_id=agent_id, session=session)
        return task.public_id if task else ""
