"""How a backend fails a call, in the one error vocabulary."""

from typing import Any

from mcp.types import ErrorData

from devflow.errors import DevFlowError, ErrorCode


class BackendFaultError(DevFlowError):
    """The backend answered with an error of its own; `error` is what it said, for those who pass it on."""

    def __init__(self, backend: str, error: ErrorData) -> None:
        super().__init__(
            ErrorCode.BACKEND_ERROR,
            f"{backend} answered: {error.message[:2000]}",
            details={"backend_code": error.code},
            suggestion="Read what it says; its tool's parameters may not fit the call.",
        )
        self.error = error


class ToolFailedError(DevFlowError):
    """A backend's tool answered that it failed; `wire` is its result, for those who pass it on."""

    def __init__(self, action: str, why: str, wire: dict[str, Any]) -> None:
        super().__init__(
            ErrorCode.BACKEND_ERROR,
            f"{action} failed: {why[:2000] or 'it does not say why.'}",
            suggestion="Read what it says; correct the parameters and call again.",
        )
        self.wire = wire


class LostError(DevFlowError):
    """The connection to a backend ended while a request was under way: nobody knows whether it had its effect."""

    def __init__(self, backend: str, why: str = "") -> None:
        said = f" Its last words: {why}" if why else ""
        super().__init__(
            ErrorCode.UNAVAILABLE,
            f"The backend {backend} went away before it answered.{said}",
            suggestion="Look at what the call did before you repeat one that changes something.",
            retry_after_ms=1000,
        )


def unavailable(backend: str, why: str, **details: Any) -> DevFlowError:
    return DevFlowError(
        ErrorCode.UNAVAILABLE,
        f"The backend {backend} cannot be reached: {why}",
        details=details,
        suggestion=f"`devflow backend test {backend}` shows what it says; the gateway page has its state.",
        retry_after_ms=5000,
    )


def out_of_time(what: str, seconds: float) -> DevFlowError:
    return DevFlowError(
        ErrorCode.TIMEOUT,
        f"{what} did not finish within {seconds:g} s and was stopped.",
        suggestion="Ask for less in one call, or allow more with constraints.timeout_ms (up to 600000).",
    )
