"""JWS, JWK sets and tokens: what parses has one spelling, and nothing that was not signed verifies."""

from __future__ import annotations

from contextlib import suppress

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from support.signing import key_of
from waypost.errors import Unauthorized, WaypostError
from waypost.model.json import parse_json
from waypost.trust.encodings import encode_base64url
from waypost.trust.jose import (
    InvalidJws,
    jose_key,
    parse_compact,
    parse_detached,
    parse_json_signature,
    parse_jwks,
    verify_jws,
)
from waypost.trust.jwt import TokenVerifier, decode_claims

KEYS = (jose_key(key_of().public, kid="a"), jose_key(key_of("p-256").public))
SERVICE_KEYS = [Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32).public_key() for number in (1, 2)]
VERIFIER = TokenVerifier(lambda: SERVICE_KEYS, issuer="https://i.example", audience="waypost")


def fuzz(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    with pytest.raises(Unauthorized):
        VERIFIER.verify(text, 1.7e9)
    with suppress(InvalidJws):
        signed = parse_compact(text)
        parts = text.split(".")
        assert [encode_base64url(signed.payload), encode_base64url(signed.signature)] == parts[1:]
        _refute(signed)
        decode_claims(signed)
    with suppress(InvalidJws):
        _refute(parse_detached(text, b"payload"))
    with suppress(WaypostError):
        assert parse_jwks(data)
    with suppress(WaypostError, InvalidJws):
        _refute(parse_json_signature(parse_json(data), b"payload"))


def _refute(signed: object) -> None:
    with pytest.raises(InvalidJws):
        verify_jws(signed, KEYS)  # type: ignore[arg-type]
