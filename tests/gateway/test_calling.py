"""What happens round a call: activation, pre-validation, impact, affected files, retries, cancellation, progress."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcpbridge import dispatcher
from mcpbridge.gateway import beforehand
from mcpbridge.gateway.catalog import catalog
from mcpbridge.gateway.sessions import pool
from mcpbridge.models import Action, Backend
from mcpbridge.tooling import Caller
from tests.gateway.conftest import Execute, children_carrying, register
from tests.mcpbridge.conftest import in_thread


def change(action: str, **fields: Any) -> None:
    def write() -> None:
        row = Action.objects.get(name=action)
        for name, value in fields.items():
            setattr(row, name, value)
        row.save()

    in_thread(write)
    catalog.forget()


@pytest.fixture
async def rooted(gateway: None, tmp_path: Path) -> tuple[Backend, Path]:
    """A backend that may work in a directory of the test's."""
    return await register(allowed_roots=[str(tmp_path)]), tmp_path


async def test_sessions_are_never_shared_between_callers_or_roots(
    rooted: tuple[Backend, Path], make_caller: Callable[..., Caller], execute: Execute
) -> None:
    _, root = rooted
    (root / "sub").mkdir()
    one, two = make_caller(agent="one"), make_caller(agent="two")

    async def count(by: Caller, **context: Any) -> int:
        answer = await execute(by=by, intent="QUERY", action="small.count", context=context)
        found: int = answer["result"]["data"]["result"]
        return found

    assert [await count(one), await count(one), await count(two), await count(one)] == [1, 2, 1, 3]
    assert await count(one, project_root=str(root)) == 1
    assert await count(one, project_root=str(root / "sub")) == 1
    assert await count(one) == 4


async def test_a_process_is_given_its_own_secrets_and_nothing_of_ours(
    gateway: None, execute: Execute, monkeypatch: Any, tmp_path: Path
) -> None:
    from devflow.sealing import seal
    from mcpbridge.gateway.catalog import SEALED

    monkeypatch.setenv("FROM_HERE", "hidden")
    monkeypatch.setenv("DEVFLOW_SECRET_KEY", "ours")
    sealed = seal(json.dumps({"TOKEN": "${FROM_HERE}!"}), purpose=SEALED)
    await register(sealed_env=sealed, allowed_roots=[str(tmp_path)])
    answer = await execute(intent="QUERY", action="small.whoami", context={"project_root": str(tmp_path)})
    data = answer["result"]["data"]
    assert (data["token"], data["cwd"]) == ("hidden!", str(tmp_path))
    environ = Path(f"/proc/{data['pid']}/environ").read_bytes()
    assert b"DEVFLOW_SECRET_KEY" not in environ and b"FROM_HERE" not in environ
    assert b"DEVFLOW_CHILD=" in environ


async def test_a_variable_that_is_not_there_is_named(gateway: None, execute: Execute) -> None:
    from devflow.sealing import seal
    from mcpbridge.gateway.catalog import SEALED

    row = await register()
    sealed = seal(json.dumps({"TOKEN": "${NOWHERE_TO_BE_FOUND}"}), purpose=SEALED)
    in_thread(lambda: Backend.objects.filter(pk=row.pk).update(sealed_env=sealed, changed_at="2030-01-01T00:00:00Z"))
    catalog.forget()
    answer = await execute(intent="QUERY", action="small.whoami")
    assert answer["error"]["type"] == "MCP_ERROR" and "NOWHERE_TO_BE_FOUND" in answer["error"]["message"]


async def test_activation_runs_once_in_a_session_before_anything_else(
    rooted: tuple[Backend, Path], execute: Execute
) -> None:
    row, root = rooted
    activation = {"action": "write_file", "params": {"name": "activated.txt", "text": "{project_root}"}}
    later = "2030-01-01T00:00:00Z"
    in_thread(lambda: Backend.objects.filter(pk=row.pk).update(activation=activation, changed_at=later))
    catalog.forget()
    await execute(intent="QUERY", action="small.count")
    assert not list(root.iterdir()), "no root: nothing to activate"
    for _ in range(2):
        answer = await execute(intent="QUERY", action="small.count", context={"project_root": str(root)})
        assert answer["ok"], answer
        assert (root / "activated.txt").read_text(encoding="utf-8") == str(root)
        (root / "activated.txt").write_text(str(root), encoding="utf-8")
    (root / "activated.txt").unlink()
    await execute(intent="QUERY", action="small.count", context={"project_root": str(root)})
    assert not (root / "activated.txt").exists()


@pytest.mark.parametrize(
    ("references", "limit", "ok"), [("a\nb", 2, True), ("a\nb\nc", 2, False), ("[]", 0, True), ('["x"]', 0, False)]
)
async def test_the_impact_of_a_change_is_reported_and_may_be_limited(
    rooted: tuple[Backend, Path], execute: Execute, references: str, limit: int, ok: bool
) -> None:
    _, root = rooted
    asked = {"action": "echo", "params": {"text": "{text}"}, "limit": limit}
    change("write_file", references=asked)
    answer = await execute(
        intent="MODIFY",
        action="small.write_file",
        params={"name": "a", "text": references},
        context={"project_root": str(root)},
    )
    assert answer["ok"] is ok, answer
    if ok:
        count = 0 if references == "[]" else 2
        assert answer["meta"]["impact"] == {"references": count, "by": "echo"}
    else:
        assert answer["error"]["code"] == "precondition_failed"
        assert not (root / "a").exists(), "nothing was changed"


@pytest.mark.parametrize(("text", "ok"), [("found", True), ("[]", False), ("", False), ('{"symbols": []}', False)])
async def test_a_lookup_that_finds_nothing_stops_the_change(
    rooted: tuple[Backend, Path], execute: Execute, text: str, ok: bool
) -> None:
    _, root = rooted
    change("write_file", lookup={"action": "echo", "params": {"text": "{text}"}})
    answer = await execute(
        intent="MODIFY",
        action="small.write_file",
        params={"name": "a", "text": text},
        context={"project_root": str(root)},
    )
    assert answer["ok"] is ok, answer
    assert (root / "a").exists() is ok
    if not ok:
        assert (answer["error"]["type"], answer["error"]["code"]) == ("VALIDATION", "not_found")
        assert "small.echo" in answer["error"]["suggestion"]


async def test_affected_files_are_told_and_agents_whose_tasks_name_them_hear_of_it(
    rooted: tuple[Backend, Path], make_caller: Callable[..., Caller], execute: Execute, project: Any
) -> None:
    _, root = rooted
    writer, reader = make_caller(agent="writer"), make_caller(agent="reader")

    async def call(caller: Caller, tool: str, **arguments: Any) -> dict[str, Any]:
        outcome = await dispatcher.call(tool, arguments, caller)
        assert outcome.value is not None, outcome.error
        return outcome.value

    await call(writer, "create_task", description="Rework shop/cart.py.", phase_id=1)
    await call(reader, "claim_task", phase_id=1)
    (root / "shop").mkdir()
    answer = await execute(
        by=writer,
        intent="MODIFY",
        action="small.write_file",
        params={"name": "shop/cart.py", "text": "def total():\n    return 0\n"},
        context={"project_root": str(root)},
    )
    assert answer["result"]["affected_files"] == ["shop/cart.py"]
    assert answer["result"]["affected_symbols"] == ["shop/cart.py:total"]
    heard = (await call(reader, "get_messages"))["messages"]
    assert len(heard) == 1 and "shop/cart.py" in heard[0]["message"] and "small.write_file" in heard[0]["message"]
    assert (await call(writer, "get_messages"))["messages"] == []


async def test_a_viewer_cannot_change_things_through_a_backend(
    small: Backend, caller: Caller, execute: Execute, monkeypatch: Any
) -> None:
    from devflow import ports

    directory = ports.directory()
    monkeypatch.setattr(directory, "role_allows", lambda scope, project_id, *, write: not write)
    answer = await execute(intent="MODIFY", action="small.read_all")
    assert (answer["error"]["type"], answer["error"]["code"]) == ("PERMISSION", "forbidden")
    assert (await execute(intent="QUERY", action="small.count"))["ok"]


async def test_a_session_that_died_is_replaced_before_the_next_call(small: Backend, execute: Execute) -> None:
    first = await execute(intent="QUERY", action="small.whoami")
    import os
    import signal

    os.kill(first["result"]["data"]["pid"], signal.SIGKILL)
    second = await execute(intent="QUERY", action="small.whoami")
    assert second["ok"], second
    assert second["result"]["data"]["pid"] != first["result"]["data"]["pid"]


async def test_a_call_given_up_is_cancelled_and_leaves_the_session_usable(small: Backend, execute: Execute) -> None:
    await execute(intent="QUERY", action="small.count")
    waiting = asyncio.create_task(execute(intent="QUERY", action="small.wait", params={"seconds": 30}))
    await asyncio.sleep(0.3)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    answer = await execute(intent="QUERY", action="small.count", constraints={"timeout_ms": 2000})
    assert answer["result"]["data"] == {"result": 2}
    assert next(iter(pool._sessions.values())).at_work == 0


async def test_a_deadline_ends_the_call_in_time_and_says_whether_it_may_be_tried_again(
    small: Backend, execute: Execute
) -> None:
    for intent, recoverable in (("QUERY", True),):
        started = time.perf_counter()
        answer = await execute(
            intent=intent, action="small.wait", params={"seconds": 30}, constraints={"timeout_ms": 700}
        )
        assert time.perf_counter() - started < 1.7
        assert (answer["error"]["type"], answer["error"]["recoverable"]) == ("TIMEOUT", recoverable)


async def test_progress_reaches_the_caller(small: Backend, caller: Caller, execute: Execute) -> None:
    heard: list[tuple[float, float | None, str | None]] = []
    listening = caller.with_changes(
        report=lambda progress, total=None, message=None: heard.append((progress, total, message))
    )
    answer = await execute(by=listening, intent="QUERY", action="small.steps", params={"count": 3})
    assert answer["ok"]
    assert heard == [(1.0, 3.0, "step 1"), (2.0, 3.0, "step 2"), (3.0, 3.0, "step 3")]


async def test_nothing_is_left_when_the_pool_closes(small: Backend, execute: Execute) -> None:
    data = (await execute(intent="QUERY", action="small.whoami"))["result"]["data"]
    assert data["pid"] in children_carrying("DEVFLOW_CHILD=")
    await pool.close()
    assert data["pid"] not in children_carrying("DEVFLOW_CHILD=")


def test_templates_are_filled_by_value_and_skip_what_is_optional() -> None:
    assert beforehand.filled({"a": "{x}", "b": "plain"}, {"x": [1]}) == {"a": [1], "b": "plain"}
    assert beforehand.filled({"a": "{x}"}, {}) is None
    assert beforehand.filled({"a": "{x?}", "b": "{y}"}, {"y": 2}) == {"b": 2}
