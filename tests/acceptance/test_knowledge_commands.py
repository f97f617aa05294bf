"""`devflow ingest` and `devflow eval` as a person types them, with and without a server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.library import eventually, library
from tests.knowledge.loading.site import Site, serving
from tests.running import RunningServer, create_key, devflow, running

pytestmark = pytest.mark.slow

NOTE = "# Observatory\n\nThe dome of the observatory opens to the south.\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`notes/` may be read by the server, `elsewhere/` may not."""
    made = tmp_path_factory.mktemp("commands")
    for name in ("notes", "elsewhere"):
        (made / name).mkdir()
        (made / name / "observatory.md").write_text(NOTE)
        (made / name / "telescope.md").write_text("# Telescope\n\nThe telescope is cleaned with alcohol.\n")
    return made


def settings(folder: Path) -> dict[str, str]:
    return {"DEVFLOW_ALLOWED_ROOTS": str(folder / "notes"), "DEVFLOW_KNOWLEDGE_ALLOW_PRIVATE_ADDRESSES": "true"}


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    with running(folder / "home", env=settings(folder)) as started:
        yield started


@pytest.fixture(scope="module")
def alone(folder: Path) -> Path:
    """A data directory nobody serves, with the demo project."""
    home = folder / "alone"
    home.mkdir(mode=0o700)
    assert devflow(home, "demo", extra=settings(folder)).returncode == 0
    return home


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving() as made:
        made.html("/docs/", "/docs/lens.html", "/other/")
        made.html("/docs/lens.html", "/docs/")
        made.html("/other/")
        yield made


def ingest(home: Path, folder: Path, *arguments: str) -> dict[str, Any]:
    """The JSON that a good call prints: one line, and nothing else on standard output."""
    done = devflow(home, "ingest", *arguments, "--json", extra=settings(folder), timeout=120)
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    assert printed.keys() == {"source_id", "status"}
    return printed


@pytest.mark.parametrize("place", ["notes", "notes/observatory.md"])
def test_a_path_is_read_by_the_running_server(place: str, server: RunningServer, folder: Path) -> None:
    printed = ingest(server.home, folder, str(folder / place), "--wait", "--tags", "sky, glass", "--priority", "9")
    assert printed["status"] == "active"
    with library(server) as reader:
        info = reader.info(printed["source_id"])
        assert (info["status"], info["pending_chunks"], info["priority"]) == ("active", 0, 9)
        assert info["tags"] == ["sky", "glass"]
        assert info["title"] == Path(place).name
        found = reader.search("Where does the dome open to?", filters={"tags": ["sky"]})
        assert "to the south" in found["results"][0]["content"]
        assert reader.request("DELETE", f"/api/v1/sources/{printed['source_id']}/").status_code == 204


def test_without_waiting_it_answers_at_once_and_the_server_reads(server: RunningServer, folder: Path) -> None:
    printed = ingest(server.home, folder, str(folder / "notes"), "--title", "Sky")
    assert printed["status"] in ("pending", "indexing", "active")
    with library(server) as reader:
        assert reader.wait(printed["source_id"])["title"] == "Sky"


def test_without_a_server_it_is_read_here(alone: Path, folder: Path) -> None:
    printed = ingest(alone, folder, str(folder / "notes"))
    assert printed["status"] == "active"
    done = devflow(alone, "ingest", str(folder / "notes" / "observatory.md"), extra=settings(folder), timeout=120)
    assert done.returncode == 0
    assert done.stdout.strip() == "source-5: active, 1 documents, 1 passages."
    with running(alone, env=settings(folder)) as server, library(server) as reader:
        assert "to the south" in reader.contents("Where does the dome open to?", mode="semantic")[0]
        assert reader.call("list_knowledge_sources")["index_lag"]["pending_chunks"] == 0


def test_a_site_on_this_machine_is_read_where_that_is_allowed(server: RunningServer, folder: Path, site: Site) -> None:
    printed = ingest(server.home, folder, f"{site.url}/docs/", "--wait")
    assert printed["status"] == "active"
    with library(server) as reader:
        info = reader.info(printed["source_id"])
        assert info["type"] == "web"
        assert {one["path"] for one in info["documents"]} == {f"{site.url}/docs/", f"{site.url}/docs/lens.html"}


def test_a_site_on_this_machine_is_an_error_where_it_is_not(alone: Path, folder: Path, site: Site) -> None:
    asked = len(site.asked)
    done = devflow(alone, "ingest", f"{site.url}/docs/", timeout=120)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "private" in done.stderr or "loopback" in done.stderr or "address" in done.stderr
    assert len(site.asked) == asked


BAD = {
    "nothing there": (("/no/such/path",), 1, "there is no such file or directory"),
    "outside the roots": (("{folder}/elsewhere",), 1, "DEVFLOW_ALLOWED_ROOTS"),
    "a device": (("/dev/zero",), 1, "neither a file nor a directory"),
    "a word": (("observatory",), 1, "there is no such file or directory"),
    "another scheme": (("ftp://127.0.0.1/",), 1, "there is no such file or directory"),
    "a URL without a host": (("http://",), 1, ""),
    "priority 0": (("{folder}/notes", "--priority", "0"), 2, "--priority"),
    "priority 11": (("{folder}/notes", "--priority", "11"), 1, "priority"),
    "priority a word": (("{folder}/notes", "--priority", "high"), 2, "--priority"),
    "an unknown type": (("{folder}/notes", "--type", "ftp"), 2, "--type"),
    "no checkout": (("{folder}/notes", "--type", "git"), 1, "git"),
    "an unknown project": (("{folder}/notes", "--project", "nobodys"), 1, "nobodys"),
    "a long title": (("{folder}/notes", "--title", "x" * 300), 1, "title"),
    "an empty title": (("{folder}/notes", "--title", ""), 0, ""),
    "a long tag": (("{folder}/notes", "--tags", "x" * 200), 1, "tag"),
    "no source": ((), 2, "PATH_OR_URL"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_call_says_why_in_a_line_and_makes_nothing(what: str, alone: Path, folder: Path) -> None:
    arguments, code, said = BAD[what]
    done = devflow(
        alone, "ingest", *(one.format(folder=folder) for one in arguments), extra=settings(folder), timeout=120
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == code, done.stderr + done.stdout
    assert said in done.stderr
    if code:
        assert "database" not in done.stderr, "no constraint of the database says it"
        assert done.stdout == ""
        lines = done.stderr.strip().splitlines()
        assert len([line for line in lines if line.startswith(("devflow:", "devflow ingest: error"))]) == 1, lines


def test_an_empty_file_is_refused(alone: Path, folder: Path) -> None:
    empty = folder / "empty.md"
    empty.touch()
    done = devflow(alone, "ingest", str(empty), extra=settings(folder))
    assert done.returncode == 1
    assert "empty" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_too_large_is_refused_without_reading_it_whole(alone: Path, folder: Path) -> None:
    huge = folder / "huge.md"
    with huge.open("wb") as file:
        file.truncate(3 * 1024**3)  # sparse
    done = devflow(alone, "ingest", str(huge), extra=settings(folder), timeout=60)
    huge.unlink()
    assert done.returncode == 1
    assert "25 MB" in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_what_could_not_be_read_is_told_and_the_rest_is_there(alone: Path, folder: Path) -> None:
    mixed = folder / "notes" / "mixed"
    mixed.mkdir(exist_ok=True)
    (mixed / "good.md").write_text(NOTE)
    (mixed / "broken.pdf").write_bytes(b"%PDF-1.7 no")
    done = devflow(alone, "ingest", str(mixed), extra=settings(folder), timeout=120)
    assert done.returncode == 0
    assert "1 of 2 documents could not be read" in done.stderr
    assert "broken.pdf" in done.stderr
    (mixed / "good.md").unlink()
    done = devflow(alone, "ingest", str(mixed), extra=settings(folder), timeout=120)
    assert done.returncode == 1, "nothing could be read"


# --- eval -------------------------------------------------------------------------------------------------------------

QUESTIONS = """
- question: Where does the dome open to?
  relevant: [observatory.md]
- question: What is the telescope cleaned with?
  relevant: telescope.md#Telescope
"""


@pytest.fixture(scope="module")
def evaluated(folder: Path) -> Path:
    """A data directory of its own with the notes."""
    home = folder / "evaluated"
    home.mkdir(mode=0o700)
    create_key(home, "anybody")
    assert devflow(home, "demo", extra=settings(folder)).returncode == 0
    ingest(home, folder, str(folder / "notes"))
    return home


@pytest.mark.parametrize("mode", ["semantic", "hybrid", "reranked"])
@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_questions_of_ones_own_are_measured(mode: str, suffix: str, evaluated: Path, folder: Path) -> None:
    import yaml

    file = folder / f"questions{suffix}"
    file.write_text(QUESTIONS if suffix == ".yaml" else json.dumps(yaml.safe_load(QUESTIONS)))
    done = devflow(evaluated, "eval", str(file), "--mode", mode, "--json", timeout=120)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["questions"] == 2
    assert report["recall_at_10"] == 1.0
    assert report["ndcg_at_10"] > 0.6
    assert 0 < report["p50_ms"] <= report["p95_ms"]
    assert report["missed"] == []


def test_the_report_for_people_names_what_was_missed(evaluated: Path, folder: Path) -> None:
    file = folder / "missing.yaml"
    file.write_text(QUESTIONS + "- question: Where is the wine kept?\n  relevant: cellar.md\n")
    done = devflow(evaluated, "eval", str(file), timeout=120)
    assert done.returncode == 0, done.stderr
    assert "3 questions, mode hybrid" in done.stdout
    assert "nothing relevant among the first ten: Where is the wine kept?" in done.stdout


BAD_QUESTIONS = {
    "nothing": b"",
    "a mapping": b"question: x\nrelevant: y\n",
    "a text": b"hello",
    "no questions": b"[]",
    "an entry that is a text": b"- hello\n",
    "without relevant": b"- question: x\n",
    "an empty question": b"- question: ' '\n  relevant: a.md\n",
    "relevant numbers": b"- question: x\n  relevant: [1]\n",
    "no relevant": b"- question: x\n  relevant: []\n",
    "no YAML": b"{[",
    "no text": b"\xff\xfe\x00",
    "tags of Python": b"- !!python/object/apply:os.system ['true']\n",
    "nested": b"[" * 5000,
    "a bomb of aliases": b"a: &a [x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\n" * 1 + b"c: [*b,*b,*b,*b]\n",
}


@pytest.mark.parametrize("what", BAD_QUESTIONS)
def test_a_bad_question_file_is_named_in_a_line(what: str, evaluated: Path, folder: Path) -> None:
    file = folder / "bad.yaml"
    file.write_bytes(BAD_QUESTIONS[what])
    done = devflow(evaluated, "eval", str(file), timeout=120)
    assert "Traceback" not in done.stderr, done.stderr[-1500:]
    assert done.returncode == 1, done.stdout
    assert "bad.yaml" in done.stderr
    assert done.stdout == ""


def test_a_question_file_that_is_not_there_and_a_project_that_is_not_there(evaluated: Path, folder: Path) -> None:
    done = devflow(evaluated, "eval", "/no/such/file.yaml")
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "/no/such/file.yaml" in done.stderr
    done = devflow(evaluated, "eval", str(folder))
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    file = folder / "questions.yaml"
    file.write_text(QUESTIONS)
    done = devflow(evaluated, "eval", str(file), "--project", "nobodys")
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "nobodys" in done.stderr
    done = devflow(evaluated, "eval", str(file), "--mode", "best")
    assert done.returncode == 2


def test_reindex_beside_a_server_and_alone_ends_with_nothing_waiting(
    server: RunningServer, alone: Path, folder: Path
) -> None:
    for home in (server.home, alone):
        done = devflow(home, "reindex", extra=settings(folder), timeout=120)
        assert done.returncode == 0, done.stderr
        assert "The index is complete." in done.stdout
    with library(server) as reader:
        eventually(lambda: not reader.search("dome")["degraded"], "it answers", seconds=30)
