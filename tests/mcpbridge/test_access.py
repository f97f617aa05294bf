"""Keys at the door."""

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth import get_user_model
from django.utils import timezone

from devflow.errors import DevFlowError
from devflow.ports import KeyScope
from mcpbridge import access, keys
from mcpbridge.models import ApiKey, key_checksum, well_formed

pytestmark = pytest.mark.django_db


def issue(**more: object) -> tuple[ApiKey, str]:
    return ApiKey.objects.issue(name="door", scopes=["read"], **more)  # type: ignore[arg-type]  # forwarded as given


def refusal(raw: str) -> tuple[str, str]:
    with pytest.raises(DevFlowError) as caught:
        access.identify_blocking(raw)
    return caught.value.code.value, caught.value.message


def test_a_fresh_key_opens_the_door() -> None:
    key, raw = issue()
    assert access.identify_blocking(raw).scope.key_id == key.pk


def test_the_row_does_not_hold_the_key() -> None:
    key, raw = issue()
    stored = "".join(str(getattr(key, field.attname)) for field in ApiKey._meta.concrete_fields)
    assert raw not in stored
    assert raw.split("_")[2] not in stored


def test_missing_malformed_unknown_revoked_and_expired_keys_read_the_same() -> None:
    revoked, revoked_raw = issue()
    revoked.revoke()
    _, expired_raw = issue(expires_in=timedelta(seconds=-1))
    body = "dvf_ABCDEFGHIJKL_" + "x" * 40
    answers = {refusal(raw) for raw in ("", "nonsense", f"{body}_{key_checksum(body)}", revoked_raw, expired_raw)}
    assert len(answers) == 1


def test_a_revocation_holds_within_five_seconds_for_a_remembered_key() -> None:
    key, raw = issue()
    access.identify_blocking(raw)
    key.revoke()
    assert access.REMEMBER_SECONDS < 5
    access.keyring.forget()  # what the passing of REMEMBER_SECONDS does
    refusal(raw)


def test_a_remembered_key_expires_on_time() -> None:
    with time_machine.travel(timezone.now(), tick=False) as clock:
        _, raw = issue(expires_in=timedelta(seconds=2))
        access.identify_blocking(raw)
        clock.shift(2.1)
        refusal(raw)


def test_a_mistyped_key_costs_no_query(django_assert_num_queries: object) -> None:
    _, raw = issue()
    assert not well_formed(raw[:-1] + ("a" if raw[-1] != "a" else "b"))


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"x-api-key": "k"}, "k"),
        ({"authorization": "Bearer k"}, "k"),
        ({"authorization": "bearer k"}, "k"),
        ({"authorization": "Basic k"}, ""),
        ({}, ""),
    ],
)
def test_a_key_is_read_from_either_header(headers: dict[str, str], expected: str) -> None:
    assert access.key_in(headers) == expected


def identity() -> access.Identity:
    _, raw = issue()
    return access.identify_blocking(raw)


def test_the_agent_is_the_header_then_the_session_then_the_key() -> None:
    who = identity()
    named = access.caller_for(who, transport="rest", headers={"x-agent-id": "claude-1"})
    in_meta = access.caller_for(who, transport="http", meta={"devflow/agent": "cursor-2"}, session="s")
    by_session = access.caller_for(who, transport="sse", client="cursor", session="abcdefghij")
    by_key = access.caller_for(who, transport="rest")
    assert [c.agent_name for c in (named, in_meta, by_session, by_key)] == [
        "claude-1",
        "cursor-2",
        "cursor-abcdefgh",
        "door-agent",
    ]
    assert by_key.notes()
    assert not named.notes()


@pytest.mark.parametrize("name", ["x" * 101, "new\nline", "\x00", 7])
def test_an_agent_cannot_call_itself_just_anything(name: object) -> None:
    with pytest.raises(DevFlowError):
        access.caller_for(identity(), transport="http", meta={"devflow/agent": name})


def test_a_url_can_narrow_what_a_key_shows_but_not_widen_it() -> None:
    who = identity()
    narrow = access.exposure_for(who, {"toolsets": "workflow,memory", "expose": "search", "names": "underscore"})
    assert (narrow.toolsets, narrow.expose, narrow.names) == (frozenset({"workflow", "memory"}), "search", "underscore")
    with pytest.raises(DevFlowError, match="There is no toolset werkflow"):
        access.exposure_for(who, {"toolsets": "werkflow"})
    with pytest.raises(DevFlowError, match="expose must be one of"):
        access.exposure_for(who, {"expose": "everything"})


@pytest.mark.parametrize("name", ["*", "phase:2"])
def test_an_agent_cannot_take_the_address_of_several(name: str) -> None:
    with pytest.raises(DevFlowError, match="addresses several agents"):
        access.agent_name(name)


def test_what_a_client_calls_itself_is_stored_without_control_characters() -> None:
    caller = access.caller_for(identity(), transport="http", client="evil\x00\r\nclient", session="0123456789")
    assert (caller.client, caller.agent_name) == ("evilclient", "evilclient-01234567")


def test_a_project_with_control_characters_is_refused_before_a_database_sees_it() -> None:
    with pytest.raises(DevFlowError, match="named by its slug"):
        access.caller_for(identity(), transport="http", query={"project": "\x00"})


def test_the_keys_of_a_person_end_with_their_account() -> None:
    owner = get_user_model().objects.create_user("leaver")
    _, raw = issue(owner_id=owner.pk)
    assert access.identify_blocking(raw)
    get_user_model().objects.filter(pk=owner.pk).update(is_active=False)
    access.keyring.forget()
    assert refusal(raw)[0] == "unauthenticated"


def test_a_key_cannot_pass_on_toolsets_it_does_not_have_itself() -> None:
    issuer = keys.Issuer(KeyScope(key_id=0), frozenset(keys.SCOPES), frozenset({"memory"}))
    made, _ = keys.issue(issuer, name="child", scopes=["read"])
    assert made.toolsets == ["memory"]
    with pytest.raises(DevFlowError, match="toolset workflow"):
        keys.issue(issuer, name="child", scopes=["read"], toolsets=["workflow"])


@pytest.mark.parametrize("wrong", [{"name": "a\x00"}, {"name": "a\nb"}, {"name": "x", "expires_in_days": 0}])
def test_a_key_needs_a_printable_name_and_a_day_to_live(wrong: dict[str, Any]) -> None:
    issuer = keys.Issuer(KeyScope(key_id=0), frozenset(keys.SCOPES))
    with pytest.raises(DevFlowError) as caught:
        keys.issue(issuer, scopes=["read"], **wrong)
    assert caught.value.code.value == "invalid_input"


def test_a_key_with_an_end_makes_no_key_that_outlives_it() -> None:
    from mcpbridge import keys

    end = timezone.now() + timedelta(days=2)
    issuer = keys.Issuer(identity().scope, frozenset({"read"}), expires_at=end)
    for days in (None, 30):
        row, _ = keys.issue(issuer, name="child", scopes=["read"], expires_in_days=days)
        assert row.expires_at is not None
        assert abs((row.expires_at - end).total_seconds()) < 5
