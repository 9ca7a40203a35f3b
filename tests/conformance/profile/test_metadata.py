"""Agent Metadata as the codec decodes it (profile.md §4): required members, errors with their paths, warnings."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from support.records import CODECS, DECODE, ENCODE, NOW
from waypost import limits
from waypost.errors import InvalidDocument, MalformedJson, TooLarge
from waypost.model.json import JsonObject, dump_json
from waypost.model.record import STATUSES
from waypost.model.times import to_rfc3339
from waypost.protocols.codec import CARRY, DERIVED, residue_name
from waypost.protocols.dialects import decode_document
from waypost.protocols.profile.codec import PROFILE

FULL, MINIMAL = PROFILE.examples()


def changed(**members: Any) -> JsonObject:
    return {**MINIMAL, **members}


def path_of_refusal(document: JsonObject) -> str | None:
    with pytest.raises(InvalidDocument) as refused:
        PROFILE.decode(document, DECODE)
    return refused.value.path


@pytest.mark.req("PRO-7", "PRO-51")
def test_the_minimal_vector_is_accepted() -> None:
    decoded = PROFILE.decode(MINIMAL, DECODE)
    assert decoded.record.id == "https://example.net/agents/minimal"
    assert PROFILE.encode(decoded.record, ENCODE).document == MINIMAL


@pytest.mark.req("PRO-7")
@pytest.mark.parametrize("data", [b"[]", b'"agent"', b"null", b"7", b"{} {}"])
def test_only_one_json_object_is_metadata(data: bytes) -> None:
    with pytest.raises(MalformedJson):
        decode_document(data, "profile", DECODE)


@pytest.mark.req("PRO-7")
@pytest.mark.parametrize("name", ["id", "name", "description", "bindings"])
@pytest.mark.parametrize("gone", ["absent", "null", "empty", "wrong"])
def test_a_needed_member_is_named_by_its_path(name: str, gone: str) -> None:
    empty: Any = [] if name == "bindings" else ""
    document = {**MINIMAL, name: {"absent": None, "null": None, "empty": empty, "wrong": 7}[gone]}
    if gone == "absent":
        del document[name]
    assert path_of_refusal(document) == f"$.{name}"


@pytest.mark.req("PRO-8")
def test_names_are_case_sensitive() -> None:
    assert (
        path_of_refusal({**{name: MINIMAL[name] for name in ("name", "description", "bindings")}, "ID": "x"}) == "$.id"
    )
    decoded = PROFILE.decode(changed(Status="anything"), DECODE)
    assert decoded.record.status is None
    assert decoded.record.extra == {"Status": "anything"}


@pytest.mark.req("PRO-9", "PRO-18")
def test_unknown_members_are_kept_at_every_level() -> None:
    document = changed(
        examples=[{"text": "Do it.", "x-note": {"a": [1]}}],
        bindings=[{"protocol": "https", "endpoint": "https://a.example", "x-region": "eu"}],
        auth={"schemes": [], "x": None},
        **{"com.example.tier": "gold"},
    )
    assert PROFILE.encode(PROFILE.decode(document, DECODE).record, ENCODE).document == document


@pytest.mark.req("PRO-10")
@pytest.mark.parametrize(
    "agent_id",
    ["local-7", "agents.example.net", "https://a.example/x?y#z", "urn:uuid:3cde1b52", "did:web:a.example", "名"],
)
def test_an_id_may_have_any_form(agent_id: str) -> None:
    assert PROFILE.decode(changed(id=agent_id), DECODE).record.id == agent_id


@pytest.mark.req("PRO-10")
@pytest.mark.parametrize("agent_id", ["", " ", "a b", "a\tb", "a\u0000b", "x" * (limits.ID_CHARS + 1)])
def test_an_id_that_two_readers_could_read_differently_is_refused(agent_id: str) -> None:
    assert path_of_refusal(changed(id=agent_id)) == "$.id"


@pytest.mark.req("PRO-12")
@pytest.mark.parametrize("word", ["best", "Perfect", "GUARANTEED"])
def test_a_superlative_is_warned_of_and_accepted(word: str) -> None:
    decoded = PROFILE.decode(changed(description=f"The {word} agent."), DECODE)
    assert any(warning.startswith("$.description") and word in warning for warning in decoded.warnings)
    assert not any("$.description" in warning for warning in PROFILE.decode(FULL, DECODE).warnings)


@pytest.mark.req("PRO-13")
def test_a_tag_in_capitals_is_warned_of_and_kept_as_it_is() -> None:
    decoded = PROFILE.decode(changed(tags=["Finance", "hr"]), DECODE)
    assert decoded.record.tags == ("Finance", "hr")
    assert any("$.tags" in warning and "Finance" in warning for warning in decoded.warnings)


@pytest.mark.req("PRO-13")
@pytest.mark.parametrize(
    ("tags", "path"),
    [
        ("finance", "$.tags"),
        ([7], "$.tags[0]"),
        (["ok", " "], "$.tags[1]"),
        (["x" * (limits.TAG_CHARS + 1)], "$.tags[0]"),
        (["x"] * (limits.TAGS + 1), "$.tags"),
    ],
)
def test_tags_are_few_short_texts(tags: Any, path: str) -> None:
    assert path_of_refusal(changed(tags=tags)) == path


@pytest.mark.req("PRO-15")
def test_each_example_keeps_its_own_members() -> None:
    examples = [
        {"id": "a", "text": "Translate it.", "tags": ["t"], "input_schema": {"type": "object"}, "language": "de"},
        {"text": "Sum it up.", "output_schema": {}},
    ]
    assert (
        PROFILE.encode(PROFILE.decode(changed(examples=examples), DECODE).record, ENCODE).document["examples"]
        == examples
    )


@pytest.mark.req("PRO-15")
@pytest.mark.parametrize(
    ("examples", "path"),
    [
        ({}, "$.examples"),
        (["Do it."], "$.examples[0]"),
        ([{"id": "a"}], "$.examples[0].text"),
        ([{"text": ""}], "$.examples[0].text"),
        ([{"text": "x", "id": 1}], "$.examples[0].id"),
        ([{"text": "x", "tags": "t"}], "$.examples[0].tags"),
        ([{"text": "x", "input_schema": []}], "$.examples[0].input_schema"),
        ([{"text": "x", "output_schema": "s"}], "$.examples[0].output_schema"),
        ([{"text": "x", "language": 5}], "$.examples[0].language"),
        ([{"text": "x" * (limits.EXAMPLE_CHARS + 1)}], "$.examples[0].text"),
        ([{"text": "x"}] * (limits.EXAMPLES + 1), "$.examples"),
    ],
)
def test_a_wrong_example_is_named_by_its_path(examples: Any, path: str) -> None:
    assert path_of_refusal(changed(examples=examples)) == path


@pytest.mark.req("PRO-7", "PRO-15")
@pytest.mark.parametrize(
    ("changes", "shape"),
    [({"examples": ["Do it."]}, '{"text": "…"}'), ({"bindings": ["https://a"]}, '{"protocol": "…", "endpoint": "…"}')],
)
def test_a_text_instead_of_an_object_is_refused_with_the_way_to_write_it(changes: dict[str, Any], shape: str) -> None:
    with pytest.raises(InvalidDocument) as refused:
        PROFILE.decode(changed(**changes), DECODE)
    assert shape in str(refused.value.hint)


@pytest.mark.req("PRO-7")
@pytest.mark.parametrize(
    ("binding", "path"),
    [
        ("https://a.example", "$.bindings[0]"),
        ({"endpoint": "https://a.example"}, "$.bindings[0].protocol"),
        ({"protocol": "https"}, "$.bindings[0].endpoint"),
        ({"protocol": "https", "endpoint": "https://a.example/a b"}, "$.bindings[0].endpoint"),
        ({"protocol": "https", "endpoint": "x" * (limits.ENDPOINT_CHARS + 1)}, "$.bindings[0].endpoint"),
        ({"protocol": "https", "endpoint": "e", "media_types": "text/plain"}, "$.bindings[0].media_types"),
        ({"protocol": "https", "endpoint": "e", "interaction_model": 1}, "$.bindings[0].interaction_model"),
        ({"protocol": "https", "endpoint": "e", "priority": 1.5}, "$.bindings[0].priority"),
        ({"protocol": "https", "endpoint": "e", "priority": True}, "$.bindings[0].priority"),
    ],
)
def test_a_wrong_binding_is_named_by_its_path(binding: Any, path: str) -> None:
    assert path_of_refusal(changed(bindings=[binding])) == path


@pytest.mark.req("PRO-7")
@pytest.mark.parametrize("name", ["auth", "constraints", "signature"])
def test_structured_members_are_objects(name: str) -> None:
    assert path_of_refusal(changed(**{name: ["x"]})) == f"$.{name}"
    assert PROFILE.decode(changed(**{name: {"any": ["shape"]}}), DECODE)


@pytest.mark.req("PRO-17")
def test_a_missing_version_is_warned_of() -> None:
    assert any("$.version" in warning for warning in PROFILE.decode(MINIMAL, DECODE).warnings)
    assert PROFILE.decode(FULL, DECODE).warnings == ()


@pytest.mark.req("PRO-19")
def test_members_of_our_own_have_reverse_dns_names() -> None:
    names = [CARRY, DERIVED, *(residue_name(dialect) for dialect in CODECS)]
    assert all(name.startswith("org.waypost.") for name in names)


@pytest.mark.req("PRO-20")
@pytest.mark.parametrize("status", STATUSES)
def test_the_five_words_of_status_are_accepted(status: str) -> None:
    assert PROFILE.decode(changed(status=status), DECODE).record.status == status


@pytest.mark.req("PRO-20")
@pytest.mark.parametrize("status", ["online", "Active", "", 1])
def test_another_status_is_refused_with_the_list(status: Any) -> None:
    with pytest.raises(InvalidDocument) as refused:
        PROFILE.decode(changed(status=status), DECODE)
    assert refused.value.path == "$.status"
    if isinstance(status, str):
        assert all(word in (refused.value.hint or "") for word in STATUSES)


@pytest.mark.req("PRO-21", "PRO-22")
@pytest.mark.parametrize("name", ["updated_at", "expires_at"])
@pytest.mark.parametrize("text", ["yesterday", "2026-05-08", "2026-05-08T00:00:00", "2026-13-01T00:00:00Z", 1778198400])
def test_a_time_is_rfc_3339_with_its_zone(name: str, text: Any) -> None:
    assert path_of_refusal(changed(**{name: text})) == f"$.{name}"


@pytest.mark.req("PRO-21")
def test_a_time_of_change_may_run_ahead_only_by_the_skew_of_clocks() -> None:
    assert PROFILE.decode(changed(updated_at=to_rfc3339(NOW + limits.FUTURE_SKEW_SECONDS)), DECODE)
    assert path_of_refusal(changed(updated_at=to_rfc3339(NOW + limits.FUTURE_SKEW_SECONDS + 1))) == "$.updated_at"


@pytest.mark.req("PRO-22")
def test_a_record_that_has_run_out_is_refused() -> None:
    assert path_of_refusal(changed(expires_at=to_rfc3339(NOW))) == "$.expires_at"
    assert PROFILE.decode(changed(expires_at=to_rfc3339(NOW + 1)), DECODE)


@pytest.mark.req("PRO-7")
def test_visibility_belongs_to_the_envelope_and_not_to_the_record() -> None:
    decoded = PROFILE.decode(changed(visibility="private"), DECODE)
    assert decoded.visibility == "private"
    assert PROFILE.encode(decoded.record, ENCODE).document == MINIMAL
    assert path_of_refusal(changed(visibility="secret")) == "$.visibility"


@pytest.mark.req("PRO-7")
def test_a_document_beyond_the_bound_is_refused() -> None:
    document = changed(**{"x-note": ["x" * 500] * 600})
    with pytest.raises(TooLarge):
        decode_document(dump_json(document), None, DECODE)


@pytest.mark.req("PRO-7")
def test_the_schema_refuses_what_the_codec_refuses() -> None:
    validator = Draft202012Validator(PROFILE.schema())
    bad = [changed(bindings=[]), changed(status="online"), changed(tags="x"), changed(auth=[]), {"id": "x"}]
    assert not any(validator.is_valid(document) for document in bad)
