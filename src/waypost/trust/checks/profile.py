"""The profile's `signature`: a detached JWS over the record without it (profile.md, gaps: `jws-jcs`)."""

from __future__ import annotations

from collections.abc import Sequence

from waypost.errors import WaypostError
from waypost.model.json import JsonObject
from waypost.model.verdict import Verdict
from waypost.trust.checks.bound_key import UNBOUND, BoundKey, make_verdict, verify_jws_by_bound_keys
from waypost.trust.signing_input import canonicalize_parsed, profile_payload
from waypost.trust.tokens.jose import InvalidJws, Jws, UnknownKey, parse_json_signature

CHECK = "profile-signature"
FORMAT = "jws-jcs"
_COVERS = "record without signature"


def check_profile(document: JsonObject, keys: Sequence[BoundKey], now: float) -> tuple[Verdict, ...]:
    signature = document.get("signature")
    if signature is None:
        return (make_verdict(CHECK, "not_checked", "the record is not signed", now),)
    form = signature.get("format") if isinstance(signature, dict) else None
    if form != FORMAT:
        return (make_verdict(CHECK, "not_checked", "the signature is of a format that is not checked here", now),)
    return (_check_signature(document, signature, keys, now),)


def _check_signature(document: JsonObject, signature: JsonObject, keys: Sequence[BoundKey], now: float) -> Verdict:
    evidence: JsonObject = {}
    try:
        signed = parse_json_signature(signature, profile_payload(document, canonicalize_parsed), ignoring=("jku",))
        evidence = {
            "algorithm": signed.header["alg"],
            "kid": signed.header.get("kid"),
            "canon": "jcs",
            "covers": _COVERS,
        }
        _check_unprotected_members(signature, signed)
        bound = verify_jws_by_bound_keys(signed, keys)
    except UnknownKey as error:
        return make_verdict(CHECK, "unknown", f"the signature of the record cannot be judged: {error}", now, **evidence)
    except InvalidJws as error:
        return make_verdict(CHECK, "failed", f"the signature of the record does not hold: {error}", now, **evidence)
    except WaypostError as error:
        return make_verdict(CHECK, "failed", error.message, now)
    if bound is None:
        return make_verdict(CHECK, "unknown", UNBOUND, now, **evidence)
    return make_verdict(CHECK, "passed", "", now, key_id=bound.key.key_id, bound_by=bound.by, **evidence)


def _check_unprotected_members(signature: JsonObject, signed: Jws) -> None:
    """What stands beside the protected header is for readers; it must not say anything else."""
    for name in ("alg", "kid"):
        if signature.get(name) is not None and signature[name] != signed.header.get(name):
            raise InvalidJws(f"`{name}` is not what its protected header says")
