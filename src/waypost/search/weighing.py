"""One question against one tier: what counts how much, and where it ends on a scale of 0 to 1.

It weighs documents of the delta by itself and lets the index weigh its own, so that both land on the same scale.
"""

from __future__ import annotations

from collections.abc import Container
from functools import cached_property
from typing import Any, Final

from waypost.search.bm25 import FIELDS, Document, Scale, Statistics, idf
from waypost.search.delta import Share
from waypost.search.question import Found, Question, Scored
from waypost.search.tier import Filters, View, boosted

# The score, in units of the query's own weight U = Σ idf(term), or 1 without terms:
#   S = BM25 + U·(PREFERRED · preferred tags carried / asked + (REQUIRED if required tags were asked and hold))
#   score = S / (S + U)
# A record that holds every word once, in one field of usual length, stands near 0.5. A word that nobody uses weighs most
# in U and can add nothing to S, so a query of such words scores low, whatever is best. No score depends on its rank.
PREFERRED: Final = 0.5
REQUIRED: Final = 0.1
REQUIRED_ALONE: Final = 0.5  # without words, the tags are the question

_WEIGHED_AGAIN: Final = 256  # at some 15 µs each; an owner with more private matches than this for one question is rare


class _Nothing:
    """Statistics of an empty corpus: every word weighs the same."""

    docs = 0
    average_lengths = (0.0,) * len(FIELDS)

    def containing(self, term: str) -> tuple[int, ...]:
        return (0,) * len(FIELDS)


NOTHING: Final = _Nothing()


class Weighing:
    def __init__(self, question: Question, statistics: Statistics) -> None:
        self._question = question
        self._statistics = statistics
        # A word weighs what it tells wherever it stands; one that nobody uses tells most, and its absence counts.
        self._unit = sum(idf(statistics.docs, max(statistics.containing(term))) for term in question.terms) or 1.0
        self._preferred = PREFERRED * self._unit / max(1, len(question.preferred))
        base = REQUIRED if question.terms else REQUIRED_ALONE
        self._base = base * self._unit if question.selects else 0.0

    def absolute(self, score: float) -> float:
        total = score + self._base
        return total / (total + self._unit)

    def changes(self, share: Share) -> Found:
        """All of the delta that answers."""
        return Found(
            [
                Scored(change.id, self._own(change.document, change.tags), change.is_deprecated)
                for change in share.matches
            ]
        )

    def _own(self, document: Document, tags: frozenset[str]) -> float:
        """The absolute score of a document that we count ourselves."""
        carried = sum(tag in tags for tag in self._question.preferred)
        return self.absolute(self._scale.score(document) + self._preferred * carried)

    @cached_property
    def _scale(self) -> Scale:
        return Scale(self._question.terms, self._statistics)

    def committed(self, view: View, superseded: Container[str], limit: int) -> Found:
        """The best of the index, without what the delta knows better."""
        return self._committed(view, view.filters(self._question), superseded, limit, weigh_again=False)

    def committed_private(
        self, view: View, scopes: frozenset[str] | None, superseded: Container[str], limit: int
    ) -> Found:
        """The same for private records of some scopes (None: of all). What an owner sees is weighed again by what the
        owner may know: lengths and rarities of a private tier tell of other owners. Only among more than _WEIGHED_AGAIN
        matches does the index still have a say in which of them are weighed."""
        filters = view.filters(self._question, scopes)
        if scopes is None:
            return self._committed(view, filters, superseded, limit, weigh_again=False)
        return self._committed(view, filters, superseded, max(limit, _WEIGHED_AGAIN), weigh_again=True)

    def _committed(
        self, view: View, filters: Filters, superseded: Container[str], limit: int, *, weigh_again: bool
    ) -> Found:
        hits = view.best(self._options(view), filters, limit)
        scored = []
        for raw, address in hits:
            agent_id, is_deprecated = view.label(address)
            if agent_id not in superseded:
                score = self._own(*view.document(address)) if weigh_again else self.absolute(raw)
                scored.append(Scored(agent_id, score, is_deprecated))
        if len(hits) == limit:
            return Found(scored, self.absolute(hits[-1][0]), is_complete=False)
        if self._question.selects:
            return self._with_rest(view, filters, superseded, limit, scored)
        return Found(scored)

    def _with_rest(
        self, view: View, filters: Filters, superseded: Container[str], limit: int, scored: list[Scored]
    ) -> Found:
        """And what passes the filters but says nothing of the words: by id, with the base alone."""
        score = self.absolute(0.0)
        seen = {each.id for each in scored}
        is_complete = True
        for is_deprecated in (False, True):
            ids = view.first(filters, limit + len(scored), is_deprecated=is_deprecated)
            is_complete &= len(ids) < limit + len(scored)
            scored = scored + [
                Scored(agent_id, score, is_deprecated)
                for agent_id in ids
                if agent_id not in seen and agent_id not in superseded
            ]
            if len(scored) >= limit:
                return Found(scored, is_complete=False)
        return Found(scored, is_complete=is_complete)

    def _options(self, view: View) -> list[Any]:
        """Each term in each field that knows it, and each preferred tag, as queries whose scores add up."""
        found = [(term, view.term_queries(term)) for term in self._question.terms]
        if self._statistics is view:
            options = [query for _, queries in found for _, query in queries]
        else:
            options = [self._corrected(view, term, field, query) for term, queries in found for field, query in queries]
        options += [view.tag_query(tag, self._preferred) for tag in self._question.preferred]
        return options

    def _corrected(self, view: View, term: str, field: int, query: Any) -> Any:
        """The index weighs a term by what it holds; where the whole makes the term rarer or commoner, say so."""
        known = idf(view.docs, view.containing(term)[field])
        return boosted(query, idf(self._statistics.docs, self._statistics.containing(term)[field]) / known)
