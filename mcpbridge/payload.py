"""Bounds of what may come through any door, checked before a schema is looked at."""

from typing import Any

from devflow.errors import DevFlowError, ErrorCode, invalid

MAX_DEPTH = 32
MAX_VALUES = 20_000
MAX_CHARACTERS = 100_000
MAX_MAGNITUDE = 2**63


def _clean_text(text: str, where: str) -> str:
    if len(text) > MAX_CHARACTERS:
        raise DevFlowError(
            ErrorCode.TOO_LARGE,
            f"{where}: {len(text):,} characters; at most {MAX_CHARACTERS:,} are accepted.",
            details={where: f"at most {MAX_CHARACTERS} characters"},
            suggestion="Shorten the text, or split it over several calls.",
        )
    if "\x00" in text:
        raise invalid(f"{where}: the NUL character is not accepted.", **{where: "contains NUL"})
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise invalid(f"{where}: lone surrogates are not text.", **{where: "contains a lone surrogate"}) from None
    return text


def bounded(arguments: object) -> dict[str, Any]:
    """Return a copy of `arguments` that is safe to store, with whole floats as integers (JSON makes no difference).

    Raises `invalid_input` or `too_large` naming the place: not an object, depth over 32, more than 20,000 values, text
    over 100,000 characters, NUL, lone surrogates, numbers beyond 64 bits.
    """
    if not isinstance(arguments, dict):
        raise invalid("The arguments must be a JSON object.", arguments="must be an object")
    left = MAX_VALUES

    def walk(value: Any, where: str, depth: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise DevFlowError(ErrorCode.TOO_LARGE, f"More than {MAX_VALUES:,} values in one call.")
        if depth > MAX_DEPTH:
            raise invalid(f"{where}: nested deeper than {MAX_DEPTH} levels.", **{where: "nested too deep"})
        if isinstance(value, str):
            return _clean_text(value, where)
        if isinstance(value, dict):
            return {
                _clean_text(name, where): walk(item, name if depth == 0 else where, depth + 1)
                for name, item in value.items()
            }
        if isinstance(value, list):
            return [walk(item, where, depth + 1) for item in value]
        if isinstance(value, float):
            if not abs(value) < MAX_MAGNITUDE:  # also true of NaN
                raise invalid(f"{where}: the number is not finite or too large.", **{where: "number out of range"})
            return int(value) if value.is_integer() else value
        if isinstance(value, int) and abs(value) >= MAX_MAGNITUDE:
            raise invalid(f"{where}: the number does not fit 64 bits.", **{where: "number out of range"})
        return value

    result: dict[str, Any] = walk(arguments, "arguments", 0)
    return result
