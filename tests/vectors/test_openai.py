"""The embedder behind an OpenAI-compatible endpoint, and every way it can fail."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from devflow.vectors.base import EmbeddingError
from devflow.vectors.openai import OpenAiEmbedder
from tests.fakes import openai_server as fake
from tests.fakes.openai_server import OpenAiServer, Reply


@pytest.fixture
def server() -> Iterator[OpenAiServer]:
    with OpenAiServer(dimensions=16, api_key="secret") as running:
        yield running


Make = Callable[..., OpenAiEmbedder]


@pytest.fixture
def embedder(server: OpenAiServer) -> Iterator[Make]:
    with ExitStack() as stack:

        def make(**options: Any) -> OpenAiEmbedder:
            given = {"base_url": server.url, "model": "m", "api_key": "secret", "timeout": 5.0, "count_tokens": len}
            made = OpenAiEmbedder(**{**given, **options})
            stack.callback(made.close)
            return made

        yield make


def test_texts_are_sent_in_batches_and_come_back_in_order_with_length_one(server: OpenAiServer, embedder: Make) -> None:
    made = embedder(batch_size=3)
    texts = [f"text number {number}" for number in range(8)]
    vectors = made.embed(texts)
    assert [len(request.body["input"]) for request in server.requests[:3]] == [3, 3, 2]
    assert vectors.shape == (8, 16)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    expected = np.array([fake.bag_of_words(text, 16) for text in texts])
    assert (vectors * expected).sum(1) == pytest.approx(np.linalg.norm(expected, axis=1), abs=1e-4)
    assert made.embed([]).shape == (0, 16)


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_the_address_may_have_its_version_or_not(server: OpenAiServer, embedder: Make, suffix: str) -> None:
    assert embedder(base_url=server.url + suffix).dimensions == 16
    assert server.requests[0].path == "/v1/embeddings"
    assert server.requests[0].headers["Authorization"] == "Bearer secret"
    assert server.requests[0].body == {"model": "m", "input": ["size"], "encoding_format": "float"}


def test_dimensions_are_asked_for_and_part_of_the_name(server: OpenAiServer, embedder: Make) -> None:
    made = embedder(dimensions=8)
    assert (made.name, made.dimensions) == ("openai-m-8", 8)
    assert server.requests == []
    assert made.embed(["text"]).shape == (1, 8)
    assert server.requests[0].body["dimensions"] == 8


def test_a_question_is_remembered(server: OpenAiServer, embedder: Make) -> None:
    made = embedder()
    assert made.embed_query("why?") is made.embed_query("why?")
    assert len(server.requests) == 1


def test_answers_in_another_order_are_put_right(server: OpenAiServer, embedder: Make) -> None:
    made = embedder()
    expected = made.embed(["one", "two", "three"])
    server.script(fake.changed(lambda answer: answer["data"].reverse()))
    assert made.embed(["one", "two", "three"]) == pytest.approx(expected)


def put(value: object) -> Callable[[dict[str, Any]], None]:
    def change(answer: dict[str, Any]) -> None:
        answer["data"][0]["embedding"] = value

    return change


def renumber(*numbers: object) -> Callable[[dict[str, Any]], None]:
    def change(answer: dict[str, Any]) -> None:
        for row, number in zip(answer["data"], numbers, strict=True):
            row["index"] = number

    return change


@pytest.mark.parametrize(
    "reply",
    [
        fake.raw(b""),
        fake.raw(b"{"),
        fake.raw(b"[]"),
        fake.raw(b"null"),
        fake.raw(b"<html>"),
        fake.raw(b'{"data": null}'),
        fake.raw(b'{"data": {}}'),
        fake.raw(b'{"data": ["x", "y"]}'),
        fake.raw(b"[" * 100_000),
        fake.changed(lambda answer: answer["data"].pop()),
        fake.changed(lambda answer: answer["data"].append(answer["data"][0])),
        fake.changed(lambda answer: answer["data"][0].pop("embedding")),
        fake.changed(renumber(0, 0)),
        fake.changed(renumber(1, 2)),
        fake.changed(renumber(-1, 0)),
        fake.changed(renumber("0", "1")),
        fake.changed(renumber(False, True)),
        fake.changed(put([])),
        fake.changed(put([1.0])),
        fake.changed(put(None)),
        fake.changed(put("AACAPw==")),
        fake.changed(put(3.5)),
        fake.changed(put([None] * 16)),
        fake.changed(put([[1.0]] * 16)),
        fake.changed(put(["x"] * 16)),
        fake.changed(put([math.nan] * 16)),
        fake.changed(put([math.inf] + [0.0] * 15)),
        fake.changed(put([1e300] * 16)),
        fake.changed(put([0.0] * 16)),
    ],
)
def test_an_answer_that_is_not_what_was_asked_for_is_an_error(
    server: OpenAiServer, embedder: Make, reply: Reply
) -> None:
    made = embedder()
    server.script(reply)
    with pytest.raises(EmbeddingError, match="the endpoint of m answered oddly"):
        made.embed(["one", "two"])
    assert len(server.requests) == 1
    assert made.embed(["one", "two"]).shape == (2, 16)


@pytest.mark.parametrize("change", [put([1.0] * 15), put([1.0] * 17)])
def test_a_length_other_than_the_known_one_is_an_error(
    server: OpenAiServer, embedder: Make, change: Callable[..., None]
) -> None:
    for made in (embedder(), embedder(dimensions=16)):
        assert made.dimensions == 16
        server.script(fake.changed(change))
        with pytest.raises(EmbeddingError, match="dimensions"):
            made.embed(["one"])


@pytest.mark.parametrize(
    "reply",
    [
        fake.status(429, {"Retry-After": "0"}),
        fake.status(429),
        fake.status(429, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}),
        fake.status(500),
        fake.status(503, {"Retry-After": "0.1"}),
        fake.reset(),
        fake.reset(20),
    ],
)
def test_what_may_pass_is_tried_again(server: OpenAiServer, embedder: Make, reply: Reply) -> None:
    made = embedder()
    server.script(reply, reply)
    assert made.embed(["one"]).shape == (1, 16)
    server.script(reply)
    assert made.embed_query("one").shape == (16,)


def test_it_is_not_tried_for_ever(server: OpenAiServer, embedder: Make) -> None:
    made = embedder()
    server.script(*[fake.status(500, message="still warming up")] * 10)
    with pytest.raises(EmbeddingError, match="answered 500: still warming up"):
        made.embed_query("one")
    assert len(server.requests) == 2
    with pytest.raises(EmbeddingError, match="answered 500"):
        made.embed(["one"])
    assert len(server.requests) == 6


def test_an_endpoint_that_asks_for_much_patience_is_given_up_at_once(server: OpenAiServer, embedder: Make) -> None:
    server.script(fake.status(429, {"Retry-After": "3600"}, "quota"))
    began = time.monotonic()
    with pytest.raises(EmbeddingError, match="answered 429: quota"):
        embedder().embed(["one"])
    assert time.monotonic() - began < 2
    assert len(server.requests) == 1


@pytest.mark.parametrize("code", [400, 403, 404, 301, 204])
def test_a_refusal_is_an_error_at_once(server: OpenAiServer, embedder: Make, code: int) -> None:
    server.script(fake.status(code, message="no\nsuch model" + "x" * 1000) if code != 204 else Reply(204))
    with pytest.raises(EmbeddingError, match=f"answered {code}: ") as caught:
        embedder().embed(["one"])
    assert len(server.requests) == 1
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


def test_a_wrong_key_is_an_error_that_does_not_show_it(server: OpenAiServer, embedder: Make) -> None:
    with pytest.raises(EmbeddingError, match="answered 401: Incorrect API key provided") as caught:
        embedder(api_key="hunter2").embed_query("one")
    assert "hunter2" not in str(caught.value)


def test_an_endpoint_that_hangs_is_an_error_in_time(server: OpenAiServer, embedder: Make) -> None:
    server.script(fake.hang(), fake.hang())
    made = embedder(timeout=0.3)
    began = time.monotonic()
    with pytest.raises(EmbeddingError, match=r"did not answer in 0.3 s"):
        made.embed_query("one")
    with pytest.raises(EmbeddingError, match="did not answer"):
        made.embed(["one"])
    assert time.monotonic() - began < 3
    assert made.embed(["one"]).shape == (1, 16)


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "nonsense", "ftp://127.0.0.1", "http://[::1"])
def test_an_address_nobody_has_is_an_error(server: OpenAiServer, embedder: Make, address: str) -> None:
    with pytest.raises(EmbeddingError):
        embedder(base_url=address).embed_query("one")
