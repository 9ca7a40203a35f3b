"""ard.md §1 and §11: catalogs and their entries."""

from __future__ import annotations

import re

import pytest
from jsonschema import Draft202012Validator

from support.records import DECODE, ENCODE
from support.schemas import catalog_schema
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, dump_json
from waypost.protocols.a2a.codec import A2A
from waypost.protocols.ard.codec import build_catalog, host_entry, registry_entry
from waypost.protocols.dialects import ARD, unpack_documents
from waypost.protocols.mcp.codec import MCP
from waypost.protocols.profile.codec import PROFILE

ASSISTANT, REGISTRY, TRUSTED, INLINE = ARD.examples()
TESTER_URN = re.compile(r"^urn:air:([a-zA-Z0-9.-]+)(?::([a-zA-Z0-9._:-]+))?:([a-zA-Z0-9._-]+)$")
TESTER_TYPES = {
    "application/ai-catalog+json",
    "application/agent-card+json",
    "application/a2a-agent-card+json",
    "application/mcp-server-card+json",
    "application/agent-skills+zip",
    "application/agent-skills+gzip",
    'text/markdown; profile="urn:air:agent-skills"',
    "application/ai-registry",
    "application/ai-registry+json",
}


def written_catalog() -> JsonObject:
    """A catalog of records from several dialects, and the service itself."""
    sources = [(PROFILE, PROFILE.examples()), (A2A, A2A.examples()), (MCP, MCP.examples()[:2]), (ARD, ARD.examples())]
    entries = [
        ARD.encode(codec.decode(document, DECODE).record, ENCODE).document
        for codec, documents in sources
        for document in documents
    ]
    return build_catalog([*entries, registry_entry(ENCODE.base_url, ENCODE.host)], host_entry("Registry", ENCODE.host))


@pytest.mark.req("ARD-1")
def test_a_catalog_has_exactly_the_three_members_and_version_1_0() -> None:
    document = written_catalog()
    assert set(document) == {"specVersion", "host", "entries"}
    assert document["specVersion"] == "1.0"
    Draft202012Validator(catalog_schema()).validate(document)


@pytest.mark.req("ARD-1")
def test_any_catalog_of_major_version_1_is_read_and_a_higher_one_is_refused() -> None:
    assert unpack_documents(b'{"specVersion": "1.7", "entries": [{"a": 1}], "metadata": {}}') == [b'{"a": 1}']
    with pytest.raises(InvalidDocument) as caught:
        unpack_documents(b'{"specVersion": "2.0", "entries": []}')
    assert caught.value.path == "$.specVersion"


@pytest.mark.req("ARD-2")
def test_an_empty_catalog_is_written_and_read() -> None:
    document = build_catalog([], None)
    assert document == {"specVersion": "1.0", "entries": []}
    assert unpack_documents(dump_json(document)) == []


@pytest.mark.req("ARD-3")
def test_the_catalog_host_names_the_publisher() -> None:
    assert written_catalog()["host"] == {"displayName": "Registry", "identifier": "registry.example.org"}


@pytest.mark.req("ARD-4")
@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"identifier": None}, "$.identifier"),
        ({"displayName": ""}, "$.displayName"),
        ({"type": None}, "$.type"),
        ({"url": None}, "$.url"),
        ({"data": {}}, "$.url"),
    ],
)
def test_an_entry_has_its_members_and_one_artifact(change: JsonObject, path: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        ARD.decode(ASSISTANT | change, DECODE)
    assert caught.value.path == path


@pytest.mark.req("ARD-4")
def test_unknown_members_of_an_entry_pass() -> None:
    entry = ASSISTANT | {"x-unknown": {"a": 1}}
    assert ARD.encode(ARD.decode(entry, DECODE).record, ENCODE).document == entry


@pytest.mark.req("ARD-5")
def test_metadata_is_written_as_scalars_and_read_as_anything() -> None:
    scalars = (str, int, float, bool, type(None))
    for entry in written_catalog()["entries"]:
        assert all(isinstance(value, scalars) for value in entry.get("metadata", {}).values())
    record = ARD.decode(ASSISTANT | {"metadata": {"deep": {"a": [1]}, "flat": 1}}, DECODE).record
    assert record.constraints == {"flat": 1}
    text = {name: value for name, value in INLINE.items() if name != "data"} | {"data": "text"}
    assert ARD.decode(text, DECODE).record.bindings[0].protocol == "artifact"
    assert build_catalog([text], None)["entries"][0]["data"] == {"value": "text"}


@pytest.mark.req("ARD-6")
def test_media_type_is_read_as_type_and_type_wins() -> None:
    entry = {name: value for name, value in ASSISTANT.items() if name != "type"}
    written = ARD.encode(ARD.decode(entry | {"mediaType": ASSISTANT["type"]}, DECODE).record, ENCODE).document
    assert written == ASSISTANT
    both = ARD.decode(ASSISTANT | {"mediaType": "text/plain"}, DECODE)
    assert both.record.bindings[0].media_types == (ASSISTANT["type"],)
    assert both.warnings
    assert ARD.encode(ARD.decode(TRUSTED, DECODE).record, ENCODE).document["publisher"] == TRUSTED["publisher"]


@pytest.mark.req("ARD-7")
def test_identifier_and_version_are_unique() -> None:
    assert len(build_catalog([ASSISTANT, ASSISTANT, ASSISTANT | {"version": "2"}], None)["entries"]) == 2


@pytest.mark.req("ARD-12")
def test_the_catalog_is_of_level_two_and_passes_the_third_on() -> None:
    document = written_catalog()
    assert "host" in document
    assert any(entry.get("trustManifest") == TRUSTED["trustManifest"] for entry in document["entries"])


@pytest.mark.req("ARD-37")
def test_the_catalog_passes_the_conformance_tool() -> None:
    document = written_catalog()
    assert document["specVersion"] == "1.0"
    assert "collections" not in document
    for entry in document["entries"]:
        assert entry["identifier"]
        assert entry["displayName"]
        assert TESTER_URN.match(entry["identifier"])
        assert ("url" in entry) != ("data" in entry)
        assert entry["type"] in TESTER_TYPES | {"application/agent-metadata+json"}
        queries = entry.get("representativeQueries", ["", ""])
        assert 2 <= len(queries) <= 5
        assert all(isinstance(query, str) for query in queries)
        assert entry.get("trustManifest", {"identity": "x"})["identity"]
