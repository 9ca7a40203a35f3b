"""Proof of the key in an AID record of the first version (`aid1`): the server at its address signs our challenge (RFC 9421).

What is signed are the challenge, the method, the address and the host that were asked, and a date. The names of those parts
are repeated as the server writes them, in its own order.
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

CHALLENGE_HEADER: Final = "AID-Challenge"

_COVERED: Final = ("@method", "@target-uri", "aid-challenge", "date", "host")

_ALPHABET: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

_KEY_CHARS: Final = 64

_MULTICODEC: Final = b"\xed\x01"  # some write which kind of key it is

_VALUE = r"(?:\"[^\"]{0,256}\"|[A-Za-z0-9._-]{1,256})"

_INPUT = re.compile(rf"([a-z*][a-z0-9_.*-]*)=(\(((?:\"[A-Za-z@-]+\" ?)+)\)((?:;[a-z]+={_VALUE})+))\Z")

_PARAMETER = re.compile(rf";([a-z]+)=({_VALUE})")

_SIGNATURE = re.compile(r"([a-z*][a-z0-9_.*-]*)=:([A-Za-z0-9+/]+={0,2}):\Z")


def parse_aid1_key(text: str) -> PublicKey:
    """The `k` of an aid1 record: an Ed25519 key in base58btc, marked by `z`."""
    data = _decode_base58(text[1:]) if text.startswith("z") and len(text) <= _KEY_CHARS else b""
    if len(data) == 34 and data.startswith(_MULTICODEC):
        data = data[2:]
    if len(data) != 32:
        raise InvalidKey("The key of the AID record cannot be read.", path="k")
    return parse_ed25519_raw(data)


def _decode_base58(text: str) -> bytes:
    number = 0
    for letter in text:
        digit = _ALPHABET.find(letter)
        if digit < 0:
            return b""
        number = number * 58 + digit
    zeros = len(text) - len(text.lstrip("1"))
    return bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8, "big")


class Aid1Challenge:
    """One request and what its answer must have signed."""

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
        """What is wrong with an answer; None when it proves the key. Names of headers are in lower case."""
        stated = _INPUT.match(headers.get("signature-input", ""))
        signed = _SIGNATURE.match(headers.get("signature", ""))
        if stated is None or signed is None or stated[1] != signed[1]:
            return "the answer is not signed in the way of AID"
        if status != 200:
            return f"the answer has status {status}"
        names = re.findall(r"\"([^\"]+)\"", stated[3])
        if tuple(sorted(name.lower() for name in names)) != _COVERED:
            return "the signature does not cover what it must"
        date = headers.get("date", self._date)
        fault = self._find_wrong_parameter(stated[4], date, now)
        if fault is not None:
            return fault
        base = self._base(names, date, stated[2])
        return None if self._key.verify(decode_base64(signed[2]), base) else "the signature does not hold"

    def _find_wrong_parameter(self, rest: str, date: str, now: float) -> str | None:
        pairs = [(name, value.strip('"')) for name, value in _PARAMETER.findall(rest)]
        given = dict(pairs)
        if len(given) != len(pairs):
            return "the signature gives something twice"
        for name, wanted in (("keyid", self._key_id), ("alg", "ed25519")):
            if given.get(name) != wanted:
                return f"`{name}` of the signature is not that of the record"
        created = given.get("created", "")
        if not re.fullmatch(r"[0-9]{1,12}", created) or abs(now - int(created)) > limits.AID_PROOF_SECONDS:
            return "the signature is not of this time"
        return None if _is_recent(date, now) else "the date that is signed is not of this time"

    def _base(self, names: list[str], date: str, params: str) -> bytes:
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


# ---- Proof of the key in an AID record (`aid2`): the server at its address signs an answer with it (RFC 9421), with a
# nonce of ours.
#
# What is signed is the method, the address and the authority that were asked, and the status of the answer; nothing of its body.

AID2_TAG: Final = "aid-pka-v2"

_AID2_LABEL: Final = "aid-pka"

_AID2_COMPONENTS: Final = '("@method";req "@target-uri";req "@authority";req "@status")'

_AID2_VALUES = r"(?:;[a-z]+=(?:\"[^\"]{0,256}\"|[0-9]{1,12}))+"

_AID2_INPUT = re.compile(rf"{_AID2_LABEL}=(?P<params>{re.escape(_AID2_COMPONENTS)}(?P<rest>{_AID2_VALUES}))\Z")

_AID2_PARAMETER = re.compile(r";([a-z]+)=(?:\"([^\"]*)\"|([0-9]+))")

_AID2_SIGNATURE = re.compile(rf"{_AID2_LABEL}=:([A-Za-z0-9+/]+={{0,2}}):\Z")


def parse_aid2_key(text: str) -> PublicKey:
    """The `k` of an aid2 record: the x of an Ed25519 JWK."""
    try:
        return parse_ed25519_raw(decode_base64(text))
    except ValueError:
        raise InvalidKey("The key of the AID record cannot be read.", path="k") from None


def accept_signature_header(key: PublicKey, nonce: str) -> str:
    """The header that asks for the proof."""
    asked = f'created;expires;keyid="{key.thumbprint()}";alg="ed25519";nonce="{nonce}";tag="{AID2_TAG}"'
    return f"{_AID2_LABEL}={_AID2_COMPONENTS};{asked}"


class Aid2Challenge:
    """One request and what its answer must have signed."""

    def __init__(self, key: PublicKey, nonce: str, url: str, authority: str) -> None:
        self._key = key
        self._nonce = nonce
        self._url = url
        self._authority = authority

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        return (("Accept-Signature", accept_signature_header(self._key, self._nonce)),)

    def find_error(self, status: int, headers: Mapping[str, str], now: float) -> str | None:
        """What is wrong with an answer; None when it proves the key. Names of headers are in lower case."""
        stated = _AID2_INPUT.match(headers.get("signature-input", ""))
        signed = _AID2_SIGNATURE.match(headers.get("signature", ""))
        if stated is None or signed is None:
            return "the answer is not signed in the way of AID"
        if 300 <= status < 400:
            return "the answer leads elsewhere"
        if "no-store" not in headers.get("cache-control", "").lower():
            return "the answer may have been kept (no Cache-Control: no-store)"
        fault = self._find_wrong_parameter(stated["rest"], now)
        if fault is not None:
            return fault
        base = self._base(status, stated["params"])
        return None if self._key.verify(decode_base64(signed[1]), base) else "the signature does not hold"

    def _find_wrong_parameter(self, rest: str, now: float) -> str | None:
        given = {name: text or number for name, text, number in _AID2_PARAMETER.findall(rest)}
        wanted = {"keyid": self._key.thumbprint(), "alg": "ed25519", "nonce": self._nonce, "tag": AID2_TAG}
        wrong = next((name for name, value in wanted.items() if given.get(name) != value), None)
        if wrong is not None:
            return f"`{wrong}` of the signature is not what was asked for"
        created, expires = given.get("created", ""), given.get("expires", "")
        if not created.isdigit() or not expires.isdigit():
            return "the signature has no times"
        if not 0 <= int(expires) - int(created) <= limits.AID_PROOF_SECONDS:
            return "the signature holds for too long"
        in_time = int(created) - limits.AID_PROOF_SKEW_SECONDS <= now <= int(expires) + limits.AID_PROOF_SKEW_SECONDS
        return None if in_time else "the signature is not of this time"

    def _base(self, status: int, params: str) -> bytes:
        lines = (
            '"@method";req: GET',
            f'"@target-uri";req: {self._url}',
            f'"@authority";req: {self._authority}',
            f'"@status": {status}',
            f'"@signature-params": {params}',
        )
        return "\n".join(lines).encode()
