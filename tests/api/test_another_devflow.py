"""Tools that another DevFlow runs, while it is away: the server starts, serves and says so."""

import httpx

from tests.conftest import StartServer


def test_an_absent_workflow_engine_is_said_by_calls_and_health_and_does_not_stop_the_start(
    start_server: StartServer,
) -> None:
    server = start_server(env={"DEVFLOW_WORKFLOW_ENGINE_URL": "http://127.0.0.1:1"})
    with httpx.Client(base_url=server.url, headers={"X-API-Key": server.key}) as client:
        answer = client.post("/mcp/execute", json={"tool": "get_kanban_board", "args": {}})
        assert answer.status_code == 503
        assert answer.json()["detail"]["code"] == "unavailable"
        assert "workflow_engine_url" in answer.json()["detail"]["suggestion"]
        health = client.get("/mcp/health").json()
        assert (health["status"], health["backend_services"]["workflow_engine"]) == ("degraded", "down")
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["parts"]["workflow_engine"]) == (200, "down")
