"""Renders registrations as documents: verbatim in the dialect they were received in, mapped in the others.

Also the responses with documents that several APIs share: receipts of writes, one document, a list.
Renderings are cached, bounded by bytes, until the registration changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, get_args

import msgspec

from waypost import limits
from waypost.cache import LruCache
from waypost.errors import NotFound, WaypostError
from waypost.model.federation import peer_of
from waypost.model.health import UNHEALTHY, UNKNOWN
from waypost.model.json import JsonObject, dump_json, parse_json
from waypost.model.principal import PUBLIC, Principal
from waypost.model.query import Suggestions
from waypost.model.record import AgentRecord, MappingLoss
from waypost.model.registration import CatalogEntry, Registration, SourceDocument, verdicts_of
from waypost.model.times import rfc3339_or_none, to_rfc3339
from waypost.model.verdict import TRUST_MEMBER, TrustState, level_of, trust_summary
from waypost.protocols.a2a.legacy import to_both_forms, to_current_form, to_older_form
from waypost.protocols.ard.codec import INLINE_DIALECTS
from waypost.protocols.codec import DERIVED, EncodeContext
from waypost.protocols.dialects import DIALECTS, get_codec
from waypost.protocols.rtfs.agent_profile import export_profile, parse_profile
from waypost.protocols.rtfs.card_derivation import derive_card
from waypost.protocols.rtfs.codec import CARD, is_envelope, upgrade_card
from waypost.protocols.rtfs.sexpr import RTFS_TEXT_TYPE, is_sexpr_text
from waypost.registry.find.empty_results import suggestion_warnings
from waypost.registry.publication import EntryPage, PublicationReceipt, pending_view, representation_etag
from waypost.registry.registry import Registry
from waypost.responses.agents import Page, Receipt
from waypost.responses.base import embedded
from waypost.responses.federation import federation_view
from waypost.server.http.asgi import Request, Response, json_response
from waypost.server.http.conditional_requests import format_http_date, is_not_modified, quote_etag, strong_etag
from waypost.server.http.content_coding import not_modified_response
from waypost.server.http.request_params import AnswerBudget

TRUST_HEADER = b"waypost-trust"
HEALTH_HEADER = b"waypost-health"
FEDERATION_MEMBER = "federation"

_WITH_TRUST_METADATA = frozenset(("af", "ard"))  # dialects with free-form metadata
# Dialects that are received inside an envelope are served without it.
_ENVELOPES = {"rtfs": "agent_card", "announce": "agent"}
# Header pairs that renderings share, to save memory.
_CONTENT_TYPES = {name: dialect.codec.media_type.encode() for name, dialect in DIALECTS.items()}
_TYPE_HEADERS = {name: (b"content-type", media_type) for name, media_type in _CONTENT_TYPES.items()}
_TRUST_HEADERS = {level: (TRUST_HEADER, level.encode()) for level in get_args(TrustState)}
_PRIVATE = ((b"vary", b"Authorization, Accept"), (b"cache-control", b"private, no-cache"))
_NO_LOSSES = (b"waypost-losses", b"[]")
# Forms that are not what the codec writes: a function of the received document, if any, and of the written one.
_FORM_WRITERS: dict[tuple[str, str], Callable[[JsonObject | None, JsonObject], JsonObject]] = {
    ("a2a", "current"): to_current_form,
    ("a2a", "0.3"): to_older_form,
    ("a2a", "both"): to_both_forms,
}


class RenderedDocument(msgspec.Struct, frozen=True, gc=False):
    revision: int
    body: bytes
    etag: str  # quoted
    losses: tuple[MappingLoss, ...]
    content_type: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    changed_at: float
    trust: TrustState


class Renderer:
    """`base_url` and `host` are those of the service, for links in mapped documents."""

    def __init__(self, base_url: str, host: str) -> None:
        self.base_url = base_url
        self.host = host
        self._cache: LruCache[tuple[str, str], RenderedDocument] = LruCache(
            limits.RENDERING_CACHE_BYTES, lambda rendering: len(rendering.body)
        )

    def find(self, agent_id: str, dialect: str, revision: int) -> RenderedDocument | None:
        """The cached rendering of a revision."""
        cached = self._cache.get((agent_id, dialect))
        return cached if cached is not None and cached.revision == revision else None

    def can_render(self, registration: Registration, dialect: str) -> bool:
        return bool(registration.record.bindings) or not DIALECTS[dialect].needs_bindings

    def render(self, registration: Registration, dialect: str, now: float) -> RenderedDocument:
        if not self.can_render(registration, dialect):
            raise NotFound(
                f"This agent has no endpoint, so it has no {dialect} document.",
                path="as",
                hint="Read it in another dialect. Its owner may register it again with an endpoint.",
            )
        rendering = self._rendering(registration, dialect, self._body(registration, dialect, now))
        self._cache.put((registration.id, dialect), rendering)
        return rendering

    def render_form(self, registration: Registration, dialect: str, form: str, now: float) -> RenderedDocument:
        """The document in one form of its dialect, whatever form was received (`FORMS` of request_params.py)."""
        if not self.can_render(registration, dialect):
            return self.render(registration, dialect, now)  # raises
        name = f"{dialect};{form}"
        cached = self.find(registration.id, name, registration.revision)
        if cached is not None:
            return cached
        body, losses = self._encode(registration, dialect, now)
        rewrite = _FORM_WRITERS.get((dialect, form))
        if rewrite is not None:
            source = registration.source(dialect)
            received = None if source is None else parse_rendered(source.document)
            written = rewrite(received, parse_rendered(body))
            body = source.document if source is not None and written is received else dump_json(written)
        rendering = self._rendering(registration, dialect, (body, losses))
        etag = f'{rendering.etag[:-1]}-{form}"'
        headers = tuple((key, etag.encode() if key == b"etag" else value) for key, value in rendering.headers)
        rendering = msgspec.structs.replace(rendering, etag=etag, headers=headers)
        self._cache.put((registration.id, name), rendering)
        return rendering

    def _rendering(
        self, registration: Registration, dialect: str, encoded: tuple[bytes, tuple[MappingLoss, ...]]
    ) -> RenderedDocument:
        body, losses = encoded
        expires_at = registration.expires_at
        changed_at = max(registration.changed_at, registration.renewed_at if expires_at is not None else 0.0)
        is_unhealthy = registration.is_unhealthy
        tag = representation_etag(registration.etag, expires_at, _representation(dialect), is_unhealthy=is_unhealthy)
        trust = level_of(verdicts_of(registration))
        health = None if registration.health is None else registration.health.state
        return _make_rendered(registration.revision, dialect, body, losses, tag, changed_at, trust, health)

    def render_agent_profile(self, registration: Registration, now: float) -> RenderedDocument:
        """An `(agent-profile …)` text: as it was registered, else made from the agent's card (rtfs.md §3, reverse)."""
        card = self.render(registration, "rtfs", now)
        source = registration.source("rtfs")
        if source is not None and is_sexpr_text(source.document):
            body, losses = source.document, card.losses
        else:
            text, lost = export_profile(upgrade_card(parse_rendered(card.body)))
            body = text.encode()
            losses = (*card.losses, *(MappingLoss(f"$.{name}", "an agent profile has no such member") for name in lost))
        etag, content_type = f'{card.etag[:-1]}-profile"', RTFS_TEXT_TYPE.encode()
        changed = {
            b"etag": etag.encode(),
            b"content-type": content_type,
            b"waypost-losses": losses_header(losses),
        }
        headers = tuple((name, changed.get(name, value)) for name, value in card.headers)
        return msgspec.structs.replace(
            card, body=body, etag=etag, losses=losses, content_type=content_type, headers=headers
        )

    def render_received(self, entry: CatalogEntry, dialect: str, document: bytes) -> RenderedDocument:
        """A received document in its own dialect. The agent must not have a lease or an expiry date."""
        is_unhealthy = entry.health == UNHEALTHY
        tag = representation_etag(entry.etag, None, _representation(dialect), is_unhealthy=is_unhealthy)
        health = None if entry.health == UNKNOWN else entry.health
        rendering = _make_rendered(entry.revision, dialect, document, (), tag, entry.changed_at, entry.trust, health)
        self._cache.put((entry.id, dialect), rendering)
        return rendering

    def document(self, registration: Registration, dialect: str, now: float) -> JsonObject:
        """The rendering as JSON."""
        return parse_rendered(self.render(registration, dialect, now).body)

    def context(self, registration: Registration, now: float) -> EncodeContext:
        return EncodeContext(
            now=now,
            base_url=self.base_url,
            host=self.host,
            announce_id=registration.announce_id,
            updated_at=registration.changed_at,
            created_at=registration.created_at,
        )

    def _body(self, registration: Registration, dialect: str, now: float) -> tuple[bytes, tuple[MappingLoss, ...]]:
        body, losses = self._own_or_mapped(registration, dialect, now)
        if dialect == "profile" and registration.federation is not None:
            view = federation_view(registration.federation)  # PRO-44: whoever reads it can tell the origin
            body = dump_json({**parse_rendered(body), FEDERATION_MEMBER: view})
        return body, losses

    def _own_or_mapped(
        self, registration: Registration, dialect: str, now: float
    ) -> tuple[bytes, tuple[MappingLoss, ...]]:
        source = registration.source(dialect)
        if source is not None:
            received = received_document(source)
            if received is not None:
                return received, ()
        return self._encode(registration, dialect, now)

    def _encode(self, registration: Registration, dialect: str, now: float) -> tuple[bytes, tuple[MappingLoss, ...]]:
        record = registration.record
        if registration.lease_expires_at is not None and record.expires_at is None:
            record = msgspec.structs.replace(record, expires_at=to_rfc3339(registration.lease_expires_at))
        if registration.is_unhealthy:
            record = msgspec.structs.replace(record, status=registration.status)
        if dialect == "profile":
            record = _with_derived_dates(record, registration)
        if TRUST_MEMBER in record.extra:  # only the service may set it in a document that it writes
            extra = {name: value for name, value in record.extra.items() if name != TRUST_MEMBER}
            record = msgspec.structs.replace(record, extra=extra)
        context = self.context(registration, now)
        if dialect == "adp" and registration.hosted is not None:
            context = msgspec.structs.replace(context, host=registration.hosted)
        encoded = get_codec(dialect).encode(record, context)
        if dialect in _WITH_TRUST_METADATA:
            add_trust_metadata(encoded.document, registration, scalar=dialect == "ard")
        return dump_json(encoded.document), encoded.losses


class ArdEntryWriter:
    """Catalog entries: as published or mapped, with the trust level.

    A mapped entry links to a document of this service only if anyone may read it there under the entry's media type:
    the A2A card of a public agent. Other documents are inline.
    """

    def __init__(self, registry: Registry, renderer: Renderer) -> None:
        self._registry = registry
        self._renderer = renderer

    def entry(self, registration: Registration) -> JsonObject:
        now = self._registry.clock.now()
        entry = self._document(registration, "ard", now)
        add_trust_metadata(entry, registration, scalar=True)
        dialect = self._inline_dialect(entry, registration)
        if dialect is not None:
            del entry["url"]
            entry["data"] = self._document(registration, dialect, now)
        return entry

    def _document(self, registration: Registration, dialect: str, now: float) -> JsonObject:
        if dialect in ("a2a", "mcp"):
            rendering = self._renderer.render_form(registration, dialect, "current", now)
        else:
            cached = self._renderer.find(registration.id, dialect, registration.revision)
            rendering = cached or self._renderer.render(registration, dialect, now)
        return parse_rendered(rendering.body)

    def _inline_dialect(self, entry: JsonObject, registration: Registration) -> str | None:
        """The dialect of the document to embed; None if the entry has a link that anyone may follow."""
        if not str(entry.get("url", "")).startswith(f"{self._renderer.base_url}/") or registration.source("ard"):
            return None
        dialect = INLINE_DIALECTS.get(entry["type"])
        return None if dialect == "a2a" and registration.visibility == PUBLIC else dialect


class DocumentReader:
    """Reads agents as documents of one dialect, from the cache of renderings where possible."""

    def __init__(self, registry: Registry, renderer: Renderer) -> None:
        self._registry = registry
        self._renderer = renderer

    async def get(self, principal: Principal, agent_id: str, dialect: str) -> RenderedDocument:
        """The document of an agent that the caller may see. `agent_id` is any of its names."""
        entry = self._registry.resolve(principal, agent_id)
        cached = self._renderer.find(entry.id, dialect, entry.revision)
        if cached is not None:
            return cached
        is_copy = dialect == "profile" and peer_of(entry.owner) is not None  # it is served with its origin
        is_verbatim = is_served_verbatim(dialect) and not is_copy
        received = await self._registry.received(entry, dialect) if is_verbatim else None
        if received is not None:
            return self._renderer.render_received(entry, dialect, received)
        registration = await self._registry.get(principal, agent_id)
        return self._renderer.render(registration, dialect, self._registry.clock.now())

    async def get_form(self, principal: Principal, agent_id: str, dialect: str, form: str) -> RenderedDocument:
        """The document in one form of its dialect, whatever form was received."""
        registration = await self._registry.get(principal, agent_id)
        return self._renderer.render_form(registration, dialect, form, self._registry.clock.now())

    async def get_agent_profile(self, principal: Principal, agent_id: str) -> RenderedDocument:
        """The `(agent-profile …)` text of an agent that the caller may see."""
        registration = await self._registry.get(principal, agent_id)
        return self._renderer.render_agent_profile(registration, self._registry.clock.now())

    async def page(self, page: EntryPage, dialect: str) -> tuple[Page, EntryPage]:
        """A page of documents, and the entries it covers: fewer than requested if it would be too large. Renderings are
        embedded, so that cached documents are not encoded again."""
        budget = AnswerBudget()
        documents: list[bytes] = []
        for start in range(0, len(page.entries), limits.ANSWER_READ_DOCUMENTS):
            entries = page.entries[start : start + limits.ANSWER_READ_DOCUMENTS]
            bodies = await self._render_all(entries, dialect)
            for offset, entry in enumerate(entries):
                body = bodies.get(entry.id)
                if body is not None and not budget.take(len(body)):
                    page = page.first(start + offset)
                    return Page(agents=tuple(map(embedded, documents)), next_cursor=page.next_cursor), page
                if body is not None:
                    documents.append(body)
        return Page(agents=tuple(map(embedded, documents)), next_cursor=page.next_cursor), page

    async def _render_all(self, entries: Sequence[CatalogEntry], dialect: str) -> dict[str, bytes]:
        """The documents of those agents that have one in this dialect."""
        bodies: dict[str, bytes] = {}
        for entry in entries:
            cached = self._renderer.find(entry.id, dialect, entry.revision)
            if cached is not None:
                bodies[entry.id] = cached.body
        now = self._registry.clock.now()
        missing = [entry.id for entry in entries if entry.id not in bodies]
        for registration in await self._registry.registrations(missing) if missing else ():
            if self._renderer.can_render(registration, dialect):
                bodies[registration.id] = self._renderer.render(registration, dialect, now).body
        return bodies


def _with_derived_dates(record: AgentRecord, registration: Registration) -> AgentRecord:
    """Status and time for an agent whose dialect has neither (rtfs.md §8, announce.md §13)."""
    derived = {"status": record.effective_status, "updated_at": to_rfc3339(registration.changed_at)}
    missing = {name: value for name, value in derived.items() if getattr(record, name) is None}
    if not missing:
        return record
    before = record.extra.get(DERIVED)  # of any type, because it may come from the document
    names = [*(name for name in (before if isinstance(before, list) else ()) if name not in missing), *missing]
    return msgspec.structs.replace(record, extra=record.extra | {DERIVED: names}, **missing)


def _representation(dialect: str) -> str:
    return "" if dialect == "profile" else dialect


def _make_rendered(
    revision: int,
    dialect: str,
    body: bytes,
    losses: tuple[MappingLoss, ...],
    tag: str,
    changed_at: float,
    trust: TrustState,
    health: str | None,
) -> RenderedDocument:
    """Trust level and health are headers: the document contains only what its publisher says."""
    etag = f'"{tag}"'
    headers = (
        (b"etag", etag.encode()),
        (b"last-modified", format_http_date(changed_at)),
        *_PRIVATE,
        (b"waypost-losses", losses_header(losses)) if losses else _NO_LOSSES,
        _TRUST_HEADERS[trust],
        *(((HEALTH_HEADER, health.encode()),) if health is not None else ()),
        _TYPE_HEADERS[dialect],
    )
    return RenderedDocument(revision, body, etag, losses, _CONTENT_TYPES[dialect], headers, changed_at, trust)


def is_served_verbatim(dialect: str) -> bool:
    """True if documents of this dialect are served byte for byte, False if they are taken out of an envelope."""
    return dialect not in _ENVELOPES


def received_document(source: SourceDocument) -> bytes | None:
    """The received document without its envelope; None if it cannot be parsed. A profile text is served as its card."""
    inner = _ENVELOPES.get(source.dialect)
    if inner is None:
        return source.document
    if is_sexpr_text(source.document):
        return dump_json(registered_card(source))
    try:
        document = parse_json(source.document)
    except WaypostError:
        return None
    is_envelope = isinstance(document, dict) and isinstance(document.get(inner), dict) and "agent_id" not in document
    return dump_json(document[inner]) if is_envelope else source.document


def registered_card(source: SourceDocument) -> JsonObject:
    """The agent_card of an RTFS source, as registered or derived from a profile text."""
    if is_sexpr_text(source.document):
        return derive_card(parse_profile(source.document), base=source.url)[0]
    document: JsonObject = msgspec.json.decode(source.document)  # validated on registration
    card: JsonObject = document[CARD] if is_envelope(document) else document
    return card


def add_trust_metadata(document: JsonObject, registration: Registration, *, scalar: bool = False) -> None:
    """Add the trust summary to the `metadata` of a document, replacing a claim of that name. `scalar`: only the level,
    for dialects whose metadata must not contain objects."""
    claimed = document.get("metadata")
    metadata = dict(claimed) if isinstance(claimed, dict) else {}
    metadata.pop(TRUST_MEMBER, None)
    verdicts = verdicts_of(registration)
    level = level_of(verdicts)
    if level != "self_asserted":
        metadata[TRUST_MEMBER] = level if scalar else msgspec.to_builtins(trust_summary(verdicts))
    if metadata or isinstance(claimed, dict):
        document["metadata"] = metadata


def parse_rendered(body: bytes) -> JsonObject:
    """The JSON of a rendering. It has no size limit: mapping can make a document larger than the received one."""
    return msgspec.json.decode(body, type=dict[str, Any])


def losses_header(losses: tuple[MappingLoss, ...]) -> bytes:
    """The losses as a JSON array in ASCII. Items that would make the header too long are left out."""
    items = [json.dumps({"path": loss.path, "reason": loss.reason}, separators=(",", ":")).encode() for loss in losses]
    shown: list[bytes] = []
    size = 2
    for item in items:
        size += len(item) + 1
        if size > 4 * limits.KIB:
            break
        shown.append(item)
    return b"[" + b",".join(shown) + b"]"


def to_receipt(receipt: PublicationReceipt) -> Receipt:
    """The receipt of a write as answers show it."""
    return Receipt(
        id=receipt.id,
        aliases=receipt.aliases,
        dialect=receipt.dialect,
        outcome=receipt.outcome,
        etag=receipt.etag,
        losses=receipt.losses,
        warnings=receipt.warnings,
        trust=receipt.trust,
        held=None if receipt.held is None else pending_view(receipt.held),
        expires_at=rfc3339_or_none(receipt.expires_at),
        ttl_seconds=receipt.ttl_seconds,
    )


def suggestion_members(suggestions: Suggestions) -> dict[str, Any]:
    """The members of a list that suggest known tags for unknown ones; none without suggestions."""
    if not suggestions:
        return {}
    return {"suggestions": {"tags": suggestions}, "warnings": tuple(suggestion_warnings(suggestions))}


def write_response(receipt: PublicationReceipt, location: str) -> Response:
    """201 for a new agent, 202 for a change that awaits confirmation, 200 otherwise."""
    response = json_response(to_receipt(receipt), 201 if receipt.created else 202 if receipt.held else 200)
    return response.add(b"location", location).add(b"etag", quote_etag(receipt.etag))


def document_response(request: Request, rendering: RenderedDocument) -> Response:
    if is_not_modified(request, rendering.etag, rendering.changed_at):
        headers = [pair for pair in rendering.headers if pair[0] != b"content-type"]
        return not_modified_response(request, headers, rendering.body)
    response = Response(200, headers=list(rendering.headers))
    response.body = rendering.body
    return response


def list_response(request: Request, body: bytes, last_modified: float | None) -> Response:
    etag = strong_etag(body, b"application/json")
    headers = [(b"etag", etag.encode()), (b"vary", b"Authorization, Accept"), (b"cache-control", b"private, no-cache")]
    if last_modified is not None:
        headers.append((b"last-modified", format_http_date(last_modified)))
    if is_not_modified(request, etag, last_modified):
        return not_modified_response(request, headers, body)
    return Response(200, body, headers=headers)
