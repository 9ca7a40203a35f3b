"""What a fetched document is, from its content alone: ADP, A2A, any other dialect, the metadata of DNS-AID, AID as JSON.

Never from the name it was found under, nor from `bap`: two drafts mean different things by `a2a` (C-1).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import time
from collections.abc import Sequence
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.domains.dane import DANE_CHECK as DANE_RUNG
from waypost.domains.dane import DaneCheck
from waypost.domains.dns_lookup import AgentLocation, AgentService
from waypost.domains.ports import DomainFetcher
from waypost.domains.target import AGENT_CARD_PATH, AGENT_JSON_PATH, ResolveTarget, find_well_known_path, https_origin
from waypost.domains.trace import ResolutionRefused, ResolutionTrace, error_code
from waypost.errors import (
    AddressDenied,
    FetchFailed,
    InvalidDocument,
    InvalidParameter,
    MalformedJson,
    RateLimited,
    UnknownDialect,
    WaypostError,
)
from waypost.model.json import JsonObject, parse_object
from waypost.model.resolution import ResolvedDocument
from waypost.model.verdict import Verdict, VerdictState
from waypost.protocols.codec import DecodeContext, Decoded
from waypost.protocols.dialects import decode_document
from waypost.protocols.dns_aid.svcb import CAP, CAP_SHA256, WELL_KNOWN
from waypost.protocols.dns_aid.txt_records import WELL_KNOWN as AID_PATH
from waypost.protocols.dns_aid.txt_records import AidRecord, is_aid_json, read_aid_json
from waypost.registry.ports import Clock, FetchResponse
from waypost.trust.encodings import encode_base64url

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
    error: WaypostError | None = None

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


def read_descriptor(fetched: FetchResponse, role: Literal["capability", "metadata"], now: float) -> Descriptor:
    told = ResolvedDocument(
        role=role,
        url=fetched.url,
        dialect="",
        sha256=hashlib.sha256(fetched.body).hexdigest(),
        size=len(fetched.body),
        media_type=fetched.headers.get("content-type", "").split(";")[0].strip().lower()[:128],
        max_age_seconds=document_max_age(fetched.headers.get("cache-control", "")),
    )
    try:
        parsed = parse_object(fetched.body)
    except WaypostError as error:
        return Descriptor(told=told, body=fetched.body, error=error)
    return _recognize(told, fetched.body, parsed, now)


def _recognize(told: ResolvedDocument, body: bytes, parsed: JsonObject, now: float) -> Descriptor:
    if is_aid_json(parsed):
        return _read_aid(told, body, parsed)
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
        return Descriptor(told=known, body=body, parsed=parsed, error=error)
    named = msgspec.structs.replace(told, dialect=dialect, id=decoded.record.id, name=decoded.record.name)
    return Descriptor(told=named, body=body, parsed=parsed, decoded=decoded)


def _read_aid(told: ResolvedDocument, body: bytes, parsed: JsonObject) -> Descriptor:
    named = msgspec.structs.replace(told, dialect=AID)
    try:
        return Descriptor(told=named, body=body, parsed=parsed, aid=read_aid_json(parsed))
    except InvalidDocument as error:
        return Descriptor(told=named, body=body, parsed=parsed, error=error)


def is_not_a_document(descriptor: Descriptor) -> bool:
    """A page that a server gives for everything, rather than a document that is broken."""
    return isinstance(descriptor.error, MalformedJson) or (descriptor.error is None and not descriptor.is_agent)


def has_expected_media_type(descriptor: Descriptor) -> bool:
    """ADP-22."""
    return descriptor.told.dialect != "adp" or descriptor.told.media_type in _JSON_TYPES


def document_max_age(cache_control: str) -> int:
    """How long a document holds (ADP-31)."""
    text = cache_control.lower()
    if "no-store" in text or "no-cache" in text:
        return 0
    found = _MAX_AGE.search(text)
    seconds = int(found[1]) if found else limits.DOCUMENT_TTL_SECONDS
    return min(seconds, limits.DOCUMENT_TTL_MAX_SECONDS)


# ---- What an agent says of itself, fetched from where the DNS says, over a connection that is the one which the DNS names.
#
# Knows which documents are wanted, in which order they count (AID-17), and when one must be refused: a digest that differs
# (AID-14), another identity than was asked for (C-7, D10), a certificate that no TLSA record names (ADP-12).

DescriptorRole = Literal["capability", "metadata"]

_ALWAYS_FAILED = ("tls",)

_SERVER_ANSWERED = (
    "status",
    "not_a_document",
    "too_large",
    "encoding",
    "redirect",
)  # there is a server, and another document may be


class DescriptorRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One document to fetch. One that is only guessed may be missing."""

    url: str
    role: DescriptorRole = "metadata"
    guessed: bool = False
    digest: str | None = None


class DescriptorFetcher:
    """Of one resolution."""

    def __init__(self, journal: ResolutionTrace, fetcher: DomainFetcher, clock: Clock, located: AgentLocation) -> None:
        self._journal = journal
        self._fetcher = fetcher
        self._clock = clock
        self._located = located
        self._danes: dict[tuple[str, int], DaneCheck] = {}
        self._is_silent = False  # there is nobody who could have another document
        self._unproven: list[str] = []  # hosts that could not prove who they are
        self._connected: list[tuple[DescriptorRole, DaneCheck]] = []

    async def describe(self, asked: ResolveTarget) -> list[Descriptor]:
        """The documents of the agent, the one that counts most first. Raises Refusal."""
        self._journal.begin_round()
        try:
            found = await self._describe(asked)
        finally:
            await asyncio.gather(*(dane.close() for dane in self._danes.values()))
        if not found and self._unproven:
            reason = f"{self._unproven[0]} could not prove who it is"
            raise ResolutionRefused("tls", reason, rung=DANE_RUNG, state="unknown")
        return found

    async def _describe(self, asked: ResolveTarget) -> list[Descriptor]:
        located = self._located
        if asked.url:
            return await self._fetch_all(DescriptorRequest(url=asked.url))
        if located.how == "txt" and located.txt is not None:
            return await self._fetch_all(DescriptorRequest(url=located.txt.metadata_url))
        if located.how is None:
            base = https_origin(asked.domain, asked.port)
            return await self._guess([base + path for path in (AGENT_JSON_PATH, AGENT_CARD_PATH, AID_PATH)])
        for service in located.services[: limits.SVCB_TARGETS]:
            found = await self._of_service(service)
            if found:
                return found
        return []

    def verdict(self) -> Verdict:
        """Of the connection that the agent's own document came over, else of the one that a capability document did."""
        none = Verdict(check=DANE_RUNG, state="not_checked", reason="nothing was connected to", at=self._journal.at)
        failed = [dane.verdict for dane in self._danes.values() if dane.verdict.state == "failed"]
        by_role = {role: dane.verdict for role, dane in reversed(self._connected)}
        return next(iter(failed), by_role.get("metadata") or by_role.get("capability") or none)

    # --- Which documents ---------------------------------------------------------------------------------------------

    async def _of_service(self, service: AgentService) -> list[Descriptor]:
        """AID-17: an https `cap`, else what `well-known` names, else the usual places."""
        base, record = https_origin(service.host, service.port), service.binding
        cap = record.text(CAP) if record is not None else None
        digest = (record.text(CAP_SHA256) or "") if record is not None and CAP_SHA256 in record.params else None
        path = self._path(service)
        wanted = []
        if cap is not None and cap.lower().startswith("https://"):
            wanted.append(DescriptorRequest(url=cap, role="capability", digest=digest))
        if path is not None:
            wanted.append(DescriptorRequest(url=base + path, digest=None if wanted else digest))
        elif wanted and self._located.key is not None:
            wanted.append(DescriptorRequest(url=base + AGENT_JSON_PATH, guessed=True))
        found = await self._fetch_all(*wanted)
        if any(each.is_agent for each in found) or path is not None:
            return found
        paths = (AGENT_CARD_PATH,) if len(wanted) == 2 else (AGENT_JSON_PATH, AGENT_CARD_PATH)
        return [*found, *await self._guess([base + each for each in paths], None if wanted else digest)]

    def _path(self, service: AgentService) -> str | None:
        """D9: a path that could lead elsewhere spoils its record."""
        stated = service.binding.text(WELL_KNOWN) if service.binding is not None else None
        if service.binding is None or WELL_KNOWN not in service.binding.params:
            return None
        path = find_well_known_path(stated or "")
        if path is None:
            raise ResolutionRefused("bad_path", "the path in `well-known` is none that is followed")
        return path

    async def _guess(self, urls: Sequence[str], digest: str | None = None) -> list[Descriptor]:
        """The first of the usual places where there is an agent."""
        for url in urls:
            found = await self._fetch_all(DescriptorRequest(url=url, guessed=True, digest=digest))
            if found:
                return found
            if self._is_silent:
                break
        return []

    # --- Fetching ----------------------------------------------------------------------------------------------------

    async def _fetch_all(self, *wanted: DescriptorRequest) -> list[Descriptor]:
        tasks = [asyncio.create_task(self._fetch(each), name=each.role) for each in wanted]
        try:
            results = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return [found for found in results if found is not None]

    async def _fetch(self, wanted: DescriptorRequest) -> Descriptor | None:
        begun = time.perf_counter()
        dane = self._dane(wanted.url)
        self._journal.fetches += 1
        try:
            dane.begin()
            fetched = await self._fetcher.fetch(wanted.url, "descriptor", check=dane.check)
        except (FetchFailed, AddressDenied, InvalidParameter, RateLimited) as error:
            code = "denied" if isinstance(error, AddressDenied) else error_code(error, "bad_address")
            self._tell_failure(wanted, code, error.message, begun)
            if code == "dane":
                raise ResolutionRefused(str(error.details.get("code")), dane.verdict.reason, rung=DANE_RUNG) from None
            return None
        self._connected.append((wanted.role, dane))
        return self._take(wanted, fetched, begun)

    def _tell_failure(self, wanted: DescriptorRequest, code: str, reason: str, begun: float) -> None:
        state: VerdictState = (
            "failed" if code in (*_ALWAYS_FAILED, "dane") else "not_checked" if wanted.guessed else "unknown"
        )
        self._journal.tell(
            _step_name(wanted),
            state,
            reason,
            code=code,
            took_ms=_elapsed_ms(begun),
            url=wanted.url,
            guessed=wanted.guessed or None,
        )
        self._is_silent = self._is_silent or code not in _SERVER_ANSWERED
        if code in _ALWAYS_FAILED:
            self._unproven.append(urlsplit(wanted.url).hostname or "")

    def _take(self, wanted: DescriptorRequest, fetched: FetchResponse, begun: float) -> Descriptor | None:
        if not fetched.is_success:
            self._tell_failure(wanted, "status", f"it answered with status {fetched.status}", begun)
            return None
        found = read_descriptor(fetched, wanted.role, self._clock.now())
        told = found.told
        evidence: dict[str, Any] = {"url": told.url, "dialect": told.dialect, "sha256": told.sha256, "size": told.size}
        if wanted.digest is not None and not found.has_digest(wanted.digest):
            reason = "the document is not the one whose digest the DNS gives"
            self._journal.tell(
                _step_name(wanted), "failed", reason, code="digest_mismatch", took_ms=_elapsed_ms(begun), **evidence
            )
            raise ResolutionRefused("digest_mismatch", reason)
        if wanted.guessed and is_not_a_document(found):
            self._tell_failure(wanted, "not_a_document", "what is there is no document of an agent", begun)
            return None
        if found.error is not None:
            return self._refuse(wanted, found, begun)
        self._journal.tell(
            _step_name(wanted),
            "passed",
            took_ms=_elapsed_ms(begun),
            **evidence,
            digest="matches" if wanted.digest else None,
        )
        self._check_identity(found)
        return found

    def _refuse(self, wanted: DescriptorRequest, found: Descriptor, begun: float) -> Descriptor | None:
        trouble = found.error
        reason = "it is no JSON object" if trouble is None or isinstance(trouble, MalformedJson) else trouble.message
        self._journal.tell(
            _step_name(wanted),
            "failed",
            reason,
            code="invalid_document",
            took_ms=_elapsed_ms(begun),
            url=found.told.url,
        )
        if wanted.role == "capability":  # its format is open (AID-5)
            return msgspec.structs.replace(found, error=None)
        raise ResolutionRefused("invalid_document", f"the document cannot be used: {reason}", rung="key-verified")

    def _check_identity(self, found: Descriptor) -> None:
        """C-7, D10: a provider's host may speak for many; the document must be of the one that was asked for."""
        if not has_expected_media_type(found):
            self._journal.warn(f"The document is served as {found.told.media_type or 'nothing'} (ADP-22).")
        stated = found.stated_domain()
        if stated is None:
            return
        if stated != self._located.domain:
            reason = f"the document is of {stated[:253]}, not of {self._located.domain}"
            self._journal.tell("identity", "failed", reason, code="identity_mismatch", domain=stated[:253])
            raise ResolutionRefused("identity_mismatch", reason, rung="key-verified")
        self._journal.tell("identity", "passed", domain=stated)

    def _dane(self, url: str) -> DaneCheck:
        """One look-up for each server, however many documents it gives."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port or 443
        except ValueError:
            host, port = "", 443
        if (host, port) not in self._danes:
            hosted = host != self._located.domain
            self._danes[host, port] = DaneCheck(
                self._journal, host, port, leading=self._located.security, hosted=hosted
            )
        return self._danes[host, port]


def _step_name(wanted: DescriptorRequest) -> str:
    return "capability" if wanted.role == "capability" else "document"


def _elapsed_ms(begun: float) -> float:
    return round((time.perf_counter() - begun) * 1000, 3)
