"""The OpenAPI document: valid, complete, and true."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from django.core.handlers.wsgi import WSGIHandler
from django.test import Client
from drf_spectacular.validation import validate_schema
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance

from mcpbridge import access
from mcpbridge.audit import recorder
from mcpbridge.models import ApiKey
from mcpbridge.registry import registry
from workflow.services import projects

JSON = "application/json"

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def headers() -> dict[str, str]:
    access.keyring.forget()
    return {"X-API-Key": ApiKey.objects.issue(name="docs", scopes=["read", "write", "admin"], rate_per_minute=0)[1]}


@pytest.fixture
def document(headers: dict[str, str]) -> dict[str, Any]:
    document: dict[str, Any] = (
        Client(headers=headers).get("/api/schema/", headers={"Accept": "application/json"}).json()
    )
    return document


def test_the_document_is_valid_openapi_3_1(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    validate_schema(document)


def test_every_tool_has_its_own_input_and_output_schema(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    own = [tool for tool in registry.all() if not tool.backend]
    for tool in own:
        assert schemas[f"tool_{tool.name}_input"]["additionalProperties"] is False
        assert schemas[f"tool_{tool.name}_call"]["properties"]["tool"] == {"const": tool.name}
        assert f"tool_{tool.name}_output" in schemas
    named = {item["$ref"].rpartition("/")[2] for item in schemas["Call"]["oneOf"]}
    assert named == {f"tool_{tool.name}_call" for tool in own}
    body = document["paths"]["/mcp/execute"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/Call"}


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    def references(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                yield node["$ref"]
            for item in node.values():
                yield from references(item)
        elif isinstance(node, list):
            for item in node:
                yield from references(item)

    for reference in references(document):
        at: Any = document
        for part in reference.removeprefix("#/").split("/"):
            at = at[part]


def test_the_document_and_its_page_are_not_for_strangers(client: Client, document: dict[str, Any]) -> None:
    assert client.get("/api/schema/").status_code == 401
    assert client.get("/api/docs/").status_code == 401


def test_swagger_is_served_from_here_without_inline_scripts(headers: dict[str, str]) -> None:
    response = Client(headers=headers).get("/api/docs/")
    page = response.content.decode()
    assert response.status_code == 200
    assert "https://" not in page
    assert "<script>" not in page
    policy = response.headers["Content-Security-Policy"]
    assert "script-src 'self';" in f"{policy};"
    assert "style-src 'self' 'unsafe-inline'" in policy
    assert "drf_spectacular_sidecar" in page


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/mcp/tools", "/mcp/execute", "/api/v1/"])
def test_what_is_documented_is_what_happens(document: dict[str, Any], headers: dict[str, str], path: str) -> None:
    projects.create(slug="only", name="Only")
    done = Client(headers=headers).post("/mcp/execute", {"tool": "heartbeat", "args": {}}, content_type=JSON)
    assert done.status_code == 200
    recorder.flush()  # so that there is a logged call to list
    calls = document["components"]["schemas"]["Call"]
    calls["oneOf"] = [item for item in calls["oneOf"] if "/tool_test_" not in item["$ref"]]  # those fail on purpose
    schema = schemathesis.openapi.from_dict(document)
    schema.app = WSGIHandler()
    chosen = schema.include(path_regex=f"^{path}")

    for result in chosen.get_all_operations():
        operation = result.ok()

        @settings(max_examples=4, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def try_it(case: Any) -> None:
            case.call_and_validate(
                headers=headers, checks=[not_a_server_error, response_schema_conformance], timeout=30
            )

        try_it()
