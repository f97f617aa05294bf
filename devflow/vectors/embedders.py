"""Which embedder this process uses. One of each is made and kept: a model is loaded once."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from devflow import config
from devflow.vectors import local
from devflow.vectors.base import Embedder, EmbeddingError

if TYPE_CHECKING:
    from devflow.vectors.openai import OpenAiEmbedder

_making = threading.Lock()
_made: "dict[str, local.OnnxEmbedder | OpenAiEmbedder]" = {}


def current() -> Embedder:
    """The configured embedder; nothing is loaded before it is used. Raises `EmbeddingError` when it is not there."""
    provider = config.current().embedding.provider
    with _making:
        if provider not in _made:
            _made[provider] = _make(provider)
        return _made[provider]


def by_name(name: str) -> Embedder | None:
    """The embedder of that name, if it is the configured one or the bundled one, which every DevFlow has."""
    try:
        configured = current()
    except EmbeddingError:
        if name != local.BUNDLED:
            raise
    else:
        if configured.name == name:
            return configured
    return _bundled() if name == local.BUNDLED else None


def _bundled() -> Embedder:
    with _making:
        if "bundled" not in _made:
            _made["bundled"] = _make("bundled")
        return _made["bundled"]


def _make(provider: str) -> "local.OnnxEmbedder | OpenAiEmbedder":
    chosen = config.current().embedding
    if provider == "onnx":
        folder = Path(chosen.path).expanduser()
        return local.from_folder(folder, batch_size=chosen.batch_size, threads=chosen.threads)
    if provider == "openai":
        from devflow.vectors.openai import OpenAiEmbedder

        return OpenAiEmbedder(
            base_url=chosen.base_url,
            model=chosen.model,
            api_key=chosen.api_key.get_secret_value(),
            dimensions=chosen.dimensions,
            batch_size=chosen.batch_size,
            timeout=chosen.timeout_seconds,
            query_seconds=config.current().vectors.timeout_seconds,
            count_tokens=lambda text: _bundled().count_tokens(text),
        )
    return local.bundled(batch_size=chosen.batch_size, threads=chosen.threads)


def forget() -> None:
    """For tests, whose configuration changes."""
    with _making:
        for one in _made.values():
            one.close()
        _made.clear()
