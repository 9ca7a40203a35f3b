"""neighbours.md §4 and the OASF column of §5."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from support.records import DECODE, ENCODE
from support.schemas import written_schema
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject
from waypost.model.record import AgentRecord
from waypost.protocols.codec import load_resource
from waypost.protocols.dialects import OASF, decode_document
from waypost.protocols.profile.codec import PROFILE
from waypost.samples import Sample, load

KITCHEN, SMALLEST = OASF.examples()
REQUIRED = ("name", "version", "schema_version", "description", "authors", "created_at", "skills")


def read(source: JsonObject) -> AgentRecord:
    return OASF.decode(source, DECODE).record


@pytest.mark.req("OASF-1")
@pytest.mark.parametrize("name", REQUIRED)
def test_a_record_without_a_required_member_is_refused(name: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        read({key: value for key, value in SMALLEST.items() if key != name})
    assert caught.value.path == f"$.{name}"


@pytest.mark.req("OASF-1")
@pytest.mark.parametrize("document", PROFILE.examples())
def test_every_record_we_write_has_the_seven_required_members(document: JsonObject) -> None:
    source = OASF.encode(PROFILE.decode(document, DECODE).record, ENCODE).document
    assert set(REQUIRED) <= set(source)
    Draft202012Validator(written_schema(OASF)).validate(source)


@pytest.mark.req("OASF-1")
@pytest.mark.parametrize("sample", load(), ids=lambda sample: sample.name)
def test_skills_and_domains_of_every_sample_are_classes_of_the_taxonomy(sample: Sample) -> None:
    _, _, decoded = decode_document(sample.data, sample.dialect, DECODE)
    record = decoded.record
    source = OASF.encode(replace(record, extra={}), ENCODE).document
    Draft202012Validator(written_schema(OASF)).validate(source)
    classes = load_resource("waypost.protocols.oasf", "taxonomy.json")
    for kind in ("skills", "domains"):
        assert all(item == {"name": item["name"], "id": classes[kind][item["name"]]} for item in source.get(kind, ()))
    assert read(source) == replace(record, extra=read(source).extra)


@pytest.mark.req("OASF-2")
def test_domains_locators_modules_and_annotations_are_read_and_kept() -> None:
    record = read(KITCHEN)
    assert "food_and_beverage" in record.tags
    assert record.constraints == KITCHEN["annotations"]
    assert OASF.encode(record, ENCODE).document == KITCHEN


@pytest.mark.req("OASF-3")
def test_endpoints_come_from_modules_and_locators() -> None:
    assert [(binding.protocol, binding.endpoint) for binding in read(KITCHEN).bindings] == [
        ("a2a+http-json", "https://kitchen.example.com/a2a"),
        ("mcp", "https://kitchen.example.com/mcp"),
        ("container_image", "https://registry.example.com/kitchen/orders"),
        ("https", "https://kitchen.example.com/orders"),
        ("https", "https://backup.example.com/orders"),
    ]


@pytest.mark.req("MAP-4")
def test_a_record_maps_into_the_profile() -> None:
    document = PROFILE.encode(read(KITCHEN), ENCODE).document
    Draft202012Validator(PROFILE.schema()).validate(document)
    assert document["id"] == f"{KITCHEN['name']}@{KITCHEN['version']}"
    assert document["updated_at"] == KITCHEN["created_at"]
    assert {"workflow_automation", "tool_interaction/workflow_automation"} <= set(document["tags"])
    assert document["auth"]["required"] is True


@pytest.mark.req("MAP-8")
def test_a_record_without_locators_is_read_with_a_warning() -> None:
    decoded = OASF.decode({name: value for name, value in SMALLEST.items() if name != "locators"}, DECODE)
    assert (decoded.record.bindings, "without one" in decoded.warnings[0]) == ((), True)
