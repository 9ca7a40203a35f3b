"""TXT records: the companion of a DNS-AID record, and AID.

A companion is `"capabilities=travel,booking" "version=1.0.0"` beside a DNS-AID record (AID-17), used if no document
describes the agent. Agent Identity & Discovery (AID) is `v=aid1` or `v=aid2` at `_agent.{host}`, and the same as JSON
at `/.well-known/agent`. Its keys are case-insensitive, in a long or one-letter form, never both; unknown ones are
ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.protocols.dns_rdata import read_strings, read_text

_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}\Z")
_TEXT_CHARS: Final = 255


class CompanionTxt(msgspec.Struct, frozen=True, kw_only=True):
    capabilities: tuple[str, ...] = ()
    version: str = ""
    description: str = ""


def find_companion_txt(records: Iterable[bytes]) -> CompanionTxt | None:
    """Return the first record with `capabilities=`, or None."""
    for data in list(records)[: limits.AGENT_TXT_RECORDS]:
        try:
            pairs = _pairs(data)
        except (InvalidDocument, UnicodeDecodeError):
            continue
        if "capabilities" in pairs:
            names = (name.strip() for name in pairs["capabilities"].split(","))
            return CompanionTxt(
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


# --- AID ------------------------------------------------------------------------------------------

WELL_KNOWN: Final = "/.well-known/agent"
_VERSIONS: Final = ("aid2", "aid1")  # preferred first
_LONG: Final = {
    "v": "version",
    "u": "uri",
    "p": "proto",
    "a": "auth",
    "s": "desc",
    "d": "docs",
    "e": "dep",
    "k": "pka",
    "i": "kid",
}
_SCHEMES: Final = {
    **dict.fromkeys(("mcp", "a2a", "openapi", "grpc", "graphql", "ucp"), ("https:",)),
    "websocket": ("wss:",),
    "local": ("docker:", "npx:", "pip:"),
    "zeroconf": ("zeroconf:",),
}
_AUTH_METHODS: Final = ("none", "pat", "apikey", "basic", "oauth2_device", "oauth2_code", "mtls", "custom")
_AID = re.compile(r"(?:^|;)\s*(?:v|version)\s*=\s*aid[12]\s*(?:;|\Z)", re.IGNORECASE)
_KID = re.compile(r"[a-z0-9]{1,6}\Z")
_JWK_X = re.compile(r"[A-Za-z0-9_-]{43}\Z")
_DESC_BYTES: Final = 60

_INVALID_TXT, _UNSUPPORTED_PROTO = 1001, 1002  # error numbers of AID


class AidRecord(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    uri: str
    proto: str
    auth: str = ""
    desc: str = ""
    docs: str = ""
    dep: str = ""
    pka: str = ""
    kid: str = ""


def select_aid(records: Iterable[bytes]) -> AidRecord | None:
    """Return the AID record among those of a name, or None. Several of the preferred version are an error."""
    texts = []
    for data in list(records)[: limits.AGENT_TXT_RECORDS]:
        try:
            text = read_text(data)
        except InvalidDocument:
            continue
        if _AID.search(text):
            texts.append(text)
    parsed = [parse_aid(text) for text in texts]
    for version in _VERSIONS:
        chosen = [record for record in parsed if record.version == version]
        if len(chosen) > 1:
            raise _invalid(_INVALID_TXT, f"{len(chosen)} records have {version}; only one is allowed")
        if chosen:
            return chosen[0]
    return None


def parse_aid(text: str) -> AidRecord:
    values: dict[str, str] = {}
    for part in text.split(";"):
        name, separator, value = part.partition("=")
        if separator:
            _add(values, name, value.strip())
    return _build_record(values)


def read_aid_json(document: Mapping[str, Any]) -> AidRecord:
    """Parse the document of `/.well-known/agent`."""
    values: dict[str, str] = {}
    for name, value in document.items():
        if isinstance(value, str):
            _add(values, name, value.strip())
    return _build_record(values)


def is_aid_json(document: Mapping[str, Any]) -> bool:
    version = document.get("v", document.get("version"))
    return isinstance(version, str) and version.lower() in _VERSIONS


def _add(values: dict[str, str], name: str, value: str) -> None:
    key = name.strip().lower()
    long = _LONG.get(key, key)
    if long in values:
        raise _invalid(_INVALID_TXT, f"{long[:16]} is given twice")
    values[long] = value


def _build_record(values: dict[str, str]) -> AidRecord:
    version, proto, uri = values.get("version", "").lower(), values.get("proto", "").lower(), values.get("uri", "")
    if version not in _VERSIONS:
        raise _invalid(_INVALID_TXT, "its version is neither aid1 nor aid2")
    if proto not in _SCHEMES:
        raise _invalid(_UNSUPPORTED_PROTO, f"{proto[:16]!r} is not an AID protocol")
    if not uri.lower().startswith(_SCHEMES[proto]):
        raise _invalid(_INVALID_TXT, f"its uri does not have a scheme of {proto}")
    auth, desc = values.get("auth", "").lower(), values.get("desc", "")
    if auth and auth not in _AUTH_METHODS:
        raise _invalid(_INVALID_TXT, f"{auth[:16]!r} is not an AID authentication method")
    if len(desc.encode()) > _DESC_BYTES:
        raise _invalid(_INVALID_TXT, f"its description has more than {_DESC_BYTES} bytes")
    _check_key(version, values.get("pka", ""), values.get("kid", ""))
    known = {name: values.get(name, "") for name in ("docs", "dep", "pka", "kid")}
    return AidRecord(version=version, uri=uri, proto=proto, auth=auth, desc=desc, **known)


def _check_key(version: str, pka: str, kid: str) -> None:
    if version == "aid1":
        fits = (not pka and not kid) or (pka.startswith("z") and bool(_KID.match(kid)))
    else:
        fits = not kid and (not pka or bool(_JWK_X.match(pka)))
    if not fits:
        raise _invalid(_INVALID_TXT, "its key does not have the form of its version")


def _invalid(number: int, problem: str) -> InvalidDocument:
    return InvalidDocument(
        f"The AID record is invalid: {problem}.", path="_agent", details={"reason": "malformed", "aid_error": number}
    )
