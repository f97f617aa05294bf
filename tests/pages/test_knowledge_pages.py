"""The knowledge pages: what they show, to whom, and what they never do."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile, TemporaryUploadedFile
from django.db import connection
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from devflow import actors, multipart
from devflow.errors import DevFlowError
from devflow.vectors import index, stores
from devflow.vectors import search as vectors
from devflow.vectors.models import Collection
from knowledge.indexing import uploads
from knowledge.models import Chunk, Document, Source
from knowledge.selectors.sources import KIND
from knowledge.services import ingestion, sources
from knowledge.views import markup
from tests.knowledge.loading.conftest import Configure, configure
from tests.pages.conftest import LogIn
from workflow.models import Project
from workflow.services import projects

__all__ = ["configure"]

GUIDE = """# Payments

How money moves.

## Webhooks

Verify the signature **before** reading the body, with `verify_signature`:

```python
def verify_signature(body, header):
    return hmac.compare_digest(body, header)
```

Answer within three seconds, or the provider sends it again: store the event, answer 200, work on it in the background.
Events arrive more than once and out of order, so look at the version of what they are about and leave old ones alone.
Nothing of the body is trusted before that; a header that is no hex is a wrong signature and not an error of ours.
The secret is turned once a year, and for a week both the old and the new one are taken, the new one first.

## Refunds

A refund is a new row, never a change of the payment: the books of a month that was closed stay as they were closed.
Partial refunds add up, and the provider refuses the one that would pass the charge. A card takes thirty days at most,
a bank fourteen. Whoever gives money back writes down why, and a second person looks at what is above a hundred.

<script>alert(1)</script>
"""
INLINE = re.compile(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=|javascript:")

Read = Callable[[], None]


@pytest.fixture(autouse=True)
def nothing_left_over(db: None) -> Iterator[None]:
    """Vectors and files live outside the test's transaction."""
    vectors.resting.end()
    yield
    for name in stores.store().collections():
        stores.store().drop(name)
    for source in Source.objects.all():
        uploads.discard(source.pk)


@pytest.fixture
def read() -> Read:
    """Read every source that waits, and make its vectors."""

    def now() -> None:
        while source := ingestion.claim():
            ingestion.read(source, stop=lambda: False)
        index.drain()

    return now


@pytest.fixture
def guide(project: Project, read: Read) -> Source:
    made = sources.create(
        project_id=project.pk,
        actor=actors.SYSTEM,
        title="Guide",
        type="upload",
        path="guide.md",
        content=GUIDE,
        tags=["payments"],
    )
    read()
    made.refresh_from_db()
    return made


@pytest.fixture
def max_(project: Project, log_in: LogIn) -> Client:
    return log_in(project, name="max")


@pytest.fixture
def viewer(project: Project, log_in: LogIn) -> Client:
    return log_in(project, name="vic", role="viewer")


def text_of(response: Any) -> str:
    content: str = response.content.decode()
    return content


def a_file(name: str = "notes.md", data: bytes = b"# Notes\n\nSomething worth keeping.\n") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, data, content_type="text/markdown")


def added(client: Client, **given: Any) -> Any:
    return client.post("/knowledge/add/", {"type": "manual", "priority": "5", "same_path": "on", **given})


def a_document(source: Source, path: str, text: str = "", **more: Any) -> Document:
    given = {"status": "indexed", "text": text, "title": path, **more}
    return Document.objects.create(source=source, project_id=source.project_id, path=path, **given)


def a_chunk(document: Document, ordinal: int, text: str = "passage", **more: Any) -> Chunk:
    digest = f"{document.pk}-{ordinal}"
    given = {"start_line": ordinal + 1, "end_line": ordinal + 1, "tokens": 3, "hash": digest, **more}
    return Chunk.objects.create(
        project_id=document.project_id,
        source=document.source,
        document=document,
        point=Chunk.point_of(document_id=document.pk, digest=digest, occurrence=0),
        ordinal=ordinal,
        text=text,
        **given,
    )


def pages_of(source: Source) -> list[str]:
    document = source.documents.get()
    return [
        "/knowledge/",
        "/knowledge/?q=signature&explain=1",
        "/knowledge/add/",
        f"/knowledge/sources/{source.pk}/",
        f"/knowledge/sources/{source.pk}/edit/",
        f"/knowledge/sources/{source.pk}/delete/",
        *(f"/knowledge/documents/{document.pk}/?view={view}" for view in ("lines", "read", "passages", "code")),
        f"/knowledge/documents/{document.pk}/delete/",
    ]


# --- every page -----------------------------------------------------------------------------------------------------


def test_without_a_login_every_page_leads_to_it(client: Client, guide: Source) -> None:
    for path in pages_of(guide):
        assert client.get(path).headers["Location"].startswith("/login/?next=/knowledge/"), path


def test_every_page_has_the_strict_policy_one_heading_and_nothing_inline(max_: Client, guide: Source) -> None:
    for path in pages_of(guide):
        response = max_.get(path)
        page = text_of(response)
        assert response.status_code == 200, path
        assert "default-src 'none'" in response.headers["Content-Security-Policy"]
        assert not INLINE.search(page), path
        assert page.count("<h1") == 1, path
        assert re.search(r"<title>\s*\S+.* · DevFlow</title>", page), path
        assert response.headers["Cache-Control"] == "private, no-store"


def test_the_pages_of_another_project_do_not_exist(log_in: LogIn, guide: Source) -> None:
    stranger = log_in(projects.create(slug="other", name="Other"), name="sid")
    document = guide.documents.get()
    for path in pages_of(guide)[3:]:
        assert stranger.get(path).status_code == 404, path
    for path in (
        *(f"/knowledge/sources/{guide.pk}/{action}/" for action in ("read", "retry", "pause", "files", "delete")),
        f"/knowledge/documents/{document.pk}/delete/",
    ):
        assert stranger.post(path).status_code == 404, path
    assert "Guide" not in text_of(stranger.get("/knowledge/?q=signature"))
    assert stranger.get("/knowledge/?project=shop").status_code == 404
    assert Source.objects.filter(pk=guide.pk).exists()


def test_a_viewer_sees_everything_and_changes_nothing(viewer: Client, guide: Source) -> None:
    number, document = guide.pk, guide.documents.get().pk
    for path in ("/knowledge/?q=signature", f"/knowledge/sources/{number}/", f"/knowledge/documents/{document}/"):
        page = text_of(viewer.get(path))
        assert "Payments" in page or "Guide" in page
        for words in ("Add a source", "Re-index", "Delete…", "Retry", "Add files"):
            assert words not in page, path
    forged = [f"/knowledge/sources/{number}/{action}/" for action in ("read", "reindex", "retry", "pause", "resume")]
    forged += [f"/knowledge/sources/{number}/{action}/" for action in ("edit", "files", "delete")]
    for path in (*forged, "/knowledge/add/", f"/knowledge/documents/{document}/delete/"):
        refused = viewer.post(path, {"type": "manual", "content": "x", "priority": "5", "title": "x"})
        assert (refused.status_code, "not change it" in text_of(refused)) == (403, True), path
    for path in (f"/knowledge/sources/{number}/edit/", "/knowledge/add/"):
        assert viewer.get(path).status_code == 403
    guide.refresh_from_db()
    assert (Source.objects.count(), guide.title, guide.status) == (1, "Guide", "active")


def test_a_form_without_its_token_is_refused(log_in: LogIn, guide: Source, project: Project) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = log_in(project, name="kim").cookies
    assert strict.post(f"/knowledge/sources/{guide.pk}/delete/").status_code == 403
    assert Source.objects.count() == 1


def test_reading_changes_nothing_and_writing_needs_a_post(max_: Client, guide: Source) -> None:
    for action in ("read", "reindex", "retry", "pause", "resume", "files"):
        assert max_.get(f"/knowledge/sources/{guide.pk}/{action}/").status_code == 405
    assert max_.post("/knowledge/").status_code == 405
    assert max_.post(f"/knowledge/sources/{guide.pk}/explode/").status_code == 404


def test_somebody_without_a_project_is_told_how_to_get_one(log_in: LogIn) -> None:
    nobody = log_in(name="nobody")
    assert "Ask an administrator" in text_of(nobody.get("/knowledge/"))
    assert nobody.get("/knowledge/add/").headers["Location"] == "/knowledge/"


# --- the list of sources --------------------------------------------------------------------------------------------


def test_an_empty_shelf_teaches_three_ways_to_fill_it(max_: Client, viewer: Client) -> None:
    page = text_of(max_.get("/knowledge/"))
    for words in ("Nothing is known here yet", "?type=upload", "?type=web", "?type=directory", "devflow ingest"):
        assert words in page
    assert 'role="search"' not in page
    assert "?type=upload" not in text_of(viewer.get("/knowledge/"))


def test_a_source_shows_how_far_it_is_what_failed_and_what_waits(max_: Client, project: Project) -> None:
    moving = Source.objects.create(
        project=project, title="Docs", type="web", url="https://docs.example.org/", status="indexing",
        run_done=37, run_total=150, document_count=1204, chunk_count=9000, tags=["api"], priority=9,
    )  # fmt: skip
    failed = Source.objects.create(
        project=project, title="Old", type="directory", url="/srv/old", status="error", run_wanted=False,
        error="This directory is not there.", failed_count=2, document_count=3, checked_at=timezone.now(),
    )  # fmt: skip
    document = a_document(failed, "a.md", "x")
    points = [a_chunk(document, number).point for number in range(3)]
    index.touch(KIND, points)
    page = text_of(max_.get("/knowledge/", headers={"HX-Request": "true"}))
    assert "<html" not in page
    assert re.search(r'<progress max="150"\s+value="37"\s+aria-label="Reading Docs">24 %', page)
    assert "1,204 documents · 9,000 passages" in page
    assert "37 of 150 · 24 %" in page
    assert "priority 9" in page
    assert "This directory is not there." in page
    assert f"/knowledge/sources/{failed.pk}/retry/" in page
    assert f"/knowledge/sources/{moving.pk}/retry/" not in page
    assert "3 passages wait for their vectors; keywords find them already." in page
    assert re.search(r'<time datetime="[^"]+"\s+title="[^"]+ UTC">just now', page)


def test_a_fault_of_the_vectors_is_said(max_: Client, project: Project, guide: Source) -> None:
    Collection.objects.filter(kind=KIND).update(fault="the disk is full")
    for path in ("/knowledge/", f"/knowledge/sources/{guide.pk}/"):
        assert "keywords answer alone: the disk is full" in text_of(max_.get(path))


# --- search ---------------------------------------------------------------------------------------------------------


def test_a_search_marks_cites_and_gives_the_code(max_: Client, guide: Source) -> None:
    document = guide.documents.get()
    page = text_of(max_.get("/knowledge/?q=verify the signatures of webhooks"))
    assert "Payments › <mark>Webhooks</mark>" in page
    assert f'href="/knowledge/documents/{document.pk}/?line=7#L7-L17"' in page
    assert "<mark>Verify</mark> the <mark>signature</mark> <strong>before</strong>" in page
    assert "def <mark>verify</mark>_<mark>signature</mark>(body, header):" in page
    assert re.search(r'data-copy="code-1-1"\s+aria-label="Copy this code"', page)
    assert "```" not in page
    assert re.search(r"\d+ results?</h2>", page)
    assert 'value="verify the signatures of webhooks"' in page


def test_explaining_shows_each_part_of_a_score(max_: Client, guide: Source) -> None:
    plain = text_of(max_.get("/knowledge/?q=verify_signature"))
    page = text_of(max_.get("/knowledge/?q=verify_signature&explain=1"))
    for name in ("meaning", "words", "names", "priority", "freshness"):
        assert f"<dt>{name}</dt>" in page
        assert f"<dt>{name}</dt>" not in plain


def test_filters_narrow_and_can_be_taken_off_one_by_one(max_: Client, guide: Source) -> None:
    for narrowing, is_found in {
        "tag=payments": True,
        "tag=nothing": False,
        "tag=payments&tag=nothing": False,
        "code=yes": True,
        "code=no": True,
        "language=python": True,
        "language=py": True,
        "language=rust": False,
        "source=999999": False,
    }.items():
        page = text_of(max_.get(f"/knowledge/?q=signature+refund&{narrowing}"))
        assert ('class="panel hit"' in page) is is_found, narrowing
        assert page.count('aria-label="Remove the filter') == narrowing.count("=")
        assert ("Search without them" in page) is not is_found


def test_the_source_of_a_result_can_be_chosen(max_: Client, guide: Source) -> None:
    page = text_of(max_.get(f"/knowledge/?q=refund&source={guide.pk}"))
    assert 'class="panel hit"' in page
    assert re.search(rf'name="source"\s+value="{guide.pk}"\s+checked', page)
    assert 'aria-label="Remove the filter Guide"' in page


def test_a_weaker_answer_says_why(max_: Client, guide: Source) -> None:
    reranked = text_of(max_.get("/knowledge/?q=refund&mode=reranked"))
    assert "own order: No language model is configured" in reranked
    assert re.search(r'value="reranked"\s+checked', reranked)
    vectors.resting.begin("The vector store does not answer: gone.")
    degraded = text_of(max_.get("/knowledge/?q=refund"))
    assert "Only part of the search ran: The vector store does not answer: gone." in degraded
    assert 'class="panel hit"' in degraded


def test_what_nothing_is_found_for_gets_advice(max_: Client, guide: Source) -> None:
    vectors.resting.begin("away")  # by meaning there is always something near
    page = text_of(max_.get("/knowledge/?q=zeppelin"))
    assert "Nothing found" in page
    assert "Ask in other words" in page


def test_an_address_that_makes_no_sense_still_searches(max_: Client, guide: Source) -> None:
    for query in (
        *("q=refund&mode=psychic", "q=refund&source=abc&source=-1&top=0&top=x&code=maybe", "q=%00refund%00"),
        *("q=refund&language=%00", "q=" + "refund+" * 900, "q=%22%27%28%29*:refund", "q=refund&tag=%00"),
    ):
        response = max_.get(f"/knowledge/?{query}")
        assert response.status_code == 200
        assert 'class="panel hit"' in text_of(response), query


def test_words_of_a_document_and_of_a_question_are_data(max_: Client, guide: Source) -> None:
    for question in ("refund script alert", '"><script>alert(1)</script>'):
        page = text_of(max_.get("/knowledge/", {"q": question}))
        assert not re.search(r"<script(?![^>]*src=)|<img", page)
    assert "&lt;<mark>script</mark>&gt;" in page


def test_more_can_be_shown(max_: Client, project: Project, read: Read) -> None:
    text = "\n\n".join(f"## Part {number}\n\n" + f"Gadget {number} spins. " * 60 for number in range(14))
    sources.create(project_id=project.pk, actor=actors.SYSTEM, title="Long", type="manual", content=text)
    read()
    first = text_of(max_.get("/knowledge/?q=gadget"))
    assert first.count('class="panel hit"') == 10
    more = re.search(r'href="(\?q=gadget&amp;top=20)#result-10"', first)
    assert more is not None
    assert text_of(max_.get(f"/knowledge/{more[1].replace('&amp;', '&')}")).count('class="panel hit"') > 10


def test_a_source_that_changed_since_is_named_stale(
    max_: Client, project: Project, read: Read, tmp_path: Path, configure: Configure
) -> None:
    (tmp_path / "a.md").write_text("# Gadgets\n\nA gadget spins.\n")
    configure(allowed_roots=tmp_path)
    sources.create(project_id=project.pk, actor=actors.SYSTEM, title="Dir", type="directory", path=str(tmp_path))
    read()
    assert "changed since it was read" not in text_of(max_.get("/knowledge/?q=gadget"))
    (tmp_path / "a.md").write_text("# Gadgets\n\nA gadget spins no more.\n")
    assert "changed since it was read" in text_of(max_.get("/knowledge/?q=gadget"))


# --- adding ---------------------------------------------------------------------------------------------------------


def test_text_is_pasted_and_titles_itself(max_: Client, read: Read) -> None:
    response = added(max_, content="# How we deploy\n\nSlowly.", tags="ops,  deploy ,ops", description="For everybody")
    source = Source.objects.get()
    assert response.headers["Location"] == f"/knowledge/sources/{source.pk}/"
    assert (source.title, source.tags, source.created_by) == ("How we deploy", ["ops", "deploy"], "max")
    assert "How we deploy: added, and being read." in text_of(max_.get(response.headers["Location"]))
    read()
    assert "1 document · 1 passage" in text_of(max_.get(f"/knowledge/sources/{source.pk}/"))


def test_files_are_uploaded_several_at_once(max_: Client, read: Read) -> None:
    added(max_, type="upload", upload=[a_file(), a_file("../../etc/passwd.md"), a_file("ünï.txt")])
    source = Source.objects.get()
    assert source.title == "notes.md and 2 more"
    read()
    assert set(source.documents.values_list("path", "status")) == {
        ("notes.md", "indexed"),
        ("passwd.md", "indexed"),
        ("ünï.txt", "indexed"),
    }


def test_a_site_is_added_with_how_far_to_follow(max_: Client) -> None:
    added(
        max_, type="web", url=" https://docs.example.org/guide/ ", max_pages="40", max_depth="", same_path="",
        include="https://docs.example.org/guide/*\n\n", exclude="*.json", priority="8",
    )  # fmt: skip
    source = Source.objects.get()
    assert (source.title, source.priority) == ("docs.example.org/guide", 8)
    assert source.options == {
        "max_pages": 40,
        "same_path": False,
        "include": ["https://docs.example.org/guide/*"],
        "exclude": ["*.json"],
    }


def test_a_directory_is_added_inside_the_roots_that_are_named(
    max_: Client, tmp_path: Path, configure: Configure, read: Read
) -> None:
    page = text_of(max_.get("/knowledge/add/?type=directory"))
    assert "DEVFLOW_ALLOWED_ROOTS" in page
    assert re.search(r'id="type-directory"\s+value="directory"\s+checked', page)
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("# A\n\nText.\n")
    configure(allowed_roots=tmp_path)
    assert f"<code>{tmp_path}</code>" in text_of(max_.get("/knowledge/add/"))
    added(max_, type="directory", path=str(docs))
    source = Source.objects.get()
    assert (source.title, source.url) == ("docs", str(docs))
    refused = added(max_, type="git", path=str(docs))
    assert refused.status_code == 422
    assert "no git checkout" in text_of(refused)


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"content": "  "}, "content", "Paste some text."),
        ({"content": "x" * 100_001}, "content", "at most 100000 characters"),
        ({"type": "upload"}, "upload", "Choose a file."),
        ({"type": "web", "url": ""}, "url", "Give an address."),
        ({"type": "web", "url": "file:///etc/passwd"}, "url", "http or https"),
        ({"type": "web", "url": "http://127.0.0.1/"}, "url", "not a public address"),
        ({"type": "web", "url": "https://x.example", "max_pages": "many"}, "max_pages", "whole number"),
        ({"type": "web", "url": "https://x.example", "include": "x" * 300}, "include", "at most 50 patterns"),
        ({"type": "directory", "path": "docs"}, "path", "must be absolute"),
        ({"type": "directory", "path": "/etc"}, "__all__", "administrator sets allowed_roots"),
        ({"content": "x", "priority": "11"}, "priority", "less than or equal to 10"),
        ({"content": "x", "priority": ""}, "priority", "From 1 to 10"),
        ({"content": "x", "title": "t" * 256}, "title", "at most 255 characters"),
        ({"content": "x", "tags": ",".join(map(str, range(51)))}, "tags", "At most 50 tags"),
        ({"content": "x", "tags": "t" * 65}, "tags", "64 characters"),
        ({"content": "x", "title": "nul\0"}, "title", "Null characters"),
        ({"type": "magic", "content": "x"}, "type", "Select a valid choice"),
    ],
)  # fmt: skip
def test_a_refusal_stands_beside_its_field_and_nothing_typed_is_lost(
    max_: Client, given: dict[str, str], field: str, words: str
) -> None:
    typed = {"description": "Typed with care", **given}
    page = text_of(refused := added(max_, **typed))
    assert refused.status_code == 422
    beside = re.search(rf'data-errors="{field}"><ul class="errorlist[^"]*"[^>]*>(.*?)</ul>', page, re.DOTALL)
    assert beside is not None, page
    assert words in beside[1]
    assert page.count('class="errorlist') == 1
    assert "Typed with care" in page
    if given.get("url"):
        assert f'value="{given["url"]}"' in page
    answer = max_.post("/knowledge/add/", {"priority": "5", "type": "manual", **typed}, headers=JSON)
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])
    assert not Source.objects.exists()


JSON = {"Accept": "application/json"}


def test_what_was_typed_for_another_type_is_kept_and_not_complained_about(max_: Client) -> None:
    page = text_of(added(max_, content="", url="not an address", max_pages="many", path="/srv/x"))
    assert page.count('class="errorlist') == 1
    for words in ('value="not an address"', 'value="many"', 'value="/srv/x"'):
        assert words in page


def test_files_that_cannot_be_taken_are_named(max_: Client, configure: Configure) -> None:
    configure(knowledge_upload_max_mb=1)
    large, empty = a_file("large.md", b"x" * (1024 * 1024 + 1)), a_file("empty.md", b"")
    answer = added(max_, type="upload", upload=[a_file(), large, empty])
    page = text_of(answer)
    assert answer.status_code == 422
    assert "large.md has 1.0 MB; a file may have 1 MB at most." in page
    assert "empty.md is empty." in page
    assert not Source.objects.exists()
    many = added(max_, type="upload", upload=[a_file(f"{number}.md") for number in range(101)])
    assert "101 files are too many at once" in text_of(many)


def test_the_script_of_the_page_is_told_where_to_go(max_: Client) -> None:
    body = {"type": "upload", "priority": "5", "upload": [a_file()]}
    answer = max_.post("/knowledge/add/", body, headers=JSON)
    source = Source.objects.get()
    assert answer.json() == {"location": f"/knowledge/sources/{source.pk}/"}
    more = max_.post(f"/knowledge/sources/{source.pk}/files/", {"upload": [a_file("b.md")]}, headers=JSON)
    assert more.json() == answer.json()
    wrong = max_.post(f"/knowledge/sources/{source.pk}/files/", {}, headers=JSON)
    assert (wrong.status_code, wrong.json()) == (422, {"errors": {"upload": ["Choose a file."]}})


def test_a_file_is_dropped_the_moment_it_is_too_large(configure: Configure) -> None:
    configure(knowledge_upload_max_mb=1)
    handler = multipart.BoundedUpload()
    handler.new_file("files", "big.bin", "application/octet-stream", None)
    kept = handler.file.temporary_file_path()
    size = 0
    for _ in range(40):
        handler.receive_data_chunk(b"x" * 65536, size)
        size += 65536
    assert not os.path.exists(kept)  # noqa: PTH110  # what the handler itself is asked with
    dropped = handler.file_complete(size)
    assert isinstance(dropped, multipart.TooLargeFile)
    assert dropped.size == size
    with pytest.raises(DevFlowError, match=r"big\.bin has 2\.5 MB; a file may have 1 MB at most"):
        list(dropped.chunks())


def test_a_file_that_fits_is_on_disk_and_not_in_memory(rf: RequestFactory) -> None:
    request = rf.post("/knowledge/add/", {"upload": a_file()})
    assert isinstance(request.FILES["upload"], TemporaryUploadedFile)
    request.close()


def test_only_the_paths_that_take_files_have_large_bodies() -> None:
    assert multipart.takes_files("/knowledge/add/")
    assert multipart.takes_files("/knowledge/sources/12/files/")
    for path in ("/", "/knowledge/", "/knowledge/sources/12/", "/mcp/execute", "/x/knowledge/add/", "/login/"):
        assert not multipart.takes_files(path)


# --- one source -----------------------------------------------------------------------------------------------------


def test_a_source_shows_its_documents_with_their_errors(max_: Client, guide: Source, read: Read) -> None:
    sources.add_files(source=guide, files=[("bad.pdf", [b"no pdf"])], actor=actors.SYSTEM)
    read()
    page = text_of(max_.get(f"/knowledge/sources/{guide.pk}/"))
    assert "1 of 2 documents could not be read" in page
    assert "Retry what failed" in page
    assert 'class="chip bad">failed' in page
    partial = text_of(max_.get(f"/knowledge/sources/{guide.pk}/?status=error", headers={"HX-Request": "true"}))
    assert "<html" not in partial
    assert "bad.pdf" in partial
    assert "guide.md" not in partial
    assert "No document is like that" in text_of(max_.get(f"/knowledge/sources/{guide.pk}/?q=nowhere"))


def test_many_documents_are_paged_and_filtered(max_: Client, project: Project) -> None:
    source = Source.objects.create(
        project=project, title="Many", type="directory", run_wanted=False, document_count=120
    )
    for number in range(120):
        a_document(source, f"{number:03}.md")
    first = text_of(max_.get(f"/knowledge/sources/{source.pk}/"))
    assert "1 to 50 of 120" in first
    assert 'href="?page=2"' in first
    last = text_of(max_.get(f"/knowledge/sources/{source.pk}/?page=99"))
    assert "101 to 120 of 120" in last
    some = text_of(max_.get(f"/knowledge/sources/{source.pk}/?q=11&page=x"))
    assert some.count('id="document-') == 11


@pytest.mark.parametrize(
    ("action", "status", "force"),
    [("read", "pending", False), ("reindex", "pending", True), ("retry", "pending", False), ("pause", "paused", False)],
)
def test_a_person_acts_on_a_source(max_: Client, guide: Source, action: str, status: str, force: bool) -> None:
    response = max_.post(f"/knowledge/sources/{guide.pk}/{action}/")
    assert response.headers["Location"] == f"/knowledge/sources/{guide.pk}/"
    guide.refresh_from_db()
    assert (guide.status, guide.run_force) == (status, force)
    back = max_.post(f"/knowledge/sources/{guide.pk}/{action}/", {"back": "knowledge"})
    assert back.headers["Location"] == "/knowledge/"


def test_pausing_twice_says_so_and_resuming_goes_on(max_: Client, guide: Source) -> None:
    for words in ("It is paused.", "paused already"):
        assert words in text_of(max_.post(f"/knowledge/sources/{guide.pk}/pause/", follow=True))
    assert "Resume" in text_of(max_.get(f"/knowledge/sources/{guide.pk}/"))
    assert "It goes on." in text_of(max_.post(f"/knowledge/sources/{guide.pk}/resume/", follow=True))
    assert "not paused" in text_of(max_.post(f"/knowledge/sources/{guide.pk}/resume/", follow=True))


def test_files_are_added_to_an_upload_and_replace_their_namesakes(max_: Client, guide: Source, read: Read) -> None:
    path = f"/knowledge/sources/{guide.pk}/files/"
    new = [a_file("guide.md", b"# Changed\n\nAll of it.\n"), a_file("more.md")]
    assert "2 files were added." in text_of(max_.post(path, {"upload": new}, follow=True))
    read()
    assert dict(guide.documents.values_list("path", "title")) == {"guide.md": "Changed", "more.md": "Notes"}
    empty = max_.post(path, {})
    assert empty.status_code == 422
    assert "Choose a file." in text_of(empty)
    assert f'data-partial="/knowledge/sources/{guide.pk}/?"' in text_of(empty)
    note = sources.create(project_id=guide.project_id, actor=actors.SYSTEM, title="Note", type="manual", content="x")
    refused = max_.post(f"/knowledge/sources/{note.pk}/files/", {"upload": [a_file()]})
    assert refused.status_code == 422


def test_a_source_is_edited(max_: Client, guide: Source) -> None:
    path = f"/knowledge/sources/{guide.pk}/edit/"
    assert 'value="payments"' in text_of(max_.get(path))
    body = {"title": "Manual", "description": "All of it", "tags": "a, b", "priority": "9"}
    assert "Saved." in text_of(max_.post(path, body, follow=True))
    guide.refresh_from_db()
    assert (guide.title, guide.tags, guide.priority, guide.status) == ("Manual", ["a", "b"], 9, "active")
    wrong = max_.post(path, {**body, "title": "", "description": "kept"})
    assert wrong.status_code == 422
    assert "kept" in text_of(wrong)
    guide.refresh_from_db()
    assert guide.title == "Manual"


def test_a_note_is_edited_and_read_anew(max_: Client, read: Read) -> None:
    text = "# Note\n\nThe *first*\tversion.\n"
    added(max_, content=text, title="Note")
    read()
    source = Source.objects.get()
    page = text_of(max_.get(f"/knowledge/sources/{source.pk}/edit/"))
    assert "The *first*\tversion." in page
    body = {"title": "Note", "priority": "5", "content": text}
    max_.post(f"/knowledge/sources/{source.pk}/edit/", body)
    source.refresh_from_db()
    assert source.status == "active"
    max_.post(f"/knowledge/sources/{source.pk}/edit/", {**body, "content": "# Note\n\nThe second.\n"})
    read()
    assert "The second." in source.documents.get().text


def test_changing_how_a_site_is_followed_has_it_read_again(max_: Client, project: Project) -> None:
    source = Source.objects.create(
        project=project, title="Site", type="web", url="https://x.example/", status="active", run_wanted=False,
        options={"max_pages": 3},
    )  # fmt: skip
    body = {"title": "Site", "priority": "5", "max_pages": "3", "same_path": "on"}
    max_.post(f"/knowledge/sources/{source.pk}/edit/", body)
    source.refresh_from_db()
    assert (source.status, source.options) == ("active", {"max_pages": 3})
    max_.post(f"/knowledge/sources/{source.pk}/edit/", {**body, "max_pages": "30", "exclude": "*/old/*"})
    source.refresh_from_db()
    assert (source.status, source.options) == ("pending", {"max_pages": 30, "exclude": ["*/old/*"]})


def test_deleting_asks_first_and_then_nothing_is_found(max_: Client, guide: Source, read: Read) -> None:
    path = f"/knowledge/sources/{guide.pk}/delete/"
    assert "1 document" in text_of(max_.get(path))
    assert Source.objects.exists()
    assert "Guide was deleted" in text_of(max_.post(path, follow=True))
    read()
    assert not Chunk.objects.exists()
    assert 'class="panel hit"' not in text_of(max_.get("/knowledge/?q=refund"))


def test_one_document_is_deleted_with_its_file(max_: Client, guide: Source, read: Read) -> None:
    document = guide.documents.get()
    path = f"/knowledge/documents/{document.pk}/delete/"
    assert "The uploaded file is deleted too." in text_of(max_.get(path))
    assert max_.post(path).headers["Location"] == f"/knowledge/sources/{guide.pk}/"
    sources.request_run(source=guide, actor=actors.SYSTEM)
    read()
    assert not Document.objects.exists()
    assert max_.get(f"/knowledge/documents/{document.pk}/").status_code == 404


# --- one document ---------------------------------------------------------------------------------------------------


def test_the_lines_of_a_document_are_those_a_citation_counts(max_: Client, guide: Source) -> None:
    document = guide.documents.get()
    page = text_of(max_.get(f"/knowledge/documents/{document.pk}/"))
    lines = re.findall(
        r'<li class="line"\s+id="L(\d+)"><span class="n">\1</span><span class="t">(.*?)</span></li>', page
    )
    assert [int(number) for number, _ in lines] == list(range(1, len(lines) + 1))
    assert lines[6][1].startswith("Verify the signature")
    assert lines[-1][1] == "&lt;script&gt;alert(1)&lt;/script&gt;"


def test_a_long_document_is_shown_in_parts_and_a_line_leads_to_its_part(max_: Client, guide: Source) -> None:
    document = a_document(guide, "long.md", "\n".join(f"line {number}" for number in range(1, 20_001)))
    path = f"/knowledge/documents/{document.pk}/"
    first = text_of(max_.get(path))
    assert first.count('class="line"') == 2000
    assert "Lines 1 to 2,000 of 20,000" in first
    there = text_of(max_.get(f"{path}?line=4001"))
    assert 'id="L4001"' in there
    assert 'data-first="4001"' in there
    assert 'href="?page=2"' in there
    assert 'href="?page=4"' in there
    for odd in ("line=0", "line=abc", "page=-3", "line=L4-L9", "page=99999999999"):
        assert 'id="L1"' in text_of(max_.get(f"{path}?{odd}"))
    assert 'id="L20000"' in text_of(max_.get(f"{path}?line=900000"))


def test_the_pages_of_a_pdf_are_marked(max_: Client, guide: Source) -> None:
    document = a_document(guide, "a.pdf", "one\ntwo\nthree", pages=[1, 3])
    page = text_of(max_.get(f"/knowledge/documents/{document.pk}/"))
    assert re.search(
        r'Page 1</li>\s*<li class="line"\s+id="L1">.*Page 2</li>\s*<li class="line"\s+id="L3">', page, re.DOTALL
    )


HOSTILE = """# Top

### Deep [click](javascript:alert(1)) [data](data:text/html,x) [rel](other.html) [ok](https://x.example/)

<script>alert(1)</script> <img src=x onerror=alert(1)> ![pixel](https://evil.example/p.png)

<style>*{display:none}</style>

| a | b |
|---|---|
| 1 | 2 |
"""


def test_the_rendered_view_can_do_nothing(max_: Client, guide: Source) -> None:
    document = a_document(guide, "h.md", HOSTILE)
    page = text_of(max_.get(f"/knowledge/documents/{document.pk}/?view=read"))
    article = page.split('<article class="panel prose">')[1].split("</article>")[0]
    assert not re.search(r"<script|<img|<style|<[^>]*onerror|href=\"(?!https://x)", article)
    assert "<h2>Top</h2>" in article
    assert "<h3>Deep" in article
    assert 'href="https://x.example/"' in article
    assert "other.html" not in article
    assert "<table>" in article


def test_relative_links_of_a_page_lead_to_its_site(max_: Client, project: Project) -> None:
    site = Source.objects.create(project=project, title="Site", type="web", url="https://x.example/", run_wanted=False)
    document = a_document(site, "https://x.example/guide/a.html", "[next](b.html)")
    page = text_of(max_.get(f"/knowledge/documents/{document.pk}/?view=read"))
    assert 'href="https://x.example/guide/b.html"' in page


def test_passages_say_whether_they_have_vectors(max_: Client, guide: Source) -> None:
    document = guide.documents.get()
    path = f"/knowledge/documents/{document.pk}/?view=passages"
    ready = text_of(max_.get(path))
    assert ready.count('class="chip good">ready') == document.chunks.count() > 1
    assert re.search(r'href="\?line=7#L7-L17">7–17</a>', ready)
    chunk = document.chunks.order_by("ordinal")[0]
    index.touch(KIND, [chunk.point])
    assert text_of(max_.get(path)).count('class="chip warn">waits') == 1


def test_code_examples_can_be_copied(max_: Client, guide: Source) -> None:
    document = guide.documents.get()
    example = document.examples.get()
    page = text_of(max_.get(f"/knowledge/documents/{document.pk}/?view=code"))
    assert f'data-copy="example-{example.pk}"' in page
    assert "def verify_signature(body, header):" in page
    assert "There is none" in text_of(max_.get(f"/knowledge/documents/{a_document(guide, 'x').pk}/?view=code"))


def test_a_document_that_could_not_be_read_says_why_and_offers_to_try_again(max_: Client, guide: Source) -> None:
    document = a_document(guide, "bad.pdf", status="error", error="The PDF is broken.")
    page = text_of(max_.get(f"/knowledge/documents/{document.pk}/"))
    assert "The PDF is broken." in page
    assert f"/knowledge/sources/{guide.pk}/retry/" in page
    assert "There is no text" in page


def test_code_files_have_lines_and_no_rendered_view(max_: Client, guide: Source) -> None:
    document = a_document(guide, "a.py", "def f():\n    return '<b>'\n", language="python")
    page = text_of(max_.get(f"/knowledge/documents/{document.pk}/"))
    assert "?view=read" not in page
    assert "    return &#x27;&lt;b&gt;&#x27;" in page
    assert page.count('class="line"') == 2


# --- words and code of a passage ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("indexing", "Indexes are indexed.", "<mark>Indexes</mark> are <mark>indexed</mark>."),
        ("getUserById", "call getUserById(x)", "call <mark>getUserById</mark>(x)"),
        ("a < b", "a < b & c", "a &lt; <mark>b</mark> &amp; c"),
        ("(", "a (b)", "a (b)"),
        ("cat", "concatenate the cats", "concatenate the <mark>cats</mark>"),
    ],
)
def test_the_words_looked_for_are_marked(query: str, text: str, expected: str) -> None:
    assert markup.marked(text, markup.looked_for(query)) == expected


def test_a_passage_is_taken_apart_at_its_fences() -> None:
    text = "Before\n\n```python\ncode\n```\n\nBetween\n\n~~~\n```\nraw\n~~~\n````md\nleft open"
    parts = [(part.text, part.is_code, part.language) for part in markup.parts_of(text)]
    assert parts == [
        ("Before", False, ""),
        ("code", True, "python"),
        ("Between", False, ""),
        ("```\nraw", True, ""),
        ("left open", True, "md"),
    ]
    assert markup.fence_before(text.split("\n")) == "````md"
    assert markup.fence_before(text.split("\n")[:6]) == ""


# --- cost -----------------------------------------------------------------------------------------------------------


def test_the_number_of_queries_of_a_page_does_not_grow_with_its_rows(
    max_: Client, project: Project, guide: Source, read: Read
) -> None:
    def fill(start: int, rows: int) -> None:
        for number in range(start, start + rows):
            text = GUIDE.replace("Payments", f"Payments {number}")
            sources.create(project_id=project.pk, actor=actors.SYSTEM, title=f"S{number}", type="manual", content=text)
            document = a_document(guide, f"{number}.md", "text")
            a_chunk(document, 0)
        document = guide.documents.get(path="guide.md")
        for number in range(start, start + rows):
            a_chunk(document, 100 + number)
        for source in Source.objects.filter(run_wanted=True):
            ingestion.read(ingestion.claim() or source, stop=lambda: False)
        index.drain()

    document = guide.documents.get()
    paths = [*pages_of(guide)[:5], f"/knowledge/documents/{document.pk}/?view=passages"]

    def queries() -> dict[str, int]:
        counted = {}
        for path in paths:
            max_.get(path)
            with CaptureQueriesContext(connection) as seen:
                assert max_.get(path).status_code == 200
            counted[path] = len(seen)
        return counted

    fill(0, 3)
    few = queries()
    fill(3, 20)
    assert queries() == few
    assert max(few.values()) <= 24, few
