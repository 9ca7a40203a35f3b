"""Signals and how they become one answer. A new signal is one more weight in the list; nothing else learns of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from waypost.model.registration import Registration
from waypost.search.question import Found, Question, Scored


class Signal(Protocol):
    """One view of relevance: ids with absolute scores in 0..1, hard filters and audience applied."""

    def open(self) -> int:
        """Open what was saved; returns the revision it reflects (0: nothing)."""
        ...

    def clear(self) -> None: ...

    def put(self, registration: Registration) -> None: ...

    def remove(self, agent_id: str) -> None: ...

    def search(self, question: Question, limit: int) -> Found: ...

    @property
    def pending(self) -> int: ...

    def maintain(self, revision: int) -> None: ...

    def close(self) -> None: ...


def fuse(answers: Sequence[tuple[float, Found]]) -> Found:
    """The weighted mean of the signals' scores; a signal that does not know an id gives it nothing."""
    if len(answers) == 1:
        return answers[0][1]
    total = sum(weight for weight, _ in answers)
    scores: dict[str, float] = {}
    deprecated: set[str] = set()
    for weight, found in answers:
        for each in found.scored:
            scores[each.id] = scores.get(each.id, 0.0) + each.score * weight / total
            if each.deprecated:
                deprecated.add(each.id)
    return Found(
        scored=[Scored(agent_id, score, agent_id in deprecated) for agent_id, score in scores.items()],
        ceiling=sum(found.ceiling * weight / total for weight, found in answers),
        is_complete=all(found.is_complete for _, found in answers),
        skipped=max(found.skipped for _, found in answers),
    )
