"""A question as the signals see it: analysed terms, folded filters, the audience. And what a signal answers."""

from __future__ import annotations

import msgspec

from waypost import limits
from waypost.model.names import fold, fold_tag
from waypost.model.query import Query
from waypost.search.reading import read


class Question(msgspec.Struct, frozen=True, kw_only=True):
    terms: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    audience: frozenset[str] | None = None  # None sees everything

    @property
    def selects(self) -> bool:
        """True when passing the filters is reason enough to be an answer, if a weak one."""
        return bool(self.required) or (not self.terms and bool(self.protocols))

    def admits(self, tags: frozenset[str], protocols: frozenset[str]) -> bool:
        """The hard filters, for one agent."""
        if not tags.issuperset(self.required) or not tags.isdisjoint(self.excluded):
            return False
        return not self.protocols or not protocols.isdisjoint(self.protocols)


def question_of(query: Query, audience: frozenset[str] | None) -> Question:
    return Question(
        terms=read(query.text[: limits.QUERY_CHARS]).terms,
        required=_folded_tags(query.required_tags),
        preferred=_folded_tags(query.preferred_tags),
        excluded=_folded_tags(query.excluded_tags),
        protocols=tuple([_storable(fold(protocol)) for protocol in dict.fromkeys(query.protocols)]),
        audience=audience,
    )


def _folded_tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_storable(fold_tag(tag)) for tag in tags)) if tags else ()


def _storable(key: str) -> str:
    """A key that an index can be asked for. No record holds a lone surrogate, so what stands for it matches nothing."""
    return key if key.isascii() else key.encode("utf-8", "replace").decode()


class Scored(msgspec.Struct, frozen=True, gc=False):
    """An id with an absolute score in 0..1."""

    id: str
    score: float
    deprecated: bool = False


class Found(msgspec.Struct, frozen=True):
    """What a signal found. Nothing that it left unseen belongs before a seen one whose score is above the ceiling."""

    scored: list[Scored]
    ceiling: float = 0.0
    is_complete: bool = True  # nothing was left unseen
    skipped: int = 0  # visible changes too fresh to be looked at in time
