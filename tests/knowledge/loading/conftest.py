from collections.abc import Callable, Iterator

import pytest

from devflow import config
from tests.knowledge.loading.site import Site, serving

Configure = Callable[..., None]


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as site:
        yield site


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch) -> Iterator[Configure]:
    """Set configuration keys by their names in the environment, without the prefix."""

    def configure(**values: object) -> None:
        for name, value in values.items():
            monkeypatch.setenv(f"DEVFLOW_{name.upper()}", str(value))
        config.current.cache_clear()

    yield configure
    monkeypatch.undo()
    config.current.cache_clear()
