"""/api/v1/ of the knowledge room: sources, files, documents, passages, search."""

import io
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext

from devflow import actors, config, multipart
from devflow.vectors import index, stores
from devflow.vectors import search as vectors
from knowledge.models import Chunk, CodeExample, Document, Source
from knowledge.services import cache, ingestion, sources
from mcpbridge import access
from mcpbridge.audit import recorder
from mcpbridge.models import ApiKey
from workflow.models import Membership, Project
from workflow.services import projects

JSON = "application/json"
LISTS = ("sources", "documents", "chunks", "code-examples")
GUIDE = """# Signing in

Access tokens live ten minutes.

## Validate a token

Check the algorithm by name:

```python
def validate_token(token):
    return jwt.decode(token, KEY, algorithms=["HS256"])
```

## Deployments

Servers are drained one after the other.
"""


@pytest.fixture(autouse=True)
def nothing_left_over(db: None) -> Iterator[None]:
    access.keyring.forget()
    cache.forget()
    vectors.resting.end()
    yield
    for name in stores.store().collections():
        stores.store().drop(name)


def read_all() -> None:
    while (source := ingestion.claim()) is not None:
        ingestion.read(source, stop=lambda: False)


def make(project: Project, title: str = "Guide", text: str = GUIDE, **more: Any) -> Source:
    given: dict[str, Any] = {"type": "manual", "content": text, **more}
    made = sources.create(project_id=project.pk, actor=actors.SYSTEM, title=title, **given)
    read_all()
    made.refresh_from_db()
    return made


@pytest.fixture
def ours() -> Project:
    return projects.create(slug="ours", name="Ours")


@pytest.fixture
def theirs() -> Project:
    return projects.create(slug="theirs", name="Theirs")


def logged_in(name: str, project: Project | None = None, role: str = "member", **more: Any) -> Client:
    user = get_user_model().objects.create_user(name, password="a long enough one", **more)
    if project is not None:
        Membership.objects.create(user=user, project=project, role=role)
    client = Client()
    client.force_login(user)
    return client


def with_key(*scopes: str, **more: Any) -> Client:
    return Client(headers={"X-API-Key": ApiKey.objects.issue(name="api", scopes=list(scopes), **more)[1]})


@pytest.fixture
def member(ours: Project) -> Client:
    return logged_in("mia", ours)


def problem(response: Any, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.content
    assert response.headers["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["code"] == code
    assert body["suggestion"] and body["trace_id"]
    return body


def shown(response: HttpResponse, status: int = 200) -> dict[str, Any]:
    assert response.status_code == status, response.content
    body: dict[str, Any] = response.json()  # type: ignore[attr-defined]  # the test client's
    return body


def names_of(page: dict[str, Any], key: str) -> list[Any]:
    return [row[key] for row in page["results"]]


# --- reading --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LISTS)
def test_a_list_and_a_row_are_shown_to_those_who_may_see_them(ours: Project, member: Client, kind: str) -> None:
    make(ours)
    row = shown(member.get(f"/api/v1/{kind}/"))["results"][0]
    again = shown(member.get(f"/api/v1/{kind}/{row['id']}/"))
    assert row.items() <= again.items()
    assert again["project"] == "ours"
    assert shown(member.get(f"/api/v1/{kind}/{str(row['id']).rpartition('-')[2]}/")) == again


@pytest.mark.parametrize("kind", LISTS)
def test_rows_of_others_answer_as_unknown_ones_do(ours: Project, theirs: Project, member: Client, kind: str) -> None:
    make(ours)
    make(theirs)
    boss = logged_in("root", is_superuser=True, is_staff=True)
    foreign = next(row for row in boss.get(f"/api/v1/{kind}/").json()["results"] if row["project"] == "theirs")
    for client in (member, with_key("read", "write", "admin", project_id=ours.pk)):
        assert set(names_of(client.get(f"/api/v1/{kind}/?limit=200").json(), "project")) == {"ours"}
        known = problem(client.get(f"/api/v1/{kind}/{foreign['id']}/"), 404, "not_found")
        unknown = problem(client.get(f"/api/v1/{kind}/99999999/"), 404, "not_found")
        assert known["detail"] == unknown["detail"]


@pytest.mark.parametrize("kind", [*LISTS, "chunks/?q=tokens", "code-examples/?q=tokens", "sources/{}/documents/"])
def test_the_number_of_queries_of_a_list_does_not_grow_with_its_rows(ours: Project, member: Client, kind: str) -> None:
    first = make(ours)
    path = f"/api/v1/{kind.format(first.public_id)}"

    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            shown(member.get(path, {"limit": "200"} if "?" not in path else {}))
        return len(seen)

    few = queries()
    for number in range(3):
        make(ours, title=f"More {number}", text=f"{GUIDE}\n{number}")
    assert queries() == few <= 9


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("type=manual", 2), ("type=web", 0), ("status=active", 2), ("status=paused", 0), ("tag=auth", 1), ("tag=no", 0),
        ("q=guide", 1), ("q=ZZZ", 0), ("project=ours", 2), ("project=theirs", 0), ("ordering=-priority", 2),
    ],
)  # fmt: skip
def test_sources_are_narrowed(ours: Project, member: Client, query: str, count: int) -> None:
    make(ours, title="Guide", tags=["auth", "api"])
    make(ours, title="Other", text="# Other\n\nThings.")
    assert shown(member.get(f"/api/v1/sources/?{query}"))["count"] == count


def test_passages_are_narrowed_and_found_by_their_words(ours: Project, member: Client) -> None:
    source = make(ours)
    make(ours, title="Other", text="# Cooking\n\nBoil the tokens.")
    document = source.documents.get()
    for name in (source.public_id, str(source.pk)):
        assert shown(member.get(f"/api/v1/chunks/?source={name}"))["count"] == source.chunk_count
    assert shown(member.get(f"/api/v1/chunks/?document={document.public_id}"))["count"] == source.chunk_count
    assert shown(member.get("/api/v1/chunks/?has_code=true"))["count"] == 1
    best = shown(member.get("/api/v1/chunks/?q=drained servers"))["results"][0]
    assert "drained one after the other" in best["text"]
    assert best["lines"][1] >= 15
    assert (best["document"], best["path"]) == (document.public_id, "text.md")
    assert shown(member.get("/api/v1/chunks/?q=zebra"))["count"] == 0
    assert shown(member.get("/api/v1/code-examples/?language=py&q=algorithm"))["count"] == 1
    assert shown(member.get("/api/v1/code-examples/?q=cooking"))["count"] == 0
    assert shown(member.get("/api/v1/code-examples/?language=rust"))["count"] == 0


@pytest.mark.parametrize(
    "path",
    [
        "sources/?status=nope", "sources/?type=x", "sources/?q=%00", "chunks/?source=document-1", "chunks/?source=x",
        "chunks/?q=%00", "documents/?source=99999999999999999999", "chunks/?limit=201", "code-examples/?source=0",
    ],
)  # fmt: skip
def test_a_bad_filter_is_refused(member: Client, path: str) -> None:
    problem(member.get(f"/api/v1/{path}"), 422, "invalid_input")


def test_a_document_shows_its_text_only_when_it_is_opened(ours: Project, member: Client) -> None:
    document = make(ours).documents.get()
    listed = shown(member.get("/api/v1/documents/"))["results"][0]
    assert "text" not in listed
    assert listed["chunk_count"] == document.chunks.count() > 0
    assert shown(member.get(f"/api/v1/documents/{document.public_id}/"))["text"] == document.text


def test_lines_of_a_document_are_given_as_citations_count_them(ours: Project, member: Client) -> None:
    document = make(ours).documents.get()
    lines = document.text.split("\n")
    path = f"/api/v1/documents/{document.public_id}/lines/"
    some = shown(member.get(path, {"from": 1, "to": 3}))
    assert (some["text"], some["lines"]) == ("\n".join(lines[:3]), [1, 3])
    assert shown(member.get(path))["text"] == document.text
    assert shown(member.get(path, {"from": len(lines)}))["text"] == lines[-1]
    for bad in ("from=0", "from=5&to=4", f"to={len(lines) + 1}", "from=x", "until=3", "from=9999999999"):
        problem(member.get(f"{path}?{bad}"), 422, "invalid_input")


# --- search ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(transactional_db: None) -> Iterator[None]:
    """The log of calls ends with the test."""
    yield
    recorder.stop()


def test_search_gives_what_the_tool_gives(recorded: None, ours: Project, member: Client) -> None:
    source = make(ours, tags=["auth", "api"])
    index.drain()
    query = f"q=validate_token&tags=auth,api&sources={source.public_id}&has_code=true&include_code_examples=true"
    answer = shown(member.get(f"/api/v1/knowledge/search/?{query}&explain=true&top_k=3"))
    key = ApiKey.objects.issue(name="tool", scopes=["read"], project_id=ours.pk)[1]
    told = Client(headers={"X-API-Key": key}).post(
        "/mcp/execute",
        {
            "tool": "search_knowledge",
            "args": {
                "query": "validate_token", "top_k": 3, "include_code_examples": True, "explain": True,
                "filters": {"tags": ["auth", "api"], "sources": [source.public_id], "has_code": True},
            },
        },
        JSON,
    )  # fmt: skip
    expected = shown(told)["result"]
    assert answer.pop("search_time_ms") >= 0 <= expected.pop("search_time_ms")
    assert answer == expected
    assert "validate_token" in answer["results"][0]["content"]
    assert answer["results"][0]["code_examples"][0]["language"] == "python"
    assert answer["results"][0]["explain"]["legs"]
    assert (answer["mode"], answer["degraded"]) == ("hybrid", False)


def test_search_stays_inside_the_project(ours: Project, theirs: Project, member: Client) -> None:
    make(theirs, text="# Secret\n\nThe zebra password is stripes.")
    make(ours)
    found = shown(member.get("/api/v1/knowledge/search/?q=zebra password"))
    assert all("zebra" not in result["content"] for result in found["results"])
    problem(member.get("/api/v1/knowledge/search/?q=zebra&project=theirs"), 404, "not_found")
    boss = logged_in("root", is_superuser=True)
    assert "ours, theirs" in problem(boss.get("/api/v1/knowledge/search/?q=zebra"), 422, "invalid_input")["detail"]
    for where in ({"QUERY_STRING": "q=zebra&project=theirs"}, {"QUERY_STRING": "q=zebra", "HTTP_X_PROJECT": "theirs"}):
        assert "zebra" in shown(boss.get("/api/v1/knowledge/search/", **where))["results"][0]["content"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "query",
    [
        "", "q=", "q=%20", "q=x&top_k=0", "q=x&top_k=201", "q=x&top_k=1000000000", "q=x&mode=best", "q=x&limit=3",
        "q=x&has_code=perhaps", "q=x&sources=nine", "q=%00", "q=x&tags=" + "a" * 65, "q=" + "x" * 10_001,
    ],
)  # fmt: skip
def test_a_bad_search_is_refused(ours: Project, member: Client, query: str) -> None:
    problem(member.get(f"/api/v1/knowledge/search/?{query}"), 422, "invalid_input")


# --- doors ----------------------------------------------------------------------------------------------------------


def test_without_key_or_login_everything_is_401(client: Client) -> None:
    for path in (*LISTS, "knowledge/search"):
        problem(client.get(f"/api/v1/{path}/"), 401, "unauthenticated")
    problem(client.post("/api/v1/sources/upload/", {"file": SimpleUploadedFile("a.md", b"x")}), 401, "unauthenticated")


def test_keys_act_by_their_scopes_and_toolsets(ours: Project) -> None:
    source = make(ours)
    reader, writer = with_key("read"), with_key("write")
    body = {"title": "T", "type": "manual", "content": "Text."}
    assert reader.get("/api/v1/sources/").status_code == 200
    problem(reader.post("/api/v1/sources/", body, JSON), 403, "forbidden")
    problem(reader.delete(f"/api/v1/sources/{source.pk}/"), 403, "forbidden")
    problem(writer.get("/api/v1/knowledge/search/?q=x"), 403, "forbidden")
    assert writer.post("/api/v1/sources/", body, JSON).status_code == 201
    other = with_key("read", toolsets=["workflow"])
    for kind in (*LISTS, "knowledge/search"):
        problem(other.get(f"/api/v1/{kind}/?q=x"), 403, "forbidden")


def test_a_viewer_reads_and_changes_nothing(ours: Project) -> None:
    source = make(ours)
    document = source.documents.get()
    viewer = logged_in("vic", ours, "viewer")
    assert viewer.get(f"/api/v1/sources/{source.pk}/").status_code == 200
    problem(viewer.post("/api/v1/sources/", {"title": "T", "type": "manual", "content": "x"}, JSON), 403, "forbidden")
    problem(viewer.post("/api/v1/sources/upload/", {"file": SimpleUploadedFile("a.md", b"x")}), 403, "forbidden")
    for action in ("reindex", "retry", "pause", "resume"):
        problem(viewer.post(f"/api/v1/sources/{source.pk}/{action}/", {}, JSON), 403, "forbidden")
    problem(viewer.patch(f"/api/v1/sources/{source.pk}/", {"title": "T"}, JSON), 403, "forbidden")
    for path in (f"sources/{source.pk}", f"documents/{document.pk}"):
        problem(viewer.delete(f"/api/v1/{path}/"), 403, "forbidden")
    problem(viewer.post(f"/api/v1/documents/{document.pk}/retry/"), 403, "forbidden")
    assert (Source.objects.count(), Document.objects.count()) == (1, 1)


def test_what_is_foreign_cannot_be_changed(theirs: Project, member: Client) -> None:
    source = make(theirs)
    document = source.documents.get()
    body = {"project": "theirs", "title": "T", "type": "manual", "content": "x"}
    problem(member.post("/api/v1/sources/", body, JSON), 404, "not_found")
    file = SimpleUploadedFile("a.md", b"x")
    problem(member.post("/api/v1/sources/upload/", {"project": "theirs", "file": file}), 404, "not_found")
    problem(member.patch(f"/api/v1/sources/{source.pk}/", {"title": "Mine"}, JSON), 404, "not_found")
    for action in ("reindex", "retry", "pause", "resume"):
        problem(member.post(f"/api/v1/sources/{source.pk}/{action}/", {}, JSON), 404, "not_found")
    problem(member.post(f"/api/v1/sources/{source.pk}/files/", {"file": file}), 404, "not_found")
    problem(member.get(f"/api/v1/sources/{source.pk}/documents/"), 404, "not_found")
    problem(member.get(f"/api/v1/documents/{document.pk}/lines/"), 404, "not_found")
    for path in (f"sources/{source.pk}", f"documents/{document.pk}"):
        problem(member.delete(f"/api/v1/{path}/"), 404, "not_found")
    assert Source.objects.get().title == "Guide"


# --- writing --------------------------------------------------------------------------------------------------------


def test_a_source_is_added_changed_and_deleted(ours: Project, member: Client) -> None:
    body = {"title": "Notes", "type": "manual", "content": GUIDE, "tags": ["a", "a", "b"], "priority": 9}
    made = shown(member.post("/api/v1/sources/", body, JSON), 201)
    assert (made["status"], made["tags"], made["created_by"]) == ("pending", ["a", "b"], "mia")
    read_all()
    path = f"/api/v1/sources/{made['id']}/"
    row = shown(member.get(path))
    assert (row["status"], row["document_count"], row["progress"]) == ("active", 1, None)
    assert row["pending_chunks"] == row["chunk_count"] > 0
    changed = shown(member.patch(path, {"title": "Better", "tags": [], "priority": 1}, JSON))
    assert (changed["title"], changed["tags"], changed["priority"]) == ("Better", [], 1)
    for _ in range(2):
        assert shown(member.patch(path, {"title": "Better"}, JSON))["title"] == "Better"
    problem(member.patch(path, {"type": "web"}, JSON), 422, "invalid_input")
    problem(member.patch(path, {"options": {"max_pages": 3}}, JSON), 422, "invalid_input")
    assert member.delete(path).status_code == 204
    problem(member.delete(path), 404, "not_found")
    assert not Chunk.objects.exists()
    assert not CodeExample.objects.exists()


def test_a_source_is_read_again_paused_and_resumed(ours: Project, member: Client) -> None:
    path = f"/api/v1/sources/{make(ours).public_id}"
    assert shown(member.post(f"{path}/reindex/", {"force": True}, JSON))["status"] == "pending"
    assert Source.objects.get().run_force
    assert shown(member.post(f"{path}/pause/"))["status"] == "paused"
    problem(member.post(f"{path}/pause/"), 409, "conflict")
    assert shown(member.post(f"{path}/resume/"))["status"] == "pending"
    problem(member.post(f"{path}/resume/"), 409, "conflict")
    assert shown(member.post(f"{path}/retry/"))["status"] == "pending"
    problem(member.post(f"{path}/reindex/", {"hard": True}, JSON), 422, "invalid_input")
    read_all()
    assert shown(member.get(f"{path}/"))["status"] == "active"


@pytest.mark.parametrize(
    "body",
    [
        {}, [], {"title": "T"}, {"title": "", "type": "manual", "content": "x"}, {"title": "T", "type": "manual"},
        {"title": "T", "type": "rss", "url": "https://example.org"}, {"title": "T", "type": "upload"},
        {"title": "T", "type": "manual", "content": "x", "surprise": 1},
        {"title": "T", "type": "manual", "content": "a\x00"}, {"title": "\ud800", "type": "manual", "content": "a"},
        {"title": "T", "type": "manual", "content": "x", "url": "https://example.org"},
        {"title": "T", "type": "manual", "content": "x", "priority": 11},
        {"title": "T", "type": "manual", "content": "x", "priority": 10**30},
        {"title": "T", "type": "manual", "content": "x", "tags": ["a,b"]},
        {"title": "T", "type": "manual", "content": "x", "tags": ["x" * 65]},
        {"title": "T", "type": "manual", "content": "x", "options": {"max_pages": 3}},
        {"title": "T" * 256, "type": "manual", "content": "x"},
        {"title": "T", "type": "web", "url": "file:///etc/passwd"}, {"title": "T", "type": "web", "url": "ftp://a.b"},
        {"title": "T", "type": "web", "url": "https://example.org", "options": {"depth": 3}},
        {"title": "T", "type": "web", "url": "https://example.org", "options": {"max_pages": "3"}},
        {"title": "T", "type": "directory", "path": "relative"},
    ],
)  # fmt: skip
def test_a_bad_source_is_refused_and_changes_nothing(ours: Project, member: Client, body: Any) -> None:
    problem(member.post("/api/v1/sources/", body, JSON), 422, "invalid_input")
    assert not Source.objects.exists()


def test_a_directory_outside_the_allowed_roots_is_forbidden(ours: Project, member: Client, tmp_path: Path) -> None:
    body = {"title": "T", "type": "directory", "path": str(tmp_path)}
    problem(member.post("/api/v1/sources/", body, JSON), 403, "forbidden")
    assert not Source.objects.exists()


def test_a_document_is_deleted_or_read_again_where_it_failed(ours: Project, member: Client) -> None:
    broken = SimpleUploadedFile("broken.pdf", b"%PDF-1.4 no")
    fine = SimpleUploadedFile("fine.md", b"# Fine\n\nAll of it.")
    shown(member.post("/api/v1/sources/upload/", {"title": "Both", "files": [broken, fine]}), 201)
    read_all()
    rows = {row["path"]: row for row in shown(member.get("/api/v1/documents/"))["results"]}
    assert rows["broken.pdf"]["status"] == "error"
    assert rows["broken.pdf"]["error"]
    assert shown(member.get("/api/v1/documents/?status=error&q=BROKEN"))["count"] == 1
    problem(member.post(f"/api/v1/documents/{rows['fine.md']['id']}/retry/"), 409, "conflict")
    shown(member.post(f"/api/v1/documents/{rows['broken.pdf']['id']}/retry/"))
    assert Source.objects.get().status == "pending"
    read_all()
    assert member.delete(f"/api/v1/documents/{rows['broken.pdf']['id']}/").status_code == 204
    problem(member.delete(f"/api/v1/documents/{rows['broken.pdf']['id']}/"), 404, "not_found")
    row = shown(member.get("/api/v1/sources/"))["results"][0]
    assert (row["document_count"], row["failed_documents"]) == (1, 0)
    for method in ("patch", "put"):
        path = f"/api/v1/documents/{rows['fine.md']['id']}/"
        problem(getattr(member, method)(path, {}, JSON), 405, "invalid_input")


@pytest.mark.parametrize("kind", ["chunks", "code-examples"])
def test_passages_cannot_be_written(ours: Project, member: Client, kind: str) -> None:
    make(ours)
    pk = member.get(f"/api/v1/{kind}/").json()["results"][0]["id"]
    for method in ("put", "patch", "delete", "post"):
        path = f"/api/v1/{kind}/" if method == "post" else f"/api/v1/{kind}/{pk}/"
        problem(getattr(member, method)(path, {}, JSON), 405, "invalid_input")


# --- uploads --------------------------------------------------------------------------------------------------------


def zipped(**files: str) -> SimpleUploadedFile:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"{name}.md", text)
    return SimpleUploadedFile("docs.zip", out.getvalue())


def test_files_are_uploaded_added_and_replaced(ours: Project, member: Client) -> None:
    body = {"title": "Docs", "tags": "a, b", "priority": "7", "description": "d", "files": [zipped(one="# One\n\n1")]}
    made = shown(member.post("/api/v1/sources/upload/", body), 201)
    assert (made["status"], [file["name"] for file in made["files"]]) == ("pending", ["docs.zip"])
    read_all()
    source = Source.objects.get()
    assert (source.public_id, source.title, source.tags, source.priority) == (made["source_id"], "Docs", ["a", "b"], 7)
    path = f"/api/v1/sources/{made['source_id']}/"
    more = shown(member.post(f"{path}files/", {"file": SimpleUploadedFile("two.md", b"# Two\n\nold")}))
    assert len(more["files"]) == 2
    read_all()
    shown(member.post(f"{path}files/", {"file": SimpleUploadedFile("two.md", b"# Two\n\nnew")}))
    read_all()
    page = shown(member.get(f"{path}documents/"))
    assert names_of(page, "path") == ["docs.zip/one.md", "two.md"]
    assert "new" in Document.objects.get(path="two.md").text
    manual = make(ours, title="Manual")
    answer = member.post(f"/api/v1/sources/{manual.pk}/files/", {"file": SimpleUploadedFile("a.md", b"x")})
    problem(answer, 422, "invalid_input")


def test_an_upload_without_a_title_is_called_by_its_file_and_names_lead_nowhere(ours: Project, member: Client) -> None:
    shown(member.post("/api/v1/sources/upload/", {"file": SimpleUploadedFile("../../etc/note.md", b"# N\n\nx")}), 201)
    read_all()
    assert (Source.objects.get().title, Document.objects.get().path) == ("note.md", "note.md")


@pytest.mark.parametrize(
    "body",
    [
        {}, {"title": "T"}, {"file": SimpleUploadedFile("a.md", b"")}, {"file": "not a file"},
        {"file": SimpleUploadedFile("a.md", b"x"), "surprise": "1"},
        {"file": SimpleUploadedFile("a.md", b"x"), "priority": "0"},
        {"file": SimpleUploadedFile("a.md", b"x"), "title": "a\x00"},
        {"files": [SimpleUploadedFile("a.md", b"x"), SimpleUploadedFile("a.md", b"y")]},
        {"files": [SimpleUploadedFile(f"{number}.md", b"x") for number in range(101)]},
    ],
)  # fmt: skip
def test_a_bad_upload_is_refused_and_keeps_nothing(ours: Project, member: Client, body: Any) -> None:
    for value in body.values():
        for file in value if isinstance(value, list) else [value]:
            if isinstance(file, SimpleUploadedFile):
                file.seek(0)
    problem(member.post("/api/v1/sources/upload/", body), 422, "invalid_input")
    assert not Source.objects.exists()


def test_an_upload_of_another_kind_or_broken_or_with_too_many_files_is_refused(ours: Project) -> None:
    for client in (with_key("write"), logged_in("mia", ours)):
        problem(client.post("/api/v1/sources/upload/", {"title": "T"}, JSON), 415, "invalid_input")
        problem(client.post("/api/v1/sources/upload/", b"x", "multipart/form-data; boundary="), 400, "invalid_input")
        many = [SimpleUploadedFile(f"{number}.md", b"x") for number in range(201)]
        problem(client.post("/api/v1/sources/upload/", {"files": many}), 413, "too_large")
        fields = {f"f{number}": "x" for number in range(1001)}
        problem(client.post("/api/v1/sources/upload/", fields), 413, "too_large")


def test_a_login_needs_the_csrf_token_to_upload(ours: Project) -> None:
    strict = Client(enforce_csrf_checks=True)
    user = get_user_model().objects.create_user("kim", password="x")
    Membership.objects.create(user=user, project=ours)
    strict.force_login(user)
    problem(strict.post("/api/v1/sources/upload/", {"file": SimpleUploadedFile("a.md", b"x")}), 403, "forbidden")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of at most 1 MB, so that tests need not send 25."""
    conf = config.current()
    smaller = conf.model_copy(update={"knowledge": conf.knowledge.model_copy(update={"upload_max_mb": 1})})
    monkeypatch.setattr(config, "current", lambda: smaller)


def test_a_file_over_the_limit_is_413_and_named(ours: Project, member: Client, small: None) -> None:
    fits = SimpleUploadedFile("fits.md", b"# x\n" + b"x" * (multipart.MEGABYTE - 4))
    large = SimpleUploadedFile("large.md", b"x" * (multipart.MEGABYTE + 1))
    body = problem(member.post("/api/v1/sources/upload/", {"files": [fits, large]}), 413, "too_large")
    assert "large.md" in body["detail"]
    assert not Source.objects.exists()
    fits.seek(0)
    shown(member.post("/api/v1/sources/upload/", {"files": [fits]}), 201)


def form(name: str, size: int) -> tuple[dict[str, str], Callable[[], AsyncIterator[bytes]]]:
    """The headers of a form with one file, and its body in pieces of 64 KiB."""
    head = f'--b\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
    tail = b"\r\n--b--\r\n"

    async def pieces() -> AsyncIterator[bytes]:
        yield head
        left = size
        while left:
            piece = min(left, 65536)
            left -= piece
            yield b"x" * piece
        yield tail

    return {
        "Content-Type": "multipart/form-data; boundary=b",
        "Content-Length": str(len(head) + size + len(tail)),
    }, pieces


@pytest.mark.django_db(transaction=True)
async def test_bodies_of_uploads_have_their_own_bound_at_the_door(web: httpx.AsyncClient, small: None) -> None:
    project = await sync_to_async(projects.create)(slug="ours", name="Ours")
    key = (await sync_to_async(ApiKey.objects.issue)(name="k", scopes=["write"], rate_per_minute=0))[1]
    as_key = {"X-API-Key": key}

    async def send(path: str, size: int, *, declared: bool = True, who: Any = as_key) -> httpx.Response:
        headers, pieces = form("a.md", size)
        if not declared:
            del headers["Content-Length"]
        return await web.post(path, content=pieces(), headers={**headers, **who})

    large = 8 * multipart.MEGABYTE + 1
    for path in ("/api/v1/sources/upload/", "/api/v1/sources/upload", "/api/v1/sources/source-1/files/"):
        for declared in (True, False):
            problem(await send(path, large, declared=declared), 413, "too_large")
    inside = await send("/api/v1/sources/upload/", 5 * multipart.MEGABYTE)
    assert "a.md has 5.0 MB" in problem(inside, 413, "too_large")["detail"]
    problem(await send("/api/v1/sources/", 5 * multipart.MEGABYTE), 413, "too_large")
    for stranger in ({}, {"Cookie": f"{settings.SESSION_COOKIE_NAME}=made-up"}):
        refused = problem(await send("/api/v1/sources/upload/", 5 * multipart.MEGABYTE, who=stranger), 413, "too_large")
        assert "4194304" in refused["detail"]
        problem(await send("/api/v1/sources/upload/", 1000, who=stranger), 401, "unauthenticated")
    mia = await sync_to_async(logged_in)("mia", project)
    cookie = {"Cookie": f"{settings.SESSION_COOKIE_NAME}={mia.cookies[settings.SESSION_COOKIE_NAME].value}"}
    problem(await send("/api/v1/sources/upload/", 5 * multipart.MEGABYTE, who=cookie), 403, "forbidden")  # CSRF
    for declared in (True, False):
        assert (await send("/api/v1/sources/upload/", 1000, declared=declared)).status_code == 201
    assert await Source.objects.filter(project=project).acount() == 2


def test_a_browser_can_browse(ours: Project, member: Client) -> None:
    make(ours)
    for path in (*LISTS, "knowledge/search"):
        page = member.get(f"/api/v1/{path}/?q=tokens", headers={"Accept": "text/html"})
        assert page.status_code == 200
        assert page.headers["Content-Type"].startswith("text/html")
