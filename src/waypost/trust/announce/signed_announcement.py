"""An announcement as far as its signatures go: the key it brings along, the signatures, and the bytes that they cover.

It says whether a given key signed; whose key that is, and what follows from it, is decided elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm

from waypost import limits
from waypost.errors import InvalidDocument, InvalidKey
from waypost.lazy import x509
from waypost.model.json import JsonObject
from waypost.trust.encodings import decode_base64
from waypost.trust.keys.public_key import PublicKey, from_native, parse_base64_der, parse_der, read_pem, require_point
from waypost.trust.signing_input import JCS, LEGACY, canonicalize, canonicalize_legacy

_SIGNATURE_CHARS = 2 * limits.KIB  # RSA of 8192 bits has 1368


@dataclass(frozen=True, slots=True)
class SignatureProof:
    """How a key signed."""

    algorithm: str
    canon: str


@dataclass(frozen=True, slots=True)
class SignedAnnouncement:
    """The signed part of an announcement. `legacy` lets the older canonical form count, after RFC 8785 did not."""

    agent: JsonObject
    covered: bytes
    key: PublicKey | None
    signature: bytes | None
    previous_signature: bytes | None
    legacy: bool = False

    def prove(self, key: PublicKey, signature: bytes) -> SignatureProof | None:
        """How `key` made `signature` over this agent; None when it did not."""
        algorithm = key.find_algorithm(signature, self.covered)
        if algorithm is not None:
            return SignatureProof(algorithm, JCS)
        if not self.legacy:
            return None
        older = canonicalize_legacy(self.agent)
        algorithm = key.find_algorithm(signature, older) if older != self.covered else None
        return SignatureProof(algorithm, LEGACY) if algorithm is not None else None

    def holds(self, key: PublicKey, signature: bytes) -> str | None:
        """The canonical form by which the signature holds, or None."""
        proof = self.prove(key, signature)
        return proof.canon if proof is not None else None


def parse_signed_announcement(message: JsonObject, *, legacy: bool = False) -> SignedAnnouncement:
    """The signed part of a message `{"agent": …, "signature"?: …}`. Text that is no key or no signature is refused."""
    agent = message.get("agent")
    if not isinstance(agent, dict):
        raise InvalidDocument("The announcement has no agent.", path="$.agent", hint="Add it as an object.")
    told = agent.get("public_key")
    return SignedAnnouncement(
        agent=agent,
        covered=canonicalize(agent),
        key=None if told is None else _parse_key(told, "$.agent.public_key"),
        signature=_parse_signature(message, "signature"),
        previous_signature=_parse_signature(message, "previous_signature"),
        legacy=legacy,
    )


def parse_announced_key(text: Any, path: str = "$.agent.public_key") -> PublicKey:
    """PEM of a public key or of a certificate, or the bare base64 of a key (announce.md §1)."""
    return require_point(_parse_key(text, path), path)


def _parse_key(text: Any, path: str) -> PublicKey:
    if not isinstance(text, str):
        raise InvalidKey("A public key is a text.", path=path, hint="Send it as PEM.")
    if "-----BEGIN" not in text:
        return parse_base64_der(text, path)
    label, der = read_pem(text, path)
    if label == "PUBLIC KEY":
        return parse_der(der, path)
    if label == "CERTIFICATE":
        return replace(from_native(_load_certificate(der, path).public_key(), path), certificate=der)
    raise InvalidKey(f"A PEM block {label} is no public key.", path=path, hint="Send PUBLIC KEY or CERTIFICATE.")


def certificate_validity(der: bytes) -> tuple[float, float]:
    """From when to when a certificate is good."""
    certificate = _load_certificate(der, "$.agent.public_key")
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
            raise ValueError("not a text of a signature's length")
        return decode_base64(text)
    except ValueError:
        raise InvalidDocument(
            f"{name!r} is not a signature in base64.",
            path=f"$.{name}",
            hint="Write the bytes of the signature in standard base64 with padding.",
        ) from None
