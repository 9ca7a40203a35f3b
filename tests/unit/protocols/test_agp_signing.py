"""The signing input and encoding of AGP signatures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.errors import InvalidDocument
from waypost.protocols.adp.agp.messages import find_signature, sign, signing_input, verify
from waypost.trust.keys.private_key import new_private_key

KEY = new_private_key("ed25519", bytes(range(32)))
PARTS = ("11111111-2222-4333-8444-555555555555", "agent:a.example", "agent:b.example", "chat", "2026-06-18T10:00:00Z")


def test_any_changed_part_breaks_the_signature() -> None:
    signature = sign(KEY, signing_input(*PARTS, "hello"))
    for place in range(5):
        changed = list(PARTS)
        changed[place] += "x"
        assert not verify(KEY.public, signature, signing_input(*changed, "hello"))
    assert not verify(KEY.public, signature, signing_input(*PARTS, "hello "))
    assert verify(KEY.public, signature, signing_input(*PARTS, "hello"))


@pytest.mark.parametrize("control", ["\n", "\r", "\0", "\x7f", "\x85", "\x1b"])
@pytest.mark.parametrize(("place", "name"), list(enumerate(["id", "from", "to", "type", "timestamp"])), ids=str)
def test_a_control_character_before_the_content_is_refused_by_name(control: str, place: int, name: str) -> None:
    parts = list(PARTS)
    parts[place] += control
    with pytest.raises(InvalidDocument) as refused:
        signing_input(*parts, "hello")
    assert refused.value.path == f"$.{name}"


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cs"])), min_size=6, max_size=6), st.data())
def test_two_messages_never_share_one_input(parts: list[str], data: st.DataObject) -> None:
    other = [data.draw(st.sampled_from((part, part + "x", part[1:]))) for part in parts]
    same = signing_input(*parts) == signing_input(*other)
    assert same == (parts == other)


def test_a_signature_has_one_form() -> None:
    covered = signing_input(*PARTS, "hello")
    signature = sign(KEY, covered)
    raw = find_signature(signature)
    assert raw is not None
    assert len(raw) == 64
    for other in (signature + "=", signature + "==", signature[8:], signature.upper(), signature + "\n", "", None, 7):
        assert find_signature(other) is None
    last = signature[:-1] + chr(ord(signature[-1]) + 1)  # bits after the last byte
    assert find_signature(last) is None


def test_half_of_a_surrogate_pair_is_no_text() -> None:
    with pytest.raises(InvalidDocument) as refused:
        signing_input(*PARTS, "\ud800")
    assert refused.value.path == "$.body.content"
