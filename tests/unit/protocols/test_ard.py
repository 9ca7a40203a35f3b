"""ARD entries, urn:air names and AI catalogs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from support.older_documents import ARD_AIC
from support.records import DECODE, ENCODE
from support.schemas import catalog_schema
from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject
from waypost.model.record import AgentRecord, Binding, Example
from waypost.protocols.a2a.codec import A2A
from waypost.protocols.ard.codec import (
    ID,
    MINTED,
    Urn,
    bare_type,
    build_catalog,
    host_entry,
    mint_urn,
    parse_urn,
    registry_entry,
)
from waypost.protocols.codec import CARRY
from waypost.protocols.dialects import ARD
from waypost.protocols.mcp.codec import MCP

CATALOG_TYPE = "application/ai-catalog+json"
ASSISTANT, REGISTRY, TRUSTED, INLINE = ARD.examples()


def decode(document: JsonObject) -> AgentRecord:
    return ARD.decode(document, DECODE).record


def entry_with(**members: Any) -> JsonObject:
    return {**copy.deepcopy(ASSISTANT), **members}


def manifest_with(**members: Any) -> JsonObject:
    return {"trustManifest": {"identity": "did:web:acme.com"} | members}


def a_record(agent_id: str = "https://h.example/x", *protocols: str) -> AgentRecord:
    bindings = [Binding(protocol=protocol, endpoint="https://h.example/run") for protocol in protocols or ("https",)]
    return AgentRecord(id=agent_id, name="X", description="Does x.", bindings=tuple(bindings))


# --- Names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "urn"),
    [
        ("urn:air:acme.com:assistant", Urn("acme.com", (), "assistant")),
        ("urn:air:Acme.COM:agent:Assistant", Urn("acme.com", ("agent",), "Assistant")),
        ("URN:AIR:acme.com:a:b:c", Urn("acme.com", ("a", "b"), "c")),
        ("urn:ai:acme.com:agent:old", Urn("acme.com", ("agent",), "old")),
        ("urn:air:agent.localhost:x", Urn("agent.localhost", (), "x")),
    ],
)
def test_a_name_is_taken_apart(text: str, urn: Urn) -> None:
    assert parse_urn(text) == urn
    assert parse_urn(str(urn)) == urn


@pytest.mark.parametrize(
    "text",
    [
        "urn:air:localhost:x",
        "urn:air:acme.com",
        "urn:air:acme.com:",
        "urn:air:a.com:n::x",
        "urn:air:-:x",
        "urn:air:-a.com:x",
        "urn:air:127.0.0.1:x",
        "urn:air:acme.com:x\n",
        "urn:air:acme.com:x y",
        "urn:air:" + "a" * 64 + ".com:x",
        "urn:air:acme.com:" + "x" * 250,
        "https://acme.com/x",
        "",
    ],
)
def test_an_invalid_urn_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        parse_urn(text)
    assert caught.value.path == "$.identifier"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("agent_id", "publisher"),
    [
        ("https://h.example/p", "h.example"),
        ("agent:h.example", "h.example"),
        ("dns:_agent.h.example", "h.example"),
        ("did:web:h.example", "h.example"),
        ("550e8400-e29b-41d4-a716-446655440000", "registry.example.org"),
        ("https://localhost:8440/x", "registry.example.org"),
    ],
)
def test_a_minted_name_has_the_publisher_of_the_id_else_the_registry(agent_id: str, publisher: str) -> None:
    urn = mint_urn(agent_id, "registry.example.org")
    assert (urn.publisher, urn.namespace) == (publisher, ("agent",))
    assert parse_urn(str(urn)) == urn


def test_an_id_that_fits_is_the_name_and_another_is_digested() -> None:
    assert mint_urn("weather-1", "r.example").name == "weather-1"
    assert mint_urn("https://h.example/p", "r.example").name == "x-k3taw2hi25jnbx5fclplxs6452"
    assert len(str(mint_urn("x" * 1024, "r.example"))) < 255


def test_a_service_without_a_domain_publishes_locally() -> None:
    assert mint_urn("x", "localhost").publisher == "agent.localhost"
    assert mint_urn("x", "127.0.0.1").publisher == "agent.localhost"


# --- Entries --------------------------------------------------------------------------------------


def test_an_entry_maps_as_the_table_says() -> None:
    record = decode(TRUSTED)
    assert record.id == "urn:air:example.com:finance:invoices:reader"
    assert record.name == "Invoice Reader"
    assert record.tags == ("finance", "ocr", "read_invoice", "checktotals")
    assert record.examples[0] == Example(id="rq-1", text="read this scanned invoice")
    assert record.constraints == {"region": "eu", "pricePerPage": 0.02, "beta": False}
    assert (record.version, record.updated_at) == ("3.0.1", "2026-05-08T12:00:00Z")
    assert record.signature is None  # only a manifest that was verified becomes one
    assert record.extra["org.waypost.ard"]["trustManifest"] == TRUSTED["trustManifest"]


@pytest.mark.parametrize(
    ("kind", "protocol"),
    [
        ("application/a2a-agent-card+json", "a2a"),
        ("application/agent-card+json; charset=utf-8", "a2a"),
        ("Application/MCP-Server-Card+JSON", "mcp"),
        ("application/ai-registry+json", "ard-registry"),
        ("application/ai-catalog+json", "ai-catalog"),
        ('text/markdown; profile="urn:air:agent-skills"', "artifact"),
    ],
)
def test_an_artifact_that_was_not_fetched_is_an_unresolved_binding(kind: str, protocol: str) -> None:
    (binding,) = decode(entry_with(type=kind)).bindings
    assert (binding.protocol, binding.endpoint, binding.media_types) == (protocol, ASSISTANT["url"], (kind,))
    assert binding.extra == {"unresolved": True}


def test_the_document_that_an_entry_names_is_no_endpoint_in_other_formats() -> None:
    card = decode(entry_with(type="application/a2a-agent-card+json"))
    (interface,) = A2A.encode(card, ENCODE).document["supportedInterfaces"]
    assert (interface["protocolBinding"], interface["protocolVersion"]) == ("urn:waypost:binding:a2a", "0.0")
    server = decode(entry_with(type="application/mcp-server-card+json"))
    assert "remotes" not in MCP.encode(server, ENCODE).document
    for record, codec in ((card, A2A), (server, MCP)):
        assert codec.decode(codec.encode(record, ENCODE).document, DECODE).record == record


@pytest.mark.parametrize(
    ("kind", "data", "protocol"),
    [
        ("application/a2a-agent-card+json", A2A.examples()[1], "a2a+jsonrpc"),
        ("application/mcp-server-card+json", MCP.examples()[1], "mcp"),
        ("application/agent-metadata+json", INLINE["data"], "https"),
        ("application/agent-skills+zip", {"anything": 1}, "artifact"),
    ],
)
def test_an_inline_artifact_is_read_by_its_own_dialect(kind: str, data: JsonObject, protocol: str) -> None:
    entry = {name: value for name, value in entry_with(type=kind, data=data).items() if name != "url"}
    record = decode(entry)
    assert record.bindings[0].protocol == protocol
    assert ARD.encode(record, ENCODE).document | {"description": 0} == entry | {"description": 0}


def test_a_fault_inside_an_inline_artifact_names_its_place_there() -> None:
    data = {**A2A.examples()[1], "supportedInterfaces": [{}]}
    entry = {name: value for name, value in entry_with(data=data).items() if name != "url"}
    with pytest.raises(InvalidDocument) as caught:
        decode(entry)
    assert caught.value.path == "$.data.supportedInterfaces[0].url"


def test_an_entry_comes_back_as_it_was() -> None:
    for entry in ARD.examples():
        assert ARD.encode(decode(entry), ENCODE).document == entry


@pytest.mark.parametrize(
    ("protocols", "kind", "url"),
    [
        (("https", "a2a+grpc"), "application/a2a-agent-card+json", "/a2a/{slug}/.well-known/agent-card.json"),
        (("mcp-package",), "application/mcp-server-card+json", "/api/v1/agents/{slug}?as=mcp"),
        (("agp",), "application/agent-metadata+json", "/.well-known/agentframework/v1/agents/{slug}"),
    ],
)
def test_an_entry_points_at_the_best_native_document(protocols: tuple[str, ...], kind: str, url: str) -> None:
    entry = ARD.encode(a_record("https://h.example/x", *protocols), ENCODE).document
    assert entry["type"] == kind
    assert entry["url"] == ENCODE.base_url + url.format(slug="u-aHR0cHM6Ly9oLmV4YW1wbGUveA")


def test_a_minted_entry_is_marked_and_keeps_the_id() -> None:
    entry = ARD.encode(a_record(), ENCODE).document
    assert entry["metadata"] == {ID: "https://h.example/x", MINTED: True}
    decoded = ARD.decode(entry, DECODE)
    assert decoded.record == a_record()
    assert decoded.aliases == ()


def test_an_entry_whose_id_is_a_name_is_not_marked_as_minted() -> None:
    assert "metadata" not in ARD.encode(a_record("urn:air:h.example:agent:x"), ENCODE).document


def test_a_name_beside_a_foreign_id_is_an_alias() -> None:
    decoded = ARD.decode(entry_with(metadata={ID: "https://acme.com/a"}), DECODE)
    assert decoded.record.id == "https://acme.com/a"
    assert decoded.aliases == (ASSISTANT["identifier"],)
    assert ARD.encode(decoded.record, ENCODE).document["identifier"] == ASSISTANT["identifier"]


@pytest.mark.parametrize(
    "identifier", ["did:web:acme.com:agents:a", "https://acme.com/ids/7b", "urn:example:a", "pkg:npm/acme", "acme"]
)
def test_an_identifier_of_another_form_is_the_id_and_a_catalog_mints_a_name(identifier: str) -> None:
    entry = entry_with(identifier=identifier)
    record = decode(entry)
    assert record.id == identifier
    assert ARD.encode(record, ENCODE).document == entry
    listed = build_catalog([entry], None, "registry.example.org")
    Draft202012Validator(catalog_schema()).validate(listed)
    assert listed["entries"][0]["metadata"] == {ID: identifier, MINTED: True}
    assert decode(listed["entries"][0]).id == identifier


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({}, "assistant"),
        ({"identifier": "https://acme.com/agents/helper/"}, "helper"),
        ({"url": None, "data": A2A.examples()[1]}, A2A.examples()[1]["name"]),
    ],
)
def test_a_name_that_is_left_out_comes_from_the_artifact_or_the_identifier(change: JsonObject, name: str) -> None:
    entry = {key: value for key, value in entry_with(**change).items() if key != "displayName" and value is not None}
    assert ARD.recognises(entry)
    assert decode(entry).name == name
    listed = build_catalog([entry], None)["entries"]
    assert listed[0]["displayName"] == name


@pytest.mark.parametrize("data", [[], [1], "text", 5, True])
def test_an_inline_artifact_may_be_any_json_value(data: Any) -> None:
    entry = {**entry_with(), "data": data}
    del entry["url"]
    assert [binding.protocol for binding in decode(entry).bindings] == ["artifact"]
    assert ARD.encode(decode(entry), ENCODE).document == entry
    Draft202012Validator(catalog_schema()).validate(build_catalog([entry], None))


def test_an_agent_of_two_protocols_is_one_entry_with_an_inline_catalog() -> None:
    linked = [
        {"identifier": "urn:air:acme.com:f:mcp", "type": "application/mcp-server-card+json", "url": "https://a.com/m"},
        {"identifier": "urn:air:acme.com:f:a2a", "type": "application/a2a-agent-card+json", "url": "https://a.com/a"},
        {"identifier": "x"},
        5,
    ]
    nested = {"identifier": "n", "type": CATALOG_TYPE, "data": {"specVersion": "1.0", "entries": linked}}
    for data in ({"specVersion": "1.0", "entries": linked}, {"specVersion": "1.0", "entries": [nested]}):
        entry = {**entry_with(type=CATALOG_TYPE), "data": data}
        del entry["url"]
        found = [(binding.protocol, binding.endpoint) for binding in decode(entry).bindings]
        assert found == [("mcp", "https://a.com/m"), ("a2a", "https://a.com/a")]


def test_an_inline_catalog_is_followed_to_a_bounded_depth() -> None:
    data: JsonObject = {"entries": [{"type": "x/y", "url": "https://a.com/deep"}]}
    for _ in range(4):
        data = {"entries": [{"type": CATALOG_TYPE, "data": data}]}
    entry = {**entry_with(type=CATALOG_TYPE), "data": data}
    del entry["url"]
    assert [binding.protocol for binding in decode(entry).bindings] == ["artifact"]


@pytest.mark.parametrize("count", range(8))
def test_queries_are_two_to_five_or_not_there(count: int) -> None:
    examples = tuple(Example(text=f"{number} " + "word " * 60) for number in range(count))
    entry = ARD.encode(replace(a_record(), examples=examples), ENCODE).document
    queries = entry.get("representativeQueries", [])
    assert len(queries) == (min(count, 5) if count >= 2 else 0)
    assert all(len(query) <= 200 for query in queries)


def test_the_wish_for_visibility_is_taken_out_of_the_metadata() -> None:
    decoded = ARD.decode(entry_with(metadata={"visibility": "private", "region": "eu"}), DECODE)
    assert decoded.visibility == "private"
    assert decoded.record.constraints == {"region": "eu"}
    assert "private" not in str(ARD.encode(decoded.record, ENCODE).document)


def test_metadata_of_any_shape_is_read_and_kept() -> None:
    entry = entry_with(metadata={"nested": {"a": [1]}, "plain": 1})
    assert decode(entry).constraints == {"plain": 1}
    assert ARD.encode(decode(entry), ENCODE).document == entry


def test_odd_spellings_are_read_with_a_warning() -> None:
    decoded = ARD.decode(entry_with(identifier="urn:ai:Acme.com:agent:assistant"), DECODE)
    assert decoded.record.id == ASSISTANT["identifier"]
    assert decoded.aliases == ("urn:ai:Acme.com:agent:assistant",)
    assert "ARD-16" in decoded.warnings[0]
    assert "ARD-6" in ARD.decode(entry_with(mediaType="text/plain"), DECODE).warnings[0]
    assert "ARD-4" in ARD.decode(entry_with(representativeQueries=["one"]), DECODE).warnings[0]


def test_the_older_type_name_is_read_and_the_current_one_written() -> None:
    entry = entry_with(mediaType=ASSISTANT["type"])
    del entry["type"]
    assert ARD.recognises(entry)
    assert ARD.encode(decode(entry), ENCODE).document == ASSISTANT


def test_unknown_members_live_on_inside_nested_objects() -> None:
    for place in ("trustManifest", "publisher", "metadata"):
        entry = copy.deepcopy(TRUSTED)
        entry[place]["x-unknown"] = {"deep": [1]}
        assert ARD.encode(decode(entry), ENCODE).document == entry


@pytest.mark.parametrize(
    ("change", "path", "says"),
    [
        ({"identifier": "urn:air:acme"}, "$.identifier", "not a urn:air name"),
        ({"identifier": "two words"}, "$.identifier", "without spaces"),
        ({"identifier": 5}, "$.identifier", "must be a string"),
        ({"displayName": ""}, "$.displayName", "empty"),
        ({"type": None}, "$.type", "missing"),
        ({"data": {}}, "$.url", "both"),
        ({"url": None}, "$.url", "neither"),
        ({"url": "a b"}, "$.url", "spaces"),
        ({"tags": "x"}, "$.tags", "array"),
        ({"representativeQueries": [1, 2]}, "$.representativeQueries[0]", "string"),
        ({"updatedAt": "yesterday"}, "$.updatedAt", "RFC 3339"),
        ({"updatedAt": "2099-01-01T00:00:00Z"}, "$.updatedAt", "future"),
        ({"metadata": []}, "$.metadata", "must be an object"),
        ({"metadata": {"visibility": "secret"}}, "$.metadata.visibility", "not a visibility"),
        ({"trustManifest": {}}, "$.trustManifest.identity", "missing"),
        ({"trustManifest": "x"}, "$.trustManifest", "must be an object"),
        (manifest_with(attestations={}), "$.trustManifest.attestations", "array"),
        (manifest_with(attestations=[{"type": "SOC2"}]), "$.trustManifest.attestations[0].uri", "missing"),
        (manifest_with(provenance=[{"sourceId": "x"}]), "$.trustManifest.provenance[0].relation", "missing"),
        (manifest_with(trustSchema={"identifier": "x"}), "$.trustManifest.trustSchema.version", "missing"),
        (manifest_with(signature=5), "$.trustManifest.signature", "must be a string"),
    ],
)
def test_a_bad_entry_is_refused_with_the_place_and_the_reason(change: JsonObject, path: str, says: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        decode(entry_with(**change))
    assert caught.value.path == path
    assert says in caught.value.message


# --- Catalogs -------------------------------------------------------------------------------------


def test_a_catalog_is_valid_small_and_lists_each_entry_once() -> None:
    entries = [ARD.encode(a_record(f"https://h.example/{n % 3}"), ENCODE).document for n in range(6)]
    document = build_catalog(
        [*entries, registry_entry(ENCODE.base_url, ENCODE.host)], host_entry("Example registry", ENCODE.host)
    )
    Draft202012Validator.check_schema(catalog_schema())
    Draft202012Validator(catalog_schema()).validate(document)
    assert len(document["entries"]) == 4
    assert CARRY in entries[0]
    assert not any(CARRY in entry for entry in document["entries"])
    assert document["entries"][-1]["url"] == "https://registry.example.org/ard/"


def test_a_catalog_lists_an_odd_entry_in_the_form_that_its_schema_takes() -> None:
    (listed,) = build_catalog([ARD_AIC | {"version": None}], None)["entries"]
    Draft202012Validator(catalog_schema()).validate(build_catalog([ARD_AIC], None))
    assert (listed["identifier"], listed["type"]) == ("urn:air:example.com:agent:reader", ARD_AIC["mediaType"])
    assert listed["metadata"] == {"plain": 1}
    assert listed["trustManifest"] == ARD_AIC["trustManifest"]
    assert not {"mediaType", "version", "representativeQueries"} & set(listed)


@pytest.mark.parametrize("media_type", ["application/mcp-server+json", "Application/MCP-Server+JSON; v=1"])
def test_the_earlier_media_type_of_mcp_servers_is_understood(media_type: str) -> None:
    entry = {
        "identifier": "urn:air:example.com:mcp:weather",
        "displayName": "Weather",
        "type": media_type,
        "url": "https://example.com/mcp.json",
    }
    assert decode(entry).bindings[0].protocol == "mcp"
    inline = {**entry, "data": {"name": "com.example/w", "description": "d", "version": "1.0.0"}}
    inline["data"]["remotes"] = [{"type": "sse", "url": "https://example.com/sse"}]
    del inline["url"]
    assert decode(inline).bindings[0].endpoint == "https://example.com/sse"
    for kind in ("application/mcp-server+json", "application/mcp-server-card+json"):
        assert bare_type(kind) == bare_type(media_type)


def test_a_display_name_that_is_longer_than_the_record_holds_is_cut_there_and_reported() -> None:
    entry = {
        "identifier": "urn:air:example.com:agent:long",
        "displayName": "n" * (limits.NAME_CHARS + 1),
        "type": "application/a2a-agent-card+json",
        "url": "https://example.com/card.json",
    }
    decoded = ARD.decode(entry, DECODE)
    assert len(decoded.record.name) == limits.NAME_CHARS
    assert [loss.path for loss in decoded.losses] == ["$.displayName"]
    assert ARD.encode(decoded.record, ENCODE).document == entry


@pytest.mark.parametrize(
    ("transport", "expected"),
    [
        ({"type": "streamable-http", "endpoint": "https://example.com/mcp"}, ("mcp", "https://example.com/mcp")),
        ({"type": "streamable-http", "endpoint": "/mcp"}, ("artifact", "urn:air:example.com:mcp:weather")),
    ],
)
def test_an_inline_server_card_of_mcp_gives_the_endpoint_that_it_names(
    transport: JsonObject, expected: tuple[str, str]
) -> None:
    entry = {
        "identifier": "urn:air:example.com:mcp:weather",
        "displayName": "Weather",
        "type": "application/mcp-server-card+json",
        "data": {
            "version": "1.0",
            "protocolVersion": "2025-06-18",
            "serverInfo": {"name": "weather", "version": "latest"},
            "transport": transport,
        },
    }
    (binding,) = decode(entry).bindings
    assert (binding.protocol, binding.endpoint) == expected
