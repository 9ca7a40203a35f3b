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
    PreconditionFailed,
    WaypostError,
)
from waypost.model.principal import Principal, may_see
from waypost.model.record import record_to_json
from waypost.model.verdict import TrustSummary, Verdict, trust_summary
from waypost.protocols.codec import Decoded
from waypost.registry.document_fetch import UNREACHABLE, fetch_documents
from waypost.registry.domain_proofs import check_domain_proof, proof_notes
from waypost.registry.ports import Fetcher, FetchResponse
from waypost.registry.publication import IMPORT_VIA, Publication, PublicationReceipt
from waypost.registry.record_linkage import RecordLinker
from waypost.registry.registry import Registry
from waypost.responses.agents import ExistingAgent


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
        def recognise(document: bytes, url: str) -> None:
            self._registry.decode(document, dialect=request.dialect, source_url=url)

        return await fetch_documents(self._fetcher, request.url, recognise)

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


def _reveals_network(error: WaypostError, url: str) -> bool:
    """Whether an error reveals something about a network. A URL with an IP address reveals nothing new; a name may."""
    if isinstance(error, AddressDenied):
        host = (urlsplit(url if "://" in url else f"https://{url}").hostname or "").split(".")[-1]
        return not (host.isdecimal() or ":" in host or host == "localhost")
    return error.details.get("reason") in UNREACHABLE
