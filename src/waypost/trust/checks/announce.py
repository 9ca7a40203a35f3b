"""Announcements: the signature of the agent object (announce.md §3)."""

from __future__ import annotations

from collections.abc import Sequence

from waypost.errors import WaypostError
from waypost.model.json import JsonObject
from waypost.model.verdict import Verdict
from waypost.trust.announce.signed_announcement import (
    SignatureProof,
    SignedAnnouncement,
    certificate_validity,
    parse_signed_announcement,
)
from waypost.trust.checks.bound_key import UNBOUND, BoundKey, find_bound_key, make_verdict
from waypost.trust.keys.public_key import PublicKey

CHECK = "announce-signature"
_COVERS = "agent"


def check_announcement(
    message: JsonObject, keys: Sequence[BoundKey], now: float, *, legacy: bool = False
) -> tuple[Verdict, ...]:
    """Return the verdict on `{"agent", "signature"?, "previous_signature"?}`. Bound keys verify, never the embedded
    one."""
    if message.get("signature") is None:
        return (make_verdict(CHECK, "not_checked", "the announcement is not signed", now),)
    try:
        announced = parse_signed_announcement(message, legacy=legacy)
    except WaypostError as error:
        return (make_verdict(CHECK, "failed", error.message, now),)
    return (_check_by_bound_keys(announced, keys, now) if keys else _check_by_embedded_key(announced, now),)


def _check_by_bound_keys(announced: SignedAnnouncement, keys: Sequence[BoundKey], now: float) -> Verdict:
    embedded = announced.key
    if embedded is None or find_bound_key(embedded, keys) is not None:
        return _check_by_known_key(announced, embedded, keys, now)
    own = announced.prove(embedded, announced.signature or b"")
    if own is None:
        return _failed("the signature is invalid", embedded, now)
    before = announced.previous_signature
    for bound in keys:
        if before is not None and announced.prove(bound.key, before) is not None:
            return _passed(embedded, own, "rotation", now, rotated_from=bound.key.key_id)
    return _failed("signed by another key than the one bound to this agent", embedded, now)


def _check_by_known_key(
    announced: SignedAnnouncement, embedded: PublicKey | None, keys: Sequence[BoundKey], now: float
) -> Verdict:
    outdated = _certificate_error(embedded, now)
    if outdated:
        return _failed(outdated, embedded, now)
    for bound in keys:
        if embedded is not None and bound.key.spki != embedded.spki:
            continue
        proof = announced.prove(bound.key, announced.signature or b"")
        if proof is not None:
            return _passed(bound.key, proof, bound.by, now)
    return _failed("the signature is invalid", embedded, now)


def _check_by_embedded_key(announced: SignedAnnouncement, now: float) -> Verdict:
    key = announced.key
    if key is None:
        return make_verdict(CHECK, "unknown", "the announcement has no key, and none is bound to this agent", now)
    proof = announced.prove(key, announced.signature or b"")
    reason = "the signature is invalid" if proof is None else _certificate_error(key, now)
    if proof is None or reason:
        return _failed(reason, key, now)
    return make_verdict(CHECK, "unknown", UNBOUND, now, **_evidence(key, proof))


def _passed(key: PublicKey, proof: SignatureProof, by: str, now: float, *, rotated_from: str | None = None) -> Verdict:
    return make_verdict(CHECK, "passed", "", now, **_evidence(key, proof), bound_by=by, rotated_from=rotated_from)


def _failed(reason: str, key: PublicKey | None, now: float) -> Verdict:
    return make_verdict(CHECK, "failed", reason, now, key_id=key.key_id if key is not None else None, covers=_COVERS)


def _evidence(key: PublicKey, proof: SignatureProof) -> dict[str, str]:
    return {"key_id": key.key_id, "algorithm": proof.algorithm, "canon": proof.canon, "covers": _COVERS}


def _certificate_error(key: PublicKey | None, now: float) -> str:
    """Return why the certificate is not valid now; an empty string if it is, or if there is none."""
    if key is None or key.certificate is None:
        return ""
    begins, ends = certificate_validity(key.certificate)
    if now < begins:
        return "the certificate is not valid yet"
    return "the certificate has expired" if now > ends else ""
