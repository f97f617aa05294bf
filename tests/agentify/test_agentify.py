"""`devflow agentify` as a real process, from a client in either framing."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from devflow.config import PROJECT_ROOT
from tests.agentify.lsp import agentify, children_of
from tests.fakes.chat_server import ChatServer, calls, hang, refuses
from tests.running import devflow

SMALL = PROJECT_ROOT / "tests" / "fakes" / "small_backend.py"
SECRET = "sk-from-the-client-1234"  # the fake model's
FRAMINGS = pytest.mark.parametrize("has_headers", [True, False], ids=["headers", "lines"])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("agentify") / "home"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "stderr"


@pytest.fixture
def model() -> Iterator[ChatServer]:
    with ChatServer(api_key=SECRET) as server:
        yield server


def of(model: ChatServer) -> dict[str, str]:
    return {
        "DEVFLOW_LLM_BASE_URL": model.url,
        "DEVFLOW_LLM_MODEL": "chooser",
        "DEVFLOW_LLM_TIMEOUT_SECONDS": "2",
    }


def options(home: Path, **more: Any) -> dict[str, Any]:
    backend = {
        "id": "small",
        "displayName": "Small",
        "type": "stdio",
        "command": sys.executable,
        "args": [str(SMALL), str(home)],
        "env": {"TOKEN": "secret-of-the-backend"},
    }
    return {
        "processId": os.getpid(),
        "rootUri": None,
        "capabilities": {},
        "clientInfo": {"name": "editor"},
        "initializationOptions": {"backends": [backend], **more},
    }


def no_child_lives(home: Path) -> None:
    assert children_of(home) == []


@FRAMINGS
def test_the_whole_lifecycle(home: Path, log: Path, model: ChatServer, tmp_path: Path, has_headers: bool) -> None:
    with agentify(home, log, has_headers=has_headers, env=of(model)) as client:
        assert client.error("agentify/orchestrateTask", {"query": "x"})["code"] == -32001
        result = client.result("initialize", options(home, OPENAI_API_KEY=SECRET, logLevel="debug"))
        assert result["capabilities"] == {}
        assert result["serverInfo"]["name"] == "devflow"
        client.notify("initialized", {})
        model.plays(calls("small__whoami"))
        context = {"activeDocumentURI": None, "currentWorkingDirectory": str(tmp_path), "selectionText": None}
        answer = client.result("agentify/orchestrateTask", {"query": "where do you live?", "context": context})
        assert answer["structuredContent"]["cwd"] == str(tmp_path)
        assert answer["structuredContent"]["token"] == "secret-of-the-backend"
        meta = answer["_meta"]["devflow/gateway"]["orchestration"]
        assert (meta["mode"], meta["model"], meta["attempts"]) == ("model", "chooser", 1)
        assert model.requests[0].headers["Authorization"] == f"Bearer {SECRET}"
        assert children_of(home)
        assert client.result("shutdown") is None
        no_child_lives(home)
        assert client.error("agentify/orchestrateTask", {"query": "x"})["code"] == -32001
        client.notify("exit")
        assert client.ended() == 0
    said = log.read_text()
    assert SECRET not in said
    assert "secret-of-the-backend" not in said


@FRAMINGS
def test_what_is_only_notified_counts_too(home: Path, log: Path, has_headers: bool) -> None:
    with agentify(home, log, has_headers=has_headers) as client:
        client.result("initialize", options(home))
        client.result("agentify/orchestrateTask", {"query": "small.count"})
        client.notify("shutdown")
        client.notify("exit")
        assert client.ended() == 0
    no_child_lives(home)


def test_exit_without_shutdown_and_the_end_of_the_input_are_1(home: Path, log: Path) -> None:
    with agentify(home, log) as client:
        client.result("initialize", options(home))
        client.result("agentify/orchestrateTask", {"query": "small.count"})
        client.notify("exit")
        assert client.ended() == 1
    no_child_lives(home)
    with agentify(home, log) as client:
        client.result("initialize", options(home))
        client.result("agentify/orchestrateTask", {"query": "small.count"})
        assert client.process.stdin is not None
        client.process.stdin.close()
        assert client.ended() == 1
    no_child_lives(home)


def test_a_signal_ends_the_backends_too(home: Path, log: Path) -> None:
    with agentify(home, log) as client:
        client.result("initialize", options(home))
        client.result("agentify/orchestrateTask", {"query": "small.count"})
        client.process.send_signal(signal.SIGTERM)
        assert client.ended() == 1
    no_child_lives(home)


def test_every_error_has_the_document_s_code(home: Path, log: Path, model: ChatServer, tmp_path: Path) -> None:
    with agentify(home, log, env=of(model)) as client:
        bad = options(home)
        bad["initializationOptions"]["backends"][0]["id"] = "not an id"
        refused = client.error("initialize", bad)
        assert refused["code"] == -32602
        assert "initializationOptions.backends.0.id" in refused["data"]["details"]
        client.result("initialize", options(home, OPENAI_API_KEY=SECRET))
        assert client.error("initialize", options(home))["code"] == -32600
        assert client.error("agentify/nothing")["code"] == -32601
        wrong: list[Any] = [
            None,
            [],
            {},
            {"query": ""},
            {"query": "  "},
            {"query": 1},
            {"query": "x", "context": "here"},
            {"query": "x", "context": {"selectionText": 1}},
            {"query": "x", "context": {"cwd": "/"}},
            {"query": "x", "allow_effects": ["EVERYTHING"]},
            {"query": "x", "more": 1},
        ]
        for params in wrong:
            assert client.error("agentify/orchestrateTask", params)["code"] == -32602, params
        nothing = client.error("agentify/orchestrateTask", {"query": "bake a cake"})
        assert nothing["code"] == -32000
        assert nothing["data"]["candidates"]
        model.plays(refuses())
        assert client.error("agentify/orchestrateTask", {"query": "do it"})["code"] == -32003
        model.plays(hang())
        assert client.error("agentify/orchestrateTask", {"query": "do it"})["code"] == -32003
        failed = client.error("agentify/orchestrateTask", {"query": 'small.fail {"why": "because"}'})
        assert (failed["code"], failed["data"]["action"]) == (-32004, "small.fail")
        context = {"currentWorkingDirectory": str(tmp_path)}
        write = {"query": 'small.write_file {"name": "a.txt", "text": "hi"}', "context": context}
        planned = client.error("agentify/orchestrateTask", write)
        assert planned["code"] == -32004
        plan = planned["data"]["plan"]
        assert (plan["effect"], plan["request"]["params"]["name"]) == ("MUTATING", "a.txt")
        assert not (tmp_path / "a.txt").exists()
        done = client.result("agentify/confirmPlan", {"plan_id": plan["plan_id"]})
        assert done["content"][0]["text"] == "wrote a.txt"
        assert (tmp_path / "a.txt").read_text() == "hi"
        assert client.error("agentify/confirmPlan", {"plan_id": plan["plan_id"]})["code"] == -32004
        assert client.error("agentify/confirmPlan", {"plan_id": "nope"})["code"] == -32602
        write["allow_effects"] = ["MUTATING"]
        assert client.result("agentify/orchestrateTask", write)["content"][0]["text"] == "wrote a.txt"
        client.result("shutdown")
        client.notify("exit")
        assert client.ended() == 0
    assert SECRET not in log.read_text()


@pytest.mark.parametrize(
    "change",
    [
        {"backends": "none"},
        {"backends": [{"id": "a", "type": "http", "command": "x"}]},
        {"backends": [{"id": "a", "type": "stdio"}]},
        {"backends": [{"id": "a", "type": "stdio", "command": "x", "args": "y"}]},
        {"backends": [{"id": "a", "type": "stdio", "command": "x", "env": {"A": 1}}]},
        {"backends": [{"id": "a", "type": "stdio", "command": "x"}] * 2},
        {"backends": [{"id": "a" * 65, "type": "stdio", "command": "x"}]},
        {"OPENAI_API_KEY": 1},
        {"logLevel": "loud"},
        {"DEBUG_PORT": 70_000},
        {"DEBUG_PORT": "80"},
        {"backend": []},
    ],
)
def test_bad_options_are_refused_without_being_repeated(change: dict[str, Any]) -> None:
    from mcpbridge.agentify.protocol import RpcError, options_in

    with pytest.raises(RpcError) as refused:
        options_in({"initializationOptions": {"OPENAI_API_KEY": SECRET, **change}})
    assert refused.value.code == -32602
    assert SECRET not in json.dumps(refused.value.as_json())


def test_without_options_or_configuration_it_says_what_is_missing(home: Path, log: Path) -> None:
    with agentify(home, log) as client:
        client.result("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
        assert client.error("agentify/orchestrateTask", {"query": "x"})["code"] == -32002
        client.result("shutdown")
        client.notify("exit")
        assert client.ended() == 0


def test_a_backend_that_does_not_start_leaves_the_others(home: Path, log: Path) -> None:
    given = options(home)
    given["initializationOptions"]["backends"].append({"id": "gone", "type": "stdio", "command": "/does/not/exist"})
    with agentify(home, log) as client:
        client.result("initialize", given)
        assert client.result("agentify/orchestrateTask", {"query": 'small.echo {"text": "hi"}'})["content"]
        refused = client.error("agentify/orchestrateTask", {"query": "bake a cake"})
        assert "gone" in refused["data"]["unavailable"]
        client.result("shutdown")
        client.notify("exit")


def test_tasks_run_side_by_side_and_can_be_cancelled(home: Path, log: Path) -> None:
    with agentify(home, log) as client:
        client.result("initialize", options(home))
        slow = client.begin("agentify/orchestrateTask", {"query": 'small.wait {"seconds": 60}'})
        assert client.result("agentify/orchestrateTask", {"query": "small.count"})["content"][0]["text"] == "1"
        client.notify("$/cancelRequest", {"id": slow})
        assert client.answer(slow)["error"]["code"] == -32800
        slow = client.begin("agentify/orchestrateTask", {"query": 'small.wait {"seconds": 60}'})
        client.result("shutdown")
        assert client.answer(slow)["error"]["code"] == -32800
        client.notify("exit")
        assert client.ended() == 0
    no_child_lives(home)


def test_broken_messages_are_answered_and_the_next_ones_work(home: Path, log: Path) -> None:
    with agentify(home, log, has_headers=False) as client:
        client.write(b"no json\n")
        assert client.answer(None)["error"]["code"] == -32700
        for broken in ("[]", "1", '{"jsonrpc": "1.0", "id": 1, "method": "x"}', '{"jsonrpc": "2.0", "id": 1}'):
            client.write(broken.encode() + b"\n")
            assert client.answer(None)["error"]["code"] == -32600
        client.write(b'{"jsonrpc": "2.0", "id": [1], "method": "ping"}\n')
        assert client.answer(None)["error"]["code"] == -32600
        client.notify("window/whatever", {})
        assert client.result("ping") == {}
        client.result("shutdown")
        client.notify("exit")
        assert client.ended() == 0


def test_the_debug_page_shows_backends_and_calls_to_this_machine_only(home: Path, log: Path) -> None:
    with agentify(home, log, has_headers=False) as client:
        client.result("initialize", options(home, DEBUG_PORT=0, OPENAI_API_KEY=SECRET))
        client.result("agentify/orchestrateTask", {"query": 'small.echo {"text": "<b>hi</b>"}'})
        client.error("agentify/orchestrateTask", {"query": 'small.fail {"why": "<i>because</i>"}'})
        address = next(word for word in log.read_text().split() if word.startswith("http://127.0.0.1:"))
        page = httpx.get(address)
        assert page.status_code == 200
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "Small" in page.text
        assert "small.echo" in page.text
        assert "backend_error" in page.text
        assert "<i>" not in page.text
        assert SECRET not in page.text
        assert "secret-of-the-backend" not in page.text
        assert httpx.get(f"{address}devflow.css").headers["content-type"].startswith("text/css")
        assert httpx.get(address, headers={"Host": "evil.example"}).status_code == 421
        assert httpx.post(address).status_code == 405
        assert httpx.get(f"{address}nothing").status_code == 404
        client.result("shutdown")
        with pytest.raises(httpx.ConnectError):
            httpx.get(address)
        client.notify("exit")


def test_an_mcp_client_s_initialize_is_answered_in_its_version(home: Path, log: Path) -> None:
    with agentify(home, log, has_headers=False) as client:
        given = {**options(home), "protocolVersion": "2025-06-18"}
        assert client.result("initialize", given)["protocolVersion"] == "2025-06-18"
        client.notify("notifications/initialized")
        client.notify("exit")


def test_nothing_a_client_brought_is_stored(home: Path, log: Path, model: ChatServer) -> None:
    with agentify(home, log, env=of(model)) as client:
        client.result("initialize", options(home, OPENAI_API_KEY=SECRET))
        client.result("agentify/orchestrateTask", {"query": "small.whoami"})
        client.result("shutdown")
        client.notify("exit")
        client.ended()
    assert devflow(home, "backend", "list").stdout.count("small") == 0
    for path in home.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert SECRET.encode() not in content, path
            assert b"secret-of-the-backend" not in content, path
