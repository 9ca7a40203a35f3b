"""The A2A SDK reads our cards, and we read the cards that it writes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentProvider,
    AgentSkill,
    APIKeySecurityScheme,
    SecurityScheme,
)
from google.protobuf.json_format import MessageToDict, ParseDict
from hypothesis import given, settings
from msgspec.structs import replace

from support.records import DECODE, ENCODE, records
from waypost.model.json import JsonObject
from waypost.model.record import AgentRecord, Binding
from waypost.protocols.a2a.codec import A2A
from waypost.protocols.profile.codec import PROFILE

OLDER: JsonObject = {
    "protocolVersion": "0.3.0",
    "name": "Recipe Agent",
    "description": "Finds recipes.",
    "url": "https://recipes.example.com/rpc",
    "preferredTransport": "JSONRPC",
    "additionalInterfaces": [{"url": "https://recipes.example.com/grpc", "transport": "GRPC"}],
    "version": "1.0.0",
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "find", "name": "Find", "description": "Finds a recipe.", "tags": ["food"]}],
    "supportsAuthenticatedExtendedCard": True,
    "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
    "security": [{"key": []}],
}


def as_sdk(card: JsonObject) -> AgentCard:
    """Strictly: a member that the SDK does not know is a failure."""
    return ParseDict(copy.deepcopy(card), AgentCard())


def as_json(card: AgentCard) -> dict[str, Any]:
    return MessageToDict(card)


def written(record: AgentRecord) -> JsonObject:
    return A2A.encode(record, ENCODE).document


@pytest.mark.parametrize("card", A2A.examples())
def test_the_sdk_reads_our_examples_and_gives_the_same_record_back(card: JsonObject) -> None:
    ours = A2A.decode(card, DECODE).record
    theirs = A2A.decode(as_json(as_sdk(written(ours))), DECODE).record
    assert replace(theirs, extra={}) == replace(ours, extra={})  # protobuf leaves empty lists out of the residue


@pytest.mark.parametrize("document", PROFILE.examples())
def test_a_record_of_another_dialect_survives_a_trip_through_the_sdk(document: JsonObject) -> None:
    record = PROFILE.decode(document, DECODE).record
    card = as_sdk(written(record))
    assert card.name == record.name
    assert [interface.url for interface in card.supported_interfaces] == [b.endpoint for b in record.bindings]
    assert A2A.decode(as_json(card), DECODE).record == record


@settings(max_examples=25, deadline=None)
@given(record=records())
def test_the_sdk_reads_whatever_card_we_write(record: AgentRecord) -> None:
    card = ParseDict(written(record), AgentCard(), ignore_unknown_fields=True)
    assert (card.name, card.description) == (record.name, record.description)
    assert len(card.supported_interfaces) == len(record.bindings)


def test_we_read_a_card_that_the_sdk_built() -> None:
    card = AgentCard(
        name="Currency Agent",
        description="Converts money.",
        version="2.0.0",
        provider=AgentProvider(organization="Example Bank", url="https://bank.example.com"),
        supported_interfaces=[
            AgentInterface(
                url="https://bank.example.com/a2a",
                protocol_binding="HTTP+JSON",
                protocol_version="1.0",
                tenant="retail",
            )
        ],
        capabilities=AgentCapabilities(streaming=True),
        security_schemes={
            "key": SecurityScheme(api_key_security_scheme=APIKeySecurityScheme(location="header", name="X-Key"))
        },
        default_input_modes=["text/plain"],
        default_output_modes=["application/json"],
        skills=[
            AgentSkill(
                id="convert",
                name="Convert",
                description="Converts an amount.",
                tags=["finance"],
                examples=["How much is 10 EUR in JPY?"],
            )
        ],
    )
    document = as_json(card)
    record = A2A.decode(document, DECODE).record
    assert record.id == "https://bank.example.com/a2a#retail"
    assert record.bindings[0] == Binding(
        protocol="a2a+http-json",
        endpoint="https://bank.example.com/a2a",
        media_types=("text/plain", "application/json"),
        interaction_model="streaming",
        priority=0,
        extra={"org.waypost.a2a": {"tenant": "retail"}},
    )
    assert record.examples[0].text == "How much is 10 EUR in JPY?"
    assert as_sdk(written(record)) == card


def test_we_and_the_sdk_read_an_older_card_alike() -> None:
    ours = as_sdk(written(A2A.decode(OLDER, DECODE).record))
    theirs = parse_agent_card(copy.deepcopy(OLDER))
    assert ours == theirs
