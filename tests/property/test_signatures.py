"""Any change of a signed message invalidates it (criterion 1 of announce.md §11)."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from support.examples import examples
from support.signing import KINDS, NOW, agent, card, key_of, sign_card, sign_compact
from waypost.errors import WaypostError
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.trust.announce.signed_announcement import parse_signed_announcement, sign_announcement
from waypost.trust.checks.announce import check_announcement
from waypost.trust.checks.bound_key import BoundKey
from waypost.trust.checks.signed_documents import check_card, check_profile
from waypost.trust.document_signatures import a2a_payload, canonicalize, profile_payload, sign_profile
from waypost.trust.encodings import decode_base64, encode_base64
from waypost.trust.jose import InvalidJws, jose_key, verify_compact

RECORD: JsonObject = {
    "id": "a:b",
    "name": "n",
    "description": "d",
    "bindings": [{"protocol": "p", "endpoint": "https://a.example"}],
}
SIGNED = {kind: sign_announcement(agent(), key_of(kind)) for kind in KINDS}
CARD = sign_card(card(), key_of(), kid="k")
PROFILE = sign_profile(RECORD, key_of(), kid="k")
TOKEN = sign_compact(key_of("p-256"), b'{"sub":"a"}')
BOUND = [BoundKey(key_of().public, "pin", "k")]


def flipped(data: bytes, place: int, bit: int) -> bytes:
    place %= len(data)
    return data[:place] + bytes([data[place] ^ (1 << bit)]) + data[place + 1 :]


def find_object(data: bytes) -> JsonObject | None:
    try:
        return parse_object(data)
    except WaypostError:
        return None


flips = given(place=st.integers(0, 10**6), bit=st.integers(0, 7))


@flips
@settings(max_examples=examples(300))
def test_a_flipped_bit_of_an_announcement_is_never_verified(place: int, bit: int) -> None:
    for kind in ("ed25519", "p-256"):
        changed = find_object(flipped(dump_json(SIGNED[kind]), place, bit))
        if changed is None:
            continue
        same = _same_announcement(changed, SIGNED[kind])
        [found] = check_announcement(changed, [BoundKey(key_of(kind).public, "pin")], NOW)
        assert (found.state == "passed") == same


def _same_announcement(one: JsonObject, other: JsonObject) -> bool:
    """Whether the agent and the signature bytes are unchanged: other members are not covered."""
    try:
        first, second = parse_signed_announcement(one), parse_signed_announcement(other)
    except WaypostError:
        return False
    return (first.signing_input, first.signature) == (second.signing_input, second.signature)


@flips
def test_a_flipped_bit_of_a_signature_is_never_verified(place: int, bit: int) -> None:
    for kind in KINDS:
        signature = flipped(decode_base64(SIGNED[kind]["signature"]), place, bit)
        changed = {**SIGNED[kind], "signature": encode_base64(signature)}
        assert check_announcement(changed, [BoundKey(key_of(kind).public, "pin")], NOW)[0].state == "failed"


@flips
@settings(max_examples=examples(300))
def test_a_flipped_bit_of_a_card_is_never_verified(place: int, bit: int) -> None:
    changed = find_object(flipped(dump_json(CARD), place, bit))
    if changed is not None and check_card(changed, BOUND, NOW)[0].state == "passed":
        assert (a2a_payload(changed), changed["signatures"]) == (a2a_payload(CARD), CARD["signatures"])


@flips
@settings(max_examples=examples(300))
def test_a_flipped_bit_of_a_record_is_never_verified(place: int, bit: int) -> None:
    changed = find_object(flipped(dump_json(PROFILE), place, bit))
    if changed is not None and check_profile(changed, BOUND, NOW)[0].state == "passed":
        assert profile_payload(changed) == profile_payload(PROFILE)


@flips
def test_a_flipped_bit_of_a_token_is_never_verified(place: int, bit: int) -> None:
    text = flipped(TOKEN.encode(), place, bit).decode("latin-1")
    try:
        verify_compact(text, (jose_key(key_of("p-256").public),))
    except InvalidJws:
        return
    raise AssertionError(text)


SCALAR: Any = (
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8), SCALAR, max_size=4))
def test_members_of_any_kind_are_signed_and_verified_however_they_are_written(extra: dict[str, Any]) -> None:
    message = sign_announcement({**agent(), "extra": extra}, key_of())
    rewritten = parse_object(json.dumps(message, indent=1, sort_keys=True).encode())
    assert check_announcement(rewritten, [BoundKey(key_of().public, "pin")], NOW)[0].state == "passed"
    assert canonicalize(rewritten["agent"]) == canonicalize(message["agent"])
