"""The one error vocabulary and the one table that maps it to every dialect.

Every layer raises `DevFlowError`; only `mcpbridge.envelopes` turns it into a shape a client sees.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any


class ErrorCode(StrEnum):
    INVALID_INPUT = "invalid_input"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    PRECONDITION_FAILED = "precondition_failed"
    RATE_LIMITED = "rate_limited"
    TIMEOUT = "timeout"
    UNAVAILABLE = "unavailable"
    BACKEND_ERROR = "backend_error"
    TOO_LARGE = "too_large"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class ErrorMapping:
    """How one error code looks in each dialect.

    `http`: status on REST paths. `taiga`: the category of the taiga dialect, `taiga_http` its httpStatus.
    `gateway`: the error type of the gateway dialect, `recoverable` whether trying again can help.
    `jsonrpc`: the code for methods of ours (a tool's failure is a tool result instead).
    """

    http: int
    taiga: str
    gateway: str
    recoverable: bool
    jsonrpc: int
    suggestion: str
    taiga_http: int = 0

    @property
    def taiga_status(self) -> int:
        return self.taiga_http or self.http


ERROR_TABLE: Mapping[ErrorCode, ErrorMapping] = MappingProxyType(
    {
        ErrorCode.INVALID_INPUT: ErrorMapping(
            422, "validation", "VALIDATION", True, -32602, "Correct the named arguments and call again.", taiga_http=400
        ),
        ErrorCode.UNAUTHENTICATED: ErrorMapping(
            401,
            "auth",
            "PERMISSION",
            False,
            -32001,
            "Send a live API key in the X-API-Key header or as a Bearer token; `devflow createkey` makes one.",
        ),
        ErrorCode.FORBIDDEN: ErrorMapping(
            403, "auth", "PERMISSION", False, -32010, "Use a key with the scope this needs, or ask an administrator."
        ),
        ErrorCode.NOT_FOUND: ErrorMapping(
            404, "not_found", "VALIDATION", True, -32602, "Check the id; list what exists and call again."
        ),
        ErrorCode.CONFLICT: ErrorMapping(
            409, "validation", "VALIDATION", True, -32011, "Read the current state and decide again."
        ),
        ErrorCode.PRECONDITION_FAILED: ErrorMapping(
            412, "validation", "PERMISSION", True, -32012, "Meet the named condition first, then call again."
        ),
        ErrorCode.RATE_LIMITED: ErrorMapping(
            429, "rate_limit", "PERMISSION", True, -32013, "Wait for the stated time, then call again."
        ),
        ErrorCode.TIMEOUT: ErrorMapping(
            504, "network", "TIMEOUT", True, -32014, "Try again with less work in one call."
        ),
        ErrorCode.UNAVAILABLE: ErrorMapping(
            503, "network", "MCP_ERROR", True, -32015, "The part this needs is away for now; try again shortly."
        ),
        ErrorCode.BACKEND_ERROR: ErrorMapping(
            502, "server", "MCP_ERROR", False, -32016, "The backend failed; look at its page before trying again."
        ),
        ErrorCode.TOO_LARGE: ErrorMapping(413, "validation", "VALIDATION", True, -32602, "Send less in one call."),
        ErrorCode.INTERNAL: ErrorMapping(
            500, "server", "UNKNOWN", False, -32603, "Give the trace id to whoever runs this server."
        ),
    }
)


class DevFlowError(Exception):
    """A failure with a code from the table and a message that says what to do next.

    `details` maps a field to the reason it was refused, or names the facts behind the message.
    `retry_after_ms` is only set where waiting helps.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        suggestion: str | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details: Mapping[str, Any] = details or {}
        self.suggestion = suggestion or ERROR_TABLE[code].suggestion
        self.retry_after_ms = retry_after_ms

    def __str__(self) -> str:
        return self.message


def invalid(message: str, /, **details: Any) -> DevFlowError:
    """An `invalid_input` whose keyword arguments become `details` (field to reason)."""
    return DevFlowError(ErrorCode.INVALID_INPUT, message, details=details)


def not_found(kind: str, identifier: object, *, suggestion: str | None = None) -> DevFlowError:
    """A `not_found` that reads the same for an unknown id and for another project's."""
    return DevFlowError(ErrorCode.NOT_FOUND, f"{kind} {identifier} was not found.", suggestion=suggestion)


def conflict(message: str, /, *, suggestion: str | None = None, **details: Any) -> DevFlowError:
    return DevFlowError(ErrorCode.CONFLICT, message, details=details, suggestion=suggestion)


def forbidden(message: str, *, suggestion: str | None = None) -> DevFlowError:
    return DevFlowError(ErrorCode.FORBIDDEN, message, suggestion=suggestion)


MOST_SAID = 1000


def taiga_error(error: DevFlowError) -> dict[str, Any]:
    """A failure as the agile tools show it, without its trace: `{category, message, httpStatus, ...}`.

    Texts are cut at `MOST_SAID` characters. The document's words for a rate limit are kept; what DevFlow would say
    goes into `details`, as advice does.
    """
    row = ERROR_TABLE[error.code]
    details = {name[:MOST_SAID]: _cut(value) for name, value in error.details.items()}
    if error.suggestion != row.suggestion:
        details["advice"] = _cut(error.suggestion)
    message = _cut(error.message)
    if error.code is ErrorCode.RATE_LIMITED:
        details["limit"], message = message, "Rate limited"
    if error.code is ErrorCode.CONFLICT:
        details["conflict"] = True
    shape: dict[str, Any] = {"category": row.taiga, "message": message, "httpStatus": row.taiga_status}
    if error.retry_after_ms is not None:
        shape["retryAfterMs"] = error.retry_after_ms
    return shape | ({"details": details} if details else {})


def _cut(value: Any) -> Any:
    return value[: MOST_SAID - 1] + "…" if isinstance(value, str) and len(value) > MOST_SAID else value
