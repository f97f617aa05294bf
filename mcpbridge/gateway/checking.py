"""What a backend may be told to be: every setting checked by itself, then against its transport. No rows."""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from devflow.errors import DevFlowError, ErrorCode
from mcpbridge.gateway.policy import MAX_TIMEOUT_MS
from mcpbridge.models.gateway import BACKEND_ID
from mcpbridge.tooling import Effect, Intent

OWN_ID = "devflow"
LEAST_MEMORY_MB = 2048

_NO_CONTROL = r"^[^\x00-\x1f\x7f]*$"
_VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
_HEADER = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"
_FILLED = re.compile(r"\$\{([^}]*)\}")

Line = Annotated[str, Field(max_length=500, pattern=_NO_CONTROL)]
Argument = Annotated[str, Field(max_length=4000, pattern=r"^[^\x00]*$")]
Value = Annotated[str, Field(max_length=10_000, pattern=r"^[^\x00]*$")]
HeaderValue = Annotated[str, Field(max_length=10_000, pattern=r"^[\t\x20-\x7e\xa0-\xff]*$")]
Variable = Annotated[str, Field(max_length=200, pattern=_VARIABLE)]
Header = Annotated[str, Field(max_length=200, pattern=_HEADER)]
ActionName = Annotated[str, Field(min_length=1, max_length=128, pattern=_NO_CONTROL)]
Whole = Field(strict=True)


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Asked(_Part):
    """An action asked beside a call; a text `{name}` in `params` stands for a parameter of the call."""

    action: ActionName
    params: dict[str, Any] = Field(default_factory=dict, max_length=50)


class AskedForCount(Asked):
    limit: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] | None = None


class Settings(_Part):
    """Everything that can be set of a backend. `env` and `headers` are in the clear here."""

    id: Annotated[str, Field(pattern=BACKEND_ID)]
    display_name: Annotated[str, Field(max_length=100, pattern=_NO_CONTROL)] = ""
    transport: Literal["stdio", "http", "sse", "agent_cli"] = "stdio"
    command: Line = ""
    args: Annotated[list[Argument], Field(max_length=200)] = []
    env: Annotated[dict[Variable, Value], Field(max_length=100)] = {}
    inherit_env: Annotated[list[Variable], Field(max_length=100)] = []
    url: Line = ""
    wraps: Annotated[str, Field(pattern=rf"{BACKEND_ID}|^$")] = ""
    headers: Annotated[dict[Header, HeaderValue], Field(max_length=100)] = {}
    version: Annotated[str, Field(max_length=64, pattern=_NO_CONTROL)] = ""
    isolation: Literal["agent", "subprocess"] = "agent"
    timeouts: dict[Intent, Annotated[int, Field(strict=True, ge=1, le=MAX_TIMEOUT_MS)]] = {}
    concurrency: Annotated[int, Field(strict=True, ge=1, le=64)] = 8
    memory_mb: Annotated[int, Field(strict=True, ge=0, le=1024 * 1024)] = 4096
    warm_spares: Annotated[int, Field(strict=True, ge=0, le=8)] = 0
    sandbox: Annotated[bool, Whole] = False
    may_ask: Annotated[bool, Whole] = True
    allowed_roots: Annotated[list[Annotated[str, Field(max_length=4096)]], Field(max_length=50)] = []
    activation: Asked | None = None
    is_enabled: Annotated[bool, Whole] = True

    @property
    def is_process(self) -> bool:
        return self.transport in ("stdio", "agent_cli")


class ActionSettings(_Part):
    """What an administrator says of an action over what its backend says. An empty override: as the backend says."""

    intent_override: Intent | Literal[""] = ""
    effect_override: Effect | Literal[""] = ""
    artifact: Literal["TEXT", "JSON", "CODE_PY", "CODE_TS", "PATCH", "BINARY"] = "JSON"
    aliases: Annotated[list[ActionName], Field(max_length=20)] = []
    lookup: Asked | None = None
    references: AskedForCount | None = None
    is_enabled: Annotated[bool, Whole] = True
    is_federated: Annotated[bool, Whole] = False


_WORDS = {
    "extra_forbidden": "unknown field",
    "missing": "is required",
    "string_pattern_mismatch": "has characters it may not have",
    "string_unicode": "lone surrogates are not text",
}


def _refused(reasons: Mapping[str, str]) -> DevFlowError:
    first, reason = next(iter(reasons.items()))
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return DevFlowError(
        ErrorCode.INVALID_INPUT,
        f"{first}: {reason}{more}",
        details=reasons,
        suggestion="Correct the named fields; docs/gateway.md shows a whole backend of each transport.",
    )


def _reasons(exc: ValidationError) -> dict[str, str]:
    found: dict[str, str] = {}
    for error in exc.errors(include_url=False, include_input=False):
        where = ".".join(ascii(part)[1:-1] if isinstance(part, str) else str(part) for part in error["loc"])
        found.setdefault(where or "backend", _WORDS.get(error["type"], error["msg"]))
    if found.get("id"):
        found["id"] = "1 to 64 of A-Z a-z 0-9 _ and -"
    return found


def checked(given: Mapping[str, Any]) -> Settings:
    """Raises `invalid_input` naming each field that is refused, and why."""
    try:
        settings = Settings.model_validate(dict(given))
    except ValidationError as exc:
        raise _refused(_reasons(exc)) from None
    if reasons := _faults(settings):
        raise _refused(reasons)
    return settings


def checked_action(given: Mapping[str, Any]) -> ActionSettings:
    """Raises `invalid_input`, as `checked`."""
    try:
        return ActionSettings.model_validate(dict(given))
    except ValidationError as exc:
        raise _refused(_reasons(exc)) from None


def _faults(settings: Settings) -> dict[str, str]:
    """What does not fit together, by field."""
    found: dict[str, str] = {}
    if settings.id.lower() == OWN_ID:
        found["id"] = "devflow is the name of DevFlow's own tools"
    if settings.is_process:
        if not settings.command.strip():
            found["command"] = "is required for a process"
        if settings.url:
            found["url"] = f"a {settings.transport} backend has a command, no url"
        if settings.headers:
            found["headers"] = f"a {settings.transport} backend is given env, no headers"
    else:
        found |= _faults_of_url(settings.url)
        for name in ("command", "args", "env", "inherit_env"):
            if getattr(settings, name):
                found[name] = f"a {settings.transport} backend has a url, no process"
        if settings.isolation == "subprocess":
            found["isolation"] = "subprocess is for backends that are processes of this server"
    if settings.transport != "agent_cli":
        if settings.wraps:
            found["wraps"] = "is for agent_cli: the backend whose server the agent is given"
    else:
        if settings.wraps in ("", settings.id):
            found["wraps"] = "is required: the id of the backend whose server the agent is given"
        missing = [part for part in ("{config}", "{prompt}") if not any(part in item for item in settings.args)]
        if missing:
            found["args"] = f"an agent's command line needs {' and '.join(missing)} among its arguments"
    for field, names in (("env", settings.env), ("inherit_env", settings.inherit_env)):
        if ours := next((name for name in names if name.startswith("DEVFLOW_")), None):
            found[field] = f"{ours}: this server's own settings are never given away"
    for field, values in (("env", settings.env.values()), ("headers", settings.headers.values())):
        if (fault := _fault_of_variables(values)) and field not in found:
            found[field] = fault
    if 0 < settings.memory_mb < LEAST_MEMORY_MB:
        found["memory_mb"] = f"0 (not limited) or at least {LEAST_MEMORY_MB}: Node aborts with less"
    for root in settings.allowed_roots:
        if fault := _fault_of_root(root):
            found["allowed_roots"] = f"{root[:200]}: {fault}"
            break
    return found


def _faults_of_url(url: str) -> dict[str, str]:
    if not url:
        return {"url": "is required: where the server is reached, such as http://127.0.0.1:8000/mcp"}
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return {"url": "is no address"}
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isascii() or " " in url:
        return {"url": "begins with http:// or https:// and names a host"}
    if parts.username is not None or parts.password is not None:
        return {"url": "holds a user or password: send them as a header (Authorization), which is kept sealed"}
    return {}


def _fault_of_variables(values: Any) -> str:
    for value in values:
        for name in _FILLED.findall(value):
            if not re.fullmatch(_VARIABLE, name):
                return "${...} names one environment variable of this server, such as ${GITHUB_TOKEN}"
            if name.startswith("DEVFLOW_"):
                return f"{name}: this server's own settings are never given away"
    return ""


def _fault_of_root(root: str) -> str:
    try:
        path = Path(root)
        if not path.is_absolute():
            return "is no absolute path"
        return "" if path.is_dir() else "is no directory of this server"
    except (OSError, ValueError):
        return "cannot be looked at"


def warnings_of(settings: Settings) -> list[str]:
    """What is allowed and still worth a second look."""
    found = []
    if settings.transport == "stdio" and (package := unpinned_package(settings.command, settings.args)):
        found.append(
            f"{package} is not pinned to a version: each start may run other code. Write "
            f"{package}{'@' if _program(settings.command) == 'npx' else '=='}<version>."
        )
    if settings.is_process and settings.command and shutil.which(settings.command) is None:
        found.append(f"{settings.command} is not found on this server: install it, or give its whole path.")
    if not settings.is_process and settings.url.startswith("http://") and settings.headers:
        host = urlsplit(settings.url).hostname or ""
        if host not in ("localhost", "::1") and not host.startswith("127."):
            found.append("Its headers travel unencrypted: the address begins with http://.")
    return found


def _program(command: str) -> str:
    return PurePath(command).name.lower().removesuffix(".exe").removesuffix(".cmd")


def unpinned_package(command: str, args: Sequence[str]) -> str:
    """The package that npx or uvx would fetch in whatever version is newest; empty: none."""
    program = _program(command)
    if program not in ("npx", "uvx"):
        return ""
    takes_package = ("-p", "--package") if program == "npx" else ("--from",)
    takes_value = () if program == "npx" else ("--with", "--python", "--index-url", "--index", "--with-requirements")
    package, index = "", 0
    while index < len(args):
        item = args[index]
        option, equals, value = item.partition("=")
        if option in takes_package:
            package = value if equals else (args[index + 1] if index + 1 < len(args) else "")
            break
        if item in takes_value:
            index += 1
        elif not item.startswith("-"):
            package = item
            break
        index += 1
    if not package or package.startswith((".", "/", "git+", "http:", "https:")):
        return ""
    name, _, version = package[1:].partition("@")
    name = package[0] + name
    is_pinned = bool(version) and version != "latest"
    if program == "uvx":
        is_pinned = is_pinned or "==" in package
    return "" if is_pinned else name
