"""The TXT record of ADP at `_agent.{domain}`: `v=ADP1.1; pk=…; wk=…` (ADP-15), read and written.

Others keep their records at the same name, and the order of records is not kept, so a value is joined from the strings
of one record, and two that speak for ADP are no answer (C-6, D11). `pk` is checked strictly: a fingerprint is there to
be trusted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument, InvalidParameter
from waypost.protocols.dns_rdata import read_text

VERSIONS: Final = ("ADP1", "ADP1.0", "ADP1.1")
FINGERPRINT = re.compile(r"ed25519:[A-Za-z0-9_-]{43}\Z")
_ADP = re.compile(r"\s*v\s*=\s*ADP", re.IGNORECASE)
_VERSIONED = re.compile(r"(?:^|;)\s*v\s*=", re.IGNORECASE)
_BRIM: Final = 255
_UNSAFE = re.compile(r'[";\\\x00-\x1f\x7f]')


class AdpTxt(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    fingerprint: str
    metadata_url: str
    alpn: str = ""
    port: int = 443
    protocol: str = ""  # bap


def select_adp_txt(records: Iterable[bytes]) -> tuple[AdpTxt | None, list[str]]:
    """The one record of ADP among those of a name, and what was passed over. Raises InvalidDocument when it is
    ambiguous, or broken: a key that cannot be read must not look like a key that is not there."""
    texts, passed = _texts(records)
    speaking = [text for text in texts if _ADP.match(text)]
    if not speaking:
        return None, passed
    if len(speaking) > 1:
        raise _invalid("ambiguous", f"{len(speaking)} records begin with v=ADP, and only one may")
    rest = [text for text in texts if text is not speaking[0]]
    if rest and not any(_VERSIONED.search(text) for text in rest):
        return _joined(speaking[0], rest), passed
    return parse_adp_txt(speaking[0]), passed


def _texts(records: Iterable[bytes]) -> tuple[list[str], list[str]]:
    texts, passed = [], []
    for data in list(records)[: limits.AGENT_TXT_RECORDS]:
        try:
            texts.append(read_text(data))
        except InvalidDocument as error:
            passed.append(error.message)
    return texts, passed


def _joined(first: str, rest: list[str]) -> AdpTxt:
    """ADP-16 without its danger (P-4): one further record can only come after; the order of more is not known. A record
    that was cut is full to the brim, or cannot be read alone."""
    if len(first.encode()) < _BRIM:
        with suppress(InvalidDocument):
            return parse_adp_txt(first)
    if len(rest) > 1:
        raise _invalid("ambiguous", "it is spread over several records, whose order is not known")
    return parse_adp_txt(first + rest[0])


def parse_adp_txt(text: str) -> AdpTxt:
    pairs = _pairs(text)
    if pairs.get("v") not in VERSIONS:
        raise _invalid("version", f"v is {pairs.get('v', '')[:16]!r}, not one of {', '.join(VERSIONS)}")
    fingerprint = pairs.get("pk", "")
    if not FINGERPRINT.match(fingerprint):
        raise _invalid("malformed", "pk is missing, or not ed25519: and 43 characters of base64url")
    return AdpTxt(
        version=pairs["v"],
        fingerprint=fingerprint,
        metadata_url=_url(pairs.get("wk", "")),
        alpn=pairs.get("alpn", ""),
        port=_port(pairs.get("port", "443")),
        protocol=pairs.get("bap", ""),
    )


def _pairs(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in text.split(";"):
        name, separator, value = part.partition("=")
        key = name.strip().lower()
        if not separator:
            if key:
                raise _invalid("malformed", "a part has no =")
            continue
        if key in pairs:
            raise _invalid("ambiguous", f"{key[:16]} is given twice")
        pairs[key] = value.strip()
    return pairs


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        fits = parts.scheme == "https" and parts.hostname and "@" not in parts.netloc
    except ValueError:
        fits = False
    if not fits:
        raise _invalid("malformed", "wk is missing, or no https address")
    return text


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:6]) < 65536:
        raise _invalid("malformed", "port is none")
    return int(text)


def write_adp_txt(record: AdpTxt) -> str:
    """As one text; `write_text` of dns_data makes strings of it."""
    parts = {"v": record.version, "pk": record.fingerprint, "wk": record.metadata_url, "alpn": record.alpn}
    parts |= {"port": str(record.port) if record.port != 443 else "", "bap": record.protocol}
    for name, value in parts.items():
        if _UNSAFE.search(value):
            raise InvalidParameter(
                f"The value of {name} has a semicolon, a quote, a backslash or a control character.", path=name
            )
    return "; ".join(f"{name}={value}" for name, value in parts.items() if value)


def _invalid(code: str, what: str) -> InvalidDocument:
    return InvalidDocument(
        f"The TXT record of the agent cannot be used: {what}.",
        path="_agent",
        hint="Publish one record: v=ADP1.1; pk=ed25519:…; wk=https://….",
        details={"reason": code},
    )
