"""Admission of announcements (announce.md §4): revocations, allow-list, key, signature, replay, in this order.

`admit` is pure: the announcement, the pin of its id and the policy go in; the trust store's new row and the verdicts
come out, or an error. Cheap checks come first (ANN-13). It knows no record, owner or transport; the caller states
whether the session is authenticated and whether the allow-list applies.

Replays (announce.md §5, THREATS C10…C13): a signature covers no time of its own, so a captured announcement could be
sent again. The signed content decides: a sequence that only grows and the time of signing. Announcements without them
are compared by content digest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from waypost import limits
from waypost.errors import BadSignature, Forbidden, KeyConflict, NotAllowed, RateLimited, Replayed, Revoked
from waypost.model.times import to_rfc3339
from waypost.model.verdict import Verdict
from waypost.trust.announce.trust_store import AgentPin, AllowList, Applicant, PinnedKey, pin_first_key, rotate_key
from waypost.trust.keys.public_key import PublicKey, parse_der

FORK_REASON = "fork"  # error detail: two contents under one sequence


class AnnouncementStamp(msgspec.Struct, frozen=True, kw_only=True):
    """What an announcement states about its age; all of it is signed."""

    digest: str  # of the canonical agent
    seq: int | None = None
    iat: float | None = None


def check_replay(
    pin: AgentPin, stamp: AnnouncementStamp, key: PinnedKey, *, now: float, authenticated: bool, withdrawn: bool
) -> AgentPin:
    """Return the pin with updated sequence and digest, or raise Replayed. `withdrawn`: the record was withdrawn, not
    expired."""
    if stamp.seq is None:
        return _check_digest_history(pin, stamp, now, authenticated)
    if stamp.seq > (now + limits.FUTURE_SKEW_SECONDS) * 1000:
        raise _replay_error(
            "The sequence __seq is ahead of the clock.",
            "fast_forward",
            "Use Unix milliseconds, or a counter below them.",
        )
    floor = _lowest_sequence(pin, key)
    if floor is not None and stamp.seq < floor:
        raise _replay_error(f"The sequence {stamp.seq} is below {floor}, which was already received.", "replay")
    _check_time(stamp, now, authenticated)
    if floor is not None and stamp.seq == floor:
        _check_repetition(pin, key, stamp, withdrawn)
    marked = msgspec.structs.replace(key, seq=stamp.seq, digest=stamp.digest)
    keys = tuple(marked if each.key_id == key.key_id else each for each in pin.keys)
    return msgspec.structs.replace(pin, keys=keys, digest=stamp.digest, seen_at=now)


def _lowest_sequence(pin: AgentPin, key: PinnedKey) -> int | None:
    """Return the lowest acceptable sequence. A new key starts its own sequence (C11). The key that it replaced must
    exceed both sequences but raises only its own: a thief of the old key cannot lock out the new one."""
    active = pin.active
    return max((each.seq for each in (key, active) if each is not None and each.seq is not None), default=None)


def _check_repetition(pin: AgentPin, key: PinnedKey, stamp: AnnouncementStamp, withdrawn: bool) -> None:
    if key.seq != stamp.seq:
        raise _replay_error(f"The sequence {stamp.seq} was already received, signed by the active key.", "replay")
    if key.digest != stamp.digest:
        # Another process signs with this key, or the publisher lost its counter: the caller raises an alarm.
        raise Replayed(
            f"Different content was announced under the sequence {stamp.seq}.",
            path="$.agent.metadata.__seq",
            hint="Increase __seq with every change; if the key may have leaked, rotate or revoke it.",
            retry_after=30,
            details={"reason": FORK_REASON},
        )
    if pin.digest != stamp.digest:
        raise _replay_error("Different content was announced since, with the other key of this agent.", "replay")
    if withdrawn:
        raise _replay_error("This announcement was withdrawn.", "replay", "Announce it again with a higher __seq.")


def _check_time(stamp: AnnouncementStamp, now: float, authenticated: bool) -> None:
    if stamp.iat is None:
        if not authenticated:
            raise _replay_error("The announcement has no time of signing.", "no_iat", "Add metadata.__iat.")
        return
    age = now - stamp.iat
    if age > limits.ANNOUNCE_PAST_SECONDS:
        raise _replay_error(
            f"The announcement was signed more than {limits.ANNOUNCE_PAST_SECONDS} seconds ago.",
            "too_old",
            "Sign it again, at least once a minute, with a higher __seq and the time in __iat.",
        )
    if age < -limits.ANNOUNCE_FUTURE_SECONDS:
        raise _replay_error("The announcement was signed in the future.", "future", "Check the clock of the publisher.")


def _check_digest_history(pin: AgentPin, stamp: AnnouncementStamp, now: float, authenticated: bool) -> AgentPin:
    """P-18: without a sequence, a return to earlier content is a replay, unless the session is authenticated."""
    if any(key.seq is not None for key in pin.keys) and not authenticated:
        raise _replay_error("Earlier announcements had a sequence; this one has none.", "no_seq", "Add metadata.__seq.")
    known = {digest: at for digest, at in pin.digests if now - at < limits.ANNOUNCE_DIGEST_SECONDS}
    if not authenticated and stamp.digest != pin.digest and stamp.digest in known:
        raise _replay_error("This is earlier content of the agent.", "replay", "Add metadata.__seq and sign it again.")
    return msgspec.structs.replace(pin, digest=stamp.digest, digests=_recent_digests(pin, stamp, now), seen_at=now)


def _recent_digests(pin: AgentPin, stamp: AnnouncementStamp, now: float) -> tuple[tuple[str, float], ...]:
    others = tuple(item for item in pin.digests if item[0] != stamp.digest)
    return ((stamp.digest, now), *others)[: limits.ANNOUNCE_DIGESTS]


def _replay_error(message: str, reason: str, hint: str = "Sign it again with a higher __seq.") -> Replayed:
    return Replayed(message, path="$.agent.metadata", hint=hint, retry_after=30, details={"reason": reason})


# --- Admission ------------------------------------------------------------------------------------

SIGNATURE_CHECK = "announce-signature"
PIN_CHECK = "key-pinned"


class AdmissionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an announcement that admission needs."""

    agent_id: str  # lower case
    stamp: AnnouncementStamp
    key: PublicKey | None = None  # embedded
    signature: bytes | None = None
    previous_signature: bytes | None = None
    minor: int = 0  # of the protocol version v1.x
    names: tuple[str, ...] = ()  # SANs of the embedded certificate, if its chain was verified
    # (key, signature) -> the canonical form by which the signature is valid, or None
    find_canonical_form: Callable[[PublicKey, bytes], str | None]


class AdmissionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The rules and the session that apply to one announcement."""

    mode: str = "allowlist-tofu"
    unsigned: str = "reject"
    bind_subject: bool = False
    rules: AllowList = msgspec.field(default_factory=AllowList)
    revoked_keys: Collection[str] = frozenset()
    revoked_agents: Collection[str] = frozenset()
    gated: bool = True  # the allow-list and trust on first use apply: announcements over HTTP, WebSocket, LAN and bus
    authenticated: bool = True
    admin: bool = False
    subject: str | None = None
    withdrawn: bool = False  # the record of this id was withdrawn


class AdmissionResult(msgspec.Struct, frozen=True, kw_only=True):
    pin: AgentPin | None  # None: no key is bound to the id
    verdicts: tuple[Verdict, ...]
    key_id: str | None = None
    event: str = ""  # "pin" or "rotate" if keys changed


def admit(request: AdmissionRequest, pin: AgentPin | None, policy: AdmissionPolicy, now: float) -> AdmissionResult:
    """Admit the announcement, or raise the error with the reason."""
    _check_revoked(request, pin, policy)
    if policy.gated:
        _check_allowed(request, pin, policy)
    if policy.bind_subject and not policy.admin and policy.subject != request.agent_id:
        raise Forbidden(
            "The subject of the token is not this agent.",
            path="$.agent.agent_id",
            hint="Mint a token whose sub is the agent_id (bind_subject is on).",
            details={"reason": "subject"},
        )
    bound = pin if pin is not None and pin.keys else None
    if request.signature is None:
        return _admit_unsigned(request, bound, policy, now)
    return _admit_signed(request, request.signature, bound, policy, now)


# --- Checks without cryptography ------------------------------------------------------------------


def _check_revoked(request: AdmissionRequest, pin: AgentPin | None, policy: AdmissionPolicy) -> None:
    if request.agent_id in policy.revoked_agents:
        raise revoked_error(f"The agent {request.agent_id} was revoked.", "$.agent.agent_id")
    key_id = request.key.key_id if request.key is not None else None
    pinned = pin.find_key(key_id) if pin is not None and key_id is not None else None
    if key_id in policy.revoked_keys or (pinned is not None and pinned.state == "revoked"):
        raise revoked_error("The key of this announcement was revoked.", "$.agent.public_key")


def _check_allowed(request: AdmissionRequest, pin: AgentPin | None, policy: AdmissionPolicy) -> None:
    if policy.admin or (pin is not None and pin.provisioned):
        return
    if policy.mode == "pinned":
        raise _not_allowed_error(
            "No key was provisioned for this agent.", "Ask for `waypost keys trust AGENT_ID FILE.pem`."
        )
    if policy.mode == "ca" and f"urn:uuid:{request.agent_id}" not in request.names:
        raise _not_allowed_error(
            "Only agents with a certificate of a known authority may announce here.",
            "Send a certificate as public_key whose SAN is the URI urn:uuid:<agent_id>.",
        )
    if policy.mode == "tofu" and not len(policy.rules):
        return
    applicant = Applicant(
        agent_id=request.agent_id, key_id=request.key.key_id if request.key is not None else None, names=request.names
    )
    if policy.rules.find_rule(applicant) is None:
        raise _not_allowed_error(
            f"No rule of the allow-list admits the agent {request.agent_id}.",
            f"Ask an admin for `waypost allow add {request.agent_id}`.",
        )


# --- Unsigned -------------------------------------------------------------------------------------


def _admit_unsigned(
    request: AdmissionRequest, bound: AgentPin | None, policy: AdmissionPolicy, now: float
) -> AdmissionResult:
    """An id with a key stays bound to it (C15). Others need a policy that allows it, and an authenticated session."""
    if bound is not None:
        raise _unsigned_error("The id is bound to a key, but the announcement is not signed.")
    if policy.gated and not (policy.unsigned == "untrusted" and request.minor >= 1 and policy.authenticated):
        raise _unsigned_error("The announcement is not signed.")
    verdict = _verdict(SIGNATURE_CHECK, "not_checked", "the document has no signature", now)
    return AdmissionResult(pin=None, verdicts=(verdict,))


# --- Signed ---------------------------------------------------------------------------------------


def _admit_signed(
    request: AdmissionRequest, signature: bytes, bound: AgentPin | None, policy: AdmissionPolicy, now: float
) -> AdmissionResult:
    if bound is None:
        return _admit_first_use(request, signature, policy, now)
    key, event = _choose_key(request, bound, policy, now)
    canon = request.find_canonical_form(key, signature)
    if canon is None:
        raise _bad_signature_error()
    if event == "rotate":
        _check_rotation_proof(request, bound)
        bound = rotate_key(bound, new_pinned_key(key, "rotation", now), now)
    pinned = bound.find_key(key.key_id)
    if pinned is None:  # cannot happen: `key` is one of the pin's, or was just added
        raise _bad_signature_error()
    updated = check_replay(
        bound, request.stamp, pinned, now=now, authenticated=policy.authenticated, withdrawn=policy.withdrawn
    )
    return AdmissionResult(
        pin=_retire_expired_keys(updated, now),
        verdicts=_verdicts(request, key, canon, pinned.via, now),
        key_id=key.key_id,
        event=event,
    )


def _admit_first_use(
    request: AdmissionRequest, signature: bytes, policy: AdmissionPolicy, now: float
) -> AdmissionResult:
    """No key is bound yet. On a gated transport the first key is pinned; elsewhere the signature only has to be
    valid."""
    if request.key is None:
        raise BadSignature(
            "The announcement has no key to verify its signature with.",
            path="$.agent.public_key",
            hint="Send the public key as PEM.",
            retry_after=30,
            details={"reason": "no_key"},
        )
    canon = request.find_canonical_form(request.key, signature)
    if canon is None:
        raise _bad_signature_error()
    if not policy.gated:
        return AdmissionResult(
            pin=None, verdicts=_verdicts(request, request.key, canon, None, now), key_id=request.key.key_id
        )
    via = "admin" if policy.admin else "ca" if policy.mode == "ca" else "tofu"
    fresh = pin_first_key(
        AgentPin(agent_id=request.agent_id), new_pinned_key(request.key, via, now), provisioned=policy.admin
    )
    updated = check_replay(
        fresh, request.stamp, fresh.keys[0], now=now, authenticated=policy.authenticated, withdrawn=policy.withdrawn
    )
    verdicts = _verdicts(request, request.key, canon, via, now)
    return AdmissionResult(pin=updated, verdicts=verdicts, key_id=request.key.key_id, event="pin")


def _choose_key(
    request: AdmissionRequest, bound: AgentPin, policy: AdmissionPolicy, now: float
) -> tuple[PublicKey, str]:
    """Return the key to verify with: a pinned one, or the embedded key of a rotation."""
    if request.key is None:
        active = bound.active
        if active is None or active.key_id in policy.revoked_keys:
            raise revoked_error("The key of this agent was revoked.", "$.agent.public_key")
        return parse_der(active.spki), ""
    pinned = bound.find_key(request.key.key_id)
    if pinned is not None:
        if pinned.state_at(now) == "retired":
            raise _key_conflict_error("The key was replaced, and its grace period is over.", "retired_key")
        return parse_der(pinned.spki), ""
    active = bound.active
    if active is None or active.key_id in policy.revoked_keys:
        raise revoked_error("The key of this agent was revoked; it cannot introduce another one.", "$.agent.public_key")
    if request.previous_signature is None:
        raise _key_conflict_error("The id is bound to another key.", "other_key")
    if bound.rotated_at is not None and now < bound.rotated_at + limits.ROTATION_PAUSE_SECONDS:
        raise RateLimited(
            "A key can be replaced once an hour.",
            path="$.previous_signature",
            hint="Use the key that was announced last until then.",
            retry_after=max(1, int(bound.rotated_at + limits.ROTATION_PAUSE_SECONDS - now)),
            details={"reason": "rotation"},
        )
    return request.key, "rotate"


def _check_rotation_proof(request: AdmissionRequest, bound: AgentPin) -> None:
    """Only the active key can introduce the next one; a retiring key cannot rotate again (C6)."""
    active = bound.active
    if active is None or request.previous_signature is None:
        raise _key_conflict_error("The id is bound to another key.", "other_key")
    if request.find_canonical_form(parse_der(active.spki), request.previous_signature) is None:
        raise _key_conflict_error(
            "previous_signature was not made by the key that the id is bound to.", "bad_previous_signature"
        )


def new_pinned_key(key: PublicKey, via: str, now: float) -> PinnedKey:
    return PinnedKey(key_id=key.key_id, kind=key.kind, spki=key.spki, state="active", first_seen=now, via=via)


def _retire_expired_keys(pin: AgentPin, now: float) -> AgentPin:
    """Store the state of keys whose grace period is over."""
    if all(key.state == key.state_at(now) for key in pin.keys):
        return pin
    keys = tuple(
        msgspec.structs.replace(key, state="retired", until=None) if key.state_at(now) == "retired" else key
        for key in pin.keys
    )
    return msgspec.structs.replace(pin, keys=keys)


# --- Verdicts and errors --------------------------------------------------------------------------


def _verdicts(
    request: AdmissionRequest, key: PublicKey, canon: str, via: str | None, now: float
) -> tuple[Verdict, ...]:
    evidence: dict[str, Any] = {"key_id": key.key_id, "kind": key.kind, "canon": canon}
    if request.stamp.seq is None:
        evidence["replayable"] = True  # P-18
    signature = _verdict(SIGNATURE_CHECK, "passed", "", now, evidence)
    if via is None:
        return (signature, _verdict(PIN_CHECK, "unknown", "no key is bound to this id", now))
    return (signature, _verdict(PIN_CHECK, "passed", "", now, {"key_id": key.key_id, "via": via}))


def _verdict(check: str, state: Any, reason: str, now: float, evidence: dict[str, Any] | None = None) -> Verdict:
    return Verdict(check=check, state=state, reason=reason, evidence=evidence or {}, at=to_rfc3339(now))


def revoked_error(message: str, path: str) -> Revoked:
    return Revoked(
        message, path=path, hint="Make a new key or id, and have it admitted.", details={"reason": "revoked"}
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
        "The signature was not made by the key of this agent over this content.",
        path="$.signature",
        hint="Sign the canonical JSON (RFC 8785) of the agent as it is sent.",
        retry_after=30,
    )


def _key_conflict_error(message: str, reason: str) -> KeyConflict:
    return KeyConflict(
        message,
        path="$.agent.public_key",
        hint="Rotate with previous_signature of the bound key, or ask for `waypost keys trust`.",
        details={"reason": reason},
    )
