"""The worker threads that blocking work of calls runs on: bounded, with one database connection each.

A fixed pool instead of asgiref's thread per context: a thread and a connection per call would cost more than most
calls do, and one shared thread would queue them (docs/decisions/004).
"""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import ParamSpec, TypeVar

from django.db import close_old_connections

from devflow import config

P = ParamSpec("P")
T = TypeVar("T")


OUTSIDE_THREADS = 16


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=config.current().call_threads, thread_name_prefix="call")


@lru_cache(maxsize=1)
def _outside() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=OUTSIDE_THREADS, thread_name_prefix="outside")


def _with_connections(work: Callable[[], T]) -> T:
    try:
        return work()
    finally:
        close_old_connections()


async def run_blocking(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking work on the pool in the caller's context; the loop stays free."""
    return await _on(_pool(), function, *args, **kwargs)


async def run_outside(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The same for work that waits for another server: however long that takes, the calls' own threads stay free."""
    return await _on(_outside(), function, *args, **kwargs)


async def _on(pool: ThreadPoolExecutor, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    context = contextvars.copy_context()
    work = partial(context.run, partial(function, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(pool, _with_connections, work)
