"""The bytes that signatures cover (C1, C2, C3 of the threat list)."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from support.shared import require_shared
from support.vectors import load_own_vectors
from waypost.errors import InvalidDocument, WaypostError
from waypost.model.json import parse_json
from waypost.trust.document_signatures import canonicalize, canonicalize_legacy, canonicalize_parsed

JCS = ("arrays", "french", "structures", "unicode", "values", "weird")
NUMBERS = load_own_vectors("jcs_numbers")
SIGNED = load_own_vectors("signed_json_negative")


def raw(case: dict[str, Any]) -> bytes:
    if "raw" in case:
        return str(case["raw"]).encode()
    if "hex" in case:
        return bytes.fromhex(case["hex"])
    if "nest" in case:
        before, after, depth = case["nest"]
        return f"{before * depth}{after * depth}".encode()
    digit, times = case["repeat_digit"]
    return b'{"a":' + digit.encode() * times + b"}"


def double(bits: str) -> float:
    value: float = struct.unpack(">d", bytes.fromhex(bits))[0]
    return value


@pytest.mark.parametrize("name", JCS)
def test_every_published_vector_has_its_canonical_form(name: str) -> None:
    folder = require_shared("vectors/jcs")
    value = parse_json((folder / "input" / f"{name}.json").read_bytes())
    written = canonicalize(value)
    assert written == (folder / "output" / f"{name}.json").read_bytes().rstrip(b"\n")
    assert written == bytes.fromhex((folder / "outhex" / f"{name}.txt").read_text())


def test_every_published_jcs_vector_is_used() -> None:
    published = require_shared("vectors/jcs/input").glob("*.json")
    assert sorted(path.stem for path in published) == sorted(JCS)


@pytest.mark.parametrize("case", NUMBERS["cases"], ids=lambda case: case["ieee754"])
def test_every_number_of_the_appendix_has_its_text(case: dict[str, str]) -> None:
    assert canonicalize(double(case["ieee754"])) == case["jcs"].encode()


@pytest.mark.parametrize("bits", NUMBERS["errors"])
def test_nan_and_infinity_have_no_canonical_form(bits: str) -> None:
    for form in (canonicalize, canonicalize_legacy):
        with pytest.raises(InvalidDocument):
            form({"a": double(bits)})


@pytest.mark.parametrize("value", [2**53, -(2**53), {"a": "\ud800"}, {"\udc00": 1}, {1: 2}, {"a": object()}, b"bytes"])
def test_ambiguous_json_values_have_no_canonical_form(value: Any) -> None:
    with pytest.raises(InvalidDocument):
        canonicalize(value)


def test_a_value_without_end_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    for form in (canonicalize, canonicalize_legacy):
        with pytest.raises(InvalidDocument):
            form(value)


@pytest.mark.parametrize("case", SIGNED["cases"], ids=lambda case: case["name"])
def test_ambiguous_json_is_refused_before_any_signature_is_looked_at(case: dict[str, Any]) -> None:
    """C1."""
    with pytest.raises(WaypostError):
        parse_json(raw(case))


@pytest.mark.parametrize("case", SIGNED["positive"], ids=lambda case: case["name"])
def test_text_and_numbers_are_kept_as_they_were_signed(case: dict[str, Any]) -> None:
    """C3."""
    expected = bytes.fromhex(case["jcs_hex"]) if "jcs_hex" in case else case["jcs"].encode()
    assert canonicalize(parse_json(raw(case))) == expected


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON)
@settings(max_examples=500)
def test_canonicalize_agrees_with_the_rfc8785_library(value: Any) -> None:
    assert canonicalize(value) == rfc8785.dumps(value)


def test_the_quick_way_escapes_as_the_library_does() -> None:
    every = {"a": "".join(chr(code) for code in range(0x300)) + "\u2028\ufeff\uffff😀/<>&"}
    assert canonicalize(every) == rfc8785.dumps(every)


@given(JSON)
def test_a_canonical_form_reads_back_and_is_its_own_canonical_form(value: Any) -> None:
    """But for numbers beyond 2^53, whose text is that of an integer which our reader refuses."""
    written = canonicalize(value)
    try:
        again = parse_json(written)
    except WaypostError:
        return
    assert canonicalize(again) == written


def test_the_older_form_tells_a_whole_fraction_from_an_integer() -> None:
    value = parse_json('{"b":1.0,"a":[1,1e16,1e-7,"é\x7f"]}'.encode())
    assert canonicalize_legacy(value) == rb'{"a":[1,1e+16,1e-07,"\u00e9\u007f"],"b":1.0}'
    assert canonicalize(value) == '{"a":[1,10000000000000000,1e-7,"é\x7f"],"b":1}'.encode()


@given(JSON)
def test_canonicalize_parsed_agrees_with_canonicalize(value: Any) -> None:
    try:
        read = parse_json(canonicalize(value))
    except WaypostError:  # a number beyond 2^53, whose text is that of an integer
        return
    assert canonicalize_parsed(read) == canonicalize(read)


@pytest.mark.parametrize(
    "text",
    ["1.5", "[1.0]", '{"a":-2.50}', '{"a":[0,1e3]}', "[-0.0]", '{"a":"b:1.5"}', '{"é":1}', '{"b":1,"a":[true]}'],
)
def test_parsed_fractions_and_non_ascii_names_are_canonicalized_like_the_library(text: str) -> None:
    read = parse_json(text.encode())
    assert canonicalize_parsed(read) == rfc8785.dumps(read)
