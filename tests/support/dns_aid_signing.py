"""Zone keys, and their DNS-AID signatures of records and index entries."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from support.resolve_fixtures import Bench
from waypost.domains.ports import PeerCheck
from waypost.registry.ports import FetchPurpose, FetchResponse

ORG = "example.com"
JWKS = "/.well-known/dns-aid-jwks.json"
KEY, OTHER = (ec.derive_private_key(number, ec.SECP256R1()) for number in (7, 8))
Key = ec.EllipticCurvePrivateKey


def plain(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def jwk(key: Key, kid: str | None = "one") -> dict[str, Any]:
    numbers = key.public_key().public_numbers()
    named = {} if kid is None else {"kid": kid}
    point = {name: plain(value.to_bytes(32, "big")) for name, value in (("x", numbers.x), ("y", numbers.y))}
    return {"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", **point, **named}


def sign(payload: bytes, key: Key = KEY, *, kid: str | None = "one", alg: str = "ES256", detached: bool = False) -> str:
    header = {"alg": alg, "typ": "JWT"} | ({} if kid is None else {"kid": kid})
    signed = f"{plain(json.dumps(header).encode())}.{plain(payload)}"
    pair = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(SHA256())))
    signature = plain(b"".join(number.to_bytes(32, "big") for number in pair))
    return f"{signed.split('.')[0]}..{signature}" if detached else f"{signed}.{signature}"


def claims(bench: Bench, **changed: Any) -> bytes:
    now = int(time.time())
    told = {"fqdn": bench.domain, "target": bench.domain, "port": bench.web.port, "alpn": "a2a"}
    return json.dumps({**told, "iat": now - 10, "exp": now + 86_400, **changed}, sort_keys=True).encode()


class UsualPort:
    """The fetcher of the bench, with the default port mapped to the port of the bench."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.asked: list[str] = []

    async def fetch(self, url: str, purpose: FetchPurpose, *, check: PeerCheck | None = None) -> FetchResponse:
        self.asked.append(url)
        scheme, _, host, *path = url.split("/")
        place = host if ":" in host else f"{host}:{self._bench.web.port}"
        return await self._bench.fetcher.fetch("/".join((scheme, "", place, *path)), purpose, check=check)

    async def send(self, url: str, purpose: FetchPurpose, **how: Any) -> FetchResponse:
        return await self._bench.fetcher.send(url, purpose, **how)
