"""Signatures of DNS-AID: the `sig` of an SVCB record (dns-aid.md §7) and of an entry in an index (AID-25), by keys of a zone.

A signature says nothing by holding: what it names must be the very record, or entry, that it came with. Three things are told
apart: it does not hold or is of something else (failed), its key cannot be had (unknown), its time is over (failed, and what to
do is to publish anew). Pure: who has the keys is not known here.
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
from waypost.trust.encodings import encode_base64url
from waypost.trust.signing_input import ard_payload
from waypost.trust.tokens.jose import InvalidJws, JoseKey, Jws, UnknownKey, choose_key, parse_compact, parse_detached

ALGORITHM: Final = "ES256"
_PREFIX: Final = "svcb1:"
NO_KEY: Final = "no_key"
BAD: Final = "bad_signature"
EXPIRED: Final = "expired"
UNBOUND: Final = "unbound"
UNSIGNED: Final = "unsigned"


class SignedRecordFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A record as a signature can name it. `params` are the keys of DNS-AID, by name and by number, without `sig`."""

    owner: str
    target: str
    port: int
    alpn: tuple[str, ...]  # every way in which the signer may have written it
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
    """The `sig` of a record."""
    try:
        signed, key = _verify_by_any_key(parse_compact(text), keys)
        claims = _claims(signed.payload, now)
        _check_names(claims, record)
        whole = _covers_params(claims, record)
    except UnknownKey as error:
        return SignatureResult(
            state="unknown", code=NO_KEY, reason=f"the signature of the record cannot be judged: {error}"
        )
    except InvalidJws as error:
        return SignatureResult(state="failed", code=BAD, reason=f"the signature of the record does not hold: {error}")
    except _InvalidSignature as wrong:
        return SignatureResult(state="failed", code=wrong.code, reason=str(wrong))
    evidence = {"covers": "record" if whole else "endpoint", "key_id": key.key.key_id, "expires": claims["exp"]}
    return SignatureResult(state="passed", reason="the record is signed by a key of its zone", evidence=evidence)


def verify_entry_signature(
    entry: JsonObject, names: frozenset[str], keys: Sequence[JoseKey], now: float
) -> SignatureResult:
    """An entry of an index: a `sig` of its own that names one of the hosts which it leads to, or the signed manifest of a
    catalogue entry. `names` are those hosts, and for a manifest the only ones that it may lead to."""
    text, manifest = entry.get("sig"), entry.get("trustManifest")
    try:
        if isinstance(text, str):
            signed, key = _verify_by_any_key(parse_compact(text), keys)
            claims = _claims(signed.payload, now)
            if not names or not names <= {_name(claims["fqdn"]), _name(claims["target"])}:
                raise _InvalidSignature(UNBOUND, "the signature of the entry is of another agent")
            covers = "endpoint"
        elif isinstance(manifest, dict) and isinstance(manifest.get("signature"), str):
            signed, key = _verify_by_any_key(parse_detached(manifest["signature"], ard_payload(manifest)), keys)
            if manifest.get("identity") != entry.get("identifier"):
                raise _InvalidSignature(UNBOUND, "the manifest of the entry is of another identity")
            covers = "manifest"
        else:
            return SignatureResult(state="not_checked", code=UNSIGNED, reason="the entry is not signed")
    except UnknownKey as error:
        return SignatureResult(
            state="unknown", code=NO_KEY, reason=f"the signature of the entry cannot be judged: {error}"
        )
    except InvalidJws as error:
        return SignatureResult(state="failed", code=BAD, reason=f"the signature of the entry does not hold: {error}")
    except WaypostError as error:
        return SignatureResult(state="failed", code=BAD, reason=error.message)
    except _InvalidSignature as wrong:
        return SignatureResult(state="failed", code=wrong.code, reason=str(wrong))
    return SignatureResult(state="passed", evidence={"covers": covers, "key_id": key.key.key_id})


def _verify_by_any_key(signed: Jws, keys: Sequence[JoseKey]) -> tuple[Jws, JoseKey]:
    """By the key that it names; one that names none by any that fits, as records without `kid` are written."""
    if signed.header["alg"] != ALGORITHM:
        raise InvalidJws("its algorithm is not ES256")
    if not keys:
        raise UnknownKey("no key of the zone could be had")
    if signed.header.get("kid") is not None:
        candidates = [choose_key(signed.header, keys)]
    else:
        candidates = [key for key in keys if ALGORITHM in key.algorithms]
    if not candidates:
        raise UnknownKey("the zone has no key for it")
    for key in candidates[: limits.JWKS_KEYS]:
        if key.key.verify_as(ALGORITHM, signed.signature, signed.signing_input):
            return signed, key
    raise InvalidJws("its signature does not hold")


def _claims(payload: bytes, now: float) -> JsonObject:
    try:
        claims = parse_object(payload, max_bytes=limits.JWS_BYTES)
    except WaypostError:
        raise InvalidJws("what it signs cannot be read") from None
    texts, numbers = ("fqdn", "target", "alpn"), ("port", "iat", "exp")
    fits = all(isinstance(claims.get(name), str) for name in texts) and all(
        isinstance(claims.get(name), int) and not isinstance(claims.get(name), bool) for name in numbers
    )
    if not fits:
        raise InvalidJws("what it signs is no record of DNS-AID")
    if claims["exp"] <= now:
        raise _InvalidSignature(EXPIRED, "the signature of the record has expired; it is to be published anew")
    if claims["iat"] > now + limits.AID_PROOF_SKEW_SECONDS:
        raise _InvalidSignature(BAD, "the signature of the record is of a time to come")
    return claims


def _check_names(claims: JsonObject, record: SignedRecordFacts) -> None:
    found = {
        "fqdn": _name(claims["fqdn"]) == record.owner,
        "target": (_name(claims["target"]) or record.owner) == record.target,
        "port": claims["port"] == record.port,
        "alpn": claims["alpn"] in record.alpn,
    }
    other = [name for name, same in found.items() if not same]
    if other:
        raise _InvalidSignature(UNBOUND, f"the signature is of another record: {', '.join(other)} differ")


def _covers_params(claims: JsonObject, record: SignedRecordFacts) -> bool:
    """`svcb` is a digest over the other keys. Without it only the endpoint is attested."""
    stated = claims.get("svcb")
    if stated is None:
        return False
    if stated not in {params_digest(params) for params in record.params}:
        raise _InvalidSignature(UNBOUND, "the signature is of other parameters than the record has")
    return True


def params_digest(params: Mapping[str, str]) -> str:
    text = json.dumps(dict(params), sort_keys=True, separators=(",", ":"))
    return encode_base64url(hashlib.sha256((_PREFIX + text).encode()).digest())


def _name(text: str) -> str:
    return text.lower().removesuffix(".")
