"""Memories in the admin: lists at a constant cost, changes through services, and files that travel."""

import csv
import io
import json
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from devflow.actors import Actor
from devflow.vectors import index
from memory.models import Memory, Trust
from tests.memory.scenes import CACHE, NAMES, RETRY, fresh, indexed, saved
from tests.pages.conftest import LogIn
from workflow.models import Project

pytestmark = pytest.mark.django_db

URL = "/admin/memory/memory/"
CSV, JSON = "0", "1"


@pytest.fixture
def boss(project: Project, log_in: LogIn) -> Client:
    return log_in(name="boss", is_superuser=True, is_staff=True)


def act(client: Client, action: str, *rows: Memory, **more: Any) -> str:
    body = {"action": action, "_selected_action": [str(row.pk) for row in rows], **more}
    page: str = client.post(URL, body, follow=True).content.decode()
    return page


def exported(client: Client, kind: str) -> str:
    names = ("point", "project", "content", "category", "original_category", "tags", "metadata", "trust")
    more = ("created_by", "task", "pinned", "expires_at", "created_at", "superseded_by")
    body = {"format": kind, "resource": ""} | {f"memoryrows_{name}": "on" for name in (*names, *more)}
    response = client.post(f"{URL}export/", body)
    assert response.status_code == 200
    text: str = response.content.decode()
    return text


def imported(client: Client, text: str, kind: str) -> str:
    name = "memories.json" if kind == JSON else "memories.csv"
    body = {"format": kind, "resource": "", "import_file": SimpleUploadedFile(name, text.encode())}
    page: str = client.post(f"{URL}import/", body, follow=True).content.decode()
    return page


def test_the_list_is_searched_filtered_and_costs_the_same_with_many_rows(
    project: Project, ada: Actor, boss: Client, django_assert_max_num_queries: Any
) -> None:
    saved(project, ada)
    boss.get(URL)
    with django_assert_max_num_queries(18) as few:
        assert boss.get(URL).status_code == 200
    for number in range(20):
        saved(project, ada, f"{RETRY} {number}", category="problem")
    with django_assert_max_num_queries(len(few)):
        boss.get(URL)
    page = boss.get(f"{URL}?q=tokens&category=pattern").content.decode()
    assert "Authentication tokens" in page
    assert "payment provider" not in page


def test_rows_are_made_and_changed_through_services(project: Project, ada: Actor, boss: Client) -> None:
    body = {"project": project.pk, "content": NAMES, "category": "convention", "tags": '["money"]', "metadata": "{}",
            "expires_at_0": "", "expires_at_1": ""}  # fmt: skip
    assert boss.post(f"{URL}add/", body).status_code == 302
    made = Memory.objects.get()
    assert (made.created_by, made.trust, made.tool, made.hash != "") == ("boss", Trust.PERSON, "admin", True)
    changed = {**body, "content": RETRY, "pinned": "on"}
    assert boss.post(f"{URL}{made.pk}/change/", changed).status_code == 302
    assert (fresh(made).content, fresh(made).pinned, fresh(made).version) == (RETRY, True, 2)
    assert index.lag("memory").pending == 2
    for wrong in ({"tags": '["a,b"]'}, {"tags": '{"a": 1}'}, {"content": " "}, {"metadata": "[1]"}, {"category": "x"}):
        assert boss.post(f"{URL}{made.pk}/change/", {**changed, **wrong}).status_code == 200
    assert fresh(made).version == 2


def test_actions_pin_expire_and_delete_with_their_vectors(project: Project, ada: Actor, boss: Client) -> None:
    one, two = saved(project, ada), saved(project, ada, RETRY)
    indexed()
    assert "2 pinned" in act(boss, "pin", one, two)
    assert fresh(one).pinned
    assert "1 unpinned" in act(boss, "unpin", one)
    assert "1 expired" in act(boss, "expire", two)
    assert fresh(two).is_expired()
    act(boss, "delete_selected", one, post="yes")
    assert boss.post(f"{URL}{two.pk}/delete/", {"post": "yes"}).status_code == 302
    assert not Memory.objects.exists()
    indexed()
    assert index.reconcile("memory") == 0


def test_who_may_only_look_is_offered_no_change_and_no_import(project: Project, ada: Actor, log_in: LogIn) -> None:
    staff = log_in(name="looker", is_staff=True)
    user = get_user_model().objects.get(username="looker")
    user.user_permissions.set(Permission.objects.filter(codename="view_memory"))
    memory = saved(project, ada)
    act(staff, "pin", memory)
    act(staff, "delete_selected", memory, post="yes")
    assert fresh(memory).version == 1
    assert staff.get(f"{URL}import/").status_code == 403
    assert staff.get(f"{URL}export/").status_code == 200


@pytest.mark.parametrize("kind", [CSV, JSON])
def test_memories_travel_with_their_provenance_and_chains(
    project: Project, ada: Actor, mia: Actor, boss: Client, kind: str
) -> None:
    old = saved(project, ada, "=1+1 is a formula", category="warning", tags=["a", "b"], metadata={"source_url": "x"})
    new = saved(project, mia, RETRY, supersedes=[old.pk], pinned=True)
    text = exported(boss, kind)
    before = list(Memory.objects.order_by("pk").values("content", "tags", "metadata", "trust", "created_by", "pinned",
                                                       "original_category", "point", "created_at"))  # fmt: skip
    assert "0 new, 0 updated" in imported(boss, text, kind)
    Memory.objects.all().delete()
    assert "2 new, 0 updated" in imported(boss, text, kind)
    after = {row["point"]: row for row in Memory.objects.values(*before[0])}
    assert after == {row["point"]: row for row in before}
    assert Memory.objects.get(point=old.point).superseded_by == Memory.objects.get(point=new.point)
    assert "0 new, 0 updated" in imported(boss, text, kind)
    assert Memory.objects.count() == 2


def test_no_cell_of_the_csv_is_a_formula(project: Project, ada: Actor, boss: Client) -> None:
    for text in ("=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\tx"):
        saved(project, ada, text)
    cells = [cell for row in csv.reader(io.StringIO(exported(boss, CSV))) for cell in row]
    assert not [cell for cell in cells if cell[:1] in "=+-@\t" and cell]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"category": "gossip"}, "codebase_knowledge"),
        ({"content": ""}, "Say what"),
        ({"content": "a\x00b"}, "NUL"),
        ({"tags": ["a,b"]}, "no comma"),
        ({"tags": {"a": 1}}, "list of words"),
        ({"metadata": [1]}, "JSON object"),
        ({"trust": "blind"}, "no trust"),
        ({"project": "nowhere"}, "does not exist"),
        ({"point": "not a uuid"}, "badly formed"),
        ({"expires_at": "soon"}, "no date and no moment"),
    ],
)
def test_one_bad_row_undoes_the_whole_import(project: Project, boss: Client, wrong: dict[str, Any], words: str) -> None:
    row = {"point": "", "project": "shop", "content": CACHE, "category": "pattern", "tags": [], "metadata": {},
           "trust": "", "expires_at": ""}  # fmt: skip
    page = imported(boss, json.dumps([row, {**row, **wrong}]), JSON)
    assert words in page
    assert not Memory.objects.exists()


def test_an_import_does_not_move_a_memory_into_another_project(
    project: Project, other: Project, ada: Actor, boss: Client
) -> None:
    memory = saved(project, ada)
    rows = json.loads(exported(boss, JSON))
    rows[0]["project"] = "other"
    assert "another project" in imported(boss, json.dumps(rows), JSON)
    del rows[0]["point"]
    assert "1 new" in imported(boss, json.dumps(rows), JSON)
    assert (fresh(memory).project_id, Memory.objects.filter(project=other).count()) == (project.pk, 1)


@pytest.mark.parametrize("text", ["", "{", "nonsense", "[1, 2]"])
def test_a_file_that_is_no_file_of_memories_is_refused(boss: Client, text: str) -> None:
    imported(boss, text, JSON)
    imported(boss, text, CSV)
    assert not Memory.objects.exists()
