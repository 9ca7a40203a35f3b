"""Corrects misspelled words of a query before it is ranked.

A word is misspelled if no agent that the caller may see has it, no sentence model has it in its vocabulary, and exactly one edit
(two letters swapped, one left out, added or replaced, after the first letter) makes it a word of such an agent. Of several such
words the one with the same letters is meant, of which two were swapped, else the most frequent one. Without a model a query is
corrected only if it has no known word, because "slack" may be a word that no agent has yet; otherwise similar words are only
suggested. So are, for a word of four letters, those with one letter more: it is one edit from too many others. Words of private
examples are never proposed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from waypost import limits
from waypost.search.index.document import exact_key, hash_of
from waypost.search.index.segment import SegmentReader
from waypost.search.index.vocabulary import MAX_BYTES, WORD_TYPE, Words, is_vocabulary_word
from waypost.search.parsed_query import visible_tiers
from waypost.search.text.analyzer import analyse, split_words
from waypost.search.text.edits import one_edit
from waypost.search.text.sanitize import sanitize_text

_MIN_CORRECTED: Final = 5  # letters
_VARIANT_CACHE: Final = 64

HasWord = Callable[[str], bool]


class Spelling(NamedTuple):
    """Words of a query that no visible agent has: words of agents that are spelled similarly, the likeliest first; and the
    one that is searched for instead."""

    suggestions: Mapping[str, tuple[str, ...]] = {}
    corrections: Mapping[str, str] = {}

    def correct(self, text: str) -> str:
        """The text with the words that were meant, in capitals where it has capitals."""
        for word, meant in self.corrections.items():
            pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE)
            text = pattern.sub(lambda found, meant=meant: meant.upper() if found[0].isupper() else meant, text)  # type: ignore[misc]
        return text

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(
            f"No agent has the word {word!r}: {meant!r} was searched for instead."
            for word, meant in self.corrections.items()
        )


def check_spelling(
    text: str, readers: Sequence[SegmentReader], audience: frozenset[str] | None, has_word: HasWord | None
) -> Spelling:
    """`has_word` says whether a word is in the vocabulary of a model; None: there is no model."""
    text = sanitize_text(text[: limits.QUERY_CHARS])
    words = [word for word in dict.fromkeys(split_words(text.casefold())) if analyse(word)]
    checked = [word for word in words if is_vocabulary_word(word)][: limits.SPELLED_WORDS]
    unknown = [word for word, count in _count_agents(checked, readers, audience).items() if not count]
    misspelled = [word for word in unknown if has_word is None or not has_word(word)]
    if not misspelled or _names_agent(text, readers, audience):
        return Spelling()
    near = {word: _find_near(word, readers, audience) for word in misspelled[: limits.MISSPELLED_WORDS]}
    suggestions = {word: found[: limits.SUGGESTIONS] for word, found in near.items() if found}
    is_corrected = has_word is not None or len(unknown) == len(words)
    long = {word: found[0] for word, found in suggestions.items() if len(word) >= _MIN_CORRECTED}
    return Spelling(suggestions, long if is_corrected else {})


def _count_agents(
    words: Sequence[str], readers: Sequence[SegmentReader], audience: frozenset[str] | None
) -> dict[str, int]:
    """How many agents have a word: of those that the whole audience sees, and of the private ones that the caller sees."""
    terms = {word: tuple(map(hash_of, analyse(word).split())) for word in words}
    totals = dict.fromkeys((term for some in terms.values() for term in some), 0)
    distinct, tiers = list(totals), visible_tiers(audience)
    for reader in readers:
        terms_of_reader = reader.segment.terms
        if reader.segment.common_tier in tiers:
            counts = reader.count_documents(terms_of_reader.find(distinct))
        else:
            counts = [len(rows) for rows in terms_of_reader.rows_among(distinct, *reader.visible(audience))]
        for term, count in zip(distinct, counts, strict=True):
            totals[term] += count
    return {word: max((totals[term] for term in some), default=0) for word, some in terms.items()}


def _names_agent(text: str, readers: Sequence[SegmentReader], audience: frozenset[str] | None) -> bool:
    """Whether the text is the id, name or tag of a visible agent: ids are not indexed by words."""
    key = exact_key(text)
    return any(len(reader.segment.keys.rows_among([key], *reader.visible(audience))[0]) for reader in readers)


def _find_near(word: str, readers: Sequence[SegmentReader], audience: frozenset[str] | None) -> tuple[str, ...]:
    """Words of visible agents at one edit from a word, or from its singular."""
    for form in (word, word[:-1]) if word.endswith("s") else (word,):
        variants = _variants(form)
        found = sorted({each for reader in readers for each in reader.segment.vocabulary.find(variants)})
        if len(word) < _MIN_CORRECTED:
            found = [each for each in found if len(each) > len(word)]
        # A vocabulary also has words of private agents of others, and of deleted ones until it is compacted.
        counts = _count_agents(found, readers, audience)
        visible = sorted(
            (each for each in found if counts[each]),
            key=lambda each: (sorted(each) != sorted(form), -counts[each]),
        )
        if visible:
            return tuple(visible)
    return ()


@lru_cache(maxsize=_VARIANT_CACHE)
def _variants(word: str) -> Words:
    """All spellings at one edit from a word, with the same first letter."""
    encoded = (each.encode() for each in one_edit(word, first=1))
    return np.array(sorted(each for each in encoded if len(each) <= MAX_BYTES), dtype=WORD_TYPE)
