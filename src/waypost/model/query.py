"""A question and its answer, the same for every face (profile.md §5, §6)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from waypost import limits
from waypost.model.health import Health
from waypost.model.record import AgentRecord

Detail = Literal["minimal", "summary", "full"]
FACETS = ("tag", "protocol", "status", "owner")


class Query(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    required_tags: tuple[str, ...] = ()
    preferred_tags: tuple[str, ...] = ()
    excluded_tags: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()  # of those that are listed at all; none: all of these
    constraints: dict[str, Any] = msgspec.field(default_factory=dict)
    limit: int = limits.DISCOVER_LIMIT_DEFAULT
    detail: Detail = "summary"
    include_evidence: bool = False
    diversity: bool = True  # at most two near duplicates in each ten
    client_context: dict[str, Any] = msgspec.field(default_factory=dict)
    facets: tuple[str, ...] = ()  # of FACETS
    min_score: float = 0.0  # candidates below it are left out


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
    flags: tuple[str, ...] = ()  # suspicious_text, hidden_text: told, never weighed


class MatchSignals(msgspec.Struct, frozen=True, kw_only=True):
    """What a ranker measured of one hit, each in 0..1. Only the record itself can put it into words."""

    words: float  # share of the question's weight that the record's words carry
    context: float | None = None  # of sentence vectors: the agent as a whole; None without them
    example: float | None = None  # and its nearest example
    place: int = 0  # which example that is, from 1


class Hit(msgspec.Struct, frozen=True, gc=False):
    """A ranked id. `score` is in 0..1."""

    id: str
    score: float
    near: MatchSignals | None = None


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """What a ranker answers: hits in order, and what it could not do."""

    hits: tuple[Hit, ...]
    warnings: tuple[str, ...] = ()


class MatchedAgent(msgspec.Struct, frozen=True, kw_only=True):
    record: AgentRecord
    score: float
    etag: str
    changed_at: float
    revision: int = 0
    expires_at: float | None = None
    evidence: Evidence | None = None
    redacted: bool = False
    trust: dict[str, Any] = msgspec.field(default_factory=dict)
    health: Health | None = None


class FacetCount(msgspec.Struct, frozen=True):
    """One value that agents have, and how many have it."""

    value: str
    count: int


Facets = dict[str, tuple[FacetCount, ...]]  # by name, the most frequent values first
Suggestions = dict[str, tuple[str, ...]]  # a tag that nobody carries → tags that somebody does


class FacetSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A list in numbers."""

    total: int
    facets: Facets
    suggestions: Suggestions = msgspec.field(default_factory=dict)


class FilterEffect(msgspec.Struct, frozen=True, kw_only=True):
    """How many agents pass one hard filter by itself, and how many are left after it and those before it."""

    filter: str  # required_tags, excluded_tags, protocols or constraints.<name>
    value: Any
    matching: int
    remaining: int


class EmptyResult(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no candidate. All counts are over what the caller may see."""

    reason: Literal["nothing_registered", "filtered", "no_match", "below_min_score"]
    visible: int
    filters: tuple[FilterEffect, ...] = ()
    best_score: float | None = None  # of what was left out for its score


class DiscoverResult(msgspec.Struct, frozen=True, kw_only=True):
    candidates: tuple[MatchedAgent, ...]
    applied_filters: dict[str, Any]
    generated_at: float
    unsupported_filters: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    facets: Facets | None = None
    suggestions: Suggestions = msgspec.field(default_factory=dict)
    rejected: dict[str, int] = msgspec.field(default_factory=dict)  # constraint → agents that only it kept out
    empty: EmptyResult | None = None
