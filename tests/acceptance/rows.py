"""What the server has written, read straight from its database file."""

import hashlib
import sqlite3
from contextlib import closing

from tests.running import RunningServer

HEARTBEATS = ("workflow_agent", "workflow_activeproject")


def dump(server: RunningServer) -> str:
    """A digest of every domain row, but for who was seen when."""
    digest = hashlib.sha256()
    with closing(sqlite3.connect(f"file:{server.home / 'devflow.sqlite3'}?mode=ro", uri=True)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'workflow_%'")
        tables = sorted(name for (name,) in names if name not in HEARTBEATS)
        assert {"workflow_task", "workflow_event", "workflow_message", "workflow_dependency"} <= set(tables)
        for table in tables:
            digest.update(repr(connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()).encode())
    return digest.hexdigest()
