"""A model behind OpenAI's Chat Completions: one question with tools, one list of calls. Nothing it says is run here.

Bounded in time and size; the key appears in no message and no log.
"""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from devflow import config
from devflow.digits import whole
from devflow.errors import DevFlowError, ErrorCode

if TYPE_CHECKING:
    import ssl

OPENAI = "https://api.openai.com/v1"
DEFAULT_MODEL = "gpt-4o-mini"
MOST_BYTES = 1024 * 1024
MAX_ARGUMENTS = 100_000
_KEY = re.compile(r"\b(?:sk|pk)-[\w-]{6,}|(?i:bearer)\s+\S+")


class ModelFaultError(DevFlowError):
    """The model could not be asked (`is_away`), or its answer cannot be used."""

    def __init__(self, message: str, *, is_away: bool = False, retry_after_ms: int | None = None) -> None:
        super().__init__(
            ErrorCode.UNAVAILABLE if is_away else ErrorCode.BACKEND_ERROR,
            f"The model {message}",
            suggestion="Name the action yourself (list_gateway_actions shows them), or try again later.",
            retry_after_ms=retry_after_ms,
        )
        self.is_away = is_away


@dataclass(frozen=True, slots=True)
class Call:
    """One function the model wants called; `arguments` None: what it wrote is no JSON object."""

    name: str
    arguments: dict[str, Any] | None
    written: str


@dataclass(frozen=True)
class Model:
    name: str
    base_url: str
    key: str = field(default="", repr=False)
    seconds: float = 15.0

    async def ask(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[Call]:
        """The calls of its answer, maybe none. Raises `ModelFaultError`."""
        body = {
            "model": self.name,
            "messages": list(messages),
            "tools": list(tools),
            "tool_choice": "required",
            "parallel_tool_calls": False,
        }
        try:
            async with asyncio.timeout(self.seconds):
                status, headers, content = await self._post(body)
        except (TimeoutError, httpx.TimeoutException):
            raise ModelFaultError(f"did not answer within {self.seconds:g} s.", is_away=True) from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as exc:
            raise ModelFaultError(f"cannot be reached ({type(exc).__name__}).", is_away=True) from None
        if status != httpx.codes.OK:
            is_away = status == 429 or status >= 500
            said = _said(content, self.key)
            raise ModelFaultError(
                f"answered HTTP {status}: {said}", is_away=is_away, retry_after_ms=_wait(headers) if is_away else None
            )
        return _calls(content)

    async def _post(self, body: Mapping[str, Any]) -> tuple[int, httpx.Headers, bytes]:
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        read = bytearray()
        async with (
            httpx.AsyncClient(trust_env=False, verify=_tls(), timeout=self.seconds) as client,
            client.stream("POST", f"{_root(self.base_url)}/chat/completions", json=body, headers=headers) as answer,
        ):
            async for piece in answer.aiter_bytes():
                read += piece
                if len(read) > MOST_BYTES:
                    raise ModelFaultError(f"answered more than {MOST_BYTES // 1024} KiB.")
            return answer.status_code, answer.headers, bytes(read)


def configured(own_key: str = "") -> Model | None:
    """The model of the configuration, asked with a session's `own_key` where it brought one; None: there is none."""
    conf = config.current().llm
    key = own_key or conf.api_key.get_secret_value()
    if own_key and not conf.base_url:
        return Model(conf.model or DEFAULT_MODEL, OPENAI, key, conf.timeout_seconds)
    if not conf.base_url or not conf.model:
        return None
    return Model(conf.model, conf.base_url, key, conf.timeout_seconds)


def _root(base_url: str) -> str:
    """The endpoint's root, which gets its /v1 unless the address names a version."""
    root = base_url.rstrip("/")
    return root if re.search(r"/v\d\w*(/|$)", urlsplit(root).path) else f"{root}/v1"


@lru_cache(maxsize=1)
def _tls() -> "ssl.SSLContext":
    return httpx.create_ssl_context()


def _wait(headers: httpx.Headers) -> int | None:
    asked = whole(headers.get("retry-after", ""), digits=5)
    return None if asked is None else min(asked, 3600) * 1000


def without_keys(text: str, key: str = "") -> str:
    """`text` with what looks like a key of a model blanked."""
    return _KEY.sub("***", text.replace(key, "***") if key else text)


def _said(content: bytes, key: str) -> str:
    try:
        error = json.loads(content)["error"]
        said = error["message"] if isinstance(error, dict) else error
    except (ValueError, KeyError, TypeError, RecursionError):
        said = content[:500].decode(errors="replace")
    return without_keys(" ".join(str(said).split()), key)[:200] or "nothing more."


def _calls(content: bytes) -> list[Call]:
    try:
        choice = json.loads(content)["choices"][0]
        message: Any = choice["message"]
        if message.get("refusal") or choice.get("finish_reason") == "content_filter":
            raise ModelFaultError("refused the task.")
        made = message.get("tool_calls") or []
        wanted = [(str(item["function"]["name"]), item["function"].get("arguments") or "{}") for item in made]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise ModelFaultError("answered something that is no chat completion.") from None
    return [_call(name, arguments) for name, arguments in wanted[:16]]


def _call(name: str, arguments: Any) -> Call:
    if isinstance(arguments, Mapping):  # some servers send the object itself
        return Call(name, dict(arguments), json.dumps(arguments)[:2000])
    text = str(arguments)
    read: Any = None
    if len(text) <= MAX_ARGUMENTS:
        try:
            read = json.loads(text)
        except (ValueError, RecursionError):
            read = None
    return Call(name, read if isinstance(read, dict) else None, text[:2000])
