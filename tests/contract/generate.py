"""Arguments that a tool's own input schema allows, for the subset of JSON Schema our tools publish."""

from typing import Any

from hypothesis import strategies as st

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("task-1 é", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=6,
)
TEXT = st.characters(exclude_categories=["Cs"])


def from_schema(schema: Any, root: dict[str, Any] | None = None) -> st.SearchStrategy[Any]:
    """A strategy for values `schema` allows. Raises `KeyError` for a keyword nobody taught it."""
    root = schema if root is None else root
    if schema is True or schema == {}:
        return JSON_VALUES
    if "$ref" in schema:
        return from_schema(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root)
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of([from_schema(option, root) for option in schema["anyOf"]])
    return KINDS[schema["type"]](schema, root)


def _string(schema: Any, root: Any) -> st.SearchStrategy[Any]:
    low, high = schema.get("minLength", 0), min(schema.get("maxLength", 40), schema.get("minLength", 0) + 40)
    if "pattern" in schema:
        return st.from_regex(schema["pattern"].replace("$", r"\Z"), alphabet=TEXT).filter(
            lambda text: low <= len(text) <= schema.get("maxLength", 10**6)
        )
    return st.text(TEXT, min_size=low, max_size=high)


def _integer(schema: Any, root: Any) -> st.SearchStrategy[Any]:
    return st.integers(schema.get("minimum", -(2**53)), schema.get("maximum", 2**53))


def _array(schema: Any, root: Any) -> st.SearchStrategy[Any]:
    low = schema.get("minItems", 0)
    return st.lists(from_schema(schema.get("items", {}), root), min_size=low, max_size=low + 3)


def _object(schema: Any, root: Any) -> st.SearchStrategy[Any]:
    properties = schema.get("properties", {})
    required = set(schema.get("required", ()))
    known = st.fixed_dictionaries(
        {name: from_schema(item, root) for name, item in properties.items() if name in required},
        optional={name: from_schema(item, root) for name, item in properties.items() if name not in required},
    )
    if isinstance(schema.get("additionalProperties"), dict):
        values = from_schema(schema["additionalProperties"], root)
        return st.dictionaries(st.text("ab", max_size=3), values, max_size=min(4, schema.get("maxProperties", 4)))
    if properties or schema.get("additionalProperties") is False:
        return known
    return st.dictionaries(st.text("ab", max_size=3), JSON_VALUES, max_size=min(4, schema.get("maxProperties", 4)))


KINDS = {
    "string": _string,
    "integer": _integer,
    "array": _array,
    "object": _object,
    "boolean": lambda schema, root: st.booleans(),
    "null": lambda schema, root: st.none(),
    "number": lambda schema, root: st.floats(schema.get("minimum", -1e9), schema.get("maximum", 1e9), allow_nan=False),
}
