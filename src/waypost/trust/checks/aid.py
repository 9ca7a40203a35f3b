"""Proof of the key in an AID record: the server at its address signs a response with it (RFC 9421).

aid1: the signature covers our challenge, the method, the URL, the host and a date. Component names are repeated in the
server's own order and spelling. aid2: the signature covers the method, the URL, the authority and the status, and has
our nonce as a parameter. Neither covers the body.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import formatdate, parsedate_to_datetime
from typing import Final

from waypost import limits
from waypost.errors import InvalidKey
from waypost.trust.encodings import decode_base64
from waypost.trust.keys.public_key import PublicKey, parse_ed25519_raw

_NOT_SIGNED: Final = "the response is not signed as AID requires"
_BAD_SIGNATURE: Final = "the signature is invalid"

# --- aid1 -----------------------------------------------------------------------------------------

CHALLENGE_HEADER: Final = "AID-Challenge"
_COMPONENTS: Final = ("@method", "@target-uri", "aid-challenge", "date", "host")
_BASE58_ALPHABET: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_KEY_CHARS: Final = 64
_MULTICODEC: Final = b"\xed\x01"  # some publishers prefix the type of key
_VALUE: Final = r"(?:\"[^\"]{0,256}\"|[A-Za-z0-9._-]{1,256})"
_INPUT: Final = re.compile(rf"([a-z*][a-z0-9_.*-]*)=(\(((?:\"[A-Za-z@-]+\" ?)+)\)((?:;[a-z]+={_VALUE})+))\Z")
_PARAMETER: Final = re.compile(rf";([a-z]+)=({_VALUE})")
_SIGNATURE: Final = re.compile(r"([a-z*][a-z0-9_.*-]*)=:([A-Za-z0-9+/]+={0,2}):\Z")


def parse_aid1_key(text: str) -> PublicKey:
    """Parse the `k` of an aid1 record: an Ed25519 key in base58btc with the prefix `z`."""
    data = _decode_base58(text[1:]) if text.startswith("z") and len(text) <= _KEY_CHARS else b""
    if len(data) == 34 and data.startswith(_MULTICODEC):
        data = data[2:]
    if len(data) != 32:
        raise InvalidKey("The key of the AID record cannot be parsed.", path="k")
    return parse_ed25519_raw(data)


def _decode_base58(text: str) -> bytes:
    number = 0
    for letter in text:
        digit = _BASE58_ALPHABET.find(letter)
        if digit < 0:
            return b""
        number = number * 58 + digit
    zeros = len(text) - len(text.lstrip("1"))
    return bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8, "big")


class Aid1Challenge:
    """One request, and the verification of its response."""

    def __init__(self, key: PublicKey, key_id: str, nonce: str, url: str, authority: str, now: float) -> None:
        self._key = key
        self._key_id = key_id
        self._nonce = nonce
        self._url = url
        self._authority = authority
        self._date = formatdate(now, usegmt=True)

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        return ((CHALLENGE_HEADER, self._nonce), ("Date", self._date))

    def find_error(self, status: int, headers: Mapping[str, str], now: float) -> str | None:
        """Return why the response does not prove the key, or None. Header names are in lower case."""
        stated = _INPUT.match(headers.get("signature-input", ""))
        signed = _SIGNATURE.match(headers.get("signature", ""))
        if stated is None or signed is None or stated[1] != signed[1]:
            return _NOT_SIGNED
        if status != 200:
            return f"the response has status {status}"
        names = re.findall(r"\"([^\"]+)\"", stated[3])
        if tuple(sorted(name.lower() for name in names)) != _COMPONENTS:
            return "the signature does not cover the required components"
        date = headers.get("date", self._date)
        error = self._find_parameter_error(stated[4], date, now)
        if error is not None:
            return error
        base = self._signature_base(names, date, stated[2])
        return None if self._key.verify(decode_base64(signed[2]), base) else _BAD_SIGNATURE

    def _find_parameter_error(self, rest: str, date: str, now: float) -> str | None:
        pairs = [(name, value.strip('"')) for name, value in _PARAMETER.findall(rest)]
        given = dict(pairs)
        if len(given) != len(pairs):
            return "the signature has a parameter twice"
        for name, expected in (("keyid", self._key_id), ("alg", "ed25519")):
            if given.get(name) != expected:
                return f"`{name}` of the signature differs from the record"
        created = given.get("created", "")
        if not re.fullmatch(r"[0-9]{1,12}", created) or abs(now - int(created)) > limits.AID_PROOF_SECONDS:
            return "the signature is too old or from the future"
        return None if _is_recent(date, now) else "the signed date is too old or in the future"

    def _signature_base(self, names: list[str], date: str, params: str) -> bytes:
        values = {
            "aid-challenge": self._nonce,
            "@method": "GET",
            "@target-uri": self._url,
            "host": self._authority,
            "date": date,
        }
        lines = [f'"{name}": {values[name.lower()]}' for name in names]
        return "\n".join([*lines, f'"@signature-params": {params}']).encode()


def _is_recent(date: str, now: float) -> bool:
    try:
        return abs(parsedate_to_datetime(date).timestamp() - now) <= limits.AID_PROOF_SECONDS
    except (ValueError, TypeError, OverflowError):
        return False


# --- aid2 -----------------------------------------------------------------------------------------

AID2_TAG: Final = "aid-pka-v2"
_AID2_LABEL: Final = "aid-pka"
_AID2_COMPONENTS: Final = '("@method";req "@target-uri";req "@authority";req "@status")'
_AID2_VALUES: Final = r"(?:;[a-z]+=(?:\"[^\"]{0,256}\"|[0-9]{1,12}))+"
_AID2_INPUT: Final = re.compile(rf"{_AID2_LABEL}=(?P<params>{re.escape(_AID2_COMPONENTS)}(?P<rest>{_AID2_VALUES}))\Z")
_AID2_PARAMETER: Final = re.compile(r";([a-z]+)=(?:\"([^\"]*)\"|([0-9]+))")
_AID2_SIGNATURE: Final = re.compile(rf"{_AID2_LABEL}=:([A-Za-z0-9+/]+={{0,2}}):\Z")


def parse_aid2_key(text: str) -> PublicKey:
    """Parse the `k` of an aid2 record: the x of an Ed25519 JWK."""
    try:
        return parse_ed25519_raw(decode_base64(text))
    except ValueError:
        raise InvalidKey("The key of the AID record cannot be parsed.", path="k") from None


class Aid2Challenge:
    """One request, and the verification of its response."""

    def __init__(self, key: PublicKey, nonce: str, url: str, authority: str) -> None:
        self._key = key
        self._nonce = nonce
        self._url = url
        self._authority = authority

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        params = (
            f'created;expires;keyid="{self._key.thumbprint()}";alg="ed25519";nonce="{self._nonce}";tag="{AID2_TAG}"'
        )
        return (("Accept-Signature", f"{_AID2_LABEL}={_AID2_COMPONENTS};{params}"),)

    def find_error(self, status: int, headers: Mapping[str, str], now: float) -> str | None:
        """Return why the response does not prove the key, or None. Header names are in lower case."""
        stated = _AID2_INPUT.match(headers.get("signature-input", ""))
        signed = _AID2_SIGNATURE.match(headers.get("signature", ""))
        if stated is None or signed is None:
            return _NOT_SIGNED
        if 300 <= status < 400:
            return "the response is a redirect"
        if "no-store" not in headers.get("cache-control", "").lower():
            return "the response may come from a cache (no Cache-Control: no-store)"
        error = self._find_parameter_error(stated["rest"], now)
        if error is not None:
            return error
        base = self._signature_base(status, stated["params"])
        return None if self._key.verify(decode_base64(signed[1]), base) else _BAD_SIGNATURE

    def _find_parameter_error(self, rest: str, now: float) -> str | None:
        given = {name: text or number for name, text, number in _AID2_PARAMETER.findall(rest)}
        expected = {"keyid": self._key.thumbprint(), "alg": "ed25519", "nonce": self._nonce, "tag": AID2_TAG}
        wrong = next((name for name, value in expected.items() if given.get(name) != value), None)
        if wrong is not None:
            return f"`{wrong}` of the signature differs from the request"
        created, expires = given.get("created", ""), given.get("expires", "")
        if not created.isdigit() or not expires.isdigit():
            return "the signature lacks `created` or `expires`"
        if not 0 <= int(expires) - int(created) <= limits.AID_PROOF_SECONDS:
            return "the signature is valid for too long"
        skew = limits.AID_PROOF_SKEW_SECONDS
        in_time = int(created) - skew <= now <= int(expires) + skew
        return None if in_time else "the signature is expired or from the future"

    def _signature_base(self, status: int, params: str) -> bytes:
        lines = (
            '"@method";req: GET',
            f'"@target-uri";req: {self._url}',
            f'"@authority";req: {self._authority}',
            f'"@status": {status}',
            f'"@signature-params": {params}',
        )
        return "\n".join(lines).encode()
