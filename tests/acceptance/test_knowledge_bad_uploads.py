"""Files nobody should send: refused, or recorded as that document's error; the source and the server go on."""

import io
import json
import socket
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.acceptance.conftest import make_projects
from tests.acceptance.library import Library, eventually, library
from tests.running import RunningServer, running

MEGABYTE = 1024 * 1024
GOOD = b"# Harbour\n\nThe harbour master keeps the tide tables.\n"
"""A normal search while, or right after, such a file is read; generous, for a loaded machine."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("uploads") / "home", arguments=("--no-demo",)) as started:
        make_projects(started, "port-", 1)
        yield started


@pytest.fixture(scope="module")
def reader(server: RunningServer) -> Iterator[Library]:
    with library(server, "port-0") as opened:
        opened.read("Harbour", type="manual", content=GOOD.decode())
        yield opened


def works(reader: Library) -> None:
    """A normal search, now."""
    found = reader.search("Who keeps the tide tables?")
    assert "harbour master" in found["results"][0]["content"]


def delete(reader: Library, source: str) -> None:
    assert reader.request("DELETE", f"/api/v1/sources/{source}/").status_code == 204


# --- what is made here ------------------------------------------------------------------------------------------------


def pdf(password: str = "") -> bytes:
    from pypdf import PdfWriter

    writer = PdfWriter()
    writer.add_blank_page(200, 200)
    if password:
        writer.encrypt(password)
    made = io.BytesIO()
    writer.write(made)
    return made.getvalue()


def zipped(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return made.getvalue()


def bomb(megabytes: int = 300) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("zeros.md", "w") as file:
        for _ in range(megabytes):
            file.write(bytes(MEGABYTE))
    return made.getvalue()


def many_files(count: int = 6000) -> bytes:
    return zipped({f"{number}.md": b"x" for number in range(count)})


def linked_tar() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        link = tarfile.TarInfo("passwd.md")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        good = tarfile.TarInfo("good.md")
        good.size = len(GOOD)
        archive.addfile(good, io.BytesIO(GOOD))
    return made.getvalue()


def docx(document: str) -> bytes:
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    relation = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    return zipped(
        {
            "[Content_Types].xml": (
                '<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
                '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
                f'<Override PartName="/word/document.xml" ContentType="{kind}"/></Types>'
            ).encode(),
            "_rels/.rels": (
                '<?xml version="1.0"?>'
                '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
                f'<Relationship Id="r1" Type="{relation}" Target="word/document.xml"/></Relationships>'
            ).encode(),
            "word/document.xml": document.encode(),
        }
    )


LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY a{n} "{"&a;" if n == 0 else f"&a{n - 1};" * 10}{"" if n else "ha"}">' for n in range(12))
    + ']><w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body><w:p><w:r><w:t>'
    "&a11;</w:t></w:r></w:p></w:body></w:document>"
)
OUTSIDE = (
    '<?xml version="1.0"?><!DOCTYPE l [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
    '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body><w:p><w:r><w:t>'
    "&x;</w:t></w:r></w:p></w:body></w:document>"
)

ERRORS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "an encrypted PDF": ("locked.pdf", lambda: pdf("secret")),
    "a broken PDF": ("broken.pdf", lambda: pdf()[:150]),
    "a PDF that is none": ("text.pdf", lambda: b"%PDF-1.7 this is no PDF"),
    "a PDF without text": ("scan.pdf", pdf),
    "a zip bomb": ("bomb.zip", bomb),
    "a zip in a zip bomb": ("nested.docx", bomb),
    "6,000 files": ("many.zip", many_files),
    "a broken zip": ("broken.zip", lambda: zipped({"a.md": GOOD})[:-30]),
    "a zip that leads out": ("out.zip", lambda: zipped({"../../evil.md": GOOD, "ok.md": GOOD})),
    "a zip of absolute paths": ("absolute.zip", lambda: zipped({"/etc/cron.d/evil.md": GOOD})),
    "a tar that is none": ("none.tar.gz", lambda: b"\x1f\x8b" + b"no gzip at all" * 10),
    "a broken DOCX": ("broken.docx", lambda: b"PK\x03\x04 no zip"),
    "a DOCX of a billion laughs": ("laughs.docx", lambda: docx(LAUGHS)),
    "a DOCX that reads files": ("reads.docx", lambda: docx(OUTSIDE)),
    "a notebook that is no JSON": ("broken.ipynb", lambda: b"{"),
    "a notebook nested 100,000 deep": ("deep.ipynb", lambda: b"[" * 100_000),
    "a notebook that is a list": ("list.ipynb", lambda: b"[1, 2, 3]"),
    "a program": ("program.exe", lambda: b"MZ" + bytes(1000)),
    "bytes called Markdown": ("bytes.md", lambda: bytes(range(256)) * 40),
    "a picture called Markdown": ("picture.md", lambda: b"\x89PNG\r\n\x1a\n" + bytes(5000)),
}


@pytest.mark.parametrize("what", ERRORS)
def test_a_bad_file_is_refused_or_its_documents_error(what: str, reader: Library) -> None:
    """Beside a good file, which is read all the same."""
    name, make = ERRORS[what]
    sent = reader.upload({name: make(), "good.md": GOOD}, title="Bad and good")
    works(reader)
    if sent.status_code != 201:
        assert sent.status_code in (400, 413, 415), sent.text
        assert sent.headers["content-type"] == "application/problem+json"
        return
    source = sent.json()["source_id"]
    info = reader.wait(source)
    documents = {one["path"]: one for one in info["documents"]}
    assert documents.pop("good.md")["status"] == "indexed"
    assert info["status"] == "active"
    assert documents, f"nothing is said of {name}"
    assert all(one["status"] == "error" and one["error"] for one in documents.values()), documents
    assert info["failed_documents"] == len(documents)
    assert any(path in info["error"] for path in documents), info["error"]
    assert "Traceback" not in info["error"]
    works(reader)
    delete(reader, source)


def in_encodings() -> dict[str, bytes]:
    text = "# Größe\n\nDie Länge des Flusses beträgt 1.233 km – so heißt es.\n"
    return {
        "utf8-sig.md": text.encode("utf-8-sig"),
        "utf16.md": text.encode("utf-16"),
        "latin.md": text.replace("–", "-").encode("latin-1"),
        "windows.md": text.encode("cp1252"),
        "mac-lines.md": text.replace("\n", "\r").encode(),
        "windows-lines.md": text.replace("\n", "\r\n").encode(),
        "broken-utf8.md": text.encode() + b"\xff\xfe\xc3\x28 end\n",
        "nul.md": text.encode() + b"a\x00b\n",
        "utf16-le-without-mark.md": text.encode("utf-16-le"),
        "utf32.md": text.encode("utf-32"),
        "surrogates.md": text.encode() + "\ud800".encode("utf-8", "surrogatepass"),
    }


def test_every_encoding_is_read_or_named_as_the_error(reader: Library) -> None:
    files = in_encodings()
    source = reader.upload(files, title="Encodings").json()["source_id"]
    info = reader.wait(source)
    documents = {one["path"]: one for one in info["documents"]}
    assert documents.keys() == files.keys()
    for name in ("utf8-sig.md", "utf16.md", "latin.md", "windows.md", "mac-lines.md", "windows-lines.md"):
        assert documents[name]["status"] == "indexed", documents[name]
        text = reader.request("GET", f"/api/v1/documents/{documents[name]['id']}/").json()["text"]
        assert "Die Länge des Flusses beträgt" in text, name
        assert "\r" not in text
        assert "\ufeff" not in text
    assert all(one["error"] for one in documents.values() if one["status"] == "error")
    works(reader)
    delete(reader, source)


DEEP: dict[str, tuple[str, bytes]] = {
    "5,000 nested tags": ("deep.html", b"<div>" * 5000 + b"the deepest word is abyss" + b"</div>" * 5000),
    "10,000 parentheses": ("parentheses.py", b"x = " + b"(" * 10_000 + b")" * 10_000 + b"\n# abyss\n"),
    "20,000 braces": ("braces.ts", b"{" * 20_000 + b"abyss" + b"}" * 20_000),
    "includes": (
        "include.rst",
        b"Abyss\n=====\n\n.. include:: /etc/passwd\n\n.. raw:: html\n   :file: /etc/passwd\n\nabyss\n",
    ),
    "nested directives": ("nested.rst", b"\n".join(b"   " * n + b".. note::\n" for n in range(500)) + b"\nabyss\n"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", DEEP)
def test_what_is_nested_or_endless_is_read_or_an_error_soon(what: str, reader: Library) -> None:
    name, data = DEEP[what]
    sent = reader.upload({name: data, "good.md": GOOD}, title="Deep")
    assert sent.status_code == 201, sent.text
    source = sent.json()["source_id"]
    works(reader)
    info = eventually(lambda: read_to_its_end(reader, source), f"{name} is read", seconds=300, pause=0.2)
    documents = {one["path"]: one for one in info["documents"]}
    assert documents["good.md"]["status"] == "indexed"
    bad = documents[name]
    assert bad["status"] == "indexed" or bad["error"], bad
    assert "Something went wrong on the server" not in bad["error"] + info["error"]
    if bad["status"] == "indexed":
        text = reader.request("GET", f"/api/v1/documents/{bad['id']}/").json()["text"]
        assert "abyss" in text
        assert "root:" not in text
    delete(reader, source)
    works(reader)


def read_to_its_end(reader: Library, source: str) -> Any:
    """Not waiting for vectors: some of these make thousands of chunks."""
    info = reader.info(source)
    return info if info["status"] in ("active", "error") else None


# --- what is too large, or nothing ------------------------------------------------------------------------------------


def test_a_hundred_megabytes_are_refused_and_named(server: RunningServer, reader: Library) -> None:
    before = used(server.home)
    sent = reader.upload({"huge.md": bytes(100 * MEGABYTE)})
    assert sent.status_code == 413, sent.text
    assert "huge.md" in sent.text
    assert sent.headers["content-type"] == "application/problem+json"
    works(reader)
    assert used(server.home) - before < MEGABYTE
    assert all(source["title"] != "huge.md" for source in reader.call("list_knowledge_sources")["sources"])


def used(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "uploads").rglob("*") if path.is_file())


def test_a_gigabyte_is_refused_before_it_is_sent(server: RunningServer, reader: Library) -> None:
    address = urlsplit(server.url)
    assert address.hostname is not None
    with socket.create_connection((address.hostname, address.port or 80), timeout=20) as sock:
        head = (
            f"POST /api/v1/sources/upload/ HTTP/1.1\r\nHost: {address.netloc}\r\nX-API-Key: {server.key}\r\n"
            f"X-Project: {reader.project}\r\nContent-Type: multipart/form-data; boundary=x\r\n"
            f"Content-Length: {1024 * MEGABYTE}\r\n\r\n"
        )
        sock.sendall(head.encode())
        assert sock.recv(100).startswith(b"HTTP/1.1 413")
    works(reader)


def test_other_paths_still_take_four_megabytes_at_most(reader: Library) -> None:
    body = {"title": "x", "type": "manual", "content": "x" * (5 * MEGABYTE)}
    assert reader.request("POST", "/api/v1/sources/", body).status_code == 413
    assert reader.post("ingest_source", body).status_code == 413
    works(reader)


@pytest.mark.parametrize(
    ("files", "form"),
    [
        ({}, {}),
        ({"empty.md": b""}, {}),
        ({"good.md": GOOD}, {"priority": "11"}),
        ({"good.md": GOOD}, {"priority": "high"}),
        ({"good.md": GOOD}, {"tags": "x" * 65}),
        ({"good.md": GOOD}, {"title": "x" * 256}),
        ({"good.md": GOOD}, {"title": "a\x00b"}),
        ({"good.md": GOOD}, {"colour": "red"}),
        ({"good.md": GOOD}, {"project": "nobodys"}),
    ],
)
def test_a_bad_form_is_refused_and_keeps_nothing(
    files: dict[str, bytes], form: dict[str, str], server: RunningServer, reader: Library
) -> None:
    before = used(server.home), reader.call("list_knowledge_sources")["total"]
    sent = reader.upload(files, **form)
    assert sent.status_code in (400, 404, 415, 422), sent.text
    assert sent.headers["content-type"] == "application/problem+json"
    assert (used(server.home), reader.call("list_knowledge_sources")["total"]) == before
    works(reader)


def test_a_body_that_is_no_form_is_refused(reader: Library) -> None:
    for kind, body in (
        ("multipart/form-data; boundary=x", b"no parts at all"),
        ("multipart/form-data", b"--x\r\n\r\n--x--"),
        ("multipart/form-data; boundary=" + "x" * 300, b"--x--"),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.md"\r\n',
        ),
        ("application/json", b"{}"),
        ("text/plain", b"hello"),
    ):
        headers = {**reader.headers, "X-Project": reader.project, "Content-Type": kind}
        sent = reader.http.post("/api/v1/sources/upload/", content=body, headers=headers)
        assert sent.status_code in (400, 415, 422), f"{kind}: {sent.status_code} {sent.text}"
    works(reader)


def test_names_that_lead_elsewhere_become_names(server: RunningServer, reader: Library) -> None:
    names = [
        "../../../../etc/cron.d/evil.md",
        "..\\..\\evil2.md",
        "/abs.md",
        ".hidden.md",
        "a" * 400 + ".md",
        "tab\t.md",
    ]
    for name in names:
        sent = reader.upload({name: GOOD}, title="Named")
        assert sent.status_code in (201, 400), sent.text
        if sent.status_code == 201:
            source = sent.json()["source_id"]
            (kept,) = sent.json()["files"]
            assert "/" not in kept["name"]
            assert "\\" not in kept["name"]
            assert len(kept["name"].encode()) <= 200
            reader.wait(source)
            delete(reader, source)
    assert {path.name for path in (server.home / "uploads").iterdir()} <= {str(number) for number in range(10_000)}, (
        "only folders of sources lie there"
    )
    works(reader)


def test_links_in_an_archive_are_left_out(reader: Library) -> None:
    source = reader.upload({"linked.tar.gz": linked_tar()}).json()["source_id"]
    info = reader.wait(source)
    assert [one["path"] for one in info["documents"]] == ["linked.tar.gz/good.md"]
    delete(reader, source)


def test_a_sender_that_hangs_up_leaves_nothing(server: RunningServer, reader: Library) -> None:
    before = used(server.home), reader.call("list_knowledge_sources")["total"]
    address = urlsplit(server.url)
    assert address.hostname is not None
    for _ in range(5):
        with socket.create_connection((address.hostname, address.port or 80), timeout=20) as sock:
            head = (
                f"POST /api/v1/sources/upload/ HTTP/1.1\r\nHost: {address.netloc}\r\nX-API-Key: {server.key}\r\n"
                "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 5000000\r\n\r\n"
                '--x\r\nContent-Disposition: form-data; name="files"; filename="cut.md"\r\n\r\n'
            )
            sock.sendall(head.encode() + b"x" * 100_000)
    works(reader)
    assert (used(server.home), reader.call("list_knowledge_sources")["total"]) == before


def test_the_log_and_the_health_are_clean_afterwards(server: RunningServer, reader: Library) -> None:
    assert httpx.get(f"{server.url}/readyz", timeout=20).status_code == 200
    assert json.loads(reader.request("GET", "/mcp/health").text)["status"] == "healthy"
    assert "Traceback" not in server.output, server.output[-3000:]
