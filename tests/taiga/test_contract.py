"""The contract of the agile tools, from one table: every tool, called well and in every wrong way."""

import json
import uuid
from typing import Any

import jsonschema_rs
import pytest

from mcpbridge.envelopes import as_mcp, as_rest
from mcpbridge.registry import registry
from mcpbridge.tooling import MAX_TEXT, Tool
from tests.taiga.conftest import Object, Scene
from tests.taiga.table import NULLABLE, REFUSED, TOOLS, UNKNOWN, WRONG, Row, version_of

each_tool = pytest.mark.parametrize("name", list(TOOLS))
EXPECTED = {"validation": 400, "not_found": 404}


def tool_named(name: str) -> Tool:
    found = registry.find(f"taiga.{name}")
    assert found is not None
    return found


def checked(name: str, answer: Object) -> Object:
    """An envelope that is what the tool publishes, and JSON."""
    jsonschema_rs.validate(dict(tool_named(name).output_schema or {}), answer)
    assert json.loads(json.dumps(answer)) == answer
    assert answer.keys() - {"_rateLimit"} == ({"ok", "data"} if answer["ok"] else {"ok", "error"})
    return answer


def refused(scene: Scene, name: str, arguments: Object, *, category: str = "validation") -> Object:
    answer = checked(name, scene.answer(name, arguments))
    assert answer["ok"] is False, (name, arguments, answer)
    error: Object = answer["error"]
    assert error["category"] == category, (name, arguments, error)
    assert str(uuid.UUID(error["_traceId"])) == error["_traceId"]
    assert len(error["message"]) <= 1000
    return error


def without(row: Row, scene: Scene) -> Object:
    """A good call without a project of its own."""
    return {name: value for name, value in row.good[0](scene).items() if name != "projectId"}


def test_the_table_has_every_tool_and_every_property() -> None:
    published = {tool.name.removeprefix("taiga."): tool for tool in registry.all() if tool.toolset == "taiga"}
    assert published.keys() == TOOLS.keys()
    assert len(TOOLS) == 29 + 2
    properties = {name for tool in published.values() for name in tool.input_schema["properties"]}
    assert properties == WRONG.keys()


@each_tool
def test_its_schemas_are_closed_and_have_no_choice_at_the_top(name: str) -> None:
    tool = tool_named(name)
    for schema in (tool.input_schema, tool.output_schema or {}):
        jsonschema_rs.meta.validate(dict(schema))
        assert schema["type"] == "object"
        assert not schema.keys() & {"oneOf", "anyOf", "allOf"}
        assert schema["additionalProperties"] is False
    assert registry.find(tool.name.replace(".", "_")) is tool
    assert tool.destructive is name.startswith("delete_")
    assert (tool.effect == "MUTATING") is TOOLS[name].writes


@each_tool
def test_a_good_call_is_answered_with_what_is_published(scene: Scene, name: str) -> None:
    for make in TOOLS[name].good:
        arguments = make(scene)
        jsonschema_rs.validate(dict(tool_named(name).input_schema), arguments)
        outcome = scene.outcome(f"taiga.{name}", arguments)
        assert outcome.error is None, (arguments, outcome.error, dict(outcome.error.details))
        status, rest = as_rest(outcome, "r")
        mcp = as_mcp(outcome)
        assert (status, rest["result"], rest["error"]) == (200, mcp["structuredContent"], None)
        assert mcp["isError"] is False
        answer = checked(name, mcp["structuredContent"])
        if "meta" in answer["data"]:
            assert len(answer["data"]["items"]) <= answer["data"]["meta"]["limit"] <= 200
    if not TOOLS[name].writes:  # the same call under its other name
        assert scene.outcome(f"taiga_{name}", TOOLS[name].good[0](scene)).error is None


@each_tool
def test_what_its_schema_refuses_is_refused_by_name(scene: Scene, name: str) -> None:
    schema = dict(tool_named(name).input_schema)
    row = TOOLS[name]
    good = row.good[0](scene)
    for field in schema["properties"]:
        for wrong in (*WRONG[field], *(() if nullable(name, field) else (None,))):
            arguments = {**good, field: wrong}
            assert not jsonschema_rs.is_valid(schema, arguments), (field, wrong)
            error = refused(scene, name, arguments)
            assert error["message"].startswith(field), (field, wrong, error)
            is_large = isinstance(wrong, str) and len(wrong) > MAX_TEXT
            assert error["httpStatus"] == (413 if is_large else 400), (field, wrong, error)
            assert any(where.split(".")[0] == field for where in error["details"]), (field, wrong, error)
        if nullable(name, field):
            assert jsonschema_rs.is_valid(schema, {**good, field: None}), field
    required_in_words(scene, name)
    error = refused(scene, name, {**good, "colour": "red"})
    assert (error["message"], error["details"]) == ("colour: Unknown property", {"colour": "Unknown property"})
    if row.is_update:
        assert version_of(scene, row.names) == good["version"]


def nullable(name: str, field: str) -> bool:
    return name.startswith(("create_", "update_")) and field in NULLABLE


def required_in_words(scene: Scene, name: str) -> None:
    row = TOOLS[name]
    good = row.good[0](scene)
    for field in tool_named(name).input_schema.get("required", ()):
        error = refused(scene, name, {key: value for key, value in good.items() if key != field})
        assert (error["message"], error["details"]) == (f"{field}: Required", {field: "Required"})
    if row.names and not name.startswith("delete_"):
        error = refused(scene, name, {key: value for key, value in good.items() if key not in ("id", "ref")})
        assert (error["message"], error["details"]["id"]) == ("id: Required", "Required")
    if row.is_update:
        error = refused(scene, name, {"id": scene.ids[row.names], "version": 1})
        assert error["message"] == "arguments: Nothing to change"
    if name in ("set_active_project", "get_project"):
        assert refused(scene, name, {})["message"] == "projectId: Required"


@pytest.mark.parametrize("rule", REFUSED, ids=lambda rule: f"{rule.message}-{'-'.join(rule.tools[:2])}")
def test_what_the_project_does_not_have_is_refused_in_the_documents_words(scene: Scene, rule: Any) -> None:
    for name in rule.tools:
        error = refused(scene, name, {**TOOLS[name].good[0](scene), **rule.change(scene)})
        assert (error["message"], error["httpStatus"]) == (rule.message, 400), name
        assert rule.field in error["details"], name


@pytest.mark.parametrize("name", [name for name in TOOLS if name != "list_projects"])
def test_a_project_is_neither_guessed_nor_given_away(scene: Scene, name: str) -> None:
    row = TOOLS[name]
    if row.needs_project:
        answer = checked(name, scene.answer(name, without(row, scene), scene.lost))
        assert answer["error"]["category"] == "validation"
        assert answer["error"]["message"] == "Active project not set"
        assert answer["error"]["details"].keys() == {"projectId"}
    arguments = {**(without(row, scene) if row.needs_project else {}), "projectId": UNKNOWN}
    error = refused(scene, name, arguments, category="not_found")
    assert (error["message"], error["httpStatus"]) == (f"Project {UNKNOWN} was not found.", 404)


@pytest.mark.parametrize("name", [name for name, row in TOOLS.items() if row.names])
def test_an_unknown_id_and_one_of_another_project_are_answered_alike(scene: Scene, name: str) -> None:
    row = TOOLS[name]
    good = {key: value for key, value in row.good[0](scene).items() if key != "version"}
    errors = []
    for wrong in (UNKNOWN, scene.foreign[row.names]):
        error = refused(scene, name, {**good, "id": wrong}, category="not_found")
        errors.append((error["message"].replace(str(wrong), "?"), error["httpStatus"], error.get("details")))
    assert errors[0] == errors[1]
    assert errors[0][1] == 404


@pytest.mark.parametrize("name", [name for name, row in TOOLS.items() if row.is_update])
def test_a_stale_version_is_a_conflict_that_shows_what_is_now(scene: Scene, name: str) -> None:
    kind = TOOLS[name].names
    seen = version_of(scene, kind)
    scene.data(name, id=scene.ids[kind], subject="By somebody else")
    error = refused(scene, name, {"id": scene.ids[kind], "subject": "Mine", "version": seen})
    assert (error["httpStatus"], error["details"]["conflict"]) == (409, True)
    current = error["details"]["current"]
    assert current == scene.data(f"get_{kind}", id=scene.ids[kind])
    assert (current["subject"], current["version"] > seen) == ("By somebody else", True)


def test_a_key_that_may_only_read_writes_nothing(scene: Scene) -> None:
    powerless = scene.caller.with_changes(scopes=frozenset({"read"}))
    for name, row in TOOLS.items():
        answer = checked(name, scene.answer(name, row.good[0](scene), powerless))
        assert answer["ok"] is not row.writes, name
        if row.writes:
            assert (answer["error"]["category"], answer["error"]["httpStatus"]) == ("auth", 403)
