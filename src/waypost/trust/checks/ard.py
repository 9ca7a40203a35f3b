"""ARD trust manifests: whose they are (ARD-18), and who signed them (ARD-19).

The signature covers the manifest and not the entry around it. It speaks of this entry only when the manifest's identity is
the entry's identifier; the evidence says which it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from waypost.errors import WaypostError
from waypost.model.json import JsonObject
from waypost.model.names import domain_of
from waypost.model.verdict import Verdict
from waypost.trust.checks.bound_key import UNBOUND, BoundKey, make_verdict, verify_jws_by_bound_keys
from waypost.trust.signing_input import ard_payload
from waypost.trust.tokens.jose import InvalidJws, UnknownKey, parse_detached

CHECK = "ard-manifest"
MISMATCH = "the manifest is of another identity than the entry (trust:mismatch)"
_ALGORITHMS = frozenset({"EdDSA", "ES256", "PS256", "RS256"})  # P-11
_DIGEST = re.compile(r"sha(?:256:[0-9a-f]{64}|384:[0-9a-f]{96}|512:[0-9a-f]{128})\Z")
_IDENTITIES = ("spiffe://", "did:web:", "https://")


def check_ard_entry(entry: JsonObject, keys: Sequence[BoundKey], now: float) -> tuple[Verdict, ...]:
    """The verdict on the `trustManifest` of a catalogue entry."""
    manifest = entry.get("trustManifest")
    if not isinstance(manifest, dict):
        return (make_verdict(CHECK, "not_checked", "the entry has no trust manifest", now),)
    identity, identifier = manifest.get("identity"), entry.get("identifier")
    if not is_identity_of(identity, identifier):
        return (make_verdict(CHECK, "failed", MISMATCH, now, identity=str(identity)[:256]),)
    weak = next(_weak_digests(manifest), None)
    if weak is not None:
        return (make_verdict(CHECK, "failed", f"{weak} is not a digest of SHA-256 or stronger", now),)
    evidence = {"identity": identity, "covers": "manifest", "binds_entry": identity == identifier}
    if manifest.get("signature") is None:
        return (make_verdict(CHECK, "not_checked", "the manifest is not signed", now, **evidence),)
    return (_check_signature(manifest, evidence, keys, now),)


def is_identity_of(identity: Any, identifier: Any) -> bool:
    """P-10: the identity is the identifier, or of its publisher's domain or one below it."""
    if not isinstance(identity, str) or not isinstance(identifier, str):
        return False
    if identity == identifier:
        return True
    publisher = domain_of(identifier) if identifier[:8].lower() == "urn:air:" else None
    domain = domain_of(identity) if identity.startswith(_IDENTITIES) else None
    return bool(publisher and domain) and (domain == publisher or str(domain).endswith(f".{publisher}"))


def _check_signature(manifest: JsonObject, evidence: JsonObject, keys: Sequence[BoundKey], now: float) -> Verdict:
    try:
        signed = parse_detached(str(manifest["signature"]), ard_payload(manifest))
        if signed.header["alg"] not in _ALGORITHMS:
            raise InvalidJws("its algorithm is not one that manifests are signed with")
        evidence = evidence | {"algorithm": signed.header["alg"], "canon": "jcs"}
        bound = verify_jws_by_bound_keys(signed, keys)
    except UnknownKey as error:
        return make_verdict(
            CHECK, "unknown", f"the signature of the manifest cannot be judged: {error}", now, **evidence
        )
    except InvalidJws as error:
        return make_verdict(CHECK, "failed", f"the signature of the manifest does not hold: {error}", now, **evidence)
    except WaypostError as error:
        return make_verdict(CHECK, "failed", error.message, now)
    if bound is None:
        return make_verdict(CHECK, "unknown", UNBOUND, now, kid=signed.header.get("kid"), **evidence)
    return make_verdict(CHECK, "passed", "", now, key_id=bound.key.key_id, bound_by=bound.by, **evidence)


def _weak_digests(manifest: JsonObject) -> Iterator[str]:
    for name, member in (("attestations", "digest"), ("provenance", "sourceDigest")):
        items = manifest.get(name)
        for item in items if isinstance(items, list) else ():
            digest = item.get(member) if isinstance(item, dict) else None
            if digest is not None and not (isinstance(digest, str) and _DIGEST.match(digest)):
                yield f"{name}: {str(digest)[:40]!r}"
