"""rtfs.md §2–3: the agent-profile form, its types, and the card that is derived from it."""

from typing import Any

import pytest

from support.older_documents import RTFS_E
from support.records import DECODE, ENCODE
from support.rtfs import REPORT_PROFILE, WEATHER_CARD, WEATHER_PROFILE, card
from waypost.errors import InvalidDocument
from waypost.protocols.dialects import decode_document
from waypost.protocols.rtfs.agent_profile import export_profile, parse_profile, parse_profiles
from waypost.protocols.rtfs.card_derivation import derive_card, type_to_schema
from waypost.protocols.rtfs.codec import RTFS
from waypost.protocols.rtfs.sexpr import parse_form


def derived(text: str, **options: Any) -> dict[str, Any]:
    return derive_card(parse_profile(text), **options)[0]


@pytest.mark.req("RTFS-7")
def test_properties_are_pairs_or_one_map_and_each_is_given_once() -> None:
    inline = parse_profile('(agent-profile :id "a" :metadata {:name "A"})')
    mapped = parse_profile('(agent-profile {:id "a" :metadata {:name "A"}})')
    assert inline.properties == mapped.properties
    with pytest.raises(InvalidDocument, match="twice"):
        parse_profile('(agent-profile :id "a" :id "b")')


@pytest.mark.req("RTFS-7")
def test_other_forms_are_skipped_and_two_profiles_are_a_list_only_if_requested() -> None:
    profile = parse_profile('(task :id "t") (agent-profile :id "a")')
    assert profile.id == "a"
    assert "(task" in profile.warnings[0]
    two = '(agent-profile :id "a") (agent-profile :id "b")'
    with pytest.raises(InvalidDocument, match="2 agent profiles"):
        parse_profile(two)
    assert [found.id for found in parse_profiles(two)] == ["a", "b"]
    with pytest.raises(InvalidDocument, match="no \\(agent-profile"):
        parse_profile("(task)")


@pytest.mark.req("RTFS-8")
@pytest.mark.parametrize(
    ("properties", "path"),
    [
        (':metadata {:name "x"}', ":id"),
        (':id ""', ":id"),
        (':id "two words"', ":id"),
        (':id "a\\nb"', ":id"),
        (f':id "{"a" * 257}"', ":id"),
        (":id :keyword", ":id"),
        (':id "a" :metadata []', ":metadata"),
        (':id "a" :capabilities {}', ":capabilities"),
        (':id "a" :capabilities [1]', ":capabilities[0]"),
        (':id "a" :capabilities [{}]', ":capabilities[0] :capability-id"),
        (':id "a" :capabilities [{:capability-id "c"} {:capability-id "c"}]', ":capabilities[1] :capability-id"),
        (':id "a" :communication-endpoints [{:uri "/relative"}]', ":communication-endpoints[0] :uri"),
        (':id "a" :communication-endpoints [{}]', ":communication-endpoints[0] :uri"),
        (':id "a" :metadata', ":metadata"),
        ('"a" :id', "agent-profile"),
    ],
)
def test_an_invalid_profile_is_refused_with_its_path(properties: str, path: str) -> None:
    with pytest.raises(InvalidDocument) as refused:
        parse_profile(f"(agent-profile {properties})")
    assert refused.value.path == path


@pytest.mark.req("RTFS-8")
def test_unknown_properties_and_references_are_warnings() -> None:
    warnings = parse_profile(REPORT_PROFILE).warnings
    assert any("'ghost'" in warning for warning in warnings)
    assert any(":x-house-style" in warning for warning in warnings)


@pytest.mark.req("RTFS-8")
def test_a_profile_without_an_endpoint_is_valid_but_cannot_be_registered() -> None:
    text = '(agent-profile :id "a")'
    assert derived(text)["communication"] == {"protocols": [], "endpoints": []}
    with pytest.raises(InvalidDocument, match="no endpoint"):
        RTFS.decode_text(text.encode(), DECODE)


@pytest.mark.req("RTFS-9")
@pytest.mark.parametrize(
    ("expression", "schema"),
    [
        (":string", {"type": "string"}),
        ("string", {"type": "string"}),
        (":keyword", {"type": "string"}),
        ("int?", {"type": ["integer", "null"]}),
        (":float", {"type": "number"}),
        (":bool", {"type": "boolean"}),
        (":nil", {"type": "null"}),
        (":any", True),
        (":any?", True),
        (":never", False),
        ("[:vector :int]", {"type": "array", "items": {"type": "integer"}}),
        ("[:list :int?]", {"type": "array", "items": {"type": ["integer", "null"]}}),
        ("[:stream :any]", {"type": "array", "items": True}),
        ("[:array :float [3 3]]", {"type": "array", "items": {"type": "number"}, "x-rtfs-shape": "[3 3]"}),
        (
            "[:tuple :int [:vector :int]? :string]",
            {
                "type": "array",
                "prefixItems": [
                    {"type": "integer"},
                    {"type": ["array", "null"], "items": {"type": "integer"}},
                    {"type": "string"},
                ],
                "items": False,
                "minItems": 3,
            },
        ),
        (
            '[:map [:user-name :string] [:age int?] [:tags [:vector :string] ?] [:n :int {:default 1}] [:* :int]]',
            {
                "type": "object",
                "properties": {
                    "user_name": {"type": "string"},
                    "age": {"type": ["integer", "null"]},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "n": {"type": "integer", "default": 1},
                },
                "required": ["user_name", "n"],
                "additionalProperties": {"type": "integer"},
            },
        ),
        ("[:map]", {"type": "object", "properties": {}, "additionalProperties": True}),
        ("[:or :int :string]", {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        ("[:union :int :nil]", {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (
            "[:and :int [:> 0] [:<= 10]]",
            {"allOf": [{"type": "integer"}, {"exclusiveMinimum": 0}, {"maximum": 10}]},
        ),
        (
            '[:and :string [:min-length 2] [:string-max-length 9] [:string-starts-with "a.b"] [:email]]',
            {
                "allOf": [{"type": "string"}, {"minLength": 2}, {"maxLength": 9}, {"pattern": "^a\\.b"}],
                "x-rtfs-predicates": ["[:email]"],
            },
        ),
        ('[:and :string [:string-ends-with "$"]]', {"allOf": [{"type": "string"}, {"pattern": "\\$$"}]}),
        ('[:and :string [:string-contains "a-b"]]', {"allOf": [{"type": "string"}, {"pattern": "a-b"}]}),
        ('[:and :string [:string-matches-regex "^x+$"]]', {"allOf": [{"type": "string"}, {"pattern": "^x+$"}]}),
        ("[:and :string [:string-length 4]]", {"allOf": [{"type": "string"}, {"minLength": 4, "maxLength": 4}]}),
        ("[:and [:vector :int] [:min-count 1] [:max-count 3]]",
         {"allOf": [{"type": "array", "items": {"type": "integer"}}, {"minItems": 1}, {"maxItems": 3}]}),
        ("[:val 5]", {"const": 5}),
        ("[:val :on]", {"const": "on"}),
        ("[:enum :celsius :fahrenheit]", {"enum": ["celsius", "fahrenheit"]}),
        ("[:resource FileHandle]", {"x-rtfs-type": "[:resource FileHandle]"}),
        ("[:=> [:int] :int]", {"x-rtfs-type": "[:=> [:int] :int]"}),
        ("my.types/Thing", {"x-rtfs-type": "my.types/Thing"}),
        ("(a list)", {"x-rtfs-type": "(a list)"}),
        ("[:map :broken]", {"x-rtfs-type": "[:map :broken]"}),
        ("[]", {"x-rtfs-type": "[]"}),
        ("[:vector]", {"type": "array"}),
        ("[:vector :a :b :c]", {"x-rtfs-type": "[:vector :a :b :c]"}),
    ],
)  # fmt: skip
def test_a_type_becomes_json_schema_and_never_fails(expression: str, schema: Any) -> None:
    assert type_to_schema(parse_form(expression)) == schema


@pytest.mark.req("RTFS-10", "RTFS-14")
def test_the_weather_profile_gives_the_stated_card() -> None:
    made, warnings = derive_card(parse_profile(WEATHER_PROFILE))
    assert made == WEATHER_CARD
    assert any("httpsis:" in warning for warning in warnings)
    assert any("registration-id" in warning for warning in warnings)


@pytest.mark.req("RTFS-10")
def test_the_report_profile_gives_its_card() -> None:
    assert derived(REPORT_PROFILE) == {
        "agent_id": "acme/report-builder",
        "agent_profile_uri": "https://reports.example.org/.well-known/rtfs-agent-profile.json",
        "name": "Report Builder",
        "version": "2.1.0",
        "capabilities": [
            {
                "capability_id": "build-report",
                "description": "Builds a report from rows.",
                "input_schema_ref": "schemas/rows.json",
                "output_schema_ref": {"x-rtfs-type": "[:resource FileHandle]"},
            },
            {
                "capability_id": "stream-rows",
                "type": "stream-source",
                "output_schema_ref": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"row": {"type": "array", "items": True}},
                        "required": ["row"],
                        "additionalProperties": True,
                    },
                },
            },
        ],
        "communication": {
            "protocols": ["websocket", "https"],
            "endpoints": [
                {
                    "protocol": "websocket",
                    "uri": "wss://reports.example.org/live",
                    "details": {"transport": "wss", "provides_capabilities": ["stream-rows"]},
                },
                {
                    "protocol": "https",
                    "uri": "https://reports.example.org/api",
                    "details": {"transport": "https", "provides_capabilities": ["build-report", "ghost"]},
                },
            ],
        },
        "discovery_tags": ["pdf", "reporting", "two words"],
        "metadata": {
            "owner": "acme",
            "created_at": "2025-01-02T03:04:05Z",
            "last_updated_timestamp": "2025-06-07T08:09:10Z",
            "team/cost_centre": 4711,
            "limits": {"pages_per_day": 500},
            "interoperability": {"a2a_compatibility": {"agent_card_uri": "https://reports.example.org/card.json"}},
        },
    }


@pytest.mark.req("RTFS-10", "RTFS-14")
def test_a_relative_well_known_address_belongs_to_the_base_then_the_endpoint_url_then_the_first_endpoint() -> None:
    profile = parse_profile(REPORT_PROFILE)

    def uri(**options: Any) -> str:
        found: str = derive_card(profile, **options)[0]["agent_profile_uri"]
        return found

    base = "https://agent.example.com"
    assert uri(base=base, endpoint_url="http://b.example/x") == f"{base}/.well-known/rtfs-agent-profile.json"
    assert uri(endpoint_url="http://b.example:81/x") == "http://b.example:81/.well-known/rtfs-agent-profile.json"


@pytest.mark.req("RTFS-10")
def test_a_large_schema_becomes_a_reference_into_the_profile() -> None:
    wide = " ".join(f"[:member-number-{number} :string]" for number in range(300))
    text = f"""(agent-profile :id "a" :capabilities [{{:capability-id "c" :input-schema [:map {wide}]}}]
                 :discovery-mechanisms [{{:type :well-known-uri :uri "https://a.example/p.rtfs"}}])"""
    assert (
        derived(text)["capabilities"][0]["input_schema_ref"] == "https://a.example/p.rtfs#/capabilities/c/input_schema"
    )
    deep = "[:vector " * 20 + ":int" + "]" * 20
    text = f'(agent-profile :id "a" :capabilities [{{:capability-id "c" :input-schema {deep}}}])'
    assert derived(text)["capabilities"][0]["input_schema_ref"] == "#/capabilities/c/input_schema"


@pytest.mark.req("RTFS-11")
def test_communication_is_taken_as_it_is_unless_there_are_endpoints() -> None:
    block = (
        ':communication {:protocols [:http] :endpoints [{:protocol :http :uri "http://a.example" :details {:x-y 1}}]}'
    )
    assert derived(f'(agent-profile :id "a" {block})')["communication"] == {
        "protocols": ["http"],
        "endpoints": [{"protocol": "http", "uri": "http://a.example", "details": {"x_y": 1}}],
    }
    both = f'(agent-profile :id "a" {block} :communication-endpoints [{{:protocol :grpc :uri "grpc://b.example:1"}}])'
    assert derived(both)["communication"]["protocols"] == ["grpc"]


@pytest.mark.req("RTFS-12")
def test_annotations_are_in_the_card_only_when_asked_for() -> None:
    assert "annotations" not in derived(WEATHER_PROFILE)["capabilities"][0]
    asked = derived(WEATHER_PROFILE, annotations=True)["capabilities"][0]
    assert asked["annotations"] == {"idempotent": True, "max_duration_ms": 2000}


@pytest.mark.req("RTFS-13")
def test_the_other_names_of_a_card_are_read_and_todays_are_written() -> None:
    decoded = RTFS.decode(RTFS_E, DECODE)
    assert decoded.record.updated_at == "2025-06-07T08:09:10Z"
    assert [example.id for example in decoded.record.examples] == ["build", "stream"]
    written = RTFS.encode(decoded.record, ENCODE).document
    assert written["capabilities"] == [
        {"capability_id": "build"},
        {"capability_id": "stream", "description": "Streams."},
    ]
    assert written["metadata"] == {"owner": "acme", "last_updated_timestamp": "2025-06-07T08:09:10Z"}


@pytest.mark.req("RTFS-20")
def test_values_and_keys_convert_to_json() -> None:
    text = """(agent-profile :id "a" :metadata {:a-b :key, "c-d" sym, 7 nil, :ns/k :ns/v,
              :list [1 2.5 {:x-y true}], :big 9007199254740993, :edge 9007199254740991})"""
    made, warnings = derive_card(parse_profile(text))
    assert made["metadata"] == {
        "a_b": "key",
        "c-d": "sym",
        "7": None,
        "ns/k": "ns/v",
        "list": [1, 2.5, {"x_y": True}],
        "big": "9007199254740993",
        "edge": 9007199254740991,
    }
    assert any("2^53" in warning for warning in warnings)


@pytest.mark.req("RTFS-20")
@pytest.mark.parametrize("metadata", ['{:a-b 1 "a_b" 2}', "{:a 'quoted}", "{:a @context}", "{:a (f)}"])
def test_metadata_without_a_json_value_is_refused(metadata: str) -> None:
    with pytest.raises(InvalidDocument):
        derived(f'(agent-profile :id "a" :metadata {metadata})')


@pytest.mark.req("RTFS-10")
@pytest.mark.parametrize("text", [WEATHER_PROFILE, REPORT_PROFILE])
def test_a_profile_text_is_registered_as_its_card(text: str) -> None:
    name, document, decoded = decode_document(text.encode(), None, DECODE)
    assert (name, document) == ("rtfs", None)
    expected = derived(text, base=DECODE.base_url)
    assert RTFS.encode(decoded.record, ENCODE).document == {"description": expected["name"]} | expected


@pytest.mark.req("RTFS-20")
@pytest.mark.parametrize(
    "document",
    [
        WEATHER_CARD,
        card(),
        card(
            discovery_tags=["two words", ":odd", "ünï"], metadata={"kebab-key": 1, "snake_key": {"a_b": [None, True]}}
        ),
        *RTFS.examples(),
    ],
)
def test_an_exported_profile_gives_its_card_again(document: dict[str, Any]) -> None:
    text, lost = export_profile(document)
    again = derived(text)
    assert lost == ()
    document["communication"].setdefault("protocols", again["communication"]["protocols"])
    assert again == document


@pytest.mark.req("RTFS-8", "RTFS-10")
def test_an_id_of_the_greatest_length_is_used_as_a_name() -> None:
    endpoint = ':communication-endpoints [{:protocol :http :uri "https://a.example/"}]'
    decoded = RTFS.decode_text(f'(agent-profile :id "{"i" * 256}" {endpoint})'.encode(), DECODE)
    assert (decoded.record.id, decoded.record.name) == ("i" * 256, "i" * 256)
