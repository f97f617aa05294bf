"""Real documentation, read and asked: Django's (its sdist) and Python's (Debian's package). Writes
docs/knowledge-questions.md; takes about twenty minutes on two cores, nearly all of it embedding."""

import json
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import httpx

from bench.processes import ROOT, machine, seeded
from tests.running import RunningServer, environment, running

PAGE = ROOT / "docs" / "knowledge-questions.md"
DJANGO = "django==5.2.19"
PYTHON = Path("/usr/share/doc/python3.11/html/_sources")

QUESTIONS = (
    ("Django", "How do I avoid one query per row when I show related objects?"),
    ("Django", "Run a function only after the transaction has committed"),
    ("Django", "What does select_for_update(skip_locked=True) do?"),
    ("Django", "How can I add my own action to the admin's change list?"),
    ("Django", "Protect a site against clickjacking"),
    ("Python", "How do I share global variables across modules?"),
    ("Python", "asyncio.timeout usage"),
    ("Python", "What is the difference between deep and shallow copy?"),
    ("Python", "Read a file line by line without loading it into memory"),
    ("Python", "Why are default values shared between objects?"),
)


def run(home: Path) -> str:
    if not PYTHON.is_dir():
        raise RuntimeError("python3.11-doc is not installed: deploy/provide python3.11-doc")
    django = _django_docs(home)
    env = {"DEVFLOW_ALLOWED_ROOTS": f"{home},{PYTHON}"}
    with running(home / "server", env=env, arguments=("--no-demo",)) as server:
        key = seeded(server.home, "library", 0)
        rows = [
            _read(server, "Django", django, env),
            _read(server, "Python", PYTHON, env),
        ]
        answers = [_ask(server, key, where, question) for where, question in QUESTIONS]
        vectors = _size(server.home / "vectors")
        database = _size(server.home / "devflow.sqlite3")
    _write(answers)
    lines = [
        "`devflow ingest DIRECTORY --wait` on a running server with embedded defaults; keywords: every document can be",
        "found by its words; vectors: every chunk has its embedding. Ten questions with their answers:",
        f"[{PAGE.name}]({PAGE.name}).",
        "",
        "| documentation | documents | could not be read | chunks | code examples | keywords | vectors | chunks/s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row['title']} | {row['documents']} | {row['failed']} | {row['chunks']:,} | {row['examples']:,} | "
        f"{row['keywords']:.0f} s | {row['vectors']:.0f} s | {row['chunks'] / row['vectors']:.0f} |"
        for row in rows
    ]
    together = f"Both together: {vectors:.0f} MiB of vectors, {database:.0f} MiB of database (texts, keyword index"
    lines += ["", f"{together}, embeddings)."]
    return "\n".join(lines)


def _django_docs(home: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "django", "-d", home, DJANGO],
        check=True,
    )
    archive = next(home.glob("django-*.tar.gz"))
    with tarfile.open(archive) as tar:
        tar.extractall(home, filter="data")
    return home / archive.name.removesuffix(".tar.gz") / "docs"


def _size(path: Path) -> float:
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    return sum(one.stat().st_blocks * 512 for one in files) / 2**20


def _read(server: RunningServer, title: str, place: Path, env: dict[str, str]) -> dict[str, Any]:
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "devflow", "ingest", str(place), "--title", title, "--project", "library", "--wait"],
        cwd=ROOT,
        env=environment(server.home, env),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    keywords = 0.0
    for line in process.stderr:
        if line.startswith("indexed") and not keywords:
            keywords = time.perf_counter() - start
    if process.wait():
        raise RuntimeError(f"{title} could not be read")
    shown = subprocess.run(
        [sys.executable, "-c", _COUNTS, title],
        cwd=ROOT,
        env=environment(server.home, env),
        capture_output=True,
        text=True,
        check=True,
    )
    counts = json.loads(shown.stdout.splitlines()[-1])
    return {"title": title, "keywords": keywords, "vectors": time.perf_counter() - start, **counts}


_COUNTS = """
import django, json, os, sys
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "devflow.settings"); django.setup()
from knowledge.models import Source
s = Source.objects.get(title=sys.argv[1])
counts = {"documents": s.document_count, "failed": s.failed_count}
print(json.dumps({**counts, "chunks": s.chunk_count, "examples": s.example_count}))
"""


def _ask(server: RunningServer, key: str, where: str, question: str) -> dict[str, Any]:
    """Ask, and open every citation: its lines must be what was quoted."""
    headers = {"X-API-Key": key}
    with httpx.Client(base_url=server.url, headers=headers, timeout=60) as client:
        listed = client.post("/mcp/execute", json={"tool": "list_knowledge_sources", "args": {}}).json()["result"]
        source = next(one["id"] for one in listed["sources"] if one["title"] == where)
        asked = {"query": question, "top_k": 3, "filters": {"sources": [source]}}
        found = client.post("/mcp/execute", json={"tool": "search_knowledge", "args": asked}).json()["result"]
        for result in found["results"]:
            first, last = result["metadata"]["lines"]
            number = result["metadata"]["document_id"].removeprefix("document-")
            lines = client.get(f"/api/v1/documents/{number}/lines/", params={"from": first, "to": last})
            lines.raise_for_status()
            if result["content"].strip() not in lines.text and not _same(result["content"], lines.json()):
                raise RuntimeError(f"the citation does not open at its lines: {result['metadata']}")
    return {"where": where, "question": question, **found}


def _same(content: str, opened: Any) -> bool:
    text = opened.get("text") or "\n".join(line if isinstance(line, str) else line["text"] for line in opened["lines"])
    return content.strip() in text or text.strip() in content


def _write(answers: list[dict[str, Any]]) -> None:
    lines = [
        "# Ten questions to real documentation",
        "",
        "Written by `python -m bench documentation`: the documentation of Django (its sdist) and of Python (Debian's",
        "python3.11-doc), read with the defaults. Each question with its three best passages; every citation was",
        f"opened, and its lines were what is quoted. Machine: {machine()}.",
    ]
    for answer in answers:
        lines += [
            "",
            f"## {answer['question']}",
            "",
            f"{answer['where']} documentation, {answer['search_time_ms']} ms.",
        ]
        for place, result in enumerate(answer["results"], 1):
            cited = result["metadata"]
            first, last = cited["lines"]
            said = f"`{cited['document']}` lines {first} to {last}, score {result['score']:.2f}"
            lines += [
                "",
                f"{place}. {said}: {cited['heading']}",
                "",
                *(f"   > {line}".rstrip() for line in _shortened(result["content"])),
            ]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _shortened(content: str, most: int = 6) -> list[str]:
    lines = [line.replace("`" * 3, "'''") for line in content.strip().splitlines() if line.strip()]
    return [*lines[:most], "..."] if len(lines) > most else lines
