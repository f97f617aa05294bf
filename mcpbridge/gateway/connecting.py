"""How a backend is reached: a process, Streamable HTTP or SSE, with the same bounds and the same words for trouble."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import anyio
import httpx2
import mcp.types as types
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from pydantic import BaseModel

from devflow.errors import DevFlowError
from mcpbridge.asking import ELICITATION, SAMPLING
from mcpbridge.gateway import processes
from mcpbridge.gateway.faults import unavailable
from mcpbridge.gateway.policy import MAX_TIMEOUT_MS
from mcpbridge.gateway.processes import MAX_LINE
from mcpbridge.gateway.specs import BackendSpec, struck_out

Asked = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""Method and parameters of a question; gives the answer, or `ErrorData`."""

CONNECT_SECONDS = 30.0
READ_SECONDS = MAX_TIMEOUT_MS / 1000 + 30


@dataclass(frozen=True)
class Connection:
    """A client of the SDK, not yet entered; `trouble()` is what is known of why it is no use any more.

    `fault()` is set where this side ended it, for something the backend may not do. After `hurry()` its process is not
    given time to leave by itself.
    """

    client: Client
    trouble: Callable[[], str]
    fault: Callable[[], str]
    hurry: Callable[[], None]


@asynccontextmanager
async def connected(
    spec: BackendSpec,
    root: str | None,
    *,
    kind: str,
    on_end: Callable[[], None],
    features: frozenset[str] = frozenset(),
    asked: Asked | None = None,
) -> AsyncIterator[Connection]:
    """Reach a backend; `on_end` is called once it says nothing more. Raises `unavailable`.

    It is told that its client has `features` (`asking.declared`); what it then asks in requests goes to `asked`.

    An agent's command line is no server: what it wraps is reached instead, for its tools.
    """
    if spec.transport == "agent_cli":
        spec = wrapped(spec)
    async with AsyncExitStack() as stack:
        if spec.transport == "stdio":
            child = await stack.enter_async_context(processes.started(spec, root, kind=kind))
            transport: Any = processes.streams(child)

            def trouble() -> str:
                return child.trouble

            def fault() -> str:
                return child.fault

            hurry = child.hurry

        else:
            http = _Http(spec)
            trouble, fault, hurry = http.trouble, http.fault, _nothing
            if spec.transport == "http":
                client = await stack.enter_async_context(http.client(spec.filled_headers()))
                transport = streamable_http_client(spec.url, http_client=client, max_sse_event_size=MAX_LINE)
            else:
                transport = sse_client(
                    spec.url, spec.filled_headers(), CONNECT_SECONDS, READ_SECONDS, httpx_client_factory=http.client
                )
        yield Connection(
            Client(
                _watched(transport, on_end),
                cache=None,
                client_info=types.Implementation(name="devflow", version="1"),
                **(_asking(features, asked) if asked is not None else {}),
            ),
            trouble,
            fault,
            hurry,
        )


def _asking(features: frozenset[str], asked: Asked) -> dict[str, Any]:
    """How the SDK's client declares and answers what it can be asked (`asking.declared`)."""
    made: dict[str, Any] = {}
    if "elicitation" in features:

        async def elicit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
            answer: types.ElicitResult | types.ErrorData = await asked(ELICITATION, _plain(params))
            return answer

        made["elicitation_callback"] = elicit
    if "sampling" in features:

        async def sample(context: Any, params: types.CreateMessageRequestParams) -> Any:
            return await asked(SAMPLING, _plain(params))

        made["sampling_callback"] = sample
        made["sampling_capabilities"] = types.SamplingCapability.model_validate(
            {name: {} for name in ("tools", "context") if f"sampling.{name}" in features}
        )
    return made


def _plain(params: BaseModel) -> dict[str, Any]:
    return params.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"meta"})


def _nothing() -> None:
    return None


def wrapped(spec: BackendSpec) -> BackendSpec:
    """The backend whose server an agent's command line is given. Raises `unavailable`."""
    from mcpbridge.gateway.catalog import catalog

    found = catalog.known.backends.get(spec.wraps)
    if found is None or found.transport == "agent_cli":
        raise unavailable(spec.id, f"it wraps the backend {spec.wraps or '(none)'}, which is not here or not enabled.")
    return replace(found, id=spec.id, pk=spec.pk)


class _Http:
    """One HTTP client for a backend: bounded answers, and what it answered where that was no message."""

    def __init__(self, spec: BackendSpec) -> None:
        self._said = ""
        self._fault = ""

    def client(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        client = create_mcp_http_client(
            {**(headers or {}), "Accept-Encoding": "identity"}, httpx2.Timeout(CONNECT_SECONDS, read=READ_SECONDS), auth
        )
        client.event_hooks = {"response": [self._look]}
        return client

    async def _look(self, response: httpx2.Response) -> None:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status_code in (401, 403):
            self._said = f"It answered HTTP {response.status_code}: the headers it is sent do not let us in."
        elif response.status_code >= 400:
            self._said = f"It answered HTTP {response.status_code}."
        elif response.is_success and kind not in ("application/json", "text/event-stream", ""):
            self._said = f"It answered with {kind[:100]}, which is no MCP: look at the backend's url."
        if response.headers.get("content-encoding", "identity") != "identity":
            self._fault = "It sent a compressed answer, which was not asked for."
            raise httpx2.DecodingError(self._fault)
        if kind != "text/event-stream":
            response.stream = _Bounded(response.stream, self._too_long)

    def _too_long(self) -> httpx2.ReadError:
        self._fault = f"It sent an answer of more than {MAX_LINE // 2**20} MiB."
        return httpx2.ReadError(self._fault)

    def trouble(self) -> str:
        return self._fault or self._said

    def fault(self) -> str:
        return self._fault


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, inner: Any, too_long: Callable[[], Exception]) -> None:
        self._inner = inner
        self._too_long = too_long

    async def __aiter__(self) -> AsyncIterator[bytes]:
        seen = 0
        async for chunk in self._inner:
            seen += len(chunk)
            if seen > MAX_LINE:
                raise self._too_long()
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def _watched(transport: Any, on_end: Callable[[], None]) -> AsyncIterator[Any]:
    async with transport as (read, write):
        yield _Watched(read, on_end), write


class _Watched:
    """A read stream that tells when nothing more comes."""

    def __init__(self, inner: Any, on_end: Callable[[], None]) -> None:
        self._inner = inner
        self._on_end = on_end

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Any:
        return await self._inner.receive()

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> "_Watched":
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._inner.__anext__()
        except (StopAsyncIteration, anyio.ClosedResourceError):
            self._on_end()
            raise

    async def __aenter__(self) -> "_Watched":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._inner.aclose()


def why(exc: BaseException, spec: BackendSpec, trouble: str, *, seconds: float) -> str:
    """What went wrong while a session was opened, in words, without its url or its secrets."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    if isinstance(exc, DevFlowError):
        return exc.message
    if isinstance(exc, TimeoutError):
        text = f"it did not finish its handshake within {seconds:g} s."
    elif trouble:
        return trouble
    elif isinstance(exc, httpx2.HTTPStatusError):
        text = f"it answered HTTP {exc.response.status_code}."
    elif isinstance(exc, httpx2.ConnectError):
        text = "nothing accepts connections at its address."
    else:
        text = struck_out(str(exc), wrapped(spec).secrets if spec.wraps else spec.secrets)
        text = text.replace(spec.url, "its url") if spec.url else text
        text = f"{text[:300] or type(exc).__name__}."
    return f"{text} {trouble}".strip()
