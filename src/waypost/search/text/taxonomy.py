"""The tag taxonomy: synonyms, translations, broader and narrower tags; and the tags of a query.

The taxonomy is an outline in plain text (`data/taxonomy.txt` describes the format), which `scripts/taxonomy.py` parses into
`data/taxonomy.jsonl`, so that no start has to analyse it. Spellings of one tag (hyphen, space, underscore, plural, stem) need no
data.

Hard filters are not expanded: required and excluded tags are compared as written (folded). Expansion applies to preferred tags
and to the words of the query, and distinguishes direct from expanded matches (PRO-14).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final, NamedTuple

import msgspec

from waypost import limits
from waypost.model.names import fold, fold_tag
from waypost.search.text.analyzer import analyse, split_words

SYNONYM: Final = 0.95  # the exact word ranks first
NARROWER: Final = 0.8  # finance is answered by accounting
BROADER: Final = 0.5  # accounting may be answered by finance
_NARROWER_STEPS: Final = 2
_EXPANSIONS: Final = 192  # of one tag; a whole domain with all names would be many hundreds
_SPELLING_CACHE: Final = 65_536
_EXPANSION_CACHE: Final = 4096
_PHRASE_TERMS: Final = 4
_MAX_PREDICTED: Final = 8  # tags found in one text; more would be guessing
_SIGN_WORDS: Final = {"#": "sharp", "+": "plus"}  # c# and c++ are not c
_SIGN: Final = re.compile(r"(?<=[a-z])[#+]+")


@lru_cache(maxsize=_SPELLING_CACHE)
def spellings(tag: str) -> tuple[str, ...]:
    """One or two keys; tags that share a key are spellings of one: `Smart_Homes`, `smart home` and `smarthome`."""
    folded = _SIGN.sub(lambda found: "".join(_SIGN_WORDS[sign] for sign in found[0]), fold_tag(tag))
    words = split_words(folded)
    spaced = analyse(" ".join(words))
    compact = analyse("".join(words)) if len(words) > 1 else spaced
    if len(words) > 1 and " " not in spaced:
        spaced = ""  # no-code would become code, and q&a would become q
    return tuple(dict.fromkeys(key for key in (spaced, compact) if key)) or (folded,)


class Concept(msgspec.Struct, array_like=True):
    """One line of the outline."""

    names: dict[str, None]  # the label first
    keys: dict[str, str]  # spelling → the name it spells
    spoken: dict[str, None] = msgspec.field(default_factory=dict)  # spellings that name the tag in a text
    broader: dict[str, None] = msgspec.field(default_factory=dict)
    narrower: dict[str, None] = msgspec.field(default_factory=dict)

    @property
    def label(self) -> str:
        return next(iter(self.names))


class Taxonomy:
    """Immutable."""

    def __init__(self, concepts: Iterable[Concept]) -> None:
        self._concepts = {concept.label: concept for concept in concepts}
        self._labels: dict[str, list[str]] = {}  # by spelling
        self._spoken: dict[str, str] = {}  # by spelling in a text: the first label
        for label, concept in self._concepts.items():
            for key in concept.keys:
                self._labels.setdefault(key, []).append(label)
            for key in concept.spoken:
                self._spoken.setdefault(key, label)

    def __len__(self) -> int:
        return len(self._concepts)

    def keys_of(self, tag: str) -> Mapping[str, float]:
        """Every spelling that answers for the tag, including its own, with its weight; bounded."""
        return _keys_of(self, spellings(tag))

    def find_tags(self, terms: Sequence[str]) -> list[str]:
        """The labels that the analysed words of a query name, a few. The longest phrase counts, and no word counts twice:
        "machine learning" does not name learning."""
        found: dict[str, None] = {}
        start = 0
        while start < len(terms) and len(found) < _MAX_PREDICTED:
            label, size = self._phrase_at(terms[start : start + _PHRASE_TERMS])
            if label is not None:
                found.setdefault(label)
            start += size
        return [*found]

    def _phrase_at(self, terms: Sequence[str]) -> tuple[str | None, int]:
        """The label that the longest phrase at the start names, and its number of terms."""
        for size in range(len(terms), 0, -1):
            label = self._spoken.get(" ".join(terms[:size]))
            if label is not None:
                return label, size
        label = self._spoken.get("".join(terms[:2])) if len(terms) > 1 else None  # chat bot for chatbot
        return (None, 1) if label is None else (label, 2)

    def related(self, keys: tuple[str, ...]) -> Iterator[tuple[str, float]]:
        """Spellings with their weights, by priority: synonyms, broader tags, labels of narrower tags, then all their names."""
        roots = dict.fromkeys(label for key in keys for label in self._labels.get(key, ()))
        above = dict.fromkeys(over for label in roots for over in self._concepts[label].broader)
        yield from self._names_of(roots, SYNONYM)
        yield from self._names_of(above, BROADER)
        levels = [roots]
        for _ in range(_NARROWER_STEPS):
            levels.append(dict.fromkeys(under for label in levels[-1] for under in self._concepts[label].narrower))
        for step, labels in enumerate(levels[1:], start=1):
            yield from ((key, NARROWER**step) for label in labels for key in spellings(label))
        for step, labels in enumerate(levels[1:], start=1):
            yield from self._names_of(labels, NARROWER**step)

    def _names_of(self, labels: Iterable[str], weight: float) -> Iterator[tuple[str, float]]:
        yield from ((key, weight) for label in labels for key in self._concepts[label].keys)


@lru_cache(maxsize=_EXPANSION_CACHE)
def _keys_of(taxonomy: Taxonomy, keys: tuple[str, ...]) -> Mapping[str, float]:
    found = dict.fromkeys(keys, 1.0)
    for key, weight in taxonomy.related(keys):
        if len(found) >= _EXPANSIONS:
            break
        found.setdefault(key, weight)
    return found


@cache
def standard_taxonomy() -> Taxonomy:
    """Loaded on first use."""
    table = (files(__package__) / "data" / "taxonomy.jsonl").read_bytes()
    return Taxonomy(msgspec.json.Decoder(Concept).decode_lines(table))


def standard_outline() -> str:
    return (files(__package__) / "data" / "taxonomy.txt").read_text("utf-8")


class TagMatch(NamedTuple):
    """The tags of a record that match a query."""

    direct: tuple[str, ...]
    expanded: tuple[str, ...]


class TagQuery:
    """The tags of one query, matched with those of an explained record."""

    def __init__(self, text: str, requested: Iterable[str], taxonomy: Taxonomy) -> None:
        text = text[: limits.QUERY_CHARS]
        terms = analyse(text).split()
        self._requested = frozenset(map(fold_tag, requested))
        self._words = frozenset(map(fold, split_words(text)))
        self._terms = frozenset(terms)
        sought = (*self._requested, *taxonomy.find_tags(terms[: limits.QUERY_TERMS]))
        self._keys = frozenset(key for tag in sought for key in taxonomy.keys_of(tag))

    def match_tags(self, tags: Iterable[str]) -> TagMatch:
        """The tags of a record that were requested or occur in the query; separately those that match by stem, spelling or
        taxonomy."""
        direct, expanded = [], []
        for tag in dict.fromkeys(tags):
            folded = fold_tag(tag)
            if folded in self._requested or self._words.issuperset(split_words(folded) or ("",)):
                direct.append(tag)
            elif not self._keys.isdisjoint(spellings(tag)) or self._terms.issuperset(analyse(tag).split() or ("",)):
                expanded.append(tag)
        return TagMatch(tuple(direct), tuple(expanded))
