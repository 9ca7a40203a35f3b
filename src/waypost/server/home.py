"""The first page: what this service is, which public agents it knows, and where to go on.

Under the domain of a hosted agent it is the page of that agent alone.
"""

from __future__ import annotations

import html
from collections.abc import Awaitable, Callable

from waypost import __version__
from waypost.model.names import slug
from waypost.model.principal import PUBLIC
from waypost.model.registration import Registration, verdicts_of
from waypost.model.verdict import BADGES, level_of
from waypost.registry.engine import Registry
from waypost.server.asgi import AnyResponse, Request, Response
from waypost.server.conditional import http_date, not_modified, strong_etag
from waypost.server.pages import html_response, page, shown_text, style_route
from waypost.server.routes import Body, Call, Route

_SHOWN = 100
_AUDIENCE = frozenset((PUBLIC,))

Hosted = Callable[[Request], Awaitable[Registration | None]]


class HomeFace:
    def __init__(self, registry: Registry, service: Registration, hosted: Hosted, *, open_access: bool) -> None:
        self._registry = registry
        self._service = service
        self._hosted = hosted
        self._open_access = open_access

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/",
                operation="document",
                handler=self.home,
                summary="The first page",
                answers={200: Body(schema={"type": "string"}, content_type="text/html")},
                open=True,
            ),
            style_route(),
        ]

    async def home(self, call: Call) -> AnyResponse:
        alone = await self._hosted(call.request)
        if alone is not None:
            return _answer(call, page(alone.record.name, _alone_html(alone)), alone.changed_at)
        changed = self._registry.catalogue.last_modified(_AUDIENCE) or 0.0
        return _answer(call, await self._all_agents(), max(self._service.changed_at, changed))

    async def _all_agents(self) -> bytes:
        self._registry.catalogue.expire(self._registry.clock.now())
        entries, total = self._registry.catalogue.page(_AUDIENCE, limit=_SHOWN)
        agents = await self._registry.registrations([entry.id for entry in entries], sources=False)
        rows = "".join(map(_agent_html, agents)) or '<li class="soft">No public agent is registered yet.</li>'
        more = f'<p class="soft">and {total - _SHOWN} more</p>' if total > _SHOWN else ""
        note = (
            '<p class="note">Authentication is off: everyone who reaches this address may write.</p>'
            if self._open_access
            else ""
        )
        return page(
            "Agents",
            f"<h1>Waypost</h1><p>An agent registry, version {html.escape(__version__)}. {total} public agents.</p>{note}"
            '<p><a href="/docs">API reference</a> · <a href="/.well-known/ai-catalog.json">AI Catalog</a> · '
            '<a href="/.well-known/agentframework/v1/agents">Agent Framework list</a> · '
            '<a href="/.well-known/agent-card.json">A2A card</a></p>'
            f'<ul class="agents">{rows}</ul>{more}',
        )


def _answer(call: Call, body: bytes, changed_at: float) -> Response:
    etag = strong_etag(body, b"text/html")
    fresh = not_modified(call.request, etag, changed_at)
    response = html_response(b"", 304) if fresh else html_response(body)
    return response.add(b"etag", etag).add(b"last-modified", http_date(changed_at))


def _alone_html(registration: Registration) -> str:
    record = registration.record
    return (
        f"<h1>{shown_text(record.name)} {_badge_html(registration)}</h1><p>{shown_text(record.description)}</p>"
        f"<p>{_tags_html(record.tags)}</p>"
        f'<p class="soft"><code>{shown_text(record.id)}</code></p>'
        '<p><a href="/.well-known/agent.json">ADP document</a> · <a href="/.well-known/agent-card.json">A2A card</a> · '
        '<a href="/.well-known/agent-card">Agent Framework card</a></p>'
    )


def _agent_html(registration: Registration) -> str:
    record = registration.record
    link = f"/.well-known/agent-card?agent={slug(record.id)}"  # open to all, as this page is
    return (
        f'<li class="agent"><h2><a href="{html.escape(link)}">{shown_text(record.name)}</a> {_badge_html(registration)}</h2>'
        f"<p>{shown_text(record.description[:300])}</p><p>{_tags_html(record.tags)}</p>"
        f'<p class="soft"><code>{shown_text(record.id)}</code></p></li>'
    )


def _badge_html(registration: Registration) -> str:
    level = level_of(verdicts_of(registration))
    return f'<span class="badge {level}">{BADGES[level]}</span>'


def _tags_html(tags: tuple[str, ...]) -> str:
    return " ".join(f'<span class="tag">{shown_text(tag)}</span>' for tag in tags[:8])
