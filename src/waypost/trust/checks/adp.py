"""ADP documents: the key against its fingerprint (ADP-26, ADP-51), and the key's `proof` over the agent's URI.

A document on its own can only be consistent. It is verified if something else binds the key to the domain: a pin, or
the fingerprint in the domain's DNS.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from waypost.errors import InvalidKey
from waypost.model.json import JsonObject
from waypost.model.verdict import Verdict
from waypost.trust.checks.bound_key import UNBOUND, BoundKey, find_bound_key, make_verdict
from waypost.trust.document_signatures import adp_payload
from waypost.trust.encodings import decode_base64
from waypost.trust.keys.public_key import PublicKey, parse_der, parse_ed25519_raw, parse_pem

KEY_CHECK = "adp-key"
PROOF_CHECK = "adp-proof"
FINGERPRINT = re.compile(r"ed25519:[A-Za-z0-9_-]{43}\Z")
_PATH = "$.identity.publicKey.full"


def check_adp(
    document: JsonObject,
    keys: Sequence[BoundKey],
    now: float,
    *,
    fingerprints: Mapping[str, str] | None = None,
) -> tuple[Verdict, ...]:
    """Return the verdicts on `identity.publicKey`. `fingerprints` maps fingerprints from the domain's DNS to their
    source."""
    identity = document.get("identity")
    stated = identity.get("publicKey") if isinstance(identity, dict) else None
    if not isinstance(identity, dict) or not isinstance(stated, dict):
        return (make_verdict(KEY_CHECK, "not_checked", "the document has no key", now),)
    try:
        key = parse_full_key(stated.get("full"))
    except InvalidKey as error:
        return (
            make_verdict(KEY_CHECK, "failed", error.message, now),
            make_verdict(PROOF_CHECK, "not_checked", "no key", now),
        )
    by = _find_binding(key, keys, fingerprints or {})
    return (
        _check_key(stated.get("fingerprint"), key, by, bool(keys or fingerprints), now),
        _check_proof(stated.get("proof"), key, by, identity.get("domain"), now),
    )


def parse_full_key(full: Any) -> PublicKey | None:
    """Parse `publicKey.full` in its three forms (C-3): PEM, base64url of the SPKI, base64url of the 32 bytes."""
    if full is None:
        return None
    if not isinstance(full, str):
        raise InvalidKey("The key must be a string.", path=_PATH, hint="Write it as PEM.")
    key = parse_pem(full, _PATH) if "-----BEGIN" in full else _parse_bare(full)
    if key.kind != "ed25519":
        raise InvalidKey(
            f"ADP accepts Ed25519 keys only; this one is {key.kind}.", path=_PATH, hint="Use an Ed25519 key."
        )
    return key


def _parse_bare(full: str) -> PublicKey:
    try:
        data = decode_base64(full)
    except ValueError:
        raise InvalidKey("The key is neither PEM nor base64url.", path=_PATH, hint="Write it as PEM.") from None
    return parse_ed25519_raw(data, _PATH) if len(data) == 32 else parse_der(data, _PATH)


def _find_binding(key: PublicKey | None, keys: Sequence[BoundKey], fingerprints: Mapping[str, str]) -> str | None:
    if key is None:
        return None
    bound = find_bound_key(key, keys)
    return bound.by if bound is not None else fingerprints.get(key.fingerprint() or "")


def _check_key(stated: Any, key: PublicKey | None, by: str | None, others: bool, now: float) -> Verdict:
    if not isinstance(stated, str) or not FINGERPRINT.match(stated):
        reason = "the fingerprint is not `ed25519:` and 43 base64url characters"
        return make_verdict(KEY_CHECK, "unknown" if key is None else "failed", reason, now)
    if key is None:
        return make_verdict(KEY_CHECK, "unknown", "the document has no full key to hash", now, fingerprint=stated)
    evidence = {"key_id": key.key_id, "fingerprint": key.fingerprint(), "covers": "key"}
    if key.fingerprint() != stated:
        return make_verdict(KEY_CHECK, "failed", "the full key does not hash to its fingerprint", now, **evidence)
    if by is not None:
        return make_verdict(KEY_CHECK, "passed", "", now, **evidence, bound_by=by)
    if others:
        return make_verdict(KEY_CHECK, "failed", "another key is bound to this agent", now, **evidence)
    reason = "the key hashes to its fingerprint, but nothing binds it to this agent"
    return make_verdict(KEY_CHECK, "unknown", reason, now, **evidence)


def _check_proof(proof: Any, key: PublicKey | None, by: str | None, domain: Any, now: float) -> Verdict:
    if proof is None:
        return make_verdict(PROOF_CHECK, "not_checked", "the key has no proof", now)
    if key is None or not isinstance(domain, str):
        return make_verdict(PROOF_CHECK, "unknown", "the document has no full key or no domain", now)
    signature = _signature(proof)
    evidence = {"key_id": key.key_id, "algorithm": "ed25519", "covers": f"agent:{domain}"}
    if signature is None or not key.verify(signature, adp_payload(domain)):
        return make_verdict(PROOF_CHECK, "failed", "the proof is not a signature of this key", now, **evidence)
    if by is None:
        return make_verdict(PROOF_CHECK, "unknown", UNBOUND, now, **evidence)
    return make_verdict(PROOF_CHECK, "passed", "", now, **evidence, bound_by=by)


def _signature(proof: Any) -> bytes | None:
    if not isinstance(proof, str):
        return None
    kind, separator, text = proof.partition(":")
    if not separator or kind not in ("signature", "ed25519"):
        return None
    try:
        return decode_base64(text)
    except ValueError:
        return None
