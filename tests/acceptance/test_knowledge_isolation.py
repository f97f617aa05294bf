"""Another project's key: never a hit, and every id of ours answers as an unknown one does."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.acceptance.agents import RefusedError
from tests.acceptance.conftest import make_projects
from tests.acceptance.library import Library, digest, library
from tests.running import RunningServer, running

SECRET = "wolframite"
TEXT = f"""# The {SECRET} furnace

## Firing

The {SECRET} furnace is fired at dawn. Call it so:

```python
def fire_{SECRET}(degrees):
    return furnace.fire(degrees)
```
"""
UNKNOWN = 999_999


@dataclass(frozen=True)
class Scene:
    """One project with everything in it, and a stranger whose key sees another project only."""

    server: RunningServer
    owner: Library
    stranger: Library
    source: str
    document: str
    chunk: int
    example: int
    memory: str
    other_memory: str


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with running(tmp_path_factory.mktemp("isolation") / "home", arguments=("--no-demo",)) as server:
        ours, theirs = make_projects(server, "room-", 2)
        key = server.create_key("stranger", "--project", theirs, "--rate", "0", "--scopes", "read,write,execute")["key"]
        with library(server, ours) as owner, library(server, theirs, key=key, name="stranger") as stranger:
            source = owner.read("Furnaces", type="manual", content=TEXT, tags=["metal"])
            document = owner.info(source)["documents"][0]["id"]
            chunk = owner.request("GET", f"/api/v1/chunks/?project={ours}").json()["results"][0]["id"]
            example = owner.request("GET", f"/api/v1/code-examples/?project={ours}").json()["results"][0]["id"]
            memory = owner.call("save_memory", content=f"The {SECRET} furnace smokes.", category="problem")
            stranger.read("Own", type="manual", content="# Own\n\nThe stranger's own furnace notes.\n")
            own = stranger.call("save_memory", content="The stranger's own memory of a furnace.", category="problem")
            yield Scene(
                server, owner, stranger, source, document, chunk, example, memory["memory_id"], own["memory_id"]
            )


def test_the_owner_finds_what_the_stranger_must_not(scene: Scene) -> None:
    """The control: every search below finds it with the right key."""
    for name, found in searches(scene.owner).items():
        assert SECRET in found, name


def searches(caller: Library) -> dict[str, str]:
    """Everything that searches or lists, as the text it answered."""
    asked = f"firing the {SECRET} furnace fire_{SECRET}"
    tools: dict[str, dict[str, Any]] = {
        **{
            f"search_knowledge {mode}": {"query": asked, "mode": mode, "include_code_examples": True}
            for mode in ("semantic", "hybrid", "reranked")
        },
        "get_code_examples": {"topic": asked},
        "query_memories": {"query": f"the {SECRET} furnace"},
    }
    answers = {
        name: caller.post(name.split()[0], args).text for name, args in tools.items()
    }  # the question itself is in no answer
    for path in (
        *("chunks/?", f"chunks/?q={SECRET}", "documents/?", "code-examples/?", f"code-examples/?q={SECRET}"),
        *(f"knowledge/search/?q=fire+{SECRET}", "memories/?", "memories/?q=furnace+smokes"),
    ):
        answers[path] = caller.request("GET", f"/api/v1/{path}").text.replace(f"q={SECRET}", "")
    return answers


def test_no_search_and_no_list_of_a_stranger_gives_anything_away(scene: Scene) -> None:
    for name, found in searches(scene.stranger).items():
        assert SECRET not in found, name
    assert "Furnaces" not in scene.stranger.request("GET", "/api/v1/sources/").text
    assert "Furnaces" not in scene.stranger.post("list_knowledge_sources", {}).text


def test_naming_our_project_does_not_help(scene: Scene) -> None:
    for path in (
        *("sources/?", "documents/?", "chunks/?", "code-examples/?", "memories/?"),
        *("memories/?q=furnace&", "knowledge/search/?q=furnace&"),
    ):
        answer = scene.stranger.request("GET", f"/api/v1/{path}project={scene.owner.project}")
        assert answer.status_code in (200, 404), path
        if answer.status_code == 200:
            assert answer.json()["results"] == [], path
    headers = {**scene.stranger.headers}
    named = Library(scene.stranger.http, scene.owner.project, headers)
    answer = named.post("search_knowledge", {"query": SECRET})
    assert SECRET not in answer.text.replace(scene.owner.project, "")


def tools_with_ids(scene: Scene) -> list[tuple[str, dict[str, Any], str]]:
    """A tool, arguments that name something of ours, and the id in them."""
    return [
        ("get_source_info", {"source_id": scene.source}, scene.source),
        ("delete_memory", {"memory_id": scene.memory}, scene.memory),
        ("update_memory", {"memory_id": scene.memory, "content": "Mine now."}, scene.memory),
        ("update_memory", {"memory_id": scene.memory, "pinned": True}, scene.memory),
        ("update_memory", {"memory_id": scene.other_memory, "supersedes": scene.memory}, scene.memory),
        ("save_memory", {"content": "Mine.", "category": "decision", "supersedes": scene.memory}, scene.memory),
    ]


def unknown(text: str, known: str) -> str:
    return text.replace(known, f"{known.split('-')[0]}-{UNKNOWN}")


def told(library: Library, tool: str, args: dict[str, Any], known: str) -> tuple[int, Any, str]:
    """Status, code and message of a call that is refused, with the id taken out."""
    response = library.post(tool, args)
    answer = response.json()
    assert answer["error"] is not None, f"{tool} {args} was allowed: {answer}"
    return response.status_code, answer["detail"]["code"], unknown(answer["error"], known)


def test_every_tool_answers_our_ids_as_unknown_ones(scene: Scene) -> None:
    before = digest(scene.server, "knowledge_", "memory_")
    for tool, args, known in tools_with_ids(scene):
        strange = {name: unknown(value, known) if isinstance(value, str) else value for name, value in args.items()}
        refused = told(scene.stranger, tool, args, known)
        assert refused == told(scene.stranger, tool, strange, known), tool
        assert refused[1] == "not_found", tool
    assert digest(scene.server, "knowledge_", "memory_") == before


def test_filtering_by_our_source_finds_nothing(scene: Scene) -> None:
    found = scene.stranger.search("furnace", filters={"sources": [scene.source]})
    assert found["results"] == []
    path = f"/api/v1/knowledge/search/?q=furnace&sources={scene.source}"
    assert scene.stranger.request("GET", path).json()["results"] == []
    for rows in ("documents", "chunks", "code-examples"):
        answer = scene.stranger.request("GET", f"/api/v1/{rows}/?source={scene.source}")
        assert (answer.status_code, answer.json()["results"]) == (200, []), rows


def test_every_resource_answers_our_ids_as_unknown_ones(scene: Scene) -> None:
    for uri in (
        f"devflow://source/{scene.source}",
        f"devflow://document/{scene.document}",
        f"devflow://document/{scene.document}#L1-L2",
        f"devflow://memory/{scene.memory}",
    ):
        assert SECRET in str(scene.owner.resource(uri)) or "Furnaces" in str(scene.owner.resource(uri)), uri
        refused = scene.stranger.resource(uri)
        known = uri.split("/")[3].split("#")[0]
        strange = scene.stranger.resource(unknown(uri, known))
        assert "error" in refused, uri
        assert str(refused["error"]).replace(known, "") == str(strange["error"]).replace(f"{UNKNOWN}", "").replace(
            f"{known.split('-')[0]}-", ""
        ), uri
        assert SECRET not in str(refused), uri


def rest_with_ids(scene: Scene) -> list[tuple[str, str, Any]]:
    source, document, memory = (f"/api/v1/{path}/" for path in ids_in_paths(scene))
    return [
        ("GET", source, None),
        ("PATCH", source, {"title": "Mine"}),
        ("DELETE", source, None),
        ("GET", f"{source}documents/", None),
        *(("POST", f"{source}{action}/", {}) for action in ("reindex", "retry", "pause", "resume")),
        ("GET", document, None),
        ("DELETE", document, None),
        ("GET", f"{document}lines/", None),
        ("POST", f"{document}retry/", {}),
        ("GET", f"/api/v1/chunks/{scene.chunk}/", None),
        ("GET", f"/api/v1/code-examples/{scene.example}/", None),
        ("GET", memory, None),
        ("PATCH", memory, {"content": "Mine"}),
        ("DELETE", memory, None),
    ]


def ids_in_paths(scene: Scene) -> tuple[str, str, str]:
    return f"sources/{scene.source}", f"documents/{scene.document}", f"memories/{scene.memory}"


def test_every_rest_path_answers_our_ids_as_unknown_ones(scene: Scene) -> None:
    before = digest(scene.server, "knowledge_", "memory_")
    for method, path, body in rest_with_ids(scene):
        number = path.split("/")[4]
        refused = scene.stranger.request(method, path, body)
        strange = scene.stranger.request(method, path.replace(f"/{number}/", f"/{UNKNOWN}/"), body)
        assert (refused.status_code, strange.status_code) == (404, 404), f"{method} {path}: {refused.text}"
        assert SECRET not in refused.text
    parts = [("files", ("more.md", b"# More\n"))]
    refused = scene.stranger.http.post(
        f"/api/v1/sources/{scene.source}/files/", files=parts, headers=dict(scene.stranger.headers)
    )
    assert refused.status_code == 404, refused.text
    assert digest(scene.server, "knowledge_", "memory_") == before


def test_nothing_can_be_put_into_our_project(scene: Scene) -> None:
    before = digest(scene.server, "knowledge_", "memory_")
    ours = scene.owner.project
    source = {"project": ours, "title": "Mine", "type": "manual", "content": "# Mine"}
    memory = {"project": ours, "content": "Mine", "category": "decision"}
    assert scene.stranger.request("POST", "/api/v1/sources/", source).status_code == 404
    assert scene.stranger.request("POST", "/api/v1/memories/", memory).status_code == 404
    parts = [("files", ("mine.md", b"# Mine\n"))]
    sent = scene.stranger.http.post(
        "/api/v1/sources/upload/", files=parts, data={"project": ours}, headers=dict(scene.stranger.headers)
    )
    assert sent.status_code == 404, sent.text
    named = Library(scene.stranger.http, ours, dict(scene.stranger.headers))
    for tool, args in (
        ("ingest_source", {"title": "Mine", "type": "manual", "content": "# Mine"}),
        ("save_memory", {"content": "Mine", "category": "decision"}),
    ):
        with pytest.raises(RefusedError):
            named.call(tool, **args)
    assert digest(scene.server, "knowledge_", "memory_") == before
