"""The `agent` object and its envelope as documents (announce.md §1, §2, §13)."""

from __future__ import annotations

from typing import Any

import pytest

from support.records import DECODE, ENCODE, NOW
from waypost import limits
from waypost.errors import InvalidDocument, MalformedJson
from waypost.model.json import JsonObject, dump_json
from waypost.model.record import AgentRecord, Binding, Example
from waypost.protocols.announce.codec import ANNOUNCE
from waypost.protocols.codec import CARRY, DecodeContext, EncodeContext
from waypost.protocols.dialects import decode_document

AGENT, ENVELOPE, SMALL = ANNOUNCE.examples()
UUID = "3cde1b52-1fc2-4f7b-8d8c-5e3e6f5c9c1d"


def changed(**members: Any) -> JsonObject:
    return {**AGENT, **members}


def read(**members: Any) -> AgentRecord:
    return ANNOUNCE.decode(changed(**members), DECODE).record


def path_of_refusal(document: JsonObject) -> str | None:
    with pytest.raises(InvalidDocument) as refused:
        ANNOUNCE.decode(document, DECODE)
    return refused.value.path


@pytest.mark.req("ANN-1")
def test_the_id_is_a_uuid_compared_in_lower_case_and_kept_as_sent() -> None:
    record = read(agent_id=UUID.upper())
    assert record.id == f"urn:uuid:{UUID}"
    assert ANNOUNCE.encode(record, ENCODE).document["agent_id"] == UUID.upper()


@pytest.mark.req("ANN-1")
@pytest.mark.parametrize(
    "agent_id",
    ["", "7", UUID.replace("-", ""), f"{{{UUID}}}", f"{UUID}\n", "../../../etc/passwd", UUID[:-1] + "g", None, 7],
)
def test_an_agent_id_that_is_not_a_uuid_is_refused(agent_id: Any) -> None:
    assert path_of_refusal(changed(agent_id=agent_id)) == "$.agent_id"


@pytest.mark.req("ANN-1")
def test_another_version_of_uuid_is_read_with_a_warning() -> None:
    other = "3cde1b52-1fc2-5f7b-8d8c-5e3e6f5c9c1d"
    decoded = ANNOUNCE.decode(changed(agent_id=other), DECODE)
    assert any("version 5" in warning for warning in decoded.warnings)
    assert ANNOUNCE.decode(AGENT, DECODE).warnings == ()


@pytest.mark.req("ANN-1")
def test_a_record_of_another_kind_is_announced_under_the_uuid_kept_beside_it() -> None:
    record = AgentRecord(
        id="https://a.example/x",
        name="Ä x",
        description="Does x.",
        bindings=(Binding(protocol="https", endpoint="https://a.example/x"),),
    )
    document = ANNOUNCE.encode(record, EncodeContext(now=NOW, announce_id=UUID)).document
    assert document["agent_id"] == UUID
    decoded = ANNOUNCE.decode(document, DECODE)
    assert (decoded.record.id, decoded.aliases) == ("https://a.example/x", (f"urn:uuid:{UUID}",))


@pytest.mark.req("ANN-2")
@pytest.mark.parametrize("capabilities", [None, [], "metrics", 1])
def test_an_agent_without_a_capabilities_object_is_refused(capabilities: Any) -> None:
    assert path_of_refusal(changed(capabilities=capabilities)) == "$.capabilities"


@pytest.mark.req("ANN-2")
def test_an_agent_that_lacks_capabilities_altogether_is_refused_also_in_its_envelope() -> None:
    agent = {name: value for name, value in AGENT.items() if name != "capabilities"}
    assert path_of_refusal(agent) == "$.capabilities"
    assert path_of_refusal({"protocol_version": "v1.0", "agent": agent}) == "$.agent.capabilities"


@pytest.mark.req("ANN-2")
@pytest.mark.parametrize(
    ("capabilities", "tags", "versions"),
    [
        ({}, (), None),
        ({"metrics": "2.0", "chat": ""}, ("metrics", "chat"), {"metrics": "2.0"}),
        ({"metrics": {"version": "2.1", "cost": 3}}, ("metrics",), {"metrics": "2.1"}),
        (
            {"data": {"read": "1", "write": {"bulk": "2"}}},
            ("data/read", "data/write/bulk"),
            {"data/read": "1", "data/write/bulk": "2"},
        ),
    ],
)
def test_capabilities_are_read_in_their_three_shapes_and_come_back_as_they_were(
    capabilities: JsonObject, tags: tuple[str, ...], versions: JsonObject | None
) -> None:
    record = read(capabilities=capabilities, metadata={})
    assert record.tags == tags
    assert (record.constraints or {}).get("capabilities") == versions
    assert ANNOUNCE.encode(record, ENCODE).document["capabilities"] == capabilities


@pytest.mark.req("ANN-2")
@pytest.mark.parametrize(
    ("capabilities", "path"),
    [
        ({"": "1"}, "$.capabilities['']"),
        ({"x" * 65: "1"}, f"$.capabilities.{'x' * 65}"),
        ({"a\u0007": "1"}, "$.capabilities['a\\x07']"),
        ({"a": 1}, "$.capabilities.a"),
        ({str(number): "1" for number in range(65)}, "$.capabilities"),
    ],
)
def test_a_wrong_capability_is_named_by_its_path(capabilities: JsonObject, path: str) -> None:
    assert path_of_refusal(changed(capabilities=capabilities)) == path


@pytest.mark.req("ANN-4")
def test_unknown_members_of_the_agent_are_kept() -> None:
    document = changed(
        resources={"cpu": 4},
        state="idle",
        transport={"type": "tcp", "endpoint": "h:1", "tls": True},
        metadata={"__hostname": "h", "load": 0.5, "note": {"a": [None]}},
    )
    assert ANNOUNCE.encode(ANNOUNCE.decode(document, DECODE).record, ENCODE).document == document


@pytest.mark.req("ANN-4")
@pytest.mark.parametrize(
    "data",
    [
        b'{"agent_id":"3cde1b52-1fc2-4f7b-8d8c-5e3e6f5c9c1d","agent_id":"x"}',
        b'{"metadata":{"n":NaN}}',
        b'{"metadata":{"n":9007199254740993}}',
        b'{"metadata":{"s":"\\ud800"}}',
        b'{"metadata":"\xff"}',
    ],
)
def test_json_that_two_readers_could_read_differently_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedJson):
        decode_document(data, "announce", DECODE)


@pytest.mark.req("ANN-4", "MAP-9")
def test_the_vector_of_the_specification_maps_into_the_profile() -> None:
    decoded = ANNOUNCE.decode(ENVELOPE, DECODE)
    record = decoded.record
    assert (record.id, record.name) == (f"urn:uuid:{UUID}", "data-processor")
    assert record.description == "Agent offering metrics"
    assert record.tags == ("metrics",)
    assert record.bindings == (Binding(protocol="tcp", endpoint="tcp://10.0.0.12:9000"),)
    assert record.constraints == {"capabilities": {"metrics": "2.0"}, "os": "linux"}
    assert record.signature == {
        "type": "announce-sig",
        "key_id": "sha256:a050837d85070582ccf7394b0988847cc312cb88259b894899f6f239cf1791a5",
        "canon": "jcs",
        "value": ENVELOPE["signature"],
    }
    assert (decoded.source_id, decoded.ttl_seconds) == (UUID, 120)


@pytest.mark.req("MAP-9")
def test_signed_sequence_and_time_tell_how_fresh_an_announcement_is() -> None:
    decoded = ANNOUNCE.decode(changed(metadata={"__seq": 7, "__iat": "2026-09-01T00:00:00Z"}), DECODE)
    assert (decoded.sequence, decoded.record.updated_at) == (7, "2026-09-01T00:00:00Z")
    assert path_of_refusal(changed(metadata={"__seq": "7"})) == "$.metadata.__seq"
    assert path_of_refusal(changed(metadata={"__iat": "2036-01-01T00:00:00Z"})) == "$.metadata.__iat"


@pytest.mark.req("MAP-9")
@pytest.mark.parametrize(
    ("transport", "binding"),
    [
        ({"type": "tcp", "endpoint": "[::1]:9000"}, ("tcp", "tcp://[::1]:9000")),
        ({"type": "ws", "endpoint": "wss://a.example/ws"}, ("ws", "wss://a.example/ws")),
        ({"type": "http", "endpoint": "https://a.example/x"}, ("https", "https://a.example/x")),
        ({"type": "http", "endpoint": "http://10.0.0.1:8080"}, ("http", "http://10.0.0.1:8080")),
        ({"type": "unix", "endpoint": "/run/a.sock"}, ("unix", "unix:/run/a.sock")),
        ({"type": "quic", "endpoint": "h:1"}, ("quic", "h:1")),
    ],
)
def test_a_transport_is_a_binding_and_back(transport: JsonObject, binding: tuple[str, str]) -> None:
    record = read(transport=transport)
    assert (record.bindings[0].protocol, record.bindings[0].endpoint) == binding
    assert ANNOUNCE.encode(record, ENCODE).document["transport"] == transport


@pytest.mark.req("MAP-9")
@pytest.mark.parametrize(
    ("transport", "path"),
    [
        (None, "$.transport"),
        ({"type": "tcp"}, "$.transport.endpoint"),
        ({"endpoint": "h:1"}, "$.transport.type"),
        ({"type": "tcp", "endpoint": "h"}, "$.transport.endpoint"),
        ({"type": "tcp", "endpoint": "h:0"}, "$.transport.endpoint"),
        ({"type": "tcp", "endpoint": "h:65536"}, "$.transport.endpoint"),
        ({"type": "ws", "endpoint": "https://a.example"}, "$.transport.endpoint"),
        ({"type": "http", "endpoint": "ftp://a.example"}, "$.transport.endpoint"),
        ({"type": "http", "endpoint": "http://a.example:99999"}, "$.transport.endpoint"),
        ({"type": "unix", "endpoint": "a.sock"}, "$.transport.endpoint"),
    ],
)
def test_a_wrong_transport_is_named_by_its_path(transport: Any, path: str) -> None:
    assert path_of_refusal(changed(transport=transport)) == path


@pytest.mark.req("MAP-9")
@pytest.mark.parametrize("name", ["-a", "a-", "a.b", "a b", "x" * 64, "é"])
def test_a_name_is_a_dns_label_or_absent(name: str) -> None:
    assert path_of_refusal(changed(agent_name=name)) == "$.agent_name"
    assert read(agent_name=None).name == UUID


@pytest.mark.req("MAP-9")
@pytest.mark.parametrize(
    ("version", "read_well"),
    [("v1.0", True), ("v1.1", True), ("v1.7", True), ("v2.0", False), ("1.0", False), ("v1", False)],
)
def test_an_envelope_of_major_one_is_read(version: str, read_well: bool) -> None:
    envelope = {**ENVELOPE, "protocol_version": version}
    if read_well:
        assert ANNOUNCE.decode(envelope, DECODE).record.name == "data-processor"
    else:
        assert path_of_refusal(envelope) == "$.protocol_version"


@pytest.mark.req("MAP-9")
def test_metadata_has_at_most_four_kibibytes() -> None:
    room = limits.METADATA_BYTES - len(dump_json({"note": ""}))
    assert ANNOUNCE.decode(changed(metadata={"note": "x" * room}), DECODE)
    assert path_of_refusal(changed(metadata={"note": "x" * (room + 1)})) == "$.metadata"


@pytest.mark.req("MAP-9")
def test_members_beyond_four_kibibytes_are_reported_as_losses_and_names_stay() -> None:
    record = AgentRecord(
        id="https://a.example/x",
        name="X",
        description="Does x. " * 500,
        bindings=(
            Binding(protocol="https", endpoint="https://a.example/x"),
            Binding(protocol="mcp", endpoint="https://b.example"),
        ),
        tags=("x",),
        examples=tuple(Example(text="Do x. " * 80) for _ in range(20)),
        version="1.0",
    )
    encoded = ANNOUNCE.encode(record, ENCODE)
    assert {loss.path for loss in encoded.losses} == {"$.description", "$.examples"}
    assert len(dump_json(encoded.document["metadata"])) <= limits.METADATA_BYTES
    back = ANNOUNCE.decode(encoded.document, DECODE).record
    assert (back.id, back.name, back.bindings, back.version) == (record.id, "X", record.bindings, "1.0")
    assert back.description.startswith("Does x. Does x.")


@pytest.mark.req("MAP-9")
@pytest.mark.parametrize(
    "key", ["é", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "", "not base64!"]
)
def test_a_key_that_gives_no_key_id_leaves_the_signature_without_one(key: str) -> None:
    record = ANNOUNCE.decode({**ENVELOPE, "agent": changed(public_key=key)}, DECODE).record
    assert record.signature == {"type": "announce-sig", "canon": "jcs", "value": ENVELOPE["signature"]}


@pytest.mark.req("MAP-9")
def test_metadata_may_ask_for_visibility() -> None:
    decoded = ANNOUNCE.decode(changed(metadata={"visibility": "internal"}), DecodeContext(now=NOW))
    assert decoded.visibility == "internal"
    assert "visibility" not in ANNOUNCE.encode(decoded.record, ENCODE).document.get("metadata", {})
    assert path_of_refusal(changed(metadata={"visibility": "hidden"})) == "$.metadata.visibility"


@pytest.mark.req("MAP-9")
@pytest.mark.parametrize(
    "carried", [7, {"members": []}, {"absent": [1]}, {"members": {"tags": "x"}}, {"members": {"bindings": [{}]}}]
)
def test_a_carried_remainder_is_checked_like_any_document(carried: Any) -> None:
    path = path_of_refusal(changed(metadata={CARRY: carried}))
    assert path is not None
    assert path.startswith(f"$.metadata['{CARRY}']")
