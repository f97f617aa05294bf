"""People in front of the pages."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.cache import caches
from django.test import Client

from devflow import actors
from mcpbridge import access
from workflow.models import Membership, Project
from workflow.services import agents, projects, tasks

LogIn = Callable[..., Client]


@pytest.fixture(autouse=True)
def no_limits_left_over() -> Iterator[None]:
    caches["doors"].clear()
    access.keyring.forget()
    yield
    caches["doors"].clear()


@pytest.fixture
def project(db: None) -> Project:
    made = projects.create(slug="shop", name="Shop")
    agent = agents.contact(project_id=made.pk, name="ada", session="", client="claude-code", transport="http")
    actor = actors.agent(agent_id=agent.pk, name=agent.name)
    first = tasks.create(project_id=made.pk, phase_number=1, description="Look around", actor=actor, tags=["auth"])
    tasks.create(project_id=made.pk, phase_number=1, description="Build it", actor=actor, blocked_by=[first.pk])
    return made


@pytest.fixture
def log_in(db: None) -> LogIn:
    def make(project: Project | None = None, *, name: str = "mia", role: str = "member", **more: Any) -> Client:
        user = get_user_model().objects.create_user(name, **more)
        if project is not None:
            Membership.objects.create(user=user, project=project, role=role)
        client = Client()
        client.force_login(user)
        return client

    return make


@pytest.fixture
def mia(project: Project, log_in: LogIn) -> Client:
    return log_in(project)
