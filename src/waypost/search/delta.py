"""Changes that the index on disk does not hold yet, and how they bear on one question.

A change costs next to nothing when it is made: its text is analysed by the first question that meets it, or by the
thread that folds it into the index, whichever comes first. A small inverted index of its own keeps questions quick while
many changes wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import add
from typing import Final

from waypost.model.names import fold_tag
from waypost.model.principal import record_scopes
from waypost.model.record import AgentRecord, protocols_of
from waypost.model.registration import Registration
from waypost.search.bm25 import FIELDS, Document, Statistics
from waypost.search.question import RANKED_STATUSES, Question
from waypost.search.text import analyse

_ANALYSE_AT_ONCE: Final = 2000  # at some 30 µs each; a question in the middle of a bulk load waits no longer
_NOWHERE: Final = (0,) * len(FIELDS)


class Change:
    """The latest word on one id: what it is now, or (without a record) that it is gone."""

    __slots__ = (
        "_document",
        "_invitees",
        "_keys",
        "_owner",
        "_texts",
        "id",
        "is_counted",
        "is_superseded",
        "record",
        "tier",
    )

    def __init__(self, agent_id: str, registration: Registration | None) -> None:
        self.id = agent_id
        self.record: AgentRecord | None = None
        self.tier = ""
        self.is_superseded = False  # by a later change of the same generation
        self.is_counted = False  # in the statistics of its lot
        self._texts: tuple[str, ...] | None = None
        self._document: Document | None = None
        self._keys: tuple[frozenset[str], frozenset[str], tuple[str, ...]] | None = None
        if registration is not None and (registration.record.status or "active") in RANKED_STATUSES:
            self.record = registration.record
            self.tier = registration.visibility
            self._owner = registration.owner
            self._invitees = registration.invitees

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
                frozenset(protocols_of(self.record)),
                record_scopes(self._owner, self.tier, self._invitees),
            )
        return self._keys


def texts_of(record: AgentRecord) -> tuple[str, str, str, str]:
    """The analysed text of each of FIELDS. Examples follow each other in one field, with the tags they carry."""
    examples = " ".join(part for example in record.examples for part in (example.text, *example.tags))
    return analyse(record.name), analyse(record.description), analyse(" ".join(record.tags)), analyse(examples)


class _Lot:
    """The changes of one tier: those nobody has looked at, and an inverted index of the others."""

    def __init__(self) -> None:
        self.waiting: list[Change] = []
        self.members: list[Change] = []
        self.by_term: dict[str, list[Change]] = {}
        self.by_tag: dict[str, list[Change]] = {}
        self.docs = 0
        self.lengths: tuple[int, ...] = _NOWHERE

    def absorb(self, budget: int) -> int:
        """Analyse what waits, newest first, within the budget; returns what is left of it."""
        while self.waiting and budget > 0:
            change = self.waiting.pop()
            if not change.is_superseded:
                budget -= 1
                self._count(change, 1)
                self._index(change)
        return budget

    def discount(self, change: Change) -> None:
        change.is_superseded = True
        if change.is_counted:
            self._count(change, -1)

    def _count(self, change: Change, sign: int) -> None:
        change.is_counted = True
        self.docs += sign
        self.lengths = tuple(
            total + sign * more for total, more in zip(self.lengths, change.document.lengths, strict=True)
        )

    def _index(self, change: Change) -> None:
        self.members.append(change)
        for term in change.document.vocabulary:
            self.by_term.setdefault(term, []).append(change)
        for tag in change.tags:
            self.by_tag.setdefault(tag, []).append(change)


class Generation:
    """Changes between two commits. The latest of an id is the one that counts."""

    def __init__(self, changes: Iterable[Change] = ()) -> None:
        self.changes: dict[str, Change] = {}
        self.lots: dict[str, _Lot] = {}
        for change in changes:
            self.put(change)

    def put(self, change: Change) -> None:
        before = self.changes.get(change.id)
        if before is not None and before.record is not None:
            self.lots[before.tier].discount(before)
        self.changes[change.id] = change
        if change.record is not None:
            lot = self.lots.get(change.tier)
            if lot is None:
                lot = self.lots[change.tier] = _Lot()
            lot.waiting.append(change)

    def absorb(self, tiers: Iterable[str], budget: int = _ANALYSE_AT_ONCE) -> int:
        for tier in tiers:
            if lot := self.lots.get(tier):
                budget = lot.absorb(budget)
        return budget

    def waiting(self, tier: str) -> int:
        lot = self.lots.get(tier)
        return len(lot.waiting) if lot else 0


class Share:
    """What the changes of one tier add to a question: matching documents, and their part in the statistics."""

    def __init__(self, tier: str, question: Question, fresh: Generation, folding: Generation) -> None:
        self.docs = 0
        self.lengths: tuple[int, ...] = _NOWHERE
        self.containing: dict[str, tuple[int, ...]] = {}
        self.matches: list[Change] = []
        for generation, later in ((fresh, {}), (folding, fresh.changes)):
            if lot := generation.lots.get(tier):
                self._take(lot, question, later)

    def _take(self, lot: _Lot, question: Question, later: dict[str, Change]) -> None:
        self.docs += lot.docs
        self.lengths = tuple(map(add, self.lengths, lot.lengths))
        for term in question.terms:
            holders = [change for change in lot.by_term.get(term, ()) if not change.is_superseded]
            if holders:
                counts = (
                    sum(term in change.document.counts[field] for change in holders) for field in range(len(FIELDS))
                )
                self.containing[term] = tuple(map(add, self.containing.get(term, _NOWHERE), counts))
        found = {change: None for pile in _piles(lot, question) for change in pile}
        audience = question.audience
        self.matches += [
            change
            for change in found
            if not change.is_superseded
            and change.id not in later
            and (audience is None or not audience.isdisjoint(change.scopes))
            and question.admits(change.tags, change.protocols)
        ]


def _piles(lot: _Lot, question: Question) -> list[Sequence[Change]]:
    """Where answers may lie."""
    if question.required:
        return [lot.by_tag.get(question.required[0], ())]
    if question.selects:
        return [lot.members]
    return [
        *(lot.by_term.get(term, ()) for term in question.terms),
        *(lot.by_tag.get(tag, ()) for tag in question.preferred),
    ]


class Blend:
    """Statistics of a tier as if its changes were already in the index."""

    def __init__(self, saved: Statistics, share: Share) -> None:
        self._saved = saved
        self._share = share
        self.docs = saved.docs + share.docs
        self.average_lengths = tuple(
            (average * saved.docs + length) / max(1, self.docs)
            for average, length in zip(saved.average_lengths, share.lengths, strict=True)
        )

    def containing(self, term: str) -> tuple[int, ...]:
        return tuple(map(add, self._saved.containing(term), self._share.containing.get(term, _NOWHERE)))
