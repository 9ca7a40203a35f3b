"""The ADP TXT record at `_agent.{domain}`: `v=ADP1.1; pk=…; wk=…` (ADP-15).

Other protocols have records at the same name, and DNS does not preserve the order of records. So a value is joined from
the strings of one record only, and two ADP records are an error (C-6, D11). `pk` is checked strictly, because it
establishes trust.
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
from waypost.protocols.adp.codec import FINGERPRINT
from waypost.protocols.dns_rdata import read_text

VERSIONS: Final = ("ADP1", "ADP1.0", "ADP1.1")
_ADP = re.compile(r"\s*v\s*=\s*ADP", re.IGNORECASE)
_VERSIONED = re.compile(r"(?:^|;)\s*v\s*=", re.IGNORECASE)
_STRING_BYTES: Final = 255
_UNSAFE = re.compile(r'[";\\\x00-\x1f\x7f]')


class AdpTxt(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    fingerprint: str
    metadata_url: str
    alpn: str = ""
    port: int = 443
    protocol: str = ""  # bap


def select_adp_txt(records: Iterable[bytes]) -> tuple[AdpTxt | None, list[str]]:
    """Return the ADP record among those of a name, and errors of skipped records. Raises InvalidDocument if it is
    ambiguous or invalid: an unreadable key must not look like a missing one."""
    texts, skipped = _texts(records)
    adp_texts = [text for text in texts if _ADP.match(text)]
    if not adp_texts:
        return None, skipped
    if len(adp_texts) > 1:
        raise _invalid("ambiguous", f"{len(adp_texts)} records start with v=ADP; only one is allowed")
    rest = [text for text in texts if text is not adp_texts[0]]
    if rest and not any(_VERSIONED.search(text) for text in rest):
        return _parse_split(adp_texts[0], rest), skipped
    return parse_adp_txt(adp_texts[0]), skipped


def _texts(records: Iterable[bytes]) -> tuple[list[str], list[str]]:
    texts, skipped = [], []
    for data in list(records)[: limits.AGENT_TXT_RECORDS]:
        try:
            texts.append(read_text(data))
        except InvalidDocument as error:
            skipped.append(error.message)
    return texts, skipped


def _parse_split(first: str, rest: list[str]) -> AdpTxt:
    """Parse a value that is split over two records (ADP-16, P-4). With more than one further record the order is
    unknown. The first record of a split value is full, or invalid on its own."""
    if len(first.encode()) < _STRING_BYTES:
        with suppress(InvalidDocument):
            return parse_adp_txt(first)
    if len(rest) > 1:
        raise _invalid("ambiguous", "it is split over several records, whose order is unknown")
    return parse_adp_txt(first + rest[0])


def parse_adp_txt(text: str) -> AdpTxt:
    pairs = _pairs(text)
    if pairs.get("v") not in VERSIONS:
        raise _invalid("version", f"v is {pairs.get('v', '')[:16]!r}, not one of {', '.join(VERSIONS)}")
    fingerprint = pairs.get("pk", "")
    if not FINGERPRINT.match(fingerprint):
        raise _invalid("malformed", "pk is missing, or not `ed25519:` and 43 base64url characters")
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
        raise _invalid("malformed", "wk is missing, or not an https URL")
    return text


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:6]) < 65536:
        raise _invalid("malformed", "port is not a port number")
    return int(text)


def write_adp_txt(record: AdpTxt) -> str:
    """Return the record as one text; `dns_rdata.write_text` splits it into strings."""
    parts = {"v": record.version, "pk": record.fingerprint, "wk": record.metadata_url, "alpn": record.alpn}
    parts |= {"port": str(record.port) if record.port != 443 else "", "bap": record.protocol}
    for name, value in parts.items():
        if _UNSAFE.search(value):
            raise InvalidParameter(
                f"The value of {name} has a semicolon, a quote, a backslash or a control character.", path=name
            )
    return "; ".join(f"{name}={value}" for name, value in parts.items() if value)


def _invalid(code: str, problem: str) -> InvalidDocument:
    return InvalidDocument(
        f"The TXT record of the agent is invalid: {problem}.",
        path="_agent",
        hint="Publish one record: v=ADP1.1; pk=ed25519:…; wk=https://….",
        details={"reason": code},
    )
