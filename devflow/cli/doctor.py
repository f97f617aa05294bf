"""`devflow doctor`: one line for each thing a working installation needs, with the fix where it is missing."""

import argparse
import json
import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from devflow import config, owner
from devflow.cli import setup
from devflow.config import ConfigError


@dataclass(frozen=True, slots=True)
class Finding:
    """`name` what was looked at, `detail` what was seen, `fix` what to do (empty where `ok`)."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


def run(options: argparse.Namespace) -> int:
    findings = list(examine())
    if options.json:
        print(json.dumps({"ok": all(finding.ok for finding in findings), "findings": [asdict(f) for f in findings]}))
    else:
        for finding in findings:
            print(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.name:<12}{finding.detail}", end="")
            print(f" -> {finding.fix}" if finding.fix else "")
    return 0 if all(finding.ok for finding in findings) else 1


def examine() -> Iterator[Finding]:
    """Look at everything; what cannot be looked at because an earlier part failed is left out."""
    yield _python()
    yield _write_access()
    try:
        conf = config.current()
        setup()
    except ConfigError as exc:
        yield Finding("config", False, str(exc), "correct it and run `devflow doctor` again")
        return
    yield from _settings(conf)
    database = _database()
    yield database
    if database.ok:
        migrations = _migrations()
        yield migrations
        if migrations.ok:
            yield _audit()
            yield _index()
            yield from _backends()
    if conf.redis_url:
        yield _redis(conf.redis_url)
    yield _queue()
    yield _embedder()
    yield _vectors()
    yield from _ports(conf)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", sys.version_info >= (3, 11), version, "" if sys.version_info >= (3, 11) else "use 3.11+")


def _write_access() -> Finding:
    home = config.home()
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = home / f".doctor-{os.getpid()}"
        probe.write_text("")
        probe.unlink()
    except OSError as exc:
        return Finding("data", False, f"{home}: {exc.strerror}", "make it writable or set DEVFLOW_HOME to one that is")
    if home.stat().st_mode & 0o077 and home.stat().st_uid == os.getuid():
        return Finding("data", False, f"{home} can be read by other users", f"chmod 700 {home}")
    return Finding("data", True, str(home))


def _settings(conf: config.Config) -> Iterator[Finding]:
    from devflow import checks

    found = checks.problems(conf)
    for problem in found:
        yield Finding("config", False, problem.msg, problem.hint or "")
    if not found:
        yield Finding("config", True, f"{conf.workers} {conf.server} process(es)")


def _database() -> Finding:
    from django.db import Error, connection

    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            if connection.vendor == "sqlite":
                cursor.execute("PRAGMA quick_check(1)")
                if (said := cursor.fetchone()[0]) != "ok":
                    return Finding("database", False, str(said), "stop the server and restore the last backup")
    except Error as exc:
        return Finding("database", False, " ".join(str(exc).split()), "start it, or correct DEVFLOW_DATABASE_URL")
    return Finding("database", True, connection.vendor)


def _migrations() -> Finding:
    from devflow.cli.provision import pending_migrations

    pending = pending_migrations()
    if pending:
        return Finding("migrations", False, f"{len(pending)} pending, first {pending[0]}", "`devflow up` applies them")
    return Finding("migrations", True, "all applied")


def _audit() -> Finding:
    from django.db import Error

    from mcpbridge import audit

    try:
        faults = audit.verify()
    except Error as exc:
        return Finding("audit", False, " ".join(str(exc).split()), "apply the migrations: `devflow up`")
    if faults:
        return Finding("audit", False, f"{len(faults)} faults: {faults[0]}", "rows were changed: compare a backup")
    return Finding("audit", True, "the chain holds")


def _redis(url: str) -> Finding:
    import redis

    try:
        redis.Redis.from_url(url, socket_timeout=3, socket_connect_timeout=3).ping()
    except redis.RedisError as exc:
        return Finding("redis", False, str(exc), "start it, or correct DEVFLOW_REDIS_URL")
    return Finding("redis", True, "answers")


def _queue() -> Finding:
    from devflow import jobs

    try:
        waiting = jobs.queue().pending_count()
    except Exception as exc:  # each storage has its own errors
        return Finding("jobs", False, str(exc), "start it, or correct DEVFLOW_QUEUE_URL")
    runner = "the server" if jobs.is_embedded() else "`devflow worker`"
    return Finding("jobs", True, f"{waiting} waiting, run by {runner}")


def _embedder() -> Finding:
    from devflow.vectors import embedders
    from devflow.vectors.base import EmbeddingError

    try:
        embedder = embedders.current()
        size = len(embedder.embed_query("Is the embedder there?"))
    except EmbeddingError as exc:
        return Finding("embedder", False, str(exc), "correct DEVFLOW_EMBEDDING_*; keywords answer meanwhile")
    return Finding("embedder", True, f"{embedder.name}, {size} dimensions")


def _vectors() -> Finding:
    from devflow.vectors import stores
    from devflow.vectors.base import StoreError

    try:
        said = stores.store().ping()
    except StoreError as exc:
        return Finding("vectors", False, str(exc), "start the store, or correct DEVFLOW_QDRANT_URL")
    return Finding("vectors", True, said)


def _index() -> Finding:
    from devflow.vectors import index
    from devflow.vectors.kinds import kinds
    from devflow.vectors.models import Collection

    waiting = sum(index.lag(kind).pending for kind in kinds)
    fault = Collection.objects.exclude(fault="").values_list("fault", flat=True).first()
    if fault:
        return Finding("index", False, f"{waiting} rows wait: {fault}", "mend that; the index goes on by itself")
    return Finding("index", True, f"{waiting} rows wait for their vectors")


def _backends() -> Iterator[Finding]:
    """As they were when they were last looked at: asking them starts processes."""
    from mcpbridge.gateway import backends
    from mcpbridge.models import Backend

    for row in Backend.objects.filter(is_enabled=True):
        name = row.backend_id
        if row.status == Backend.Status.DOWN:
            detail = f"{name}: {' '.join(row.status_detail.split())[:200]}"
            yield Finding("backend", False, detail, f"`devflow backend test {row.backend_id}` asks it again")
        else:
            doubts = backends.warnings_of(row)
            state = "not asked yet" if row.status == Backend.Status.NEW else f"{row.transport}, up"
            yield Finding("backend", True, f"{name}: {'; '.join((state, *doubts))}")


def _ports(conf: config.Config) -> Iterator[Finding]:
    host, port = conf.mcp_gateway.host, conf.mcp_gateway.port
    if published := owner.read_published():
        yield Finding("owner", True, f"served at {published.url} by process {published.pid}")
        return
    if owner.is_owned():
        yield Finding("owner", True, "a server is starting")
        return
    yield Finding("owner", True, "nobody serves this data directory")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as exc:
            yield Finding(
                "port", False, f"{host}:{port}: {exc.strerror}", "stop what listens there or set DEVFLOW_PORT"
            )
            return
    yield Finding("port", True, f"{host}:{port} is free")
