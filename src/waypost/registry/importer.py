"""From an address to agents: fetch, recognise, decode, verify; show what was found, and register it when that is wanted.

How a document gets here is the fetcher's business. What may be told of a failure is decided here: who is not an admin learns
only that an address could not be reached, and always equally late, so that nobody maps a network by asking for it.
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
from waypost.model.principal import Principal
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
from waypost.trust.policy import may_see

WELL_KNOWN = (
    "/.well-known/agent-card.json",
    "/.well-known/agent.json",
    "/.well-known/ai-catalog.json",
    "/.well-known/agentframework/v1/agents",
    "/",
)
_CATALOGS = ("ai-catalog.json", "/agents", "/servers")
# What is told apart only for admins: it says something of a network, not of a document.
_UNREACHABLE = frozenset(("no_address", "refused", "timed_out", "tls", "protocol"))


class ImportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller said of an import."""

    url: str
    save: bool = False
    dialect: str | None = None
    digest: str | None = None  # of what was shown: nothing else is saved
    organisation: bool = False  # of a domain: everything that it lists
    visibility: str | None = None
    ttl_seconds: int | None = None


class ImportedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """One document at the address, or why it is none. `receipt` when it was registered."""

    document: bytes
    dialect: str = ""
    decoded: Decoded | None = None
    trust: TrustSummary = TrustSummary(level="self_asserted")
    existing: ExistingAgent | None = None  # what is registered under its id already
    receipt: PublicationReceipt | None = None
    error: WaypostError | None = None
    url: str = ""  # where it is, when that is not where all of them are

    def agent(self) -> dict[str, Any] | None:
        return record_to_json(self.decoded.record) if self.decoded is not None else None


class ImportResult(msgspec.Struct, frozen=True, kw_only=True):
    url: str  # where the document is, after redirects and well-known paths
    digest: str
    agents: tuple[ImportedAgent, ...]


class Importer:
    def __init__(
        self, registry: Registry, fetcher: Fetcher, *, discreet_seconds: float = limits.FETCH_DISCREET_SECONDS
    ) -> None:
        self._registry = registry
        self._fetcher = fetcher
        self._discreet_seconds = discreet_seconds
        self._joining = RecordLinker(registry)

    async def find(self, principal: Principal, wanted: ImportRequest) -> ImportResult:
        """Fetch and look; with `save` register what was found. One document of a catalogue that is refused stops no other."""
        fetched, documents = await self._discreetly(principal, wanted)
        digest = hashlib.sha256(fetched.body).hexdigest()
        if wanted.digest is not None and wanted.digest != digest:
            raise PreconditionFailed(
                "The document has changed since it was shown.", path="$.digest", hint="Fetch it again, and look."
            )
        take = self._save if wanted.save else self._preview
        agents = [await self._one(principal, wanted, fetched.url, document, take) for document in documents]
        if len(agents) == 1 and agents[0].error is not None:
            raise agents[0].error
        return ImportResult(url=fetched.url, digest=digest, agents=tuple(agents))

    async def take(self, principal: Principal, wanted: ImportRequest, document: bytes) -> ImportResult:
        """The same for one document that is at hand: looked at, or saved if it is what was shown."""
        digest = hashlib.sha256(document).hexdigest()
        if wanted.digest is not None and wanted.digest != digest:
            raise PreconditionFailed(
                "The document is not the one that was shown.", path="$.digest", hint="Look at it again."
            )
        take = self._save if wanted.save else self._preview
        found = await self._one(principal, wanted, None, document, take)
        if found.error is not None:
            raise found.error
        return ImportResult(url="", digest=digest, agents=(found,))

    # --- Fetching --------------------------------------------------------------------------------

    async def _discreetly(self, principal: Principal, wanted: ImportRequest) -> tuple[FetchResponse, Sequence[bytes]]:
        began = time.monotonic()
        try:
            return await self._fetch(wanted)
        except (AddressDenied, FetchFailed) as error:
            if principal.is_admin or not _reveals_network(error, wanted.url):
                raise
        await asyncio.sleep(max(0.0, began + self._discreet_seconds - time.monotonic()))
        raise FetchFailed(
            "The address could not be reached.",
            path="$.url",
            hint="Is it up, and public? Private networks are reached when the setting allow_cidrs names them.",
            details={"reason": "unreachable"},
        )

    async def _fetch(self, wanted: ImportRequest) -> tuple[FetchResponse, Sequence[bytes]]:
        candidates = _candidates(wanted.url)
        if len(candidates) == 1:
            fetched = await self._fetcher.fetch(candidates[0], _purpose(candidates[0]))
            return fetched, _documents(fetched)
        for url in candidates:
            try:
                fetched = await self._fetcher.fetch(url, _purpose(url))
                documents = _documents(fetched)
                if documents:
                    self._registry.decode(documents[0], dialect=wanted.dialect, source_url=fetched.url)
                    return fetched, documents
            except FetchFailed as error:
                if error.details.get("reason") in _UNREACHABLE:
                    raise
            except (UnknownDialect, MalformedJson):
                continue  # an answer for everything is no document
        raise FetchFailed(
            "None of the well-known documents is there.",
            path="$.url",
            hint=f"Name a document, or serve one of {', '.join(WELL_KNOWN[:3])}.",
            details={"reason": "not_found"},
        )

    # --- What was found --------------------------------------------------------------------------

    async def _one(
        self,
        principal: Principal,
        wanted: ImportRequest,
        url: str | None,
        document: bytes,
        take: Callable[[Publication], Awaitable[ImportedAgent]],
    ) -> ImportedAgent:
        try:
            publication = self._fetched(principal, wanted, url, document)
            return await take(await self._joining.beside(publication) if url is not None else publication)
        except WaypostError as error:
            return ImportedAgent(document=document, error=error)

    def _fetched(self, principal: Principal, wanted: ImportRequest, url: str | None, document: bytes) -> Publication:
        dialect, decoded = self._registry.decode(document, dialect=wanted.dialect, source_url=url)
        return Publication(
            dialect=dialect,
            document=document,
            decoded=decoded,
            principal=principal,
            via=IMPORT_VIA if url is not None else "page",
            visibility=wanted.visibility,
            ttl_seconds=wanted.ttl_seconds,
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
        """Whether the caller has proven the domain of it, whose record it would become."""
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
    """The document that is named; for a bare host or origin, where documents usually are."""
    text = url if "://" in url or "." not in url.split("/")[0] else f"https://{url}"
    try:
        parts = urlsplit(text)
    except ValueError:
        return [text]
    if parts.path not in ("", "/") or parts.query or parts.fragment or "?" in text:
        return [text]
    return [text.rstrip("/") + path for path in WELL_KNOWN]


def _purpose(url: str) -> FetchPurpose:
    """A list may be larger than a card."""
    return "peer" if url.split("?", 1)[0].endswith(_CATALOGS) else "card"


def _documents(fetched: FetchResponse) -> list[bytes]:
    """The documents in an answer. What cannot be read is told in words of our own: nothing of it is repeated (S9)."""
    if not fetched.is_success:
        raise FetchFailed(
            f"The other server answered with status {fetched.status}.",
            path="$.url",
            hint="Is the document there?",
            details={"reason": "status", "answered": fetched.status},
        )
    if is_sexpr_text(fetched.body):
        return [fetched.body]
    try:
        packed = unpack_documents(fetched.body)
    except (msgspec.DecodeError, RecursionError):
        raise FetchFailed(
            "What is there is not a document of any dialect.",
            path="$.url",
            hint="Name the address of a card, a manifest or a catalogue.",
            details={"reason": "not_a_document"},
        ) from None
    if packed is None:
        return [_bounded(fetched.body)]
    if len(packed) > limits.FETCH_DOCUMENTS:
        raise TooLarge(
            f"The catalogue has {len(packed)} entries; at most {limits.FETCH_DOCUMENTS} are taken at once.",
            path="$.url",
            hint="Save it as a file, and import that.",
        )
    return packed


def _bounded(document: bytes) -> bytes:
    if len(document) > limits.DOCUMENT_BYTES:
        raise TooLarge(f"The document has more than {limits.DOCUMENT_BYTES} bytes.", path="$.url")
    return document


def _reveals_network(error: WaypostError, url: str) -> bool:
    """Whoever writes an address as a number knows what it is; behind a name there may be something to learn."""
    if isinstance(error, AddressDenied):
        host = (urlsplit(url if "://" in url else f"https://{url}").hostname or "").split(".")[-1]
        return not (host.isdecimal() or ":" in host or host == "localhost")
    return error.details.get("reason") in _UNREACHABLE
