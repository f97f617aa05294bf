"""What the machine paths tell: tools, health, metrics; and what stands before all of them."""

import asyncio
from typing import Any

import httpx
import pytest

from devflow import ports
from devflow.drain import draining
from devflow.ports import HealthReport
from tests.api.conftest import NewKey

ENTRY = {
    *("name", "description", "parameters", "output_schema"),
    *("toolset", "intent", "effect", "artifact", "version"),
}
PROBLEM = {"type", "title", "status", "detail", "code", "suggestion", "trace_id", "errors"}


def assert_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    body: dict[str, Any] = response.json()
    assert response.status_code == status, body
    assert response.headers["content-type"] == "application/problem+json"
    assert body.keys() == PROBLEM
    assert (body["status"], body["code"], body["type"]) == (status, code, f"urn:devflow:error:{code}")
    assert body["detail"] and body["suggestion"] and body["title"]
    return body


@pytest.fixture
def fresh_health() -> Any:
    from mcpbridge import health

    known = dict(ports.health.probes)
    health._last = (0.0, {})
    yield
    health._last = (0.0, {})
    ports.health.probes.clear()
    ports.health.probes.update(known)


async def test_discovery_lists_every_tool_with_its_schemas(web: httpx.AsyncClient, as_key: dict[str, str]) -> None:
    response = await web.get("/mcp/tools", headers=as_key)
    tools = response.json()["tools"]
    assert response.status_code == 200
    assert all(entry.keys() == ENTRY for entry in tools)
    echo = next(entry for entry in tools if entry["name"] == "test_echo")
    assert echo["parameters"]["additionalProperties"] is False
    assert echo["parameters"]["properties"]["text"]["description"] == "What to say."
    assert echo["output_schema"]["required"] == ["text"]


async def test_discovery_honours_toolsets_and_exposure(web: httpx.AsyncClient, as_key: dict[str, str]) -> None:
    narrowed = await web.get("/mcp/tools?toolsets=memory", headers=as_key)
    assert {entry["toolset"] for entry in narrowed.json()["tools"]} <= {"memory"}
    search = await web.get("/mcp/tools?expose=search", headers=as_key)
    assert {entry["name"] for entry in search.json()["tools"]} == {"search_tools", "call_tool"}
    assert_problem(await web.get("/mcp/tools?expose=all", headers=as_key), 422, "invalid_input")


async def test_a_reading_key_is_not_shown_tools_that_write(web: httpx.AsyncClient, new_key: NewKey) -> None:
    response = await web.get("/mcp/tools", headers={"X-API-Key": await new_key("read")})
    changing = {entry["name"] for entry in response.json()["tools"] if entry["effect"] != "READ_ONLY"}
    assert changing <= {"gateway_execute", "orchestrate_task", "confirm_plan"}, "these look at what each call would do"


async def test_one_tool_is_found_by_its_name(web: httpx.AsyncClient, as_key: dict[str, str]) -> None:
    assert (await web.get("/mcp/tools/test_echo", headers=as_key)).json()["name"] == "test_echo"
    body = assert_problem(await web.get("/mcp/tools/test_ecko", headers=as_key), 404, "not_found")
    assert "test_echo" in body["suggestion"]


@pytest.mark.parametrize(
    "path",
    [
        *("/mcp/tools", "/mcp/tools/x", "/mcp/metrics", "/metrics", "/mcp/nothing", "/mcp/nothing/here"),
        *("/api/", "/api", "/api/nothing", "/api/v1/nothing/", "/api/schema/", "/api/docs/"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE", "OPTIONS"])
async def test_without_a_key_it_is_401_before_404_and_405(web: httpx.AsyncClient, path: str, method: str) -> None:
    response = await web.request(method, path, headers={"Accept": "image/png"})
    assert_problem(response, 401, "unauthenticated")
    assert response.headers["www-authenticate"] == 'Bearer realm="devflow"'
    bad = await web.request(method, path, headers={"X-API-Key": "dvf_bad_key_000000"})
    assert bad.status_code == 401


async def test_with_a_key_an_unknown_path_is_404_and_another_method_405(
    web: httpx.AsyncClient, as_key: dict[str, str]
) -> None:
    for path in ("/mcp/nothing", "/mcp/execute/more", "/api/nothing", "/api/v1/nothing/"):
        assert_problem(await web.get(path, headers=as_key), 404, "not_found")
        assert_problem(await web.post(path, headers=as_key), 404, "not_found")
    assert_problem(await web.delete("/mcp/tools", headers=as_key), 405, "invalid_input")


@pytest.mark.parametrize("path", ["/mcp/tools", "/mcp/health", "/metrics", "/api/schema/"])
async def test_host_and_origin_are_checked_on_every_machine_path(
    web: httpx.AsyncClient, as_key: dict[str, str], path: str
) -> None:
    assert_problem(await web.get(path, headers={**as_key, "Host": "evil.example"}), 421, "forbidden")
    assert_problem(await web.get(path, headers={**as_key, "Origin": "http://evil.example"}), 403, "forbidden")


async def test_large_bodies_are_413_on_every_path(web: httpx.AsyncClient, as_key: dict[str, str]) -> None:
    large = b"x" * (4 * 1024 * 1024 + 1)
    for path in ("/api/v1/tasks/", "/login/", "/mcp/tools"):
        assert_problem(await web.post(path, content=large, headers=as_key), 413, "too_large")

    async def undeclared() -> Any:
        for _ in range(6):
            yield large[: 1024 * 1024]

    assert_problem(await web.post("/api/v1/tasks/", content=undeclared(), headers=as_key), 413, "too_large")


async def test_health_tells_a_stranger_the_status_alone(
    web: httpx.AsyncClient, as_key: dict[str, str], fresh_health: None
) -> None:
    stranger = await web.get("/mcp/health")
    assert stranger.json() == {"status": "healthy"}
    known = (await web.get("/mcp/health", headers=as_key)).json()
    assert known["status"] == "healthy"
    assert known["backend_services"]["database"] == "up"
    assert (await web.get("/mcp/health", headers={"X-API-Key": "bad"})).status_code == 401


async def test_health_is_degraded_while_a_part_is_down(
    web: httpx.AsyncClient, as_key: dict[str, str], fresh_health: None
) -> None:
    ports.health.add("qdrant", lambda: HealthReport("down", "connection refused"))
    body = (await web.get("/mcp/health", headers=as_key)).json()
    assert (body["status"], body["backend_services"]["qdrant"]) == ("degraded", "down")
    ready = await web.get("/readyz")
    assert (ready.status_code, ready.json()["parts"]["qdrant"]) == (503, "down")
    assert (await web.get("/healthz")).json() == {"status": "alive"}


async def test_readiness_is_503_while_draining(web: httpx.AsyncClient, fresh_health: None) -> None:
    assert (await web.get("/readyz")).status_code == 200
    draining.set()
    try:
        response = await web.get("/readyz")
        assert (response.status_code, response.json()) == (503, {"status": "draining"})
        assert (await web.get("/healthz")).status_code == 200
    finally:
        draining.clear()


async def test_metrics_have_the_keys_of_the_prd_and_percentiles(web: httpx.AsyncClient, as_key: dict[str, str]) -> None:
    await web.post("/mcp/execute", json={"tool": "test_echo", "args": {"text": "x"}}, headers=as_key)
    body = (await web.get("/mcp/metrics", headers=as_key)).json()
    assert {
        *("requests_total", "requests_per_minute", "errors_total", "error_rate", "avg_response_time_ms"),
        *("p50_ms", "p95_ms", "p99_ms", "tools"),
    } <= body.keys()
    assert {"calls", "avg_time_ms", "p50_ms", "p95_ms", "p99_ms"} <= body["tools"]["test_echo"].keys()
    text = await web.get("/metrics", headers=as_key)
    assert text.headers["content-type"].startswith("text/plain")
    assert 'devflow_tool_calls_total{outcome="ok",tool="test_echo"}' in text.text


async def test_calls_of_many_at_once_each_get_their_own_answer(web: httpx.AsyncClient, as_key: dict[str, str]) -> None:
    async def one(number: int) -> None:
        body = {"tool": "test_echo", "args": {"text": str(number)}, "request_id": f"r{number}"}
        answered = (await web.post("/mcp/execute", json=body, headers=as_key)).json()
        assert (answered["request_id"], answered["result"]["text"]) == (f"r{number}", str(number))

    await asyncio.gather(*(one(number) for number in range(50)))
