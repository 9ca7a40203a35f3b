"""NATS keys (nkeys): an Ed25519 seed or public key in base32, with a prefix for its role and a checksum."""

from __future__ import annotations

import base64
import binascii
import re

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from waypost.errors import InvalidKey
from waypost.trust.keys import ed25519

_SEED, _USER = 18 << 3, 20 << 3  # the letters S and U
_BLOCK = re.compile(r"-{3,}BEGIN ([A-Z ]+)-{3,}\s+(\S+)\s+-{3,}END \1-{3,}")


class Nkey(msgspec.Struct, frozen=True):
    """A user key, which signs the nonce of a server."""

    public: str
    private: Ed25519PrivateKey

    def sign(self, nonce: str) -> bytes:
        """Return the signature in base64, as NATS expects it."""
        return base64.b64encode(ed25519.sign(self.private, nonce.encode()))


def parse_nkey_seed(text: str) -> Nkey:
    """Parse the seed of a user (`SU…`)."""
    raw = _decode_nkey(text.strip())
    kind = (raw[0] & 7) << 5 | (raw[1] & 0xF8) >> 3 if len(raw) == 34 else 0
    if raw[:1] == b"" or raw[0] & 0xF8 != _SEED or kind != _USER:
        raise _invalid_nkey("it is not the seed of a user (SU…)")
    private = Ed25519PrivateKey.from_private_bytes(raw[2:])
    return Nkey(encode_public_nkey(private.public_key().public_bytes_raw()), private)


def encode_public_nkey(raw: bytes) -> str:
    data = bytes((_USER,)) + raw
    return base64.b32encode(data + _checksum(data)).decode().rstrip("=")


def parse_nats_credentials(text: str) -> tuple[str, Nkey]:
    """Parse a credentials file: the user's JWT and the seed of its key."""
    blocks = dict(_BLOCK.findall(text))
    token, seed = blocks.get("NATS USER JWT"), blocks.get("USER NKEY SEED")
    if token is None or seed is None:
        raise _invalid_nkey("it has no NATS USER JWT or no USER NKEY SEED")
    return token, parse_nkey_seed(seed)


def _decode_nkey(text: str) -> bytes:
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        raise _invalid_nkey("it is not base32") from None
    if len(raw) < 4 or _checksum(raw[:-2]) != raw[-2:]:
        raise _invalid_nkey("its checksum is wrong")
    return raw[:-2]


def _checksum(data: bytes) -> bytes:
    """CRC-16/XMODEM, little-endian."""
    return binascii.crc_hqx(data, 0).to_bytes(2, "little")


def _invalid_nkey(why: str) -> InvalidKey:
    return InvalidKey(
        f"The key for the bus cannot be used: {why}.", path="bus_nkey", hint="Make it with `nsc` or `nk`."
    )
