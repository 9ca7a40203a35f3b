"""neighbours.md §1 and the A2A column of §5: what a card alone shows."""

from __future__ import annotations

import copy

import pytest
from jsonschema import Draft202012Validator

from support.records import DECODE, ENCODE
from support.schemas import written_schema
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject
from waypost.model.record import AgentRecord, Binding
from waypost.protocols.a2a.codec import A2A
from waypost.protocols.profile.codec import PROFILE

FULL, SMALLEST = A2A.examples()
REQUIRED = (
    "name",
    "description",
    "supportedInterfaces",
    "version",
    "capabilities",
    "defaultInputModes",
    "defaultOutputModes",
    "skills",
)


def read(card: JsonObject) -> AgentRecord:
    return A2A.decode(card, DECODE).record


def write(record: AgentRecord) -> JsonObject:
    return A2A.encode(record, ENCODE).document


@pytest.mark.req("A2A-2")
@pytest.mark.parametrize("document", PROFILE.examples())
def test_every_card_we_write_has_the_eight_required_members(document: JsonObject) -> None:
    card = write(PROFILE.decode(document, DECODE).record)
    assert set(REQUIRED) <= set(card)
    Draft202012Validator(written_schema(A2A)).validate(card)


@pytest.mark.req("A2A-2")
@pytest.mark.parametrize("name", ["name", "description", "supportedInterfaces", "version"])
def test_a_card_without_one_of_them_is_refused(name: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        read({key: value for key, value in SMALLEST.items() if key != name})
    assert caught.value.path == f"$.{name}"


@pytest.mark.req("A2A-3")
def test_interfaces_are_complete_and_the_preferred_one_is_first() -> None:
    record = AgentRecord(
        id="x",
        name="X",
        description="Does x.",
        bindings=(
            Binding(protocol="a2a+grpc", endpoint="https://x.example/grpc", priority=7),
            Binding(protocol="a2a+jsonrpc", endpoint="https://x.example/rpc", priority=0),
        ),
    )
    assert write(record)["supportedInterfaces"] == [
        {"url": "https://x.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "https://x.example/grpc", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
    ]
    assert [binding.priority for binding in read(FULL).bindings] == [0, 1, 2]


@pytest.mark.req("A2A-4")
def test_capabilities_are_read_and_kept() -> None:
    record = read(FULL)
    assert {binding.interaction_model for binding in record.bindings} == {"streaming"}
    assert record.constraints == {"required_extensions": ["https://example.com/ext/customs/v1"]}
    assert write(record)["capabilities"] == FULL["capabilities"]


@pytest.mark.req("A2A-5")
@pytest.mark.parametrize("name", ["id", "name", "description"])
def test_a_skill_is_complete(name: str) -> None:
    card = copy.deepcopy(SMALLEST)
    del card["skills"][0][name]
    with pytest.raises(InvalidDocument) as caught:
        read(card)
    assert caught.value.path == f"$.skills[0].{name}"
    assert all({"id", "name", "description", "tags"} <= set(skill) for skill in write(read(SMALLEST))["skills"])


@pytest.mark.req("A2A-6")
def test_a_scheme_has_one_key_and_schemes_from_before_1_0_are_read() -> None:
    card = {**SMALLEST, "securitySchemes": {"k": {"apiKeySecurityScheme": {}, "mtlsSecurityScheme": {}}}}
    with pytest.raises(InvalidDocument):
        read(card)
    older = {**SMALLEST, "securitySchemes": {"k": {"type": "apiKey", "in": "query", "name": "key"}}}
    assert write(read(older))["securitySchemes"] == {
        "k": {"apiKeySecurityScheme": {"location": "query", "name": "key"}}
    }


@pytest.mark.req("A2A-7")
def test_a_card_from_before_1_0_is_read() -> None:
    card = {
        **{name: value for name, value in SMALLEST.items() if name != "supportedInterfaces"},
        "protocolVersion": "0.3.0",
        "url": "https://echo.example.com/grpc",
        "preferredTransport": "GRPC",
        "additionalInterfaces": [{"url": "https://echo.example.com/rpc", "transport": "JSONRPC"}],
        "supportsExtendedAgentCard": True,
        "securitySchemes": {"b": {"type": "http", "scheme": "bearer"}},
        "security": [{"b": []}],
    }
    assert A2A.recognises(card)
    record = read(card)
    assert [(binding.protocol, binding.endpoint) for binding in record.bindings] == [
        ("a2a+grpc", "https://echo.example.com/grpc"),
        ("a2a+jsonrpc", "https://echo.example.com/rpc"),
    ]
    assert record.auth == {"schemes": [{"id": "b", "type": "http", "scheme": "bearer"}], "required": True}
    assert write(record)["capabilities"] == {"extendedAgentCard": True}


@pytest.mark.req("MAP-1", "PRO-47")
def test_a_card_maps_into_the_profile() -> None:
    record = read(FULL)
    document = PROFILE.encode(record, ENCODE).document
    Draft202012Validator(PROFILE.schema()).validate(document)
    assert document["id"] == FULL["supportedInterfaces"][0]["url"]
    assert document["name"] == FULL["name"]
    assert all(skill["description"] in document["description"] for skill in FULL["skills"])
    assert {"a2a", "plan-route", "logistics", "draw-map", "maps"} <= set(document["tags"])
    assert [example["id"] for example in document["examples"]] == ["plan-route-1", "plan-route-2", "draw-map-1"]
    assert [binding["protocol"] for binding in document["bindings"]] == ["a2a+jsonrpc", "a2a+grpc", "a2a+http-json"]
    assert document["bindings"][0]["media_types"] == ["application/json", "text/plain", "image/png"]
    assert [scheme["type"] for scheme in document["auth"]["schemes"]] == ["openIdConnect", "apiKey"]
    assert document["version"] == FULL["version"]


@pytest.mark.req("MAP-7")
def test_a_mapped_signature_names_its_source_and_claims_nothing() -> None:
    signature = read(FULL).signature
    assert signature == FULL["signatures"][0] | {"source": "a2a-jws"}
