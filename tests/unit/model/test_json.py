"""The strict JSON parser: what it refuses, and the reported path."""

from __future__ import annotations

import json

import pytest

from waypost import limits
from waypost.errors import MalformedJson, TooLarge, WaypostError
from waypost.model.json import dump_json, member, parse_json, parse_object


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"a":1,"a":2}', "$.a"),
        ('{"a":{"b":[1,{"c":1,"c":1}]}}', "$.a.b[1].c"),
        ('[{"x":"{\\"x\\"","x":2}]', "$[0].x"),
        ('{"ok":{"a":1},"a":{"a":1},"z":{"q r":0,"q r":1}}', "$.z['q r']"),
    ],
)
def test_a_repeated_member_is_refused_at_its_place(text: str, path: str) -> None:
    with pytest.raises(MalformedJson) as caught:
        parse_json(text.encode())
    assert caught.value.path == path


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", '{"a":NaN}', "1e400", "-1e999"])
def test_numbers_without_a_value_are_refused(text: str) -> None:
    with pytest.raises(MalformedJson):
        parse_json(text.encode())


def test_integers_are_accepted_up_to_2_to_the_53() -> None:
    assert parse_json(b"9007199254740991") == 2**53 - 1
    assert parse_json(b"-9007199254740991") == -(2**53 - 1)
    for text in (b"9007199254740992", b"-9007199254740992", b"1" * 400, b'{"a":[9007199254740993]}'):
        with pytest.raises(MalformedJson, match="integer"):
            parse_json(text)


@pytest.mark.parametrize("text", ['"\\ud800"', '{"a":["x\\udfff"]}', '{"\\ud83d":1}'])
def test_half_of_a_surrogate_pair_is_refused(text: str) -> None:
    with pytest.raises(MalformedJson, match="surrogate"):
        parse_json(text.encode())


def test_a_whole_surrogate_pair_is_one_character() -> None:
    assert parse_json(b'"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


def test_depth_is_bounded_at_the_limit_and_not_below() -> None:
    deepest = limits.JSON_DEPTH
    assert parse_json(b"[" * deepest + b"]" * deepest)
    with pytest.raises(TooLarge, match="nested"):
        parse_json(b"[" * (deepest + 1) + b"]" * (deepest + 1))
    flat = json.dumps(["[{" * 40] * 40).encode()
    assert parse_json(flat)  # brackets inside of strings do not count
    with pytest.raises(WaypostError):
        parse_json(b"[" * 100_000)


def test_members_and_items_are_bounded_at_the_limit_and_not_below() -> None:
    keys, items = limits.JSON_OBJECT_KEYS, limits.JSON_ARRAY_ITEMS
    assert parse_json(json.dumps({str(n): n for n in range(keys)}).encode())
    assert parse_json(json.dumps(list(range(items))).encode())
    with pytest.raises(TooLarge) as caught:
        parse_json(json.dumps({"a": {str(n): n for n in range(keys + 1)}}).encode())
    assert caught.value.path == "$.a"
    with pytest.raises(TooLarge) as caught:
        parse_json(json.dumps({"a": [list(range(items + 1))]}).encode())
    assert caught.value.path == "$.a[0]"


def test_size_is_bounded_at_the_limit_and_not_below() -> None:
    most = limits.DOCUMENT_BYTES
    assert parse_json(b'"' + b"x" * (most - 2) + b'"')
    with pytest.raises(TooLarge):
        parse_json(b'"' + b"x" * (most - 1) + b'"')


def test_an_object_is_demanded_by_name() -> None:
    with pytest.raises(MalformedJson, match="an array"):
        parse_object(b"[]")


def test_dumped_json_is_compact_and_keeps_the_order() -> None:
    assert dump_json({"b": 1, "a": ["é", None]}) == '{"b":1,"a":["é",null]}'.encode()


def test_paths_quote_names_that_are_not_plain() -> None:
    assert member("$", "plain") == "$.plain"
    assert member("$.a", "com.example") == "$.a['com.example']"
