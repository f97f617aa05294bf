"""The projects' pages: who sees and changes what, files in and out, and the first steps of an empty instance."""

import io
import json
import re
import zipfile
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from devflow import multipart
from devflow.actors import SYSTEM
from tests.pages.conftest import LogIn
from workflow.models import Membership, Project, Task
from workflow.services import agents, claims, projects
from workflow.services.transfer import exporting, formats

SETTINGS = "/projects/shop/"


def text_of(response: Any) -> str:
    content: str = response.content.decode()
    return content


def as_shown(client: Client, **changes: Any) -> dict[str, Any]:
    """The settings form as a browser would send it back, with what was changed."""
    form = client.get(SETTINGS).context["form"]
    data: dict[str, Any] = {}
    for field in form:
        shown = field.initial
        if shown not in (None, False):
            data[field.html_name] = "on" if shown is True else shown
        data[field.html_initial_name] = "" if shown is None else shown
    data |= changes
    return {name: value for name, value in data.items() if value is not None}


@pytest.fixture
def boss(project: Project, log_in: LogIn) -> Client:
    return log_in(project, name="boss", role="admin")


@pytest.fixture
def viewer(project: Project, log_in: LogIn) -> Client:
    return log_in(project, name="vera", role="viewer")


@pytest.fixture
def root(log_in: LogIn) -> Client:
    return log_in(name="root", is_staff=True, is_superuser=True)


# --- the list, and making one -------------------------------------------------------------------------------------


def test_the_list_shows_ones_own_projects_with_counts_and_what_one_is_there(mia: Client, project: Project) -> None:
    projects.create(slug="secret", name="Secret plans")
    page = text_of(mia.get("/projects/"))
    assert "Shop" in page and "you are member" in page
    assert "0 in progress · 2 open · 0 done" in page
    assert "Secret plans" not in page
    assert "/projects/new" not in page


def test_the_list_takes_the_same_queries_however_many_projects_there_are(root: Client, project: Project) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            root.get("/projects/")
        return len(seen)

    root.get("/projects/")
    few = queries()
    for number in range(5):
        projects.create(slug=f"p{number}")
    assert queries() == few


def test_somebody_in_no_project_is_told_what_to_do(log_in: LogIn, root: Client) -> None:
    page = text_of(log_in(name="new").get("/projects/"))
    assert "Ask an administrator" in page and "new</b>" in page
    page = text_of(root.get("/"))
    assert "Four steps lead" in page and 'href="/projects/new"' in page


def test_a_project_is_made_from_a_template_and_its_maker_is_its_admin(root: Client) -> None:
    response = root.post("/projects/new", {"name": "Größe & Preis", "slug": "", "template": "bugfix"})
    made = Project.objects.get()
    assert response.headers["Location"] == f"/?project={made.slug}"
    assert (made.slug, made.name) == ("groe-preis", "Größe & Preis")
    assert [phase.name for phase in made.phases.all()] == ["Reproduce", "Fix", "Verify"]
    assert made.memberships.get().role == "admin"
    assert made.events.filter(actor_name="root").exists()


def test_a_slug_is_found_for_any_name_and_one_in_use_is_refused_in_place(root: Client) -> None:
    for name in ("Shop", "Shop", "پروژه", "پروژه"):
        root.post("/projects/new", {"name": name, "template": ""})
    assert sorted(Project.objects.values_list("slug", flat=True)) == ["project", "project-2", "shop", "shop-2"]
    response = root.post("/projects/new", {"name": "Another", "slug": "shop", "template": "analysis"})
    assert response.status_code == 422
    assert "There is a project shop already" in text_of(response)
    for bad in ({"name": ""}, {"name": "x", "slug": "a b"}, {"name": "x", "template": "none such"}):
        assert root.post("/projects/new", bad).status_code == 422
    assert Project.objects.count() == 4


def test_who_may_make_projects_is_who_may_in_the_admin(mia: Client) -> None:
    for path in ("/projects/new", "/projects/import"):
        assert mia.get(path).status_code == 403
        assert mia.post(path, {"name": "Mine", "template": ""}).status_code == 403
    User.objects.get(username="mia").user_permissions.add(Permission.objects.get(codename="add_project"))
    assert mia.post("/projects/new", {"name": "Mine", "template": ""}).status_code == 302
    assert Project.objects.filter(slug="mine", memberships__user__username="mia").exists()


def test_a_project_may_be_called_new_or_import(boss: Client, project: Project) -> None:
    for slug in ("new", "import"):
        made = projects.create(slug=slug, owner_id=User.objects.get(username="boss").pk)
        assert f"/projects/{slug}/export.json" in text_of(boss.get(f"/projects/{made.slug}/"))


# --- settings and members -----------------------------------------------------------------------------------------


def test_an_admin_changes_settings_and_the_slug_stays(boss: Client, project: Project) -> None:
    data = as_shown(boss, name="Shop 2", require_review="on", limit_review="3", slug="other")
    response = boss.post(SETTINGS, data)
    assert response.headers["Location"] == SETTINGS
    project.refresh_from_db()
    assert (project.slug, project.name, project.require_review) == ("shop", "Shop 2", True)
    assert project.column_limits == {"review": 3}
    boss.post(SETTINGS, as_shown(boss, limit_review=""))
    project.refresh_from_db()
    assert project.column_limits == {}
    assert "Nothing was changed" in text_of(boss.post(SETTINGS, as_shown(boss), follow=True))


def test_a_stale_form_changes_only_what_its_person_changed(boss: Client, project: Project) -> None:
    stale = as_shown(boss, description="New words")
    projects.configure(project_id=project.pk, actor=SYSTEM, name="Renamed meanwhile", column_limits={"ready": 9})
    boss.post(SETTINGS, stale)
    project.refresh_from_db()
    assert (project.name, project.description, project.column_limits) == (
        "Renamed meanwhile",
        "New words",
        {"ready": 9},
    )


@pytest.mark.parametrize("bad", [{"name": ""}, {"name": "x" * 101}, {"limit_review": "0"}, {"limit_review": "many"}])
def test_settings_that_cannot_be_are_refused_beside_their_field(
    boss: Client, project: Project, bad: dict[str, str]
) -> None:
    response = boss.post(SETTINGS, as_shown(boss, **bad))
    assert response.status_code == 422
    assert 'class="errorlist"' in text_of(response)
    project.refresh_from_db()
    assert (project.name, project.column_limits) == ("Shop", {})


POSTS: list[tuple[str, dict[str, Any]]] = [
    ("", {"name": "Taken over", "initial-name": "Shop"}),
    ("members", {"user": "vera", "role": "admin"}),
    ("members", {"member": "boss", "role": "viewer"}),
    ("members", {"member": "boss", "remove": "yes"}),
    ("archive", {}),
    ("restore", {}),
    ("phases", {}),
    ("import", {}),
]


@pytest.mark.parametrize("role", ["viewer", "member"])
@pytest.mark.parametrize(("action", "data"), POSTS)
def test_only_admins_change_a_project(
    log_in: LogIn, boss: Client, project: Project, role: str, action: str, data: dict[str, Any]
) -> None:
    client = log_in(project, name="vera", role=role)
    before = list(project.memberships.order_by("pk").values_list("user__username", "role"))
    events = project.events.count()
    response = client.post(f"{SETTINGS}{action}", data)
    assert response.status_code == 403
    assert "Only an admin of Shop" in text_of(response)
    project.refresh_from_db()
    assert (project.name, project.archived_at, project.events.count()) == ("Shop", None, events)
    assert list(project.memberships.order_by("pk").values_list("user__username", "role")) == before


@pytest.mark.parametrize("path", ["", "export.json", "tasks.csv", "phases.zip", "import"])
def test_a_stranger_finds_nothing_of_a_project(log_in: LogIn, project: Project, path: str) -> None:
    stranger = log_in(name="stranger")
    assert stranger.get(f"{SETTINGS}{path}").status_code == 404
    assert stranger.get(f"/projects/nowhere/{path}").status_code == 404
    for action, data in POSTS:
        assert stranger.post(f"{SETTINGS}{action}", data).status_code == 404


def test_a_viewer_reads_the_settings_without_a_form(viewer: Client) -> None:
    page = text_of(viewer.get(SETTINGS))
    assert "vera" in page and "An admin of the project can change these." in page
    assert "<textarea" not in page and "Archive" not in page and 'name="members"' not in page


def test_members_are_added_changed_and_removed(boss: Client, project: Project) -> None:
    User.objects.create_user("mia")
    boss.post(f"{SETTINGS}members", {"user": "mia", "role": "viewer"})
    boss.post(f"{SETTINGS}members", {"member": "mia", "role": "admin"})
    assert project.memberships.get(user__username="mia").role == "admin"
    page = text_of(boss.post(f"{SETTINGS}members", {"member": "mia", "remove": "yes"}, follow=True))
    assert "mia was taken out of Shop" in page
    assert not project.memberships.filter(user__username="mia").exists()
    response = boss.post(f"{SETTINGS}members", {"user": "nobody", "role": "member"})
    assert (response.status_code, "User nobody was not found" in text_of(response)) == (422, True)
    assert boss.post(f"{SETTINGS}members", {"member": "nobody", "remove": "yes"}).status_code == 404


def test_the_last_admin_cannot_leave_or_step_down(boss: Client, project: Project) -> None:
    for data in ({"member": "boss", "role": "viewer"}, {"member": "boss", "remove": "yes"}):
        page = text_of(boss.post(f"{SETTINGS}members", data, follow=True))
        assert "would have no admin any more" in page
    assert project.memberships.get(user__username="boss").role == "admin"


def test_an_admin_who_leaves_is_led_out(boss: Client, log_in: LogIn, project: Project) -> None:
    log_in(project, name="second", role="admin")
    response = boss.post(f"{SETTINGS}members", {"member": "boss", "remove": "yes"})
    assert response.headers["Location"] == "/projects/"


# --- archiving ----------------------------------------------------------------------------------------------------


def test_an_archived_project_is_away_for_all_and_its_admin_brings_it_back(
    boss: Client, mia: Client, project: Project
) -> None:
    assert boss.post(f"{SETTINGS}archive").headers["Location"] == "/projects/"
    for client in (boss, mia):
        assert client.get("/board/shop/").status_code == 404
        assert "Shop" not in re.sub(r'<p class="note.*?</p>', "", text_of(client.get("/")))
    assert mia.get(SETTINGS).status_code == 404
    assert "Shop" not in text_of(mia.get("/projects/"))
    assert "Bring back" in text_of(boss.get("/projects/"))
    page = text_of(boss.get(SETTINGS))
    assert "Bring it back" in page and "Archive…" not in page
    for path in ("export.json", "tasks.csv", "phases.zip"):
        assert boss.get(f"{SETTINGS}{path}").status_code == 200
    assert boss.get(f"{SETTINGS}import").status_code == 403
    assert boss.post(f"{SETTINGS}restore").headers["Location"] == SETTINGS
    assert mia.get("/board/shop/").status_code == 200


# --- files --------------------------------------------------------------------------------------------------------


def sent(content: str | bytes, name: str = "file") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content.encode() if isinstance(content, str) else content)


def test_whoever_sees_a_project_takes_it_elsewhere_but_its_members_only_its_admins(
    viewer: Client, boss: Client, project: Project
) -> None:
    response = viewer.get(f"{SETTINGS}export.json?events=on")
    assert re.fullmatch(r'attachment; filename="shop-\d{4}-\d\d-\d\d\.json"', response.headers["Content-Disposition"])
    file = response.json()
    assert (file["version"], len(file["tasks"]), "members" in file) == (1, 2, False)
    assert {event["kind"] for event in file["events"]} >= {"task.created"}
    assert viewer.get(f"{SETTINGS}export.json?members=on").status_code == 403
    members = boss.get(f"{SETTINGS}export.json?members=on").json()["members"]
    assert {"user": "boss", "role": "admin"} in members
    table = viewer.get(f"{SETTINGS}tasks.csv")
    assert table.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert "Look around" in text_of(table)
    with zipfile.ZipFile(io.BytesIO(viewer.get(f"{SETTINGS}phases.zip").content)) as archive:
        assert len(archive.namelist()) == 3


def test_a_project_is_looked_at_then_imported_under_another_slug(root: Client, project: Project) -> None:
    content = exporting.project_json(project_id=project.pk)
    partial = {"HX-Request": "true"}
    page = text_of(root.post("/projects/import", {"file": sent(content), "only": "check"}, headers=partial))
    assert "<html" not in page
    assert "project.slug" in page and "there is a project shop here already" in page
    data = {"slug": "shop-2", "only": "check"}
    page = text_of(root.post("/projects/import", {**data, "file": sent(content)}, headers=partial))
    assert "data-good" in page and "3 phases, 2 tasks, 1 dependency" in page
    assert Project.objects.count() == 1
    response = root.post("/projects/import", {"slug": "shop-2", "file": sent(content)}, headers=partial)
    assert (response.status_code, response.headers["HX-Redirect"]) == (204, "/board/shop-2/")
    assert Membership.objects.get(project__slug="shop-2").user.username == "root"
    again = root.post("/projects/import", {"slug": "shop-2", "file": sent(content)})
    assert (again.status_code, "Nothing was imported" in text_of(again)) == (422, True)
    assert Project.objects.count() == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "The file is empty."),
        ("{", "is not valid JSON"),
        (json.dumps({"format": formats.FORMAT, "version": 2}), "newer DevFlow"),
        (json.dumps({"format": formats.FORMAT, "version": 1, "project": {"slug": "<b>", "name": "x"}}), "project.slug"),
    ],
)
def test_a_bad_project_file_is_refused_in_words_on_the_page(root: Client, content: str, words: str) -> None:
    response = root.post("/projects/import", {"file": sent(content)})
    assert response.status_code == 422
    page = text_of(response)
    assert words in page and "Nothing was imported" in page and '<b>"' not in page
    assert "Choose a file first." in text_of(root.post("/projects/import", {}))
    assert not Project.objects.exists()


def test_a_file_that_is_too_large_is_refused_with_its_size(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multipart, "most_bytes", lambda: 1000)
    response = root.post("/projects/import", {"file": sent("x" * 2_000_000)})
    assert response.status_code == 422
    assert "1.9 MB" in text_of(response)


def test_large_bodies_are_taken_where_files_are_imported_and_nowhere_beside() -> None:
    for path in ("/projects/import", "/projects/shop/import"):
        assert multipart.takes_files(path)
    for path in ("/projects/new", "/projects/shop/", "/projects/shop/members", "/projects/a/b/import"):
        assert not multipart.takes_files(path)


def test_tasks_are_looked_at_column_by_column_then_imported(boss: Client, project: Project) -> None:
    partial = {"HX-Request": "true"}
    path = f"{SETTINGS}import"
    look = {"phase": "2", "only": "check"}
    page = text_of(boss.post(path, {**look, "file": sent("Titel,Priority\nErstes,low\n")}, headers=partial))
    assert "no column holds a title" in page and 'name="column-0"' in page and "data-good" not in page
    chosen = {"phase": "2", "column-0": "subject", "column-1": ""}
    body = {**chosen, "only": "check", "file": sent("Titel,Priority\nErstes,low\n")}
    page = text_of(boss.post(path, body, headers=partial))
    assert "data-good" in page and "“Priority” (column 2)" in page
    assert project.tasks.count() == 2
    response = boss.post(path, {**chosen, "file": sent("Titel,Priority\nErstes,low\n")})
    assert response.headers["Location"] == "/board/shop/"
    made = project.tasks.get(subject="Erstes")
    assert (made.phase.number, made.priority_name, made.created_by) == (2, "medium", "boss")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("title,phase\nA,1\nB,nowhere\n", "line 3, phase"),
        ("title\n" + "A\n" * 50_000, "has 50,000 rows; it may have 10,000 at most"),
        ('title,status\n"<script>alert(1)</script>",flying\n', "line 2, status"),
    ],
)
def test_a_bad_table_is_refused_with_its_lines_and_nothing_is_imported(
    boss: Client, project: Project, content: str, words: str
) -> None:
    response = boss.post(f"{SETTINGS}import", {"file": sent(content)})
    assert response.status_code == 422
    page = text_of(response)
    assert words in page and "<script>alert" not in page
    assert project.tasks.count() == 2


def test_phases_are_imported_from_the_page_all_or_none(boss: Client, project: Project) -> None:
    good, bad = "name: Extra\ndone_definitions: [works]\n", "name: [\n"
    files = [sent(good, "04_extra.yaml"), sent(bad, "05_bad.yaml")]
    page = text_of(boss.post(f"{SETTINGS}phases", {"file": files}, follow=True))
    assert "Nothing was imported" in page and "05_bad.yaml is not valid YAML" in page
    assert project.phases.count() == 3
    page = text_of(boss.post(f"{SETTINGS}phases", {"file": [sent(good, "04_extra.yaml")]}, follow=True))
    assert "1 phase imported" in page
    assert project.phases.count() == 4
    assert "Choose a file first" in text_of(boss.post(f"{SETTINGS}phases", follow=True))
    packed = boss.get(f"{SETTINGS}phases.zip").content
    assert "4 phases imported" in text_of(boss.post(f"{SETTINGS}phases", {"file": sent(packed, "p.zip")}, follow=True))


# --- the first steps ----------------------------------------------------------------------------------------------


def test_home_leads_from_a_new_project_to_the_first_claim_and_says_when_it_is_reached(root: Client) -> None:
    root.post("/projects/new", {"name": "Fresh", "template": "analysis"})
    fresh = Project.objects.get()
    page = text_of(root.get("/"))
    assert "Getting started" in page and "1 of 4" in page and "Connect a client" in page
    assert "starting=on" in page
    response = root.post("/onboarding/task", {"project": "fresh", "text": "Read it\n\nall"})
    assert response.headers["Location"] == "/?project=fresh"
    task = Task.objects.get()
    assert (task.subject, task.phase.number, task.created_by) == ("Read it", 1, "root")
    agent = agents.contact(project_id=fresh.pk, name="ada", session="", client="cursor", transport="http")
    page = text_of(root.get("/"))
    assert "3 of 4" in page and "ada" in page and "Claim the next task of phase 1" in page
    actor = agents.Actor(kind="agent", name="ada", agent_id=agent.pk)
    claims.claim(project_id=fresh.pk, phase_number=1, actor=actor)
    partial = text_of(root.get("/?project=fresh&starting=on", headers={"HX-Request": "true"}))
    assert "An agent is at work" in partial and "<html" not in partial
    assert "An agent is at work" not in text_of(root.get("/"))


def test_a_first_task_needs_words_a_phase_and_the_right_to_write(
    viewer: Client, boss: Client, project: Project, log_in: LogIn
) -> None:
    count = Task.objects.count()
    assert viewer.post("/onboarding/task", {"project": "shop", "text": "x"}).status_code == 403
    assert log_in(name="other").post("/onboarding/task", {"project": "shop", "text": "x"}).status_code == 404
    assert "say what has to be done" in text_of(boss.post("/onboarding/task", {"project": "shop"}, follow=True))
    bare = projects.create(slug="bare", template=None, owner_id=User.objects.get(username="boss").pk)
    page = text_of(boss.post("/onboarding/task", {"project": bare.slug, "text": "x"}, follow=True))
    assert "has no phases yet" in page
    assert Task.objects.count() == count


PAGES = ("/projects/", "/projects/new", "/projects/import", SETTINGS, f"{SETTINGS}import")


@pytest.mark.parametrize("path", PAGES)
def test_every_page_has_one_heading_and_nothing_inline(root: Client, project: Project, path: str) -> None:
    page = text_of(root.get(path))
    assert page.count("<h1") == 1
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=|javascript:", page)
    assert Client().get(path).headers["Location"] == f"/login/?next={path}"


def test_names_and_texts_of_people_are_shown_as_they_are(boss: Client, project: Project) -> None:
    name = "<img src=x> 🎉 " + "ي" * 60
    projects.configure(project_id=project.pk, actor=SYSTEM, name=name, description="[x](javascript:alert(1))")
    for path in ("/projects/", SETTINGS, f"{SETTINGS}import"):
        page = text_of(boss.get(path))
        assert "<img" not in page and "&lt;img" in page and 'href="javascript' not in page


def test_the_admin_archives_through_the_same_door(root: Client, project: Project) -> None:
    data = {
        "name": "Shop",
        "description": "",
        "column_limits": "{}",
        "archived_at_0": "2026-01-01",
        "archived_at_1": "00:00:00",
        "memberships-TOTAL_FORMS": "0",
        "memberships-INITIAL_FORMS": "0",
    }
    assert root.post(f"/admin/workflow/project/{project.pk}/change/", data).status_code == 302
    assert project.events.filter(kind="project.archived").exists()
