"""Connecting a project to a real Taiga: who may log in there, and which of its projects is meant.

The login is kept sealed and shown nowhere. A Taiga that is not at a public address can be connected by whoever runs
this server only (the command line, a superuser in the admin).
"""

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.db import transaction

from devflow import addresses
from devflow.actors import Actor
from devflow.addresses import UrlError
from devflow.digits import whole
from devflow.errors import DevFlowError, ErrorCode, conflict, invalid, not_found
from workflow.models import Epic, Issue, Project, RemoteProject, UserStory
from workflow.services import activity
from workflow.taiga.client import Login, TaigaClient, odd

API = "/api/v1"
MOST_SECRET = 4096
MOST_CHOICES = 20


@dataclass(frozen=True, slots=True)
class Tested:
    """How a Taiga answered: `state` as the row keeps it, `detail` in words, and the name of its project."""

    ok: bool
    state: str
    detail: str
    name: str = ""


def checked_url(url: str, *, is_trusted: bool) -> str:
    """The address of a Taiga's API. What people copy from their browser is understood. Raises `invalid_input`."""
    try:
        spelled = addresses.check(url, may_be_private=lambda _host, _port: is_trusted)
    except UrlError as exc:
        raise invalid(
            f"This cannot be the address of a Taiga: {exc}. One that is not public is connected by whoever runs this "
            "server: `devflow taiga connect`.",
            url=str(exc),
        ) from None
    parts = urlsplit(spelled)
    path = re.sub(r"/(api(/v1)?|project|projects|login|discover)(/.*)?$", "", parts.path.rstrip("/"))
    made = f"{parts.scheme}://{parts.netloc}{path}{API}"
    if len(made) > 500:
        raise invalid("The address is longer than 500 characters.", url="too long")
    return made


def connect(
    project: Project,
    *,
    url: str,
    actor: Actor,
    username: str = "",
    password: str = "",
    token: str = "",
    remote: str = "",
    is_trusted: bool = False,
) -> RemoteProject:
    """Have a project worked on in a Taiga from now on, after it has answered. Blocks for ten seconds at most.

    `remote`: which of its projects, by slug or id; needed where the login sees several. Give a name and a password, or
    a token. An open connection is replaced. Raises `invalid_input` for an address, `conflict` for a project that has
    items of its own, `unauthenticated` for a login that Taiga refuses, and what a Taiga that is away raises.
    """
    where = checked_url(url, is_trusted=is_trusted)
    login = _login(username, password, token, is_trusted)
    _refuse_own_items(project)
    row = RemoteProject(project=project, url=where, remote_id=0, sealed_login=login.sealed())
    client = TaigaClient(row)
    found = _chosen(client, remote)
    with transaction.atomic():
        Project.objects.select_for_update(no_key=True).get(pk=project.pk)
        _refuse_own_items(project)
        before = RemoteProject.objects.filter(project=project).first()
        row.pk = before.pk if before else None
        row.remote_id, row.remote_slug = found["id"], found["slug"][:250]
        row.sealed_login = client.sealed_login
        row.save()
        activity.record(
            kind="project.connected",
            project=project,
            actor=actor,
            subject_id="taiga",
            after={"host": urlsplit(where).netloc, "taiga": row.remote_slug},
        )
    return row


@transaction.atomic
def disconnect(project: Project, *, actor: Actor) -> None:
    """Have a project kept by DevFlow itself again; nothing changes in Taiga. Raises `not_found`."""
    row = RemoteProject.objects.filter(project=project).first()
    if row is None:
        raise not_found("Taiga of project", project.slug)
    row.delete()
    activity.record(
        kind="project.disconnected",
        project=project,
        actor=actor,
        subject_id="taiga",
        before={"host": urlsplit(row.url).netloc, "taiga": row.remote_slug},
    )


def test(project: Project) -> Tested:
    """Ask a project's Taiga now. Never raises for what is wrong there. Raises `not_found` for one not connected."""
    row = RemoteProject.objects.filter(project=project).first()
    if row is None:
        raise not_found("Taiga of project", project.slug, suggestion="Connect it: `devflow taiga connect`.")
    try:
        found = TaigaClient(row).get(f"/projects/{row.remote_id}")
        name = str(found["name"])
    except DevFlowError as exc:
        gone = exc.code is ErrorCode.NOT_FOUND
        detail = "The project is not there any more." if gone else str(exc.details.get("reason") or exc.message)
        return Tested(False, row.state, detail)
    except (KeyError, TypeError):
        return Tested(False, RemoteProject.State.AWAY, "It answered in another shape than Taiga 6 has.")
    return Tested(True, RemoteProject.State.UP, "", name)


test.__test__ = False  # type: ignore[attr-defined]  # no test of pytest's, though it is named as one


def _login(username: str, password: str, token: str, is_trusted: bool) -> Login:
    if token and (username or password):
        raise invalid("Give a name and a password, or a token, not both.", token="not with a name")  # noqa: S106  # words
    if not token and not (username and password):
        raise invalid("Give a name and a password, or a token.", username="needed", password="needed")  # noqa: S106  # words
    if max(map(len, (username, password, token))) > MOST_SECRET:
        raise invalid(f"A name, password or token has at most {MOST_SECRET} characters.", password="too long")  # noqa: S106  # words
    if token and not re.fullmatch(r"[\x21-\x7e]+", token):
        raise invalid("A token has no spaces or line breaks in it.", token="odd characters")  # noqa: S106  # words
    return Login(username=username, password=password, token=token, is_trusted=is_trusted)


def _refuse_own_items(project: Project) -> None:
    if any(model.objects.filter(project=project).exists() for model in (Epic, UserStory, Issue)):
        raise conflict(
            f"{project.name} has epics, stories or issues of its own, which would be hidden.",
            suggestion="Make a new project and connect that.",
        )


def _chosen(client: TaigaClient, wanted: str) -> dict[str, Any]:
    """The project of Taiga that is meant. Raises `invalid_input` naming those there are."""
    try:
        if (number := whole(wanted, digits=12)) is not None:
            found = client.get(f"/projects/{number}")
        elif wanted:
            found = client.get("/projects/by_slug", slug=wanted[:250])
        else:
            mine = client.get("/projects", member=client.get("/users/me")["id"])
            if len(mine) != 1:
                slugs = ", ".join(str(one["slug"]) for one in mine[:MOST_CHOICES]) or "none"
                raise invalid(f"Say which of Taiga's projects: this login sees {slugs}.", remote="its slug or id")
            found = mine[0]
        return {"id": int(found["id"]), "slug": str(found["slug"])}
    except DevFlowError as exc:
        if exc.code is not ErrorCode.NOT_FOUND:
            raise
        raise invalid(f"This login sees no project {wanted[:60]!r} there.", remote="not found") from None
    except (KeyError, TypeError, ValueError, AttributeError):
        raise odd("this is no Taiga 6, or not the address of one") from None
