"""Keyword search inside the database: what is committed is found at once, also while vectors are away or behind.

SQLite: an FTS5 table over the model's own columns, kept by triggers. PostgreSQL: a GIN index on an expression.
A room adds `FullTextIndex` to its migration and asks `search`.
"""

import re
from collections.abc import Sequence
from typing import Any

from django.db import connection, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from devflow.vectors.terms import split_identifiers

MAX_WORDS = 32
_WORD = re.compile(r"\w+")
_STOP = """a about all also am an and any are as at be because been but by can could did do does for from had has have
how i if in into is it its me my no not of on or our should so some such than that the their them then there these they
this to use using was we were what when where which who why will with would you your"""
_STOP_WORDS = frozenset(_STOP.split())


def words_of(text: str) -> list[str]:
    """The words of a question worth looking for: lower case, without stop words (unless there is nothing else)."""
    words = list(dict.fromkeys(word.casefold() for word in _WORD.findall(f"{text} {split_identifiers(text)}")))
    return ([word for word in words if word not in _STOP_WORDS] or words)[:MAX_WORDS]


def _table(model_table: str) -> str:
    return f"{model_table}_fts"


class FullTextIndex(Operation):
    """Index text columns of a model, the first ones weighing most (see `search`)."""

    reversible = True

    def __init__(self, model_name: str, columns: Sequence[str]) -> None:
        self.model_name = model_name
        self.columns = tuple(columns)

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        return None

    def describe(self) -> str:
        return f"Index the words of {self.model_name}"

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        table = _table_of(to_state.apps, app_label, self.model_name)
        for statement in _statements(schema_editor.connection.vendor, table, self.columns):
            schema_editor.execute(statement)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        table = _table_of(from_state.apps, app_label, self.model_name)
        if schema_editor.connection.vendor == "sqlite":
            for event in ("insert", "delete", "update"):
                schema_editor.execute(f'DROP TRIGGER IF EXISTS "{_table(table)}_{event}"')
            schema_editor.execute(f'DROP TABLE IF EXISTS "{_table(table)}"')
        else:
            schema_editor.execute(f'DROP INDEX IF EXISTS "{_table(table)}"')


def _table_of(apps: Any, app_label: str, model_name: str) -> str:
    return str(apps.get_model(app_label, model_name)._meta.db_table)


def _document(columns: Sequence[str]) -> str:
    """The indexed expression on PostgreSQL; queries must repeat it letter for letter to use the index."""
    return "to_tsvector('english', " + " || ' ' || ".join(f'"{column}"' for column in columns) + ")"


def _statements(vendor: str, table: str, columns: Sequence[str]) -> list[str]:
    fts = _table(table)
    if vendor != "sqlite":
        return [f'CREATE INDEX "{fts}" ON "{table}" USING gin ({_document(columns)})']
    names = ", ".join(f'"{column}"' for column in columns)
    new = ", ".join(f'new."{column}"' for column in columns)
    old = ", ".join(f'old."{column}"' for column in columns)
    forget = f'INSERT INTO "{fts}" ("{fts}", rowid, {names}) VALUES (\'delete\', old.id, {old});'  # noqa: S608  # columns, not input
    add = f'INSERT INTO "{fts}" (rowid, {names}) VALUES (new.id, {new});'  # noqa: S608
    return [
        f"CREATE VIRTUAL TABLE \"{fts}\" USING fts5 ({names}, content='{table}', content_rowid='id', "
        "tokenize='porter unicode61')",
        f'CREATE TRIGGER "{fts}_insert" AFTER INSERT ON "{table}" BEGIN {add} END',
        f'CREATE TRIGGER "{fts}_delete" AFTER DELETE ON "{table}" BEGIN {forget} END',
        f'CREATE TRIGGER "{fts}_update" AFTER UPDATE OF {names} ON "{table}" BEGIN {forget} {add} END',
    ]


def search(
    among: "models.QuerySet[Any]", text: str, *, columns: Sequence[str], weights: Sequence[float] = (), limit: int = 100
) -> list[tuple[int, float]]:
    """Primary keys of the rows of `among` that hold any word of `text`, best first, with their score (BM25 on SQLite,
    cover density on PostgreSQL). `columns` are those of the index; `weights` multiply them on SQLite."""
    words = words_of(text)
    if not words:
        return []
    model = among.model
    table = model._meta.db_table
    inner, params = among.order_by().values("pk").query.sql_with_params()
    quote = connection.ops.quote_name
    if connection.vendor == "sqlite":
        factors = ", ".join(str(float(weight)) for weight in weights)
        rank = f"bm25({quote(_table(table))}{', ' + factors if factors else ''})"
        # The plus keeps SQLite from looking every row of `inner` up in the index, one by one: 7 ms instead of 2,500.
        sql = (
            f"SELECT rowid, -{rank} FROM {quote(_table(table))} WHERE {quote(_table(table))} MATCH %s "  # noqa: S608
            f"AND +rowid IN ({inner}) ORDER BY {rank} LIMIT %s"
        )
        arguments = [" OR ".join(f'"{word}"' for word in words), *params, limit]
    else:
        asked = "to_tsquery('english', %s)"
        sql = (
            f"SELECT id, ts_rank_cd({_document(columns)}, {asked}, 1) AS score FROM {quote(table)} "  # noqa: S608
            f"WHERE {_document(columns)} @@ {asked} AND id IN ({inner}) ORDER BY score DESC, id LIMIT %s"
        )
        question = " | ".join(f"'{word}'" for word in words)
        arguments = [question, question, *params, limit]
    with connection.cursor() as cursor:
        cursor.execute(sql, arguments)
        return [(int(row[0]), float(row[1])) for row in cursor.fetchall()]
