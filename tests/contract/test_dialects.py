"""Every tool in every dialect: its success and every error code have the shape the contract fixes."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema_rs
import pytest

from devflow.errors import ERROR_TABLE, DevFlowError, ErrorCode
from mcpbridge import access, dispatcher, envelopes
from mcpbridge.audit import recorder
from mcpbridge.envelopes import Outcome
from mcpbridge.models import ApiKey
from mcpbridge.registry import CALL_TOOL, registry
from mcpbridge.tooling import Caller, Tool
from tests.mcpbridge.conftest import in_thread

Asked = dict[str, Any]
Do = Callable[[str, Asked], Asked]


def task(do: Do, **more: Any) -> str:
    created: str = do("create_task", {"description": "Contract", "phase_id": 1, **more})["task_id"]
    return created


def claimed(do: Do) -> Asked:
    task(do)
    return do("claim_task", {"phase_id": 1})


def finished(do: Do) -> str:
    mine = claimed(do)
    do("update_task_status", {"task_id": mine["id"], "status": "done", "lease_token": mine["lease_token"]})
    found: str = mine["id"]
    return found


def reviewed(do: Do) -> str:
    from workflow.models import Phase

    in_thread(lambda: Phase.objects.filter(project__slug="contract", number=1).update(requires_review=True))
    return finished(do)


def message(do: Do) -> int:
    do("heartbeat", {})
    do("send_message_to_agent", {"agent_id": "agent-1", "message": "to myself"})
    found: int = do("get_messages", {})["messages"][0]["id"]
    return found


def lease(do: Do) -> Asked:
    mine = claimed(do)
    return {"task_id": mine["id"], "lease_token": mine["lease_token"]}


def source(do: Do) -> str:
    """A source that has been read and indexed."""
    from devflow import jobs

    text = "# Caching\n\nPurge the cache after a deployment:\n\n```python\ndef purge_cache():\n    cache.clear()\n```\n"
    with jobs.immediately():
        made: str = do("ingest_source", {"title": "Caching", "type": "manual", "content": text})["source_id"]
    return made


def planned(do: Do) -> str:
    answer = do("orchestrate_task", {"query": "devflow.heartbeat"})
    made: str = answer["result"]["data"]["plan"]["plan_id"]
    return made


def remembered(do: Do) -> str:
    content = "Tokens are cached for five minutes."
    made: str = do("save_memory", {"content": content, "category": "decision"})["memory_id"]
    return made


def agile(do: Do, kind: str) -> int:
    """The id of a new epic, story, task or issue."""
    more = {"userStoryId": agile(do, "user_story")} if kind == "task" else {}
    made: int = do(f"taiga.create_{kind}", {"subject": "Contract", **more})["id"]
    return made


def after(done: object, arguments: Asked) -> Asked:
    """`arguments`, once what they need has been done."""
    return arguments


# How each tool is called successfully. A tool that is not here fails `test_every_tool_has_an_example`.
EXAMPLES: dict[str, Callable[[Do], Asked]] = {
    "create_task": lambda do: {"description": "Write it", "phase_id": 1, "priority": "high", "tags": ["a"]},
    "update_task_status": lambda do: {**lease(do), "status": "done", "result": "It works."},
    "claim_task": lambda do: after(task(do), {"phase_id": 1}),
    "get_my_task": lambda do: after(claimed(do), {}),
    "get_tasks": lambda do: after(task(do), {"phase_id": 1}),
    "get_phase_info": lambda do: {"phase_id": 1},
    "get_kanban_board": lambda do: after(task(do, blocked_by=[task(do)]), {}),
    "get_agent_status": lambda do: after(claimed(do), {}),
    "send_message_to_agent": lambda do: after(claimed(do), {"agent_id": "agent-1", "message": "hello"}),
    "get_messages": lambda do: after(message(do), {}),
    "ack_message": lambda do: {"message_ids": [message(do)]},
    "heartbeat": lambda do: {},
    "set_project": lambda do: {"project": "contract"},
    "set_gate": lambda do: {"name": "analysis-done"},
    "get_gates": lambda do: {},
    "release_task": lease,
    "add_task_note": lambda do: {"task_id": task(do), "note": "Look at this."},
    "review_task": lambda do: {"task_id": reviewed(do), "decision": "approve"},
    "undo_move": lambda do: {"task_id": finished(do)},
    "search_knowledge": lambda do: after(source(do), {"query": "How is the cache purged?", "explain": True}),
    "get_code_examples": lambda do: after(source(do), {"topic": "purge the cache", "language": "python"}),
    "list_knowledge_sources": lambda do: after(source(do), {}),
    "get_source_info": lambda do: {"source_id": source(do)},
    "ingest_source": lambda do: {"title": "Notes", "type": "manual", "content": "# Notes\n\nText."},
    "save_memory": lambda do: {"content": "Retry with backoff.", "category": "pattern", "tags": ["payments"]},
    "query_memories": lambda do: after(remembered(do), {"query": "how long are tokens cached", "tags": []}),
    "update_memory": lambda do: {"memory_id": remembered(do), "category": "convention"},
    "delete_memory": lambda do: {"memory_id": remembered(do)},
    "gateway_execute": lambda do: {"intent": "QUERY", "action": "devflow.get_kanban_board"},
    "list_gateway_actions": lambda do: {},
    "orchestrate_task": lambda do: {"query": "devflow.list_gateway_actions"},
    "confirm_plan": lambda do: {"plan_id": planned(do)},
    "search_tools": lambda do: {"query": "claim a task"},
    "call_tool": lambda do: {"name": "get_phase_info", "arguments": {"phase_id": 1}},
    "taiga.list_projects": lambda do: {},
    "taiga.set_active_project": lambda do: {"projectSlug": "contract"},
    "taiga.get_project": lambda do: {"projectSlug": "contract"},
    "taiga.get_statuses": lambda do: {},
    "taiga.get_members": lambda do: {},
    "taiga.list_epics": lambda do: after(agile(do, "epic"), {}),
    "taiga.list_user_stories": lambda do: after(agile(do, "user_story"), {}),
    "taiga.list_tasks": lambda do: after(agile(do, "task"), {}),
    "taiga.list_issues": lambda do: after(agile(do, "issue"), {}),
    "taiga.search_epics": lambda do: {"query": "contract"},
    "taiga.search_user_stories": lambda do: {"query": "contract"},
    "taiga.search_tasks": lambda do: {"query": "contract"},
    "taiga.search_issues": lambda do: {"query": "contract"},
    "taiga.create_epic": lambda do: {"subject": "New"},
    "taiga.create_user_story": lambda do: {"subject": "New"},
    "taiga.create_task": lambda do: {"subject": "New", "userStoryId": agile(do, "user_story")},
    "taiga.create_issue": lambda do: {"subject": "New"},
    "taiga.batch_update_user_stories": lambda do: {
        "items": [{"id": agile(do, "user_story"), "fields": {"subject": "Changed"}}]
    },
    "taiga.summarize_user_story": lambda do: {"id": agile(do, "user_story")},
} | {
    f"taiga.{verb}_{kind}": lambda do, kind=kind, more=more: {"id": agile(do, kind), **more}
    for kind in ("epic", "user_story", "task", "issue")
    for verb, more in (("get", {}), ("update", {"subject": "Changed"}), ("delete", {}))
}

TOOLS = [tool for tool in registry.all() if not tool.name.startswith("test_")]
each_tool = pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
each_code = pytest.mark.parametrize("code", list(ErrorCode))


def test_every_tool_has_an_example() -> None:
    assert {tool.name for tool in TOOLS} == EXAMPLES.keys()


@pytest.fixture
def caller(transactional_db: None) -> Iterator[Caller]:
    from workflow.services import projects

    def prepare() -> access.Identity | None:
        project = projects.create(name="Contract", slug="contract")
        key, _ = ApiKey.objects.issue(
            name="contract", scopes=["read", "write", "execute"], project_id=project.pk, rate_per_minute=0
        )
        return access.keyring.look_up(key.digest)

    access.keyring.forget()
    identity = prepare()
    assert identity is not None
    yield access.caller_for(identity, transport="rest", headers={"x-agent-id": "agent-1"})
    recorder.stop()


def outcome_of(tool: Tool, caller: Caller) -> Outcome:
    def do(name: str, arguments: Asked) -> Asked:
        made = asyncio.run(dispatcher.call(name, arguments, caller))
        assert made.error is None, (name, made.error, dict(made.error.details))
        return made.value or {}

    return asyncio.run(dispatcher.call(tool.name, EXAMPLES[tool.name](do), caller))


@each_tool
def test_a_success_has_the_shape_of_each_dialect(tool: Tool, caller: Caller) -> None:
    outcome = outcome_of(tool, caller)
    assert outcome.error is None, (outcome.error, dict(outcome.error.details))
    published = registry.find("get_phase_info") if tool.name == CALL_TOOL else tool
    assert published is not None

    mcp = envelopes.as_mcp(outcome)
    assert mcp["isError"] is False
    assert json.loads(mcp["content"][0]["text"]) == mcp["structuredContent"]
    jsonschema_rs.validate(dict(published.output_schema), mcp["structuredContent"])

    status, rest = envelopes.as_rest(outcome, "r-1")
    assert status == 200
    assert (rest["request_id"], rest["error"]) == ("r-1", None)
    assert rest["result"] == mcp["structuredContent"]

    gateway = envelopes.as_gateway(outcome, intent=tool.intent, action=tool.name, effect=tool.effect)
    assert gateway["ok"] is True
    assert gateway["request"] == {"intent": tool.intent, "action": tool.name, "effect": tool.effect}
    assert gateway["result"].keys() == {"artifact_type", "data", "affected_files", "affected_symbols"}
    assert gateway["meta"].keys() == {"duration_ms", "mcp_name", "isolation_used"}

    if tool.dialect == "taiga":
        assert mcp["structuredContent"] == envelopes.as_taiga(outcome)
    assert envelopes.as_taiga(outcome) == {"ok": True, "data": outcome.value}


@each_tool
@each_code
def test_a_failure_has_the_shape_of_each_dialect(tool: Tool, code: ErrorCode) -> None:
    wait = 1500 if code is ErrorCode.RATE_LIMITED else None
    error = DevFlowError(code, "It failed.", details={"field": "reason"}, retry_after_ms=wait)
    outcome = Outcome(name=tool.name, trace_id="a" * 32, duration_ms=1.5, tool=tool, error=error, dialect=tool.dialect)
    row = ERROR_TABLE[code]

    mcp = envelopes.as_mcp(outcome)
    content = mcp["structuredContent"]
    assert mcp["isError"] is True
    if tool.dialect == "gateway":  # its own envelope on every door
        status, rest = envelopes.as_rest(outcome, None)
        assert (status, rest["error"], rest["result"]) == (row.http, "It failed.", content)
        assert (content["ok"], content["error"]["type"], content["error"]["code"]) == (False, row.gateway, code.value)
        assert content["error"].keys() >= {"type", "message", "recoverable", "suggestion"}
        assert ("retry_after_ms" in content["error"]) is (wait is not None)
        return
    if tool.dialect == "taiga":
        status, rest = envelopes.as_rest(outcome, None)
        said = "Rate limited" if code is ErrorCode.RATE_LIMITED else "It failed."
        assert (status, rest["error"], rest["result"]) == (row.http, "It failed.", content)
        assert (content["ok"], content["error"]["category"], content["error"]["message"]) == (False, row.taiga, said)
        assert content["error"]["_traceId"].replace("-", "") == "a" * 32
        jsonschema_rs.validate(dict(tool.output_schema or {}), content)
        return
    assert (content["code"], content["message"], content["traceId"]) == (code.value, "It failed.", "a" * 32)
    assert content["suggestion"]
    assert ("retryAfterMs" in content) is (wait is not None)

    status, rest = envelopes.as_rest(outcome, None)
    assert status == row.http
    assert (rest["request_id"], rest["result"], rest["error"]) == (None, None, "It failed.")
    assert rest["detail"].keys() == {"code", "message", "suggestion", "details", "retry_after_ms", "trace_id"}

    gateway = envelopes.as_gateway(outcome, intent=tool.intent, action=tool.name, effect=tool.effect)
    assert gateway["ok"] is False
    assert gateway["error"]["type"] in {"TIMEOUT", "MCP_ERROR", "VALIDATION", "PERMISSION", "UNKNOWN"}
    if code is ErrorCode.TIMEOUT:
        assert gateway["error"]["recoverable"] is (tool.effect == "READ_ONLY")
    else:
        assert gateway["error"]["recoverable"] is row.recoverable

    taiga = envelopes.as_taiga(outcome)
    assert taiga["ok"] is False
    assert taiga["error"]["category"] == row.taiga
    assert taiga["error"]["httpStatus"] == (400 if code is ErrorCode.INVALID_INPUT else row.http)
    assert taiga["error"]["details"].get("conflict", False) is (code is ErrorCode.CONFLICT)
    assert ("retryAfterMs" in taiga["error"]) is (wait is not None)


@each_tool
def test_an_unknown_argument_and_a_missing_scope_change_nothing(tool: Tool, caller: Caller) -> None:
    unknown = asyncio.run(dispatcher.call(tool.name, {"no_such_argument": 1}, caller))
    assert unknown.code == "invalid_input"
    powerless = caller.with_changes(scopes=frozenset())
    forbidden = asyncio.run(dispatcher.call(tool.name, {}, powerless))
    assert forbidden.code == ("invalid_input" if tool.name == CALL_TOOL else "forbidden")


def test_nothing_to_give_is_null_with_a_reason(caller: Caller) -> None:
    outcome = asyncio.run(dispatcher.call("claim_task", {"phase_id": 1}, caller))
    assert envelopes.as_mcp(outcome)["structuredContent"]["task"] is None
    status, rest = envelopes.as_rest(outcome, "r")
    assert (status, rest["result"], rest["error"]) == (200, None, None)
    assert rest["detail"]["reason"] == "none_ready"


def test_the_table_says_what_the_contract_says() -> None:
    rows = {
        code.value: (row.http, row.taiga, row.gateway, row.recoverable, row.jsonrpc)
        for code, row in ERROR_TABLE.items()
    }
    assert rows == {
        "invalid_input": (422, "validation", "VALIDATION", True, -32602),
        "unauthenticated": (401, "auth", "PERMISSION", False, -32001),
        "forbidden": (403, "auth", "PERMISSION", False, -32010),
        "not_found": (404, "not_found", "VALIDATION", True, -32602),
        "conflict": (409, "validation", "VALIDATION", True, -32011),
        "precondition_failed": (412, "validation", "PERMISSION", True, -32012),
        "rate_limited": (429, "rate_limit", "PERMISSION", True, -32013),
        "timeout": (504, "network", "TIMEOUT", True, -32014),
        "unavailable": (503, "network", "MCP_ERROR", True, -32015),
        "backend_error": (502, "server", "MCP_ERROR", False, -32016),
        "too_large": (413, "validation", "VALIDATION", True, -32602),
        "internal": (500, "server", "UNKNOWN", False, -32603),
    }
