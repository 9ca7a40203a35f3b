"""Any call or criteria is understood or refused with a message, never a fault."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.examples import examples
from support.records import DECODE, json_values
from support.rtfs import WEATHER_CARD, card
from waypost.errors import InvalidRequest
from waypost.protocols.jsonrpc import RpcBatch, RpcCall, error_reply, parse_calls, result_reply
from waypost.protocols.rtfs.codec import RTFS
from waypost.protocols.rtfs.criteria import PARAMETERS, glob_matches, parse_criteria

thoroughly = settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
members = st.sampled_from(["jsonrpc", "method", "params", "id"])
calls = st.dictionaries(members, json_values | st.sampled_from(["2.0", "m"]), max_size=4)
keys = st.sampled_from(
    [
        "name",
        "owner",
        "metadata.owner",
        "capabilities",
        "min_price",
        "name_contains",
        "text_search",
        "protocol_preference",
        "a.b",
    ]
)
queries = st.recursive(
    json_values, lambda inner: st.dictionaries(keys, inner, max_size=3) | st.lists(inner, max_size=2), max_leaves=6
)
criteria = st.dictionaries(
    st.sampled_from(PARAMETERS), json_values | queries | st.sampled_from(["*", "a*", "^1", "any"])
)


def check(incoming: RpcBatch) -> None:
    assert incoming.calls
    for call in incoming.calls:
        reply = result_reply(call.id or b"null", {}) if isinstance(call, RpcCall) else error_reply(call.id, call.error)
        json.loads(reply)


@thoroughly
@given(body=st.binary(max_size=80))
def test_any_bytes_are_calls_or_a_refusal(body: bytes) -> None:
    check(parse_calls(body))


@thoroughly
@given(value=st.one_of(json_values, calls, st.lists(calls, max_size=3)), big=st.booleans())
def test_any_json_is_calls_or_refusals(value: Any, big: bool) -> None:
    text = json.dumps(value)
    check(parse_calls((text.replace("1", "12345678901234567890") if big else text).encode()))


@thoroughly
@given(params=criteria)
def test_any_criteria_match_or_are_refused(params: dict[str, Any]) -> None:
    try:
        asked = parse_criteria(params, list_all=True)
    except InvalidRequest as refusal:
        assert refusal.message  # noqa: PT017 - either way is right
        return
    for document in (WEATHER_CARD, card(), {"agent_id": "bare"}):
        assert asked.matches(document) in (True, False)
        assert asked.order(document)[2] == document["agent_id"]


@thoroughly
@given(document=st.dictionaries(st.sampled_from([*WEATHER_CARD, "capabilities_summary", "provider_id"]), json_values))
def test_any_object_is_a_card_or_a_refusal(document: dict[str, Any]) -> None:
    try:
        decoded = RTFS.decode(document, DECODE)
    except InvalidRequest as refusal:
        assert refusal.path  # noqa: PT017 - either way is right
        return
    assert decoded.source_id == document["agent_id"]


@thoroughly
@given(pattern=st.text("ab*", max_size=8), text=st.text("ab", max_size=8))
def test_a_glob_matches_like_a_simple_recursive_matcher(pattern: str, text: str) -> None:
    def obvious(pattern: str, text: str) -> bool:
        if not pattern:
            return not text
        if pattern[0] == "*":
            return obvious(pattern[1:], text) or (bool(text) and obvious(pattern, text[1:]))
        return bool(text) and text[0] == pattern[0] and obvious(pattern[1:], text[1:])

    if "*" in pattern:
        assert glob_matches(pattern, text) is obvious(pattern, text)
