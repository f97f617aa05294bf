"""What a data directory needs before it is served: tables, and on the very first start an administrator and a key."""

import fcntl
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import connection, transaction

from devflow import config

ADMIN = "admin"
# Any number of our own will do; PostgreSQL's advisory locks know nothing but numbers.
_MIGRATION_LOCK = 7_308_051


@dataclass(frozen=True, slots=True)
class FirstStart:
    """The credentials made on the first start; they are shown once and stored hashed."""

    password: str
    key: str


def migrate() -> None:
    """Bring the tables up to date; two processes never do so at once."""
    if not pending_migrations():
        return
    from django.core.management import call_command

    with _alone():
        call_command("migrate", verbosity=0, interactive=False)


def pending_migrations() -> list[str]:
    """Names of the migrations that were not applied yet."""
    from django.db.migrations.executor import MigrationExecutor

    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [f"{migration.app_label}.{migration.name}" for migration, _backwards in plan]


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the migration lock: of the data directory, and of the database where other machines share it."""
    with (config.home() / "migrate.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if connection.vendor != "postgresql":
            yield
            return
        limits = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        with connection.cursor() as cursor:
            for limit in limits:
                cursor.execute(f"SET {limit} = 0")
            cursor.execute("SELECT pg_advisory_lock(%s)", [_MIGRATION_LOCK])
        try:
            yield
        finally:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [_MIGRATION_LOCK])
                for limit in limits:
                    cursor.execute(f"RESET {limit}")


@transaction.atomic
def first_start(*, demo: bool) -> FirstStart | None:
    """Make the administrator, the first key and the demo project; None when there are users already."""
    from django.contrib.auth import get_user_model

    from mcpbridge.models import ApiKey

    users = get_user_model()
    if users.objects.exists():
        return None
    password = secrets.token_urlsafe(12)
    users.objects.create_superuser(username=ADMIN, email="", password=password)
    _key, raw = ApiKey.objects.issue(name="first key", scopes=["read", "write", "execute"], owner_id=None)
    if demo:
        seed_demo()
    return FirstStart(password=password, key=raw)


def first_project() -> None:
    """Seed the demo project where there is none: an agent on stdio has nobody to make one first."""
    from workflow.models import Project

    if not Project.objects.exists():
        seed_demo()


def seed_demo(*, reset: bool = False) -> None:
    """Make the demo project with what every room adds to it; with `reset` throw away the one there is first."""
    from knowledge.services import demo as knowledge
    from memory.services import demo as memories
    from workflow.models import Project
    from workflow.services import demo as workflow

    if reset and (old := Project.objects.filter(slug=workflow.SLUG).first()) is not None:
        knowledge.clear(project_id=old.pk)
    project = workflow.seed_demo(reset=reset)
    knowledge.seed(project_id=project.pk)
    memories.seed(project_id=project.pk)


def local_key() -> str:
    """The key with which other processes of this user reach this server; kept beside the secret key, mode 0600."""
    from mcpbridge.models import ApiKey, key_digest

    path = config.home() / "local_key"
    if path.exists():
        raw = path.read_text(encoding="ascii")
        if ApiKey.objects.live().filter(digest=key_digest(raw)).exists():
            return raw
    _row, raw = ApiKey.objects.issue(name="local processes", scopes=["read", "write", "execute"], rate_per_minute=0)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(raw, encoding="ascii")
    return raw
