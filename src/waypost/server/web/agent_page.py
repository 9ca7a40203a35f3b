"""The page of one agent: what it does, how to use it, how far it can be trusted, its relatives, history and documents."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from waypost import limits
from waypost.errors import NotFound, WaypostError
from waypost.model.health import HEALTH_WORDS, UNKNOWN
from waypost.model.json import parse_json
from waypost.model.names import fold_tag
from waypost.model.principal import PUBLIC, audience, may_change
from waypost.model.query import Query
from waypost.model.record import AgentRecord, Example
from waypost.model.registration import Registration, trust_of
from waypost.protocols.dialects import DIALECTS
from waypost.registry.reader import VersionComparison
from waypost.registry.registry import Registry
from waypost.server.auth.sessions import WebUser
from waypost.server.renderer import Renderer
from waypost.server.web.agent_cards import AgentListing, agent_path, make_summary, shorten
from waypost.server.web.health_history import HealthHistory
from waypost.server.web.layout import LinkPreview, WebPage
from waypost.server.web.publishers import PublisherIndex
from waypost.server.web.snippets import SnippetContext, make_interfaces

_SIDE_CHARS: Final = 600  # of a value in a comparison
_CHANGED_PATHS: Final = 6
_RELATED: Final = 4
_PREVIEW_CHARS: Final = 200


class AgentPageOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The query parameters of the page: a dialect, two versions, the result of saving."""

    dialect: str
    before: str | None = None
    after: str | None = None
    saved: str | None = None


class DialectTab(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    href: str
    is_chosen: bool
    is_received: bool


class DocumentView(msgspec.Struct, frozen=True, kw_only=True):
    text: str = ""
    remark: str = ""
    losses: list[tuple[str, str]] = []


class ExampleView(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    schemas: list[tuple[str, str]]  # name and JSON


class VersionRow(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    etag: str
    is_current: bool
    changed: str
    compare: str | None


class DifferenceRow(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    before: str | None
    after: str | None


class ComparisonView(msgspec.Struct, frozen=True, kw_only=True):
    error: str = ""
    before: str = ""
    after: str = ""
    rows: list[DifferenceRow] = []


class AgentPage:
    def __init__(self, registry: Registry, renderer: Renderer) -> None:
        self._registry = registry
        self._renderer = renderer
        self._publishers = PublisherIndex(registry)
        self._health = HealthHistory(registry)

    async def page(self, registration: Registration, visitor: WebUser, options: AgentPageOptions) -> WebPage:
        record = registration.record
        summary = make_summary(registration, trust_of(registration))
        may = may_change(visitor.reader, registration.owner)
        context = SnippetContext(
            record=record, base_url=self._renderer.base_url, is_public=registration.visibility == PUBLIC
        )
        values = {
            "agent": summary,
            "record": record,
            "registration": registration,
            "saved": options.saved,
            "may_change": may,
            "health": _health_text(registration, with_reason=may),
            "health_history": self._health.of(registration),
            "tags": [(tag, f"/?{urlencode({'tag': fold_tag(tag)})}") for tag in record.tags],
            "examples": _examples(record),
            "interfaces": make_interfaces(context),
            "similar": await self._similar(registration, visitor),
            "others": await self._others(registration, visitor),
            "tabs": _dialect_tabs(registration, options.dialect),
            "document": self._document(registration, options.dialect),
            "dialect": options.dialect,
            "history": await self._history(registration, visitor) if visitor.reads else None,
            "comparison": await self._comparison(registration, visitor, options) if visitor.reads else None,
        }
        return WebPage(
            template="agent.html",
            title=summary.name,
            values=values,
            visitor=visitor,
            preview=self._preview(registration, summary),
        )

    def _preview(self, registration: Registration, summary: AgentListing) -> LinkPreview | None:
        if registration.visibility != PUBLIC:
            return None
        base_url = self._renderer.base_url
        return LinkPreview(
            title=summary.name,
            description=shorten(registration.record.description, _PREVIEW_CHARS),
            url=f"{base_url}{summary.path}",
            base_url=base_url,
        )

    # --- Relatives -------------------------------------------------------------------------------

    async def _similar(self, registration: Registration, visitor: WebUser) -> list[AgentListing]:
        """Agents that fit the description of this one."""
        record = registration.record
        text = f"{record.name}. {record.description}"[: limits.QUERY_CHARS]
        query = Query(text=text, limit=_RELATED + 1, min_match="possible")
        found = await self._registry.find(query, visitor.reader)
        ids = [each.record.id for each in found.candidates if each.record.id != registration.id]
        return await self._summaries(ids[:_RELATED])

    async def _others(self, registration: Registration, visitor: WebUser) -> list[AgentListing]:
        """Other agents of the publisher that the id names."""
        return await self._summaries(
            self._publishers.others(registration.id, audience(visitor.reader), limits.PAGE_RELATED)
        )

    async def _summaries(self, ids: list[str]) -> list[AgentListing]:
        found = await self._registry.registrations(ids, sources=False)
        return [make_summary(each, trust_of(each)) for each in found]

    # --- History ---------------------------------------------------------------------------------

    async def _history(self, registration: Registration, visitor: WebUser) -> list[VersionRow]:
        found = await self._registry.history(visitor.reader, registration.id, limits.HISTORY_VERSIONS)
        path = agent_path(registration.id)
        older = [line.version.etag for line in found.lines[1:]]
        return [
            VersionRow(
                at=line.version.at,
                etag=line.version.etag,
                is_current=line.current,
                changed="oldest stored version"
                if line.changed is None
                else ", ".join(line.changed[:_CHANGED_PATHS]) or "nothing",
                compare=f"{path}?{urlencode({'from': before, 'to': line.version.etag})}#diff" if before else None,
            )
            for line, before in zip(found.lines, [*older, None], strict=True)
        ]

    async def _comparison(
        self, registration: Registration, visitor: WebUser, options: AgentPageOptions
    ) -> ComparisonView | None:
        if options.before is None:
            return None
        try:
            found = await self._registry.compare(visitor.reader, registration.id, options.before, options.after)
        except NotFound as error:
            return ComparisonView(error=error.message)
        return _comparison_view(found)

    # --- Every dialect ---------------------------------------------------------------------------

    def _document(self, registration: Registration, dialect: str) -> DocumentView:
        try:
            rendering = self._renderer.render(registration, dialect, self._registry.clock.now())
        except WaypostError as error:
            return DocumentView(remark=f"{error.message} {error.hint}")
        losses = [(loss.path, loss.reason) for loss in rendering.losses]
        remark = (
            "As received; whitespace added for reading."
            if registration.source(dialect) is not None
            else "Converted from the record. This dialect cannot carry:"
            if losses
            else "Converted from the record without losses."
        )
        return DocumentView(text=format_document(rendering.body), remark=remark, losses=losses)


def _dialect_tabs(registration: Registration, chosen: str) -> list[DialectTab]:
    path = agent_path(registration.id)
    return [
        DialectTab(
            name=name,
            href=f"{path}?as={name}#record",
            is_chosen=name == chosen,
            is_received=registration.source(name) is not None,
        )
        for name in DIALECTS
    ]


def format_document(body: bytes) -> str:
    """A JSON document, pretty-printed; other text unchanged."""
    try:
        text = json.dumps(parse_json(body), indent=2, ensure_ascii=False)
    except (WaypostError, ValueError):
        text = body.decode("utf-8", "replace")
    if len(text) <= limits.PAGE_DOCUMENT_CHARS:
        return text
    return f"{text[: limits.PAGE_DOCUMENT_CHARS]}\n… {len(text) - limits.PAGE_DOCUMENT_CHARS:,} more characters"


def _health_text(registration: Registration, *, with_reason: bool) -> tuple[str, float | None, str]:
    """State, since when, and why. The reason of a failed health check is shown to the owner only: others could use it to map
    a network."""
    health = registration.health
    if health is None:
        return HEALTH_WORDS[UNKNOWN], None, ""
    return HEALTH_WORDS.get(health.state, health.state), health.since, health.reason if with_reason else ""


def _examples(record: AgentRecord) -> list[ExampleView]:
    """PRO-38: content that the publisher marked as private is not quoted."""
    shown = [each for each in record.examples if not each.extra.get("private")][: limits.PAGE_EXAMPLES]
    return [ExampleView(text=each.text, schemas=_schemas(each)) for each in shown]


def _schemas(example: Example) -> list[tuple[str, str]]:
    named = (("input", example.input_schema), ("output", example.output_schema))
    return [(name, json.dumps(schema, indent=2, ensure_ascii=False)) for name, schema in named if schema is not None]


def _comparison_view(found: VersionComparison) -> ComparisonView:
    rows = [
        DifferenceRow(path=each.path, before=_side(each.before), after=_side(each.after)) for each in found.differences
    ]
    return ComparisonView(before=found.before.etag, after=found.after.etag, rows=rows)


def _side(value: Any) -> str | None:
    if value is msgspec.UNSET:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SIDE_CHARS else f"{text[:_SIDE_CHARS]}…"
