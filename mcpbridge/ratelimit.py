"""The budget of a key: at most so many calls in any 60 s, over all transports and workers together."""

from functools import lru_cache
from math import ceil
from time import time

from limits import RateLimitItemPerMinute
from limits.storage import storage_from_string
from limits.strategies import MovingWindowRateLimiter
from redis import RedisError

from devflow import config
from devflow.errors import DevFlowError, ErrorCode
from mcpbridge.access import Identity
from mcpbridge.threads import run_blocking
from mcpbridge.tooling import Caller

NEAR = 0.1
"""The part of a budget that is nearly nothing."""


@lru_cache(maxsize=1)
def _limiter() -> MovingWindowRateLimiter:
    url = config.current().redis_url
    return MovingWindowRateLimiter(storage_from_string(url or "memory://"))


@lru_cache(maxsize=1024)
def _window(calls: int) -> RateLimitItemPerMinute:
    return RateLimitItemPerMinute(calls, namespace="devflow-calls")


def allowance(rate_per_minute: int | None) -> int:
    """Calls a key may make in any 60 s; 0 means no limit. Every limited key has the burst on top of its rate."""
    limits = config.current().mcp_gateway.rate_limit
    if not limits.enabled or rate_per_minute == 0:
        return 0
    return (rate_per_minute or limits.requests_per_minute) + limits.burst


def _take(key_id: int, calls: int, cost: int) -> None:
    limiter, window, identifier = _limiter(), _window(calls), str(key_id)
    if limiter.hit(window, identifier, cost=cost):
        return
    if cost > calls:
        raise DevFlowError(
            ErrorCode.RATE_LIMITED,
            f"A batch of {cost} is more than this key may call in a minute ({calls}).",
            suggestion="Send smaller batches.",
            retry_after_ms=60_000,
        )
    reset = limiter.get_window_stats(window, identifier).reset_time
    wait = max(1, ceil((reset - time()) * 1000))
    raise DevFlowError(
        ErrorCode.RATE_LIMITED,
        f"This key may make {calls} calls in 60 s; the next one is free in {ceil(wait / 1000)} s.",
        retry_after_ms=wait,
    )


def _nearly_spent(key_id: int, calls: int) -> int | None:
    reset, left = _limiter().get_window_stats(_window(calls), str(key_id))
    return max(1, ceil((reset - time()) * 1000)) if left <= calls * NEAR else None


async def nearly_spent(caller: Caller) -> int | None:
    """Milliseconds until a key gets a call back, where a tenth of its budget or less is left; else None."""
    calls = allowance(caller.rate_per_minute)
    if calls == 0:
        return None
    if not config.current().redis_url:
        return _nearly_spent(caller.scope.key_id, calls)
    try:
        return await run_blocking(_nearly_spent, caller.scope.key_id, calls)
    except (RedisError, OSError):
        return None  # the call was made; how many are left is worth no failure


async def spend(caller: Caller | Identity, cost: int = 1) -> None:
    """Take `cost` calls from the budget of a key, all or none. Raises `rate_limited` with the time to wait."""
    calls = allowance(caller.rate_per_minute)
    if calls == 0 or cost == 0:
        return
    if config.current().redis_url:
        try:
            await run_blocking(_take, caller.scope.key_id, calls, cost)
        except (RedisError, OSError) as exc:
            raise DevFlowError(ErrorCode.UNAVAILABLE, "The store of rate limits is away.", retry_after_ms=1000) from exc
    else:
        _take(caller.scope.key_id, calls, cost)
