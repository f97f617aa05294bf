import asyncio
import threading

from devflow.drain import Drain


def test_draining_is_seen_by_threads_callbacks_and_loops() -> None:
    drain, heard = Drain(), threading.Event()
    drain.subscribe(heard.set)

    async def stream() -> str:
        waiting = asyncio.create_task(drain.wait_async())
        await asyncio.sleep(0)
        threading.Thread(target=drain.set).start()
        await asyncio.wait_for(waiting, 5)
        return "ended"

    assert not drain.is_set()
    assert asyncio.run(stream()) == "ended"
    assert drain.is_set() and drain.wait(0) and heard.is_set()


def test_who_comes_late_is_told_at_once_and_who_left_is_not_told() -> None:
    drain, calls = Drain(), list[str]()
    leave = drain.subscribe(lambda: calls.append("left"))
    leave()
    drain.set()
    drain.subscribe(lambda: calls.append("late"))
    drain.set()
    assert calls == ["late"]
    asyncio.run(asyncio.wait_for(drain.wait_async(), 5))
