"""A question and its answer, the same for every face (profile.md §5, §6)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from waypost import limits
from waypost.model.record import AgentRecord

Detail = Literal["minimal", "summary", "full"]


class Query(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    required_tags: tuple[str, ...] = ()
    preferred_tags: tuple[str, ...] = ()
    excluded_tags: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    constraints: dict[str, Any] = msgspec.field(default_factory=dict)
    limit: int = limits.DISCOVER_LIMIT_DEFAULT
    detail: Detail = "summary"
    include_evidence: bool = False
    client_context: dict[str, Any] = msgspec.field(default_factory=dict)


class MatchedExample(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    score: float
    id: str | None = None


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Why a candidate was chosen (D2)."""

    components: dict[str, float] = msgspec.field(default_factory=dict)
    matched_tags: tuple[str, ...] = ()
    expanded_tags: tuple[str, ...] = ()
    matched_examples: tuple[MatchedExample, ...] = ()
    snippets: tuple[str, ...] = ()


class Hit(msgspec.Struct, frozen=True):
    """A ranked id. `score` is in 0..1."""

    id: str
    score: float
    evidence: Evidence | None = None


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """What a ranker answers: hits in order, and what it could not do."""

    hits: tuple[Hit, ...]
    warnings: tuple[str, ...] = ()


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    record: AgentRecord
    score: float
    etag: str
    changed_at: float
    expires_at: float | None = None
    evidence: Evidence | None = None
    redacted: bool = False
    trust: dict[str, Any] = msgspec.field(default_factory=dict)


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    candidates: tuple[Candidate, ...]
    applied_filters: dict[str, Any]
    generated_at: float
    unsupported_filters: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
