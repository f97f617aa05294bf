"""Files of other clients: every kind is read, previewed, imported once, and a bad entry stops only itself."""

import json
from typing import Any

import pytest

from devflow.actors import person
from devflow.errors import DevFlowError
from mcpbridge.gateway import backends, importing
from mcpbridge.models import Backend

pytestmark = pytest.mark.django_db

BOSS = person(user_id=1, name="boss", tool="tests")


def came(text: str | dict[str, Any], *, write: bool = True) -> dict[str, importing.Entry]:
    text = text if isinstance(text, str) else json.dumps(text)
    return {entry.id: entry for entry in importing.bring_in(text, by=BOSS if write else None)}


MCP_JSON = {
    "mcpServers": {
        "files": {"command": "npx", "args": ["-y", "server-filesystem@1.0.0", "/srv"], "env": {"A": "${env:TOKEN}"}},
        "github": {"type": "http", "url": "https://host/mcp", "headers": {"Authorization": "Bearer ${TOKEN:-none}"}},
        "old": {"type": "sse", "url": "https://host/sse", "disabled": True},
    }
}


def test_an_mcp_json_is_previewed_then_imported_then_the_same() -> None:
    assert {entry.what for entry in came(MCP_JSON, write=False).values()} == {"create"}
    assert not Backend.objects.exists()
    assert {entry.what for entry in came(MCP_JSON).values()} == {"create"}
    rows = {row.backend_id: row for row in Backend.objects.all()}
    assert (rows["files"].transport, rows["files"].command) == ("stdio", "npx")
    assert (rows["github"].transport, rows["old"].is_enabled) == ("http", False)
    assert backends.secrets_of(rows["files"], "env") == {"A": "${TOKEN}"}
    assert backends.secrets_of(rows["github"], "headers") == {"Authorization": "Bearer ${TOKEN}"}
    assert {entry.what for entry in came(MCP_JSON).values()} == {"same"}
    assert Backend.objects.count() == 3


def test_a_changed_entry_says_what_changes_and_drops_what_is_gone() -> None:
    came(MCP_JSON)
    changed = {"mcpServers": {"files": {"command": "npx", "args": ["-y", "server-filesystem@2.0.0"], "env": {}}}}
    entry = came(changed, write=False)["files"]
    assert (entry.what, entry.changes) == ("change", ["args", "env"])
    came(changed)
    row = Backend.objects.get(backend_id="files")
    assert row.args[-1] == "server-filesystem@2.0.0"
    assert backends.secret_names(row, "env") == []
    came({"mcpServers": {"files": {"url": "http://127.0.0.1:1/mcp"}}})
    row.refresh_from_db()
    assert (row.transport, row.command, row.args) == ("http", "", [])


@pytest.mark.parametrize("wrapped", [False, True])
def test_agentify_configurations_are_read(wrapped: bool) -> None:
    inner = {
        "backends": [
            {"id": "serena", "displayName": "Serena", "type": "stdio", "command": "uvx", "args": ["serena==1.0"]},
            {"id": "a", "type": "stdio", "command": "a", "env": {"K": "v"}},
        ],
        "OPENAI_API_KEY": "sk-not-read",
    }
    came({"initializationOptions": inner} if wrapped else inner)
    row = Backend.objects.get(backend_id="serena")
    assert (row.display_name, row.command) == ("Serena", "uvx")
    assert Backend.objects.count() == 2


def test_a_file_of_vs_code_with_comments_is_read() -> None:
    text = """{
      // ours
      "servers": {"web": {"type": "http", "url": "https://host/mcp", /* why */ },},
      "inputs": [],
    }"""
    assert came(text)["web"].what == "create"
    assert came({"mcp": {"servers": {"two": {"command": "x"}}}})["two"].what == "create"


def test_a_bad_entry_is_named_and_the_good_ones_are_imported() -> None:
    found = came(
        {
            "mcpServers": {
                "good": {"command": "x"},
                "bad id": {"command": "x"},
                "list": ["x"],
                "no-command": {},
                "ftp": {"type": "ftp", "url": "ftp://x"},
                "loads": {"url": "file:///x"},
                "odd": {"command": "x", "shell": True},
                "ours": {"command": "x", "env": {"DEVFLOW_SECRET_KEY": "x"}},
            }
        }
    )
    assert [row.backend_id for row in Backend.objects.all()] == ["good"]
    skipped = {name: entry.why for name, entry in found.items() if entry.what == "skip"}
    assert len(skipped) == 7 and all(skipped.values())
    assert "shell" in skipped["odd"] and "command" in skipped["no-command"]


def test_an_id_that_comes_twice_counts_once() -> None:
    found = importing.bring_in(
        json.dumps({"backends": [{"id": "a", "command": "x"}, {"id": "a", "command": "y"}]}), by=BOSS
    )
    assert [entry.what for entry in found] == ["create", "skip"]
    assert Backend.objects.get().command == "x"


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "null", '"x"', "{}", '{"mcpServers": {}}', '{"mcpServers": []}', "[" * 100_000, "{} {}"]
)
def test_a_file_without_servers_is_refused_as_a_whole(text: str) -> None:
    with pytest.raises(DevFlowError) as caught:
        came(text)
    assert caught.value.code == "invalid_input" and "file" in caught.value.details


def test_a_file_that_is_too_large_is_not_read() -> None:
    with pytest.raises(DevFlowError):
        came(" " * (importing.MAX_CHARACTERS + 1))
    with pytest.raises(DevFlowError):
        came({"mcpServers": {f"s{number}": {"command": "x"} for number in range(201)}})
