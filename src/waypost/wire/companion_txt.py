"""The TXT record that may stand beside a record of DNS-AID: `"capabilities=travel,booking" "version=1.0.0"` (AID-17, the last
resort where no document describes the agent).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.wire.dns_data import read_strings

_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}\Z")
_TEXT_CHARS: Final = 255


class Companion(msgspec.Struct, frozen=True, kw_only=True):
    capabilities: tuple[str, ...] = ()
    version: str = ""
    description: str = ""


def find_companion(records: Iterable[bytes]) -> Companion | None:
    """None when no record at the name has `capabilities=`."""
    for data in list(records)[: limits.AGENT_TXT_RECORDS]:
        try:
            pairs = _pairs(data)
        except (InvalidDocument, UnicodeDecodeError):
            continue
        if "capabilities" in pairs:
            names = (name.strip() for name in pairs["capabilities"].split(","))
            return Companion(
                capabilities=tuple(dict.fromkeys(name for name in names if _TOKEN.match(name)))[: limits.TAGS],
                version=pairs.get("version", ""),
                description=pairs.get("description", ""),
            )
    return None


def _pairs(data: bytes) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in read_strings(data):
        name, separator, value = part.decode("utf-8").partition("=")
        if separator and value.isprintable():
            pairs.setdefault(name.strip().lower(), value.strip()[:_TEXT_CHARS])
    return pairs
