"""An embedder behind an OpenAI-compatible `/v1/embeddings`. What comes back is believed only after it was checked."""

import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from devflow import outside
from devflow.vectors.base import EmbeddingError
from devflow.vectors.local import QUERIES_KEPT, Once

if TYPE_CHECKING:
    from devflow.vectors.base import Vector, Vectors

ATTEMPTS = 4
PATIENCE_SECONDS = 30.0
"""Longest pause between two attempts; an endpoint that asks for more is given up."""
MOST_BYTES = 2 * 1024 * 1024
"""An answer may have this many for each text: 65,536 dimensions are shorter."""
MAX_TOKENS = 512
"""What common models see at least; there is no way to ask an endpoint."""


class OpenAiEmbedder:
    """An `Embedder`. Vectors of one model and length can be compared, wherever it runs: `name` leaves the address out.

    `dimensions`: asked of the endpoint and required; 0: its own. `timeout`: of one answer; `query_seconds`: of a
    question with all its attempts. `count_tokens` approximates.
    """

    def __init__(
        self,
        *,
        base_url: str,
        model: str,
        api_key: str = "",
        dimensions: int = 0,
        batch_size: int = 8,
        timeout: float = 30.0,
        query_seconds: float = 2.0,
        count_tokens: Callable[[str], int],
    ) -> None:
        slug = re.sub(r"[^A-Za-z0-9._]+", "-", model).strip("-")
        self.name = f"openai-{slug}-{dimensions}" if dimensions else f"openai-{slug}"
        self.max_tokens = MAX_TOKENS
        self.count_tokens = count_tokens
        self._model = model
        self._asked = dimensions
        self._batch_size = batch_size
        self._timeout = timeout
        self._query_seconds = query_seconds
        self._client = Once(lambda: _client(base_url, api_key))
        self._size = Once(lambda: dimensions or len(self._post(["size"], attempts=ATTEMPTS, timeout=timeout)[0]))
        self._of_query = lru_cache(QUERIES_KEPT)(self._embed_query)

    @property
    def dimensions(self) -> int:
        return self._size()

    def embed(self, texts: Sequence[str]) -> "Vectors":
        import numpy as np

        batches = [
            self._post(texts[at : at + self._batch_size], attempts=ATTEMPTS, timeout=self._timeout)
            for at in range(0, len(texts), self._batch_size)
        ]
        vectors = np.concatenate(batches) if batches else np.zeros((0, self.dimensions), np.float32)
        if vectors.shape[1] != self.dimensions:
            raise EmbeddingError(f"{self._model} made {vectors.shape[1]} dimensions, before it was {self.dimensions}")
        return vectors

    def embed_query(self, text: str) -> "Vector":
        return self._of_query(text)

    def _embed_query(self, text: str) -> "Vector":
        seconds = min(self._timeout, self._query_seconds)
        vector: Vector = self._post([text], attempts=2, timeout=seconds, within=seconds)[0]
        vector.setflags(write=False)  # many callers share it
        return vector

    def close(self) -> None:
        """Close the connections; a later call opens them again."""
        if (client := self._client.taken()) is not None:
            client.close()

    def _post(self, texts: Sequence[str], *, attempts: int, timeout: float, within: float = math.inf) -> "Vectors":
        """Ask, again where that may help, for at most `attempts` times of `timeout` seconds, and `within` in all."""
        body: dict[str, Any] = {"model": self._model, "input": list(texts), "encoding_format": "float"}
        if self._asked:
            body["dimensions"] = self._asked
        until = time.monotonic() + within
        for pause in _pauses(attempts):
            wait = pause
            try:
                answer = outside.post(
                    self._client(),
                    "/embeddings",
                    body=body,
                    seconds=min(timeout, until - time.monotonic()),
                    most_bytes=MOST_BYTES * len(texts),
                )
            except httpx.TimeoutException as exc:  # whoever asked will ask again later
                raise EmbeddingError(f"the endpoint of {self._model} did not answer in {timeout:g} s") from exc
            except (httpx.HTTPError, httpx.InvalidURL) as exc:
                problem = f"the endpoint of {self._model} cannot be reached: {str(exc) or type(exc).__name__}"
            else:
                if answer.status_code == 200:
                    return self._checked(answer, len(texts))
                problem = f"the endpoint of {self._model} answered {answer.status_code}: {_said(answer)}"
                if answer.status_code != 429 and answer.status_code < 500:
                    raise EmbeddingError(problem)
                wait = max(wait, _retry_after(answer))
            if math.isinf(pause) or wait > min(timeout, PATIENCE_SECONDS) or time.monotonic() + wait > until:
                raise EmbeddingError(problem)
            time.sleep(wait)
        raise AssertionError("the last pause is infinite")

    def _checked(self, answer: httpx.Response, count: int) -> "Vectors":
        import numpy as np

        problem = f"the endpoint of {self._model} answered oddly: "
        try:
            rows = answer.json()["data"]
            indices = [row.get("index", at) for at, row in enumerate(rows)]
            given = [row["embedding"] for row in rows]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
            raise EmbeddingError(f"{problem}no list of embeddings") from exc
        if len(given) != count or {repr(at) for at in indices} != {repr(at) for at in range(count)}:
            raise EmbeddingError(f"{problem}{len(given)} embeddings for {count} texts, or not one for each")
        try:
            with np.errstate(all="ignore"):
                made: Any = np.array(given, np.float32)
                lengths = np.linalg.norm(made, axis=-1, keepdims=True)
        except (ValueError, TypeError, OverflowError) as exc:
            raise EmbeddingError(f"{problem}embeddings that are not numbers, or of different lengths") from exc
        if made.ndim != 2 or not made.shape[1] or (self._asked and made.shape[1] != self._asked):
            length = made.shape[1] if made.ndim == 2 else 0
            raise EmbeddingError(f"{problem}{length} dimensions{f', not {self._asked}' if self._asked else ''}")
        if not np.isfinite(made).all() or not (np.isfinite(lengths) & (lengths > 0)).all():
            raise EmbeddingError(f"{problem}numbers that are not finite, or all zero")
        vectors: Vectors = np.empty(made.shape, np.float32)
        vectors[indices] = made / lengths
        return vectors


def _client(base_url: str, api_key: str) -> httpx.Client:
    """A client for the endpoint's root, which gets its /v1 unless the address names a version."""
    root = base_url.rstrip("/")
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        if not re.search(r"/v\d\w*(/|$)", urlsplit(root).path):
            root += "/v1"
        return httpx.Client(base_url=root, headers=headers)
    except (ValueError, httpx.InvalidURL) as exc:
        raise EmbeddingError(f"{base_url} is no address of an endpoint: {exc}") from exc


def _pauses(attempts: int) -> Iterator[float]:
    """Seconds to wait after each attempt: 0.2, 0.4, 0.8 ...; after the last for ever."""
    yield from (0.2 * 2**attempt for attempt in range(attempts - 1))
    yield math.inf


def _retry_after(answer: httpx.Response) -> float:
    """The seconds the endpoint asks us to wait; a date, or nonsense, counts as nothing."""
    try:
        return max(0.0, float(answer.headers.get("Retry-After", "")))
    except ValueError:
        return 0.0


def _said(answer: httpx.Response) -> str:
    try:
        error = answer.json()["error"]
        said = error["message"] if isinstance(error, dict) else error
    except (ValueError, KeyError, TypeError, RecursionError):
        said = answer.text
    return " ".join(str(said).split())[:200]
