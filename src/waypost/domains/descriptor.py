"""Fetches the documents of an agent from the servers that the DNS names, and checks the connection and the identity.

A document's type is recognised from its content alone (ADP, A2A, another dialect, DNS-AID metadata, AID as JSON), never from
its path or from `bap`: two drafts mean different things by `a2a` (C-1). A document is refused if its digest differs (AID-14), if
its identity is not the one that was resolved (C-7, D10), or if the certificate matches no TLSA record (ADP-12).
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
from waypost.domains.dns_lookup import AgentLocation, AgentService
from waypost.domains.ports import DomainFetcher
from waypost.domains.record_checks import DANE_CHECK, DaneCheck
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

DescriptorRole = Literal["capability", "metadata"]

_TLS_CODES = ("tls",)

# The server answered, so it may have another document.
_SERVER_CODES = ("status", "not_a_document", "too_large", "encoding", "redirect")


class Descriptor(msgspec.Struct, frozen=True, kw_only=True):
    """A document with its bytes. `error` is set if it claims a dialect and is invalid."""

    summary: ResolvedDocument
    body: bytes
    parsed: JsonObject | None = None
    decoded: Decoded | None = None
    aid: AidRecord | None = None
    error: WaypostError | None = None

    @property
    def is_agent(self) -> bool:
        return self.decoded is not None or self.aid is not None

    def has_digest(self, stated: str) -> bool:
        """Compare with `cap-sha256`, over the bytes as received (AID-14, D8)."""
        digest = encode_base64url(hashlib.sha256(self.body).digest())
        return hmac.compare_digest(digest, stated.rstrip("=")) if stated.isascii() else False

    def stated_domain(self) -> str | None:
        """The domain in the document; None if its dialect has none."""
        identity = (self.parsed or {}).get("identity")
        if not isinstance(identity, dict):
            return None
        name = {"adp": "domain", DNS_AID: "fqdn"}.get(self.summary.dialect)
        stated = identity.get(name) if name is not None else None
        return stated.lower().removesuffix(".") if isinstance(stated, str) else None

    def capabilities(self) -> tuple[str, ...]:
        """The ids of the agent's capabilities or skills; its tags if the dialect has none."""
        member = {"adp": "capabilities", "a2a": "skills"}.get(self.summary.dialect, "")
        listed = (self.parsed or {}).get(member)
        if not isinstance(listed, list):
            return tuple(self.decoded.record.tags) if self.decoded is not None else ()
        ids = [each["id"] for each in listed if isinstance(each, dict) and isinstance(each.get("id"), str)]
        return tuple(dict.fromkeys(ids))[: limits.TAGS]


def read_descriptor(response: FetchResponse, role: DescriptorRole, now: float) -> Descriptor:
    summary = ResolvedDocument(
        role=role,
        url=response.url,
        dialect="",
        sha256=hashlib.sha256(response.body).hexdigest(),
        size=len(response.body),
        media_type=response.headers.get("content-type", "").split(";")[0].strip().lower()[:128],
        max_age_seconds=document_max_age(response.headers.get("cache-control", "")),
    )
    try:
        parsed = parse_object(response.body)
    except WaypostError as error:
        return Descriptor(summary=summary, body=response.body, error=error)
    return _recognize(summary, response.body, parsed, now)


def _recognize(summary: ResolvedDocument, body: bytes, parsed: JsonObject, now: float) -> Descriptor:
    if is_aid_json(parsed):
        return _read_aid(summary, body, parsed)
    if "aid_version" in parsed and isinstance(parsed.get("identity"), dict):
        name = parsed["identity"].get("name")
        named = msgspec.structs.replace(summary, dialect=DNS_AID, name=name[:256] if isinstance(name, str) else "")
        return Descriptor(summary=named, body=body, parsed=parsed)
    try:
        dialect, _, decoded = decode_document(body, None, DecodeContext(now=now, source_url=summary.url))
    except UnknownDialect:
        return Descriptor(summary=summary, body=body, parsed=parsed)
    except WaypostError as error:
        dialect = "adp" if str(parsed.get("protocol", "")).startswith("ADP/") else ""
        summary = msgspec.structs.replace(summary, dialect=dialect)
        return Descriptor(summary=summary, body=body, parsed=parsed, error=error)
    named = msgspec.structs.replace(summary, dialect=dialect, id=decoded.record.id, name=decoded.record.name)
    return Descriptor(summary=named, body=body, parsed=parsed, decoded=decoded)


def _read_aid(summary: ResolvedDocument, body: bytes, parsed: JsonObject) -> Descriptor:
    named = msgspec.structs.replace(summary, dialect=AID)
    try:
        return Descriptor(summary=named, body=body, parsed=parsed, aid=read_aid_json(parsed))
    except InvalidDocument as error:
        return Descriptor(summary=named, body=body, parsed=parsed, error=error)


def is_not_a_document(descriptor: Descriptor) -> bool:
    """Whether it is a page that the server returns for any path, rather than a broken document."""
    return isinstance(descriptor.error, MalformedJson) or (descriptor.error is None and not descriptor.is_agent)


def has_expected_media_type(descriptor: Descriptor) -> bool:
    """ADP-22."""
    return descriptor.summary.dialect != "adp" or descriptor.summary.media_type in _JSON_TYPES


def document_max_age(cache_control: str) -> int:
    """How long a document may be cached (ADP-31)."""
    text = cache_control.lower()
    if "no-store" in text or "no-cache" in text:
        return 0
    match = _MAX_AGE.search(text)
    seconds = int(match[1]) if match else limits.DOCUMENT_TTL_SECONDS
    return min(seconds, limits.DOCUMENT_TTL_MAX_SECONDS)


class DescriptorRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A document to fetch. A guessed one may be missing."""

    url: str
    role: DescriptorRole = "metadata"
    is_guess: bool = False
    digest: str | None = None


class DescriptorFetcher:
    """Fetches the documents of one resolution."""

    def __init__(self, trace: ResolutionTrace, fetcher: DomainFetcher, clock: Clock, location: AgentLocation) -> None:
        self._trace = trace
        self._fetcher = fetcher
        self._clock = clock
        self._location = location
        self._dane_checks: dict[tuple[str, int], DaneCheck] = {}
        self._is_unreachable = False  # no server could have another document
        self._tls_failures: list[str] = []  # hosts
        self._connected: list[tuple[DescriptorRole, DaneCheck]] = []

    async def fetch_documents(self, target: ResolveTarget) -> list[Descriptor]:
        """The documents of the agent, in order of precedence (AID-17). Raises ResolutionRefused."""
        self._trace.begin_round()
        try:
            documents = await self._fetch_documents(target)
        finally:
            await asyncio.gather(*(dane.close() for dane in self._dane_checks.values()))
        if not documents and self._tls_failures:
            reason = f"the TLS handshake with {self._tls_failures[0]} failed"
            raise ResolutionRefused("tls", reason, level=DANE_CHECK, state="unknown")
        return documents

    async def _fetch_documents(self, target: ResolveTarget) -> list[Descriptor]:
        location = self._location
        if target.url:
            return await self._fetch_all(DescriptorRequest(url=target.url))
        if location.how == "txt" and location.txt is not None:
            return await self._fetch_all(DescriptorRequest(url=location.txt.metadata_url))
        if location.how is None:
            base = https_origin(target.domain, target.port)
            return await self._guess([base + path for path in (AGENT_JSON_PATH, AGENT_CARD_PATH, AID_PATH)])
        for service in location.services[: limits.SVCB_TARGETS]:
            documents = await self._fetch_from_service(service)
            if documents:
                return documents
        return []

    def verdict(self) -> Verdict:
        """DANE verdict of the connection of the agent's own document, else of a capability document."""
        unconnected = Verdict(check=DANE_CHECK, state="not_checked", reason="no connection was made", at=self._trace.at)
        failed = [dane.verdict for dane in self._dane_checks.values() if dane.verdict.state == "failed"]
        by_role = {role: dane.verdict for role, dane in reversed(self._connected)}
        return next(iter(failed), by_role.get("metadata") or by_role.get("capability") or unconnected)

    async def _fetch_from_service(self, service: AgentService) -> list[Descriptor]:
        """AID-17: an https `cap`, then the path in `well-known`, else the default paths."""
        base, record = https_origin(service.host, service.port), service.binding
        cap = record.text(CAP) if record is not None else None
        digest = (record.text(CAP_SHA256) or "") if record is not None and CAP_SHA256 in record.params else None
        path = self._well_known_path(service)
        requests = []
        if cap is not None and cap.lower().startswith("https://"):
            requests.append(DescriptorRequest(url=cap, role="capability", digest=digest))
        if path is not None:
            requests.append(DescriptorRequest(url=base + path, digest=None if requests else digest))
        elif requests and self._location.key is not None:
            requests.append(DescriptorRequest(url=base + AGENT_JSON_PATH, is_guess=True))
        documents = await self._fetch_all(*requests)
        if any(each.is_agent for each in documents) or path is not None:
            return documents
        paths = (AGENT_CARD_PATH,) if len(requests) == 2 else (AGENT_JSON_PATH, AGENT_CARD_PATH)
        return [*documents, *await self._guess([base + each for each in paths], None if requests else digest)]

    def _well_known_path(self, service: AgentService) -> str | None:
        """D9: a path that could lead elsewhere invalidates the record."""
        stated = service.binding.text(WELL_KNOWN) if service.binding is not None else None
        if service.binding is None or WELL_KNOWN not in service.binding.params:
            return None
        path = find_well_known_path(stated or "")
        if path is None:
            raise ResolutionRefused("bad_path", "the path in `well-known` is not allowed")
        return path

    async def _guess(self, urls: Sequence[str], digest: str | None = None) -> list[Descriptor]:
        """The document at the first URL where there is an agent."""
        for url in urls:
            documents = await self._fetch_all(DescriptorRequest(url=url, is_guess=True, digest=digest))
            if documents:
                return documents
            if self._is_unreachable:
                break
        return []

    async def _fetch_all(self, *requests: DescriptorRequest) -> list[Descriptor]:
        tasks = [asyncio.create_task(self._fetch(each), name=each.role) for each in requests]
        try:
            results = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return [document for document in results if document is not None]

    async def _fetch(self, request: DescriptorRequest) -> Descriptor | None:
        started_at = time.perf_counter()
        dane = self._dane_check(request.url)
        self._trace.fetches += 1
        try:
            dane.begin()
            response = await self._fetcher.fetch(request.url, "descriptor", check=dane.check)
        except (FetchFailed, AddressDenied, InvalidParameter, RateLimited) as error:
            code = "denied" if isinstance(error, AddressDenied) else error_code(error, "bad_address")
            self._add_failure(request, code, error.message, started_at)
            if code == "dane":
                raise ResolutionRefused(str(error.details.get("code")), dane.verdict.reason, level=DANE_CHECK) from None
            return None
        self._connected.append((request.role, dane))
        return self._accept(request, response, started_at)

    def _add_failure(self, request: DescriptorRequest, code: str, reason: str, started_at: float) -> None:
        state: VerdictState = (
            "failed" if code in (*_TLS_CODES, "dane") else "not_checked" if request.is_guess else "unknown"
        )
        self._trace.add_step(
            _step_name(request),
            state,
            reason,
            code=code,
            took_ms=_elapsed_ms(started_at),
            url=request.url,
            guessed=request.is_guess or None,
        )
        self._is_unreachable = self._is_unreachable or code not in _SERVER_CODES
        if code in _TLS_CODES:
            self._tls_failures.append(urlsplit(request.url).hostname or "")

    def _accept(self, request: DescriptorRequest, response: FetchResponse, started_at: float) -> Descriptor | None:
        if not response.is_success:
            self._add_failure(request, "status", f"the server answered with status {response.status}", started_at)
            return None
        document = read_descriptor(response, request.role, self._clock.now())
        summary = document.summary
        evidence: dict[str, Any] = {
            "url": summary.url,
            "dialect": summary.dialect,
            "sha256": summary.sha256,
            "size": summary.size,
        }
        if request.digest is not None and not document.has_digest(request.digest):
            reason = "the digest of the document differs from the one in the DNS"
            self._trace.add_step(
                _step_name(request),
                "failed",
                reason,
                code="digest_mismatch",
                took_ms=_elapsed_ms(started_at),
                **evidence,
            )
            raise ResolutionRefused("digest_mismatch", reason)
        if request.is_guess and is_not_a_document(document):
            self._add_failure(request, "not_a_document", "the content is not an agent document", started_at)
            return None
        if document.error is not None:
            return self._reject(request, document, document.error, started_at)
        self._trace.add_step(
            _step_name(request),
            "passed",
            took_ms=_elapsed_ms(started_at),
            **evidence,
            digest="matches" if request.digest else None,
        )
        self._check_identity(document)
        return document

    def _reject(
        self, request: DescriptorRequest, document: Descriptor, error: WaypostError, started_at: float
    ) -> Descriptor:
        reason = "it is not a JSON object" if isinstance(error, MalformedJson) else error.message
        self._trace.add_step(
            _step_name(request),
            "failed",
            reason,
            code="invalid_document",
            took_ms=_elapsed_ms(started_at),
            url=document.summary.url,
        )
        if request.role == "capability":  # its format is open (AID-5)
            return msgspec.structs.replace(document, error=None)
        raise ResolutionRefused("invalid_document", f"the document is invalid: {reason}", level="key-verified")

    def _check_identity(self, document: Descriptor) -> None:
        """C-7, D10: a provider hosts documents of many agents; this one must be of the resolved domain."""
        if not has_expected_media_type(document):
            self._trace.warn(f"The media type of the document is {document.summary.media_type or 'missing'} (ADP-22).")
        stated = document.stated_domain()
        if stated is None:
            return
        if stated != self._location.domain:
            reason = f"the document is of {stated[:253]}, not of {self._location.domain}"
            self._trace.add_step("identity", "failed", reason, code="identity_mismatch", domain=stated[:253])
            raise ResolutionRefused("identity_mismatch", reason, level="key-verified")
        self._trace.add_step("identity", "passed", domain=stated)

    def _dane_check(self, url: str) -> DaneCheck:
        """One check for each server, however many documents it serves."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port or 443
        except ValueError:
            host, port = "", 443
        if (host, port) not in self._dane_checks:
            is_third_party = host != self._location.domain
            self._dane_checks[host, port] = DaneCheck(
                self._trace, host, port, pointer_security=self._location.security, is_third_party=is_third_party
            )
        return self._dane_checks[host, port]


def _step_name(request: DescriptorRequest) -> str:
    return "capability" if request.role == "capability" else "document"


def _elapsed_ms(started_at: float) -> float:
    return round((time.perf_counter() - started_at) * 1000, 3)
