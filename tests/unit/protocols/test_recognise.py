"""Recognising the dialect of a document by its content."""

from __future__ import annotations

import pytest

from support.older_documents import RTFS_E
from support.records import CODECS, DECODE
from waypost.errors import InvalidDocument, MalformedJson, UnknownDialect
from waypost.model.json import JsonObject, dump_json
from waypost.protocols.dialects import decode_document, detect_dialect, get_codec

EVERY_EXAMPLE = [
    pytest.param(name, example, id=f"{name}-{index}")
    for name, one in CODECS.items()
    for index, example in enumerate(one.examples())
]

LOOK_ALIKES: dict[str, tuple[str, JsonObject]] = {
    "a card at agent.json that speaks ADP": (
        "adp",
        {"protocol": "ADP/1.0", "name": "x", "url": "https://a.example", "skills": [], "capabilities": []},
    ),
    "a card at agent.json that is old A2A": (
        "a2a",
        {
            "name": "Old",
            "description": "An old card.",
            "url": "https://a.example/a2a",
            "version": "1.0",
            "capabilities": {"streaming": True},
            "skills": [],
            "defaultInputModes": ["text"],
            "defaultOutputModes": ["text"],
        },
    ),
    "a card at agent.json that is the Agent Framework's": (
        "af",
        {"id": "helper", "name": "Helper", "endpoints": [{"method": "POST", "path": "/v1/message:send"}]},
    ),
    "AgentMetadata with capabilities like A2A's": (
        "af",
        {"id": "helper", "name": "Helper", "version": "1.0.0", "capabilities": {"streaming": True}},
    ),
    "a profile document that forgot its bindings": ("profile", {"id": "x", "name": "X", "description": "Does x."}),
    "a profile document with metadata and an owner": (
        "profile",
        {"id": "x", "name": "X", "description": "Does x.", "bindings": [], "owner": {"name": "me"}, "metadata": {}},
    ),
    "a card of RTFS with an announced-looking id": (
        "rtfs",
        {"agent_id": "3cde1b52-1fc2-4f7b-8d8c-5e3e6f5c9c1d", "name": "x", "capabilities": [{"capability_id": "a"}]},
    ),
    "an announced agent without capabilities": (
        "announce",
        {"agent_id": "3cde1b52-1fc2-4f7b-8d8c-5e3e6f5c9c1d", "transport": {"type": "tcp", "endpoint": "h:1"}},
    ),
    "the parameters of an RTFS registration": ("rtfs", {"agent_card": {"agent_id": "x"}, "ttl_seconds": 60}),
    "an old server.json": (
        "mcp",
        {
            "name": "io.github.x/server",
            "description": "Old spelling.",
            "version_detail": {"version": "1.0.0"},
            "packages": [{"registry_name": "npm", "name": "server", "version": "1.0.0"}],
        },
    ),
    "an entry that spells its type as AI Catalog does": (
        "ard",
        {
            "identifier": "urn:air:a.example:agent:x",
            "displayName": "X",
            "mediaType": "application/agent-card+json",
            "url": "https://a.example/x.json",
        },
    ),
}

NO_AGENT: dict[str, tuple[JsonObject, str]] = {
    "a catalog": ({"specVersion": "1.0", "entries": [{"identifier": "urn:air:a.example:x"}]}, "$.entries"),
    "an empty catalog": ({"specVersion": "1.0", "entries": []}, "$.entries"),
    "an AF list": ({"agents": [{"id": "a", "name": "A"}]}, "$.agents"),
    "an MCP registry page": ({"servers": [], "metadata": {"count": 0}}, "$.servers"),
    "an announce query": ({"protocol_version": "v1.0", "query": {"capability": "x"}}, "$.query"),
    "an ADP invitation": ({"protocol": "ADP/1.1", "invite": {"code": "a1b2c3d4"}}, "$.invite"),
    "an AID record": ({"v": "aid1", "u": "https://a.example/mcp", "p": "mcp"}, "$"),
    "a JSON-RPC request": ({"jsonrpc": "2.0", "method": "rtfs.registry.register", "params": {}}, "$.method"),
}


@pytest.mark.parametrize(("name", "example"), EVERY_EXAMPLE)
def test_every_example_is_recognised_as_itself(name: str, example: JsonObject) -> None:
    assert detect_dialect(example) == name


@pytest.mark.parametrize(("name", "document"), LOOK_ALIKES.values(), ids=LOOK_ALIKES)
def test_similar_documents_are_distinguished(name: str, document: JsonObject) -> None:
    assert detect_dialect(document) == name


@pytest.mark.parametrize(("document", "path"), NO_AGENT.values(), ids=NO_AGENT)
def test_a_document_that_is_not_one_agent_is_refused_with_a_hint(document: JsonObject, path: str) -> None:
    with pytest.raises(InvalidDocument) as refused:
        detect_dialect(document)
    assert refused.value.path == path
    assert refused.value.hint


@pytest.mark.parametrize("document", [{}, {"name": "x"}, {"hello": "world"}, {"type": "object", "properties": {}}])
def test_an_unknown_document_is_refused_with_a_hint_for_one_dialect(document: JsonObject) -> None:
    with pytest.raises(UnknownDialect) as refused:
        detect_dialect(document)
    assert refused.value.hint
    assert sum(f"{name}: " in refused.value.hint for name in CODECS) <= 1


DEMANDED = {
    "profile": ("id", "name", "description", "bindings"),
    "af": ("id",),
    "rtfs": ("agent_id",),
    "announce": ("agent_id", "transport"),
    "adp": ("protocol", "identity", "endpoints"),
    "a2a": ("name", "description", "version", "supportedInterfaces"),
    "ard": ("identifier", "type"),
    "mcp": ("name", "description", "version"),
    "oasf": ("name", "version", "schema_version", "skills"),
}


@pytest.mark.parametrize(("dialect", "name"), [(each, name) for each, names in DEMANDED.items() for name in names])
def test_a_missing_member_is_named(dialect: str, name: str) -> None:
    example = CODECS[dialect].examples()[0]
    without = {key: value for key, value in example.items() if key != name}
    for document in (without, {**example, name: 12345}):
        with pytest.raises(InvalidDocument) as refused:
            decode_document(dump_json(document), None, DECODE)
        assert refused.value.path == f"$.{name}"


def test_an_rtfs_text_may_start_with_a_bom_a_comment_or_a_discarded_form() -> None:
    profile = '(agent-profile :id "a" :communication-endpoints [{:protocol :http :uri "https://a.example/"}])'
    for start in ("\ufeff", "; a comment\n", "#_ dropped ", ",\f\n"):
        dialect, document, decoded = decode_document((start + profile).encode(), None, DECODE)
        assert (dialect, document, decoded.record.id) == ("rtfs", None, "a")


def test_a_wrong_name_of_a_dialect_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownDialect, match="Did you mean 'announce'"):
        get_codec("anounce")
    with pytest.raises(UnknownDialect, match="Known: profile, af"):
        get_codec("zzz")


def test_an_unknown_dialect_is_reported_before_the_document_is_decoded() -> None:
    with pytest.raises(UnknownDialect):
        decode_document(b"not json", "profil", DECODE)


def test_a_named_dialect_is_not_second_guessed() -> None:
    document = dump_json(CODECS["profile"].examples()[0])
    with pytest.raises(InvalidDocument) as refused:
        decode_document(document, "adp", DECODE)
    assert refused.value.path == "$.protocol"


def test_malformed_json_is_reported_as_such() -> None:
    with pytest.raises(MalformedJson):
        decode_document(b'{"id": ', None, DECODE)


RTFS_TEXT = b"""
; a weather agent
(agent-profile
  :id "weather-reporter-agent-v1"
  :metadata {:name "Weather Reporter" :version "1.0.2" :description "Provides weather."}
  :communication-endpoints [{:endpoint-id "main" :protocol :json-rpc :uri "https://weather.example/rpc"}])
"""


@pytest.mark.parametrize("dialect", [None, "rtfs"])
def test_an_agent_profile_text_is_read_as_rtfs(dialect: str | None) -> None:
    name, document, decoded = decode_document(RTFS_TEXT, dialect, DECODE)
    assert (name, document) == ("rtfs", None)
    assert decoded.record.id == "weather-reporter-agent-v1"
    assert decoded.record.bindings[0].endpoint == "https://weather.example/rpc"


def test_an_agent_profile_text_is_not_taken_for_another_dialect() -> None:
    with pytest.raises(InvalidDocument, match="An rtfs text is not a document of dialect 'adp'"):
        decode_document(RTFS_TEXT, "adp", DECODE)


CARD: JsonObject = {
    "agent_id": "weather-v1",
    "name": "Weather",
    "description": "Provides weather.",
    "capabilities": [{"capability_id": "get-weather"}],
}


def test_an_enveloped_card_brings_its_lease_and_its_endpoint() -> None:
    envelope = {"agent_card": CARD, "endpoint_url": "https://weather.example/rpc", "ttl_seconds": 60}
    name, _, decoded = decode_document(dump_json(envelope), None, DECODE)
    assert name == "rtfs"
    assert decoded.ttl_seconds == 60
    assert [binding.endpoint for binding in decoded.record.bindings] == ["https://weather.example/rpc"]


def test_an_enveloped_card_that_names_its_endpoints_in_the_older_way_keeps_them() -> None:
    envelope = {"agent_card": RTFS_E, "endpoint_url": "https://elsewhere.example/rpc"}
    decoded = decode_document(dump_json(envelope), None, DECODE)[2]
    assert [binding.endpoint for binding in decoded.record.bindings] == ["https://a.example"]


@pytest.mark.parametrize(
    ("envelope", "path"),
    [
        ({"agent_card": {**CARD, "name": 5}}, "$.agent_card.name"),
        ({"agent_card": []}, "$.agent_card"),
        (
            {"agent_card": {**CARD, "communication": False}, "endpoint_url": "https://a.example"},
            "$.agent_card.communication",
        ),
        (
            {
                "agent_card": {**CARD, "communication": {"endpoints": [{"uri": "https://a.example"}]}},
                "ttl_seconds": "1h",
            },
            "$.ttl_seconds",
        ),
    ],
)
def test_faults_inside_an_envelope_have_the_envelope_in_their_path(envelope: JsonObject, path: str) -> None:
    with pytest.raises(InvalidDocument) as refused:
        decode_document(dump_json(envelope), None, DECODE)
    assert refused.value.path == path


def test_a_time_from_the_future_is_refused_in_every_dialect() -> None:
    card = {
        **CARD,
        "metadata": {"last_updated_timestamp": "2036-01-01T00:00:00Z"},
        "communication": {"endpoints": [{"uri": "https://a.example"}]},
    }
    with pytest.raises(InvalidDocument, match="in the future"):
        decode_document(dump_json(card), None, DECODE)
