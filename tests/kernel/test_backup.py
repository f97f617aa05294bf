import io
import json
import stat
import tarfile
import threading
from dataclasses import asdict
from pathlib import Path

import httpx
import psycopg
import pytest

from devflow import backup
from tests.conftest import StartServer
from tests.running import RunningServer, create_key, devflow


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def saved(home: Path, tmp_path: Path) -> Path:
    """A backup of a data directory with a key and an upload."""
    create_key(home, "saved")
    (home / "uploads" / "deep").mkdir(parents=True)
    (home / "uploads" / "deep" / "notes.txt").write_text("kept")
    path = tmp_path / "saved.tar.gz"
    done = devflow(home, "backup", str(path))
    assert done.returncode == 0, done.stderr
    return path


def manifest(path: Path) -> backup.Manifest:
    with tarfile.open(path) as archive:
        file = archive.extractfile(backup.MANIFEST)
        assert file is not None
        return backup.Manifest(**json.load(file))


def rewritten(path: Path, into: Path, replace: dict[str, bytes]) -> Path:
    """A copy of an archive with some members' contents replaced."""
    with tarfile.open(path) as old, tarfile.open(into, "w:gz") as new:
        for member in old.getmembers():
            file = old.extractfile(member)
            assert file is not None
            content = replace.get(member.name, file.read())
            member.size = len(content)
            new.addfile(member, io.BytesIO(content))
    return into


def call_until(stopped: threading.Event, server: RunningServer) -> None:
    """Calls that each write a row of the audit log."""
    with httpx.Client(base_url=server.url, headers={"X-API-Key": server.key}) as client:
        while not stopped.is_set():
            client.post("/mcp/execute", json={"tool": "get_board", "args": {}, "request_id": "1"})


def test_a_backup_made_while_writing_restores_elsewhere_and_the_keys_work(
    start_server: StartServer, home: Path, tmp_path: Path
) -> None:
    server = start_server(home=home)
    stopped = threading.Event()
    writers = [threading.Thread(target=call_until, args=(stopped, server)) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        path = tmp_path / "live.tar.gz"
        done = devflow(home, "backup", str(path))
    finally:
        stopped.set()
        for writer in writers:
            writer.join(30)
    assert done.returncode == 0, done.stderr
    server.stop()

    elsewhere = tmp_path / "elsewhere"
    done = devflow(elsewhere, "restore", str(path))
    assert done.returncode == 0, done.stderr
    again = tmp_path / "again.tar.gz"
    assert devflow(elsewhere, "backup", str(again)).returncode == 0
    assert manifest(again).rows == manifest(path).rows
    assert manifest(again).files["secret_key"] == manifest(path).files["secret_key"]
    restored = start_server(home=elsewhere)
    assert httpx.get(f"{restored.url}/mcp/tools", headers={"X-API-Key": server.key}).status_code == 200


def test_uploads_and_the_secret_key_are_part_of_it_and_only_the_owner_can_read_it(saved: Path, tmp_path: Path) -> None:
    held = manifest(saved)
    assert {backup.SQLITE_FILE, "secret_key", "uploads/deep/notes.txt"} <= set(held.files)
    assert held.rows["mcpbridge_apikey"] == 1
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    target = tmp_path / "target"
    assert devflow(target, "restore", str(saved)).returncode == 0
    assert (target / "uploads" / "deep" / "notes.txt").read_text() == "kept"
    assert stat.S_IMODE((target / "secret_key").stat().st_mode) == 0o600


def test_restoring_over_data_needs_force(saved: Path, home: Path) -> None:
    create_key(home, "later")
    refused = devflow(home, "restore", str(saved))
    assert refused.returncode == 1
    assert "--force" in refused.stderr
    assert devflow(home, "restore", str(saved), "--force").returncode == 0
    path = saved.with_name("after.tar.gz")
    assert devflow(home, "backup", str(path)).returncode == 0
    assert manifest(path).rows["mcpbridge_apikey"] == 1


def test_a_served_data_directory_is_not_replaced(start_server: StartServer, saved: Path) -> None:
    server = start_server()
    refused = devflow(server.home, "restore", str(saved), "--force")
    assert refused.returncode == 1
    assert "stop the server" in refused.stderr


@pytest.mark.parametrize("damage", ["content", "no manifest", "not an archive", "truncated", "outside", "format"])
def test_a_damaged_archive_restores_nothing(saved: Path, tmp_path: Path, damage: str) -> None:
    bad = tmp_path / "bad.tar.gz"
    described = asdict(manifest(saved))
    if damage == "content":
        rewritten(saved, bad, {"uploads/deep/notes.txt": b"kepT"})
    elif damage == "no manifest":
        rewritten(saved, bad, {backup.MANIFEST: b"{}"})
    elif damage == "not an archive":
        bad.write_text("hello")
    elif damage == "truncated":
        bad.write_bytes(saved.read_bytes()[:-2000])
    elif damage == "outside":
        described["files"]["../outside"] = described["files"].pop("secret_key")
        rewritten(saved, bad, {backup.MANIFEST: json.dumps(described).encode()})
    else:
        rewritten(saved, bad, {backup.MANIFEST: json.dumps({**described, "format": 99}).encode()})
    target = tmp_path / "target"
    refused = devflow(target, "restore", str(bad))
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    assert {path.name for path in target.iterdir()} <= {"owner.lock"}


def test_a_backup_never_overwrites_a_file(saved: Path, home: Path) -> None:
    before = saved.read_bytes()
    refused = devflow(home, "backup", str(saved))
    assert refused.returncode == 1
    assert saved.read_bytes() == before


@pytest.mark.postgres
def test_postgresql_is_dumped_and_restored_into_an_empty_database(
    home: Path, tmp_path: Path, postgres_url: str, postgres_server: str
) -> None:
    env = {"DEVFLOW_DATABASE_URL": postgres_url}
    create_key(home, "kept", extra=env)
    path = tmp_path / "pg.tar.gz"
    done = devflow(home, "backup", str(path), extra=env)
    assert done.returncode == 0, done.stderr
    assert manifest(path).rows["mcpbridge_apikey"] == 1

    occupied = devflow(tmp_path / "b", "restore", str(path), extra=env)
    assert occupied.returncode == 1
    assert "--force" in occupied.stderr
    wrong_kind = devflow(tmp_path / "c", "restore", str(path))
    assert wrong_kind.returncode == 1
    assert "postgresql" in wrong_kind.stderr

    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS restored")
        connection.execute("CREATE DATABASE restored")
    target = {"DEVFLOW_DATABASE_URL": postgres_server.rpartition("/")[0] + "/restored"}
    done = devflow(tmp_path / "d", "restore", str(path), extra=target)
    assert done.returncode == 0, done.stderr
    assert devflow(tmp_path / "d", "restore", str(path), "--force", extra=target).returncode == 0
