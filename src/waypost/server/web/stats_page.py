"""The statistics page: counts over what the visitor may see, as plots that are tables for screen readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import urlencode

import msgspec

from waypost.model.health import HEALTH_FACT
from waypost.model.principal import audience
from waypost.model.query import FacetCount
from waypost.model.record import LISTED, STATUSES
from waypost.model.registration import TRUST_FACT
from waypost.model.verdict import BADGES
from waypost.registry.registry import Registry
from waypost.server.auth.sessions import WebUser
from waypost.server.web.agent_cards import protocol_class
from waypost.server.web.layout import WebPage

_HOUR: Final = 3600.0
_PERIODS: Final = (
    ("this hour", _HOUR),
    ("today", 24 * _HOUR),
    ("this week", 7 * 24 * _HOUR),
    ("this month", 30 * 24 * _HOUR),
)
_HEALTH: Final = {"healthy": "good", "suspect": "careful", "dead": "bad", "unhealthy": "bad"}
_MOST_TAGS: Final = 12


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    label: str
    count: int
    width: float  # of 100
    colour: str = ""
    href: str | None = None


class BarChart(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    text: str
    bars: list[Bar]


def make_stats_page(registry: Registry, visitor: WebUser) -> WebPage:
    stats = registry.stats(visitor.reader)
    unlisted = sum(count for status, count in stats.by_status.items() if status not in LISTED)
    values = {
        "stats": stats,
        "unlisted": unlisted,
        "charts": [chart for chart in _make_charts(registry, visitor) if chart.bars],
    }
    return WebPage(template="stats.html", title="Statistics", values=values, visitor=visitor, section="/stats")


def _make_charts(registry: Registry, visitor: WebUser) -> list[BarChart]:
    seen = registry.facets(visitor.reader, ("protocol", "tag", "status"), statuses=STATUSES)
    protocols = [each for each in seen.facets["protocol"] if "+" not in each.value]
    return [
        BarChart(
            name="protocols",
            title="Protocols",
            text="How agents can be reached. An agent may speak several.",
            bars=_facet_bars(protocols, "protocol", protocol_class),  # as many as the home page says
        ),
        BarChart(
            name="trust",
            title="Trust",
            text="What the checks of signatures, keys and domains gave.",
            bars=_trust_bars(registry, visitor),
        ),
        BarChart(
            name="tags",
            title="Tags",
            text="The most frequent ones.",
            bars=_facet_bars(seen.facets["tag"][:_MOST_TAGS], "tag"),
        ),
        BarChart(
            name="status",
            title="Status",
            text="What agents say about themselves.",
            bars=_facet_bars(seen.facets["status"], "status"),
        ),
        BarChart(
            name="health",
            title="Health",
            text="What the last checks of endpoints gave.",
            bars=_health_bars(registry, visitor),
        ),
        BarChart(
            name="activity",
            title="Last activity",
            text="When agents were last registered, changed or renewed.",
            bars=_activity_bars(registry, visitor),
        ),
    ]


def _bars(rows: Iterable[tuple[str, int, str, str | None]]) -> list[Bar]:
    kept = [row for row in rows if row[1]]
    most = max((row[1] for row in kept), default=1)
    return [
        Bar(label=label, count=count, width=round(100 * count / most, 2), colour=colour, href=href)
        for label, count, colour, href in kept
    ]


def _facet_bars(counts: Iterable[FacetCount], name: str, colour: Callable[[str], str] = lambda value: "") -> list[Bar]:
    rows = [(each.value, each.count, colour(each.value), f"/?{urlencode({name: each.value})}") for each in counts]
    return _bars(rows)


def _trust_bars(registry: Registry, visitor: WebUser) -> list[Bar]:
    visible = registry.entries.select(audience(visitor.reader), STATUSES)
    verified = len(visible & registry.entries.with_fact(TRUST_FACT, "verified"))
    failed = len(visible & registry.entries.with_fact(TRUST_FACT, "failed"))
    asserted = len(visible) - verified - failed
    return _bars(
        [
            ("verified", verified, "good", "/?sort=verified"),
            (BADGES["self_asserted"], asserted, "idle", None),
            ("failed", failed, "bad", None),
        ]
    )


def _health_bars(registry: Registry, visitor: WebUser) -> list[Bar]:
    visible = registry.entries.select(audience(visitor.reader), STATUSES)
    rows = [
        (state, len(visible & registry.entries.with_fact(HEALTH_FACT, state)), colour, None)
        for state, colour in _HEALTH.items()
    ]
    unchecked = len(visible) - sum(row[1] for row in rows)
    return _bars([*rows, ("never checked", unchecked, "idle", None)])


def _activity_bars(registry: Registry, visitor: WebUser) -> list[Bar]:
    """How many agents were active in each period, and not in a shorter one."""
    visible = registry.entries.select(audience(visitor.reader), STATUSES)
    now = registry.clock.now()
    rows: list[tuple[str, int, str, str | None]] = []
    counted = 0
    for label, seconds in _PERIODS:
        total = len(visible & registry.entries.active_since(now - seconds))
        rows.append((label, total - counted, "", None))
        counted = total
    return _bars([*rows, ("earlier", len(visible) - counted, "idle", None)])
