"""Mutated documents: each is refused with a path, or decoded into a record that every dialect can encode.

A decoded document is also returned unchanged, so it must fit the schema of its dialect.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from support.examples import examples
from support.older_documents import OLDER
from support.records import CODECS, DECODE, ENCODE, json_values, objects, speaks_its_own
from support.schemas import catalog_schema, written_schema
from waypost.errors import InvalidRequest
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.model.record import AgentRecord
from waypost.model.registration import SourceDocument
from waypost.protocols.ard.codec import build_catalog
from waypost.protocols.codec import CARRY, Codec
from waypost.protocols.dialects import decode_document, detect_dialect
from waypost.protocols.rtfs.codec import is_envelope
from waypost.server.renderer import received_document

EVERY_CODEC = [pytest.param(codec, id=name) for name, codec in CODECS.items()]
SEEDS = {name: (*codec.examples(), *OLDER[name]) for name, codec in CODECS.items()}
EVERY_SEED = [
    pytest.param(name, seed, id=f"{name}-{number}")
    for name, seeds in SEEDS.items()
    for number, seed in enumerate(seeds)
]
VALIDATORS = {name: Draft202012Validator(codec.schema()) for name, codec in CODECS.items()}
WRITTEN = {name: Draft202012Validator(written_schema(codec)) for name, codec in CODECS.items()}
CATALOG = Draft202012Validator(catalog_schema())
widely = settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
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


def known_names(schema: Any) -> Iterator[str]:
    """Every name of a member that a schema tells of."""
    if isinstance(schema, dict):
        properties = schema.get("properties")
        yield from properties if isinstance(properties, dict) else ()
        for part in schema.values():
            yield from known_names(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from known_names(part)


NAMES = {name: st.sampled_from(sorted(set(known_names(codec.schema())))) for name, codec in CODECS.items()}


@st.composite
def distorted(draw: st.DrawFn, codec: Codec) -> JsonObject:
    """An example with up to three members or items replaced, removed or invented."""
    document = copy.deepcopy(draw(st.sampled_from(SEEDS[codec.name])))
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
                part[draw(NAMES[codec.name] | st.text(max_size=8))] = copy.deepcopy(draw(odd_values))
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


def assert_valid(validator: Draft202012Validator, document: JsonObject, name: str) -> None:
    errors = sorted(validator.iter_errors(document), key=str)
    assert not errors, f"{name} {errors[0].json_path}: {errors[0].message[:300]}"


def given_back(dialect: str, document: JsonObject) -> JsonObject:
    """The response of the service in the document's own dialect."""
    source = SourceDocument(
        dialect=dialect,
        document=dump_json(document),
        digest="",
        id="",
        received_at=DECODE.now,
        subject="somebody",
        via="http",
    )
    answer = received_document(source)
    assert answer is not None
    return parse_object(answer)


def assert_served_as_it_came(dialect: str, document: JsonObject) -> None:
    answer = given_back(dialect, document)
    assert_valid(VALIDATORS[dialect], answer, dialect)
    if not is_envelope(document):
        assert_valid(VALIDATORS[dialect], document, dialect)
    if dialect == "ard":
        assert_valid(CATALOG, build_catalog([answer], None), "catalog")


def assert_writable(record: AgentRecord) -> None:
    """Each dialect writes the record validly; strictly so, unless the record brings the dialect's own wording along."""
    for name, codec in CODECS.items():
        if name == "profile" and not record.bindings:
            continue  # which does not get agents without an endpoint
        document = parse_object(dump_json(codec.encode(record, ENCODE).document), max_bytes=1 << 22)
        assert_valid(VALIDATORS[name], document, name)
        if not speaks_its_own(record, name):
            assert_valid(WRITTEN[name], document, f"{name}, written")
        if name == "ard":
            assert_valid(CATALOG, build_catalog([document], None), "catalog")


@pytest.mark.parametrize(("dialect", "document"), EVERY_SEED)
def test_an_example_and_an_older_form_are_valid_answers_and_can_be_written_in_every_dialect(
    dialect: str, document: JsonObject
) -> None:
    name, _, decoded = decode_document(dump_json(document), None, DECODE)
    assert name == dialect
    assert_served_as_it_came(dialect, document)
    assert_writable(decoded.record)


@pytest.mark.parametrize("codec", EVERY_CODEC)
@widely
@given(data=st.data())
def test_a_distorted_document_is_refused_with_a_path_or_is_a_valid_answer_and_can_be_written_in_every_dialect(
    codec: Codec, data: st.DataObject
) -> None:
    document = data.draw(distorted(codec))
    try:
        _, _, decoded = decode_document(dump_json(document), codec.name, DECODE)
    except InvalidRequest as error:
        refused = error
    else:
        assert_served_as_it_came(codec.name, document)
        assert_writable(decoded.record)
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
        name = detect_dialect(document)
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
