"""Agents as people see them in lists: initial, publisher, trust, health, protocols, and the reasons of a match.

A card is a function of the registration, so its HTML is cached. What a search adds is rendered each time.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from markupsafe import Markup

from waypost import limits
from waypost.cache import LruCache
from waypost.model.health import DOWN, HEALTH_WORDS, UNKNOWN
from waypost.model.names import slug
from waypost.model.query import Evidence, MatchedAgent
from waypost.model.record import AgentRecord, protocols_of
from waypost.model.registration import Registration
from waypost.model.verdict import TrustSummary
from waypost.server.web.publishers import find_publisher_of
from waypost.server.web.templating import TEMPLATES, render
from waypost.server.web.trust_ladder import TrustLadder, make_trust_ladder

_DESCRIPTION_CHARS: Final = 240
_MAX_TAGS: Final = 5
_SIGNAL_MEANINGS: Final = {  # docs/explanation/search.md defines them
    "words": "how well it matches your words",
    "spelling": "words that are spelled alike",
    "coverage": "how much of your query it mentions",
    "name": "your words in its name",
    "context": "how near it is in meaning",
    "example": "how near its best example is",
    "freshness": "how recently it was updated",
    "tag": "tags that you asked for",
    "preference": "what you prefer",
    "policy": "what was verified, or failed",
}
_SHOWN_COMPONENT: Final = 0.005  # less would be shown as 0.00
_HUES: Final = 10  # classes of the style sheet
_LINE_ENDS: Final = re.compile(r"[\r\n\t]+")
_FLAGS: Final = {
    "suspicious_text": "its text tries to instruct the reader",
    "hidden_text": "it contains hidden text",
    "confusable_name": "its name resembles that of a verified agent",
}
# The colour of a protocol, by its family; all others are grey.
_FAMILIES: Final = {
    "a2a": "a2a",
    "mcp": "mcp",
    "mcp-package": "mcp",
    "agp": "adp",
    "adp": "adp",
    "http": "http",
    "https": "http",
    "http-rest": "http",
    "json-rpc": "rpc",
    "grpc": "rpc",
    "ws": "socket",
    "wss": "socket",
    "websocket": "socket",
    "tcp": "socket",
}
_HEALTH_CLASSES: Final = {"healthy": "good", "suspect": "careful", **dict.fromkeys(DOWN, "bad")}


def agent_path(agent_id: str) -> str:
    return f"/a/{slug(agent_id)}"


def protocol_class(protocol: str) -> str:
    """The class that gives a protocol its colour."""
    return f"protocol p-{_FAMILIES.get(protocol.partition('+')[0].lower(), 'other')}"


def hue_of(text: str) -> int:
    """The colour of an agent's initial: the same on every page, and for all agents of a publisher."""
    return zlib.crc32(text.encode()) % _HUES


def initial_of(name: str) -> str:
    return next((char for char in name if char.isalnum()), "?").upper()


TEMPLATES.globals |= {"agent_path": agent_path, "protocol_class": protocol_class}


class HealthView(msgspec.Struct, frozen=True, kw_only=True):
    """Health at a glance: a dot with a word."""

    colour: str  # good, careful, bad, idle
    word: str
    since: float | None = None


class AgentListing(msgspec.Struct, frozen=True, kw_only=True):
    """What every list shows of an agent."""

    id: str
    name: str
    path: str
    initial: str
    hue: int
    publisher: str | None
    description: str
    protocols: list[str]
    tags: tuple[str, ...]
    more_tags: int
    status: str
    health: HealthView
    expires_at: float | None
    changed_at: float
    trust: TrustLadder
    source: str
    received_at: float | None
    peer: str | None  # the registry that it was learned from


def make_summary(registration: Registration, trust: TrustSummary) -> AgentListing:
    record = registration.record
    publisher = find_publisher_of(record)
    return AgentListing(
        id=record.id,
        name=record.name or record.id,
        path=agent_path(record.id),
        initial=initial_of(_short_name(record)),
        hue=hue_of(publisher or record.id),
        publisher=publisher,
        description=shorten(record.description, _DESCRIPTION_CHARS),
        protocols=shown_protocols(record),
        tags=record.tags[:_MAX_TAGS],
        more_tags=max(0, len(record.tags) - _MAX_TAGS),
        status=registration.status,
        health=make_health_view(registration),
        expires_at=registration.expires_at,
        changed_at=registration.changed_at,
        trust=make_trust_ladder(trust),
        source=source_of(registration),
        received_at=registration.sources[0].received_at if registration.sources else None,
        peer=registration.federation.peer if registration.federation is not None else None,
    )


def _short_name(record: AgentRecord) -> str:
    """The last part of a name that is a path, such as `example.com/research/paper-scout`."""
    name = record.name or record.id
    return name.rsplit("/", 1)[-1] or name


def shown_protocols(record: AgentRecord) -> list[str]:
    """The families of its protocols: variants such as `a2a+grpc` would fill the list."""
    return [name for name in protocols_of(record) if "+" not in name]


def make_health_view(registration: Registration) -> HealthView:
    health, status = registration.health, registration.status
    if health is not None and health.state != UNKNOWN:
        colour = _HEALTH_CLASSES.get(health.state, "idle")
        return HealthView(colour=colour, word=HEALTH_WORDS.get(health.state, health.state), since=health.since)
    colour = {"active": "active", "testing": "careful"}.get(status, "idle")
    return HealthView(colour=colour, word=status)


def shorten(text: str, most: int) -> str:
    """The description, shortened to one line."""
    text = _LINE_ENDS.sub(" ", text)
    return text if len(text) <= most else text[:most].rsplit(" ", 1)[0] + "…"


def source_of(registration: Registration) -> str:
    """The dialects of the sources, and how the newest arrived. The sender is not shown."""
    if not registration.sources:
        return "made here"
    dialects = ", ".join(dict.fromkeys(source.dialect for source in registration.sources))
    return f"{dialects} by {registration.sources[0].via}"


class AgentCards:
    """`trust_of` returns the verdict on an agent."""

    def __init__(self, trust_of: Callable[[Registration], TrustSummary]) -> None:
        self._trust_of = trust_of
        self._kept: LruCache[str, tuple[tuple[int, str, float, object], Markup]] = LruCache(limits.PAGE_CARD_CACHE)

    def card(self, registration: Registration) -> Markup:
        mark = (registration.revision, registration.etag, registration.renewed_at, registration.health)
        kept = self._kept.get(registration.id)
        if kept is None or kept[0] != mark:
            summary = make_summary(registration, self._trust_of(registration))
            kept = (mark, render("_card.html", agent=summary))
            self._kept.put(registration.id, kept)
        return kept[1]

    def hit(self, candidate: MatchedAgent, registration: Registration) -> MatchView:
        return _match_view(candidate, self.card(registration))


# --- Reasons of a match ----------------------------------------------------------------------------


class MatchView(msgspec.Struct, frozen=True, kw_only=True):
    """A search result: the card, the match in a word and a sentence, and the evidence."""

    card: Markup
    match: str
    is_provisional: bool
    reason: str
    score: float
    components: list[tuple[str, float, str]]  # name, value, meaning; the largest first
    tags: list[str]
    quotes: Sequence[str]
    examples: list[str]
    warnings: list[str]


def _match_view(candidate: MatchedAgent, card: Markup) -> MatchView:
    evidence = candidate.evidence or Evidence()
    return MatchView(
        card=card,
        match=candidate.match,
        is_provisional=candidate.is_provisional,
        reason=candidate.reason,
        score=candidate.score,
        components=sorted(
            (
                (name, value, _SIGNAL_MEANINGS.get(name, ""))
                for name, value in evidence.components.items()
                if abs(value) >= _SHOWN_COMPONENT
            ),
            key=lambda each: -each[1],
        ),
        tags=[*evidence.matched_tags, *(f"{tag} (near)" for tag in evidence.expanded_tags)],
        quotes=evidence.snippets,
        examples=[example.text for example in evidence.matched_examples[:2]],
        warnings=[_FLAGS.get(flag, flag) for flag in evidence.flags],
    )
