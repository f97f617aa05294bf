"""Connecting a project to a Taiga: the service, REST, the admin and the command line. Logins come out nowhere."""

import io
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from devflow import cli
from devflow.actors import SYSTEM
from devflow.errors import ErrorCode
from mcpbridge.models import ApiKey
from tests.fakes import taiga_server as fake
from tests.fakes.taiga_server import TaigaServer
from workflow.models import Event, Membership, Project, RemoteProject
from workflow.services import projects
from workflow.taiga import remotes
from workflow.taiga.remotes import checked_url

from .scenes import ADMIN, PASSWORD, refused


@pytest.fixture
def near(db: None) -> Project:
    return projects.create(slug="near", name="Near")


def connected(near: Project, taiga: TaigaServer, **more: Any) -> RemoteProject:
    login = {"username": ADMIN, "password": PASSWORD} | more
    return remotes.connect(near, url=taiga.url, actor=SYSTEM, is_trusted=True, **login)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://tree.taiga.io/project/a-b/backlog", "https://tree.taiga.io/api/v1"),
        ("https://taiga.example.com", "https://taiga.example.com/api/v1"),
        ("https://taiga.example.com/api/v1/", "https://taiga.example.com/api/v1"),
        ("https://example.com/taiga/api/v1/projects", "https://example.com/taiga/api/v1"),
    ],
)
def test_an_address_is_understood_as_people_copy_it(given: str, kept: str) -> None:
    assert checked_url(given, is_trusted=False) == kept


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "http://localhost", "http://10.0.0.1/", "ftp://a.b", "https://u:p@a.b", "nonsense"]
)
def test_an_address_that_is_not_public_is_refused(url: str) -> None:
    with refused(ErrorCode.INVALID_INPUT, "devflow taiga connect"):
        checked_url(url, is_trusted=False)


def test_the_metadata_address_is_refused_whoever_asks() -> None:
    with refused(ErrorCode.INVALID_INPUT):
        checked_url("http://169.254.169.254/", is_trusted=True)


def test_a_project_is_connected_to_the_one_that_is_meant(near: Project, taiga: TaigaServer) -> None:
    with refused(ErrorCode.INVALID_INPUT, "this login sees none"):
        connected(near, taiga)
    taiga.world.project({"name": "Only"})
    assert connected(near, taiga).remote_slug == "admin-only"
    taiga.world.project({"name": "Second"})
    with refused(ErrorCode.INVALID_INPUT, "admin-only, admin-second"):
        connected(near, taiga)
    assert connected(near, taiga, remote="admin-second").remote_id == 3
    assert connected(near, taiga, remote="2").remote_slug == "admin-only"
    with refused(ErrorCode.INVALID_INPUT, "'elsewhere'"):
        connected(near, taiga, remote="elsewhere")
    assert RemoteProject.objects.count() == 1
    assert [event.after["taiga"] for event in Event.objects.filter(kind="project.connected").order_by("pk")] == [
        "admin-only",
        "admin-second",
        "admin-only",
    ]


def test_a_token_is_taken_instead_of_a_password(near: Project, taiga: TaigaServer) -> None:
    taiga.world.project({"name": "Only"})
    made = connected(near, taiga, username="", password="", token=taiga.token_for())
    assert made.state == "up"
    taiga.forget_tokens()
    tested = remotes.test(near)
    assert (tested.ok, tested.state) == (False, "refused")


def test_what_is_wrong_leaves_nothing_behind(near: Project, taiga: TaigaServer) -> None:
    taiga.world.project({"name": "Only"})
    with refused(ErrorCode.UNAUTHENTICATED, "refuses the login"):
        connected(near, taiga, password="wrong")
    with refused(ErrorCode.INVALID_INPUT):
        connected(near, taiga, token="both")
    with taiga.always(fake.html()), refused(ErrorCode.BACKEND_ERROR):
        connected(near, taiga)
    with taiga.always(fake.raw(b'{"not": "taiga"}')), refused(ErrorCode.BACKEND_ERROR):
        connected(near, taiga)
    assert not RemoteProject.objects.exists()
    assert not Event.objects.filter(kind__startswith="project.conn").exists()


def test_a_project_with_items_of_its_own_is_not_connected(near: Project, taiga: TaigaServer) -> None:
    from workflow.models import Kind
    from workflow.services.agile import items

    items.create(Kind.EPIC, project=near, actor=SYSTEM, fields={"subject": "Own"})
    with refused(ErrorCode.CONFLICT, "would be hidden"):
        connected(near, taiga)


def test_the_login_is_sealed(near: Project, taiga: TaigaServer) -> None:
    taiga.world.project({"name": "Only"})
    row = RemoteProject.objects.get(pk=connected(near, taiga).pk)
    assert PASSWORD not in f"{row.sealed_login}{row.attributes}{row.detail}"
    assert "token-" not in row.sealed_login


def test_a_disconnected_project_is_kept_here_again(near: Project, taiga: TaigaServer) -> None:
    taiga.world.project({"name": "Only"})
    connected(near, taiga)
    remotes.disconnect(near, actor=SYSTEM)
    assert not RemoteProject.objects.exists()
    with refused(ErrorCode.NOT_FOUND):
        remotes.disconnect(near, actor=SYSTEM)
    with refused(ErrorCode.NOT_FOUND):
        remotes.test(near)
    assert taiga.writes == []


# --- REST ------------------------------------------------------------------------------------------------------------


def rest(*scopes: str) -> Client:
    key = ApiKey.objects.issue(name="k", scopes=list(scopes), rate_per_minute=0)[1]
    return Client(headers={"Authorization": f"Bearer {key}"})


def test_an_admin_sees_and_tests_a_connection_over_rest_and_never_its_login(near: Project, taiga: TaigaServer) -> None:
    taiga.world.project({"name": "Only"})
    made = connected(near, taiga)
    admin = rest("read", "admin")
    (row,) = admin.get("/api/v1/remote-projects/").json()["results"]
    assert (row["project"], row["remote_slug"], row["state"]) == ("near", "admin-only", "up")
    assert not {"sealed_login", "password", "token", "attributes"} & row.keys()
    assert admin.post(f"/api/v1/remote-projects/{made.pk}/test/").json() == {
        "ok": True,
        "state": "up",
        "detail": "",
        "name": "Only",
    }
    assert rest("read", "write").get("/api/v1/remote-projects/").status_code == 403
    assert admin.delete(f"/api/v1/remote-projects/{made.pk}/").status_code == 204
    assert admin.delete(f"/api/v1/remote-projects/{made.pk}/").status_code == 404


def test_over_rest_a_key_connects_public_addresses_only_and_a_superuser_any(near: Project, taiga: TaigaServer) -> None:
    taiga.world.project({"name": "Only"})
    body = {"project": "near", "url": taiga.url, "username": ADMIN, "password": PASSWORD}
    answer = rest("read", "write", "admin").post("/api/v1/remote-projects/", body, content_type="application/json")
    assert answer.status_code == 422
    assert PASSWORD not in answer.content.decode()
    root = User.objects.create_superuser("root")
    Membership.objects.create(project=near, user=root, role=Membership.Role.ADMIN)
    person = Client()
    person.force_login(root)
    answer = person.post("/api/v1/remote-projects/", body, content_type="application/json")
    assert answer.status_code == 201, answer.content
    assert PASSWORD not in answer.content.decode()


def test_a_viewer_sees_no_connection_and_cannot_make_one(near: Project, taiga: TaigaServer) -> None:
    taiga.world.project({"name": "Only"})
    connected(near, taiga)
    viewer = User.objects.create_user("vera")
    Membership.objects.create(project=near, user=viewer, role=Membership.Role.VIEWER)
    person = Client()
    person.force_login(viewer)
    assert person.get("/api/v1/remote-projects/").json()["results"] == []
    body = {"project": "near", "url": "https://taiga.example.com", "token": "t"}
    assert person.post("/api/v1/remote-projects/", body, content_type="application/json").status_code == 403


# --- the admin -------------------------------------------------------------------------------------------------------


def test_the_admin_connects_and_shows_no_login(near: Project, taiga: TaigaServer) -> None:
    taiga.world.project({"name": "Only"})
    root = User.objects.create_superuser("root")
    person = Client()
    person.force_login(root)
    add = "/admin/workflow/remoteproject/add/"
    assert person.get(add).status_code == 200
    body = {"project": near.pk, "url": taiga.url, "username": ADMIN, "password": "wrong"}
    page = person.post(add, body)
    assert "Taiga refuses the login" in page.content.decode()
    assert person.post(add, body | {"password": PASSWORD}).status_code == 302
    made = RemoteProject.objects.get()
    shown = person.get(f"/admin/workflow/remoteproject/{made.pk}/change/").content.decode()
    assert PASSWORD not in shown
    assert made.sealed_login not in shown
    assert person.get("/admin/workflow/remoteproject/").status_code == 200
    ask = {"action": "test_now", "_selected_action": [made.pk]}
    assert person.post("/admin/workflow/remoteproject/", ask).status_code == 302
    assert person.post(f"/admin/workflow/remoteproject/{made.pk}/delete/", {"post": "yes"}).status_code == 302
    assert not RemoteProject.objects.exists()
    assert Event.objects.filter(kind="project.disconnected").count() == 1


# --- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    from devflow.cli import provision

    monkeypatch.setattr(provision, "migrate", lambda: None)  # the tests' database is

    def command(*arguments: str, given: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(given))
        code = cli.main(["taiga", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return command


def test_the_command_line_connects_tests_imports_and_disconnects(near: Project, taiga: TaigaServer, run: Any) -> None:
    taiga.world.project({"name": "Only"})
    taiga.world.create("epics", {"project": 2, "subject": "Epic"}, taiga.world.users[5])
    assert run("connect", "near", taiga.url)[0] == 2
    code, _, error = run("connect", "near", taiga.url, "--username", ADMIN, given="wrong\n")
    assert code == 1
    assert "refuses the login" in error
    assert "wrong" not in error
    code, out, _ = run("connect", "near", taiga.url, "--username", ADMIN, given=f"{PASSWORD}\n")
    assert (code, "admin-only" in out, PASSWORD in out) == (0, True, False)
    assert run("connect", "near", taiga.url, "--token-stdin", given=f"{taiga.token_for()}\n")[0] == 0
    code, out, _ = run("test", "near", "--json")
    assert (code, json.loads(out)["name"]) == (0, "Only")
    projects.create(slug="copy", name="Copy")
    code, out, _ = run("import", "near", "--into", "copy", "--json")
    assert (code, json.loads(out)["made"]) == (0, 1)
    with taiga.refusing():
        code, _, error = run("test", "near")
    assert (code, "refuses connections" in error) == (1, True)
    assert run("test", "nowhere")[0] == 1
    assert run("disconnect", "near")[0] == 0
    assert run("disconnect", "near")[0] == 1
