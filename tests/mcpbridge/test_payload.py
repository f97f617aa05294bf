"""What no door lets in."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devflow.errors import DevFlowError
from mcpbridge.payload import MAX_CHARACTERS, MAX_DEPTH, bounded


def nested(depth: int) -> dict[str, Any]:
    value: Any = "leaf"
    for _ in range(depth):
        value = [value]
    return {"value": value}


def code_of(arguments: object) -> str:
    with pytest.raises(DevFlowError) as caught:
        bounded(arguments)
    assert caught.value.suggestion
    return caught.value.code.value


@pytest.mark.parametrize("arguments", [[], "text", 5, None, True])
def test_arguments_must_be_an_object(arguments: object) -> None:
    assert code_of(arguments) == "invalid_input"


def test_text_is_accepted_up_to_its_limit_and_refused_beyond() -> None:
    assert bounded({"text": "x" * MAX_CHARACTERS})["text"] == "x" * MAX_CHARACTERS
    assert code_of({"text": "x" * (MAX_CHARACTERS + 1)}) == "too_large"


def test_depth_is_accepted_up_to_its_limit_and_refused_beyond() -> None:
    assert bounded(nested(MAX_DEPTH - 1))
    assert code_of(nested(MAX_DEPTH)) == "invalid_input"


@pytest.mark.parametrize(
    "value", ["nul\x00", "\ud800", {"k\x00": 1}, ["\udfff"], 2**63, -(2**63), 1e300, float("nan"), float("inf")]
)
def test_what_cannot_be_stored_is_refused(value: object) -> None:
    assert code_of({"value": value}) == "invalid_input"


def test_too_many_values_are_refused() -> None:
    assert code_of({"value": list(range(30_000))}) == "too_large"


def test_whole_floats_become_integers_as_json_makes_no_difference() -> None:
    value = bounded({"a": 1.0, "b": [2.5, 3.0]})
    assert value == {"a": 1, "b": [2.5, 3]}
    assert [type(item) for item in (value["a"], *value["b"])] == [int, float, int]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), json_values, max_size=5))
def test_everything_within_the_bounds_passes_unchanged(arguments: dict[str, Any]) -> None:
    assert bounded(arguments) == arguments
