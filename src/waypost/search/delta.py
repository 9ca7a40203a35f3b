"""Changes that the index on disk does not hold yet, and how they bear on one question.

A change costs next to nothing when it is made: its text is analysed by the first question that meets it, or by the
thread that folds it into the index, whichever comes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final

from waypost.model.names import fold, fold_tag
from waypost.model.principal import PRIVATE, record_scopes
from waypost.model.record import AgentRecord
from waypost.model.registration import Registration
from waypost.search.bm25 import FIELDS, Document, Statistics
from waypost.search.question import RANKED_STATUSES, Question
from waypost.search.text import analyse

_ANALYSE_AT_ONCE: Final = 2000  # at some 20 µs each; a question in the middle of a bulk load waits no longer


class Change:
    """The latest word on one id: what it is now, or (without a record) that it is gone."""

    __slots__ = ("_document", "_invitees", "_keys", "_owner", "_texts", "record", "tier")

    def __init__(self, registration: Registration | None) -> None:
        self.record: AgentRecord | None = None
        self.tier = ""
        self._texts: tuple[str, ...] | None = None
        self._document: Document | None = None
        self._keys: tuple[frozenset[str], frozenset[str], tuple[str, ...]] | None = None
        if registration is not None and (registration.record.status or "active") in RANKED_STATUSES:
            self.record = registration.record
            self.tier = registration.visibility
            self._owner = registration.owner
            self._invitees = registration.invitees

    @property
    def is_analysed(self) -> bool:
        return self._document is not None

    @property
    def is_deprecated(self) -> bool:
        return self.record is not None and self.record.status == "deprecated"

    @property
    def texts(self) -> tuple[str, ...]:
        if self._texts is None:
            self._texts = texts_of(self.record) if self.record else ("",) * len(FIELDS)
        return self._texts

    @property
    def document(self) -> Document:
        if self._document is None:
            self._document = Document(self.texts)
        return self._document

    @property
    def tags(self) -> frozenset[str]:
        return self._traits()[0]

    @property
    def protocols(self) -> frozenset[str]:
        return self._traits()[1]

    @property
    def scopes(self) -> tuple[str, ...]:
        return self._traits()[2]

    def _traits(self) -> tuple[frozenset[str], frozenset[str], tuple[str, ...]]:
        if self._keys is None:
            if self.record is None:
                return frozenset(), frozenset(), ()
            self._keys = (
                frozenset(map(fold_tag, self.record.tags)),
                frozenset(fold(binding.protocol) for binding in self.record.bindings),
                record_scopes(self._owner, self.tier, self._invitees),
            )
        return self._keys


def texts_of(record: AgentRecord) -> tuple[str, str, str, str]:
    """The analysed text of each of FIELDS. Examples follow each other in one field, with the tags they carry."""
    examples = " ".join(part for example in record.examples for part in (example.text, *example.tags))
    return analyse(record.name), analyse(record.description), analyse(" ".join(record.tags)), analyse(examples)


Changes = Sequence[tuple[str, Change]]


class Share:
    """What the changes of one tier add to a question: matching documents, and their part in the statistics."""

    def __init__(self) -> None:
        self.docs = 0
        self.lengths = [0] * len(FIELDS)
        self.containing: Counter[tuple[int, str]] = Counter()
        self.matches: list[tuple[str, Change]] = []

    def add(self, agent_id: str, change: Change, question: Question) -> None:
        document = change.document
        self.docs += 1
        for field, length in enumerate(document.lengths):
            self.lengths[field] += length
        matched = not document.vocabulary.isdisjoint(question.terms)
        if matched:
            for field, counts in enumerate(document.counts):
                self.containing.update(zip(repeat(field), counts.keys() & question.terms, strict=False))
        if matched or question.selects or not change.tags.isdisjoint(question.preferred):
            self.matches.append((agent_id, change))


def shares_of(changes: Iterable[tuple[str, Change]], question: Question) -> tuple[dict[str, Share], int]:
    """Each tier's share, newest changes first, and how many the caller sees that there was no time to analyse."""
    shares: dict[str, Share] = {}
    budget, skipped = _ANALYSE_AT_ONCE, 0
    audience = question.audience
    for agent_id, change in changes:
        if change.record is None or (audience is not None and audience.isdisjoint(change.scopes)):
            continue
        if not change.is_analysed:
            budget -= 1
            if budget < 0:
                skipped += change.tier != PRIVATE  # how many private ones wait is nobody's business
                continue
        share = shares.get(change.tier)
        if share is None:
            share = shares[change.tier] = Share()
        share.add(agent_id, change, question)
    return shares, skipped


class Blend:
    """Statistics of a tier as if its changes were already in the index."""

    def __init__(self, saved: Statistics, share: Share) -> None:
        self._saved = saved
        self._share = share
        self.docs = saved.docs + share.docs

    def containing(self, field: int, term: str) -> int:
        return self._saved.containing(field, term) + self._share.containing[field, term]

    def average_length(self, field: int) -> float:
        if not self.docs:
            return 0.0
        saved = self._saved.average_length(field) * self._saved.docs
        return (saved + self._share.lengths[field]) / self.docs
