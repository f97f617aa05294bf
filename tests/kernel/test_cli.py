import json
import os
import signal
import socket
import stat
from pathlib import Path

import httpx
import pytest

from devflow import owner
from tests.conftest import StartServer
from tests.running import create_key, devflow


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_a_key_is_printed_once_with_what_it_may_do(home: Path) -> None:
    made = create_key(home, "ci", "--scopes", "read,write", "--expires", "30", "--rate", "5")
    assert set(made) == {"key", "id", "name", "scopes", "project", "expires_at"}
    assert made["key"].startswith("dvf_")
    assert (made["name"], made["scopes"], made["project"]) == ("ci", ["read", "write"], None)
    assert made["expires_at"] is not None
    shown = devflow(home, "createkey", "for people")
    assert "dvf_" in shown.stdout and "not shown again" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["createkey", "x", "--scopes", "read,fly"], 2, "fly"),
        (["createkey", "x", "--scopes", ""], 2, "--scopes"),
        (["createkey", "x", "--project", "nowhere"], 1, "nowhere"),
        (["createkey", "x", "--expires", "0"], 2, "--expires"),
        (["createkey", "x", "--rate", "-1"], 2, "--rate"),
        (["createkey"], 2, "NAME"),
        (["up", "--server", "gunicorn"], 2, "--server"),
        (["up", "--workers", "2"], 2, "DEVFLOW_REDIS_URL"),
        (["up", "--workers", "2", "--server", "daphne"], 2, "daphne"),
        (["up", "--port", "70000"], 2, "mcp_gateway.port"),
        (["up", "--host", "203.0.113.77"], 2, "203.0.113.77"),
        (["worker"], 2, "DEVFLOW_REDIS_URL"),
        (["restore", "nowhere.tar.gz"], 1, "nowhere.tar.gz"),
        (["backup", "nowhere/at/all.tar.gz"], 1, "nowhere/at"),
        ([], 2, "COMMAND"),
        (["fly"], 2, "fly"),
    ],
)
def test_a_wrong_call_is_one_clear_complaint(home: Path, arguments: list[str], code: int, said: str) -> None:
    done = devflow(home, *arguments)
    assert done.returncode == code, done.stderr
    assert said.lower() in done.stderr.lower()
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [["up"], ["worker"], ["createkey", "x"], ["demo"], ["backup", "x"], ["mcp"]])
def test_a_wrong_setting_is_one_line_and_exit_code_2(home: Path, command: list[str]) -> None:
    done = devflow(home, *command, extra={"DEVFLOW_PROT": "1"})
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "DEVFLOW_PROT" in done.stderr


def test_an_unreachable_database_is_one_line_and_exit_code_1(home: Path) -> None:
    done = devflow(home, "createkey", "x", extra={"DEVFLOW_DATABASE_URL": "postgres://u@127.0.0.1:1/d"})
    assert done.returncode == 1
    assert "database" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_first_start_prints_everything_a_person_needs_and_the_second_no_secret(
    start_server: StartServer, home: Path
) -> None:
    server = start_server(home=home)
    banner = server.output
    for needed in (
        f"{server.url}/",
        f"{server.url}/admin/",
        "admin / ",
        "dvf_",
        "claude mcp add",
        '"url"',
        '"command"',
    ):
        assert needed in banner
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    server.stop()
    server.log.unlink()
    again = start_server(home=home)
    assert "claude mcp add" in again.output
    assert "dvf_" not in again.output and "admin / " not in again.output


def test_the_printed_login_opens_the_admin(start_server: StartServer) -> None:
    server = start_server(arguments=("--no-demo",))
    password = server.output.split("admin / ")[1].split()[0]
    with httpx.Client(base_url=server.url, follow_redirects=True) as client:
        page = client.get("/admin/login/")
        token = next(value for name, value in client.cookies.items() if "csrf" in name)
        form = {"username": "admin", "password": password, "csrfmiddlewaretoken": token, "next": "/admin/"}
        page = client.post("/admin/login/", data=form, headers={"Referer": f"{server.url}/admin/login/"})
    assert page.status_code == 200
    assert page.url.path == "/admin/"


@pytest.mark.parametrize("kind", ["uvicorn", "daphne"])
def test_a_server_publishes_itself_and_ends_cleanly(start_server: StartServer, kind: str) -> None:
    server = start_server(server=kind)
    published = owner.read_published(server.home)
    assert published is not None and published.pid == server.pid
    answer = httpx.get(f"{server.url}/mcp/tools", headers={"X-API-Key": published.key})
    assert answer.status_code == 200
    assert server.stop() == 0
    assert not (server.home / "owner.json").exists()
    assert not owner.is_owned(server.home)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_server_leaves_no_trace(start_server: StartServer, how: signal.Signals) -> None:
    server = start_server()
    assert server.stop(how) == 0
    assert "Traceback" not in server.output


def test_one_data_directory_is_served_once(start_server: StartServer) -> None:
    server = start_server()
    second = devflow(server.home, "up", "--port", "0")
    assert second.returncode == 1
    assert server.url in second.stderr


def test_a_busy_port_is_named_with_the_way_out(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = devflow(home, "up", "--port", str(port))
    assert done.returncode == 1
    assert str(port) in done.stderr and "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_two_instances_never_meet(start_server: StartServer) -> None:
    first, second = start_server(), start_server()
    answer = httpx.get(f"{second.url}/mcp/tools", headers={"X-API-Key": first.key})
    assert answer.status_code == 401


def test_the_doctor_finds_nothing_on_a_fresh_installation_that_runs(start_server: StartServer) -> None:
    server = start_server()
    done = devflow(server.home, "doctor", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0, report
    assert report["ok"] is True
    names = {finding["name"] for finding in report["findings"]}
    assert names >= {"python", "data", "config", "database", "migrations", "audit", "jobs", "owner"}


def test_the_doctor_names_what_is_wrong_and_its_fix(home: Path) -> None:
    home.mkdir(mode=0o755)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = devflow(
            home, "doctor", "--json", extra={"DEVFLOW_PORT": port, "DEVFLOW_REDIS_URL": "redis://127.0.0.1:1/0"}
        )
    assert done.returncode == 1
    wrong = {finding["name"]: finding["fix"] for finding in json.loads(done.stdout)["findings"] if not finding["ok"]}
    assert set(wrong) == {"data", "migrations", "redis", "jobs", "port"}
    assert all(wrong.values())
    assert "Traceback" not in done.stderr


def test_the_doctor_survives_a_configuration_nobody_can_read(home: Path) -> None:
    done = devflow(home, "doctor", extra={"DEVFLOW_CONFIG": "nowhere.yaml"})
    assert done.returncode == 1
    assert "nowhere.yaml" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.slow
def test_several_processes_serve_with_postgresql_and_redis(
    start_server: StartServer, postgres_url: str, redis_url: str
) -> None:
    scale = {"DEVFLOW_DATABASE_URL": postgres_url, "DEVFLOW_REDIS_URL": redis_url}
    server = start_server(workers=2, env=scale)
    with httpx.Client(base_url=server.url, headers={"X-API-Key": server.key}) as client:
        assert {client.get("/mcp/tools").status_code for _ in range(20)} == {200}
    assert (server.home / "metrics").is_dir()
    children = _children(server.pid)
    assert len(children) >= 2
    server.process.kill()
    server.process.wait()
    assert all(_ends(pid) for pid in children), "a server process outlived its killed supervisor"


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _ends(pid: int) -> bool:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    import select

    try:
        return bool(select.select([handle], [], [], 20)[0])
    finally:
        os.close(handle)
