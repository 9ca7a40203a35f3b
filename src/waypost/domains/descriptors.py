"""What a fetched document is, from its content alone: ADP, A2A, any other dialect, the metadata of DNS-AID, AID as JSON.

Never from the name it was found under, nor from `bap`: two drafts mean different things by `a2a` (C-1).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final, Literal

import msgspec

from waypost import limits
from waypost.dialects import decode_document
from waypost.dialects.codec import DecodeContext, Decoded
from waypost.errors import InvalidDocument, MalformedJson, UnknownDialect, WaypostError
from waypost.model.json import JsonObject, parse_object
from waypost.model.resolution import ResolvedDocument
from waypost.registry.fetching import Fetched
from waypost.trust.encodings import encode_base64url
from waypost.wire.aid import AidRecord, is_aid_json, read_aid_json

DNS_AID: Final = "dns-aid"
AID: Final = "aid"
_MAX_AGE = re.compile(r"max-age\s*=\s*\"?([0-9]{1,10})")
_JSON_TYPES: Final = ("application/vnd.adp+json", "application/json")


class Descriptor(msgspec.Struct, frozen=True, kw_only=True):
    """A document with its bytes. `trouble` is why it cannot be used, where it claims to be something and is not."""

    told: ResolvedDocument
    body: bytes
    parsed: JsonObject | None = None
    decoded: Decoded | None = None
    aid: AidRecord | None = None
    trouble: WaypostError | None = None

    @property
    def is_agent(self) -> bool:
        return self.decoded is not None or self.aid is not None

    def has_digest(self, stated: str) -> bool:
        """`cap-sha256`: over the bytes as they came (AID-14, D8)."""
        digest = encode_base64url(hashlib.sha256(self.body).digest())
        return hmac.compare_digest(digest, stated.rstrip("=")) if stated.isascii() else False

    def stated_domain(self) -> str | None:
        """The domain that it speaks for; None where its dialect states none."""
        identity = (self.parsed or {}).get("identity")
        if not isinstance(identity, dict):
            return None
        name = {"adp": "domain", DNS_AID: "fqdn"}.get(self.told.dialect)
        stated = identity.get(name) if name is not None else None
        return stated.lower().removesuffix(".") if isinstance(stated, str) else None

    def capabilities(self) -> tuple[str, ...]:
        """What the agent says that it can do, by the ids of its own dialect; tags where that has none."""
        member = {"adp": "capabilities", "a2a": "skills"}.get(self.told.dialect, "")
        listed = (self.parsed or {}).get(member)
        if not isinstance(listed, list):
            return tuple(self.decoded.record.tags) if self.decoded is not None else ()
        ids = [each["id"] for each in listed if isinstance(each, dict) and isinstance(each.get("id"), str)]
        return tuple(dict.fromkeys(ids))[: limits.TAGS]


def read_descriptor(fetched: Fetched, role: Literal["capability", "metadata"], now: float) -> Descriptor:
    told = ResolvedDocument(
        role=role,
        url=fetched.url,
        dialect="",
        sha256=hashlib.sha256(fetched.body).hexdigest(),
        size=len(fetched.body),
        media_type=fetched.headers.get("content-type", "").split(";")[0].strip().lower()[:128],
        max_age_seconds=max_age(fetched.headers.get("cache-control", "")),
    )
    try:
        parsed = parse_object(fetched.body)
    except WaypostError as error:
        return Descriptor(told=told, body=fetched.body, trouble=error)
    return _recognised(told, fetched.body, parsed, now)


def _recognised(told: ResolvedDocument, body: bytes, parsed: JsonObject, now: float) -> Descriptor:
    if is_aid_json(parsed):
        return _aid(told, body, parsed)
    if "aid_version" in parsed and isinstance(parsed.get("identity"), dict):
        name = parsed["identity"].get("name")
        named = msgspec.structs.replace(told, dialect=DNS_AID, name=name[:256] if isinstance(name, str) else "")
        return Descriptor(told=named, body=body, parsed=parsed)
    try:
        dialect, _, decoded = decode_document(body, None, DecodeContext(now=now, source_url=told.url))
    except UnknownDialect:
        return Descriptor(told=told, body=body, parsed=parsed)
    except WaypostError as error:
        dialect = "adp" if str(parsed.get("protocol", "")).startswith("ADP/") else ""
        known = msgspec.structs.replace(told, dialect=dialect)
        return Descriptor(told=known, body=body, parsed=parsed, trouble=error)
    named = msgspec.structs.replace(told, dialect=dialect, id=decoded.record.id, name=decoded.record.name)
    return Descriptor(told=named, body=body, parsed=parsed, decoded=decoded)


def _aid(told: ResolvedDocument, body: bytes, parsed: JsonObject) -> Descriptor:
    named = msgspec.structs.replace(told, dialect=AID)
    try:
        return Descriptor(told=named, body=body, parsed=parsed, aid=read_aid_json(parsed))
    except InvalidDocument as error:
        return Descriptor(told=named, body=body, parsed=parsed, trouble=error)


def is_no_document(descriptor: Descriptor) -> bool:
    """A page that a server gives for everything, rather than a document that is broken."""
    return isinstance(descriptor.trouble, MalformedJson) or (descriptor.trouble is None and not descriptor.is_agent)


def has_usual_type(descriptor: Descriptor) -> bool:
    """ADP-22."""
    return descriptor.told.dialect != "adp" or descriptor.told.media_type in _JSON_TYPES


def max_age(cache_control: str) -> int:
    """How long a document holds (ADP-31)."""
    text = cache_control.lower()
    if "no-store" in text or "no-cache" in text:
        return 0
    found = _MAX_AGE.search(text)
    seconds = int(found[1]) if found else limits.DOCUMENT_TTL_SECONDS
    return min(seconds, limits.DOCUMENT_TTL_MAX_SECONDS)
