"""Documents that nobody meant: each is refused with a path, or read into a record that every dialect can write."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from support.records import DECODE, ENCODE, json_values, objects
from waypost.dialects import CODECS, decode_document, recognise
from waypost.dialects.codec import CARRY, Codec
from waypost.errors import InvalidRequest
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.model.record import AgentRecord

EVERY_CODEC = [pytest.param(codec, id=name) for name, codec in CODECS.items()]
VALIDATORS = {name: Draft202012Validator(codec.schema()) for name, codec in CODECS.items()}
widely = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
odd_values = st.one_of(
    json_values,
    st.sampled_from(
        [None, "", " ", 0, -1, True, [], {}, [None], [[]], [{}], "x" * 5000, {"x": {}}, "https://a b", "\x00"]
    ),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of every member and item, root excluded."""
    found: list[tuple[Any, ...]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += [(*path, key), *places(item, (*path, key))]
    return found


@st.composite
def distorted(draw: st.DrawFn, codec: Codec) -> JsonObject:
    """An example with up to three members or items replaced, removed or invented."""
    document = copy.deepcopy(draw(st.sampled_from(codec.examples())))
    for _ in range(draw(st.integers(1, 3))):
        *parents, last = draw(st.sampled_from(places(document)))
        part: Any = document
        for key in parents:
            part = part[key]
        match draw(st.sampled_from(["replace", "replace", "remove", "invent", "carry"])):
            case "replace":
                part[last] = copy.deepcopy(draw(odd_values))
            case "remove":
                del part[last]
            case "invent" if isinstance(part, dict):
                part[draw(st.text(max_size=8))] = copy.deepcopy(draw(odd_values))
            case "carry" if isinstance(part, dict):
                part[CARRY] = {
                    "members": draw(objects | st.fixed_dictionaries({"tags": odd_values})),
                    "absent": ["tags"],
                }
            case _:
                part[last] = copy.deepcopy(draw(odd_values))
        if not places(document):
            break
    return document


def assert_writable(record: AgentRecord, *, unless: set[str]) -> None:
    """Each dialect writes the record validly, apart from those that need not."""
    for name, codec in CODECS.items():
        if name in unless:
            continue
        document = parse_object(dump_json(codec.encode(record, ENCODE).document), max_bytes=1 << 22)
        errors = sorted(VALIDATORS[name].iter_errors(document), key=str)
        assert not errors, f"{name} {errors[0].json_path}: {errors[0].message}"


@pytest.mark.parametrize("codec", EVERY_CODEC)
@widely
@given(data=st.data())
def test_a_distorted_document_is_refused_with_a_path_or_can_be_written_in_every_dialect(
    codec: Codec, data: st.DataObject
) -> None:
    document = data.draw(distorted(codec))
    try:
        _, _, decoded = decode_document(dump_json(document), codec.name, DECODE)
    except InvalidRequest as error:
        refused = error
    else:
        unless = set() if VALIDATORS[codec.name].is_valid(document) else {codec.name}  # it may say the same again
        unless |= set() if decoded.record.bindings else {"profile"}  # which is not offered what it cannot reach
        assert_writable(decoded.record, unless=unless)
        return
    assert refused.path


@widely
@given(
    document=st.dictionaries(
        st.sampled_from(
            ["id", "name", "agent", "agent_card", "identity", "protocol", "url", "skills", "type", "entries"]
        ),
        odd_values,
    )
)
def test_recognition_never_stumbles(document: JsonObject) -> None:
    try:
        name = recognise(document)
    except InvalidRequest as error:
        refused = error
    else:
        assert name in CODECS
        return
    assert refused.hint


@widely
@given(data=st.binary(max_size=60) | st.sampled_from([b"(", b";", b"(agent-profile", b"()", b"(agent-profile :id 5)"]))
def test_bytes_of_any_kind_are_refused_and_nothing_else(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        decode_document(data, None, DECODE)
