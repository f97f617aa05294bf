"""The knowledge room and the index in the admin: constant cost, changes through services, definitions that travel."""

import csv
import io
import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from devflow import actors, config
from devflow.events import LiveEvent, bus
from devflow.vectors import index, stores
from devflow.vectors.models import CachedEmbedding, Collection, PendingPoint
from knowledge.models import Chunk, CodeExample, Document, Source
from knowledge.services import ingestion, sources
from tests.pages.conftest import LogIn
from workflow.models import Project
from workflow.services import projects

ROOM = ("knowledge/source", "knowledge/document", "knowledge/chunk", "knowledge/codeexample")
INDEX = ("vectors/collection", "vectors/pendingpoint", "vectors/cachedembedding")
GUIDE = """# Signing in

Access tokens live ten minutes.

```python
def validate_token(token):
    return jwt.decode(token)
```
"""


@pytest.fixture
def boss(log_in: LogIn, project: Project) -> Client:
    return log_in(name="boss", is_superuser=True, is_staff=True)


@pytest.fixture(autouse=True)
def no_vectors_left_over() -> Iterator[None]:
    yield
    for name in stores.store().collections():
        stores.store().drop(name)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The types of live events published since the test began."""
    types: list[str] = []
    publish = bus.publish

    def listening(event: LiveEvent) -> None:
        types.append(event.type)
        publish(event)

    monkeypatch.setattr(bus, "publish", listening)
    return types


def read_all() -> None:
    while (source := ingestion.claim()) is not None:
        ingestion.read(source, stop=lambda: False)


def make(project: Project, title: str = "Guide", text: str = GUIDE, **more: Any) -> Source:
    given: dict[str, Any] = {"type": "manual", "content": text, **more}
    made = sources.create(project_id=project.pk, actor=actors.SYSTEM, title=title, **given)
    read_all()
    made.refresh_from_db()
    return made


def fill(project: Project, rows: int, *, start: int = 0) -> None:
    for number in range(start, start + rows):
        other = projects.create(slug=f"p{number}", name="p", template=None)
        make(other, text=f"{GUIDE}\n{number}")
        kind = Collection.objects.create(kind=f"k{number}", embedder="e", name=f"c{number}", state="live")
        PendingPoint.objects.create(collection=kind, point=uuid.uuid4())
        CachedEmbedding.objects.create(key=uuid.uuid4().bytes * 2, vector=b"\0\0")


def page_of(response: Any, status: int = 200) -> str:
    assert response.status_code == status, response.content[:2000]
    text: str = response.content.decode()
    return text


def act(boss: Client, name: str, action: str, *ids: int, **more: str) -> str:
    body = {"action": action, "_selected_action": [str(pk) for pk in ids], **more}
    return page_of(boss.post(f"/admin/{name}/", body, follow=True))


@pytest.mark.parametrize("name", [*ROOM, *INDEX, "knowledge/chunk/?q=tokens", "knowledge/codeexample/?q=tokens"])
def test_the_number_of_queries_of_a_list_does_not_grow_with_its_rows(
    boss: Client, project: Project, name: str, django_assert_max_num_queries: Any
) -> None:
    path = f"/admin/{name}" if "?" in name else f"/admin/{name}/"
    fill(project, 2)
    boss.get(path)
    with django_assert_max_num_queries(18) as few:
        page_of(boss.get(path))
    fill(project, 6, start=2)
    with django_assert_max_num_queries(len(few)):
        page_of(boss.get(path))


@pytest.mark.parametrize("name", [*ROOM, *INDEX])
def test_every_row_opens_and_can_be_searched(boss: Client, project: Project, name: str) -> None:
    fill(project, 1)
    page_of(boss.get(f"/admin/{name}/?q=a"))
    link = re.search(rf'href="(/admin/{name}/\d+/change/)"', page_of(boss.get(f"/admin/{name}/")))
    assert link is not None
    page_of(boss.get(link[1]))


@pytest.mark.parametrize("name", [*ROOM[1:], *INDEX])
def test_what_was_read_or_derived_cannot_be_written(boss: Client, project: Project, name: str) -> None:
    fill(project, 1)
    page_of(boss.get(f"/admin/{name}/add/"), 403)
    link = re.search(rf'href="(/admin/{name}/\d+/)change/"', page_of(boss.get(f"/admin/{name}/")))
    assert link is not None
    page_of(boss.post(f"{link[1]}change/", {}), 403)
    page_of(boss.post(f"{link[1]}delete/", {"post": "yes"}), 403)


def test_passages_are_found_by_the_keyword_index(boss: Client, project: Project) -> None:
    make(project)
    make(project, title="Cooking", text="# Cooking\n\nBoil the zebra.\n\n```sh\nboil --slowly\n```\n")
    found = page_of(boss.get("/admin/knowledge/chunk/?q=zebra"))
    assert "Boil the zebra" in found
    assert "Access tokens" not in found
    found = page_of(boss.get("/admin/knowledge/codeexample/?q=zebra"))
    assert "boil --slowly" in found
    assert "validate_token" not in found
    assert "0 chunks" in page_of(boss.get("/admin/knowledge/chunk/?q=xylophone"))


# --- sources --------------------------------------------------------------------------------------------------------


@pytest.fixture
def rooted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that may be read, with a document in it."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n\nText.")
    allowed = config.current().model_copy(update={"allowed_roots": [str(tmp_path / "docs")]})
    monkeypatch.setattr(config, "current", lambda: allowed)
    return tmp_path / "docs"


def form(project: Project, **more: str) -> dict[str, str]:
    base = {"title": "T", "description": "", "tags": "a, b", "priority": "5", "options": "{}"}
    return {"project": str(project.pk), "type": "manual", "url": "", "content": "", **base, **more}


@pytest.mark.parametrize(
    ("more", "url"),
    [
        ({"type": "manual", "content": "# Note\n\nText."}, ""),
        (
            {"type": "web", "url": "https://Docs.example.org/guide/", "options": '{"max_pages": 3}'},
            "https://docs.example.org/guide/",
        ),
        ({"type": "directory", "url": "{root}"}, "{root}"),
    ],
)
def test_a_source_is_added_through_its_service(
    boss: Client, project: Project, rooted: Path, heard: list[str], more: dict[str, str], url: str
) -> None:
    more = {name: value.replace("{root}", str(rooted)) for name, value in more.items()}
    assert boss.post("/admin/knowledge/source/add/", form(project, **more)).status_code == 302
    source = Source.objects.get()
    assert (source.url, source.tags, source.created_by) == (url.replace("{root}", str(rooted)), ["a", "b"], "boss")
    assert source.run_wanted
    assert heard == ["source.created"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"type": "manual"}, "takes content"),
        ({"type": "web", "url": "file:///etc/passwd"}, "http"),
        ({"type": "web", "url": "https://example.org", "options": '{"depth": 3}'}, "There is no option depth"),
        ({"type": "web", "url": "https://example.org", "options": "[1]"}, "Give a JSON object"),
        ({"type": "directory", "url": "/etc"}, "not inside the directories"),
        ({"type": "git", "url": "{root}"}, "no git checkout"),
        ({"type": "manual", "content": "x", "priority": "11"}, "less than or equal to 10"),
        ({"type": "manual", "content": "x", "tags": "x" * 65}, "64 characters"),
        ({"type": "upload", "content": "x"}, "not one of the available choices"),
    ],
)
def test_a_bad_source_is_refused_beside_its_field(
    boss: Client, project: Project, rooted: Path, more: dict[str, str], words: str
) -> None:
    more = {name: value.replace("{root}", str(rooted)) for name, value in more.items()}
    page = page_of(boss.post("/admin/knowledge/source/add/", form(project, **more)))
    assert words in page
    assert not Source.objects.exists()


def test_a_source_is_changed_through_its_service(boss: Client, project: Project, heard: list[str]) -> None:
    source = make(project)
    heard.clear()
    path = f"/admin/knowledge/source/{source.pk}/change/"
    body = {"title": "Better", "description": "d", "tags": "x", "priority": "9", "options": "{}", "status": "error"}
    assert boss.post(path, body).status_code == 302
    source.refresh_from_db()
    assert (source.title, source.tags, source.priority, source.status) == ("Better", ["x"], 9, "active")
    assert source.revision > 0
    assert "source.updated" in heard
    assert "Only sources of type web" in page_of(boss.post(path, {**body, "options": '{"max_pages": 1}'}))


def test_sources_are_steered_by_actions(boss: Client, project: Project, heard: list[str]) -> None:
    source = make(project)
    name = "knowledge/source"
    assert "1 will be read again" in act(boss, name, "reindex", source.pk)
    assert "1 will be read from scratch" in act(boss, name, "reindex_from_scratch", source.pk)
    source.refresh_from_db()
    assert source.run_force
    assert "1 paused" in act(boss, name, "pause", source.pk)
    assert "is paused already" in act(boss, name, "pause", source.pk)
    assert "source-status is-paused" in page_of(boss.get(f"/admin/{name}/"))
    assert "1 resumed" in act(boss, name, "resume", source.pk)
    assert "1 will be tried again" in act(boss, name, "retry_failed", source.pk)
    assert heard.count("source.updated") >= 5


def test_deleting_a_source_takes_all_of_it_and_its_points_with_it(
    boss: Client, project: Project, heard: list[str]
) -> None:
    source, kept = make(project), make(project, title="Kept")
    points = set(Chunk.objects.filter(source=source).values_list("point", flat=True))
    PendingPoint.objects.all().delete()
    asked = act(boss, "knowledge/source", "delete_selected", source.pk)
    assert "Chunks" in asked or "chunks" in asked
    assert Source.objects.count() == 2
    act(boss, "knowledge/source", "delete_selected", source.pk, post="yes")
    assert set(PendingPoint.objects.values_list("point", flat=True)) == points
    assert "source.deleted" in heard
    page_of(boss.get(f"/admin/knowledge/source/{kept.pk}/delete/"))
    assert boss.post(f"/admin/knowledge/source/{kept.pk}/delete/", {"post": "yes"}).status_code == 302
    for model in (Source, Document, Chunk, CodeExample):
        assert not model.objects.exists()  # type: ignore[attr-defined]  # a union of models


def test_documents_are_retried_and_deleted_through_their_services(boss: Client, project: Project) -> None:
    source = make(
        project, title="Files", type="upload", content="", files=[("no.pdf", [b"%PDF no"]), ("a.md", [b"# A\n\nx"])]
    )
    broken, fine = Document.objects.get(path="no.pdf"), Document.objects.get(path="a.md")
    page = page_of(boss.get(f"/admin/knowledge/document/{broken.pk}/change/"))
    assert broken.error.split(".")[0] in page
    assert "1 will be read again" in act(boss, "knowledge/document", "retry", broken.pk)
    assert "was read" in act(boss, "knowledge/document", "retry", fine.pk)
    assert "2 deleted" in act(boss, "knowledge/document", "delete_documents", broken.pk, fine.pk)
    source.refresh_from_db()
    assert (source.document_count, source.failed_count, source.chunk_count) == (0, 0, 0)
    assert source.metadata["files"] == []


# --- definitions ----------------------------------------------------------------------------------------------------


def exported(boss: Client, kind: str) -> str:
    return page_of(boss.post("/admin/knowledge/source/export/", {"format": kind, "resource": "", **dict.fromkeys(
        [f"sourcedefinitions_{name}" for name in COLUMNS], "on"
    )}))  # fmt: skip


COLUMNS = ("project", "title", "description", "type", "url", "tags", "priority", "options")
CSV, JSON = "0", "1"


def imported(boss: Client, text: str, kind: str = CSV) -> str:
    file = SimpleUploadedFile("sources.csv", text.encode())
    body = {"import_file": file, "format": kind, "resource": ""}
    return page_of(boss.post("/admin/knowledge/source/import/", body, follow=True))


def row(**more: str) -> str:
    values = {"project": "shop", "title": "T", "description": "", "type": "web", "url": "https://a.example/",
              "tags": "", "priority": "5", "options": "{}"} | more  # fmt: skip
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS)
    writer.writerow(values)
    return out.getvalue()


HEAD = ",".join(COLUMNS) + "\n"


@pytest.mark.parametrize("kind", [CSV, JSON])
def test_definitions_travel(boss: Client, project: Project, rooted: Path, kind: str) -> None:
    add = {"project_id": project.pk, "actor": actors.SYSTEM}
    sources.create(
        **add, title="=HYPERLINK(1)", type="web", url="https://a.example/docs/", tags=["x", "y"], priority=8,
        description="'+1", options={"max_pages": 4, "include": ["*/api/*"]},
    )  # fmt: skip
    sources.create(**add, title="Here", type="directory", path=str(rooted))
    text = exported(boss, kind)
    if kind == CSV:
        assert "'=HYPERLINK(1)" in text
        assert not re.search(r"(^|,)[=+@-]", text, re.MULTILINE)
    before = {name: list(Source.objects.order_by("title").values_list(name, flat=True)) for name in COLUMNS[1:]}
    for source in Source.objects.all():
        sources.delete(source=source, actor=actors.SYSTEM)
    assert "2 new" in imported(boss, text, kind)
    after = {name: list(Source.objects.order_by("title").values_list(name, flat=True)) for name in COLUMNS[1:]}
    assert after == before
    assert set(Source.objects.values_list("created_by", "run_wanted")) == {("boss", True)}
    assert "0 new, 0 updated" in imported(boss, text, kind)
    assert Source.objects.count() == 2


def test_an_import_changes_what_is_known_by_its_address(boss: Client, project: Project) -> None:
    imported(boss, HEAD + row())
    assert "0 new, 1 updated" in imported(boss, HEAD + row(title="New", tags="z", url="https://A.example"))
    source = Source.objects.get()
    assert (source.title, source.tags) == ("New", ["z"])


def test_what_has_no_address_is_left_out_of_an_import(boss: Client, project: Project) -> None:
    make(project)
    text = exported(boss, CSV)
    assert "0 new, 0 updated" in imported(boss, text)
    assert Source.objects.count() == 1


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"type": "directory", "url": "/etc"}, "not inside the directories"),
        ({"type": "web", "url": "file:///etc/passwd"}, "http"),
        ({"type": "rss"}, "rss"),
        ({"project": "nowhere"}, "does not exist"),
        ({"title": ""}, "cannot be blank"),
        ({"title": "x" * 256}, "255"),
        ({"priority": "11"}, "10"),
        ({"tags": "x" * 65}, "64 characters"),
        ({"options": "{"}, "Expecting"),
        ({"options": "[]"}, "JSON object"),
        ({"options": '{"depth": 1}'}, "no option depth"),
    ],
)
def test_one_bad_row_refuses_the_whole_import(boss: Client, project: Project, bad: dict[str, str], words: str) -> None:
    page = imported(boss, HEAD + row(url="https://good.example/") + row(**{"url": "https://bad.example/", **bad}))
    assert words in page
    assert not Source.objects.exists()


@pytest.mark.parametrize("text", ["", "title\nx\n", "\x00", "{", HEAD])
def test_a_file_that_holds_no_definitions_is_refused(boss: Client, project: Project, text: str) -> None:
    for kind in (CSV, JSON):
        imported(boss, text, kind)
        assert not Source.objects.exists()


def test_json_may_hold_lists_and_objects(boss: Client, project: Project) -> None:
    rows = [{"project": "shop", "title": "T", "type": "web", "url": "https://a.example/", "tags": ["x", "y"],
             "options": {"max_pages": 2}}]  # fmt: skip
    assert "1 new" in imported(boss, json.dumps(rows), JSON)
    source = Source.objects.get()
    assert (source.tags, source.options, source.priority) == (["x", "y"], {"max_pages": 2}, 5)


# --- who may what ---------------------------------------------------------------------------------------------------


def test_who_may_only_look_changes_imports_and_deletes_nothing(log_in: LogIn, project: Project) -> None:
    source = make(project)
    document = source.documents.get()
    index.collections("knowledge")
    staff = log_in(name="looker", is_staff=True)
    user = get_user_model().objects.get(username="looker")
    codenames = ["view_source", "view_document", "view_collection"]
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    for name, action, pk in (
        ("knowledge/source", "pause", source.pk),
        ("knowledge/source", "delete_selected", source.pk),
        ("knowledge/document", "delete_documents", document.pk),
        ("vectors/collection", "rebuild", Collection.objects.get(kind="knowledge").pk),
    ):
        act(staff, name, action, pk, post="yes")
    source.refresh_from_db()
    assert source.status == "active"
    assert Document.objects.count() == 1
    page_of(staff.get("/admin/knowledge/source/import/"), 403)
    page_of(staff.get("/admin/knowledge/source/export/"))
    nobody = log_in(name="nobody", is_staff=True)
    for name in ("knowledge/source", "workflow/task", "workflow/event", "mcpbridge/toolcall"):
        page_of(nobody.get(f"/admin/{name}/export/"), 403)


def test_a_collection_is_built_anew_from_the_rows(boss: Client, project: Project) -> None:
    make(project)
    index.drain()
    collection = Collection.objects.get(kind="knowledge")
    assert stores.store().count(collection.name) == Chunk.objects.count()
    page = act(boss, "vectors/collection", "rebuild", collection.pk)
    assert f"{Chunk.objects.count()} rows will be indexed anew" in page
    assert PendingPoint.objects.count() == Chunk.objects.count()
    index.drain()
    fresh = Collection.objects.get(kind="knowledge", state="live")
    assert stores.store().count(fresh.name) == Chunk.objects.count()
