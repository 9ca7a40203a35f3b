"""Which tags answer a question: those asked for, those its words name, and what the taxonomy puts beside both.

Hard filters are not widened: required and excluded tags mean the tag as it is written (folded). Expansion weighs preferred
tags and the question's own words, and tells a direct match from an expanded one (PRO-14). It knows no index: it names the
spellings to look up and what each is worth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from waypost import limits
from waypost.model.names import fold, fold_tag
from waypost.search.taxonomy import Expansion, Relation, Taxonomy, spellings
from waypost.search.text import analyse, words_of

PHRASE: Final = 0.9  # how surely several words in a row mean the tag that is spelled like them
WORD: Final = 0.6  # and one word alone
DIRECT: Final = 1.0

_PHRASE_TERMS: Final = 4
_PREDICTED: Final = 8  # tags read from one text: more would be guessing
_PAIR: Final = 2


class Sought(NamedTuple):
    """One tag that the question is after."""

    tag: str  # as asked for, or what the words name
    confidence: float  # 1 for a tag that was asked for
    keys: Mapping[str, Expansion]  # spelling → the tag that it stands for, how, and its weight


class ExpandedTag(NamedTuple):
    """A record's tag that answers for another."""

    tag: str  # as the record writes it
    sought: str
    relation: Relation
    weight: float


class Carried(NamedTuple):
    """What a record's tags answer of a question."""

    direct: tuple[str, ...]
    expanded: tuple[ExpandedTag, ...]
    share: float  # of the tags asked for, each by its best match; 0 if none were


class TagQuestion:
    """The tags of one question. Made once, then asked for each record that is explained."""

    def __init__(self, text: str, asked: Iterable[str], taxonomy: Taxonomy) -> None:
        self._text = text[: limits.QUERY_CHARS]
        terms = analyse(self._text).split()
        self.asked = tuple(dict.fromkeys(map(fold_tag, asked)))
        self.sought = (*(Sought(tag, 1.0, taxonomy.keys_of(tag)) for tag in self.asked), *predict(terms, taxonomy))
        self._terms = frozenset(terms)

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(fold(word) for word in words_of(self._text))

    def carried_by(self, tags: Iterable[str]) -> Carried:
        """The tags of a record that were asked for or written in the question; apart from them, those that a stem, another
        spelling or the taxonomy leads to."""
        direct, expanded = [], []
        best = dict.fromkeys(self.asked, 0.0)
        for tag in dict.fromkeys(tags):
            folded = fold_tag(tag)
            if folded in best:
                best[folded] = DIRECT
                direct.append(tag)
                continue
            found = self._expanded(tag)
            if found is not None and found.sought in best:
                best[found.sought] = max(best[found.sought], found.weight)
            if self._words.issuperset(words_of(folded) or ("",)):
                direct.append(tag)
            elif found is not None:
                expanded.append(found)
        share = sum(best.values()) / len(best) if best else 0.0
        return Carried(tuple(direct), tuple(expanded), share)

    def _expanded(self, tag: str) -> ExpandedTag | None:
        """The strongest reason for a tag that was not asked for as such."""
        found: ExpandedTag | None = None
        keys = spellings(tag)
        for sought in self.sought:
            for key in keys:
                held = sought.keys.get(key)
                if held is not None and (found is None or held.weight * sought.confidence > found.weight):
                    found = ExpandedTag(tag, sought.tag, held.relation, held.weight * sought.confidence)
        if found is None and self._terms.issuperset(analyse(tag).split() or ("",)):
            return ExpandedTag(tag, tag, "spelling", WORD)
        return found


def predict(
    terms: Sequence[str], taxonomy: Taxonomy, is_tag: Callable[[str], bool] | None = None
) -> tuple[Sought, ...]:
    """Tags that the analysed words of a question name, and how surely they are meant.

    A phrase names a tag if the taxonomy knows it, or if `is_tag` says that a visible agent carries a tag of that spelling.
    The longest phrase counts and no word counts twice: in "machine learning" nobody asks for learning.
    """
    found = names_in(terms, taxonomy, is_tag)
    return tuple(Sought(tag, confidence, taxonomy.keys_of(tag)) for tag, confidence in found.items())


def names_in(
    terms: Sequence[str], taxonomy: Taxonomy, is_tag: Callable[[str], bool] | None = None
) -> Mapping[str, float]:
    """The same tags, and how surely each is meant."""
    if is_tag is None:
        return _known_names(terms[: limits.QUERY_TERMS], *taxonomy.phrases)
    found: dict[str, float] = {}
    start, end = 0, min(len(terms), limits.QUERY_TERMS)
    while start < end and len(found) < _PREDICTED:
        tag, size = _named(terms[start : min(start + _PHRASE_TERMS, end)], taxonomy, is_tag)
        if tag is not None:
            found.setdefault(tag, WORD if size == 1 else PHRASE)
        start += size
    return found


def _known_names(
    terms: Sequence[str], longest: Mapping[str, int], spoken: Mapping[str, tuple[str, ...]]
) -> dict[str, float]:
    """The tags of the taxonomy that the terms name. `longest`: the most terms of a phrase, by its first term."""
    found: dict[str, float] = {}
    start = 0
    while start < len(terms) and len(found) < _PREDICTED:
        labels, size = None, min(longest.get(terms[start], 0), _PHRASE_TERMS, len(terms) - start)
        while size and (labels := spoken.get(" ".join(terms[start : start + size]))) is None:
            size -= 1
        if labels is None and start + 1 < len(terms):  # chat bot for chatbot
            labels, size = spoken.get(terms[start] + terms[start + 1]), _PAIR
        if labels is None:
            start += 1
            continue
        found.setdefault(labels[0], WORD if size == 1 else PHRASE)
        start += size
    return found


def _named(terms: Sequence[str], taxonomy: Taxonomy, is_tag: Callable[[str], bool]) -> tuple[str | None, int]:
    """What the longest phrase at the beginning names, and of how many terms it is."""
    for size in range(len(terms), 0, -1):
        phrase = " ".join(terms[:size])
        label = taxonomy.spoken(phrase)
        if label is not None:
            return label, size
        if is_tag(phrase):
            return phrase, size
    label = taxonomy.spoken(terms[0] + terms[1]) if len(terms) > 1 else None  # chat bot for chatbot
    return (None, 1) if label is None else (label, _PAIR)
