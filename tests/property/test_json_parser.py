"""For any text: the strict parser accepts exactly what its rules allow, and reads it as the standard library does."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from waypost import limits
from waypost.errors import WaypostError
from waypost.model.json import parse_json

KEYS, ITEMS = limits.JSON_OBJECT_KEYS, limits.JSON_ARRAY_ITEMS

NUMBERS = st.one_of(
    st.integers(-(2**53) - 2, -(2**53) + 2),
    st.integers(2**53 - 2, 2**53 + 2),
    st.integers(-(10**20), 10**20),
).map(str) | st.sampled_from(["0", "-0", "0.5", "1e5", "1E+400", "-1e999", "NaN", "Infinity", "01", "1.", "0" * 20])
CHARACTERS = st.sampled_from(
    [
        "a",
        "é",
        "😀",
        "\\n",
        "\\u0061",
        "\\ud83d\\ude00",
        "\\ud83d",
        "\\uDEAD",
        "\\\\ud800",
        "1" * 20,
        "{[,:",
        "\\x",
        "\t",
    ]
)
STRINGS = st.lists(CHARACTERS, max_size=3).map(lambda parts: f'"{"".join(parts)}"')
SCALARS = STRINGS | NUMBERS | st.sampled_from(["null", "true", "false", "nul", ""])
SPACES = st.sampled_from(["", "", " ", "\n"])


def containers(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    members = st.tuples(STRINGS, SPACES, values).map(lambda member: f"{member[0]}{member[1]}:{member[2]}")
    return st.one_of(
        st.lists(values, max_size=4).map(lambda items: f"[{','.join(items)}]"),
        st.lists(members, max_size=4).map(lambda items: f"{{{','.join(items)}}}"),
    )


NESTED = st.tuples(st.integers(limits.JSON_DEPTH - 2, limits.JSON_DEPTH + 2), SCALARS).map(
    lambda given: "[" * given[0] + given[1] + "]" * given[0]
)
WIDE_ARRAYS = st.integers(ITEMS - 1, ITEMS + 1).map(lambda count: f"[{','.join('0' * count)}]")
WIDE_OBJECTS = st.integers(KEYS - 1, KEYS + 1).map(lambda count: json.dumps({str(name): 0 for name in range(count)}))
TEXTS = st.recursive(SCALARS | NESTED | WIDE_ARRAYS | WIDE_OBJECTS, containers, max_leaves=12)


class Pairs(list[Any]):
    """The members of an object, with duplicates."""


def is_allowed(value: Any, depth: int = 0) -> bool:
    """The rules of the strict parser, one by one, for a value that the standard library read."""
    match value:
        case Pairs():
            names = [name for name, _ in value]
            items = [*names, *(item for _, item in value)]
            return (
                depth < limits.JSON_DEPTH
                and len(names) == len(set(names)) <= KEYS
                and all(is_allowed(item, depth + 1) for item in items)
            )
        case list():
            return (
                depth < limits.JSON_DEPTH and len(value) <= ITEMS and all(is_allowed(item, depth + 1) for item in value)
            )
        case str():
            return not any("\ud800" <= char <= "\udfff" for char in value)
        case bool() | None:
            return True
        case int():
            return abs(value) <= limits.JSON_INTEGER_MAX
        case _:
            return math.isfinite(value)


def check_rules(data: bytes) -> None:
    try:
        text = data.decode()
        allowed = is_allowed(json.loads(text, object_pairs_hook=Pairs))
    except (ValueError, RecursionError):  # neither UTF-8 nor JSON, or nested far too deep
        allowed = False
    if allowed:
        assert repr(parse_json(data)) == repr(json.loads(text))  # 1 and 1.0, 0 and -0 are equal, but not the same
    else:
        with pytest.raises(WaypostError):
            parse_json(data)


@given(TEXTS, SPACES)
@example('{"a":1,"\\u0061":2}', "")
@example('["\\\\ud800"]', " ")
@example(json.dumps({str(name): 0 for name in range(KEYS + 1)}), "")
@example(json.dumps([0] * (ITEMS + 1)), "")
def test_exactly_what_the_rules_allow_is_accepted(text: str, space: str) -> None:
    check_rules((space + text + space).encode())


@given(st.binary(max_size=24))
def test_bytes_of_any_kind_are_accepted_by_the_same_rules(data: bytes) -> None:
    check_rules(data)
