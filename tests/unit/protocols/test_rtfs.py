"""The RTFS codec: cards to records and back, losses, and edited cards."""

from typing import Any

import pytest
from msgspec.structs import replace

from support.records import DECODE, ENCODE
from support.rtfs import WEATHER_CARD, card
from waypost import limits
from waypost.errors import InvalidCapability, InvalidDocument
from waypost.model.json import dump_json
from waypost.model.record import AgentRecord, Binding, Example, record_to_json
from waypost.protocols.codec import CARRY, residue_name
from waypost.protocols.rtfs.codec import RTFS

RESIDUE = residue_name("rtfs")


def record_of(document: dict[str, Any]) -> AgentRecord:
    return RTFS.decode(document, DECODE).record


def card_of(record: AgentRecord) -> dict[str, Any]:
    return RTFS.encode(record, ENCODE).document


def test_a_card_is_read_as_the_profile_mapping_says() -> None:
    record = record_of(WEATHER_CARD)
    assert record.id == "weather-reporter-agent-v1"
    assert record.tags == (
        "weather",
        "forecast",
        "location-based",
        "real-time-data",
        "get-current-weather-v1.0",
        "get-current-weather",
    )
    (example,) = record.examples
    assert (example.id, example.text) == ("get-current-weather-v1.0", "The weather at a place, now.")
    assert example.input_schema["required"] == ["location"]
    (binding,) = record.bindings
    assert (binding.protocol, binding.endpoint, binding.priority) == (
        "json-rpc",
        "http://weather.example.com:8080/rpc",
        0,
    )
    assert record.auth == {"schemes": [{"type": "api-key", "header": "X-API-Key"}], "required": True}


@pytest.mark.parametrize("protocol", ["websocket", "ws", "wss", "rtfs-stream", "streaming"])
def test_streaming_is_recognised_by_the_protocol(protocol: str) -> None:
    endpoints = [{"protocol": protocol, "uri": "wss://a.example"}, {"uri": "https://a.example"}]
    first, second = record_of(card(communication={"endpoints": endpoints})).bindings
    assert first.interaction_model == "streaming"
    assert (second.protocol, second.interaction_model) == ("https", None)


def test_missing_members_of_a_card_are_derived_from_its_id() -> None:
    record = record_of({"agent_id": "a" * 200})
    assert record.name.startswith("aaa")
    assert len(record.name) <= limits.NAME_CHARS
    assert record.description == record.name
    assert record.version is None


def test_annotations_become_constraints() -> None:
    capabilities = [
        {"capability_id": "a", "annotations": {"region": "eu", "cost": 1}},
        {"capability_id": "b", "annotations": {"cost": 2, "rate": 3}},
    ]
    assert record_of(card(capabilities=capabilities)).constraints == {"region": "eu", "cost": 1, "rate": 3}


def test_the_time_of_a_card_counts_when_it_is_one() -> None:
    assert record_of(card(metadata={"last_updated_timestamp": "2025-01-01T00:00:00Z"})).updated_at is not None
    decoded = RTFS.decode(card(metadata={"last_updated_timestamp": "yesterday"}), DECODE)
    assert decoded.record.updated_at is None
    assert any("RFC 3339" in warning for warning in decoded.warnings)
    assert card_of(decoded.record)["metadata"] == {"last_updated_timestamp": "yesterday"}
    with pytest.raises(InvalidDocument) as refused:
        RTFS.decode(card(metadata={"last_updated_timestamp": "2099-01-01T00:00:00Z"}), DECODE)
    assert refused.value.path == "$.metadata.last_updated_timestamp"


def test_visibility_is_taken_out_of_the_metadata() -> None:
    decoded = RTFS.decode(card(metadata={"visibility": "internal", "owner": "acme"}), DECODE)
    assert decoded.visibility == "internal"
    assert card_of(decoded.record)["metadata"] == {"owner": "acme"}


LARGE = card(
    capabilities=[{"capability_id": f"cap-{at}", "description": f"Does {at}."} for at in range(100)],
    discovery_tags=[f"tag-{at}" for at in range(64)],
    communication={
        "protocols": ["http"],
        "endpoints": [{"protocol": "http", "uri": f"http://h{at}"} for at in range(32)],
    },
)


def test_a_card_beyond_the_limits_of_a_record_survives_and_reports_losses() -> None:
    decoded = RTFS.decode(LARGE, DECODE)
    assert len(decoded.record.examples) == limits.EXAMPLES
    assert len(decoded.record.bindings) == limits.BINDINGS
    assert len(decoded.record.tags) == limits.TAGS
    assert [loss.path for loss in decoded.losses] == ["$.capabilities"]
    assert card_of(decoded.record) == LARGE


@pytest.mark.parametrize(
    "document",
    [
        card(communication={"protocols": ["http"], "endpoints": [{"protocol": "http", "uri": "http://a", "x": 1}]}, extra=[1]),
        card(communication={"protocols": ["http", "grpc"], "endpoints": [{"protocol": "http", "uri": "http://a"}]}),
        card(communication={"protocols": [], "endpoints": []}, capabilities=[], discovery_tags=[]),
        card(name="", description="", communication={"protocols": [], "endpoints": []}),
        card(
            discovery_tags=["Get-Weather", "A", "a"],
            communication={"protocols": ["http"], "endpoints": [{"protocol": "http", "uri": "http://a"}]},
            capabilities=[{"capability_id": "c", "description": "x" * 600, "input_schema_ref": "s.json", "type": "task"}],
        ),
    ],
)  # fmt: skip
def test_a_card_comes_back_as_it_was(document: dict[str, Any]) -> None:
    assert card_of(record_of(document)) == document


def test_a_changed_record_is_not_hidden_behind_the_wording_of_its_card() -> None:
    record = record_of(card(discovery_tags=["Old", "weather"]))
    changed = replace(record, tags=("new",), description="New words.", examples=(), version="2.0.0")
    written = card_of(changed)
    assert written["discovery_tags"] == ["new"]
    assert written["description"] == "New words."
    assert written["version"] == "2.0.0"
    assert written["metadata"]["owner"] == "acme"
    assert record_to_json(record_of(written)) == record_to_json(changed)


def test_a_foreign_record_gets_a_capability_and_keeps_members_without_a_card_field() -> None:
    record = AgentRecord(
        id="https://a.example/" + "x" * 300,
        name="A",
        description="Does a.",
        bindings=(Binding(protocol="https", endpoint="https://a.example", media_types=("text/plain",)),),
        tags=("translation",),
        status="testing",
    )
    written = card_of(record)
    assert written["capabilities"] == [{"capability_id": "translation", "description": "Does a."}]
    assert written["agent_id"].startswith("h-")
    assert written["metadata"][CARRY]["members"]["status"] == "testing"
    decoded = RTFS.decode(written, DECODE)
    assert record_to_json(decoded.record) == record_to_json(record)
    assert decoded.source_id == written["agent_id"]
    assert card_of(replace(record, tags=()))["capabilities"][0]["capability_id"] == "default"


def test_examples_without_an_id_or_with_the_same_one_get_their_own() -> None:
    examples = (Example(text="one"), Example(text="two", id="x"), Example(text="three", id="x"))
    record = replace(record_of(card()), examples=examples)
    assert [item["capability_id"] for item in card_of(record)["capabilities"]] == ["example-1", "x", "x-3"]
    assert record_to_json(record_of(card_of(record))) == record_to_json(record)


@pytest.mark.parametrize("count", [1, 3])
def test_a_record_larger_than_a_card_reports_every_loss(count: int) -> None:
    big = {f"com.example.{at}": "y" * 60_000 for at in range(count)}
    examples = tuple(Example(text=f"e{at}", id=f"e{at}", input_schema={"d": "z" * 4000}) for at in range(20))
    record = replace(record_of(card()), extra=big, examples=examples, status="testing")
    encoded = RTFS.encode(record, ENCODE)
    assert len(dump_json(encoded.document)) <= limits.RTFS_CARD_BYTES
    lost = {loss.path for loss in encoded.losses}
    assert lost
    back = record_to_json(record_of(encoded.document))
    assert back["status"] == "testing"
    kept = {name: value for name, value in record_to_json(record).items() if name in back and f"$.{name}" not in lost}
    assert all(back[name] == value for name, value in kept.items())


@pytest.mark.parametrize(
    "residue",
    [
        5,
        {"capabilities": 5},
        {"capabilities": [{}]},
        {"metadata": 5},
        {"agent_profile_uri": []},
        {"communication": {"endpoints": [1]}},
    ],
)
def test_a_residue_that_was_edited_by_hand_does_no_harm(residue: Any) -> None:
    record = replace(record_of(card()), extra={RESIDUE: residue})
    written = card_of(record)
    assert record_to_json(record_of(written)) == record_to_json(record)


def test_an_edited_residue_does_not_override_a_binding_or_example() -> None:
    record = record_of(card())
    binding = replace(record.bindings[0], extra={RESIDUE: {"details": 5, "uri": "http://evil"}})
    example = replace(record.examples[0], extra={RESIDUE: {"input_schema_ref": 7}})
    edited = replace(record, bindings=(binding,), examples=(example,))
    written = card_of(edited)
    assert written["communication"]["endpoints"][0]["uri"] == "https://weather.example/rpc"
    assert record_to_json(record_of(written)) == record_to_json(edited)


def test_a_bad_capability_alone_is_its_own_error() -> None:
    with pytest.raises(InvalidCapability):
        record_of(card(capabilities=[{}]))
    with pytest.raises(InvalidDocument) as refused:
        record_of(card(capabilities=[{}], name=5))
    assert not isinstance(refused.value, InvalidCapability)
    assert len(refused.value.details["errors"]) == 2


@pytest.mark.parametrize(
    ("document", "recognised"),
    [
        (card(), True),
        ({"agent_id": "a", "communication": {}}, True),
        ({"agent_id": "a", "capabilities_summary": []}, True),
        ({"agent_id": "a", "capabilities": {}}, False),
        ({"agent_id": "a", "capabilities": {}, "transport": {}}, False),
        ({"id": "a", "capabilities": []}, False),
        ({"agent_id": 5, "capabilities": []}, False),
    ],
)
def test_a_card_is_recognised_by_its_members(document: dict[str, Any], recognised: bool) -> None:
    assert RTFS.recognises(document) is recognised
