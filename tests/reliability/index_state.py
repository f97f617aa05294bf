"""What a data directory holds of its knowledge, to compare two of them: rows, counters, and points in the store."""

import json
import sqlite3
from contextlib import closing
from typing import Any

from tests.running import RunningServer

_STATE = """
import json
from django.db.models import Count
from devflow.vectors import stores
from devflow.vectors.kinds import kinds
from devflow.vectors.models import Collection, PendingPoint
from knowledge.models import Chunk, CodeExample, Document, Source
from memory.models import Memory

def points(kind):
    collection = Collection.objects.filter(kind=kind, state="live").first()
    is_there = collection is not None and collection.name in stores.store().collections()
    found = stores.store().scroll(collection.name) if is_there else []
    kept = [(str(point), digest) for point, digest in found]
    assert len(kept) == len({point for point, _ in kept}), "a point twice"
    return sorted(kept)

rows = {kind: sorted((str(point), digest) for point, digest in kinds[kind].hashes()) for kind in kinds}
print(json.dumps({
    "sources": [
        {
            "title": one.title, "status": one.status, "error": one.error, "run_wanted": one.run_wanted,
            "counted": [one.document_count, one.failed_count, one.chunk_count, one.example_count],
            "there": [one.documents.count(), one.documents.filter(status="error").count(),
                      one.chunks.count(), one.examples.count()],
        }
        for one in Source.objects.order_by("title")
    ],
    "documents": sorted(Document.objects.values_list("source__title", "path", "status", "raw_hash", "text_hash")),
    "chunks": sorted(Chunk.objects.values_list(
        "source__title", "document__path", "ordinal", "hash", "start_line", "end_line", "heading", "text")),
    "examples": sorted(CodeExample.objects.values_list("document__path", "start_line", "hash")),
    "memories": sorted(Memory.objects.values_list("pk", "hash")),
    "pending": PendingPoint.objects.count(),
    "rows_missing_in_store": {kind: [one for one in rows[kind] if one not in set(points(kind))] for kind in kinds},
    "store_without_row": {kind: [one for one in points(kind) if one not in set(rows[kind])] for kind in kinds},
    "points": {kind: len(points(kind)) for kind in kinds},
}))
"""


def state(server: RunningServer) -> dict[str, Any]:
    """Everything of the knowledge, as JSON; without keys and times, so that two data directories can be compared."""
    found: dict[str, Any] = json.loads(server.run_python(_STATE).splitlines()[-1])
    return found


def assert_whole(found: dict[str, Any]) -> None:
    """Counters are those of the rows, nothing waits, and the store holds exactly the rows' points and hashes."""
    for source in found["sources"]:
        assert source["counted"] == source["there"], source
        assert not source["run_wanted"], source
    assert found["pending"] == 0
    assert not any(found["rows_missing_in_store"].values()), found["rows_missing_in_store"]
    assert not any(found["store_without_row"].values()), found["store_without_row"]
    assert len({(title, path) for title, path, *_ in found["documents"]}) == len(found["documents"])
    assert len({tuple(chunk[:3]) for chunk in found["chunks"]}) == len(found["chunks"])


def count(server: RunningServer, sql: str) -> int:
    """A number straight from the database file of a server."""
    path = server.home / "devflow.sqlite3"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=20)) as connection:
        return int(connection.execute(sql).fetchone()[0])


DOCUMENTS = "SELECT count(*) FROM knowledge_document"
CHUNKS = "SELECT count(*) FROM knowledge_chunk"
WAITING = "SELECT count(*) FROM vectors_pendingpoint"
UNREAD = "SELECT count(*) FROM knowledge_source WHERE run_wanted"
