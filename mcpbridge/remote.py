"""Tools of another DevFlow: `knowledge_hub_url` and `workflow_engine_url` send their toolsets there over HTTP."""

from functools import lru_cache, partial
from typing import Any

import httpx

from devflow import config
from devflow.errors import DevFlowError, ErrorCode
from devflow.ports import HealthProbe, HealthReport
from mcpbridge.access import MAX_AGENT_NAME
from mcpbridge.threads import run_blocking
from mcpbridge.tooling import Caller, Tool

PROBE_SECONDS = 1.0


def _url_for(toolset: str) -> str:
    gateway = config.current().mcp_gateway
    if toolset == "knowledge":
        return gateway.knowledge_hub_url
    return gateway.workflow_engine_url if toolset in ("workflow", "agents") else ""


def probes() -> dict[str, HealthProbe]:
    """A probe for each other DevFlow that is configured; nobody asks one that is this process."""
    gateway = config.current().mcp_gateway
    urls = {"knowledge_hub": gateway.knowledge_hub_url, "workflow_engine": gateway.workflow_engine_url}
    return {name: partial(_probe, url) for name, url in urls.items() if url}


def _probe(url: str) -> HealthReport:
    try:
        httpx.get(f"{url.rstrip('/')}/healthz", timeout=PROBE_SECONDS).raise_for_status()
    except httpx.HTTPError as exc:
        return HealthReport("down", str(exc), essential=False)
    return HealthReport("up")


def serves(tool: Tool) -> bool:
    """Whether this tool is another DevFlow's to run."""
    return bool(_url_for(tool.toolset))


@lru_cache(maxsize=1)
def _client() -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=64))  # noqa: S113  # the call's deadline


def _project_for(caller: Caller) -> str | None:
    """The project the call is for over there, where our own key may see every project: a key that is restricted here
    is held to what it sees here (blocks). Raises `not_found` for another project."""
    restricted = caller.scope.project_id is not None or caller.scope.user_id is not None
    return caller.project.slug if restricted else caller.project_slug


async def run(tool: Tool, caller: Caller, arguments: dict[str, Any], *, idempotency_key: str | None) -> dict[str, Any]:
    """Call the tool over there for the same agent. Raises its error, or `unavailable` when nobody answers."""
    url = _url_for(tool.toolset).rstrip("/")
    headers = {
        "X-API-Key": config.current().mcp_gateway.backend_api_key.get_secret_value(),
        "X-Agent-Id": caller.agent_name.encode("ascii", "backslashreplace").decode()[:MAX_AGENT_NAME],
    }
    if (project := await run_blocking(_project_for, caller)) is not None:
        headers["X-Project"] = project
    if idempotency_key:
        headers["Idempotency-Key"] = idempotency_key
    body = {"tool": tool.name, "args": arguments, "request_id": caller.trace_id}
    try:
        response = await _client().post(f"{url}/mcp/execute", json=body, headers=headers)
        answer = response.json()
    except (httpx.HTTPError, ValueError) as exc:
        raise DevFlowError(
            ErrorCode.UNAVAILABLE,
            f"The DevFlow that runs {tool.toolset} tools does not answer.",
            suggestion="Try again shortly. If it stays away: is it running at the address that knowledge_hub_url or "
            "workflow_engine_url names in this server's configuration?",
            retry_after_ms=5000,
        ) from exc
    if not isinstance(answer, dict) or "result" not in answer:
        raise DevFlowError(ErrorCode.BACKEND_ERROR, f"The DevFlow that runs {tool.toolset} tools answered oddly.")
    detail = answer.get("detail") or {}
    if answer.get("error") is not None:
        try:
            code = ErrorCode(detail.get("code", ""))
        except ValueError:
            code = ErrorCode.BACKEND_ERROR
        if code is ErrorCode.UNAUTHENTICATED:
            code = ErrorCode.BACKEND_ERROR  # our key there is wrong, not the caller's here
        raise DevFlowError(
            code,
            str(answer["error"]),
            details=detail.get("details"),
            suggestion=detail.get("suggestion"),
            retry_after_ms=detail.get("retry_after_ms"),
        )
    if answer["result"] is None:
        return {"task": None, "reason": detail.get("reason", ""), "advice": detail.get("advice", "")}
    result: dict[str, Any] = answer["result"]
    return result
