"""What a backend was given is in no error: not its variables, not its headers, not a piece of one."""

import sys

import pytest

from devflow.errors import DevFlowError
from mcpbridge.gateway.conversing import Session
from mcpbridge.gateway.specs import BackendSpec, struck_out

TOKEN = "ghp_0123456789abcdefghij"  # nobody's


async def complaint_of(spec: BackendSpec) -> str:
    """Why a backend cannot be opened."""
    session = Session(spec, None)
    try:
        with pytest.raises(DevFlowError) as refused:
            await session.client()
    finally:
        await session.close()
    return refused.value.message


def dying(script: str, **fields: object) -> BackendSpec:
    """A process that says something on standard error and ends."""
    args = ("-c", f"import os, sys; sys.stderr.write({script}); sys.exit(3)")
    return BackendSpec(id="x", transport="stdio", command=sys.executable, args=args, **fields)  # type: ignore[arg-type]  # any field


async def test_last_words_do_not_repeat_a_variable_that_was_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    said = await complaint_of(dying("'bad ' + os.environ['GITHUB_TOKEN']", inherit_env=("GITHUB_TOKEN",)))
    assert "It said: bad …" in said
    assert TOKEN not in said


async def test_last_words_that_are_cut_in_the_middle_of_a_secret_show_none_of_it() -> None:
    said = await complaint_of(dying("os.environ['TOKEN'] + 'z' * 990", env={"TOKEN": TOKEN}))
    assert "zzz" in said
    assert TOKEN[-5:] not in said


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_header_that_cannot_be_sent_is_not_repeated(monkeypatch: pytest.MonkeyPatch, transport: str) -> None:
    monkeypatch.setenv("FROM_HERE", f"{TOKEN}\n")  # as files of secrets end
    headers = {"Authorization": "Bearer ${FROM_HERE}"}
    said = await complaint_of(BackendSpec(id="x", transport=transport, url="http://127.0.0.1:9/mcp", headers=headers))
    assert TOKEN not in said


def test_the_longest_secret_is_struck_out_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    env = {"A": TOKEN, "B": f"{TOKEN}-and-more", "C": "short", "D": "${NOT_SET}"}
    spec = BackendSpec(id="x", transport="stdio", env=env, headers={"Authorization": "Bearer of-the-key"})
    assert struck_out(f"{TOKEN}-and-more, {TOKEN}, of-the-key, short", spec.secrets) == "…, …, …, short"
