"""Signed announcements: the embedded key, the signatures, the bytes that they cover, and signing.

A `SignedAnnouncement` verifies signatures of a given key. Whose key it is, and what follows, is decided elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from waypost import limits
from waypost.errors import InvalidDocument, InvalidKey
from waypost.model.json import JsonObject
from waypost.model.times import to_rfc3339
from waypost.trust.document_signatures import JCS, LEGACY, canonicalize, canonicalize_legacy
from waypost.trust.encodings import decode_base64, encode_base64
from waypost.trust.keys.private_key import PrivateKey
from waypost.trust.keys.public_key import PublicKey, from_native, parse_base64_der, parse_der, read_pem, require_point

_KEY_PATH: Final = "$.agent.public_key"
_SIGNATURE_CHARS: Final = 2 * limits.KIB  # RSA of 8192 bits has 1368


@dataclass(frozen=True, slots=True)
class SignatureProof:
    """The algorithm and canonical form by which a signature is valid."""

    algorithm: str
    canon: str


@dataclass(frozen=True, slots=True)
class SignedAnnouncement:
    """The signed part of an announcement. `legacy` also accepts the older canonical form, tried after RFC 8785."""

    agent: JsonObject
    signing_input: bytes
    key: PublicKey | None
    signature: bytes | None
    previous_signature: bytes | None
    legacy: bool = False

    def prove(self, key: PublicKey, signature: bytes) -> SignatureProof | None:
        """Return how `key` made `signature` over this agent; None if it did not."""
        algorithm = key.find_algorithm(signature, self.signing_input)
        if algorithm is not None:
            return SignatureProof(algorithm, JCS)
        if not self.legacy:
            return None
        older = canonicalize_legacy(self.agent)
        algorithm = key.find_algorithm(signature, older) if older != self.signing_input else None
        return SignatureProof(algorithm, LEGACY) if algorithm is not None else None

    def find_canonical_form(self, key: PublicKey, signature: bytes) -> str | None:
        """Return the canonical form by which the signature is valid, or None."""
        proof = self.prove(key, signature)
        return proof.canon if proof is not None else None


def parse_signed_announcement(message: JsonObject, *, legacy: bool = False) -> SignedAnnouncement:
    """Parse a message `{"agent": …, "signature"?: …}`. Malformed keys and signatures are rejected."""
    agent = message.get("agent")
    if not isinstance(agent, dict):
        raise InvalidDocument("The announcement has no agent.", path="$.agent", hint="Add it as an object.")
    public_key = agent.get("public_key")
    return SignedAnnouncement(
        agent=agent,
        signing_input=canonicalize(agent),
        key=None if public_key is None else _parse_key(public_key, _KEY_PATH),
        signature=_parse_signature(message, "signature"),
        previous_signature=_parse_signature(message, "previous_signature"),
        legacy=legacy,
    )


def parse_announced_key(text: Any, path: str = _KEY_PATH) -> PublicKey:
    """Parse PEM of a public key or certificate, or the bare base64 of a key (announce.md §1)."""
    return require_point(_parse_key(text, path), path)


def _parse_key(text: Any, path: str) -> PublicKey:
    if not isinstance(text, str):
        raise InvalidKey("A public key must be a string.", path=path, hint="Send it as PEM.")
    if "-----BEGIN" not in text:
        return parse_base64_der(text, path)
    label, der = read_pem(text, path)
    if label == "PUBLIC KEY":
        return parse_der(der, path)
    if label == "CERTIFICATE":
        return replace(from_native(_load_certificate(der, path).public_key(), path), certificate=der)
    raise InvalidKey(f"A PEM block {label} is not a public key.", path=path, hint="Send PUBLIC KEY or CERTIFICATE.")


def certificate_validity(der: bytes) -> tuple[float, float]:
    """Return the validity period of a certificate as Unix times."""
    certificate = _load_certificate(der, _KEY_PATH)
    return certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()


def _load_certificate(der: bytes, path: str) -> x509.Certificate:
    try:
        certificate = x509.load_der_x509_certificate(der)
        certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise InvalidKey("The certificate cannot be read.", path=path, hint="Send one X.509 certificate.") from None
    return certificate


def _parse_signature(message: JsonObject, name: str) -> bytes | None:
    text = message.get(name)
    if text is None:
        return None
    try:
        if not isinstance(text, str) or len(text) > _SIGNATURE_CHARS:
            raise ValueError("not a string of a signature's length")
        return decode_base64(text)
    except ValueError:
        raise InvalidDocument(
            f"{name!r} is not a signature in base64.",
            path=f"$.{name}",
            hint="Encode the signature in standard base64 with padding.",
        ) from None


# --- Signing --------------------------------------------------------------------------------------


def sign_announcement(
    agent: JsonObject,
    key: PrivateKey,
    previous: PrivateKey | None = None,
    *,
    now: float | None = None,
    older_readers: bool = False,
) -> JsonObject:
    """Sign an announcement of `agent` with `key` and, during a rotation, with the `previous` key (P-13).

    `now` adds the sequence and the time of signing, which guard against replay, where they are missing (P-16).
    """
    signed = _with_public_key(agent if now is None else _with_timestamps(agent, now), key)
    signing_input = canonicalize(signed)
    sign = key.sign_for_older_readers if older_readers else key.sign
    message: JsonObject = {"protocol_version": "v1.0", "agent": signed, "signature": encode_base64(sign(signing_input))}
    if previous is not None:
        message["previous_signature"] = encode_base64(previous.sign(signing_input))
    return message


def _with_public_key(agent: JsonObject, key: PrivateKey) -> JsonObject:
    public_key = agent.get("public_key")
    if public_key is None:
        return {**agent, "public_key": key.public.pem()}
    if parse_announced_key(public_key).key_id != key.public.key_id:
        raise InvalidKey(
            "The agent's public_key is not the key that it is signed with.",
            path=_KEY_PATH,
            hint="Leave it out, or sign with its private key.",
        )
    return agent


def _with_timestamps(agent: JsonObject, now: float) -> JsonObject:
    stamp = {"__seq": int(now * 1000), "__iat": to_rfc3339(now)}
    return {**agent, "metadata": stamp | (agent.get("metadata") or {})}
