"""Whether a signed announcement is news, a repetition or a replay (announce.md §5, THREATS C10…C13).

The signature covers no time of its own, so a captured announcement could be sent again at will. What is signed inside it
decides: a sequence that only grows and the time of signing. Objects without them are told apart by their contents.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal

import msgspec

from waypost import limits
from waypost.errors import BadSignature, Forbidden, KeyConflict, NotAllowed, RateLimited, Replayed, Revoked
from waypost.model.times import to_rfc3339
from waypost.model.verdict import Verdict
from waypost.trust.announce.allow_list import AllowList, Applicant
from waypost.trust.announce.key_pins import AgentPin, PinnedKey, pin_first_key, rotate_key
from waypost.trust.keys.public_key import PublicKey, parse_der

FORK_REASON = "fork"  # the reason of the refusal of two contents under one sequence


class AnnouncementStamp(msgspec.Struct, frozen=True, kw_only=True):
    """What an announcement says of its own age, all of it signed."""

    digest: str  # of the canonical agent
    seq: int | None = None
    iat: float | None = None


def check_replay(
    pin: AgentPin, stamp: AnnouncementStamp, key: PinnedKey, *, now: float, authenticated: bool, withdrawn: bool
) -> AgentPin:
    """The pin with the marks moved on, or a refusal. `withdrawn`: the record was taken away, not just run out."""
    if stamp.seq is None:
        return _check_digest_history(pin, stamp, now, authenticated)
    if stamp.seq > (now + limits.FUTURE_SKEW_SECONDS) * 1000:
        raise _replay_error(
            "The sequence is ahead of the clock.", "fast_forward", "Use Unix milliseconds, or a counter below them."
        )
    floor = _lowest_sequence(pin, key)
    if floor is not None and stamp.seq < floor:
        raise _replay_error(f"The sequence {stamp.seq} is below {floor}, which was seen.", "replay")
    _check_time(stamp, now, authenticated)
    if floor is not None and stamp.seq == floor:
        _check_repetition(pin, key, stamp, withdrawn)
    marked = msgspec.structs.replace(key, seq=stamp.seq, digest=stamp.digest)
    keys = tuple(marked if each.key_id == key.key_id else each for each in pin.keys)
    return msgspec.structs.replace(pin, keys=keys, digest=stamp.digest, seen_at=now)


def _lowest_sequence(pin: AgentPin, key: PinnedKey) -> int | None:
    """The sequence to beat. A new key counts anew (C11); the one that it replaced has to beat both, and moves only its own
    mark: whoever stole it cannot shut the new one out."""
    active = pin.active
    marks = [each.seq for each in (key, active) if each is not None and each.seq is not None]
    return max(marks) if marks else None


def _check_repetition(pin: AgentPin, key: PinnedKey, stamp: AnnouncementStamp, withdrawn: bool) -> None:
    if key.seq != stamp.seq:
        raise _replay_error(f"The sequence {stamp.seq} was seen, signed by the key that is active.", "replay")
    if key.digest != stamp.digest:
        # Somebody else signs with this key, or the publisher has lost its counter: worth an alarm.
        raise Replayed(
            f"Another content was announced under the sequence {stamp.seq}.",
            path="$.agent.metadata.__seq",
            hint="Raise __seq with every change; if the key may have leaked, rotate or revoke it.",
            retry_after=30,
            details={"reason": FORK_REASON},
        )
    if pin.digest != stamp.digest:
        raise _replay_error("Another content was announced since, with the other key of this agent.", "replay")
    if withdrawn:
        raise _replay_error("This announcement was withdrawn.", "replay", "Announce it again with a higher __seq.")


def _check_time(stamp: AnnouncementStamp, now: float, authenticated: bool) -> None:
    if stamp.iat is None:
        if not authenticated:
            raise _replay_error("The announcement does not say when it was signed.", "no_iat", "Add metadata.__iat.")
        return
    age = now - stamp.iat
    if age > limits.ANNOUNCE_PAST_SECONDS:
        raise _replay_error(
            f"It was signed more than {limits.ANNOUNCE_PAST_SECONDS} seconds ago.",
            "too_old",
            "Sign it again, at least once a minute, with a higher __seq and the time in __iat.",
        )
    if age < -limits.ANNOUNCE_FUTURE_SECONDS:
        raise _replay_error("It was signed in the future.", "future", "Check the clock of the publisher.")


def _check_digest_history(pin: AgentPin, stamp: AnnouncementStamp, now: float, authenticated: bool) -> AgentPin:
    """P-18: without a sequence, going back to an earlier content is a replay, unless the session itself is proven."""
    if any(key.seq is not None for key in pin.keys) and not authenticated:
        raise _replay_error("Earlier announcements had a sequence; this one has none.", "no_seq", "Add metadata.__seq.")
    known = {digest: at for digest, at in pin.digests if now - at < limits.ANNOUNCE_DIGEST_SECONDS}
    if not authenticated and stamp.digest != pin.digest and stamp.digest in known:
        raise _replay_error(
            "This is an earlier content of the agent.", "replay", "Add metadata.__seq and sign it again."
        )
    return msgspec.structs.replace(pin, digest=stamp.digest, digests=_recent_digests(pin, stamp, now), seen_at=now)


def _recent_digests(pin: AgentPin, stamp: AnnouncementStamp, now: float) -> tuple[tuple[str, float], ...]:
    others = tuple(item for item in pin.digests if item[0] != stamp.digest)
    return ((stamp.digest, now), *others)[: limits.ANNOUNCE_DIGESTS]


def _replay_error(message: str, reason: str, hint: str = "Sign it again with a higher __seq.") -> Replayed:
    return Replayed(message, path="$.agent.metadata", hint=hint, retry_after=30, details={"reason": reason})


# ---- Whether an announcement is admitted (announce.md §4): revocations, allow-list, key, signature, replay, in this order.
#
# One pure function, `admit`: what is said, what is known of its id and the rules in force go in; the trust store's new row
# and the verdicts come out, or a refusal. Cheap refusals come first (ANN-13). It knows no record, no owner and no transport;
# whoever calls says whether the session was authenticated and whether the allow-list applies.

TrustMode = Literal["pinned", "allowlist-tofu", "tofu", "ca"]

TRUST_MODES: tuple[TrustMode, ...] = ("pinned", "allowlist-tofu", "tofu", "ca")

UNSIGNED_POLICIES = ("reject", "untrusted")

SIGNATURE_CHECK = "announce-signature"

PIN_CHECK = "key-pinned"


class AdmissionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An announcement as far as trust goes. `holds` says by which canonical form a signature of a key holds, or None."""

    agent_id: str  # lower case
    stamp: AnnouncementStamp
    key: PublicKey | None = None  # the one that it brings along
    signature: bytes | None = None
    previous_signature: bytes | None = None
    minor: int = 0  # of the protocol version v1.x
    names: tuple[str, ...] = ()  # SANs of the certificate it brings along, where its chain was checked
    holds: Callable[[PublicKey, bytes], str | None]


class AdmissionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Under which rules one announcement is judged."""

    mode: str = "allowlist-tofu"
    unsigned: str = "reject"
    bind_subject: bool = False
    rules: AllowList = msgspec.field(default_factory=AllowList)
    revoked_keys: Collection[str] = frozenset()
    revoked_agents: Collection[str] = frozenset()
    gated: bool = True  # the allow-list and first use apply: the announce face, and later the LAN
    authenticated: bool = True
    admin: bool = False
    subject: str | None = None
    withdrawn: bool = False  # the record of this id was taken away


class AdmissionResult(msgspec.Struct, frozen=True, kw_only=True):
    pin: AgentPin | None  # None: nothing is bound
    verdicts: tuple[Verdict, ...]
    key_id: str | None = None
    event: str = ""  # pin, rotate: what happened to keys


def admit(said: AdmissionRequest, pin: AgentPin | None, terms: AdmissionPolicy, now: float) -> AdmissionResult:
    """Admit, or raise the refusal that says why."""
    _check_revoked(said, pin, terms)
    if terms.gated:
        _check_allowed(said, pin, terms)
    if terms.bind_subject and not terms.admin and terms.subject != said.agent_id:
        raise Forbidden(
            "The subject of the token is not this agent.",
            path="$.agent.agent_id",
            hint="Mint a token whose sub is the agent_id (bind_subject is on).",
            details={"reason": "subject"},
        )
    bound = pin if pin is not None and pin.keys else None
    if said.signature is None:
        return _admit_unsigned(said, bound, terms, now)
    return _admit_signed(said, said.signature, bound, terms, now)


# --- Before any cryptography ----------------------------------------------------------------------


def _check_revoked(said: AdmissionRequest, pin: AgentPin | None, terms: AdmissionPolicy) -> None:
    if said.agent_id in terms.revoked_agents:
        raise revoked_error(f"The agent {said.agent_id} was revoked.", "$.agent.agent_id")
    key_id = said.key.key_id if said.key is not None else None
    held = pin.find_key(key_id) if pin is not None and key_id is not None else None
    if key_id in terms.revoked_keys or (held is not None and held.state == "revoked"):
        raise revoked_error("The key of this announcement was revoked.", "$.agent.public_key")


def _check_allowed(said: AdmissionRequest, pin: AgentPin | None, terms: AdmissionPolicy) -> None:
    if terms.admin or (pin is not None and pin.provisioned):
        return
    if terms.mode == "pinned":
        raise _not_allowed_error(
            "No key was provisioned for this agent.", "Ask for `waypost keys trust AGENT_ID FILE.pem`."
        )
    if terms.mode == "ca" and f"urn:uuid:{said.agent_id}" not in said.names:
        raise _not_allowed_error(
            "Only agents with a certificate of a known authority may announce here.",
            "Send a certificate as public_key whose SAN is the URI urn:uuid:<agent_id>.",
        )
    if terms.mode == "tofu" and not len(terms.rules):
        return
    applicant = Applicant(
        agent_id=said.agent_id, key_id=said.key.key_id if said.key is not None else None, names=said.names
    )
    if terms.rules.find_rule(applicant) is None:
        raise _not_allowed_error(
            f"No rule of the allow-list admits the agent {said.agent_id}.",
            f"Ask an admin for `waypost allow add {said.agent_id}`.",
        )


# --- Unsigned -------------------------------------------------------------------------------------


def _admit_unsigned(
    said: AdmissionRequest, bound: AgentPin | None, terms: AdmissionPolicy, now: float
) -> AdmissionResult:
    """An id with a key stays bound to it (C15). Others need a policy that takes unsigned words, and a proven session."""
    if bound is not None:
        raise _unsigned_error("The id is bound to a key, and this is not signed.")
    if terms.gated and not (terms.unsigned == "untrusted" and said.minor >= 1 and terms.authenticated):
        raise _unsigned_error("The announcement is not signed.")
    verdict = _verdict(SIGNATURE_CHECK, "not_checked", "the document has no signature", now)
    return AdmissionResult(pin=None, verdicts=(verdict,))


# --- Signed ---------------------------------------------------------------------------------------


def _admit_signed(
    said: AdmissionRequest, signature: bytes, bound: AgentPin | None, terms: AdmissionPolicy, now: float
) -> AdmissionResult:
    if bound is None:
        return _admit_first_use(said, signature, terms, now)
    key, event = _choose_key(said, bound, terms, now)
    canon = said.holds(key, signature)
    if canon is None:
        raise _bad_signature_error()
    if event == "rotate":
        _check_rotation_proof(said, bound)
        bound = rotate_key(bound, _new_pinned_key(key, "rotation", now), now)
    held = bound.find_key(key.key_id)
    if held is None:  # `key` is one of the pin's, or was just put there
        raise _bad_signature_error()
    news = check_replay(bound, said.stamp, held, now=now, authenticated=terms.authenticated, withdrawn=terms.withdrawn)
    return AdmissionResult(
        pin=_retire_expired_keys(news, now),
        verdicts=_verdicts(said, key, canon, held.via, now),
        key_id=key.key_id,
        event=event,
    )


def _admit_first_use(said: AdmissionRequest, signature: bytes, terms: AdmissionPolicy, now: float) -> AdmissionResult:
    """Nothing is bound yet. On a gated transport the first key is pinned; elsewhere the signature only has to hold."""
    if said.key is None:
        raise BadSignature(
            "The announcement brings no key to check its signature with.",
            path="$.agent.public_key",
            hint="Send the public key as PEM.",
            retry_after=30,
            details={"reason": "no_key"},
        )
    canon = said.holds(said.key, signature)
    if canon is None:
        raise _bad_signature_error()
    if not terms.gated:
        return AdmissionResult(pin=None, verdicts=_verdicts(said, said.key, canon, None, now), key_id=said.key.key_id)
    via = "admin" if terms.admin else "ca" if terms.mode == "ca" else "tofu"
    fresh = pin_first_key(
        AgentPin(agent_id=said.agent_id), _new_pinned_key(said.key, via, now), provisioned=terms.admin
    )
    news = check_replay(
        fresh, said.stamp, fresh.keys[0], now=now, authenticated=terms.authenticated, withdrawn=terms.withdrawn
    )
    verdicts = _verdicts(said, said.key, canon, via, now)
    return AdmissionResult(pin=news, verdicts=verdicts, key_id=said.key.key_id, event="pin")


def _choose_key(said: AdmissionRequest, bound: AgentPin, terms: AdmissionPolicy, now: float) -> tuple[PublicKey, str]:
    """The pinned key verifies, never the embedded one; another key than the pinned ones is a rotation or nothing."""
    if said.key is None:
        active = bound.active
        if active is None or active.key_id in terms.revoked_keys:
            raise revoked_error("The key of this agent was revoked.", "$.agent.public_key")
        return parse_der(active.spki), ""
    held = bound.find_key(said.key.key_id)
    if held is not None:
        if held.state_at(now) == "retired":
            raise _key_conflict_error("The key was replaced, and its time of grace is over.", "retired_key")
        return parse_der(held.spki), ""
    active = bound.active
    if active is None or active.key_id in terms.revoked_keys:
        raise revoked_error("The key of this agent was revoked; it cannot vouch for another one.", "$.agent.public_key")
    if said.previous_signature is None:
        raise _key_conflict_error("The id is bound to another key.", "other_key")
    if bound.rotated_at is not None and now < bound.rotated_at + limits.ROTATION_PAUSE_SECONDS:
        raise RateLimited(
            "A key can be replaced once an hour.",
            path="$.previous_signature",
            hint="Go on with the key that was announced last.",
            retry_after=max(1, int(bound.rotated_at + limits.ROTATION_PAUSE_SECONDS - now)),
            details={"reason": "rotation"},
        )
    return said.key, "rotate"


def _check_rotation_proof(said: AdmissionRequest, bound: AgentPin) -> None:
    """Only the active key vouches for the next one; a retiring one may not rotate again (C6)."""
    active = bound.active
    if active is None or said.previous_signature is None:
        raise _key_conflict_error("The id is bound to another key.", "other_key")
    if said.holds(parse_der(active.spki), said.previous_signature) is None:
        raise _key_conflict_error(
            "previous_signature is not by the key that the id is bound to.", "bad_previous_signature"
        )


def _new_pinned_key(key: PublicKey, via: str, now: float) -> PinnedKey:
    return PinnedKey(key_id=key.key_id, kind=key.kind, spki=key.spki, state="active", first_seen=now, via=via)


def pinned_key(key: PublicKey, via: str, now: float) -> PinnedKey:
    """An active key, as an operator provisions it."""
    return _new_pinned_key(key, via, now)


def _retire_expired_keys(pin: AgentPin, now: float) -> AgentPin:
    """Keys whose grace is over are retired for good."""
    if all(key.state == key.state_at(now) for key in pin.keys):
        return pin
    keys = tuple(
        msgspec.structs.replace(key, state="retired", until=None) if key.state_at(now) == "retired" else key
        for key in pin.keys
    )
    return msgspec.structs.replace(pin, keys=keys)


# --- Verdicts and refusals ------------------------------------------------------------------------


def _verdicts(said: AdmissionRequest, key: PublicKey, canon: str, via: str | None, now: float) -> tuple[Verdict, ...]:
    evidence: dict[str, Any] = {"key_id": key.key_id, "kind": key.kind, "canon": canon}
    if said.stamp.seq is None:
        evidence["replayable"] = True  # P-18
    signature = _verdict(SIGNATURE_CHECK, "passed", "", now, evidence)
    if via is None:
        return (signature, _verdict(PIN_CHECK, "unknown", "no key is bound to this id", now))
    return (signature, _verdict(PIN_CHECK, "passed", "", now, {"key_id": key.key_id, "via": via}))


def _verdict(check: str, state: Any, reason: str, now: float, evidence: dict[str, Any] | None = None) -> Verdict:
    return Verdict(check=check, state=state, reason=reason, evidence=evidence or {}, at=to_rfc3339(now))


def revoked_error(message: str, path: str) -> Revoked:
    return Revoked(
        message, path=path, hint="Make a new key or id, and have it admitted anew.", details={"reason": "revoked"}
    )


def _not_allowed_error(message: str, hint: str) -> NotAllowed:
    return NotAllowed(message, path="$.agent.agent_id", hint=hint, retry_after=300, details={"reason": "not_allowed"})


def _unsigned_error(message: str) -> BadSignature:
    return BadSignature(
        message,
        path="$.signature",
        hint="Sign the canonical JSON (RFC 8785) of the agent, and send it as base64.",
        retry_after=30,
        details={"reason": "unsigned"},
    )


def _bad_signature_error() -> BadSignature:
    return BadSignature(
        "The signature is not by the key of this agent over this content.",
        path="$.signature",
        hint="Sign the canonical JSON (RFC 8785) of the agent as it is sent.",
        retry_after=30,
    )


def _key_conflict_error(message: str, reason: str) -> KeyConflict:
    return KeyConflict(
        message,
        path="$.agent.public_key",
        hint="Rotate with previous_signature by the key that is bound, or ask for `waypost keys trust`.",
        details={"reason": reason},
    )
