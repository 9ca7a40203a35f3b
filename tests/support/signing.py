"""Keys and signed documents for tests. Keys are generated once per process, because RSA is slow."""

from __future__ import annotations

import hashlib
from functools import cache

from cryptography.hazmat.primitives.asymmetric import ec, rsa

from waypost.model.json import JsonObject, dump_json
from waypost.trust.document_signatures import a2a_payload, ard_payload
from waypost.trust.encodings import encode_base64url
from waypost.trust.keys.private_key import SEED_BYTES, PrivateKey, from_native_private, new_private_key

KINDS = ("ed25519", "p-256", "p-384", "p-521", "rsa")
NOW = 1_780_000_000.0


@cache
def key_of(kind: str = "ed25519", number: int = 0) -> PrivateKey:
    """A key per number, cached in the process."""
    if kind in SEED_BYTES:
        return new_private_key(kind, hashlib.shake_256(f"{kind} {number}".encode()).digest(SEED_BYTES[kind]))
    if kind == "rsa":
        return from_native_private(rsa.generate_private_key(65_537, 2048))
    curve = {"p-384": ec.SECP384R1(), "p-521": ec.SECP521R1()}[kind]
    return from_native_private(ec.generate_private_key(curve))


def seed_key() -> PrivateKey:
    """The key of the vectors in the specifications: the seed is the bytes 00 to 1f."""
    return new_private_key("ed25519", bytes(range(32)))


def agent(**members: object) -> JsonObject:
    return {
        "agent_id": "3cde1b52-1fc2-4f7b-8d8c-5e3e6f5c9c1d",
        "agent_name": "data-processor",
        "capabilities": {"metrics": "2.0"},
        "transport": {"type": "tcp", "endpoint": "10.0.0.12:9000"},
        "metadata": {"__os": "linux", "load": 1.0, "note": "é"},
        **members,
    }


def card(**members: object) -> JsonObject:
    return {
        "name": "Invoices",
        "description": "Reads invoices.",
        "supportedInterfaces": [
            {"url": "https://a.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        ],
        "version": "1.0.0",
        "capabilities": {"streaming": False},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "read", "name": "Read", "description": "Reads one.", "tags": ["invoice"]}],
        **members,
    }


def sign_compact(key: PrivateKey, payload: bytes, *, kid: str | None = None, typ: str | None = None) -> str:
    header = {"alg": key.jose_algorithm, "kid": kid or key.public.key_id, **({"typ": typ} if typ else {})}
    signing_input = f"{encode_base64url(dump_json(header))}.{encode_base64url(payload)}"
    return f"{signing_input}.{encode_base64url(key.sign_jose(signing_input.encode()))}"


def sign_card(card: JsonObject, key: PrivateKey, *, kid: str | None = None) -> JsonObject:
    """Add a signature to an A2A card."""
    protected, signature = _sign_jws(key, a2a_payload(card), kid, typ="JOSE")
    return {**card, "signatures": [*card.get("signatures", ()), {"protected": protected, "signature": signature}]}


def sign_manifest(manifest: JsonObject, key: PrivateKey, *, kid: str | None = None) -> JsonObject:
    """Add the `signature`, a detached JWS, to an ARD trust manifest."""
    protected, signature = _sign_jws(key, ard_payload(manifest), kid)
    return {**manifest, "signature": f"{protected}..{signature}"}


def _sign_jws(key: PrivateKey, payload: bytes, kid: str | None, **members: str) -> tuple[str, str]:
    protected = encode_base64url(dump_json({"alg": key.jose_algorithm, "kid": kid or key.public.key_id, **members}))
    return protected, encode_base64url(key.sign_jose(f"{protected}.{encode_base64url(payload)}".encode()))
