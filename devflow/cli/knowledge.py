"""`devflow ingest`, `devflow reindex` and `devflow eval`."""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from devflow import jobs, owner
from devflow.actors import Actor
from devflow.cli import CommandError, provision

POLL_SECONDS = 0.25
_READ_SIZE = 1024 * 1024


def _somebody_reads() -> bool:
    """Whether another process runs the jobs: then this one only asks and watches."""
    return owner.is_owned() or not jobs.is_embedded()


def _project_id(slug: str | None) -> int:
    from devflow import ports
    from devflow.ports import KeyScope

    scope = KeyScope(key_id=0)
    return ports.directory().project_of(scope, slug=slug, agent_name="").id


def ingest(options: argparse.Namespace) -> int:
    """Add a source. Without a server to read it, read it here."""
    provision.migrate()
    from knowledge.services import sources

    where: str = options.source
    given: dict[str, object]
    if where.startswith(("http://", "https://")):
        given = {"type": options.type or "web", "url": where}
    else:
        path = Path(where).expanduser()
        if not path.exists():
            raise CommandError(f"{where}: there is no such file or directory.")
        if not (path.is_dir() or path.is_file()):
            raise CommandError(f"{where}: is neither a file nor a directory.")
        if path.is_dir():
            kind = options.type or ("git" if (path / ".git").exists() else "directory")
            given = {"type": kind, "path": str(path.resolve())}
        else:
            given = {"type": options.type or "upload", "files": [(path.name, _pieces(path))]}
    values = {
        "project_id": _project_id(options.project),
        "actor": Actor(kind="system", name="command line", tool="ingest"),
        "title": options.title or (Path(where.rstrip("/")).name or where)[:255],
        "tags": [tag.strip() for tag in (options.tags or "").split(",") if tag.strip()],
        "priority": options.priority,
        **given,
    }
    if _somebody_reads():
        source = sources.create(**values)
        if options.wait:
            _watch(source.pk)
    else:
        print("No server is running; the source is read here.", file=sys.stderr)
        with jobs.immediately():
            source = sources.create(**values)
    source.refresh_from_db()
    if options.json:
        print(json.dumps({"source_id": source.public_id, "status": source.status}))
    else:
        print(f"{source.public_id}: {source.status}, {source.document_count} documents, {source.chunk_count} passages.")
        if source.error:
            print(source.error, file=sys.stderr)
    return 1 if source.status == "error" else 0


def _pieces(path: Path) -> Iterator[bytes]:
    """A file's content as it is asked for: one that is too large is never read whole."""
    try:
        with path.open("rb") as file:
            yield from iter(lambda: file.read(_READ_SIZE), b"")
    except OSError as exc:
        raise CommandError(f"{path} cannot be read: {exc.strerror}.") from exc


def _watch(source_id: int) -> None:
    """Show how far a source is until it is read and its vectors are made."""
    from devflow.vectors.models import Collection
    from knowledge.models import Source
    from knowledge.selectors.sources import KIND, pending_chunks

    said = ""
    while True:
        source = Source.objects.filter(pk=source_id).first()
        if source is None:
            raise CommandError("the source was deleted meanwhile.")
        waiting = pending_chunks([source]).get(source_id, 0)
        if source.run_wanted and source.status != "paused":
            line = f"{source.status}: {source.run_done} of {source.run_total} documents"
        elif waiting:
            line = f"indexed; {waiting} passages wait for their vectors"
            if fault := Collection.objects.filter(kind=KIND).exclude(fault="").values_list("fault", flat=True).first():
                line += f": {fault}"
        else:
            return
        if line != said:
            print(line, file=sys.stderr)
            said = line
        time.sleep(POLL_SECONDS)


def reindex(options: argparse.Namespace) -> int:
    """Make the vectors anew from the rows."""
    provision.migrate()
    from devflow.vectors import index
    from devflow.vectors.base import StoreError
    from devflow.vectors.kinds import kinds

    try:
        total = sum(index.forget_everything(kind) for kind in kinds)
    except StoreError as exc:
        raise CommandError(f"the vector store does not answer: {exc}") from exc
    print(f"{total} rows are indexed again.", file=sys.stderr)
    if not _somebody_reads():
        index.drain()
    started = time.monotonic()
    while left := sum(index.lag(kind).pending for kind in kinds):
        from devflow.vectors.models import Collection

        fault = Collection.objects.exclude(fault="").values_list("fault", flat=True).first()
        if fault and (not _somebody_reads() or time.monotonic() - started > 60):
            raise CommandError(f"{left} rows wait: {fault}")
        if options.no_wait:
            break
        print(f"{left} left", file=sys.stderr)
        time.sleep(1)
    print("The index is complete." if not options.no_wait else "The server goes on with it.")
    return 0


def evaluate(options: argparse.Namespace) -> int:
    """Measure retrieval on the shipped questions, or on a file of one's own against a project."""
    if options.questions:
        provision.migrate()
        from knowledge.evaluation import own

        questions = own.read(Path(options.questions))
        report = own.evaluate(project_id=_project_id(options.project), questions=questions, mode=options.mode)
        if options.json:
            print(json.dumps(asdict(report)))
            return 0
        print(f"{report.questions} questions, mode {options.mode}")
        print(f"nDCG@10   {report.ndcg_at_10:.3f}\nrecall@10 {report.recall_at_10:.3f}")
        print(f"p50 {report.p50_ms:.0f} ms, p95 {report.p95_ms:.0f} ms")
        for missed in report.missed:
            print(f"nothing relevant among the first ten: {missed}")
        return 0
    return _shipped(as_json=options.json)


def _shipped(*, as_json: bool) -> int:
    from devflow.vectors import embedders
    from devflow.vectors.base import DENSE, TEXT
    from knowledge.evaluation import faq, trial

    place = faq.folder()
    if place is None:
        raise CommandError(
            "the shipped questions come from the Python documentation; install Debian's python3.11-doc, or name a "
            "question file of your own."
        )
    embedder = embedders.current()
    questions = faq.load(place, embedder.count_tokens)
    with trial.indexed(questions, embedder) as store:
        asked = trial.ask(questions, store, embedder)
    ways = {
        "hybrid": trial.weighted(),
        "semantic": trial.leg(DENSE),
        "keywords": trial.leg(TEXT),
        "RRF (k=60)": trial.reciprocal_ranks(),
    }
    scores = {name: trial.score(questions, asked, way) for name, way in ways.items()}
    seconds = sorted(one.seconds for one in asked)
    p50, p95 = seconds[len(seconds) // 2] * 1000, seconds[int(len(seconds) * 0.95)] * 1000
    if as_json:
        found = {name: {"ndcg_at_10": one.ndcg, "recall_at_10": one.recall} for name, one in scores.items()}
        print(json.dumps({"questions": len(questions.questions), "scores": found, "p50_ms": p50, "p95_ms": p95}))
        return 0
    print(f"{len(questions.questions)} questions of the Python FAQ over {len(questions.passages)} passages")
    print(f"{'':<12}nDCG@10  recall@10")
    for name, one in scores.items():
        print(f"{name:<12}{one.ndcg:7.3f}{one.recall:11.3f}")
    print(f"p50 {p50:.0f} ms, p95 {p95:.0f} ms a question")
    return 0
