"""Responses of a search: candidates with evidence, facets, and why a search found nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self

import msgspec

from waypost import limits
from waypost.model.query import FACETS, MATCHES, EmptyResult, FacetCount
from waypost.model.verdict import TrustSummary
from waypost.responses.agents import HealthState, Suggestions, binding_protocols, preferred_endpoint
from waypost.responses.base import Answer, Count, Part, Timestamp, described, one_of
from waypost.responses.federation import FederationView

_BINDING_SCHEMA = {
    "required": ["protocol", "endpoint"],
    "properties": {"protocol": {"type": "string"}, "endpoint": {"type": "string"}},
}

FacetCounts = Annotated[
    dict[str, Annotated[tuple[FacetCount, ...], msgspec.Meta(max_length=limits.FACET_VALUES)]],
    msgspec.Meta(extra_json_schema={"propertyNames": {"enum": list(FACETS)}}),
]


Bindings = tuple[Annotated[dict[str, Any], msgspec.Meta(extra_json_schema=_BINDING_SCHEMA)], ...]
Score = Annotated[float, msgspec.Meta(ge=0, le=1)]
MatchWord = Annotated[str, one_of(*MATCHES)]


class ExampleEvidence(Part, frozen=True, kw_only=True):
    """An example task of an agent that resembles the query."""

    id: str | None = None
    score: float
    text: str


class Freshness(Part, frozen=True, kw_only=True):
    """How old the metadata of a candidate is (PRO-21)."""

    indexed_at: Timestamp | None = None
    metadata_updated_at: Annotated[str, described("as its publisher states")] | None = None
    expires_at: Timestamp | None = None
    older_than_constraint: bool | None = None


class CandidateHealth(Part, frozen=True, kw_only=True):
    """The state of a candidate's endpoint, if the service checks it."""

    state: HealthState
    since: Timestamp | None = None


class Candidate(Answer, frozen=True, kw_only=True):
    """One agent that a search found. Services of a lower level of the profile send fewer members (PRO-6).

    Example:
        best = client.find("translate an invoice").candidates[0]
        print(best.name, best.match, best.reason, best.endpoint)
    """

    id: str
    name: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    bindings: Bindings = ()
    status: str | None = None
    score: Score | None = None
    match: Annotated[MatchWord, described("how well it fits, compared with other agents of this service")] | None = None
    reason: Annotated[str, described("one sentence: why it was found")] = ""
    provisional: Annotated[bool, described("the score may still change: sentence vectors are not computed yet")] = False
    redacted: Annotated[bool, described("members are missing because the request had no token")] = False
    freshness: Freshness | None = None
    trust: TrustSummary | None = None
    health: CandidateHealth | None = None
    federation: Annotated[FederationView, described("the origin, if a peer sent the agent")] | None = None
    score_components: dict[str, float] = msgspec.field(default_factory=dict)
    matched_tags: tuple[str, ...] = ()
    expanded_tags: tuple[str, ...] = ()
    matched_examples: tuple[ExampleEvidence, ...] = ()
    snippets: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    credential_refs: Annotated[tuple[str, ...], described("keys and domains by which the agent was verified")] = ()
    untrusted: Annotated[bool, described("name, description, examples and snippets are the publisher's words")] = False
    self_asserted: Annotated[dict[str, Any], described("members that the publisher set and the service reserves")] = (
        msgspec.field(default_factory=dict)
    )

    @property
    def protocols(self) -> tuple[str, ...]:
        """The protocols of the bindings, each once, in order."""
        return binding_protocols(self.bindings)

    @property
    def endpoint(self) -> str | None:
        """The endpoint of the preferred binding (the lowest `priority`)."""
        return preferred_endpoint(self.bindings)

    def __repr__(self) -> str:
        score = "" if self.score is None else f" score={self.score:.2f}"
        match = "" if self.match is None else f" match={self.match}"
        return f"<{type(self).__name__} {self.id!r} {self.name!r}{match}{score}>"


class RankedCandidate(Candidate, frozen=True, kw_only=True):
    """A candidate of this service. With `detail=full` it has all members of the agent's own document."""

    bindings: Bindings
    status: str
    score: Score
    match: MatchWord
    reason: str


class ExplainedCandidate(RankedCandidate, frozen=True, kw_only=True):
    """A candidate with evidence. It lists its matches even if there are none."""

    score_components: dict[str, float]
    matched_tags: tuple[str, ...]
    matched_examples: tuple[ExampleEvidence, ...]


class SearchResult(Answer, frozen=True, kw_only=True):
    """The candidates of a search, best first, and how the query was understood.

    Example:
        result = client.find("translate an invoice", tags=["finance"])
        print([candidate.id for candidate in result.candidates], result.warnings)
    """

    request_id: str | None = None
    generated_at: Timestamp | None = None
    applied_filters: dict[str, Any] = msgspec.field(default_factory=dict)
    unsupported_filters: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    facets: FacetCounts = msgspec.field(default_factory=dict)
    rejected_constraints: Annotated[
        dict[str, Annotated[int, msgspec.Meta(ge=1)]],
        described("agents that pass the other filters and fail this constraint"),
    ] = msgspec.field(default_factory=dict)
    suggestions: Suggestions = msgspec.field(default_factory=dict)
    empty: EmptyResult | None = None
    candidates: tuple[Candidate, ...]

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """The result in a JSON object. Each candidate has the object that it was sent as.

        Evidence may be among the members of a candidate or in its member `evidence`.
        """
        received = document.get("candidates") or ()
        flat = [{**candidate.get("evidence", {}), **candidate} for candidate in received]
        result = super().parse({**document, "candidates": flat} if flat else document)
        result.__dict__["document"] = dict(document)
        for candidate, members in zip(result.candidates, received, strict=True):
            candidate.__dict__["document"] = members
        return result

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self.candidates)

    def __repr__(self) -> str:
        best = f", best {self.candidates[0].id!r}" if self.candidates else ""
        return f"<{type(self).__name__} {len(self.candidates)} candidates{best}>"


class DiscoveryResponse(SearchResult, frozen=True, kw_only=True):
    """The candidates of a search, best first, and how this service understood the query (profile.md Table 6)."""

    request_id: str
    generated_at: Timestamp
    applied_filters: dict[str, Any]
    candidates: tuple[RankedCandidate, ...]


class FacetOverview(Answer, frozen=True, kw_only=True):
    """How many agents a list has, in total and by the most frequent values of each facet."""

    total: Count
    facets: FacetCounts
    suggestions: Suggestions = msgspec.field(default_factory=dict)
    warnings: tuple[str, ...] = ()
