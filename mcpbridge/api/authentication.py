"""Keys on REST paths, as DRF sees them: `request.auth` is the `Identity`, `request.user` its holder."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from devflow.errors import DevFlowError, ErrorCode
from mcpbridge import access, doors
from mcpbridge.access import MAX_AGENT_NAME, Identity
from mcpbridge.doors import DOOR, Door


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """The `request.user` of a key: authenticated, but no row of the user table. `username` is the calling agent."""

    username: str
    pk: int | None = None
    is_authenticated: bool = True
    is_anonymous: bool = False
    is_active: bool = True
    is_staff: bool = False
    is_superuser: bool = False

    def __str__(self) -> str:
        return self.username

    def get_username(self) -> str:
        return self.username


def door_in(request: Request) -> Door | None:
    """The door an ASGI request came through; None where Django was called directly (its test client, WSGI)."""
    return getattr(request._request, "scope", {}).get(DOOR)


def headers_of(request: Request) -> dict[str, str]:
    """The request's headers with lower-case names."""
    door = door_in(request)
    return door.headers if door is not None else {name.lower(): value for name, value in request.headers.items()}


def too_many_refusals(wait: int) -> DevFlowError:
    return DevFlowError(ErrorCode.RATE_LIMITED, "Too many refused keys from this address.", retry_after_ms=wait * 1000)


def _held(identity: Identity, headers: Mapping[str, str]) -> tuple[KeyHolder, Identity]:
    named = headers.get("x-agent-id")
    return KeyHolder(access.agent_name(named) if named else f"{identity.name}-agent"[:MAX_AGENT_NAME]), identity


class ApiKeyAuthentication(BaseAuthentication):
    """`X-API-Key` or `Authorization: Bearer`. A presented key that is not live is refused, never ignored."""

    def authenticate(self, request: Request) -> tuple[KeyHolder, Identity] | None:
        door = door_in(request)
        if door is not None:
            return _held(door.identity, door.headers)
        headers = headers_of(request)
        if "x-api-key" not in headers and "authorization" not in headers:
            return None
        try:
            identity = access.identify_blocking(access.key_in(headers))
        except DevFlowError as exc:
            if exc.code is ErrorCode.UNAUTHENTICATED and (
                wait := doors.failed_too_often(request.META.get("REMOTE_ADDR", ""))
            ):
                raise too_many_refusals(wait) from None
            raise
        return _held(identity, headers)

    def authenticate_header(self, request: Request) -> str:
        return access.CHALLENGE


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # untyped hook
    """How OpenAPI describes the two places of a key."""

    target_class = ApiKeyAuthentication
    name = ["apiKey", "bearer"]

    def get_security_definition(self, auto_schema: Any) -> list[dict[str, Any]]:
        return [
            {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            {"type": "http", "scheme": "bearer", "bearerFormat": "dvf_<id>_<secret>_<checksum>"},
        ]
