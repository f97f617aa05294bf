from devflow.errors import ERROR_TABLE, DevFlowError, ErrorCode, conflict, forbidden, invalid, not_found

TAIGA = {"auth", "not_found", "validation", "rate_limit", "network", "server", "unknown"}
GATEWAY = {"TIMEOUT", "MCP_ERROR", "VALIDATION", "PERMISSION", "UNKNOWN"}


def test_every_code_has_a_place_in_every_dialect() -> None:
    assert set(ERROR_TABLE) == set(ErrorCode)
    for code, mapping in ERROR_TABLE.items():
        assert 400 <= mapping.http <= 599, code
        assert mapping.taiga in TAIGA, code
        assert mapping.gateway in GATEWAY, code
        assert mapping.jsonrpc < 0, code
        assert mapping.suggestion.endswith("."), code


def test_invalid_input_is_422_but_400_in_the_taiga_dialect() -> None:
    mapping = ERROR_TABLE[ErrorCode.INVALID_INPUT]
    assert (mapping.http, mapping.taiga_status) == (422, 400)


def test_an_error_says_what_to_do_next_even_when_nobody_thought_of_it() -> None:
    assert DevFlowError(ErrorCode.TIMEOUT, "It took too long.").suggestion == ERROR_TABLE[ErrorCode.TIMEOUT].suggestion
    assert DevFlowError(ErrorCode.TIMEOUT, "It took too long.", suggestion="Ask less.").suggestion == "Ask less."


def test_the_short_forms_carry_their_code() -> None:
    assert invalid("No.", name="Required").details == {"name": "Required"}
    assert not_found("Task", "task-1").message == "Task task-1 was not found."
    assert conflict("Stale.", holder="a").code is ErrorCode.CONFLICT
    assert forbidden("No.").code is ErrorCode.FORBIDDEN
    assert str(invalid("Say so.")) == "Say so."
