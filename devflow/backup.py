"""Backup and restore of a data directory: database, uploads and secret key in one .tar.gz with a manifest.

The database is copied by its own means (SQLite's online backup, `pg_dump` of one snapshot), so writers go on.
The manifest holds the sha256 of every file and the number of rows of every table, all of the same moment.
Jobs that wait in the queue are not part of it: periodic jobs find again what has to be done.
"""

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from devflow import __version__, config, owner

MANIFEST = "manifest.json"
SQLITE_FILE = "database.sqlite3"
POSTGRES_FILE = "database.dump"
FORMAT = 1
# What a data directory may hold that is no data: restoring beside these needs no --force.
_NOT_DATA = frozenset(
    {"owner.lock", "migrate.lock", "vectors", "static", "metrics", "devflow.yaml", "devflow.yml", "devflow.toml"}
)


class BackupError(Exception):
    """The backup or restore was not done; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """`files`: name in the archive to sha256. `rows`: table to number of rows. `database`: sqlite or postgresql."""

    format: int
    version: str
    created_at: str
    database: str
    files: dict[str, str]
    rows: dict[str, int]


def create(target: str | Path) -> Manifest:
    """Write a backup of the running configuration to `target`. Needs Django to be set up. Raises `BackupError`."""
    from django.db import connection

    target = Path(target).expanduser()
    if target.exists():
        raise BackupError(f"{target} exists already; name a new file.")
    if not target.parent.is_dir():
        raise BackupError(f"{target.parent} is no directory; make it first.")
    home = config.home()
    with tempfile.TemporaryDirectory(prefix=".backup-", dir=target.parent) as scratch:
        staged = Path(scratch)
        if connection.vendor == "sqlite":
            rows = _copy_sqlite(str(connection.settings_dict["NAME"]), staged / SQLITE_FILE)
            members = {SQLITE_FILE: staged / SQLITE_FILE}
        else:
            rows = _dump_postgres(staged / POSTGRES_FILE)
            members = {POSTGRES_FILE: staged / POSTGRES_FILE}
        if (home / "secret_key").is_file():
            members["secret_key"] = home / "secret_key"
        uploads = home / "uploads"
        if uploads.is_dir():
            members |= {
                f"uploads/{path.relative_to(uploads).as_posix()}": path
                for path in sorted(uploads.rglob("*"))
                if path.is_file() and not path.is_symlink()
            }
        partial = staged / "archive"
        partial.touch(mode=0o600)  # it holds the secret key
        files = {}
        with tarfile.open(partial, "w:gz", compresslevel=6) as archive:
            for name, path in members.items():
                archive.add(path, arcname=name, recursive=False)
                files[name] = _sha256(path)
            manifest = Manifest(FORMAT, __version__, datetime.now(UTC).isoformat(), connection.vendor, files, rows)
            (staged / MANIFEST).write_text(json.dumps(asdict(manifest), indent=1), encoding="utf-8")
            archive.add(staged / MANIFEST, arcname=MANIFEST)
        partial.replace(target)
    return manifest


def restore(source: str | Path, *, force: bool = False) -> Manifest:
    """Bring a backup into this data directory and database, verified before anything is replaced.

    Refuses a data directory that holds data unless `force`, one that is being served, a damaged archive, and a
    backup of the other kind of database. Raises `BackupError`.
    """
    source, home = Path(source).expanduser(), config.home()
    holder = owner.try_acquire(home)
    if holder is None:
        raise BackupError(f"{home} is being served; stop the server first.")
    with holder:
        held = sorted(path.name for path in home.iterdir() if path.name not in _NOT_DATA)
        if held and not force:
            raise BackupError(
                f"{home} holds data already ({held[0]} ...); set DEVFLOW_HOME to an empty directory, or use --force."
            )
        with tempfile.TemporaryDirectory(prefix=".restore-", dir=home) as scratch:
            staged = Path(scratch)
            manifest = _unpack(source, staged)
            url = config.current().database_url
            wanted = "postgresql" if urlsplit(url).scheme.startswith("postgres") else "sqlite"
            if manifest.database != wanted:
                raise BackupError(
                    f"this is a backup of {manifest.database}, but DEVFLOW_DATABASE_URL names {wanted}; "
                    "set it to a database of the same kind."
                )
            if wanted == "sqlite":
                _restore_sqlite(staged / SQLITE_FILE, url, manifest)
            else:
                _restore_postgres(staged / POSTGRES_FILE, url, manifest, force=force)
            _replace(staged / "secret_key", home / "secret_key")
            _replace(staged / "uploads", home / "uploads")
            for stale in ("jobs.sqlite3", "jobs.sqlite3-wal", "jobs.sqlite3-shm", "local_key"):
                (home / stale).unlink(missing_ok=True)
            shutil.rmtree(home / "vectors", ignore_errors=True)  # made again from the rows that are there now
    return manifest


def _replace(staged: Path, target: Path) -> None:
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)
    if staged.exists():
        staged.replace(target)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unpack(source: Path, into: Path) -> Manifest:
    """Unpack exactly the files the manifest names, with the contents it vouches for."""
    try:
        with tarfile.open(source, "r:gz") as archive:
            members = {member.name: member for member in archive.getmembers()}
            manifest = Manifest(**json.loads(_read(archive, members, MANIFEST).read()))
            if manifest.format != FORMAT:
                raise BackupError(f"{source} has format {manifest.format}, not {FORMAT}; use the DevFlow that made it.")
            for name, expected in manifest.files.items():
                if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                    raise BackupError(f"{source}: {name} leads out of the data directory; nothing was restored.")
                path = into / name
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                path.touch(mode=0o600)
                with path.open("wb") as file:
                    shutil.copyfileobj(_read(archive, members, name), file)
                if _sha256(path) != expected:
                    raise BackupError(f"{source}: {name} is damaged (its sha256 differs); nothing was restored.")
    except (OSError, EOFError, tarfile.TarError, ValueError, TypeError, KeyError) as exc:
        raise BackupError(f"{source} is no readable backup: {exc}.") from exc
    return manifest


def _read(archive: tarfile.TarFile, members: dict[str, tarfile.TarInfo], name: str) -> Any:
    file = archive.extractfile(members[name])
    if file is None:
        raise ValueError(f"{name} is no regular file")
    return file


# SQLite


def _copy_sqlite(name: str, target: Path) -> dict[str, int]:
    with closing(sqlite3.connect(name, timeout=20)) as live, closing(sqlite3.connect(target)) as copy:
        live.backup(copy, pages=1000, sleep=0.005)
        copy.execute("PRAGMA journal_mode=DELETE")
        return _sqlite_rows(copy)


def _sqlite_rows(database: sqlite3.Connection) -> dict[str, int]:
    tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return {
        name: database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]  # noqa: S608  # names of our own tables
        for (name,) in sorted(tables.fetchall())
    }


def _restore_sqlite(staged: Path, url: str, manifest: Manifest) -> None:
    with closing(sqlite3.connect(staged)) as database:
        if database.execute("PRAGMA integrity_check").fetchone()[0] != "ok" or _sqlite_rows(database) != manifest.rows:
            raise BackupError("the database in this backup is damaged; nothing was restored.")
    target = config.sqlite_path(url)
    for suffix in ("-wal", "-shm"):
        target.with_name(target.name + suffix).unlink(missing_ok=True)
    shutil.copyfile(staged, target.with_name(target.name + ".new"))
    target.with_name(target.name + ".new").replace(target)


# PostgreSQL


@contextmanager
def _connection(url: str) -> Iterator[Any]:
    import psycopg

    try:
        with psycopg.connect(url, connect_timeout=10, options="-c idle_in_transaction_session_timeout=0") as connected:
            yield connected
    except psycopg.Error as exc:
        raise BackupError(f"PostgreSQL: {' '.join(str(exc).split())}") from exc


def _postgres_rows(connected: Any) -> dict[str, int]:
    from psycopg import sql

    tables = connected.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1")
    return {
        name: connected.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(name))).fetchone()[0]
        for (name,) in tables.fetchall()
        if not name.startswith("devflow_jobs_")
    }


_NO_ROLES = ("--no-owner", "--no-privileges")


def _without_password(url: str) -> tuple[str, dict[str, str]]:
    """The URL as other users of this machine may see it in the list of processes, and the environment with the rest."""
    parts = urlsplit(url)
    if parts.password is None:
        return url, dict(os.environ)
    user, _, host = parts.netloc.rpartition("@")
    shown = parts._replace(netloc=f"{user.partition(':')[0]}@{host}").geturl()
    return shown, {**os.environ, "PGPASSWORD": unquote(parts.password)}


def _run(command: list[str], url: str, *where: str) -> None:
    tool = shutil.which(command[0])
    if tool is None:
        raise BackupError(f"{command[0]} is not installed; install PostgreSQL's client programs (postgresql-client).")
    shown, environment = _without_password(url)
    done = subprocess.run(  # noqa: S603  # no shell
        [tool, *command[1:], f"--dbname={shown}", *where], capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        raise BackupError(f"{command[0]} failed: {' '.join(done.stderr.split())[-500:]}")


def _dump_postgres(target: Path) -> dict[str, int]:
    url = config.current().database_url
    with _connection(url) as connected:
        connected.isolation_level = 3  # psycopg.IsolationLevel.REPEATABLE_READ: one snapshot for counts and dump
        (snapshot,) = connected.execute("SELECT pg_export_snapshot()").fetchone()
        rows = _postgres_rows(connected)
        _run(
            ["pg_dump", "--format=custom", *_NO_ROLES, "--exclude-table=devflow_jobs_*", f"--snapshot={snapshot}"],
            url,
            f"--file={target}",
        )
    return rows


def _restore_postgres(staged: Path, url: str, manifest: Manifest, *, force: bool) -> None:
    with _connection(url) as connected:
        if _postgres_rows(connected) and not force:
            raise BackupError("the database holds tables already; name an empty one, or use --force.")
        if force:
            connected.execute("DROP SCHEMA public CASCADE")
            connected.execute("CREATE SCHEMA public")
    _run(["pg_restore", *_NO_ROLES, "--exit-on-error", "--single-transaction"], url, str(staged))
    with _connection(url) as connected:
        if _postgres_rows(connected) != manifest.rows:
            raise BackupError("the restored tables do not have the rows the backup names; do not use this database.")
