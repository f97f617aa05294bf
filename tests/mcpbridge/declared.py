"""Tools only tests see: each shows one way a call can go."""

import asyncio
import threading

from django.db import OperationalError

from devflow.errors import DevFlowError, ErrorCode
from mcpbridge.models import ApiKey
from mcpbridge.tooling import Caller, Effect, Intent, LongText, Nothing, Result, Tool

release = threading.Event()
faults: list[Exception] = []


class Echo(Result):
    text: str


class Count(Result):
    count: int


async def echo(caller: Caller, *, text: LongText) -> Echo:
    """Say it again.

    Args:
        text: What to say.
    """
    return Echo(text=text)


def make_key(caller: Caller, *, name: str) -> Count:
    """Write one row, so that a test can see whether it stayed.

    Args:
        name: Its name.
    """
    ApiKey.objects.issue(name=name, scopes=["read"])
    if faults:
        raise faults.pop(0)
    return Count(count=ApiKey.objects.filter(name=name).count())


def count_keys(caller: Caller, *, name: str) -> Count:
    """Read rows; a prepared fault comes first.

    Args:
        name: Their name.
    """
    if faults:
        raise faults.pop(0)
    return Count(count=ApiKey.objects.filter(name=name).count())


def fail_with(caller: Caller, *, code: str) -> Count:
    """Fail with a code of the table.

    Args:
        code: Which.
    """
    raise DevFlowError(ErrorCode(code), f"failed with {code}", retry_after_ms=1500 if code == "rate_limited" else None)


def write_and_fail(caller: Caller, *, name: str) -> Count:
    """Write a row, then fail."""
    ApiKey.objects.issue(name=name, scopes=["read"])
    raise DevFlowError(ErrorCode.CONFLICT, "changed my mind")


def break_it(caller: Caller) -> Count:
    """Raise what nobody expected."""
    raise ZeroDivisionError("secret detail")


def lie(caller: Caller) -> Count:
    """Answer something the output schema does not allow."""
    return Echo(text="no number")  # type: ignore[return-value]  # the lie under test


async def linger(caller: Caller) -> Count:
    """Wait longer than allowed."""
    await asyncio.Event().wait()
    return Count(count=0)


def write_slowly(caller: Caller, *, name: str) -> Count:
    """Write a row and wait for the test before returning."""
    ApiKey.objects.issue(name=name, scopes=["read"])
    release.wait(10)
    return Count(count=1)


def find_nothing(caller: Caller) -> Count | Nothing:
    """Have nothing to give."""
    return Nothing(reason="none_ready")


def run_outside(caller: Caller) -> Count:
    """Do something outside."""
    return Count(count=1)


def _declare(function: object, *, effect: Effect = Effect.READ_ONLY, deadline: float = 5.0) -> Tool:
    name = f"test_{function.__name__}"  # type: ignore[attr-defined]  # a function
    return Tool.from_function(
        function,  # type: ignore[arg-type]  # a function
        name=name,
        intent=Intent.QUERY,
        effect=effect,
        toolset="gateway",
        needs_project=False,
        deadline=deadline,
    )


W = Effect.MUTATING
TOOLS = [
    _declare(echo),
    _declare(make_key, effect=W),
    _declare(count_keys),
    _declare(fail_with),
    _declare(write_and_fail, effect=W),
    _declare(break_it),
    _declare(lie),
    _declare(linger, deadline=0.05),
    _declare(write_slowly, effect=W, deadline=0.1),
    _declare(find_nothing),
    _declare(run_outside, effect=Effect.EXTERNAL_EXEC),
]


def database_away() -> OperationalError:
    return OperationalError("server closed the connection unexpectedly")
