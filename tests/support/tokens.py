"""A token issuer that can forge: tokens are assembled from parts, so that each can be wrong."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


def b64(data: bytes | str | dict[str, Any] | list[Any]) -> str:
    if isinstance(data, dict | list):
        data = json.dumps(data)
    raw = data.encode() if isinstance(data, str) else data
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@cache
def rsa_key(number: int = 0) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


class TokenIssuer:
    """Keys by algorithm; `EdDSA`, `RS256` and `ES256` unless others are given."""

    def __init__(
        self,
        now: float,
        issuer: str = "https://idp.example",
        audience: str = "waypost",
        *,
        keys: dict[str, Any] | None = None,
        kids: dict[str, str] | None = None,
    ) -> None:
        self.now = now
        self.issuer = issuer
        self.audience = audience
        self.keys = keys or {
            "EdDSA": Ed25519PrivateKey.generate(),
            "RS256": rsa_key(),
            "ES256": ec.generate_private_key(ec.SECP256R1()),
        }
        self.kids = kids or {algorithm: f"key-{algorithm}" for algorithm in self.keys}

    # --- Public keys -----------------------------------------------------------------------------

    def jwk(self, algorithm: str) -> dict[str, Any]:
        public = self.keys[algorithm].public_key()
        common = {"kid": self.kids[algorithm], "use": "sig", "alg": algorithm}
        if algorithm == "EdDSA":
            raw = public.public_bytes(Encoding.Raw, PublicFormat.Raw)
            return {"kty": "OKP", "crv": "Ed25519", "x": b64(raw), **common}
        numbers = public.public_numbers()
        if algorithm == "RS256":
            size = (numbers.n.bit_length() + 7) // 8
            return {"kty": "RSA", "n": b64(numbers.n.to_bytes(size, "big")), "e": "AQAB", **common}
        x, y = (b64(value.to_bytes(32, "big")) for value in (numbers.x, numbers.y))
        return {"kty": "EC", "crv": "P-256", "x": x, "y": y, **common}

    def jwks(self, *algorithms: str) -> dict[str, Any]:
        return {"keys": [self.jwk(name) for name in algorithms or self.keys]}

    def pem(self, algorithm: str) -> bytes:
        pem: bytes = self.keys[algorithm].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return pem

    # --- Tokens ----------------------------------------------------------------------------------

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Valid claims; None removes one."""
        claims: dict[str, Any] = {
            "iss": self.issuer,
            "aud": self.audience,
            "sub": "alice",
            "scope": "discover:read discover:write",
            "iat": int(self.now),
            "exp": int(self.now) + 600,
            "jti": "t-1",
        }
        return {name: value for name, value in (claims | changes).items() if value is not None}

    def header(self, algorithm: str, **changes: Any) -> dict[str, Any]:
        header = {"alg": algorithm, "kid": self.kids.get(algorithm), "typ": "JWT"} | changes
        return {name: value for name, value in header.items() if value is not None}

    def token(
        self,
        algorithm: str | None = None,
        *,
        header: dict[str, Any] | None = None,
        payload: str | None = None,
        **claims: Any,
    ) -> str:
        """A signed token; `payload` replaces the claims."""
        algorithm = algorithm or next(iter(self.keys))
        text = json.dumps(self.claims(**claims)) if payload is None else payload
        signed = f"{b64(self.header(algorithm, **(header or {})))}.{b64(text)}"
        return f"{signed}.{b64(self.sign(algorithm, signed.encode()))}"

    def sign(self, algorithm: str, data: bytes) -> bytes:
        key = self.keys[algorithm]
        if isinstance(key, Ed25519PrivateKey):
            return key.sign(data)
        if isinstance(key, rsa.RSAPrivateKey):
            return key.sign(data, padding.PKCS1v15(), SHA256())
        r, s = decode_dss_signature(key.sign(data, ec.ECDSA(SHA256())))
        return bytes(r.to_bytes(32, "big") + s.to_bytes(32, "big"))

    def sign_der(self, algorithm: str, data: bytes) -> bytes:
        return bytes(self.keys[algorithm].sign(data, ec.ECDSA(SHA256())))

    def shared(self, secret: bytes, *, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """Signed by HS256."""
        head = {"alg": "HS256", "typ": "JWT"} | (header or {})
        signed = f"{b64(head)}.{b64(self.claims(**claims))}"
        return f"{signed}.{b64(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"
