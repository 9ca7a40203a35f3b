"""Whether an announcement is admitted (announce.md §4): revocations, allow-list, key, signature, replay, in this order.

One pure function, `admit`: what is said, what is known of its id and the rules in force go in; the trust store's new row
and the verdicts come out, or a refusal. Cheap refusals come first (ANN-13). It knows no record, no owner and no transport;
whoever calls says whether the session was authenticated and whether the allow-list applies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal

import msgspec

from waypost import limits
from waypost.errors import BadSignature, Forbidden, KeyConflict, NotAllowed, RateLimited, Revoked
from waypost.model.times import to_rfc3339
from waypost.model.verdict import Verdict
from waypost.trust.allowlist import AllowList, Applicant
from waypost.trust.keys import PublicKey, parse_der
from waypost.trust.pins import Pin, PinnedKey, rotated, with_first_key
from waypost.trust.replay import Stamp, check_news

Mode = Literal["pinned", "allowlist-tofu", "tofu", "ca"]
MODES: tuple[Mode, ...] = ("pinned", "allowlist-tofu", "tofu", "ca")
UNSIGNED = ("reject", "untrusted")
SIGNATURE = "announce-signature"
PINNED = "key-pinned"


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """An announcement as far as trust goes. `holds` says by which canonical form a signature of a key holds, or None."""

    agent_id: str  # lower case
    stamp: Stamp
    key: PublicKey | None = None  # the one that it brings along
    signature: bytes | None = None
    previous_signature: bytes | None = None
    minor: int = 0  # of the protocol version v1.x
    names: tuple[str, ...] = ()  # SANs of the certificate it brings along, where its chain was checked
    holds: Callable[[PublicKey, bytes], str | None]


class Terms(msgspec.Struct, frozen=True, kw_only=True):
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


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    pin: Pin | None  # None: nothing is bound
    verdicts: tuple[Verdict, ...]
    key_id: str | None = None
    event: str = ""  # pin, rotate: what happened to keys


def admit(said: Announcement, pin: Pin | None, terms: Terms, now: float) -> Admitted:
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


def _check_revoked(said: Announcement, pin: Pin | None, terms: Terms) -> None:
    if said.agent_id in terms.revoked_agents:
        raise revoked(f"The agent {said.agent_id} was revoked.", "$.agent.agent_id")
    key_id = said.key.key_id if said.key is not None else None
    held = pin.find_key(key_id) if pin is not None and key_id is not None else None
    if key_id in terms.revoked_keys or (held is not None and held.state == "revoked"):
        raise revoked("The key of this announcement was revoked.", "$.agent.public_key")


def _check_allowed(said: Announcement, pin: Pin | None, terms: Terms) -> None:
    if terms.admin or (pin is not None and pin.provisioned):
        return
    if terms.mode == "pinned":
        raise _not_allowed("No key was provisioned for this agent.", "Ask for `waypost keys trust AGENT_ID FILE.pem`.")
    if terms.mode == "ca" and f"urn:uuid:{said.agent_id}" not in said.names:
        raise _not_allowed(
            "Only agents with a certificate of a known authority may announce here.",
            "Send a certificate as public_key whose SAN is the URI urn:uuid:<agent_id>.",
        )
    if terms.mode == "tofu" and not len(terms.rules):
        return
    applicant = Applicant(
        agent_id=said.agent_id, key_id=said.key.key_id if said.key is not None else None, names=said.names
    )
    if terms.rules.find_rule(applicant) is None:
        raise _not_allowed(
            f"No rule of the allow-list admits the agent {said.agent_id}.",
            f"Ask an admin for `waypost allow add {said.agent_id}`.",
        )


# --- Unsigned -------------------------------------------------------------------------------------


def _admit_unsigned(said: Announcement, bound: Pin | None, terms: Terms, now: float) -> Admitted:
    """An id with a key stays bound to it (C15). Others need a policy that takes unsigned words, and a proven session."""
    if bound is not None:
        raise _unsigned("The id is bound to a key, and this is not signed.")
    if terms.gated and not (terms.unsigned == "untrusted" and said.minor >= 1 and terms.authenticated):
        raise _unsigned("The announcement is not signed.")
    verdict = _verdict(SIGNATURE, "not_checked", "the document has no signature", now)
    return Admitted(pin=None, verdicts=(verdict,))


# --- Signed ---------------------------------------------------------------------------------------


def _admit_signed(said: Announcement, signature: bytes, bound: Pin | None, terms: Terms, now: float) -> Admitted:
    if bound is None:
        return _first_use(said, signature, terms, now)
    key, event = _choose_key(said, bound, terms, now)
    canon = said.holds(key, signature)
    if canon is None:
        raise _bad_signature()
    if event == "rotate":
        _check_proof(said, bound)
        bound = rotated(bound, _pinned(key, "rotation", now), now)
    held = bound.find_key(key.key_id)
    if held is None:  # `key` is one of the pin's, or was just put there
        raise _bad_signature()
    news = check_news(bound, said.stamp, held, now=now, authenticated=terms.authenticated, withdrawn=terms.withdrawn)
    return Admitted(
        pin=_settled(news, now), verdicts=_verdicts(said, key, canon, held.via, now), key_id=key.key_id, event=event
    )


def _first_use(said: Announcement, signature: bytes, terms: Terms, now: float) -> Admitted:
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
        raise _bad_signature()
    if not terms.gated:
        return Admitted(pin=None, verdicts=_verdicts(said, said.key, canon, None, now), key_id=said.key.key_id)
    via = "admin" if terms.admin else "ca" if terms.mode == "ca" else "tofu"
    fresh = with_first_key(Pin(agent_id=said.agent_id), _pinned(said.key, via, now), provisioned=terms.admin)
    news = check_news(
        fresh, said.stamp, fresh.keys[0], now=now, authenticated=terms.authenticated, withdrawn=terms.withdrawn
    )
    verdicts = _verdicts(said, said.key, canon, via, now)
    return Admitted(pin=news, verdicts=verdicts, key_id=said.key.key_id, event="pin")


def _choose_key(said: Announcement, bound: Pin, terms: Terms, now: float) -> tuple[PublicKey, str]:
    """The pinned key verifies, never the embedded one; another key than the pinned ones is a rotation or nothing."""
    if said.key is None:
        active = bound.active
        if active is None or active.key_id in terms.revoked_keys:
            raise revoked("The key of this agent was revoked.", "$.agent.public_key")
        return parse_der(active.spki), ""
    held = bound.find_key(said.key.key_id)
    if held is not None:
        if held.state_at(now) == "retired":
            raise _other_key("The key was replaced, and its time of grace is over.", "retired_key")
        return parse_der(held.spki), ""
    active = bound.active
    if active is None or active.key_id in terms.revoked_keys:
        raise revoked("The key of this agent was revoked; it cannot vouch for another one.", "$.agent.public_key")
    if said.previous_signature is None:
        raise _other_key("The id is bound to another key.", "other_key")
    if bound.rotated_at is not None and now < bound.rotated_at + limits.ROTATION_PAUSE_SECONDS:
        raise RateLimited(
            "A key can be replaced once an hour.",
            path="$.previous_signature",
            hint="Go on with the key that was announced last.",
            retry_after=max(1, int(bound.rotated_at + limits.ROTATION_PAUSE_SECONDS - now)),
            details={"reason": "rotation"},
        )
    return said.key, "rotate"


def _check_proof(said: Announcement, bound: Pin) -> None:
    """Only the active key vouches for the next one; a retiring one may not rotate again (C6)."""
    active = bound.active
    if active is None or said.previous_signature is None:
        raise _other_key("The id is bound to another key.", "other_key")
    if said.holds(parse_der(active.spki), said.previous_signature) is None:
        raise _other_key("previous_signature is not by the key that the id is bound to.", "bad_previous_signature")


def _pinned(key: PublicKey, via: str, now: float) -> PinnedKey:
    return PinnedKey(key_id=key.key_id, kind=key.kind, spki=key.spki, state="active", first_seen=now, via=via)


def pinned_key(key: PublicKey, via: str, now: float) -> PinnedKey:
    """An active key, as an operator provisions it."""
    return _pinned(key, via, now)


def _settled(pin: Pin, now: float) -> Pin:
    """Keys whose grace is over are retired for good."""
    if all(key.state == key.state_at(now) for key in pin.keys):
        return pin
    keys = tuple(
        msgspec.structs.replace(key, state="retired", until=None) if key.state_at(now) == "retired" else key
        for key in pin.keys
    )
    return msgspec.structs.replace(pin, keys=keys)


# --- Verdicts and refusals ------------------------------------------------------------------------


def _verdicts(said: Announcement, key: PublicKey, canon: str, via: str | None, now: float) -> tuple[Verdict, ...]:
    evidence: dict[str, Any] = {"key_id": key.key_id, "kind": key.kind, "canon": canon}
    if said.stamp.seq is None:
        evidence["replayable"] = True  # P-18
    signature = _verdict(SIGNATURE, "passed", "", now, evidence)
    if via is None:
        return (signature, _verdict(PINNED, "unknown", "no key is bound to this id", now))
    return (signature, _verdict(PINNED, "passed", "", now, {"key_id": key.key_id, "via": via}))


def _verdict(check: str, state: Any, reason: str, now: float, evidence: dict[str, Any] | None = None) -> Verdict:
    return Verdict(check=check, state=state, reason=reason, evidence=evidence or {}, at=to_rfc3339(now))


def revoked(message: str, path: str) -> Revoked:
    return Revoked(
        message, path=path, hint="Make a new key or id, and have it admitted anew.", details={"reason": "revoked"}
    )


def _not_allowed(message: str, hint: str) -> NotAllowed:
    return NotAllowed(message, path="$.agent.agent_id", hint=hint, retry_after=300, details={"reason": "not_allowed"})


def _unsigned(message: str) -> BadSignature:
    return BadSignature(
        message,
        path="$.signature",
        hint="Sign the canonical JSON (RFC 8785) of the agent, and send it as base64.",
        retry_after=30,
        details={"reason": "unsigned"},
    )


def _bad_signature() -> BadSignature:
    return BadSignature(
        "The signature is not by the key of this agent over this content.",
        path="$.signature",
        hint="Sign the canonical JSON (RFC 8785) of the agent as it is sent.",
        retry_after=30,
    )


def _other_key(message: str, reason: str) -> KeyConflict:
    return KeyConflict(
        message,
        path="$.agent.public_key",
        hint="Rotate with previous_signature by the key that is bound, or ask for `waypost keys trust`.",
        details={"reason": reason},
    )
