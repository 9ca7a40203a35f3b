"""Admission of announcements: who is admitted, which key counts, what is new (announce.md §4, §5)."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from support.announce import AGENT_ID, announcement, key
from waypost import limits
from waypost.errors import (
    BadSignature,
    Forbidden,
    KeyConflict,
    NotAllowed,
    RateLimited,
    Replayed,
    Revoked,
    WaypostError,
)
from waypost.model.times import find_instant
from waypost.trust.announce.admission import (
    AdmissionPolicy,
    AdmissionRequest,
    AdmissionResult,
    AnnouncementStamp,
    admit,
    new_pinned_key,
)
from waypost.trust.announce.signed_announcement import parse_signed_announcement
from waypost.trust.announce.trust_store import (
    AgentPin,
    AllowList,
    drop_oldest_retired,
    dump_pin,
    load_pin,
    pin_first_key,
    revoke_pinned_key,
    rotate_key,
)
from waypost.trust.document_signatures import canonicalize_legacy
from waypost.trust.encodings import encode_base64

NOW = 1_780_000_000.0
HOUR = 3600.0
DAY = 86_400.0
ONE, TWO, THREE, OTHER = key("one"), key("two"), key("three"), key("other")
LISTED = AdmissionPolicy(rules=AllowList([AGENT_ID]))


def read(message: dict[str, Any], *, minor: int = 0, legacy: bool = False) -> AdmissionRequest:
    said = parse_signed_announcement(message, legacy=legacy)
    metadata = said.agent.get("metadata") or {}
    return AdmissionRequest(
        agent_id=said.agent["agent_id"].lower(),
        stamp=AnnouncementStamp(
            digest=hashlib.sha256(said.signing_input).hexdigest(),
            seq=metadata.get("__seq"),
            iat=find_instant(metadata.get("__iat")),
        ),
        key=said.key,
        signature=said.signature,
        previous_signature=said.previous_signature,
        minor=minor,
        find_canonical_form=said.find_canonical_form,
    )


def terms(**changes: Any) -> AdmissionPolicy:
    return AdmissionPolicy(**{"rules": AllowList([AGENT_ID]), **changes})


def make_request(signer: Any = ONE, *, seq: int | None = 1, at: float = NOW, **more: Any) -> AdmissionRequest:
    return read(announcement(signer, seq=seq, at=at if seq is not None else None, **more))


def pinned(now: float = NOW, **changes: Any) -> AgentPin:
    """The trust store after the first announcement, with the sequence 1."""
    pin = admit(make_request(at=now), None, terms(**changes), now).pin
    assert pin is not None
    return pin


def next_pin(admitted: AdmissionResult) -> AgentPin:
    assert admitted.pin is not None
    return admitted.pin


def refused(kind: type[WaypostError], *arguments: Any) -> str:
    with pytest.raises(kind) as error:
        admit(*arguments)
    assert type(error.value) is kind
    return str(error.value.details.get("reason"))


# --- Who is admitted ------------------------------------------------------------------------------


def test_an_id_that_a_rule_admits_is_admitted_and_its_first_key_is_bound() -> None:
    admitted = admit(make_request(), None, terms(), NOW)
    active = next_pin(admitted).active
    assert active is not None
    assert (active.key_id, active.via, admitted.event) == (ONE.public.key_id, "tofu", "pin")
    assert [(verdict.check, verdict.state) for verdict in admitted.verdicts] == [
        ("announce-signature", "passed"),
        ("key-pinned", "passed"),
    ]


@pytest.mark.parametrize("mode", ["allowlist-tofu", "pinned", "ca"])
def test_an_empty_allow_list_admits_only_admin(mode: str) -> None:
    empty = AdmissionPolicy(mode=mode)
    assert refused(NotAllowed, make_request(), None, empty, NOW) == "not_allowed"
    admitted = admit(make_request(), None, AdmissionPolicy(mode=mode, admin=True), NOW)
    assert next_pin(admitted).provisioned


def test_only_the_mode_tofu_admits_everybody_while_there_is_no_rule() -> None:
    assert admit(make_request(), None, AdmissionPolicy(mode="tofu"), NOW).event == "pin"
    assert refused(
        NotAllowed, make_request(), None, AdmissionPolicy(mode="tofu", rules=AllowList([key_rule(OTHER)])), NOW
    )


def key_rule(held: Any) -> str:
    return f"key:{held.public.key_id}"


def test_a_rule_may_name_the_key() -> None:
    assert admit(make_request(), None, AdmissionPolicy(rules=AllowList([key_rule(ONE)])), NOW).event == "pin"
    assert refused(NotAllowed, make_request(), None, AdmissionPolicy(rules=AllowList([key_rule(TWO)])), NOW)


def test_in_the_mode_pinned_only_provisioned_keys_announce() -> None:
    """C5."""
    everybody = AdmissionPolicy(mode="pinned", rules=AllowList(["*"]))
    assert refused(NotAllowed, make_request(), None, everybody, NOW) == "not_allowed"
    pin = pin_first_key(AgentPin(agent_id=AGENT_ID), new_pinned_key(ONE.public, "trust", NOW), provisioned=True)
    assert admit(make_request(), pin, everybody, NOW).key_id == ONE.public.key_id
    assert refused(KeyConflict, make_request(OTHER), pin, everybody, NOW) == "other_key"


def test_without_its_rule_an_agent_that_was_admitted_once_is_refused_again() -> None:
    pin = pinned()
    assert refused(NotAllowed, make_request(seq=2), pin, AdmissionPolicy(), NOW) == "not_allowed"


def test_the_subject_must_be_the_agent_if_bind_subject_is_set() -> None:
    bound = terms(bind_subject=True, subject="alice")
    assert refused(Forbidden, make_request(), None, bound, NOW) == "subject"
    assert admit(make_request(), None, terms(bind_subject=True, subject=AGENT_ID), NOW).pin
    assert admit(make_request(), None, terms(bind_subject=True, subject="root", admin=True), NOW).pin


def test_the_allow_list_and_key_binding_apply_to_announcements_only() -> None:
    admitted = admit(make_request(), None, AdmissionPolicy(gated=False), NOW)
    assert admitted.pin is None
    assert [(verdict.check, verdict.state) for verdict in admitted.verdicts] == [
        ("announce-signature", "passed"),
        ("key-pinned", "unknown"),
    ]


# --- Signatures -----------------------------------------------------------------------------------


def test_an_invalid_signature_is_refused_with_and_without_the_gate() -> None:
    """ANN-3."""
    message = announcement(ONE, seq=1, at=NOW)
    message["agent"]["capabilities"] = {"payments": "1.0"}
    for gated in (True, False):
        assert refused(BadSignature, read(message), None, terms(gated=gated), NOW) == "bad_signature"


def test_an_unsigned_announcement_is_refused_unless_the_policy_takes_it_from_a_proven_session() -> None:
    message = announcement(ONE)
    del message["signature"]
    assert refused(BadSignature, read(message), None, terms(), NOW) == "unsigned"
    lenient = terms(unsigned="untrusted")
    admitted = admit(read(message, minor=1), None, lenient, NOW)
    assert admitted.pin is None
    assert admitted.verdicts[0].state == "not_checked"
    assert refused(BadSignature, read(message, minor=0), None, lenient, NOW) == "unsigned"
    stranger = terms(unsigned="untrusted", authenticated=False)
    assert refused(BadSignature, read(message, minor=1), None, stranger, NOW) == "unsigned"


@pytest.mark.parametrize("gated", [True, False])
def test_a_message_cannot_lower_the_policy_for_an_id_that_has_a_key(gated: bool) -> None:
    """C9, C15: neither a version nor the lack of a signature gets around a key that is bound."""
    message = announcement(ONE, seq=2, at=NOW)
    del message["signature"]
    lenient = terms(unsigned="untrusted", gated=gated)
    assert refused(BadSignature, read(message, minor=1), pinned(), lenient, NOW) == "unsigned"


def test_without_a_key_the_bound_one_verifies() -> None:
    message = announcement(ONE, seq=2, at=NOW)
    del message["agent"]["public_key"]
    assert refused(BadSignature, read(message), pinned(), terms(), NOW) == "bad_signature"
    covered = parse_signed_announcement(message).signing_input
    keyless = AdmissionRequest(
        agent_id=AGENT_ID,
        stamp=AnnouncementStamp(digest="d", seq=2, iat=NOW),
        signature=ONE.sign(covered),
        find_canonical_form=lambda held, signature: "jcs" if held.verify(signature, covered) else None,
    )
    assert admit(keyless, pinned(), terms(), NOW).key_id == ONE.public.key_id
    assert refused(BadSignature, keyless, None, terms(), NOW) == "no_key"


def test_the_older_canonical_form_counts_only_where_it_is_allowed() -> None:
    """P-35."""
    message = announcement(ONE, metadata={"note": "é", "load": 1.0})
    message["signature"] = encode_base64(ONE.sign(canonicalize_legacy(message["agent"])))
    assert refused(BadSignature, read(message), None, terms(), NOW) == "bad_signature"
    admitted = admit(read(message, legacy=True), None, terms(), NOW)
    assert admitted.verdicts[0].evidence["canon"] == "legacy"


# --- Rotation -------------------------------------------------------------------------------------


def test_another_key_for_a_bound_id_is_refused() -> None:
    """C4."""
    assert refused(KeyConflict, make_request(OTHER, seq=2), pinned(), terms(), NOW) == "other_key"
    assert refused(KeyConflict, make_request(OTHER, seq=2), pinned(), terms(admin=True), NOW) == "other_key"
    assert refused(KeyConflict, make_request(OTHER, seq=2), pinned(), terms(gated=False), NOW) == "other_key"


def test_a_key_signed_by_the_old_key_replaces_it() -> None:
    admitted = admit(make_request(TWO, seq=2, previous=ONE), pinned(), terms(), NOW)
    pin = next_pin(admitted)
    assert admitted.event == "rotate"
    assert [(held.key_id, held.state) for held in pin.keys] == [
        (TWO.public.key_id, "active"),
        (ONE.public.key_id, "retiring"),
    ]
    assert pin.keys[1].until == NOW + DAY


def test_a_rotation_needs_the_proof_of_the_key_that_is_active() -> None:
    forged = make_request(TWO, seq=2, previous=OTHER)
    assert refused(KeyConflict, forged, pinned(), terms(), NOW) == "bad_previous_signature"


def test_the_new_key_must_sign_itself() -> None:
    message = announcement(TWO, seq=2, at=NOW, previous=ONE)
    message["signature"] = message["previous_signature"]
    assert refused(BadSignature, read(message), pinned(), terms(), NOW) == "bad_signature"


def test_the_old_key_is_taken_for_24_hours_and_no_longer() -> None:
    pin = next_pin(admit(make_request(TWO, seq=2, previous=ONE), pinned(), terms(), NOW))
    before, after = NOW + DAY - 60, NOW + DAY + 60
    assert admit(make_request(ONE, seq=3, at=before), pin, terms(), before).key_id == ONE.public.key_id
    assert refused(KeyConflict, make_request(ONE, seq=3, at=after), pin, terms(), after) == "retired_key"


def test_repeating_the_rotation_does_not_prolong_the_grace() -> None:
    pin = next_pin(admit(make_request(TWO, seq=2, previous=ONE), pinned(), terms(), NOW))
    later = NOW + 20 * HOUR
    repeated = next_pin(admit(make_request(TWO, seq=3, at=later, previous=ONE), pin, terms(), later))
    assert repeated.keys[1].until == NOW + DAY


def test_the_old_key_may_not_rotate_again_in_its_grace() -> None:
    """C6."""
    pin = next_pin(admit(make_request(TWO, seq=2, previous=ONE), pinned(), terms(), NOW))
    later = NOW + 2 * HOUR
    stolen = make_request(OTHER, seq=3, at=later, previous=ONE)
    assert refused(KeyConflict, stolen, pin, terms(), later) == "bad_previous_signature"


def test_one_rotation_an_hour() -> None:
    pin = next_pin(admit(make_request(TWO, seq=2, previous=ONE), pinned(), terms(), NOW))
    soon, later = NOW + HOUR - 1, NOW + HOUR
    with pytest.raises(RateLimited) as error:
        admit(make_request(THREE, seq=3, at=soon, previous=TWO), pin, terms(), soon)
    assert error.value.retry_after == 1
    assert admit(make_request(THREE, seq=3, at=later, previous=TWO), pin, terms(), later).event == "rotate"


def test_a_retired_key_does_not_come_back() -> None:
    pin = next_pin(admit(make_request(TWO, seq=2, previous=ONE), pinned(), terms(), NOW))
    later = NOW + 2 * DAY
    back = make_request(ONE, seq=9, at=later, previous=TWO)
    assert refused(KeyConflict, back, pin, terms(), later) == "retired_key"


def test_a_rotation_resets_the_sequence_but_not_for_the_key_that_was_replaced() -> None:
    """C11."""
    pin = next_pin(admit(make_request(seq=1000), pinned(), terms(), NOW))
    pin = next_pin(admit(make_request(TWO, seq=5, previous=ONE), pin, terms(), NOW))
    assert pin.keys[0].seq == 5
    assert refused(Replayed, make_request(ONE, seq=1000), pin, terms(), NOW) == "replay"
    assert refused(Replayed, make_request(ONE, seq=6), pin, terms(), NOW) == "replay"
    late = next_pin(admit(make_request(ONE, seq=1001), pin, terms(), NOW))
    assert admit(make_request(TWO, seq=6), late, terms(), NOW).pin, (
        "whoever stole the old key cannot shut the new one out"
    )


# --- Revocation -----------------------------------------------------------------------------------


def test_a_revoked_key_is_refused_in_every_mode() -> None:
    gone = frozenset((ONE.public.key_id,))
    for changes in ({"gated": False}, {"mode": "tofu"}, {"admin": True}, {}):
        assert refused(Revoked, make_request(), None, terms(revoked_keys=gone, **changes), NOW) == "revoked"
        assert refused(Revoked, make_request(seq=2), pinned(), terms(revoked_keys=gone, **changes), NOW) == "revoked"


def test_a_revoked_agent_is_refused_with_any_key() -> None:
    gone = frozenset((AGENT_ID,))
    assert refused(Revoked, make_request(OTHER), None, terms(revoked_agents=gone, admin=True), NOW) == "revoked"


def test_first_use_never_readmits_an_id_whose_key_was_revoked() -> None:
    """P-14: the row stays as a tombstone."""
    pin = revoke_pinned_key(pinned(), ONE.public.key_id)
    assert pin.active is None
    everybody = AdmissionPolicy(mode="tofu")
    assert refused(Revoked, make_request(seq=2), pin, everybody, NOW) == "revoked"
    assert refused(Revoked, make_request(OTHER, seq=2), pin, everybody, NOW) == "revoked"
    assert refused(Revoked, make_request(OTHER, seq=2, previous=ONE), pin, everybody, NOW) == "revoked"


def test_a_revoked_key_cannot_sign_its_successor() -> None:
    gone = terms(revoked_keys=frozenset((ONE.public.key_id,)))
    assert refused(Revoked, make_request(TWO, seq=2, previous=ONE), pinned(), gone, NOW) == "revoked"


def test_a_key_that_an_operator_trusts_takes_the_place_of_all_before_it() -> None:
    pin = pin_first_key(pinned(), new_pinned_key(TWO.public, "trust", NOW), provisioned=True)
    assert admit(make_request(TWO, seq=1), pin, AdmissionPolicy(), NOW).key_id == TWO.public.key_id
    assert refused(KeyConflict, make_request(ONE, seq=2), pin, terms(), NOW) == "retired_key"


# --- Replay ---------------------------------------------------------------------------------------


def test_a_lower_sequence_is_a_replay() -> None:
    """C10."""
    pin = next_pin(admit(make_request(seq=10), pinned(), terms(), NOW))
    assert refused(Replayed, make_request(seq=9), pin, terms(), NOW) == "replay"


def test_the_same_announcement_refreshes_while_it_is_fresh() -> None:
    """C13."""
    pin = pinned()
    assert next_pin(admit(make_request(), pin, terms(), NOW + 300)).keys == pin.keys
    assert refused(Replayed, make_request(), pin, terms(), NOW + 301) == "too_old"


def test_the_same_announcement_does_not_restore_a_withdrawn_agent() -> None:
    """C10."""
    assert refused(Replayed, make_request(), pinned(), terms(withdrawn=True), NOW) == "replay"
    assert admit(make_request(seq=2), pinned(), terms(withdrawn=True), NOW).pin


def test_another_content_under_the_same_sequence_is_a_fork() -> None:
    other = make_request(capabilities={"metrics": "3.0"})
    assert refused(Replayed, other, pinned(), terms(), NOW) == "fork"


@pytest.mark.parametrize(("offset", "reason"), [(-301, "too_old"), (61, "future")])
def test_news_must_have_been_signed_now(offset: float, reason: str) -> None:
    assert refused(Replayed, make_request(seq=2, at=NOW + offset), pinned(), terms(), NOW) == reason


@pytest.mark.parametrize("offset", [-300, 60])
def test_clocks_may_differ_a_little(offset: float) -> None:
    assert admit(make_request(seq=2, at=NOW + offset), pinned(), terms(), NOW).pin


@pytest.mark.parametrize("seq", [2**53 - 1, int((NOW + 301) * 1000)])
def test_a_sequence_ahead_of_the_clock_is_refused(seq: int) -> None:
    """C11: it would shut the agent out for ever."""
    assert refused(Replayed, make_request(seq=seq), pinned(), terms(), NOW) == "fast_forward"
    assert refused(Replayed, make_request(seq=seq), None, terms(), NOW) == "fast_forward"


def test_without_a_sequence_a_proven_session_is_enough_and_the_record_is_marked() -> None:
    """C12, P-18."""
    admitted = admit(make_request(seq=None), None, terms(), NOW)
    assert admitted.verdicts[0].evidence["replayable"] is True
    newer = make_request(seq=None, capabilities={"metrics": "3.0"})
    pin = next_pin(admit(newer, next_pin(admitted), terms(), NOW + 10))
    assert admit(make_request(seq=None), pin, terms(), NOW + 20).pin


def test_without_a_sequence_an_open_transport_does_not_go_back_within_a_day() -> None:
    """C12, P-18."""
    lan = terms(authenticated=False)
    first, second = make_request(seq=None), make_request(seq=None, capabilities={"metrics": "3.0"})
    pin = next_pin(admit(first, None, lan, NOW))
    pin = next_pin(admit(second, pin, lan, NOW + 10))
    assert next_pin(admit(second, pin, lan, NOW + 20)).digest == pin.digest
    assert refused(Replayed, first, pin, lan, NOW + 30) == "replay"
    assert admit(first, pin, lan, NOW + DAY + 1).pin


def test_on_an_open_transport_a_sequence_is_not_given_up_again() -> None:
    lan = terms(authenticated=False)
    assert refused(Replayed, make_request(seq=None), pinned(), lan, NOW) == "no_seq"
    undated = read(announcement(ONE, seq=2))
    assert refused(Replayed, undated, pinned(), lan, NOW) == "no_iat"
    assert admit(undated, pinned(), terms(), NOW).pin


def test_the_last_contents_are_remembered_up_to_a_bound() -> None:
    pin = next_pin(admit(make_request(seq=None), None, terms(), NOW))
    for number in range(limits.ANNOUNCE_DIGESTS + 4):
        message = make_request(seq=None, capabilities={"metrics": str(number)})
        pin = next_pin(admit(message, pin, terms(), NOW + number))
    assert len(pin.digests) == limits.ANNOUNCE_DIGESTS


# --- Rows -----------------------------------------------------------------------------------------


def test_a_row_survives_being_written() -> None:
    pin = next_pin(admit(make_request(TWO, seq=2, previous=ONE), pinned(), terms(), NOW))
    assert load_pin(dump_pin(pin)) == pin
    assert load_pin(None) is None


def test_only_the_oldest_retired_keys_are_forgotten() -> None:
    pin = pinned()
    for number in range(limits.PINNED_KEYS + 5):
        pin = pin_first_key(pin, new_pinned_key(key(f"k{number}").public, "trust", NOW), provisioned=True)
    assert len(pin.keys) == limits.PINNED_KEYS
    pin = revoke_pinned_key(pin, pin.keys[-1].key_id)
    last = pin.keys[-1]
    pin = rotate_key(pin, new_pinned_key(key("more").public, "rotation", NOW), NOW)
    assert last in drop_oldest_retired(pin.keys)
