"""Every tool's own schemas in the OpenAPI document: one component per input and output, one choice per call."""

import copy
from typing import Any

from mcpbridge.registry import registry
from mcpbridge.tooling import Tool

_DEFS = "#/$defs/"


def _hoisted(schema: Any, prefix: str, components: dict[str, Any]) -> Any:
    """A schema whose local `$defs` became components `<prefix>.<name>`."""
    schema = copy.deepcopy(schema)
    definitions = schema.pop("$defs", {}) if isinstance(schema, dict) else {}

    def rewritten(node: Any) -> Any:
        if isinstance(node, dict):
            return {
                name: f"#/components/schemas/{prefix}.{value.removeprefix(_DEFS)}"
                if name == "$ref" and isinstance(value, str) and value.startswith(_DEFS)
                else rewritten(value)
                for name, value in node.items()
            }
        if isinstance(node, list):
            return [rewritten(item) for item in node]
        return node

    for name, definition in definitions.items():
        components[f"{prefix}.{name}"] = rewritten(definition)
    return rewritten(schema)


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


_REQUEST_ID = {"type": ["string", "null"], "maxLength": 255, "description": "Echoed in the answer."}


def _call(tool: Tool) -> dict[str, Any]:
    required = ["tool", "args"] if tool.input_schema.get("required") else ["tool"]
    return {
        "type": "object",
        "title": tool.name,
        "description": tool.description,
        "properties": {
            "tool": {"const": tool.name},
            "args": _ref(f"tool_{tool.name}_input"),
            "request_id": _REQUEST_ID,
        },
        "required": required,
        "additionalProperties": False,
    }


_FAILURE = {
    "type": "object",
    "properties": {
        "request_id": {"type": ["string", "null"]},
        "result": {"type": ["object", "null"], "description": "Of tools with an envelope of their own: `{ok: false}`."},
        "error": {"type": "string"},
        "detail": {
            "type": "object",
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "suggestion": {"type": "string"},
                "details": {"type": "object"},
                "retry_after_ms": {"type": ["integer", "null"]},
                "trace_id": {"type": "string"},
            },
            "required": ["code", "message", "suggestion", "details", "retry_after_ms", "trace_id"],
        },
    },
    "required": ["request_id", "result", "error", "detail"],
}

_PROBLEM = {
    "type": "object",
    "description": "RFC 9457 problem details.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "suggestion": {"type": "string"},
        "trace_id": {"type": "string"},
        "errors": {"type": "object"},
    },
    "required": ["type", "title", "status", "detail", "code", "suggestion", "trace_id", "errors"],
}

_ENTRY = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "description": {"type": "string"},
        "parameters": {"type": "object"},
        "output_schema": {"type": "object"},
        "toolset": {"type": "string"},
        "intent": {"type": "string"},
        "effect": {"type": "string"},
        "artifact": {"type": "string"},
        "version": {"type": "string"},
    },
    "required": [
        *("name", "description", "parameters", "output_schema"),
        *("toolset", "intent", "effect", "artifact", "version"),
    ],
}


def _json(schema: dict[str, Any], description: str = "") -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _failed(kind: str) -> dict[str, Any]:
    media = "application/json" if kind == "CallFailure" else "application/problem+json"
    return {"description": "What went wrong, and what to do.", "content": {media: {"schema": _ref(kind)}}}


def add_tools(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """drf-spectacular's postprocessing hook."""
    described = result.setdefault("components", {}).setdefault("schemas", {})
    components: dict[str, Any] = {"CallFailure": _FAILURE, "Problem": _PROBLEM, "ToolEntry": _ENTRY}
    calls, outputs = [], []
    own = (tool for tool in registry.all() if not tool.backend)
    for tool in sorted(own, key=lambda item: item.name):
        name = f"tool_{tool.name}"
        components[f"{name}_input"] = _hoisted(dict(tool.input_schema), f"{name}_input", components)
        components[f"{name}_output"] = _hoisted(dict(tool.output_schema or {}), f"{name}_output", components)
        components[f"{name}_call"] = _call(tool)
        calls.append(_ref(f"{name}_call"))
        outputs.append(_ref(f"{name}_output"))
    components["Call"] = {"oneOf": calls} if calls else {"type": "object"}
    components["CallAnswer"] = {
        "type": "object",
        "properties": {
            "request_id": {"type": ["string", "null"]},
            "result": {"anyOf": [*outputs, {"type": "null"}]},
            "error": {"type": "null"},
            "detail": {"type": "object", "properties": {"reason": {"type": "string"}}},
            "unread": {"type": "integer"},
        },
        "required": ["request_id", "result", "error"],
    }
    components["Metrics"] = {"type": "object", "properties": {"requests_total": {"type": "integer"}}}
    components["Health"] = {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]}
    if taken := described.keys() & components.keys():
        raise ValueError(f"two components of the OpenAPI document have the same name: {sorted(taken)}")
    described |= components
    _describe(result["paths"])
    return result


_ANSWERS: dict[tuple[str, str], dict[str, Any]] = {
    ("/mcp/tools", "get"): _json(
        {
            "type": "object",
            "properties": {"tools": {"type": "array", "items": _ref("ToolEntry")}},
            "required": ["tools"],
        }
    ),
    ("/mcp/tools/{name}", "get"): _json(_ref("ToolEntry")),
    ("/mcp/execute", "post"): _json(_ref("CallAnswer"), "The tool's answer."),
    ("/mcp/batch", "post"): _json(
        {"type": "array", "items": {"anyOf": [_ref("CallAnswer"), _ref("CallFailure")]}}, "Answers in order."
    ),
    ("/mcp/gateway", "post"): _json(_ref("tool_gateway_execute_output"), "The gateway's envelope."),
    ("/mcp/orchestrate", "post"): _json(_ref("tool_orchestrate_task_output"), "The gateway's envelope."),
    ("/mcp/plans/{plan_id}/confirm", "post"): _json(_ref("tool_confirm_plan_output"), "The gateway's envelope."),
    ("/mcp/health", "get"): _json(_ref("Health")),
    ("/mcp/metrics", "get"): _json(_ref("Metrics")),
}
_CALL_STATUSES = ("400", "401", "403", "404", "409", "412", "413", "415", "422", "429", "500", "502", "503", "504")

_SIGNATURE = {"type": "string", "maxLength": 64, "pattern": r"^[^\x00]*$", "description": "The plan's own."}
_ENVELOPED = (
    ("/mcp/gateway", "gateway_execute", _ref("tool_gateway_execute_input")),
    ("/mcp/orchestrate", "orchestrate_task", _ref("tool_orchestrate_task_input")),
    (
        "/mcp/plans/{plan_id}/confirm",
        "confirm_plan",
        {"type": "object", "properties": {"signature": _SIGNATURE}, "additionalProperties": False},
    ),
)
"""Paths that answer in the gateway's envelope, with the tool behind each and what is sent there."""


def _describe(paths: dict[str, Any]) -> None:
    """Answers of the protocol's own paths, and the failures of all of them."""
    for (path, method), good in _ANSWERS.items():
        if path not in paths:
            continue
        operation = paths[path][method]
        call = path in ("/mcp/execute", "/mcp/batch")
        operation["responses"] = {"200": good}
        if call:
            many = {"type": "array", "items": _ref("Call"), "maxItems": 50}
            schema = _ref("Call") if path == "/mcp/execute" else many
            operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
            operation["parameters"] = [*operation.get("parameters", []), *_CALL_HEADERS]
            operation["responses"] |= dict.fromkeys(_CALL_STATUSES, _failed("CallFailure"))
    for path, tool, schema in _ENVELOPED:
        if path not in paths:
            continue
        operation = paths[path]["post"]
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
        operation["parameters"] = [*operation.get("parameters", []), *_CALL_HEADERS]
        failed = _json(_ref(f"tool_{tool}_output"), "`{ok: false, error}`: what went wrong, and what to do.")
        operation["responses"] |= dict.fromkeys(_CALL_STATUSES, failed)
    for operations in paths.values():
        for method, operation in operations.items():
            if isinstance(operation, dict) and "responses" in operation:
                statuses = ["400", "401", "403", "404", "421", "422", "429"]
                if method in ("post", "put", "patch", "delete"):
                    statuses += ["409", "412", "413", "415"]
                for status in statuses:
                    operation["responses"].setdefault(status, _failed("Problem"))


def _header(name: str, description: str) -> dict[str, Any]:
    text = {"type": "string", "maxLength": 255, "minLength": 1, "pattern": "^[!-~]+$"}
    return {"name": name, "in": "header", "required": False, "description": description, "schema": text}


_CALL_HEADERS = [
    _header("Idempotency-Key", "Repeat a write with the same key: one effect, the same answer."),
    _header("X-Agent-Id", "Which of the key's agents is calling."),
    _header("X-Project", "The project, where the key sees several."),
]
