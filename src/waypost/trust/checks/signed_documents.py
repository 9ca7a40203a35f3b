"""Documents signed with JWS: profile records, A2A cards and ARD trust manifests.

- The profile's `signature` is a detached JWS over the record without it (profile.md, gaps: `jws-jcs`).
- An A2A card has `signatures` (neighbours.md §1); one of a bound key suffices. A `jku` in a header is never followed: a
  card must not choose the key that verifies it.
- An ARD entry has a `trustManifest` with an identity (ARD-18) and a signature (ARD-19). The signature covers the
  manifest and not the entry around it. It applies to this entry only if the manifest's identity is the entry's
  identifier; the evidence states whether it is (`binds_entry`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from waypost import limits
from waypost.errors import WaypostError
from waypost.model.json import JsonObject
from waypost.model.names import domain_of
from waypost.model.verdict import Verdict, VerdictState
from waypost.trust.checks.bound_key import UNBOUND, BoundKey, make_verdict, verify_jws_by_bound_keys
from waypost.trust.document_signatures import (
    A2A_SDK,
    A2A_SDK_0_3,
    a2a_payload_forms,
    ard_payload,
    canonicalize_parsed,
    profile_payload,
    sdk_form_drops_security,
)
from waypost.trust.jose import InvalidJws, Jws, UnknownKey, parse_detached, parse_json_signature

# --- Profile records ------------------------------------------------------------------------------

PROFILE_CHECK: Final = "profile-signature"
_PROFILE_FORMAT: Final = "jws-jcs"


def check_profile(document: JsonObject, keys: Sequence[BoundKey], now: float) -> tuple[Verdict, ...]:
    signature = document.get("signature")
    if signature is None:
        return (make_verdict(PROFILE_CHECK, "not_checked", "the record is not signed", now),)
    if not isinstance(signature, dict) or signature.get("format") != _PROFILE_FORMAT:
        return (make_verdict(PROFILE_CHECK, "not_checked", "the format of the signature is not supported", now),)
    evidence: JsonObject = {}
    try:
        signed = parse_json_signature(signature, profile_payload(document, canonicalize_parsed), ignoring=("jku",))
        header = {"algorithm": signed.header["alg"], "kid": signed.header.get("kid")}
        evidence = {**header, "canon": "jcs", "covers": "record without signature"}
        _check_unprotected_members(signature, signed)
        bound = verify_jws_by_bound_keys(signed, keys)
    except (InvalidJws, WaypostError) as error:
        return (_verdict_on_error(PROFILE_CHECK, "record", error, now, evidence),)
    return (_verdict_on_key(PROFILE_CHECK, bound, now, evidence),)


def _check_unprotected_members(signature: JsonObject, signed: Jws) -> None:
    """`alg` and `kid` beside the protected header are informative; they must not contradict it."""
    for name in ("alg", "kid"):
        if signature.get(name) is not None and signature[name] != signed.header.get(name):
            raise InvalidJws(f"`{name}` differs from its protected header")


# --- A2A cards ------------------------------------------------------------------------------------

CARD_CHECK: Final = "a2a-signature"
_CARD_COVERS: Final = "card without signatures"
_NO_OLDER_FORM: Final = (
    "the signature of the card fits none of the forms that are known: before 1.0, A2A did not specify what is signed"
)
_STRENGTH: Final[tuple[VerdictState, ...]] = (
    "unknown",
    "failed",
    "passed",
)  # of several signatures the strongest counts


def check_card(card: JsonObject, keys: Sequence[BoundKey], now: float) -> tuple[Verdict, ...]:
    """Return one verdict for all signatures: the strongest of them, with its evidence."""
    signatures = card.get("signatures")
    if not signatures:
        return (make_verdict(CARD_CHECK, "not_checked", "the card is not signed", now),)
    if not isinstance(signatures, list):
        return (make_verdict(CARD_CHECK, "failed", "`signatures` is not an array", now),)
    try:
        forms = a2a_payload_forms(card)
    except WaypostError as error:
        return (make_verdict(CARD_CHECK, "failed", error.message, now),)
    verdicts = [_check_card_signature(value, forms, keys, now) for value in signatures[: limits.SIGNATURES]]
    if sdk_form_drops_security(card):
        verdicts = [_downgrade_sdk_form(verdict) for verdict in verdicts]
    return (max(verdicts, key=lambda verdict: _STRENGTH.index(verdict.state)),)


def _check_card_signature(
    value: Any, forms: tuple[tuple[str, bytes], ...], keys: Sequence[BoundKey], now: float
) -> Verdict:
    evidence: JsonObject = {}
    invalid: InvalidJws | None = None
    for canon, payload in forms:
        is_parsed = False
        try:
            signed = parse_json_signature(value, payload, ignoring=("jku",))
            evidence = {"algorithm": signed.header["alg"], "kid": signed.header.get("kid")}
            if "jku" in signed.header:
                evidence["jku"] = "not followed"
            is_parsed = True
            bound = verify_jws_by_bound_keys(signed, keys)
        except UnknownKey as error:
            return _verdict_on_error(CARD_CHECK, "card", error, now, evidence)
        except InvalidJws as error:
            invalid = error
            continue
        if bound is not None:
            return _verdict_on_key(CARD_CHECK, bound, now, {"canon": canon, "covers": _CARD_COVERS, **evidence})
    if invalid is not None and is_parsed and forms[-1][0] == A2A_SDK_0_3:
        return make_verdict(CARD_CHECK, "unknown", _NO_OLDER_FORM, now, **evidence)
    if invalid is not None:
        return _verdict_on_error(CARD_CHECK, "card", invalid, now, evidence)
    return _verdict_on_key(CARD_CHECK, None, now, {"covers": _CARD_COVERS, **evidence})


def _downgrade_sdk_form(verdict: Verdict) -> Verdict:
    """A signature over the form without empty values does not cover empty security requirements."""
    if verdict.state != "passed" or verdict.evidence["canon"] not in (A2A_SDK, A2A_SDK_0_3):
        return verdict
    reason = "signed in a form that drops empty values, among them the security requirements of the card"
    return msgspec.structs.replace(verdict, state="unknown", reason=reason)


# --- ARD entries ----------------------------------------------------------------------------------

ARD_CHECK: Final = "ard-manifest"
IDENTITY_MISMATCH: Final = "the manifest has another identity than the entry (trust:mismatch)"
_ARD_ALGORITHMS: Final = frozenset({"EdDSA", "ES256", "PS256", "RS256"})  # P-11
_DIGEST: Final = re.compile(r"sha(?:256:[0-9a-f]{64}|384:[0-9a-f]{96}|512:[0-9a-f]{128})\Z")
_IDENTITY_SCHEMES: Final = ("spiffe://", "did:web:", "https://")


def check_ard_entry(entry: JsonObject, keys: Sequence[BoundKey], now: float) -> tuple[Verdict, ...]:
    """Return the verdict on the `trustManifest` of a catalog entry."""
    manifest = entry.get("trustManifest")
    if not isinstance(manifest, dict):
        return (make_verdict(ARD_CHECK, "not_checked", "the entry has no trust manifest", now),)
    identity, identifier = manifest.get("identity"), entry.get("identifier")
    if not is_identity_of(identity, identifier):
        return (make_verdict(ARD_CHECK, "failed", IDENTITY_MISMATCH, now, identity=str(identity)[:256]),)
    weak = next(_weak_digests(manifest), None)
    if weak is not None:
        return (make_verdict(ARD_CHECK, "failed", f"{weak} is not a digest of SHA-256 or stronger", now),)
    evidence = {"identity": identity, "covers": "manifest", "binds_entry": identity == identifier}
    if manifest.get("signature") is None:
        return (make_verdict(ARD_CHECK, "not_checked", "the manifest is not signed", now, **evidence),)
    return (_check_manifest_signature(manifest, evidence, keys, now),)


def is_identity_of(identity: Any, identifier: Any) -> bool:
    """P-10: the identity is the identifier, or in the domain of its publisher."""
    if not isinstance(identity, str) or not isinstance(identifier, str):
        return False
    if identity == identifier:
        return True
    publisher = domain_of(identifier) if identifier.lower().startswith(("urn:air:", *_IDENTITY_SCHEMES)) else None
    domain = domain_of(identity) if identity.startswith(_IDENTITY_SCHEMES) else None
    return bool(publisher and domain) and (domain == publisher or str(domain).endswith(f".{publisher}"))


def _check_manifest_signature(
    manifest: JsonObject, evidence: JsonObject, keys: Sequence[BoundKey], now: float
) -> Verdict:
    try:
        signed = parse_detached(str(manifest["signature"]), ard_payload(manifest))
        if signed.header["alg"] not in _ARD_ALGORITHMS:
            raise InvalidJws("its algorithm is not allowed for manifests")
        evidence = evidence | {"algorithm": signed.header["alg"], "canon": "jcs"}
        bound = verify_jws_by_bound_keys(signed, keys)
    except (InvalidJws, WaypostError) as error:
        return _verdict_on_error(ARD_CHECK, "manifest", error, now, evidence)
    kid = None if bound is not None else signed.header.get("kid")
    return _verdict_on_key(ARD_CHECK, bound, now, {"kid": kid, **evidence})


def _weak_digests(manifest: JsonObject) -> Iterator[str]:
    for name, member in (("attestations", "digest"), ("provenance", "sourceDigest")):
        items = manifest.get(name)
        for item in items if isinstance(items, list) else ():
            digest = item.get(member) if isinstance(item, dict) else None
            if digest is not None and not (isinstance(digest, str) and _DIGEST.match(digest)):
                yield f"{name}: {str(digest)[:40]!r}"


# --- Verdicts -------------------------------------------------------------------------------------


def _verdict_on_error(check: str, what: str, error: Exception, now: float, evidence: JsonObject) -> Verdict:
    match error:
        case UnknownKey():
            return make_verdict(
                check, "unknown", f"the signature of the {what} is not verified: {error}", now, **evidence
            )
        case WaypostError():
            return make_verdict(check, "failed", error.message, now)
        case _:
            return make_verdict(check, "failed", f"the signature of the {what} is invalid: {error}", now, **evidence)


def _verdict_on_key(check: str, bound: BoundKey | None, now: float, evidence: JsonObject) -> Verdict:
    if bound is None:
        return make_verdict(check, "unknown", UNBOUND, now, **evidence)
    return make_verdict(check, "passed", "", now, key_id=bound.key.key_id, bound_by=bound.by, **evidence)
