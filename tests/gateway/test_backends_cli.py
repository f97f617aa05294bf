"""`devflow backend`: clear words, exit codes, and no secret on the screen."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from devflow import cli
from mcpbridge.gateway import backends
from mcpbridge.models import Backend
from tests.running import devflow

pytestmark = pytest.mark.django_db

SMALL = str(Path(__file__).parents[1] / "fakes" / "small_backend.py")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command in this process, on the test's database: exit code, standard output, standard error."""
    monkeypatch.setattr("devflow.cli.provision.migrate", lambda: None)  # the test's database is ready

    def command(*arguments: str) -> tuple[int, str, str]:
        try:
            code = cli.main(["backend", *arguments])
        except SystemExit as exc:  # argparse
            code = int(exc.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return command


def test_the_whole_command_in_an_empty_data_directory(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = devflow(home, "backend", "add", "small", "--command", sys.executable, "--args", SMALL)
    assert done.returncode == 0, done.stderr
    assert "small is registered" in done.stdout and "echo" in done.stdout
    listed = json.loads(devflow(home, "backend", "list", "--json").stdout)
    assert [(row["id"], row["status"]) for row in listed] == [("small", "up")]
    found = json.loads(devflow(home, "doctor", "--json").stdout)["findings"]
    assert any(item["name"] == "backend" and item["ok"] and "small" in item["detail"] for item in found)


def test_a_backend_is_added_tested_listed_and_removed(run: Any) -> None:
    code, out, _ = run("add", "small", "--env", "TOKEN=hunter2-and-more", "--command", sys.executable, "--args", SMALL)
    assert code == 0 and "hunter2" not in out
    assert backends.secrets_of(Backend.objects.get(), "env") == {"TOKEN": "hunter2-and-more"}
    code, out, _ = run("test", "small", "--json")
    assert code == 0 and json.loads(out)["ok"]
    code, out, _ = run("list")
    assert code == 0 and "small" in out and "up" in out
    assert run("remove", "small")[0] == 0
    assert run("remove", "small")[0] == 1
    assert "No backend is registered" in run("list")[1]


def test_a_backend_that_does_not_answer_is_kept_and_said(run: Any) -> None:
    code, out, err = run("add", "gone", "--command", "/no/such/program")
    assert code == 1 and "is registered" in out and "does not answer" in err
    assert Backend.objects.get().status == "down"
    assert run("test", "gone")[0] == 1
    assert run("add", "later", "--command", "/no/such/program", "--no-test")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "a b", "--command", "x"), "A-Z a-z 0-9"),
        (("add", "x"), "command"),
        (("add", "x", "--transport", "http", "--url", "ftp://x"), "http://"),
        (("add", "x", "--command", "x", "--env", "hunter2"), "NAME=VALUE"),
        (("add", "x", "--command", "x", "--root", "relative"), "absolute"),
        (("add", "x", "--transport", "carrier-pigeon"), "invalid choice"),
        ((), "required"),
    ],
)
def test_a_command_that_cannot_be_says_why_and_exits_with_2(run: Any, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = run(*arguments)
    assert code == 2 and words in err and "hunter2" not in out + err
    assert not Backend.objects.exists()


def test_a_file_is_checked_and_imported(run: Any, tmp_path: Path) -> None:
    file = tmp_path / ".mcp.json"
    file.write_text('{"mcpServers": {"good": {"command": "npx", "args": ["thing"]}, "bad": {}}}')
    code, out, _ = run("import", str(file), "--check")
    assert code == 1 and "new       good" in out and "skipped   bad" in out and "not pinned" in out
    assert "Nothing was written" in out and not Backend.objects.exists()
    run("import", str(file))
    code, out, _ = run("import", str(file), "--json")
    assert [entry["what"] for entry in json.loads(out)] == ["same", "skip"]
    assert run("import", str(tmp_path / "none.json"))[0] == 1
    file.write_text("no json")
    assert run("import", str(file))[0] == 1
