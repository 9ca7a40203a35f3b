"""A discovery query and its result, the same for every API (profile.md §5, §6)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from waypost import limits
from waypost.model.federation import Federation
from waypost.model.health import Health
from waypost.model.record import AgentRecord
from waypost.model.verdict import TrustSummary

Detail = Literal["minimal", "summary", "full"]
FACETS = ("tag", "protocol", "status", "owner")

Match = Literal["strong", "possible", "weak"]
MATCHES: tuple[Match, ...] = ("strong", "possible", "weak")  # best first


def is_match_at_least(match: Match, least: Match) -> bool:
    return MATCHES.index(match) <= MATCHES.index(least)


QueryFederation = Literal["none", "auto"]
QUERY_FEDERATION: tuple[QueryFederation, ...] = ("none", "auto")


class Query(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    required_tags: tuple[str, ...] = ()
    preferred_tags: tuple[str, ...] = ()
    excluded_tags: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()  # empty: all listed ones
    constraints: dict[str, Any] = msgspec.field(default_factory=dict)
    limit: int = limits.DISCOVER_LIMIT_DEFAULT
    depth: int = 0  # candidates are retrieved as for this limit, if it is greater: then pages of one query agree
    detail: Detail = "summary"
    include_evidence: bool = False
    diversity: bool = True  # at most two near-duplicates in every ten candidates
    client_context: dict[str, Any] = msgspec.field(default_factory=dict)
    facets: tuple[str, ...] = ()  # of FACETS
    min_score: float = 0.0  # candidates with a lower score are left out
    min_match: Match = "weak"  # candidates with a weaker match are left out
    federation: QueryFederation = "none"  # auto: peers that allow it are asked, too


# The parts of a score, which add up to it. `filter` is the score of an agent that only passes the filters.
SCORE_COMPONENTS = (
    "words",
    "spelling",
    "coverage",
    "name",
    "context",
    "example",
    "freshness",
    "tag",
    "filter",
    "policy",
    "preference",
)


class ExampleMatch(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    score: float
    id: str | None = None


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Why a candidate was chosen (D2)."""

    components: dict[str, float] = msgspec.field(default_factory=dict)
    matched_tags: tuple[str, ...] = ()
    expanded_tags: tuple[str, ...] = ()
    matched_examples: tuple[ExampleMatch, ...] = ()
    snippets: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()  # suspicious_text, hidden_text: reported, without effect on the score


class MatchSignals(msgspec.Struct, frozen=True, kw_only=True):
    """The signals of one hit, each in 0..1. The record is needed to turn them into evidence."""

    words: float  # share of the query's term weight that the record contains
    context: float | None = None  # similarity of the sentence vector of the whole agent; None without vectors
    example: float | None = None  # similarity of its nearest example
    place: int = 0  # number of that example, from 1
    components: dict[str, float] = msgspec.field(default_factory=dict)  # the parts of the score, which add up to it


class Hit(msgspec.Struct, frozen=True, gc=False):
    """A ranked id. `score` is in 0..1."""

    id: str
    score: float
    near: MatchSignals | None = None
    is_provisional: bool = False  # its sentence vectors are not computed yet


Suggestions = dict[str, tuple[str, ...]]  # a tag or word that no agent has → similar ones that agents have


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """The hits of a ranker in order, and its warnings."""

    hits: tuple[Hit, ...]
    warnings: tuple[str, ...] = ()
    spelling: Suggestions = msgspec.field(default_factory=dict)  # misspelled words, and similar words of agents
    corrections: dict[str, str] = msgspec.field(default_factory=dict)  # those of them that were searched for instead
    searched_text: str | None = None  # the corrected text, if it differs from that of the query


class MatchedAgent(msgspec.Struct, frozen=True, kw_only=True):
    record: AgentRecord
    score: float
    match: Match
    reason: str  # one sentence for people
    is_provisional: bool = False  # the score may change when the sentence vectors are computed
    etag: str
    changed_at: float
    revision: int = 0
    expires_at: float | None = None
    evidence: Evidence | None = None
    redacted: bool = False
    trust: TrustSummary
    health: Health | None = None
    federation: Federation | None = None


class FacetCount(msgspec.Struct, frozen=True):
    """One value, and the number of agents that have it."""

    value: str
    count: int


Facets = dict[str, tuple[FacetCount, ...]]  # by name, most frequent values first


class FacetSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Total and facet counts of a list."""

    total: int
    facets: Facets
    suggestions: Suggestions = msgspec.field(default_factory=dict)


class FilterEffect(msgspec.Struct, frozen=True, kw_only=True):
    """The number of agents that pass one filter alone, and that remain after it and those before it."""

    filter: str  # required_tags, excluded_tags, protocols or constraints.<name>
    value: Any
    matching: int
    remaining: int


class EmptyResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why there is no candidate. All counts are over agents visible to the caller."""

    reason: Literal["nothing_registered", "filtered", "no_match", "below_min_score", "below_min_match"]
    visible: int
    filters: tuple[FilterEffect, ...] = ()
    best_score: float | None = None  # among candidates below min_score
    best_match: Match | None = None  # among candidates below min_match


class DiscoverResult(msgspec.Struct, frozen=True, kw_only=True):
    candidates: tuple[MatchedAgent, ...]
    applied_filters: dict[str, Any]
    generated_at: float
    unsupported_filters: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    facets: Facets | None = None
    suggestions: Suggestions = msgspec.field(default_factory=dict)
    spelling: Suggestions = msgspec.field(
        default_factory=dict
    )  # a word that no agent has → similar words that agents have
    corrections: dict[str, str] = msgspec.field(
        default_factory=dict
    )  # a word that no agent has → the one that was searched for instead
    rejected: dict[str, int] = msgspec.field(default_factory=dict)  # constraint → agents that only it excluded
    empty: EmptyResult | None = None
