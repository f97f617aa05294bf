"""Throwaway PostgreSQL and Redis servers as fixtures, one of each per test process.

A missing server program skips the test, unless DEVFLOW_TEST_REQUIRE_SERVERS is set (as `.ci/run` does).
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TypeVar

import psycopg
import pytest

from devflow import throwaway
from devflow.throwaway import RedisServer

T = TypeVar("T")

REQUIRED = bool(os.environ.get("DEVFLOW_TEST_REQUIRE_SERVERS"))


def _started(start: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
    try:
        server = start()
        with server as running:
            yield running
    except throwaway.MissingServerError as exc:
        if REQUIRED:
            raise
        pytest.skip(str(exc))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a database on a PostgreSQL server of this test process."""
    yield from _started(throwaway.postgres)


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of an empty database of this test's own."""
    name = f"test_{os.urandom(6).hex()}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield postgres_server.rpartition("/")[0] + f"/{name}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A Redis server of this test process; a test that stops it must start it again."""
    yield from _started(throwaway.redis)


@pytest.fixture
def redis_url(redis_server: RedisServer) -> Iterator[str]:
    """The URL of an empty Redis."""
    yield redis_server.url
    import redis

    with redis.Redis.from_url(redis_server.url) as client:
        client.flushall()
