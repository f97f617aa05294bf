"""The things the workflow's tests start from."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import jsonschema_rs
import pytest
import time_machine
from django.contrib.auth.models import User
from django.utils import timezone

from devflow import actors
from devflow.actors import Actor
from devflow.errors import DevFlowError, ErrorCode
from devflow.ports import KeyScope
from mcpbridge.tooling import Caller, Scope, Tool, declared
from workflow.models import Project, Status, Task
from workflow.services import agents, tasks


def joined(project: Project, name: str, *, session: str = "s1") -> Actor:
    agent = agents.contact(project_id=project.pk, name=name, session=session, client="test", transport="rest")
    return actors.agent(agent_id=agent.pk, name=name, session=session, tool="test")


def person_named(name: str) -> Actor:
    user = User.objects.create_user(name)
    return actors.person(user_id=user.pk, name=name)


def made(project: Project, by: Actor, text: str = "Do it", *, phase: int = 2, **fields: Any) -> Task:
    return tasks.create(project_id=project.pk, phase_number=phase, description=text, actor=by, **fields)


def status_of(task: Task) -> Status:
    return Status(Task.objects.values_list("status", flat=True).get(pk=task.pk))


def fresh(task: Task) -> Task:
    return Task.objects.select_related("project", "phase", "assigned_agent").get(pk=task.pk)


@contextmanager
def refused(code: ErrorCode, *words: str) -> Iterator[pytest.ExceptionInfo[DevFlowError]]:
    """The block raises a DevFlowError with this code whose message and suggestion hold `words`."""
    with pytest.raises(DevFlowError) as caught:
        yield caught
    assert caught.value.code is code, caught.value.message
    said = f"{caught.value.message} {caught.value.suggestion}"
    for word in words:
        assert word in said, said


@contextmanager
def later(**ahead: float) -> Iterator[datetime]:
    with time_machine.travel(timezone.now() + timedelta(**ahead), tick=False):
        yield timezone.now()


def caller_for(project: Project, name: str = "ada", *, session: str = "s1", **changes: Any) -> Caller:
    scope = changes.pop("scope", KeyScope(key_id=1, project_id=project.pk))
    return Caller(
        scope=scope,
        key_name="test",
        scopes=frozenset(Scope),
        agent_name=name,
        session=session,
        client="test",
        **changes,
    )


def tool_named(name: str) -> Tool:
    return next(tool for tool in declared if tool.name == name)


def run(name: str, caller: Caller, /, **arguments: Any) -> dict[str, Any]:
    """Call a tool as the dispatcher does: arguments checked, the answer held against the published schema."""
    tool = tool_named(name)
    answer: dict[str, Any] = tool.output.dump_python(tool.run(caller, **tool.validate(arguments)), mode="json")
    jsonschema_rs.validate(dict(tool.output_schema), answer)
    return answer
