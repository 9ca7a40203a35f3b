"""Imports of documents from a URL: fetch, recognise, decode, verify, and register on request.

A caller who is not an admin learns only that a URL could not be reached, always after the same time, so that imports cannot be
used to map a network.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.errors import (
    AddressDenied,
    FetchFailed,
    MalformedJson,
    PreconditionFailed,
    TooLarge,
    UnknownDialect,
    WaypostError,
)
from waypost.model.principal import Principal, may_see
from waypost.model.record import record_to_json
from waypost.model.verdict import TrustSummary, Verdict, trust_summary
from waypost.protocols.codec import Decoded
from waypost.protocols.dialects import unpack_documents
from waypost.protocols.rtfs.sexpr import is_sexpr_text
from waypost.registry.domain_proofs import check_domain_proof, proof_notes
from waypost.registry.ports import Fetcher, FetchPurpose, FetchResponse
from waypost.registry.publication import IMPORT_VIA, Publication, PublicationReceipt
from waypost.registry.record_linkage import RecordLinker
from waypost.registry.registry import Registry
from waypost.responses.agents import ExistingAgent

WELL_KNOWN = (
    "/.well-known/agent-card.json",
    "/.well-known/agent.json",
    "/.well-known/ai-catalog.json",
    "/.well-known/agentframework/v1/agents",
    "/",
)
_CATALOGS = ("ai-catalog.json", "/agents", "/servers")
# Reasons that only admins see: they describe a network, not a document.
_UNREACHABLE = frozenset(("no_address", "refused", "timed_out", "tls", "protocol"))


class ImportRequest(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    save: bool = False
    dialect: str | None = None
    digest: str | None = None  # of the preview: only the same content is saved
    organisation: bool = False  # for a domain: all agents that it lists
    visibility: str | None = None
    ttl_seconds: int | None = None


class ImportedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """One document at the URL, or the error. It has a `receipt` if it was registered."""

    document: bytes
    dialect: str = ""
    decoded: Decoded | None = None
    trust: TrustSummary = TrustSummary(level="self_asserted")
    existing: ExistingAgent | None = None  # the agent that is registered under its id
    receipt: PublicationReceipt | None = None
    error: WaypostError | None = None
    url: str = ""  # if it differs from the URL of the import

    def agent(self) -> dict[str, Any] | None:
        return record_to_json(self.decoded.record) if self.decoded is not None else None


class ImportResult(msgspec.Struct, frozen=True, kw_only=True):
    url: str  # of the document, after redirects and well-known paths
    digest: str
    agents: tuple[ImportedAgent, ...]


class Importer:
    def __init__(
        self, registry: Registry, fetcher: Fetcher, *, discreet_seconds: float = limits.FETCH_DISCREET_SECONDS
    ) -> None:
        self._registry = registry
        self._fetcher = fetcher
        self._discreet_seconds = discreet_seconds
        self._linker = RecordLinker(registry)

    async def find(self, principal: Principal, request: ImportRequest) -> ImportResult:
        """Fetch and preview; with `save` register. A refused document of a catalog does not stop the others."""
        fetched, documents = await self._fetch_discreetly(principal, request)
        digest = hashlib.sha256(fetched.body).hexdigest()
        if request.digest is not None and request.digest != digest:
            raise PreconditionFailed(
                "The document has changed since the preview.", path="$.digest", hint="Fetch it again."
            )
        take = self._save if request.save else self._preview
        agents = [await self._one(principal, request, fetched.url, document, take) for document in documents]
        if len(agents) == 1 and agents[0].error is not None:
            raise agents[0].error
        return ImportResult(url=fetched.url, digest=digest, agents=tuple(agents))

    async def take(self, principal: Principal, request: ImportRequest, document: bytes) -> ImportResult:
        """The same for a document that the caller sends."""
        digest = hashlib.sha256(document).hexdigest()
        if request.digest is not None and request.digest != digest:
            raise PreconditionFailed(
                "The document differs from the preview.", path="$.digest", hint="Preview it again."
            )
        take = self._save if request.save else self._preview
        found = await self._one(principal, request, None, document, take)
        if found.error is not None:
            raise found.error
        return ImportResult(url="", digest=digest, agents=(found,))

    # --- Fetching --------------------------------------------------------------------------------

    async def _fetch_discreetly(
        self, principal: Principal, request: ImportRequest
    ) -> tuple[FetchResponse, Sequence[bytes]]:
        began = time.monotonic()
        try:
            return await self._fetch(request)
        except (AddressDenied, FetchFailed) as error:
            if principal.is_admin or not _reveals_network(error, request.url):
                raise
        await asyncio.sleep(max(0.0, began + self._discreet_seconds - time.monotonic()))
        raise FetchFailed(
            "The address could not be reached.",
            path="$.url",
            hint="Check that it is up and public. The setting allow_cidrs permits private networks.",
            details={"reason": "unreachable"},
        )

    async def _fetch(self, request: ImportRequest) -> tuple[FetchResponse, Sequence[bytes]]:
        candidates = _candidates(request.url)
        if len(candidates) == 1:
            fetched = await self._fetcher.fetch(candidates[0], _purpose(candidates[0]))
            return fetched, _documents(fetched)
        for url in candidates:
            try:
                fetched = await self._fetcher.fetch(url, _purpose(url))
                documents = _documents(fetched)
                if documents:
                    self._registry.decode(documents[0], dialect=request.dialect, source_url=fetched.url)
                    return fetched, documents
            except FetchFailed as error:
                if error.details.get("reason") in _UNREACHABLE:
                    raise
            except (UnknownDialect, MalformedJson):
                continue  # a server may answer every path with some page
        raise FetchFailed(
            "None of the well-known documents was found.",
            path="$.url",
            hint=f"Name a document, or serve one of {', '.join(WELL_KNOWN[:3])}.",
            details={"reason": "not_found"},
        )

    # --- Documents -------------------------------------------------------------------------------

    async def _one(
        self,
        principal: Principal,
        request: ImportRequest,
        url: str | None,
        document: bytes,
        take: Callable[[Publication], Awaitable[ImportedAgent]],
    ) -> ImportedAgent:
        try:
            publication = self._fetched(principal, request, url, document)
            return await take(await self._linker.link(publication) if url is not None else publication)
        except WaypostError as error:
            return ImportedAgent(document=document, error=error)

    def _fetched(self, principal: Principal, request: ImportRequest, url: str | None, document: bytes) -> Publication:
        dialect, decoded = self._registry.decode(document, dialect=request.dialect, source_url=url)
        return Publication(
            dialect=dialect,
            document=document,
            decoded=decoded,
            principal=principal,
            via=IMPORT_VIA if url is not None else "page",
            visibility=request.visibility,
            ttl_seconds=request.ttl_seconds,
            source_url=url,
        )

    async def _save(self, publication: Publication) -> ImportedAgent:
        receipt = await self._registry.publish(publication)
        return msgspec.structs.replace(_found(publication), trust=receipt.trust, receipt=receipt)

    async def _preview(self, publication: Publication) -> ImportedAgent:
        record_id = publication.decoded.record.id
        verdicts = await self._registry.verify_document(publication.dialect, publication.document, record_id)
        proof = await self._proof(publication)
        return msgspec.structs.replace(
            _found(publication),
            trust=trust_summary((*publication.verdicts, *verdicts, *proof)),
            existing=self._existing(publication.principal, record_id, *publication.decoded.aliases),
        )

    async def _proof(self, publication: Publication) -> tuple[Verdict, ...]:
        """The domain verdict that the agent would get with the caller as its owner."""
        registry, record, subject = self._registry, publication.decoded.record, publication.principal.subject or ""
        if not registry.proofs.proven_domains(subject):
            return ()
        notes = {name: value for note in proof_notes(record) for name, value in await registry.notes(note)}
        verdict = check_domain_proof(subject, record, notes, registry.clock.now())
        return () if verdict is None else (verdict,)

    def _existing(self, principal: Principal, *names: str) -> ExistingAgent | None:
        find = self._registry.entries.find_named
        entry = next((found for name in names if (found := find(name)) is not None), None)
        if entry is None or not may_see(principal, entry.scopes):
            return None
        is_own = principal.is_admin or entry.owner == principal.subject
        return ExistingAgent(id=entry.id, etag=entry.etag, yours=is_own)


def _found(publication: Publication) -> ImportedAgent:
    return ImportedAgent(document=publication.document, dialect=publication.dialect, decoded=publication.decoded)


def _candidates(url: str) -> list[str]:
    """The URL itself; for a bare host or origin, the well-known paths."""
    text = url if "://" in url or "." not in url.split("/")[0] else f"https://{url}"
    try:
        parts = urlsplit(text)
    except ValueError:
        return [text]
    if parts.path not in ("", "/") or parts.query or parts.fragment or "?" in text:
        return [text]
    return [text.rstrip("/") + path for path in WELL_KNOWN]


def _purpose(url: str) -> FetchPurpose:
    """A catalog may be larger than a card."""
    return "peer" if url.split("?", 1)[0].endswith(_CATALOGS) else "card"


def _documents(fetched: FetchResponse) -> list[bytes]:
    """The documents in a response. Errors quote nothing of an unreadable response (S9)."""
    if not fetched.is_success:
        raise FetchFailed(
            f"The other server answered with status {fetched.status}.",
            path="$.url",
            hint="Check that the document exists.",
            details={"reason": "status", "answered": fetched.status},
        )
    if is_sexpr_text(fetched.body):
        return [fetched.body]
    try:
        packed = unpack_documents(fetched.body)
    except (msgspec.DecodeError, RecursionError):
        raise FetchFailed(
            "The response is not a document of any dialect.",
            path="$.url",
            hint="Use the URL of a card, a manifest or a catalog.",
            details={"reason": "not_a_document"},
        ) from None
    if packed is None:
        return [_bounded(fetched.body)]
    if len(packed) > limits.FETCH_DOCUMENTS:
        raise TooLarge(
            f"The catalog has {len(packed)} entries; at most {limits.FETCH_DOCUMENTS} can be imported at once.",
            path="$.url",
            hint="Save it as a file and import that.",
        )
    return packed


def _bounded(document: bytes) -> bytes:
    if len(document) > limits.DOCUMENT_BYTES:
        raise TooLarge(f"The document has more than {limits.DOCUMENT_BYTES} bytes.", path="$.url")
    return document


def _reveals_network(error: WaypostError, url: str) -> bool:
    """Whether an error reveals something about a network. A URL with an IP address reveals nothing new; a name may."""
    if isinstance(error, AddressDenied):
        host = (urlsplit(url if "://" in url else f"https://{url}").hostname or "").split(".")[-1]
        return not (host.isdecimal() or ":" in host or host == "localhost")
    return error.details.get("reason") in _UNREACHABLE
