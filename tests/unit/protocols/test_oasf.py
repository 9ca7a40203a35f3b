"""OASF records: modules and locators as endpoints, annotations for the rest."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from msgspec.structs import replace

from support.older_documents import OASF_0_3_A2A, OASF_0_7
from support.records import DECODE, ENCODE
from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject
from waypost.model.record import AgentRecord, Binding
from waypost.protocols.codec import CARRY
from waypost.protocols.dialects import OASF
from waypost.protocols.oasf.codec import PROTOCOL, TAGS
from waypost.protocols.oasf.taxonomy import classify_tags

KITCHEN, SMALLEST = OASF.examples()


def decode(document: JsonObject) -> AgentRecord:
    return OASF.decode(document, DECODE).record


def source_with(**members: Any) -> JsonObject:
    return {**copy.deepcopy(SMALLEST), **members}


def test_a_record_maps_as_the_table_says() -> None:
    record = decode(KITCHEN)
    assert record.id == "example.com/kitchen-orders@v1.4.0"
    assert record.tags == (
        "contextual_comprehension",
        "workflow_automation",
        "tool_interaction/workflow_automation",
        "food_and_beverage",
        "hospitality_and_tourism/food_and_beverage",
    )
    assert [(b.protocol, b.endpoint) for b in record.bindings] == [
        ("a2a+http-json", "https://kitchen.example.com/a2a"),
        ("mcp", "https://kitchen.example.com/mcp"),
        ("container_image", "https://registry.example.com/kitchen/orders"),
        ("https", "https://kitchen.example.com/orders"),
        ("https", "https://backup.example.com/orders"),
    ]
    assert record.auth["schemes"] == [{"id": "key", "type": "apiKey", "in": "header", "name": "X-Key"}]
    assert record.constraints == {"region": "eu", "cuisine": "nordic"}
    assert (record.version, record.updated_at) == ("v1.4.0", "2026-03-01T09:30:00Z")


def test_a_record_comes_back_as_it_was() -> None:
    for source in (KITCHEN, SMALLEST):
        assert OASF.encode(decode(source), ENCODE).document == source


def test_a_name_with_spaces_gives_an_id_without() -> None:
    assert decode(source_with(name="Marketing Strategy Agent")).id == "Marketing-Strategy-Agent@0.3.1"


def test_an_encoded_record_has_every_required_member() -> None:
    record = AgentRecord(
        id="https://h.example/x",
        name="X",
        description="Does x.",
        bindings=(
            Binding(protocol="https", endpoint="https://h.example/run"),
            Binding(protocol="a2a+grpc", endpoint="h.example:50051"),
            Binding(protocol="helm_chart", endpoint="https://h.example/chart"),
        ),
        tags=("finance",),
        constraints={"region": "eu", "cost": 3, "agntcy.x": "no"},
    )
    source = OASF.encode(record, replace(ENCODE, created_at=1_700_000_000.0)).document
    assert source["authors"] == ["h.example"]
    assert (source["created_at"], source["schema_version"], source["version"]) == (
        "2023-11-14T22:13:20Z",
        "1.0.0",
        "1.0.0",
    )
    assert source["skills"] == []
    assert source["domains"] == [{"name": "finance_and_business/finance", "id": 202}]
    assert source["locators"] == [
        {"type": "url", "urls": ["https://h.example/run"]},
        {"type": "url", "urls": ["h.example:50051"], "annotations": {PROTOCOL: "a2a+grpc"}},
        {"type": "helm_chart", "urls": ["https://h.example/chart"]},
    ]
    assert source["annotations"]["region"] == "eu"
    assert not any(name.startswith("agntcy.") for name in source["annotations"])
    assert decode(source) == record


def test_the_remainder_is_a_text_among_the_annotations() -> None:
    source = OASF.encode(replace(decode(KITCHEN), status="testing"), ENCODE).document
    assert json.loads(source["annotations"][CARRY]) == {"members": {"status": "testing"}}
    assert all(isinstance(value, str) for value in source["annotations"].values())
    assert decode(source).status == "testing"


def test_a_remainder_that_is_no_json_is_refused_at_its_place() -> None:
    for text in ("{", "5", '{"a":1,"a":2}'):
        with pytest.raises(InvalidDocument) as caught:
            decode(source_with(annotations={CARRY: text}))
        assert (caught.value.path or "").startswith("$.annotations")


def test_records_of_older_schemas_are_read_as_far_as_they_are_known() -> None:
    source = source_with(
        schema_version="0.3.1",
        skills=[{"category_name": "Natural Language Processing", "class_name": "Text Completion", "class_uid": 10201}],
        locators=[{"type": "source_code", "url": "https://git.example.com/x", "digest": "sha256:0"}],
    )
    decoded = OASF.decode(source, DECODE)
    assert decoded.record.tags == ("text completion",)
    assert decoded.record.bindings[0] == Binding(protocol="source_code", endpoint="https://git.example.com/x")
    assert decoded.warnings[0].startswith("$.schema_version")
    assert OASF.encode(decoded.record, ENCODE).document == source


def test_a_server_json_inside_a_module_gives_its_bindings() -> None:
    data = {
        "name": "io.github.example/notes",
        "description": "Notes.",
        "version": "1.0.0",
        "remotes": [{"type": "sse", "url": "https://notes.example.com/sse"}],
    }
    source = source_with(modules=[{"name": "core/mcp", "data": data}])
    del source["locators"]
    record = decode(source)
    assert [(b.protocol, b.endpoint) for b in record.bindings] == [("mcp", "https://notes.example.com/sse")]
    assert OASF.encode(record, ENCODE).document == source


@pytest.mark.parametrize(
    "data", [{"card_data": {"name": "half a card"}}, {"connections": [{"type": "x", "url": "u"}]}, {}]
)
def test_a_module_that_cannot_be_read_is_kept_and_gives_no_binding(data: JsonObject) -> None:
    source = source_with(modules=[{"name": "integration/a2a", "data": data}, {"name": "integration/mcp", "data": data}])
    record = decode(source)
    assert len(record.bindings) == 1
    assert OASF.encode(record, ENCODE).document == source


@pytest.mark.parametrize("place", ["skills", "domains", "locators", "modules"])
def test_unknown_members_live_on_inside_nested_objects(place: str) -> None:
    source = copy.deepcopy(KITCHEN)
    source[place][-1]["x-unknown"] = {"deep": [1]}
    assert OASF.encode(decode(source), ENCODE).document == source


@pytest.mark.parametrize(
    ("change", "path", "says"),
    [
        ({"name": None}, "$.name", "missing"),
        ({"version": 1}, "$.version", "must be a string"),
        ({"schema_version": None}, "$.schema_version", "missing"),
        ({"description": " "}, "$.description", "empty"),
        ({"authors": None}, "$.authors", "missing"),
        ({"authors": [1]}, "$.authors[0]", "string"),
        ({"created_at": None}, "$.created_at", "missing"),
        ({"created_at": "2026"}, "$.created_at", "RFC 3339"),
        ({"created_at": "2099-01-01T00:00:00Z"}, "$.created_at", "future"),
        ({"skills": None}, "$.skills", "missing"),
        ({"skills": ["x"]}, "$.skills[0]", "Expected an object"),
        ({"locators": [{"type": "url"}]}, "$.locators[0].urls", "no URL"),
        ({"locators": [{"urls": ["https://x"]}]}, "$.locators[0].type", "missing"),
        ({"locators": [{"type": "url", "urls": [5]}]}, "$.locators[0].urls[0]", "must be a string"),
        ({"locators": [{"type": "url", "urls": ["a b"]}]}, "$.locators[0].urls[0]", "spaces"),
        ({"locators": [{"type": "url", "url": 5}]}, "$.locators[0].url", "must be a string"),
        (
            {"locators": [{"type": "url", "urls": ["x"], "annotations": {"a": 1}}]},
            "$.locators[0].annotations.a",
            "An annotation must be a string",
        ),
        ({"skills": [{"name": "x", "id": "1"}]}, "$.skills[0].id", "must be an integer"),
        ({"domains": [{"annotations": {"a": None}}]}, "$.domains[0].annotations.a", "An annotation must be a string"),
        ({"modules": [{"name": "x", "data": []}]}, "$.modules[0].data", "must be an object"),
        ({"modules": [{"name": "x", "artifact": "y"}]}, "$.modules[0].artifact", "must be an object"),
        ({"modules": {"a": 1}}, "$.modules", "array"),
        ({"annotations": {"a": 1}}, "$.annotations.a", "An annotation must be a string"),
    ],
)
def test_a_bad_record_is_refused_with_the_place_and_the_reason(change: JsonObject, path: str, says: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        decode(source_with(**change))
    assert caught.value.path == path
    assert says in caught.value.message


def test_tags_become_classes_of_the_taxonomy_and_the_others_an_annotation() -> None:
    tags = ("Translate", "speech-to-text", "travel", "nordic cuisine", "translation", "workflow_automation")
    record = replace(decode(SMALLEST), tags=tags, extra={})
    source = OASF.encode(record, ENCODE).document
    assert source["skills"] == [
        {"name": "natural_language_processing/language_translation/translation", "id": 10501},
        {"name": "multi_modal/audio_processing/speech_recognition", "id": 70202},
        {"name": "tool_interaction/workflow_automation", "id": 1402},
    ]
    assert source["domains"] == [{"name": "hospitality_and_tourism/travel_services", "id": 1506}]
    assert json.loads(source["annotations"][TAGS]) == ["nordic cuisine"]
    assert decode(source).tags == tags


def test_a_class_that_is_named_by_its_id_alone_gives_its_tags() -> None:
    record = decode(source_with(skills=[{"id": 10501}, {"id": 1}], domains=[{"id": 1506}]))
    assert {"translation", "travel_services", "hospitality_and_tourism/travel_services"} <= set(record.tags)


@pytest.mark.parametrize("text", ["no JSON", '{"a": 1}', "[1, null]", ""])
def test_an_annotation_that_lists_no_tags_is_ignored(text: str) -> None:
    assert decode(source_with(annotations={TAGS: text})).tags == ("text_classification",)


def test_a_word_that_names_no_class_is_not_guessed() -> None:
    assert classify_tags(["transl", "healthcare", "natural_language_processing", "", "/"]).unmapped == (
        "transl",
        "healthcare",
        "natural_language_processing",
        "",
        "/",
    )


def test_endpoints_of_older_records_are_read() -> None:
    assert [(binding.protocol, binding.endpoint) for binding in decode(OASF_0_7).bindings] == [
        ("mcp", "https://charts.example.com/mcp"),
        ("container_image", "https://registry.example.com/pilot"),
    ]
    assert [(binding.protocol, binding.endpoint) for binding in decode(OASF_0_3_A2A).bindings] == [
        ("a2a+jsonrpc", "https://pilot.example.com/a2a"),
        ("container_image", "https://registry.example.com/pilot"),
    ]


@pytest.mark.parametrize(
    "data",
    [
        {"servers": {"charts": {"url": "https://charts.example.com/mcp"}}},
        {"connections": [{"mode": "remote", "transport": "streamable_http", "url": "https://charts.example.com/mcp"}]},
    ],
)
def test_a_connection_is_read_under_each_of_its_names(data: JsonObject) -> None:
    record = decode(source_with(modules=[{"name": "integration/mcp", "data": data}], locators=None))
    assert [(binding.protocol, binding.endpoint) for binding in record.bindings] == [
        ("mcp", "https://charts.example.com/mcp")
    ]


def test_a_name_that_is_longer_than_the_record_holds_is_cut_there_and_reported() -> None:
    source = source_with(name="n" * 2000, description="Plans. " * (limits.DESCRIPTION_CHARS // 6))
    decoded = OASF.decode(source, DECODE)
    assert (len(decoded.record.name), decoded.record.id[:2]) == (limits.NAME_CHARS, "h-")
    assert [loss.path for loss in decoded.losses] == ["$.name", "$.description"]
    assert OASF.encode(decoded.record, ENCODE).document == source
