"""What a child is started with, under which limits, and that nothing of it is left."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

from devflow import config
from devflow.errors import DevFlowError, ErrorCode
from mcpbridge.gateway import confining, ledger, processes
from mcpbridge.gateway.marks import CHILD_VARIABLE, Mark, environment_of, kill_marked, new_mark, start_ticks
from mcpbridge.gateway.processes import started
from mcpbridge.gateway.specs import BackendSpec
from mcpbridge.models import ChildProcess
from tests.gateway.faulty import arguments, nothing_is_left, open_files, spec_of, survivors, until
from tests.mcpbridge.conftest import in_thread
from tests.running import RunningServer

SHOW = """
import json, os, resource as r
limits = {name: r.getrlimit(getattr(r, f"RLIMIT_{name}")) for name in ("DATA", "CPU", "CORE", "NOFILE", "FSIZE")}
leads = os.getpgid(0) == os.getpid()
print(json.dumps({"env": dict(os.environ), "cwd": os.getcwd(), "leads": leads, "limits": limits}))
"""


def python(code: str, **fields: Any) -> BackendSpec:
    return BackendSpec(**{"id": "py", "transport": "stdio", "command": sys.executable, "args": ("-c", code), **fields})


async def printed(spec: BackendSpec, root: str | None = None) -> str:
    async with started(spec, root, kind="call") as child:
        assert child.process.stdout is not None
        return (await child.process.stdout.read()).decode()


async def test_a_child_knows_its_root_and_nothing_of_ours(gateway: None, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("DEVFLOW_SECRET_KEY", "ours")
    monkeypatch.setenv("OURS", "private")
    monkeypatch.setenv("GIVEN", "shared")
    spec = python(SHOW, env={"TOKEN": "${GIVEN}-1"}, inherit_env=("GIVEN",))
    seen = json.loads(await printed(spec, str(tmp_path)))
    assert seen["cwd"] == str(tmp_path)
    assert seen["env"]["TOKEN"] == "shared-1"
    assert seen["env"]["GIVEN"] == "shared"
    assert seen["env"]["PATH"] == os.environ["PATH"]
    assert [name for name in seen["env"] if name.startswith("DEVFLOW_")] == [CHILD_VARIABLE]
    assert "private" not in seen["env"].values()
    assert seen["leads"]


@pytest.mark.parametrize(("memory_mb", "memory"), [(4096, 4096 * 2**20), (2048, 2048 * 2**20), (0, -1)])
async def test_limits_hold_from_the_first_instruction(gateway: None, memory_mb: int, memory: int) -> None:
    limits = json.loads(await printed(python(SHOW, memory_mb=memory_mb)))["limits"]
    assert limits["DATA"] == [memory] * 2
    assert limits["CORE"] == [0, 0]
    assert limits["CPU"] == [confining.CPU_SECONDS] * 2
    assert limits["NOFILE"] == [confining.OPEN_FILES] * 2
    assert limits["FSIZE"] == [confining.FILE_MIB * 2**20] * 2


async def test_arguments_reach_the_program_as_they_are(gateway: None) -> None:
    args = (
        "-c",
        "import sys, json; print(json.dumps(sys.argv[1:]))",
        "a b",
        "$HOME",
        "`id`",
        "",
        '"',
        "'; exit 3",
        "ü",
    )
    assert json.loads(await printed(python("", args=args))) == list(args[2:])


@pytest.mark.parametrize("command", ["no-such-program-anywhere", "/no/such/program"])
async def test_a_program_that_is_not_there_is_unavailable_at_once(gateway: None, command: str) -> None:
    from mcpbridge.gateway.sessions import Session

    session = Session(python("", command=command), None)
    with pytest.raises(DevFlowError) as failed:
        await session.client()
    await session.close()
    assert failed.value.code is ErrorCode.UNAVAILABLE
    assert command in failed.value.message
    assert await nothing_is_left(), survivors()


async def test_a_missing_variable_is_named(gateway: None) -> None:
    with pytest.raises(DevFlowError, match="NOT_SET_ANYWHERE"):
        await printed(python("", env={"A": "${NOT_SET_ANYWHERE}"}))


async def test_ending_reaches_what_ignores_term_and_what_left_the_group(gateway: None) -> None:
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork() == 0: time.sleep(600)\n"
        "        os._exit(0)\n"
        "print('ready', flush=True); time.sleep(600)\n"
    )
    await printed(python(""))  # what is opened once for all
    files = open_files()
    async with started(python(code), None, kind="call") as child:
        assert child.process.stdout is not None
        await child.process.stdout.readline()
        assert await until(lambda: len(survivors()) == 4)
    assert survivors() == []
    assert await until(lambda: open_files() <= files)


async def test_a_child_is_ended_when_its_start_is_given_up(gateway: None) -> None:
    async def hold() -> None:
        async with started(python("import time; time.sleep(600)"), None, kind="call"):
            await asyncio.sleep(600)

    for wait in (0, 0.001, 0.01, 0.1):
        task = asyncio.create_task(hold())
        await asyncio.sleep(wait)
        task.cancel()
        await asyncio.wait({task})
    await processes.all_ended()
    await asyncio.to_thread(in_thread, ledger.reap)  # one that was on its way when it was given up
    assert await nothing_is_left(), survivors()


def sandbox_works() -> bool:
    bwrap = shutil.which("bwrap")
    return bwrap is not None and subprocess.run([bwrap, *confining._SANDBOX, "true"], check=False).returncode == 0


needs_bubblewrap = pytest.mark.skipif(not sandbox_works(), reason="bubblewrap is missing or may not unshare here")


@needs_bubblewrap
async def test_a_sandboxed_child_sees_no_process_but_its_own(gateway: None, tmp_path: Path) -> None:
    code = "import os; print(os.getcwd(), sorted(int(n) for n in os.listdir('/proc') if n.isdigit()))"
    cwd, _, pids = (await printed(python(code, sandbox=True), str(tmp_path))).partition(" ")
    assert cwd == str(tmp_path)
    assert os.getpid() not in json.loads(pids)
    assert len(json.loads(pids)) <= 3


@needs_bubblewrap
async def test_a_sandboxed_child_cannot_escape_even_without_its_mark(gateway: None) -> None:
    code = (
        "import os, subprocess, time\n"
        "subprocess.Popen(['env', '-i', 'sleep', '4321'], start_new_session=True)\n"
        "print('ready', flush=True); time.sleep(600)\n"
    )

    def sleeping() -> bool:
        return any(b"4321" in _command(path) for path in Path("/proc").iterdir() if path.name.isdigit())

    async with started(python(code, sandbox=True), None, kind="call") as child:
        assert child.process.stdout is not None
        await child.process.stdout.readline()
        assert await until(sleeping)
    assert await until(lambda: not sleeping())


def _command(path: Path) -> bytes:
    try:
        return (path / "cmdline").read_bytes()
    except OSError:
        return b""


async def test_a_sandbox_without_bubblewrap_says_what_is_missing(gateway: None, monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    with pytest.raises(DevFlowError, match="apt-get install bubblewrap") as failed:
        await printed(python("", sandbox=True))
    assert failed.value.code is ErrorCode.UNAVAILABLE


def test_a_mark_says_whose_a_child_is(monkeypatch: Any) -> None:
    monkeypatch.delenv(CHILD_VARIABLE, raising=False)
    mark = new_mark("child")
    assert Mark.parse(str(mark)) == mark
    assert mark.is_of_this_process
    assert mark.owner_is_alive
    monkeypatch.setenv(CHILD_VARIABLE, "above.1.2.3")
    assert environment_of(mark) == {CHILD_VARIABLE: f"above.1.2.3 {mark}"}
    for text in ("", "a.b", "a.b.c.d", "a.1.2.3.4"):
        assert Mark.parse(text) is None


# -- the ledger and the reaper --


async def test_a_child_has_a_row_while_it_lives(gateway: None) -> None:
    def rows() -> list[ChildProcess]:
        return in_thread(lambda: list(ChildProcess.objects.all()))

    async with started(spec_of("healthy"), None, kind="session") as child:
        await ledger.written()
        (row,) = await asyncio.to_thread(rows)
        assert (row.pid, row.kind, row.owner_pid) == (child.process.pid, "session", os.getpid())
        assert row.started_ticks == start_ticks(row.pid)
        assert await asyncio.to_thread(in_thread, ledger.reap) == []
        assert len(await asyncio.to_thread(rows)) == 1
    await ledger.written()
    assert await asyncio.to_thread(rows) == []


async def test_a_child_that_ends_at_once_leaves_no_row(gateway: None) -> None:
    await printed(python("print(1)"))
    await ledger.written()
    assert await asyncio.to_thread(in_thread, ChildProcess.objects.count) == 0


def sleeper(mark: Mark) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["sleep", "600"], env={CHILD_VARIABLE: str(mark)}, start_new_session=True)


def a_dead_pid() -> tuple[int, int]:
    """A process that has ended: its pid and when it started."""
    process = subprocess.Popen(["sleep", "600"])
    ticks = start_ticks(process.pid)
    process.kill()
    process.wait()
    assert ticks is not None
    return process.pid, ticks


@pytest.mark.django_db(transaction=True)
def test_the_reaper_ends_what_a_dead_owner_left_and_nothing_else() -> None:
    pid, ticks = a_dead_pid()
    mine = new_mark("x")
    other = subprocess.Popen(["sleep", "600"])
    owner_ticks = start_ticks(other.pid)
    assert owner_ticks is not None
    theirs = {
        "left by a dead owner": sleeper(Mark(mine.installation, pid, ticks, uuid.uuid4().hex)),
        "whose owner's pid came again": sleeper(Mark(mine.installation, other.pid, owner_ticks - 1, uuid.uuid4().hex)),
        "nobody here knows": sleeper(Mark(mine.installation, mine.owner_pid, mine.owner_ticks, uuid.uuid4().hex)),
        "of a live worker": sleeper(Mark(mine.installation, other.pid, owner_ticks, uuid.uuid4().hex)),
        "of another installation": sleeper(Mark("0" * 16, pid, ticks, uuid.uuid4().hex)),
    }
    try:
        ended = ledger.reap()
        assert set(ended) == {process.pid for process in list(theirs.values())[:3]}
        for name in list(theirs)[:3]:
            assert theirs[name].wait(5) == -9, name
        for name in list(theirs)[3:]:
            assert theirs[name].poll() is None, name
        assert ledger.reap() == []
    finally:
        for process in (*theirs.values(), other):
            process.kill()
            process.wait()


@pytest.mark.django_db(transaction=True)
def test_a_row_finds_a_child_that_wiped_its_environment_unless_its_pid_came_again() -> None:
    pid, ticks = a_dead_pid()
    processes = [subprocess.Popen(["sleep", "600"], env={}, start_new_session=True) for _ in range(2)]
    try:
        for number, process in enumerate(processes):
            born = start_ticks(process.pid)
            assert born is not None
            ChildProcess.objects.create(
                child_id=uuid.uuid4().hex,
                kind="session",
                host=ledger._host(),
                pid=process.pid,
                started_ticks=born - number,
                owner_pid=pid,
                owner_ticks=ticks,
            )
        assert ledger.reap() == [processes[0].pid]
        assert processes[0].wait(5) == -9
        assert processes[1].poll() is None
        assert not ChildProcess.objects.exists()
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.django_db(transaction=True)
def test_files_given_to_children_of_dead_owners_are_removed() -> None:
    pid, ticks = a_dead_pid()
    mine = new_mark("x")
    left, held = (ledger.directory_of(mark) for mark in (Mark(mine.installation, pid, ticks, "a"), mine))
    for directory in (left, held):
        directory.mkdir(parents=True)
        (directory / ".mcp.json").write_text("{}")
    ledger.reap()
    assert not left.exists()
    assert held.exists()
    shutil.rmtree(config.home() / "children")


SETUP = """
import asyncio, sys
from mcpbridge.gateway import catalog, discovery
from mcpbridge.models import Backend
row = Backend.objects.create(backend_id="stubborn", transport="stdio", command=sys.executable, args={args!r},
                             inherit_env=["STAYS_AT"])
found = asyncio.run(discovery.refresh(catalog.backend_spec(row)))
assert not isinstance(found, Exception), found
"""


@pytest.mark.slow
def test_a_killed_server_leaves_nothing_after_the_next_start(start_server: Any, tmp_path: Path) -> None:
    home = tmp_path / "home"
    env = {"STAYS_AT": str(home)}

    def alive() -> list[int]:
        needle = f"STAYS_AT={home}".encode()
        found = [path for path in Path("/proc").iterdir() if path.name.isdigit() and _has(path, needle)]
        return [int(path.name) for path in found if b"fault_backend" in _command(path)]

    def call(server: RunningServer) -> dict[str, Any]:
        answer = httpx.post(
            f"{server.url}/mcp/gateway",
            json={"intent": "QUERY", "action": "stubborn.echo", "constraints": {"timeout_ms": 10_000}},
            headers={"X-API-Key": server.key, "X-Agent-Id": "a"},
            timeout=30,
        )
        found: dict[str, Any] = answer.json()
        return found

    first: RunningServer = start_server(home=home, env=env)
    first.run_python(SETUP.format(args=arguments("stubborn")))
    answer = call(first)
    assert answer["ok"], answer
    left = alive()
    assert len(left) == 2
    first.kill()
    assert alive() == left
    second: RunningServer = start_server(home=home, env=env)
    end = time.monotonic() + 10
    while set(left) & set(alive()) and time.monotonic() < end:
        time.sleep(0.05)
    assert not set(left) & set(alive())
    answer = call(second)
    assert answer["ok"], answer
    assert second.stop() == 0
    assert alive() == []


def _has(path: Path, needle: bytes) -> bool:
    try:
        return needle in (path / "environ").read_bytes()
    except OSError:
        return False


def test_killing_by_mark_gives_up_in_time_on_what_cannot_be_killed() -> None:
    assert kill_marked(lambda mark: False, seconds=0) == []
