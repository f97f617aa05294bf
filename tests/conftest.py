"""Fixtures every test may use."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.running import RunningServer, running
from tests.servers import postgres_server, postgres_url, redis_server, redis_url

if TYPE_CHECKING:
    from tests.transports.site import Site

__all__ = ["postgres_server", "postgres_url", "redis_server", "redis_url"]

StartServer = Callable[..., RunningServer]


@pytest.fixture(scope="session", autouse=True)
def tools_declared() -> None:
    """As in a server process, before anything asks for one; tests declare more of them for a while."""
    from mcpbridge.registry import registry

    registry.load()


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    """What a server process remembers of one database must not meet the next."""
    from devflow import ports
    from devflow.vectors import search
    from mcpbridge import access, dispatcher

    search.resting.end()
    search.speechless.end()
    ports.directory().forget()
    access.keyring.forget()
    dispatcher.unchanged.forget()


@pytest.fixture(scope="module")
def _served() -> Iterator["Site"]:
    """DevFlow served from this process, on the test database."""
    from tests.transports.site import serve

    with serve() as running:
        yield running


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Start real servers, each with its own data directory: `start_server(server=, workers=, env=, arguments=)`."""
    with ExitStack() as stack:
        count = iter(range(100))

        def start(
            *,
            home: Path | None = None,
            server: str = "uvicorn",
            workers: int = 1,
            env: Mapping[str, str] | None = None,
            arguments: tuple[str, ...] = (),
        ) -> RunningServer:
            home = home or tmp_path / f"home{next(count)}"
            return stack.enter_context(running(home, server=server, workers=workers, env=env, arguments=arguments))

        yield start


@pytest.fixture(scope="module", params=["uvicorn", "daphne"])
def live_server_process(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A real server for the tests of one module, under each ASGI server; `indirect` parameters choose another set."""
    kind = request.param if isinstance(request.param, str) else request.param["server"]
    options = {} if isinstance(request.param, str) else {k: v for k, v in request.param.items() if k != "server"}
    with running(tmp_path_factory.mktemp("server") / "home", server=kind, **options) as server:
        yield server
