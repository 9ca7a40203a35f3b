"""The write buffer: changes that are not in a segment yet, and the scan of them for one query.

Analysing an agent takes a hundred times as long as looking for a word in its text. During a bulk load many changes are
buffered, so a query analyses only those whose texts contain its words; the others wait for the compaction.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView, Sequence
from math import log
from typing import Final

import numpy as np

from waypost.model.names import fold_tag
from waypost.model.query import Query
from waypost.model.record import AgentRecord, protocols_of
from waypost.model.registration import Registration
from waypost.search.text.analyzer import query_terms
from waypost.search.text.sanitize import sanitize_text

_SAMPLE: Final = 400  # texts by which the rarest terms are chosen
_SCANNED_TERMS: Final = 6  # the rarest ones: a common word distinguishes nothing


class WriteBuffer:
    """The newest change of each agent, in order, indexed by visibility scope."""

    def __init__(self) -> None:
        self._registrations: dict[str, Registration] = {}
        self._numbers: dict[str, dict[str, int]] = {}  # by scope, then id: order of arrival
        self._count = 0
        self._texts: dict[str, str] = {}  # by id, of agents that a query looked at

    def __len__(self) -> int:
        return len(self._registrations)

    def __getitem__(self, agent_id: str) -> Registration:
        return self._registrations[agent_id]

    def get(self, agent_id: str) -> Registration | None:
        return self._registrations.get(agent_id)

    def ids(self) -> KeysView[str]:
        return self._registrations.keys()

    def all(self) -> list[Registration]:
        return list(self._registrations.values())

    def put(self, agent_id: str, registration: Registration) -> None:
        self.drop(agent_id)
        self._registrations[agent_id] = registration
        self._count += 1
        for scope in registration.scopes:
            self._numbers.setdefault(scope, {})[agent_id] = self._count

    def drop(self, agent_id: str) -> None:
        dropped = self._registrations.pop(agent_id, None)
        self._texts.pop(agent_id, None)
        for scope in dropped.scopes if dropped is not None else ():
            numbers = self._numbers[scope]
            del numbers[agent_id]
            if not numbers:
                del self._numbers[scope]

    def clear(self) -> None:
        self._registrations, self._numbers, self._texts = {}, {}, {}

    def count_visible(self, audience: frozenset[str] | None) -> int:
        """An upper bound: an agent counts once per matching scope."""
        if audience is None:
            return len(self._registrations)
        return sum(len(self._numbers.get(scope, ())) for scope in audience)  # other threads may change it meanwhile

    def visible_ids(self, audience: frozenset[str] | None) -> list[str]:
        """Ids that an audience may see, newest first. Hidden ones take no time."""
        if audience is None:
            return list(reversed(self._registrations))
        found: dict[str, int] = {}
        for scope in self._scopes_of(audience):
            found.update(self._numbers[scope])
        return sorted(found, key=found.__getitem__, reverse=True)

    def visible(self, audience: frozenset[str] | None) -> list[Registration]:
        return [self._registrations[agent_id] for agent_id in self.visible_ids(audience)]

    def _scopes_of(self, audience: frozenset[str]) -> Iterable[str]:
        return (scope for scope in audience if scope in self._numbers)

    def scan(self, registrations: Sequence[Registration], query: Query, limit: int) -> list[Registration]:
        """The registrations that pass the filters of a query and have its words: those with the rarest words first. Needs no
        lock: a text that is stored for an agent that was dropped meanwhile is only a little memory."""
        passed = [each for each in registrations if _passes(each.record, query)]
        terms = query_terms(sanitize_text(query.text))
        if not terms or len(passed) <= limit:
            return passed[:limit]
        texts = [self._text_of(each) for each in passed]
        scores = np.zeros(len(texts))
        for term in _rarest(terms, texts):
            has = np.fromiter((term in text for text in texts), dtype=np.bool_, count=len(texts))
            frequency = int(has.sum())
            if frequency:
                scores[has] += log(1 + len(texts) / frequency)
        best = np.argsort(-scores, kind="stable")[:limit]
        return [passed[at] for at in best.tolist() if scores[at] > 0]

    def _text_of(self, registration: Registration) -> str:
        known = self._texts.get(registration.id)
        if known is None:
            record = registration.record
            parts = (record.name, record.description, *record.tags, *[each.text for each in record.examples])
            known = self._texts[registration.id] = "\n".join(parts).casefold()
        return known


def _passes(record: AgentRecord, query: Query) -> bool:
    if query.required_tags and not {*map(fold_tag, query.required_tags)} <= {*map(fold_tag, record.tags)}:
        return False
    return not query.protocols or not set(query.protocols).isdisjoint(protocols_of(record))


def _rarest(terms: Sequence[str], texts: Sequence[str]) -> list[str]:
    """The beginnings of words to look for. A stem is one, except that y became i."""
    parts = dict.fromkeys(term[:-1] if len(term) > 3 and term.endswith("i") else term for term in terms)
    sample = texts[:: max(1, len(texts) // _SAMPLE)]
    return sorted(parts, key=lambda part: sum(part in text for text in sample))[:_SCANNED_TERMS]
