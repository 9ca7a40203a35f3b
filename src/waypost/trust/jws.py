"""Our own tokens as compact JWS: objects that one Ed25519 key of ours signs and verifies.

What is refused is decided in `jose.py`; here a payload is a JSON object and the key is the one of this service.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from waypost import limits
from waypost.errors import WaypostError
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.trust import ed25519
from waypost.trust.encodings import decode_base64url, encode_base64url
from waypost.trust.jose import JoseKey, NotSigned, jose_key, verify_compact
from waypost.trust.keys import of_native

ALGORITHM = "EdDSA"

__all__ = ["ALGORITHM", "NotSigned", "own_key", "peek", "sign", "verify"]


def sign(key: Ed25519PrivateKey, payload: JsonObject, *, key_id: str) -> str:
    header = {"alg": ALGORITHM, "kid": key_id, "typ": "JWT"}
    signed = f"{encode_base64url(dump_json(header))}.{encode_base64url(dump_json(payload))}"
    return f"{signed}.{encode_base64url(ed25519.sign(key, signed.encode()))}"


def own_key(key: Ed25519PublicKey) -> JoseKey:
    return jose_key(of_native(key), algorithm=ALGORITHM)


def verify(key: JoseKey, text: str) -> JsonObject:
    """The payload of a text that `key` signed, or NotSigned."""
    verified = verify_compact(text, (key,))
    try:
        return parse_object(verified.payload, max_bytes=limits.JWS_BYTES)
    except WaypostError:
        raise NotSigned("it cannot be read") from None


def peek(text: str) -> JsonObject:
    """The payload without checking anything, to show it to the one who holds it."""
    return parse_object(decode_base64url(text.split(".")[1]))
