"""Bad arguments to every knowledge and memory tool over real HTTP: told what to do, nothing changed, nobody harmed."""

import http.server
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.agents import WAIT
from tests.acceptance.conftest import make_projects
from tests.acceptance.library import Library, digest, eventually, library
from tests.acceptance.wires import Answer, wire
from tests.running import RunningServer, running

INVALID = frozenset({"invalid_input"})
NOT_THERE = frozenset({"invalid_input", "not_found"})
PROTOCOL = "protocol"
NO_TEXT = frozenset({"invalid_input", PROTOCOL})  # what is no Unicode may be refused as a message already

NOTE = "# Lighthouse\n\nThe lamp of the lighthouse turns once in nine seconds.\n"
Calls = dict[str, tuple[str, dict[str, Any], frozenset[str]]]


@dataclass(frozen=True)
class Scene:
    server: RunningServer
    reader: Library
    roots: Path
    memory: str
    source: str


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("bad")
    roots = folder / "roots"
    roots.mkdir()
    env = {"DEVFLOW_ALLOWED_ROOTS": str(roots)}
    with running(folder / "home", env=env, arguments=("--no-demo",)) as server:
        (project,) = make_projects(server, "coast-", 1)
        with library(server, project) as reader:
            source = reader.read("Lighthouse", type="manual", content=NOTE)
            saved = reader.call("save_memory", content="The lamp is oiled in May.", category="convention")
            yield Scene(server, reader, roots, saved["memory_id"], source)


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"deeper": value}
    return value


TEXTS: dict[str, tuple[Any, frozenset[str]]] = {
    "empty": ("", INVALID),
    "spaces": (" \t\n ", INVALID),
    "null": (None, INVALID),
    "a number": (5, INVALID),
    "a list": (["lamp"], INVALID),
    "NUL": ("lamp\x00", INVALID),
    "a lone surrogate": ("lamp \ud800", NO_TEXT),
}
NUMBERS: dict[str, Any] = {
    "0": 0,
    "-1": -1,
    "201": 201,
    "10^9": 10**9,
    "10^30": 10**30,
    "a text": "5",
    "null": None,
    "a fraction": 1.5,
    "true": True,
}
IDS: dict[str, Any] = {
    "empty": "",
    "a word": "nonsense",
    "zero": "source-0",
    "negative": "source--1",
    "another kind": "document-1",
    "too long a number": "source-" + "9" * 30,
    "SQL": "source-1 OR 1=1",
    "a path": "../source-1",
    "digits of another script": "source-١",
    "a line more": "source-1\n",
    "NUL": "source-1\x00",
    "null": None,
    "a list": ["source-1"],
    "unknown": "source-999999",
}
FILTERS: dict[str, Any] = {
    "unknown": {"colour": ["red"]},
    "tags that are a text": {"tags": "metal"},
    "tags that are numbers": {"tags": [1]},
    "an empty tag": {"tags": [""]},
    "201 tags": {"tags": ["x"] * 201},
    "sources that are a text": {"sources": "source-1"},
    "sources that are numbers": {"sources": [1]},
    "nonsense sources": {"sources": ["nonsense"]},
    "a source's number too long": {"sources": ["9" * 30]},
    "another kind": {"sources": ["document-1"]},
    "201 sources": {"sources": ["source-1"] * 201},
    "has_code that is a text": {"has_code": "yes"},
    "has_code that is a number": {"has_code": 1},
    "nested 100 deep": {"tags": [nested(100)]},
    "nested 100 deep, unknown": nested(100),
    "a list": ["tags"],
    "a text": "tags",
}


def knowledge_calls() -> Calls:
    calls: Calls = {}
    for tool, name in (("search_knowledge", "query"), ("get_code_examples", "topic"), ("query_memories", "query")):
        for what, (value, codes) in TEXTS.items():
            calls[f"{tool}, {name} {what}"] = (tool, {name: value}, codes)
        for what, number in NUMBERS.items():
            calls[f"{tool}, top_k {what}"] = (tool, {name: "lamp", "top_k": number}, INVALID)
        calls[f"{tool} without {name}"] = (tool, {}, INVALID)
        calls[f"{tool}, unknown argument"] = (tool, {name: "lamp", "colour": "red"}, INVALID)
    for tool, name in (("search_knowledge", "query"), ("get_code_examples", "topic")):
        calls[f"{tool}, 10,001 characters"] = (tool, {name: "x" * 10_001}, frozenset({"invalid_input", "too_large"}))
    for what, filters in FILTERS.items():
        codes = NOT_THERE if "source" in what or what == "another kind" else INVALID
        calls[f"filters: {what}"] = ("search_knowledge", {"query": "lamp", "filters": filters}, codes)
    for what, mode in {"unknown": "fuzzy", "null": None, "a number": 1, "capitals": "HYBRID"}.items():
        calls[f"mode {what}"] = ("search_knowledge", {"query": "lamp", "mode": mode}, INVALID)
    calls["include_code_examples text"] = (
        *("search_knowledge", {"query": "lamp", "include_code_examples": "yes"}),
        INVALID,
    )
    calls["language too long"] = ("get_code_examples", {"topic": "lamp", "language": "x" * 256}, INVALID)
    for what, source in IDS.items():
        calls[f"get_source_info {what}"] = (
            *("get_source_info", {"source_id": source}),
            frozenset({"not_found"}) if what == "unknown" else NOT_THERE,
        )
    calls["status unknown"] = ("list_knowledge_sources", {"status": "asleep"}, INVALID)
    calls["limit 201"] = ("list_knowledge_sources", {"limit": 201}, INVALID)
    calls["offset -1"] = ("list_knowledge_sources", {"offset": -1}, INVALID)
    calls["tags text"] = ("list_knowledge_sources", {"tags": "metal"}, INVALID)
    return calls


def memory_calls(scene: Scene) -> Calls:
    calls: Calls = {}
    for what, (value, codes) in TEXTS.items():
        calls[f"content {what}"] = ("save_memory", {"content": value, "category": "decision"}, codes)
        if value is not None:
            calls[f"new content {what}"] = ("update_memory", {"memory_id": scene.memory, "content": value}, codes)
    long = "x" * 100_001
    calls["content long"] = ("save_memory", {"content": long, "category": "decision"}, frozenset({"too_large"}))
    calls["query long"] = ("query_memories", {"query": long}, frozenset({"too_large"}))
    for what, value in {"unknown": "gossip", "null": None, "empty": "", "a number": 3}.items():
        calls[f"category {what}"] = ("save_memory", {"content": "x", "category": value}, INVALID)
    for what, tags in {"text": "x", "numbers": [1], "empty": [""], "comma": ["a,b"], "51": ["x"] * 51}.items():
        calls[f"memory tags {what}"] = ("save_memory", {"content": "x", "category": "decision", "tags": tags}, INVALID)
        calls[f"asked tags {what}"] = ("query_memories", {"query": "x", "tags": tags}, INVALID)
    for what, metadata in {"list": [1], "text": "x", "100 deep": nested(100), "NUL": {"a": "\x00"}}.items():
        args = {"content": "x", "category": "decision", "metadata": metadata}
        calls[f"metadata {what}"] = ("save_memory", args, INVALID)
    for what, value in IDS.items():
        name = value.replace("source", "memory").replace("document", "source") if isinstance(value, str) else value
        if what != "null":
            args = {"content": "x", "category": "decision", "supersedes": name}
            calls[f"supersedes {what}"] = ("save_memory", args, NOT_THERE)
        calls[f"delete_memory {what}"] = ("delete_memory", {"memory_id": name}, NOT_THERE)
        calls[f"update_memory {what}"] = ("update_memory", {"memory_id": name, "content": "x"}, NOT_THERE)
    calls["nothing to change"] = ("update_memory", {"memory_id": scene.memory}, INVALID)
    calls["itself"] = ("update_memory", {"memory_id": scene.memory, "supersedes": scene.memory}, INVALID)
    calls["old version"] = (
        *("update_memory", {"memory_id": scene.memory, "content": "x", "version": 99}),
        frozenset({"conflict"}),
    )
    for what, moment in {"words": "yesterday", "empty": "", "long": "2026-" * 100, "year 0": "0000-01-01"}.items():
        calls[f"as_of {what}"] = ("query_memories", {"query": "x", "as_of": moment}, INVALID)
    calls["match unknown"] = ("query_memories", {"query": "x", "match": "some"}, INVALID)
    return calls


def ingest_calls(scene: Scene) -> Calls:
    def source(**given: Any) -> tuple[str, dict[str, Any], frozenset[str]]:
        return "ingest_source", {"title": "Bad", **given}, INVALID

    manual: dict[str, Any] = {"type": "manual", "content": "x"}
    calls: Calls = {
        "title empty": source(**{**manual, "title": ""}),
        "title long": source(**{**manual, "title": "x" * 256}),
        "type unknown": source(type="ftp", content="x"),
        "manual without content": source(type="manual"),
        "manual with a path": source(**manual, path="/etc"),
        "manual with an empty text": source(type="manual", content=""),
        "web without url": source(type="web"),
        "web with content": source(type="web", url="https://example.org/", content="x"),
        "upload without content": source(type="upload", path="a.md"),
        "directory without path": source(type="directory"),
        "content NUL": source(type="manual", content="a\x00"),
        **{f"priority {what}": source(**manual, priority=value) for what, value in NUMBERS.items()},
        "priority 11": source(**manual, priority=11),
        "options for a text": source(**manual, options={"max_pages": 1}),
        "unknown option": source(type="web", url="https://example.org/", options={"depth": 1}),
        "option of another type": source(type="web", url="https://example.org/", options={"max_pages": "1"}),
        "option out of bounds": source(type="web", url="https://example.org/", options={"max_pages": 10**9}),
        "51 tags": source(**manual, tags=[str(number) for number in range(51)]),
    }
    tool, args, _ = source(type="manual", content="x" * 100_001)
    calls["content of 100,001 characters"] = (tool, args, frozenset({"too_large"}))
    tool, args, _ = source(type="manual", content="a \ud800")
    calls["content with a lone surrogate"] = (tool, args, NO_TEXT)
    outside = scene.roots.parent / "outside"
    outside.mkdir(exist_ok=True)
    (scene.roots / "leads-out").unlink(missing_ok=True)
    (scene.roots / "leads-out").symlink_to(outside)
    for path in (
        *(
            "/",
            "/etc",
            "/etc/passwd",
            "/proc/self",
            str(outside),
            f"{scene.roots}/../outside",
            f"{scene.roots}/leads-out",
        ),
        *("relative", "", ".", "~", str(scene.server.home), f"{scene.roots}/nothing-here", f"{scene.roots}/a\x00b"),
        *("/" + "x" * 1999, f"{scene.roots}\n", "\\\\server\\share", "file:///etc"),
    ):
        for kind in ("directory", "git"):
            tool, args, _ = source(type=kind, path=path)
            calls[f"{kind} {path!r:.60}"] = (tool, args, frozenset({"invalid_input", "forbidden"}))
    return calls


def check(opened: Any, scene: Scene, calls: Calls) -> None:
    """Every call is refused with one of its codes and with what to do; no row has changed."""
    before = digest(scene.server, "knowledge_", "memory_")
    wrong = []
    for what, (tool, args, codes) in calls.items():
        answer = opened.call(tool, args)
        if answer.code not in codes:
            wrong.append(f"{what}: {answer}")
        elif not answer.message or not (answer.advice or answer.code == PROTOCOL):
            wrong.append(f"{what}: does not say what to do: {answer}")
    assert not wrong, "\n".join(wrong)
    assert digest(scene.server, "knowledge_", "memory_") == before
    works(scene.reader)


def works(reader: Library) -> None:
    """A normal search right afterwards."""
    began = time.monotonic()
    found = reader.search("How fast does the lamp turn?")
    assert "nine seconds" in found["results"][0]["content"]
    assert time.monotonic() - began < 5


DOORS = ("execute", "http-2025-11-25")


@pytest.mark.parametrize("door", DOORS)
def test_bad_arguments_of_the_knowledge_tools_are_refused(door: str, scene: Scene) -> None:
    with wire(door, scene.server, f"bad-{door}", scene.reader.project) as opened:
        assert opened.call("list_knowledge_sources", {}) == Answer("ok", "")
        check(opened, scene, knowledge_calls())


@pytest.mark.parametrize("door", DOORS)
def test_bad_arguments_of_the_memory_tools_are_refused(door: str, scene: Scene) -> None:
    with wire(door, scene.server, f"bad-{door}", scene.reader.project) as opened:
        check(opened, scene, memory_calls(scene))


def test_bad_sources_are_refused(scene: Scene) -> None:
    with wire("execute", scene.server, "bad-sources", scene.reader.project) as opened:
        check(opened, scene, ingest_calls(scene))


# --- odd, but good ----------------------------------------------------------------------------------------------------

ODD_QUESTIONS = {
    "10,000 characters": "lamp " * 2000,
    "10,000 different words": " ".join(f"w{number}" for number in range(1600))[:9990],
    "one word of 10,000 characters": "x" * 10_000,
    "the syntax of the keyword index": 'NEAR("lamp" turns) AND NOT heading:x* ^y - + (z) "',
    "an open quote": '"lamp',
    "only stop words": "how is it that the of a",
    "only marks": "?!… --- ***",
    "only a percent sign": "%",
    "a tsquery": "lamp & !turns <-> (x | 'y')",
    "a backslash and quotes": "\\ ' \" ` ; --",
    "another script": "灯台のランプは何秒で回りますか",
    "from right to left": "كم مرة يدور المصباح",
    "emoji and joiners": "👩‍🚀 lamp 🏳️‍🌈 \u200d\u200b",
    "combining marks": "l" + "\u0301" * 500,
    "control characters": "lamp \x01\x02\x1b[31m\x7f",
    "brackets": "[" * 5000,
    "backticks": "`" * 9000 + "a" * 80,
    "a thousand dotted parts": ".".join(f"a{n}" for n in range(1000)),
    "capitals and humps": "aB" * 5000,
}


@pytest.mark.parametrize("what", ODD_QUESTIONS)
def test_odd_questions_are_answered_soon(what: str, scene: Scene) -> None:
    for mode in ("semantic", "hybrid", "reranked"):
        began = time.monotonic()
        found = scene.reader.post("search_knowledge", {"query": ODD_QUESTIONS[what], "mode": mode, "top_k": 200})
        assert found.status_code == 200, found.text
        assert time.monotonic() - began < 5, f"{mode} took {time.monotonic() - began:.1f} s"
    for tool, name in (("query_memories", "query"), ("get_code_examples", "topic")):
        assert scene.reader.post(tool, {name: ODD_QUESTIONS[what], "top_k": 200}).status_code == 200
    path = "/api/v1/knowledge/search/"
    asked = scene.reader.http.get(path, params={"q": ODD_QUESTIONS[what][:2000]}, headers=headers_of(scene.reader))
    assert asked.status_code in (200, 400), asked.text


def headers_of(reader: Library) -> dict[str, str]:
    return {"X-Project": reader.project, **reader.headers}


@pytest.mark.parametrize(
    "query",
    [
        *("", "q=", "q=%20", "q=lamp&top_k=0", "q=lamp&top_k=201", "q=lamp&top_k=x", "q=lamp&mode=fuzzy", "q=%00"),
        *("q=lamp&colour=red", "q=lamp&sources=nonsense", "q=lamp&has_code=perhaps", "q=" + "x" * 10_001),
    ],
)
def test_a_bad_search_over_rest_is_a_problem_document(query: str, scene: Scene) -> None:
    answer = scene.reader.request("GET", f"/api/v1/knowledge/search/?{query}")
    assert answer.status_code in (400, 404, 413, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    works(scene.reader)


# --- addresses that must never be asked -------------------------------------------------------------------------------


@dataclass
class Forbidden:
    """A loopback server nobody may reach."""

    port: int
    asked: list[str]


@contextmanager
def forbidden_server() -> Iterator[Forbidden]:
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.headers.get('Host')} {self.path}")
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"# Secrets\n\nOf the inner network.\n")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield Forbidden(server.server_port, asked)
        server.shutdown()
        thread.join(5)


def private_addresses(port: int) -> list[str]:
    hosts = [
        *("127.0.0.1", "127.0.0.1.", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1"),
        *("0", "0.0.0.0", "localhost", "LOCALHOST", "localhost.", "127.255.255.254", "①②⑦.⓪.⓪.①", "127。0。0。1"),
        *("[::1]", "[0:0:0:0:0:0:0:1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]"),
        *("[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[fe80::1]", "[fe80::1%25lo]", "[fc00::1]"),
        *("127%2e0%2e0%2e1", "user:password@127.0.0.1", "example.org@127.0.0.1"),
    ]
    return [f"http://{host}:{port}/secrets.md" for host in hosts]


NEVER = [
    *(
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "file://localhost/etc/passwd",
        "ftp://127.0.0.1/",
        "gopher://127.0.0.1/",
    ),
    *(
        "data:text/html,x",
        "javascript:alert(1)",
        "unix:///var/run/docker.sock",
        "dict://127.0.0.1:11211/",
        "//127.0.0.1/",
    ),
    *("http:///etc/passwd", "http://", "https://", "http://[", "http://[::1", "http://a b/", "http://exa\nmple.org/"),
    *("http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/latest/", "http://169.254.170.2/v2/"),
    *("http://[::ffff:169.254.169.254]/", "http://2852039166/", "http://100.100.100.200/", "http://192.0.0.192/"),
    *("http://10.0.0.1/", "http://172.16.0.1/", "http://192.168.0.1/", "http://100.64.0.1/", "http://198.18.0.1/"),
    *("http://224.0.0.1/", "http://255.255.255.255/", "http://240.0.0.1/", "http://example.org:99999/", "http://-/"),
    *("http://metadata.google.internal/computeMetadata/v1/", "http://instance-data/", "http://kubernetes.default.svc/"),
]


@pytest.mark.slow
def test_addresses_inside_are_never_asked(scene: Scene) -> None:
    """Refused at once, or (where a name had to be resolved) recorded as the source's error; nothing is ever fetched."""
    reader = scene.reader
    with forbidden_server() as inside:
        accepted: dict[str, str] = {}
        for url in [*NEVER, *private_addresses(inside.port)]:
            answer = reader.post("ingest_source", {"title": "Inside", "type": "web", "url": url}).json()
            if answer["error"] is None:
                accepted[url] = answer["result"]["source_id"]
            else:
                assert answer["detail"]["code"] in ("invalid_input", "forbidden"), f"{url}: {answer}"
                assert answer["error"], url
        assert not {url for url in accepted if url in NEVER[:17]}, accepted
        for url, source in accepted.items():
            info = eventually(
                lambda source=source: reader.is_read(source),  # type: ignore[misc]  # a default binds it
                f"{url} is given up",
                seconds=60,
            )
            assert info is not None
            assert (info["status"], info["document_count"]) == ("error", info["failed_documents"]), f"{url}: {info}"
            assert info["error"], url
            assert reader.request("DELETE", f"/api/v1/sources/{source}/").status_code == 204
        assert inside.asked == []
    works(reader)


def test_links_out_of_the_root_are_never_read(scene: Scene) -> None:
    """A link inside an allowed directory that leads out of it is that document's error; the others are read."""
    secret = scene.roots.parent / "secret.md"
    secret.write_text("# Secret\n\nThe vault opens with xylophone.\n")
    folder = scene.roots / "linked"
    (folder / "below").mkdir(parents=True)
    (folder / "good.md").write_text("# Good\n\nA harmless page about harbours.\n")
    (folder / "out.md").symlink_to(secret)
    (folder / "etc.md").symlink_to("/etc/passwd")
    (folder / "below" / "up").symlink_to(scene.roots.parent)
    (folder / "loop").symlink_to(folder)
    (folder / "broken.md").symlink_to(folder / "nothing.md")
    os.mkfifo(folder / "pipe.md")
    reader = scene.reader
    source = reader.read("Linked", type="directory", path=str(folder))
    info = reader.info(source)
    assert info["status"] == "active"
    assert {one["path"] for one in info["documents"] if one["status"] == "indexed"} == {"good.md"}
    assert info["failed_documents"] >= 1
    assert all(one["error"] for one in info["documents"] if one["status"] == "error")
    found = reader.search("The vault opens with xylophone", filters={"sources": [source]})
    assert all("xylophone" not in hit["content"] and "root:" not in hit["content"] for hit in found["results"])
    works(reader)
    assert reader.request("DELETE", f"/api/v1/sources/{source}/").status_code == 204


def test_a_hundred_thousand_characters_are_taken_and_found(scene: Scene) -> None:
    reader = scene.reader
    text = ("# Long\n\n" + "The keeper writes the weather into the log. " * 2500)[:99_950] + "\n\nThe end is teal."
    source = reader.read("Long", type="manual", content=text)
    assert any("teal" in hit for hit in reader.contents("the end is teal", filters={"sources": [source]}))
    assert reader.request("DELETE", f"/api/v1/sources/{source}/").status_code == 204
    saved = reader.call("save_memory", content="x " * 49_990 + "teal", category="decision")
    reader.call("delete_memory", memory_id=saved["memory_id"])


def test_the_server_still_answers_everybody(scene: Scene) -> None:
    for path in ("/healthz", "/readyz"):
        assert httpx.get(f"{scene.server.url}{path}", timeout=WAIT).status_code == 200
    health = scene.reader.request("GET", "/mcp/health").json()
    assert health["status"] == "healthy", health
    assert "Traceback" not in scene.server.output
