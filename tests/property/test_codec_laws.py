"""The laws of `waypost.protocols.codec`, for every codec in the table."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator

from support.examples import examples
from support.records import CODECS, DECODE, DIALECTS, ENCODE, records, speaks_its_own
from support.schemas import written_schema
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.model.record import AgentRecord, MappingLoss, record_to_json
from waypost.protocols.codec import Codec

EVERY_CODEC = [pytest.param(codec, id=name) for name, codec in CODECS.items()]
EVERY_EXAMPLE = [
    pytest.param(codec, example, id=f"{name}-{index}")
    for name, codec in CODECS.items()
    for index, example in enumerate(codec.examples())
]
thoroughly = settings(
    max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def without(record: AgentRecord, losses: Iterable[MappingLoss]) -> JsonObject:
    """The record as JSON, without the top-level members that losses name."""
    lost = {_top(loss.path) for loss in losses}
    return {name: value for name, value in record_to_json(record).items() if name not in lost}


def _top(path: str) -> str:
    found = re.match(r"\$(?:\.(\w+)|\[(.*?)\](?=\.|\[|$))", path, re.DOTALL)
    assert found, f"{path!r} is not a JSON path"
    return found[1] or ast.literal_eval(found[2])


def declared(codec: Codec, path: str) -> bool:
    return any(re.fullmatch(_pattern(pattern), path, re.DOTALL) for pattern in codec.loses)


def _pattern(pattern: str) -> str:
    any_member = r"(?:\.\w+|\[.*\])"
    return re.escape(pattern).replace(r"\[\*\]", r"\[\d+\]").replace(r"\.\*", any_member)


def as_received(document: JsonObject) -> JsonObject:
    """The document after a trip over the wire, through the strict reader."""
    return parse_object(dump_json(document), max_bytes=1 << 22)


def assert_valid(schema: JsonObject, document: JsonObject) -> None:
    errors = sorted(Draft202012Validator(schema).iter_errors(document), key=str)
    assert not errors, f"{errors[0].json_path}: {errors[0].message}"


def test_the_table_has_the_nine_dialects_in_order() -> None:
    assert tuple(CODECS) == DIALECTS


@pytest.mark.parametrize("codec", EVERY_CODEC)
def test_a_schema_is_itself_valid(codec: Codec) -> None:
    Draft202012Validator.check_schema(codec.schema())
    Draft202012Validator.check_schema(written_schema(codec))


@pytest.mark.parametrize("codec", EVERY_CODEC)
@thoroughly
@given(record=records())
def test_any_record_survives_but_for_losses_that_are_declared_in_a_document_that_fits_the_schema(
    codec: Codec, record: AgentRecord
) -> None:
    encoded = codec.encode(record, ENCODE)
    document = as_received(encoded.document)
    assert without(codec.decode(document, DECODE).record, encoded.losses) == without(record, encoded.losses)
    assert_declared(codec, encoded.losses)
    assert_valid(codec.schema(), document)
    if not speaks_its_own(record, codec.name):
        assert_valid(written_schema(codec), document)


def assert_declared(codec: Codec, losses: Iterable[MappingLoss]) -> None:
    for loss in losses:
        assert declared(codec, loss.path), f"{loss.path} is not among {codec.loses}"
        assert loss.reason


@pytest.mark.parametrize(("codec", "example"), EVERY_EXAMPLE)
def test_an_example_of_the_specification_fits_the_schema(codec: Codec, example: JsonObject) -> None:
    assert_valid(codec.schema(), example)


@pytest.mark.parametrize(("codec", "example"), EVERY_EXAMPLE)
def test_an_example_of_the_specification_survives_a_trip_through_the_record(codec: Codec, example: JsonObject) -> None:
    decoded = codec.decode(as_received(example), DECODE)
    encoded = codec.encode(decoded.record, ENCODE)
    assert not encoded.losses
    assert codec.decode(as_received(encoded.document), DECODE).record == decoded.record
    assert_keeps(example, encoded.document)


def assert_keeps(example: JsonObject, document: JsonObject) -> None:
    """Every member of the example is in the document; ids that are local to their host may be rewritten, and times respelled."""
    body = example.get("agent") or example.get("agent_card") or example
    missing = {name: value for name, value in body.items() if document.get(name) != value}
    assert set(missing) <= {"id", "metadata"}, missing
    for name, value in (body.get("metadata") or {}).items():
        assert document["metadata"][name] == value


@pytest.mark.parametrize(("codec", "example"), EVERY_EXAMPLE)
def test_unknown_members_survive_at_the_top_level(codec: Codec, example: JsonObject) -> None:
    unknown = {"com.example.unknown": {"deep": [1, {"er": None}]}, "unknown_flag": False}
    body = example.get("agent") or example.get("agent_card") or example
    document = {**body, **unknown}
    decoded = codec.decode(as_received(document), DECODE)
    encoded = codec.encode(decoded.record, ENCODE)
    assert unknown.items() <= encoded.document.items()


@pytest.mark.parametrize(("codec", "example"), EVERY_EXAMPLE)
def test_decoding_changes_nothing_in_the_document(codec: Codec, example: JsonObject) -> None:
    document = as_received(example)
    before = dump_json(document)
    record = codec.decode(document, DECODE).record
    codec.encode(record, ENCODE)
    assert dump_json(document) == before
