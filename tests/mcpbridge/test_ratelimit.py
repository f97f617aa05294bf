"""One budget for a key over everything it calls."""

import asyncio

import pytest
import time_machine

from devflow.errors import DevFlowError
from mcpbridge import dispatcher, ratelimit
from tests.mcpbridge.conftest import MakeCaller


async def test_a_key_makes_its_rate_and_the_burst_and_no_more(make_caller: MakeCaller) -> None:
    caller = make_caller(rate=None)
    codes = [(await dispatcher.call("test_echo", {"text": "x"}, caller)).code for _ in range(125)]
    assert codes == ["ok"] * 120 + ["rate_limited"] * 5


async def test_parallel_bursts_do_not_slip_through(make_caller: MakeCaller) -> None:
    caller = make_caller(rate=10)
    outcomes = await asyncio.gather(*(dispatcher.call("test_echo", {"text": "x"}, caller) for _ in range(200)))
    assert sum(outcome.code == "ok" for outcome in outcomes) == 30


async def test_the_window_slides(make_caller: MakeCaller) -> None:
    caller = make_caller(rate=1)
    with time_machine.travel("2026-01-01T00:00:00Z", tick=False) as clock:
        for _ in range(21):
            await ratelimit.spend(caller)
        with pytest.raises(DevFlowError) as caught:
            await ratelimit.spend(caller)
        assert caught.value.retry_after_ms == 60_000
        clock.shift(59.9)
        with pytest.raises(DevFlowError):
            await ratelimit.spend(caller)
        clock.shift(0.2)
        await ratelimit.spend(caller)


async def test_a_batch_is_charged_whole_or_not_at_all(make_caller: MakeCaller) -> None:
    caller = make_caller(rate=10)
    await ratelimit.spend(caller, 25)
    with pytest.raises(DevFlowError):
        await ratelimit.spend(caller, 6)
    await ratelimit.spend(caller, 5)


async def test_a_batch_larger_than_the_whole_budget_says_so(make_caller: MakeCaller) -> None:
    with pytest.raises(DevFlowError, match="A batch of 31"):
        await ratelimit.spend(make_caller(rate=10), 31)


async def test_keys_have_budgets_of_their_own(make_caller: MakeCaller) -> None:
    one, two = make_caller(rate=1), make_caller(rate=1)
    await ratelimit.spend(one, 21)
    await ratelimit.spend(two, 21)


async def test_rate_zero_means_unlimited(make_caller: MakeCaller) -> None:
    caller = make_caller(rate=0)
    for _ in range(500):
        await ratelimit.spend(caller)


async def test_a_refused_call_says_when_to_come_back_and_runs_nothing(make_caller: MakeCaller) -> None:
    caller = make_caller(rate=1)
    await ratelimit.spend(caller, 21)
    outcome = await dispatcher.call("test_make_key", {"name": "limited"}, caller)
    assert outcome.error is not None
    assert outcome.code == "rate_limited"
    assert outcome.error.retry_after_ms is not None
    assert 0 < outcome.error.retry_after_ms <= 60_000
