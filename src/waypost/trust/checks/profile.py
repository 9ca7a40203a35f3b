"""The profile's `signature`: a detached JWS over the record without it (profile.md, gaps: `jws-jcs`)."""

from __future__ import annotations

from collections.abc import Sequence

from waypost.errors import WaypostError
from waypost.model.json import JsonObject
from waypost.model.verdict import Verdict
from waypost.trust.canonical import canonical_read
from waypost.trust.checks.bound import UNBOUND, BoundKey, judge_jws, told
from waypost.trust.covered import profile_payload
from waypost.trust.jose import NotSigned, Signed, UnknownKey, read_json

CHECK = "profile-signature"
FORMAT = "jws-jcs"
_COVERS = "record without signature"


def check_profile(document: JsonObject, keys: Sequence[BoundKey], now: float) -> tuple[Verdict, ...]:
    signature = document.get("signature")
    if signature is None:
        return (told(CHECK, "not_checked", "the record is not signed", now),)
    form = signature.get("format") if isinstance(signature, dict) else None
    if form != FORMAT:
        return (told(CHECK, "not_checked", "the signature is of a format that is not checked here", now),)
    return (_judge(document, signature, keys, now),)


def _judge(document: JsonObject, signature: JsonObject, keys: Sequence[BoundKey], now: float) -> Verdict:
    evidence: JsonObject = {}
    try:
        signed = read_json(signature, profile_payload(document, canonical_read), ignoring=("jku",))
        evidence = {
            "algorithm": signed.header["alg"],
            "kid": signed.header.get("kid"),
            "canon": "jcs",
            "covers": _COVERS,
        }
        _check_told(signature, signed)
        bound = judge_jws(signed, keys)
    except UnknownKey as error:
        return told(CHECK, "unknown", f"the signature of the record cannot be judged: {error}", now, **evidence)
    except NotSigned as error:
        return told(CHECK, "failed", f"the signature of the record does not hold: {error}", now, **evidence)
    except WaypostError as error:
        return told(CHECK, "failed", error.message, now)
    if bound is None:
        return told(CHECK, "unknown", UNBOUND, now, **evidence)
    return told(CHECK, "passed", "", now, key_id=bound.key.key_id, bound_by=bound.by, **evidence)


def _check_told(signature: JsonObject, signed: Signed) -> None:
    """What stands beside the protected header is for readers; it must not say anything else."""
    for name in ("alg", "kid"):
        if signature.get(name) is not None and signature[name] != signed.header.get(name):
            raise NotSigned(f"`{name}` is not what its protected header says")
