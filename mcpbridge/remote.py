"""Tools of another DevFlow: `knowledge_hub_url` and `workflow_engine_url` send their toolsets there over HTTP."""

from functools import lru_cache
from typing import Any

import httpx

from devflow import config
from devflow.errors import DevFlowError, ErrorCode
from mcpbridge.tooling import Caller, Tool


def _url_for(toolset: str) -> str:
    gateway = config.current().mcp_gateway
    if toolset == "knowledge":
        return gateway.knowledge_hub_url
    return gateway.workflow_engine_url if toolset in ("workflow", "agents") else ""


def serves(tool: Tool) -> bool:
    """Whether this tool is another DevFlow's to run."""
    return bool(_url_for(tool.toolset))


@lru_cache(maxsize=1)
def _client() -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=64))  # noqa: S113  # the call's deadline


async def run(tool: Tool, caller: Caller, arguments: dict[str, Any], *, idempotency_key: str | None) -> dict[str, Any]:
    """Call the tool over there for the same agent. Raises its error, or `unavailable` when nobody answers."""
    url = _url_for(tool.toolset).rstrip("/")
    headers = {
        "X-API-Key": config.current().mcp_gateway.backend_api_key.get_secret_value(),
        "X-Agent-Id": caller.agent_name,
    }
    if caller.project_slug:
        headers["X-Project"] = caller.project_slug
    if idempotency_key:
        headers["Idempotency-Key"] = idempotency_key
    body = {"tool": tool.name, "args": arguments, "request_id": caller.trace_id}
    try:
        response = await _client().post(f"{url}/mcp/execute", json=body, headers=headers)
        answer = response.json()
    except (httpx.HTTPError, ValueError) as exc:
        raise DevFlowError(
            ErrorCode.UNAVAILABLE, f"The DevFlow that runs {tool.toolset} tools does not answer.", retry_after_ms=5000
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
