"""POST /mcp/execute and /mcp/batch: the PRD's shape, whatever happens."""

import zlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from devflow.errors import ERROR_TABLE, ErrorCode
from mcpbridge.models import ApiKey
from tests.api.conftest import NewKey

DETAIL = {"code", "message", "suggestion", "details", "retry_after_ms", "trace_id"}


async def execute(web: httpx.AsyncClient, headers: dict[str, str], **body: Any) -> httpx.Response:
    return await web.post("/mcp/execute", json=body, headers=headers)


def assert_failed(response: httpx.Response, status: int, code: str, request_id: str | None = None) -> dict[str, Any]:
    body: dict[str, Any] = response.json()
    assert response.status_code == status, body
    assert response.headers["content-type"] == "application/json"
    assert body.keys() == {"request_id", "result", "error", "detail"}
    assert (body["request_id"], body["result"]) == (request_id, None)
    assert body["detail"].keys() == DETAIL
    assert (body["detail"]["code"], body["detail"]["message"]) == (code, body["error"])
    assert body["detail"]["suggestion"] and len(body["detail"]["trace_id"]) == 32
    return body


async def test_a_call_answers_with_its_request_id(web: httpx.AsyncClient, as_key: dict[str, str]) -> None:
    response = await execute(web, as_key, tool="test_echo", args={"text": "hëllo"}, request_id="r-1")
    assert response.status_code == 200
    assert response.json() == {"request_id": "r-1", "result": {"text": "hëllo"}, "error": None}
    assert response.headers["x-content-type-options"] == "nosniff"


async def test_a_bearer_token_is_a_key_too(web: httpx.AsyncClient, key: str) -> None:
    response = await execute(web, {"Authorization": f"Bearer {key}"}, tool="test_echo", args={"text": "x"})
    assert response.json() == {"request_id": None, "result": {"text": "x"}, "error": None}


async def test_a_tool_with_nothing_to_give_answers_null_with_the_reason(
    web: httpx.AsyncClient, as_key: dict[str, str]
) -> None:
    response = await execute(web, as_key, tool="test_find_nothing")
    body = response.json()
    assert (response.status_code, body["result"], body["error"]) == (200, None, None)
    assert body["detail"]["reason"] == "none_ready"


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.UNAUTHENTICATED])
async def test_every_error_code_has_its_status_and_the_shape(
    web: httpx.AsyncClient, as_key: dict[str, str], code: ErrorCode
) -> None:
    response = await execute(web, as_key, tool="test_fail_with", args={"code": code.value}, request_id="r")
    assert_failed(response, ERROR_TABLE[code].http, code.value, "r")
    assert response.headers.get("retry-after") == ("2" if code is ErrorCode.RATE_LIMITED else None)


async def test_what_nobody_expected_is_internal_and_keeps_its_secret(
    web: httpx.AsyncClient, as_key: dict[str, str]
) -> None:
    body = assert_failed(await execute(web, as_key, tool="test_break_it"), 500, "internal")
    assert "secret detail" not in str(body)
    assert body["detail"]["trace_id"] in body["error"]


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        (b"{", 400, "Send one JSON document"),
        (b"", 422, "tool: name the tool"),
        (b"\xff\xfe", 400, "Send one JSON document"),
        (b'{"tool": NaN}', 400, "Send one JSON document"),
        (b"[" * 100_000, 400, "nested too deep"),
        (b"[]", 422, "A call is an object"),
        (b"null", 422, "A call is an object"),
        (b'{"tool": "test_echo", "arguments": {}}', 422, "arguments: unknown key"),
        (b'{"args": {}}', 422, "tool: name the tool"),
        (b'{"tool": 7}', 422, "tool: name the tool"),
        (b'{"tool": "test_echo", "request_id": 7}', 422, "request_id is a text"),
        (b'{"tool": "test_echo", "args": []}', 422, "must be a JSON object"),
        (b'{"tool": "test_echo", "args": {}}', 422, "text: is required"),
        (b'{"tool": "test_echo", "args": {"text": "x", "more": 1}}', 422, "more: unknown argument"),
        (b'{"tool": "test_echo", "args": {"text": "a\\u0000"}}', 422, "NUL"),
        (b'{"tool": "test_echo", "args": {"text": "\\ud800"}}', 422, "surrogate"),
        (b'{"tool": "\\ud800"}', 422, "surrogate"),
        (b'{"tool": "test_echo", "\\ud800": 1}', 422, "unknown key"),
        (b'{"tool": "test_echo", "request_id": "\\ud800"}', 422, "surrogate"),
        (b'{"tool": "test_echo", "args": {"text": 1e400}}', 422, "not finite"),
    ],
)
async def test_a_malformed_call_is_refused_with_what_to_do(
    web: httpx.AsyncClient, as_key: dict[str, str], content: bytes, status: int, words: str
) -> None:
    headers = {**as_key, "Content-Type": "application/json"}
    response = await web.post("/mcp/execute", content=content, headers=headers)
    body = assert_failed(response, status, "invalid_input")
    assert words in body["error"]


@pytest.mark.parametrize("charset", ["utf-8", "utf-16", "zlib", "bz2", "rot13", "nonsense"])
async def test_a_body_is_utf_8_whatever_charset_it_claims(
    web: httpx.AsyncClient, as_key: dict[str, str], charset: str
) -> None:
    headers = {**as_key, "Content-Type": f"application/json; charset={charset}"}
    plain = b'{"tool": "test_echo", "args": {"text": "x"}}'
    assert (await web.post("/mcp/execute", content=plain, headers=headers)).status_code == 200
    packed = await web.post("/mcp/execute", content=zlib.compress(plain), headers=headers)
    assert_failed(packed, 400, "invalid_input")


async def test_the_request_id_is_echoed_when_the_rest_is_malformed(
    web: httpx.AsyncClient, as_key: dict[str, str]
) -> None:
    assert_failed(await execute(web, as_key, request_id="r-9", more=1), 422, "invalid_input", "r-9")


async def test_a_text_of_100_000_characters_passes_and_one_more_is_refused(
    web: httpx.AsyncClient, as_key: dict[str, str]
) -> None:
    good = await execute(web, as_key, tool="test_echo", args={"text": "x" * 100_000})
    assert good.status_code == 200
    assert_failed(await execute(web, as_key, tool="test_echo", args={"text": "x" * 100_001}), 413, "too_large")


async def test_an_unknown_tool_is_not_found(web: httpx.AsyncClient, as_key: dict[str, str]) -> None:
    body = assert_failed(await execute(web, as_key, tool="test_ecko"), 404, "not_found")
    assert "test_echo" in body["detail"]["suggestion"]


async def test_a_key_without_the_scope_is_refused(web: httpx.AsyncClient, new_key: NewKey) -> None:
    headers = {"X-API-Key": await new_key("read")}
    assert_failed(await execute(web, headers, tool="test_make_key", args={"name": "n"}), 403, "forbidden")


async def test_the_same_idempotency_key_has_one_effect_and_the_same_answer(
    web: httpx.AsyncClient, as_key: dict[str, str]
) -> None:
    headers = {**as_key, "Idempotency-Key": "once"}
    first = await execute(web, headers, tool="test_make_key", args={"name": "made"})
    again = await execute(web, headers, tool="test_make_key", args={"name": "made"})
    assert first.json()["result"] == again.json()["result"] == {"count": 1}
    assert await ApiKey.objects.filter(name="made").acount() == 1
    other = await execute(web, headers, tool="test_make_key", args={"name": "other"})
    assert_failed(other, 409, "conflict")


@pytest.mark.parametrize("path", ["/mcp/execute", "/mcp/batch"])
@pytest.mark.parametrize("headers", [{}, {"X-API-Key": ""}, {"X-API-Key": "dvf_x"}, {"Authorization": "Basic eDp5"}])
async def test_without_a_live_key_everything_is_401(web: httpx.AsyncClient, path: str, headers: dict[str, str]) -> None:
    for response in (await web.post(path, content=b"{", headers=headers), await web.get(path, headers=headers)):
        assert_failed(response, 401, "unauthenticated")
        assert response.headers["www-authenticate"] == 'Bearer realm="devflow"'


async def test_revoked_and_expired_keys_read_the_same_as_unknown_ones(web: httpx.AsyncClient, new_key: NewKey) -> None:
    from django.utils import timezone

    from mcpbridge.access import keyring

    messages = set()
    for field in ("revoked_at", "expires_at"):
        raw = await new_key(name=field)
        await ApiKey.objects.filter(name=field).aupdate(**{field: timezone.now()})
        keyring.forget()
        messages.add(assert_failed(await execute(web, {"X-API-Key": raw}), 401, "unauthenticated")["error"])
    messages.add((await execute(web, {"X-API-Key": "nonsense"})).json()["error"])
    assert len(messages) == 1


async def test_another_method_is_405_in_the_shape(web: httpx.AsyncClient, as_key: dict[str, str]) -> None:
    for path in ("/mcp/execute", "/mcp/batch"):
        response = await web.get(path, headers=as_key)
        assert_failed(response, 405, "invalid_input")
        assert response.headers["allow"] == "POST"


@pytest.mark.parametrize("path", ["/mcp/execute", "/mcp/batch"])
async def test_a_foreign_host_is_421_and_a_foreign_origin_403(
    web: httpx.AsyncClient, as_key: dict[str, str], path: str
) -> None:
    assert_failed(await web.post(path, json={}, headers={**as_key, "Host": "evil.example"}), 421, "forbidden")
    assert_failed(await web.post(path, json={}, headers={**as_key, "Origin": "https://evil.example"}), 403, "forbidden")
    near = await web.post(path, json=[], headers={**as_key, "Origin": "http://localhost:3000"})
    assert near.status_code in (200, 422)


async def test_a_body_over_4_mib_is_413_before_it_is_read(web: httpx.AsyncClient, as_key: dict[str, str]) -> None:
    sent = 0

    async def endless() -> Any:
        nonlocal sent
        while sent < 64:
            sent += 1
            yield b"x" * 1024 * 1024

    declared = {**as_key, "Content-Length": str(10 * 1024 * 1024)}
    response = await web.post("/mcp/execute", content=endless(), headers=declared)
    assert_failed(response, 413, "too_large")
    assert sent == 0
    assert_failed(await web.post("/mcp/execute", content=endless(), headers=as_key), 413, "too_large")
    assert sent <= 6


async def test_over_the_limit_is_429_with_the_time_to_wait(web: httpx.AsyncClient, new_key: NewKey) -> None:
    headers = {"X-API-Key": await new_key(rate=1)}  # 1 and the burst of 20
    for _ in range(21):
        assert (await execute(web, headers, tool="test_echo", args={"text": "x"})).status_code == 200
    response = await execute(web, headers, tool="test_echo", args={"text": "x"}, request_id="late")
    body = assert_failed(response, 429, "rate_limited", "late")
    assert 0 < int(response.headers["retry-after"]) <= 60
    assert body["detail"]["retry_after_ms"] <= 60_000


async def test_more_than_60_refused_keys_of_an_address_are_429(web: httpx.AsyncClient) -> None:
    for _ in range(60):
        assert (await web.post("/mcp/execute", headers={"X-API-Key": "wrong"})).status_code == 401
    response = await web.post("/mcp/execute", headers={"X-API-Key": "wrong"})
    assert_failed(response, 429, "rate_limited")
    assert int(response.headers["retry-after"]) > 0


# --- batch ----------------------------------------------------------------------------------------------------------


def call(text: str) -> dict[str, Any]:
    return {"tool": "test_echo", "args": {"text": text}, "request_id": text}


async def test_a_batch_answers_in_order_and_a_failure_stops_nothing(
    web: httpx.AsyncClient, as_key: dict[str, str]
) -> None:
    calls = [call("a"), {"tool": "nope", "request_id": "b"}, 7, {"tool": "test_linger"}, call("e")]
    response = await web.post("/mcp/batch", json=calls, headers=as_key)
    assert response.status_code == 200
    codes = [item["detail"]["code"] if item["error"] else "ok" for item in response.json()]
    assert codes == ["ok", "not_found", "invalid_input", "timeout", "ok"]
    assert [item["request_id"] for item in response.json()] == ["a", "b", None, None, "e"]


async def test_an_empty_batch_answers_nothing(web: httpx.AsyncClient, as_key: dict[str, str]) -> None:
    assert (await web.post("/mcp/batch", json=[], headers=as_key)).json() == []


@pytest.mark.parametrize("body", [{}, "x", None, [call("x")] * 51])
async def test_what_is_no_batch_is_refused_whole(web: httpx.AsyncClient, as_key: dict[str, str], body: Any) -> None:
    assert_failed(await web.post("/mcp/batch", json=body, headers=as_key), 422, "invalid_input")


async def test_a_batch_costs_its_length_and_is_refused_whole(web: httpx.AsyncClient, new_key: NewKey) -> None:
    headers = {"X-API-Key": await new_key(rate=1)}
    make = {"tool": "test_make_key", "args": {"name": "batched"}}
    first = await web.post("/mcp/batch", json=[make] * 15, headers=headers)
    assert [item["error"] for item in first.json()] == [None] * 15
    second = await web.post("/mcp/batch", json=[make] * 7, headers=headers)
    assert_failed(second, 429, "rate_limited")
    assert "retry-after" in second.headers
    assert await ApiKey.objects.filter(name="batched").acount() == 15
    third = await web.post("/mcp/batch", json=[make] * 6, headers=headers)
    assert third.status_code == 200


async def test_a_repeated_batch_with_an_idempotency_key_has_one_effect(
    web: httpx.AsyncClient, as_key: dict[str, str]
) -> None:
    headers = {**as_key, "Idempotency-Key": "batch-1"}
    calls = [{"tool": "test_make_key", "args": {"name": "n"}}] * 2
    first = await web.post("/mcp/batch", json=calls, headers=headers)
    again = await web.post("/mcp/batch", json=calls, headers=headers)
    assert [item["result"] for item in first.json()] == [item["result"] for item in again.json()]
    assert await ApiKey.objects.filter(name="n").acount() == 2


async def test_a_call_may_come_in_pieces_without_a_length(web: httpx.AsyncClient, as_key: dict[str, str]) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"tool": "test_echo", '
        yield b'"args": {"text": "hi"}}'

    headers = {**as_key, "Content-Type": "application/json"}
    assert (await web.post("/mcp/execute", content=pieces(), headers=headers)).status_code == 200
