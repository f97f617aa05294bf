"""The shapes of a failed REST answer: problem details (RFC 9457), and the PRD's `{request_id, result, error}`.

Which one a path speaks is decided here alone: `/mcp/execute` and `/mcp/batch` answer in the PRD's shape whatever
happens, the gateway's paths in its envelope, everything else in problem details.
"""

import logging
import uuid
from math import ceil
from typing import Any

from django.core.exceptions import (
    PermissionDenied,
    RequestDataTooBig,
    TooManyFieldsSent,
    TooManyFilesSent,
    ValidationError,
)
from django.http import Http404
from django.http.multipartparser import MultiPartParserError
from rest_framework import exceptions
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.views import set_rollback

from devflow.errors import ERROR_TABLE, DevFlowError, ErrorCode
from mcpbridge.access import CHALLENGE
from mcpbridge.envelopes import error_detail, gateway_failure

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
PRD_PATHS = frozenset({"/mcp/execute", "/mcp/batch"})
GATEWAY_PATHS = frozenset({"/mcp/gateway", "/mcp/orchestrate"})
PLANS = "/mcp/plans/"

TITLES = {
    400: "Malformed request",
    404: "Not found",
    405: "Method not allowed",
    406: "Not acceptable",
    409: "Conflict",
    412: "Precondition failed",
    413: "Too large",
    415: "Unsupported media type",
    421: "Misdirected request",
    422: "Invalid input",
    429: "Too many requests",
    401: "A valid key is needed",
    403: "Forbidden",
    500: "Server error",
    502: "Backend error",
    503: "Unavailable",
    504: "Timeout",
}


def new_trace_id() -> str:
    return uuid.uuid4().hex


def problem(error: DevFlowError, *, status: int | None = None, trace_id: str = "") -> dict[str, Any]:
    """Problem details of an error; `status` overrides the table's."""
    status = status or ERROR_TABLE[error.code].http
    return {
        "type": f"urn:devflow:error:{error.code.value}",
        "title": TITLES.get(status, "Error"),
        "status": status,
        "detail": error.message,
        "code": error.code.value,
        "suggestion": error.suggestion,
        "trace_id": trace_id or new_trace_id(),
        "errors": dict(error.details),
    }


def prd_failure(error: DevFlowError, *, request_id: str | None = None, trace_id: str = "") -> dict[str, Any]:
    """The PRD's failed answer, for faults found before there was a call."""
    return {
        "request_id": request_id,
        "result": None,
        "error": error.message,
        "detail": error_detail(error, trace_id or new_trace_id()),
    }


def failure(
    path: str, error: DevFlowError, *, status: int | None = None, request_id: str | None = None
) -> tuple[int, str, dict[str, Any], dict[str, str]]:
    """Status, media type, body and headers of a failed answer on `path`."""
    status = status or ERROR_TABLE[error.code].http
    headers = retry_header(error)
    if status == 401:
        headers["WWW-Authenticate"] = CHALLENGE
    if path in PRD_PATHS:
        return status, "application/json", prd_failure(error, request_id=request_id), headers
    if path in GATEWAY_PATHS or path.startswith(PLANS):
        return status, "application/json", gateway_failure(error, "READ_ONLY", new_trace_id()), headers
    return status, MEDIA_TYPE, problem(error, status=status), headers


def retry_header(error: DevFlowError | None) -> dict[str, str]:
    if error is None or error.retry_after_ms is None:
        return {}
    return {"Retry-After": str(max(1, ceil(error.retry_after_ms / 1000)))}


def _reasons(detail: Any, where: str = "") -> dict[str, str]:
    """DRF's nested field errors as one flat map of field to reason."""
    if isinstance(detail, dict):
        found: dict[str, str] = {}
        for name, item in detail.items():
            found |= _reasons(item, f"{where}.{name}" if where else str(name))
        return found
    if isinstance(detail, list):
        if all(not isinstance(item, dict | list) for item in detail):
            return {where or "non_field_errors": " ".join(str(item) for item in detail)}
        found = {}
        for index, item in enumerate(detail):
            found |= _reasons(item, f"{where}.{index}" if where else str(index))
        return found
    return {where or "non_field_errors": str(detail)}


def _first(reasons: dict[str, str]) -> str:
    name, reason = next(iter(reasons.items()), ("", "is not valid"))
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return (reason if name in ("", "non_field_errors") else f"{name}: {reason}") + more


def _invalid(reasons: dict[str, str]) -> DevFlowError:
    return DevFlowError(ErrorCode.INVALID_INPUT, _first(reasons), details=reasons)


_BY_STATUS = {401: ErrorCode.UNAUTHENTICATED, 403: ErrorCode.FORBIDDEN, 404: ErrorCode.NOT_FOUND}


def as_error(exc: Exception) -> tuple[DevFlowError, int | None]:
    """What went wrong in our own words, and the HTTP status where the table's would be wrong."""
    if isinstance(exc, DevFlowError):
        return exc, None
    if isinstance(exc, Http404):
        return DevFlowError(ErrorCode.NOT_FOUND, str(exc) or "There is nothing here."), None
    if isinstance(exc, PermissionDenied):
        return DevFlowError(ErrorCode.FORBIDDEN, str(exc) or "You may not do this."), None
    if isinstance(exc, exceptions.ValidationError):
        return _invalid(_reasons(exc.detail)), None
    if isinstance(exc, ValidationError):
        return _invalid(_reasons(getattr(exc, "message_dict", exc.messages))), None
    if isinstance(exc, exceptions.NotAuthenticated):
        return DevFlowError(ErrorCode.UNAUTHENTICATED, "A valid API key (or a login, in the browser) is needed."), None
    if isinstance(exc, RequestDataTooBig | TooManyFieldsSent | TooManyFilesSent):
        return DevFlowError(ErrorCode.TOO_LARGE, "More fields, files or text than one form may have."), None
    if isinstance(exc, MultiPartParserError):  # met by the check of the CSRF token, before DRF looks
        return DevFlowError(ErrorCode.INVALID_INPUT, f"Multipart form parse error - {exc}"), 400
    if isinstance(exc, exceptions.ParseError):
        message, is_form = str(exc.detail).rstrip("."), str(exc.detail).startswith("Multipart")
        message += "" if is_form else ". Send one JSON document (UTF-8)."
        return DevFlowError(ErrorCode.INVALID_INPUT, message), 400
    if isinstance(exc, exceptions.Throttled):
        seconds = getattr(exc, "wait", None)
        wait = None if seconds is None else int(seconds * 1000)
        return DevFlowError(ErrorCode.RATE_LIMITED, str(exc.detail), retry_after_ms=wait), None
    if isinstance(exc, exceptions.MethodNotAllowed):
        return DevFlowError(
            ErrorCode.INVALID_INPUT, str(exc.detail), suggestion="The Allow header names the methods there are."
        ), 405
    if isinstance(exc, exceptions.UnsupportedMediaType):
        return DevFlowError(
            ErrorCode.INVALID_INPUT, str(exc.detail), suggestion="Send JSON with Content-Type: application/json."
        ), 415
    if isinstance(exc, exceptions.APIException):
        status = exc.status_code
        return DevFlowError(_BY_STATUS.get(status, ErrorCode.INVALID_INPUT), str(exc.detail)), status
    trace_id = new_trace_id()
    logger.error("a request failed", exc_info=exc, extra={"trace_id": trace_id})
    return DevFlowError(ErrorCode.INTERNAL, f"Something went wrong on the server (trace {trace_id})."), None


def problem_handler(exc: Exception, context: dict[str, Any]) -> Response:
    """DRF's exception handler: every failure of every REST view, in the shape its path speaks."""
    error, status = as_error(exc)
    set_rollback()
    request, view = context["request"], context["view"]
    status, media_type, body, headers = failure(
        request.path, error, status=status, request_id=getattr(view, "request_id", None)
    )
    if isinstance(exc, exceptions.MethodNotAllowed):
        headers["Allow"] = ", ".join(view.allowed_methods)
    browsed = getattr(getattr(request, "accepted_renderer", None), "format", "") == "api"
    if not browsed:  # also where the view itself speaks HTML or YAML
        request.accepted_renderer, request.accepted_media_type = JSONRenderer(), media_type
    return Response(body, status=status, headers=headers, content_type=None if browsed else media_type)
