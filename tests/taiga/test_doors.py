"""The agile tools through real doors: MCP in both eras, REST; and a server that does not offer them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from devflow.config import PROJECT_ROOT
from mcpbridge.access import keyring
from mcpbridge.audit import recorder
from mcpbridge.models import ApiKey
from tests.taiga.table import TOOLS
from tests.transports.site import Site, http_session
from workflow.services import projects


@pytest.fixture
def site(_served: Site, transactional_db: None) -> Iterator[Site]:
    keyring.forget()
    projects.create(slug="shop")
    _, key = ApiKey.objects.issue(name="doors", scopes=["read", "write"], rate_per_minute=0)
    yield replace(_served, key=key)
    recorder.stop()


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_mcp_clients_list_and_call_them_and_check_what_they_answer(site: Site, mode: str) -> None:
    async with http_session(site, mode=mode) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {f"taiga.{name}" for name in TOOLS} <= listed.keys()
        lost = await client.call_tool("taiga.create_epic", {"subject": "Lost"})
        assert lost.is_error
        assert lost.structured_content["error"]["message"] == "Active project not set"
        await client.call_tool("taiga.set_active_project", {"projectSlug": "shop"})
        made = await client.call_tool("taiga_create_epic", {"subject": "Found"})
        assert (made.is_error, made.structured_content["ok"]) == (False, True)
        jsonschema_rs.validate(listed["taiga.create_epic"].output_schema, made.structured_content)
        wrong = await client.call_tool("taiga.list_epics", {"limit": 0})
        assert wrong.is_error
        assert wrong.structured_content["error"]["details"].keys() == {"limit"}


async def test_progress_of_a_batch_reaches_an_mcp_client(site: Site) -> None:
    heard: list[Any] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total))

    async with http_session(site, mode="auto") as client:
        await client.call_tool("taiga.set_active_project", {"projectSlug": "shop"})
        made = await client.call_tool("taiga.create_user_story", {"subject": "One"})
        change = {"id": made.structured_content["data"]["id"], "fields": {"tags": ["x"]}}
        await client.call_tool(
            "taiga.batch_update_user_stories", {"items": [change] * 3}, progress_callback=on_progress
        )
    assert heard == [(1, 3), (2, 3), (3, 3)]


def test_rest_answers_the_same_envelope_and_shows_either_spelling(site: Site) -> None:
    body = {"tool": "taiga.create_epic", "args": {"subject": "By REST"}}
    made = site.request("POST", "/mcp/execute", json=body, headers={"X-Project": "shop"})
    assert (made.status_code, made.json()["result"]["ok"], made.json()["error"]) == (200, True, None)
    lost = site.request("POST", "/mcp/execute", json=body)
    assert (lost.status_code, lost.json()["result"]["error"]["message"]) == (422, "Active project not set")
    batch = site.request("POST", "/mcp/batch", json=[body, {"tool": "taiga_list_projects"}]).json()
    assert [answer["result"]["ok"] for answer in batch] == [False, True]
    shown = site.request("GET", "/mcp/tools?toolsets=taiga&names=underscore").json()["tools"]
    assert {tool["name"] for tool in shown} == {f"taiga_{name}" for name in TOOLS}


def test_a_server_may_leave_them_out(tmp_path: Path) -> None:
    source = (
        "import django; django.setup()\n"
        "from mcpbridge.registry import registry\n"
        "print([tool.name for tool in registry.all() if tool.toolset == 'taiga'], registry.find('taiga_get_epic'))"
    )
    env = {**os.environ, "DEVFLOW_HOME": str(tmp_path), "DJANGO_SETTINGS_MODULE": "devflow.settings"}
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=PROJECT_ROOT,
        env={**env, "DEVFLOW_TAIGA_ENABLED": "false"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[] None"
