"""The AgentMetadata codec (agentframework.md §3, §4, §11); the API is tested in conformance."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from support.records import BASE, DECODE, ENCODE, NOW
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, dump_json
from waypost.model.names import slug
from waypost.model.record import AgentRecord, Binding, Example
from waypost.protocols.agent_framework.codec import AF, AGENTS_PATH, MEMBERS, summarize, summary_from_record, to_summary
from waypost.protocols.codec import DERIVED, DecodeContext, EncodeContext

FULL, SUMMARY = AF.examples()
NOWHERE = DecodeContext(now=NOW)


def record_of(**members: Any) -> AgentRecord:
    record = AgentRecord(
        id="https://a.example/x",
        name="X",
        description="Does x. And more.",
        bindings=(Binding(protocol="https", endpoint="https://a.example/x"),),
    )
    return msgspec.structs.replace(record, **members)


def written(**members: Any) -> JsonObject:
    return AF.encode(record_of(**members), ENCODE).document


@pytest.mark.req("AF-13")
@pytest.mark.parametrize("agent_id", ["weather", "https://a.example/x", "u-abc", "h-abc", "x" * 1024, "名"])
def test_the_published_id_is_a_slug_and_the_canonical_one_is_beside_it(agent_id: str) -> None:
    document = written(id=agent_id)
    assert document["id"] == slug(agent_id)
    assert document["metadata"]["canonical_id"] == agent_id


@pytest.mark.req("AF-11")
def test_an_id_that_is_local_to_its_application_becomes_the_address_of_its_representation() -> None:
    assert AF.decode(FULL, DECODE).record.id == f"{BASE}{AGENTS_PATH}image-annotator"
    found = DecodeContext(now=NOW, source_url=f"https://app.example/sub{AGENTS_PATH}image-annotator")
    assert AF.decode(FULL, found).record.id == f"https://app.example/sub{AGENTS_PATH}image-annotator"
    assert AF.decode(FULL, NOWHERE).record.id == "image-annotator"


@pytest.mark.req("AF-17")
@pytest.mark.parametrize("protocol", ["https", "http"])
def test_a_path_on_a_host_without_tls_is_an_endpoint_too_and_reads_as_https(protocol: str) -> None:
    plain = EncodeContext(now=NOW, base_url="http://127.0.0.1:8440", host="127.0.0.1")
    bindings = (Binding(protocol=protocol, endpoint="http://127.0.0.1:8440/v1/message:send"),)
    document = AF.encode(record_of(bindings=bindings), plain).document
    assert document["endpoints"] == [{"method": "POST", "path": "/v1/message:send"}]
    reading = DecodeContext(now=NOW, base_url="http://127.0.0.1:8440")
    assert AF.decode(document, reading).record.bindings == bindings
    native = AF.decode({name: value for name, value in document.items() if name != "metadata"}, reading).record
    assert [(each.protocol, each.endpoint) for each in native.bindings] == [("https", bindings[0].endpoint)]


@pytest.mark.req("AF-16", "AF-17")
def test_endpoints_are_bindings_on_the_origin_they_came_from() -> None:
    document = {
        **FULL,
        "endpoints": [
            {"method": "post", "path": "/v1/message:stream", "description": "Stream", "x": 1},
            {"method": "GET", "path": "/v1/tasks/{id}"},
        ],
    }
    stream, tasks = AF.decode(document, DECODE).record.bindings
    assert (stream.protocol, stream.endpoint) == ("https", f"{BASE}/v1/message:stream")
    assert stream.interaction_model == "streaming"
    assert stream.extra == {"x.method": "POST", "x.endpoint": {"description": "Stream", "x": 1}}
    assert (tasks.endpoint, tasks.interaction_model) == (f"{BASE}/v1/tasks/{{id}}", "request-response")


@pytest.mark.req("AF-17")
def test_without_an_origin_endpoints_are_kept_and_give_no_binding() -> None:
    decoded = AF.decode(FULL, NOWHERE)
    assert decoded.record.bindings == ()
    assert decoded.record.extra["org.waypost.af"]["endpoints"] == FULL["endpoints"]
    assert any("$.endpoints" in warning for warning in decoded.warnings)
    assert AF.encode(decoded.record, ENCODE).document["endpoints"] == []


@pytest.mark.req("AF-16", "AF-17")
@pytest.mark.parametrize(
    ("endpoint", "path"),
    [
        ("/v1/x", "$.endpoints[0]"),
        ({"path": "/x"}, "$.endpoints[0].method"),
        ({"method": "PO ST", "path": "/x"}, "$.endpoints[0].method"),
        ({"method": "POST"}, "$.endpoints[0].path"),
        ({"method": "POST", "path": "x"}, "$.endpoints[0].path"),
        ({"method": "POST", "path": "//evil.example/x"}, "$.endpoints[0].path"),
        ({"method": "POST", "path": "https://evil.example/x"}, "$.endpoints[0].path"),
        ({"method": "POST", "path": "/a/../b"}, "$.endpoints[0].path"),
        ({"method": "POST", "path": "/a?b"}, "$.endpoints[0].path"),
        ({"method": "POST", "path": "/a#b"}, "$.endpoints[0].path"),
        ({"method": "POST", "path": "/a b"}, "$.endpoints[0].path"),
    ],
)
def test_a_wrong_endpoint_is_named_by_its_path(endpoint: Any, path: str) -> None:
    with pytest.raises(InvalidDocument) as refused:
        AF.decode({**FULL, "endpoints": [endpoint]}, DECODE)
    assert refused.value.path == path


@pytest.mark.req("AF-17")
@pytest.mark.parametrize(
    "endpoint",
    [
        "https://registry.example.org.evil.example/x",
        "https://evil.example/x",
        "https://user@registry.example.org/x",
        f"{BASE}//evil.example/x",
        f"{BASE}/a/../b",
        f"{BASE}/a?b=1",
        "http://registry.example.org/x",
    ],
)
def test_only_a_plain_path_on_the_services_own_origin_is_an_endpoint(endpoint: str) -> None:
    document = written(bindings=(Binding(protocol="https", endpoint=endpoint),))
    assert document["endpoints"] == []
    assert document["metadata"]["bindings"] == [{"protocol": "https", "endpoint": endpoint}]


@pytest.mark.req("AF-19")
def test_members_are_in_table_order_and_unknown_ones_last() -> None:
    document = {"zz": 1, **dict(reversed(FULL.items()))}
    assert list(AF.encode(AF.decode(document, DECODE).record, ENCODE).document) == [*MEMBERS, "zz"]


def test_the_rest_of_the_record_rides_in_metadata_under_its_own_name() -> None:
    metadata = written(
        examples=(Example(text="Do x."),),
        constraints={"region": "eu"},
        auth={"schemes": []},
        signature={"alg": "x"},
        status="testing",
        expires_at="2036-01-01T00:00:00Z",
    )["metadata"]
    assert metadata == {
        "canonical_id": "https://a.example/x",
        "status": "testing",
        "expires_at": "2036-01-01T00:00:00Z",
        "auth": {"schemes": []},
        "constraints": {"region": "eu"},
        "signature": {"alg": "x"},
        "examples": [{"text": "Do x."}],
        "bindings": [{"protocol": "https", "endpoint": "https://a.example/x"}],
    }


def test_metadata_is_free_form_and_a_vendors_own_shape_stays_the_vendors() -> None:
    vendor = {"examples": ["Do x."], "status": "beta", "canonical_id": 7, "bindings": "none", "team": {"a": 1}}
    record = AF.decode({**FULL, "metadata": vendor}, DECODE).record
    assert (record.examples, record.status) == ((), None)
    served = AF.encode(record, ENCODE).document["metadata"]
    assert {name: served[name] for name in ("examples", "status", "bindings", "team")} == {
        name: vendor[name] for name in ("examples", "status", "bindings", "team")
    }


@pytest.mark.parametrize(
    ("members", "description"),
    [({"summary": "Short."}, "Short."), ({"summary": " "}, "Image Annotator"), ({}, "Image Annotator")],
)
def test_a_description_that_is_missing_is_derived_and_marked(members: JsonObject, description: str) -> None:
    document = {"id": "image-annotator", "name": "Image Annotator", **members}
    decoded = AF.decode(document, DECODE)
    assert decoded.record.description == description
    assert decoded.record.extra[DERIVED] == ["description"]
    assert any("$.description" in warning for warning in decoded.warnings)


def test_a_name_that_is_null_falls_back_to_the_id() -> None:
    assert AF.decode({**FULL, "name": None}, DECODE).record.name == "image-annotator"


@pytest.mark.req("AF-19")
def test_times_are_utc_in_whole_seconds() -> None:
    document = written(updated_at="2026-05-08T02:00:00.75+02:00")
    assert document["updated_at"] == "2026-05-08T00:00:00Z"
    assert AF.decode(document, DECODE).record.updated_at == "2026-05-08T02:00:00.75+02:00"
    registry = EncodeContext(now=NOW, created_at=0.0, updated_at=1_700_000_000.5)
    known = AF.encode(record_of(), registry).document
    assert (known["created_at"], known["updated_at"]) == ("1970-01-01T00:00:00Z", "2023-11-14T22:13:20Z")
    assert not {"created_at", "updated_at"} & set(written())


@pytest.mark.req("AF-20")
def test_oversized_metadata_is_truncated_and_marked() -> None:
    examples = tuple(Example(text=f"Do x {number}.", extra={"note": "y" * 5000}) for number in range(20))
    encoded = AF.encode(record_of(examples=examples, status="testing"), ENCODE)
    assert len(dump_json(encoded.document["metadata"])) <= 64 * 1024
    assert encoded.document["metadata"]["truncated"] == ["metadata"]
    assert [loss.path for loss in encoded.losses] == ["$.examples"]
    back = AF.decode(encoded.document, DECODE).record
    assert (back.id, back.status) == ("https://a.example/x", "testing")


@pytest.mark.req("AF-20")
def test_a_summary_beyond_its_bound_is_cut_and_named() -> None:
    record = AF.decode({**FULL, "summary": "s" * 600}, DECODE).record
    document = AF.encode(record, ENCODE).document
    assert len(document["summary"]) == 512
    assert document["metadata"]["truncated"] == ["summary"]
    assert AF.decode(document, DECODE).record == record


@pytest.mark.req("AF-53")
def test_control_characters_are_removed_and_reported_as_a_loss() -> None:
    encoded = AF.encode(
        record_of(
            name="X\x00\x1b[31m",
            description="Does\x07 x.\nReally.",
            tags=("a\x08b", "\x07"),
            examples=(Example(text="\x01"), Example(text="Do\x01 x.")),
            extra={"x": {"deep": ["a\x02b"]}},
        ),
        ENCODE,
    )
    text = dump_json(encoded.document).decode()
    assert "\\u00" not in text
    assert encoded.document["description"] == "Does x.\nReally."
    assert {loss.path for loss in encoded.losses} == {"$.name", "$.description", "$.tags", "$.examples", "$.x"}


@pytest.mark.req("AF-53")
def test_internal_keys_of_metadata_are_not_served() -> None:
    record = AF.decode({**FULL, "metadata": {"_secret": 1, "team": "vision"}}, DECODE).record
    encoded = AF.encode(record, ENCODE)
    assert "_secret" not in dump_json(encoded.document).decode()
    assert encoded.document["metadata"]["team"] == "vision"
    assert [loss.path for loss in encoded.losses] == ["$['org.waypost.af']"]


@pytest.mark.parametrize(
    ("description", "summary"),
    [
        ("Does x. And more.", "Does x."),
        ("Does x", "Does x"),
        ("Version 1.2 is out! Yes.", "Version 1.2 is out!"),
        ("  Many\n lines. Here.", "Many lines."),
        ("翻訳します。そして。", "翻訳します。"),
        ("x" * 300, "x" * 199 + "…"),
    ],
)
def test_a_summary_is_the_first_sentence(description: str, summary: str) -> None:
    assert summarize(description) == summary
    assert written(description=description)["summary"] == summary


def test_a_long_sentence_is_cut_on_a_word() -> None:
    summary = summarize("word " * 100)
    assert len(summary) <= 200
    assert summary.endswith("word…")


@pytest.mark.parametrize("document", [FULL, SUMMARY, {**FULL, "summary": "Own words.", "name": "a\tb"}])
def test_the_quick_summary_equals_that_of_the_full_view(document: JsonObject) -> None:
    record = AF.decode(document, DECODE).record
    assert summary_from_record(record) == to_summary(AF.encode(record, ENCODE).document)


def test_metadata_may_ask_for_visibility() -> None:
    decoded = AF.decode({**FULL, "metadata": {"visibility": "private"}}, DECODE)
    assert decoded.visibility == "private"
    assert "visibility" not in dump_json(AF.encode(decoded.record, ENCODE).document).decode()
