"""The difference of two JSON values."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.model.events import differences_between

values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


def differences(before: Any, after: Any) -> list[Any]:
    return [msgspec.to_builtins(each) for each in differences_between(before, after, 100)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [{"path": "$.a", "before": 1, "after": 2}]),
        ({"a": None}, {}, [{"path": "$.a", "before": None}]),
        ({}, {"a": None}, [{"path": "$.a", "after": None}]),
        ({"a": True}, {"a": 1}, [{"path": "$.a", "before": True, "after": 1}]),
        ({"a": [True]}, {"a": [1]}, [{"path": "$.a", "before": [True], "after": [1]}]),
        ({"t": ["a", "b"]}, {"t": ["b"]}, [{"path": "$.t", "before": ["a", "b"], "after": ["b"]}]),
        (
            {"b": [{"x": 1}, {"x": 2}]},
            {"b": [{"x": 1}, {"x": 3}, {"x": 4}]},
            [{"path": "$.b[1].x", "before": 2, "after": 3}, {"path": "$.b[2]", "after": {"x": 4}}],
        ),
        (
            {"com.example": 1},
            {"it's": 1},
            [{"path": "$['com.example']", "before": 1}, {"path": "$['it\\'s']", "after": 1}],
        ),
        ({"a": {"b": {"c": 1}}}, {"a": {"b": 1}}, [{"path": "$.a.b", "before": {"c": 1}, "after": 1}]),
        ([], {}, [{"path": "$", "before": [], "after": {}}]),
    ],
)
def test_each_place_that_differs_is_named_with_both_sides(before: Any, after: Any, expected: list[Any]) -> None:
    assert differences(before, after) == expected


@given(before=values, after=values)
def test_equal_values_have_no_differences_and_others_have(before: Any, after: Any) -> None:
    assert differences(before, before) == []
    assert bool(differences(before, after)) == (
        msgspec.json.encode(before, order="sorted") != msgspec.json.encode(after, order="sorted")
    )


def test_the_number_of_differences_is_limited() -> None:
    assert len(differences_between({str(n): n for n in range(50)}, {}, 10)) == 10
