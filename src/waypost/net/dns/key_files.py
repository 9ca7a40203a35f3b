"""Keys of the nameserver, in files for their owner alone: one that signs each zone, and one that updates all of them."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import dns.dnssec
import dns.name
import dns.tsig
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from dns.dnssectypes import Algorithm
from dns.rdtypes.ANY.DNSKEY import DNSKEY
from dns.rdtypes.dnskeybase import Flag

from waypost.errors import ConfigurationError
from waypost.private_files import write_atomic

SigningKey: TypeAlias = Ed25519PrivateKey | EllipticCurvePrivateKey
SIGNING_ALGORITHMS = {"ed25519": Algorithm.ED25519, "ecdsa": Algorithm.ECDSAP256SHA256}
UPDATE_KEY = "waypost-update."
_SECRET_BYTES = 32
_TSIG = re.compile(
    r'\s*key\s+"?(?P<name>[A-Za-z0-9._-]+)"?\s*\{\s*'
    r'algorithm\s+"?(?P<algorithm>[A-Za-z0-9.-]+)"?\s*;\s*secret\s+"(?P<secret>[A-Za-z0-9+/=]+)"\s*;\s*\}\s*;?\s*\Z'
)
_ONE_LINE = re.compile(r"(?:(?P<algorithm>[a-z0-9-]+):)?(?P<name>[A-Za-z0-9._-]+):(?P<secret>[A-Za-z0-9+/=]+)\s*\Z")
_DEFAULT_ALGORITHM = "hmac-sha256"
_TSIG_ALGORITHMS = ("hmac-sha256", "hmac-sha384", "hmac-sha512", "hmac-sha224", "hmac-sha1")


def load_signing_key(path: Path, kind: str) -> SigningKey:
    """The key in a file, made when there is none."""
    native = load_pem_private_key(read_or_create(path, lambda: _new_key(kind)), None)
    if not isinstance(native, SigningKey):
        raise ConfigurationError(f"{path.name} is not a key for signing zones.", path="data", hint="Remove the file.")
    return native


def dnskey_of(key: SigningKey) -> DNSKEY:
    """One key that signs all: the zone's, and its own."""
    algorithm = SIGNING_ALGORITHMS["ed25519" if isinstance(key, Ed25519PrivateKey) else "ecdsa"]
    return dns.dnssec.make_dnskey(key.public_key(), algorithm, flags=Flag.ZONE | Flag.SEP)


def load_update_key(path: Path) -> dns.tsig.Key:
    """The TSIG key in a file, made when there is none."""
    return parse_tsig(read_or_create(path, _new_tsig).decode("utf-8", "replace"), str(path))


def parse_tsig(text: str, path: str = "key") -> dns.tsig.Key:
    """As BIND's tools write it (`key "name" { algorithm …; secret "…"; };`), or in one line `[algorithm:]name:secret`."""
    found = _TSIG.match(text) or _ONE_LINE.match(text.strip())
    if found is None:
        raise ConfigurationError(
            f"{path} holds no TSIG key.", path="key", hint="Write what `tsig-keygen` prints, or name:secret."
        )
    algorithm = (found["algorithm"] or _DEFAULT_ALGORITHM).lower().rstrip(".")
    if algorithm not in _TSIG_ALGORITHMS:
        raise ConfigurationError(
            f"{algorithm[:32]!r} is not an algorithm of TSIG here.",
            path="key",
            hint=f"Use {', '.join(_TSIG_ALGORITHMS)}.",
        )
    try:
        base64.b64decode(found["secret"], validate=True)
    except ValueError:
        raise ConfigurationError(f"The secret in {path} is not base64.", path="key") from None
    return dns.tsig.Key(dns.name.from_text(found["name"]), found["secret"], dns.name.from_text(algorithm))


def _new_key(kind: str) -> bytes:
    key: SigningKey = Ed25519PrivateKey.generate() if kind == "ed25519" else generate_private_key(SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _new_tsig() -> bytes:
    secret = base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()
    name = UPDATE_KEY.rstrip(".")
    return f'key "{name}" {{\n    algorithm {_DEFAULT_ALGORITHM};\n    secret "{secret}";\n}};\n'.encode()


def read_or_create(path: Path, make: Callable[[], bytes]) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        write_atomic(path, make())
        return path.read_bytes()
    except OSError as error:
        raise unusable_file(path, error) from None


def unusable_file(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"{path} cannot be used: {error.strerror}.", path="data", hint="Name a folder of your own with --data."
    )
