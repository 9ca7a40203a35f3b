"""Signatures of DNS-AID: the `sig` of an SVCB record (dns-aid.md §7) and of an entry in an index (AID-25), by keys of a
zone.

A valid signature is not enough: its claims must match the record, or entry, that it came with. Results: invalid or for
something else (failed), key unavailable (unknown), expired (failed; the record must be published again).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from waypost import limits
from waypost.errors import WaypostError
from waypost.model.json import JsonObject, parse_object
from waypost.model.verdict import VerdictState
from waypost.trust.document_signatures import ard_payload
from waypost.trust.encodings import encode_base64url
from waypost.trust.jose import InvalidJws, JoseKey, Jws, UnknownKey, choose_key, parse_compact, parse_detached

ALGORITHM: Final = "ES256"
_PREFIX: Final = "svcb1:"
NO_KEY: Final = "no_key"
BAD: Final = "bad_signature"
EXPIRED: Final = "expired"
UNBOUND: Final = "unbound"
UNSIGNED: Final = "unsigned"


class SignedRecordFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a record that a signature can cover. `params` are the DNS-AID keys, by name and by number, without
    `sig`."""

    owner: str
    target: str
    port: int
    alpn: tuple[str, ...]  # every accepted spelling
    params: tuple[Mapping[str, str], ...] = ()


class SignatureResult(msgspec.Struct, frozen=True, kw_only=True):
    state: VerdictState
    code: str = ""
    reason: str = ""
    evidence: dict[str, Any] = {}


class _InvalidSignature(Exception):
    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def verify_record_signature(
    text: str, record: SignedRecordFacts, keys: Sequence[JoseKey], now: float
) -> SignatureResult:
    """Verify the `sig` of a record."""
    try:
        signed, key = _verify_by_any_key(parse_compact(text), keys)
        claims = _claims(signed.payload, now)
        _check_names(claims, record)
        covers_params = _covers_params(claims, record)
    except (InvalidJws, _InvalidSignature) as error:
        return _result_of_error("record", error)
    evidence = {"covers": "record" if covers_params else "endpoint", "key_id": key.key.key_id, "expires": claims["exp"]}
    return SignatureResult(state="passed", reason="the record is signed by a key of its zone", evidence=evidence)


def verify_entry_signature(
    entry: JsonObject, names: frozenset[str], keys: Sequence[JoseKey], now: float
) -> SignatureResult:
    """Verify an entry of an index: its own `sig` for one of the hosts that it links to, or the signed trust manifest of
    a catalog entry. `names` are those hosts; a manifest may link to no others."""
    text, manifest = entry.get("sig"), entry.get("trustManifest")
    try:
        if isinstance(text, str):
            signed, key = _verify_by_any_key(parse_compact(text), keys)
            claims = _claims(signed.payload, now)
            if not names or not names <= {_normalize_name(claims["fqdn"]), _normalize_name(claims["target"])}:
                raise _InvalidSignature(UNBOUND, "the signature of the entry is for another agent")
            covers = "endpoint"
        elif isinstance(manifest, dict) and isinstance(manifest.get("signature"), str):
            signed, key = _verify_by_any_key(parse_detached(manifest["signature"], ard_payload(manifest)), keys)
            if manifest.get("identity") != entry.get("identifier"):
                raise _InvalidSignature(UNBOUND, "the manifest of the entry has another identity")
            covers = "manifest"
        else:
            return SignatureResult(state="not_checked", code=UNSIGNED, reason="the entry is not signed")
    except (InvalidJws, WaypostError, _InvalidSignature) as error:
        return _result_of_error("entry", error)
    return SignatureResult(state="passed", evidence={"covers": covers, "key_id": key.key.key_id})


def _result_of_error(what: str, error: InvalidJws | WaypostError | _InvalidSignature) -> SignatureResult:
    match error:
        case UnknownKey():
            reason = f"the signature of the {what} is not verified: {error}"
            return SignatureResult(state="unknown", code=NO_KEY, reason=reason)
        case InvalidJws():
            reason = f"the signature of the {what} is invalid: {error}"
            return SignatureResult(state="failed", code=BAD, reason=reason)
        case _InvalidSignature():
            return SignatureResult(state="failed", code=error.code, reason=str(error))
        case _:
            return SignatureResult(state="failed", code=BAD, reason=error.message)


def _verify_by_any_key(signed: Jws, keys: Sequence[JoseKey]) -> tuple[Jws, JoseKey]:
    """Verify with the key that `kid` names; without `kid`, with any key for ES256."""
    if signed.header["alg"] != ALGORITHM:
        raise InvalidJws("its algorithm is not ES256")
    if not keys:
        raise UnknownKey("no key of the zone is available")
    if signed.header.get("kid") is not None:
        candidates = [choose_key(signed.header, keys)]
    else:
        candidates = [key for key in keys if ALGORITHM in key.algorithms]
    if not candidates:
        raise UnknownKey("the zone has no ES256 key")
    for key in candidates[: limits.JWKS_KEYS]:
        if key.key.verify_as(ALGORITHM, signed.signature, signed.signing_input):
            return signed, key
    raise InvalidJws("its signature is invalid")


def _claims(payload: bytes, now: float) -> JsonObject:
    try:
        claims = parse_object(payload, max_bytes=limits.JWS_BYTES)
    except WaypostError:
        raise InvalidJws("its payload is not a JSON object") from None
    texts, numbers = ("fqdn", "target", "alpn"), ("port", "iat", "exp")
    fits = all(isinstance(claims.get(name), str) for name in texts) and all(
        isinstance(claims.get(name), int) and not isinstance(claims.get(name), bool) for name in numbers
    )
    if not fits:
        raise InvalidJws("its payload is not a DNS-AID record")
    if claims["exp"] <= now:
        raise _InvalidSignature(EXPIRED, "the signature of the record has expired; publish the record again")
    if claims["iat"] > now + limits.AID_PROOF_SKEW_SECONDS:
        raise _InvalidSignature(BAD, "the signature of the record is from the future")
    return claims


def _check_names(claims: JsonObject, record: SignedRecordFacts) -> None:
    found = {
        "fqdn": _normalize_name(claims["fqdn"]) == record.owner,
        "target": (_normalize_name(claims["target"]) or record.owner) == record.target,
        "port": claims["port"] == record.port,
        "alpn": claims["alpn"] in record.alpn,
    }
    other = [name for name, same in found.items() if not same]
    if other:
        raise _InvalidSignature(UNBOUND, f"the signature is for another record: {', '.join(other)} differ")


def _covers_params(claims: JsonObject, record: SignedRecordFacts) -> bool:
    """Return whether the claim `svcb`, a digest over the other keys, is present; without it only the endpoint is
    signed."""
    stated = claims.get("svcb")
    if stated is None:
        return False
    if stated not in {params_digest(params) for params in record.params}:
        raise _InvalidSignature(UNBOUND, "the signature is for other parameters than the record has")
    return True


def params_digest(params: Mapping[str, str]) -> str:
    text = json.dumps(dict(params), sort_keys=True, separators=(",", ":"))
    return encode_base64url(hashlib.sha256((_PREFIX + text).encode()).digest())


def _normalize_name(text: str) -> str:
    return text.lower().removesuffix(".")
