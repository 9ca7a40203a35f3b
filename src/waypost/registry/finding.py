"""From a question and a ranking to the answer: constraints applied, evidence told, nothing private quoted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from waypost.model.query import Candidate, Findings, Hit, Query, Ranking
from waypost.model.record import AgentRecord
from waypost.model.registration import Registration
from waypost.registry.constraints import compile_constraints
from waypost.registry.decisions import expiry_of
from waypost.search.evidence import explain

_LOOKED_THROUGH = 1000  # hits that constraints are held against; what a constraint asks is not in the index yet

Trust = Callable[[Registration], dict[str, Any]]


class Search:
    """One question. `asked` is what the ranker is asked: more than is wanted when constraints will thin it out."""

    def __init__(self, query: Query, now: float) -> None:
        self._query = query
        self._now = now
        self._predicates, self._constraints, self._unsupported = compile_constraints(query.constraints, now)
        self.asked = msgspec.structs.replace(query, limit=_LOOKED_THROUGH) if self._predicates else query

    def findings(self, ranking: Ranking, registrations: Iterable[Registration], trust: Trust) -> Findings:
        held = {registration.id: registration for registration in registrations}
        candidates: list[Candidate] = []
        for hit in ranking.hits:
            registration = held.get(hit.id)
            if registration is not None and self._is_fit(registration):
                candidates.append(self._candidate(hit, registration, trust))
                if len(candidates) == self._query.limit:
                    break
        return Findings(
            candidates=tuple(candidates),
            applied_filters=self._applied(),
            generated_at=self._now,
            unsupported_filters=tuple(self._unsupported),
            warnings=(*ranking.warnings, *self._cut_short(ranking, len(candidates))),
        )

    def _is_fit(self, registration: Registration) -> bool:
        """An agent that says nowhere how to be reached is not even D0."""
        return bool(registration.record.bindings) and all(holds(registration) for holds in self._predicates)

    def _candidate(self, hit: Hit, registration: Registration, trust: Trust) -> Candidate:
        told = self._query.include_evidence
        return Candidate(
            record=registration.record,
            score=hit.score,
            etag=registration.etag,
            changed_at=registration.changed_at,
            expires_at=expiry_of(registration),
            evidence=explain(self._query, _shareable(registration.record), self._now) if told else None,
            trust=trust(registration) if told else {},
        )

    def _cut_short(self, ranking: Ranking, found: int) -> tuple[str, ...]:
        if self._predicates and found < self._query.limit and len(ranking.hits) >= _LOOKED_THROUGH:
            return (f"constraints were held against the best {_LOOKED_THROUGH} matches only",)
        return ()

    def _applied(self) -> dict[str, Any]:
        applied: dict[str, Any] = {}
        for name in ("required_tags", "preferred_tags", "excluded_tags", "protocols"):
            values: Iterable[str] = getattr(self._query, name)
            if values:
                applied[name] = list(values)
        if self._constraints:
            applied["constraints"] = self._constraints
        return applied


def _shareable(record: AgentRecord) -> AgentRecord:
    """The record without the examples that its publisher marked private: evidence must not quote them (PRO-38)."""
    if not any(example.extra.get("private") for example in record.examples):
        return record
    shown = tuple(example for example in record.examples if not example.extra.get("private"))
    return msgspec.structs.replace(record, examples=shown)
