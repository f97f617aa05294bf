"""Real servers nobody here wrote, behind a real DevFlow: what they answer directly and what they answer through it.

The golden comparison asks the official client for everything twice, over stdio and through `/mcp/backends/<id>/mcp`,
each time in a world made anew at the same paths. Left out of it is only what differs by nature: times, random ids,
the variables that say where and by whom a child was started, notes of ours in `_meta`, on 2026-07-28 the fields
earlier revisions do not have, and capabilities a stateless endpoint cannot keep (announcing changes outside a stream,
tasks).
"""

import asyncio
import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import mcp.types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError

from devflow.config import PROJECT_ROOT
from mcpbridge.gateway.specs import BackendSpec
from tests.nodetools import program, python_server
from tests.running import RunningServer, running

WAIT = 60
DATES = {"GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z", "GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z"}
NAMES = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}
Calls = list[tuple[str, dict[str, Any]]]


@dataclass
class Real:
    """A server as it is installed, the calls that show every tool, and one that both isolations make."""

    id: str
    command: list[str]
    calls: Calls
    harmless: tuple[str, dict[str, Any]]
    env: dict[str, str] = field(default_factory=dict)
    reads: int = 0
    prompts: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def spec(self) -> BackendSpec:
        return BackendSpec(id=self.id, transport="stdio", command=self.command[0], env=self.env)


def everything() -> Real:
    calls: Calls = [
        ("echo", {"message": "Grüße\n👋"}),
        ("get-annotated-message", {"messageType": "error", "includeImage": True}),
        ("get-env", {}),
        ("get-resource-links", {"count": 4}),
        ("get-resource-reference", {"resourceType": "Blob", "resourceId": 2}),
        ("get-resource-reference", {"resourceType": "Text", "resourceId": 1}),
        ("get-structured-content", {"location": "Chicago"}),
        ("get-sum", {"a": 1.5, "b": 2}),
        ("get-tiny-image", {}),
        ("gzip-file-as-resource", {"name": "a.gz", "data": "data:text/plain,hello", "outputType": "resource"}),
        ("toggle-simulated-logging", {}),
        ("toggle-simulated-logging", {}),
        ("toggle-subscriber-updates", {}),
        ("toggle-subscriber-updates", {}),
        ("trigger-long-running-operation", {"duration": 0.2, "steps": 2}),
        ("simulate-research-query", {"topic": "tasks"}),
        # there for clients with a person and a model only
        ("trigger-elicitation-request", {}),
        ("trigger-sampling-request", {"prompt": "Think.", "maxTokens": 5}),
        ("trigger-url-elicitation", {"url": "https://example.org/", "elicitationId": "1"}),
        ("trigger-url-elicitation", {"url": "https://example.org/", "elicitationId": "1", "errorPath": True}),
    ]
    prompts = {
        "simple-prompt": {},
        "args-prompt": {"city": "Ulm", "state": "BW"},
        "completable-prompt": {"department": "Engineering", "name": "Alice"},
        "resource-prompt": {"resourceType": "Text", "resourceId": "1"},
    }
    return Real("everything", [*program("server-everything"), "stdio"], calls, calls[0], reads=9, prompts=prompts)


def filesystem(world: Path) -> Real:
    files = world / "files"

    def at(name: str) -> str:
        return str(files / name)

    calls: Calls = [
        ("read_file", {"path": at("a.txt")}),
        ("read_text_file", {"path": at("a.txt"), "head": 1}),
        ("read_text_file", {"path": "/etc/passwd"}),
        ("read_media_file", {"path": at("dot.png")}),
        ("read_multiple_files", {"paths": [at("a.txt"), at("none.txt")]}),
        ("list_directory", {"path": at("")}),
        ("list_directory_with_sizes", {"path": at("")}),
        ("directory_tree", {"path": at("")}),
        ("search_files", {"path": at(""), "pattern": "**/*.txt"}),
        ("get_file_info", {"path": at("a.txt")}),
        ("list_allowed_directories", {}),
        ("create_directory", {"path": at("new")}),
        ("write_file", {"path": at("new/b.txt"), "content": "written"}),
        ("edit_file", {"path": at("a.txt"), "edits": [{"oldText": "one", "newText": "eins"}]}),
        ("move_file", {"source": at("a.txt"), "destination": at("c.txt")}),
        ("read_text_file", {"path": at("c.txt")}),
    ]
    return Real("filesystem", [*program("server-filesystem"), str(files)], calls, calls[0])


def memory(world: Path) -> Real:
    entities = [
        {"name": "Ada", "entityType": "person", "observations": ["counts"]},
        {"name": "Engine", "entityType": "machine", "observations": []},
    ]
    relation = {"from": "Ada", "to": "Engine", "relationType": "programs"}
    calls: Calls = [
        ("create_entities", {"entities": entities}),
        ("create_relations", {"relations": [relation]}),
        ("add_observations", {"observations": [{"entityName": "Ada", "contents": ["writes"]}]}),
        ("add_observations", {"observations": [{"entityName": "Nobody", "contents": ["x"]}]}),
        ("read_graph", {}),
        ("search_nodes", {"query": "mach"}),
        ("open_nodes", {"names": ["Ada"]}),
        ("delete_observations", {"deletions": [{"entityName": "Ada", "observations": ["counts"]}]}),
        ("delete_relations", {"relations": [relation]}),
        ("delete_entities", {"entityNames": ["Engine"]}),
        ("read_graph", {}),
    ]
    env = {"MEMORY_FILE_PATH": str(world / "memory.jsonl")}
    return Real("memory", program("server-memory"), calls, calls[4], env)


def git(world: Path) -> Real:
    repo = {"repo_path": str(world / "repo")}
    calls: Calls = [
        ("git_status", repo),
        ("git_diff_unstaged", repo),
        ("git_add", {**repo, "files": ["a.txt"]}),
        ("git_diff_staged", repo),
        ("git_reset", repo),
        ("git_add", {**repo, "files": ["a.txt"]}),
        ("git_commit", {**repo, "message": "second"}),
        ("git_log", {**repo, "max_count": 5}),
        ("git_create_branch", {**repo, "branch_name": "other"}),
        ("git_checkout", {**repo, "branch_name": "other"}),
        ("git_diff", {**repo, "target": "HEAD~1"}),
        ("git_show", {**repo, "revision": "HEAD"}),
        ("git_branch", {**repo, "branch_type": "local"}),
        ("git_show", {**repo, "revision": "no-such-thing"}),
    ]
    return Real("git", python_server("mcp-server-git"), calls, calls[0], {**DATES, **NAMES})


def make(world: Path) -> None:
    """The same files, repository and memory, whatever was done to them before."""
    shutil.rmtree(world, ignore_errors=True)
    (world / "files").mkdir(parents=True)
    (world / "files" / "a.txt").write_text("one\ntwo\n")
    (world / "files" / "dot.png").write_bytes(bytes(range(64)))
    repo = world / "repo"
    repo.mkdir()
    (repo / "a.txt").write_text("one\n")
    environment = {"PATH": os.environ["PATH"], "HOME": str(world), **DATES, **NAMES}
    for step in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *step], cwd=repo, env=environment, check=True)
    (repo / "a.txt").write_text("one\ntwo\n")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("world") / "w"


@pytest.fixture(scope="module")
def reals(world: Path) -> dict[str, Real]:
    return {real.id: real for real in (everything(), filesystem(world), memory(world), git(world))}


REGISTER = """
from asgiref.sync import async_to_sync
from devflow.sealing import seal
from mcpbridge.gateway import catalog, discovery
from mcpbridge.models import Action, Backend
import json
seen = {{}}
for identifier, command, env in {backends!r}:
    row = Backend.objects.create(
        backend_id=identifier, transport="stdio", command=command[0], args=command[1:],
        sealed_env=seal(json.dumps(env), purpose=catalog.SEALED),
    )
    found = async_to_sync(discovery.refresh)(catalog.backend_spec(row))
    assert not isinstance(found, Exception), found
    seen[identifier] = list(Action.objects.filter(backend=row).values_list("name", "intent", "effect", "problem"))
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, world: Path, reals: dict[str, Real]
) -> Iterator[tuple[RunningServer, dict[str, list[list[str]]]]]:
    """A DevFlow with every server registered, and how their tools were classified."""
    make(world)
    with running(tmp_path_factory.mktemp("real") / "home") as server:
        backends = [(real.id, real.command, real.env) for real in reals.values()]
        yield server, json.loads(server.run_python(REGISTER.format(backends=backends)).splitlines()[-1])


IDS = ["everything", "filesystem", "memory", "git"]
EACH = pytest.mark.parametrize("name", IDS)


async def elicited(context: Any, params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": "Ada"} if params.mode == "form" else None)


async def sampled(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    asked = json.dumps(plain(params), sort_keys=True)
    answer = types.TextContent(type="text", text=f"Asked {asked}")
    return types.CreateMessageResult(role="assistant", content=answer, model="small")


ANSWERING: dict[str, Any] = {"elicitation_callback": elicited, "sampling_callback": sampled}


@asynccontextmanager
async def directly(real: Real, mode: str) -> Any:
    parameters = StdioServerParameters(
        command=real.command[0], args=real.command[1:], env=real.spec.environment(), cwd=PROJECT_ROOT
    )
    transport = stdio_client(parameters, errlog=subprocess.DEVNULL)  # type: ignore[arg-type]  # a number will do
    async with Client(transport, mode=mode, cache=None, **ANSWERING) as client:
        yield client


@asynccontextmanager
async def through(server: RunningServer, real: Real, mode: str) -> Any:
    url = f"{server.url}/mcp/backends/{real.id}/mcp"
    async with (
        create_mcp_http_client(headers={"X-API-Key": server.key}) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, cache=None, **ANSWERING) as client,
    ):
        yield client


_VARYING = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:.]+Z"
    r"|\w{3} \w{3} \d\d \d{4} \d\d:\d\d:\d\d [^\"\\]*?\)"
    r"|\d{1,2}:\d\d:\d\d( [AP]M)?"
    r"|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)


def plain(value: Any) -> Any:
    """A result as JSON without what differs by nature (see above)."""
    if hasattr(value, "model_dump"):
        value = value.model_dump(by_alias=True, mode="json", exclude_none=True)
    if isinstance(value, dict):
        kept = {key: plain(item) for key, item in value.items() if key not in ("ttlMs", "cacheScope", "execution")}
        if "_meta" in kept:
            kept["_meta"] = {
                key: item
                for key, item in kept["_meta"].items()
                if not key.startswith(("devflow/", "io.modelcontextprotocol/serverInfo"))
            }
            if not kept["_meta"]:
                del kept["_meta"]
        if isinstance(blob := kept.get("blob"), str):
            kept["blob"] = plain(base64.b64decode(blob).decode("latin-1"))  # it may say when it was made
        return kept
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, str):
        if value.startswith("{") and '"PATH"' in value:
            given = json.loads(value).items()
            environment = {key: item for key, item in given if key != "PWD" and not key.startswith("DEVFLOW_")}
            value = json.dumps(environment, sort_keys=True)
        return _VARYING.sub("<varies>", value)
    return value


async def tried(asking: Any) -> Any:
    """What a request gives, or the error it ends in."""
    try:
        return plain(await asking)
    except MCPError as exc:
        return {"error": plain([exc.code, exc.message, exc.error.data])}


async def all_of(client: Client, real: Real) -> dict[str, Any]:
    """Everything a server has and answers."""
    has = client.server_capabilities
    seen: dict[str, Any] = {
        "server": plain(client.server_info),
        "instructions": client.instructions,
        "capabilities": sorted(
            name
            for name in ("tools", "prompts", "resources", "completions", "logging")
            if getattr(has, name) is not None
        ),
    }
    tools = (await client.list_tools()).tools
    assert {tool.name for tool in tools} == {name for name, _ in real.calls}, "every tool is called"
    seen["tools"] = plain(tools)
    seen["calls"] = [(name, await tried(client.call_tool(name, arguments))) for name, arguments in real.calls]
    if has.prompts is not None:
        listed = (await client.list_prompts()).prompts
        assert {prompt.name for prompt in listed} == real.prompts.keys(), "every prompt is asked for"
        seen["prompts"] = plain(listed)
        seen["said"] = [await tried(client.get_prompt(name, given)) for name, given in real.prompts.items()]
    if real.prompts:
        seen["wrong prompt"] = await tried(client.get_prompt("no such prompt"))
        ref = types.PromptReference(name="completable-prompt")
        seen["completion"] = await tried(client.complete(ref, {"name": "department", "value": "E"}))
    if has.resources is not None:
        resources = (await client.list_resources()).resources
        seen["resources"] = plain(resources)
        uris = [
            *(str(item.uri) for item in resources),
            *(f"demo://resource/dynamic/{kind}/3" for kind in ("text", "blob")),
        ]
        seen["read"] = [await tried(client.read_resource(uri)) for uri in uris]
        assert len(seen["read"]) >= real.reads
        seen["templates"] = plain((await client.list_resource_templates()).resource_templates)
    if real.reads:
        seen["wrong resource"] = await tried(client.read_resource("nothing://here"))
    return seen


@EACH
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_official_client_sees_the_same_through_devflow_as_directly(
    served: Any, reals: dict[str, Real], world: Path, name: str, mode: str
) -> None:
    server, real = served[0], reals[name]
    async with asyncio.timeout(2 * WAIT):
        await asyncio.to_thread(make, world)
        async with directly(real, mode) as client:
            direct = await all_of(client, real)
        await asyncio.to_thread(make, world)
        async with through(server, real, mode) as client:
            passed = await all_of(client, real)
    for part in direct:
        assert passed[part] == direct[part], part
    assert passed.keys() == direct.keys()


@EACH
def test_its_tools_are_found_and_classified_by_what_they_declare(
    served: Any, reals: dict[str, Real], name: str
) -> None:
    found = {tool: (intent, effect) for tool, intent, effect, problem in served[1][name] if not problem}
    assert found.keys() == {tool for tool, _ in reals[name].calls}
    expected = {
        "everything": {
            "echo": "READ_ONLY",
            "gzip-file-as-resource": "EXTERNAL_EXEC",
            "toggle-simulated-logging": "MUTATING",
        },
        "filesystem": {"read_text_file": "READ_ONLY", "write_file": "MUTATING", "move_file": "MUTATING"},
        "memory": {"read_graph": "READ_ONLY", "delete_entities": "MUTATING"},
        "git": {"git_log": "READ_ONLY", "git_commit": "MUTATING", "git_reset": "MUTATING"},
    }[name]
    assert {tool: found[tool][1] for tool in expected} == expected


@EACH
def test_it_answers_the_same_under_both_isolations(served: Any, reals: dict[str, Real], world: Path, name: str) -> None:
    server: RunningServer = served[0]
    make(world)
    tool, params = reals[name].harmless
    answers = {}
    for isolation in ("agent", "subprocess"):
        request = {
            "intent": "QUERY",
            "action": f"{name}.{tool}",
            "params": params,
            "constraints": {"isolation": isolation},
        }
        answer = httpx.post(
            f"{server.url}/mcp/gateway", json=request, headers={"X-API-Key": server.key}, timeout=WAIT
        ).json()
        assert answer["ok"], answer
        assert answer["meta"]["isolation_used"] == isolation
        answers[isolation] = answer["result"]["data"]
    assert answers["agent"] == answers["subprocess"]
