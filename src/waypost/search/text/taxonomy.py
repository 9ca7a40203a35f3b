"""The tag taxonomy: synonyms, translations, broader and narrower tags; and the tags of a query.

A taxonomy is an outline in plain text (`data/taxonomy.txt` describes the format); an operator's own outline adds to it. Spellings
of one tag (hyphen, space, underscore, plural, stem) need no data. The standard outline also ships parsed
(`data/taxonomy.jsonl`), so that no start has to analyse it.

Hard filters are not expanded: required and excluded tags are compared as written (folded). Expansion applies to preferred tags
and to the words of the query, and distinguishes direct from expanded matches (PRO-14).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from typing import Final, Literal, NamedTuple

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.names import fold, fold_tag
from waypost.search.text.analyzer import analyse, split_words

Relation = Literal["spelling", "synonym", "narrower", "broader"]

SYNONYM: Final = 0.95  # the exact word ranks first

NARROWER: Final = 0.8  # finance is answered by accounting

BROADER: Final = 0.5  # accounting may be answered by finance

_NARROWER_STEPS: Final = 2

_EXPANSIONS: Final = 192  # of one tag; a whole domain with all names would be many hundreds

_SPELLING_CACHE: Final = 65_536

_EXPANSION_CACHE: Final = 4096

_INDENT: Final = 2

_SIGN_WORDS: Final = {"#": "sharp", "+": "plus"}  # c# and c++ are not c

_SIGN: Final = re.compile(r"(?<=[a-z])[#+]+")

_LANGUAGE: Final = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})?\Z")


class Expansion(NamedTuple):
    """A tag that answers for another, and its weight."""

    tag: str
    relation: Relation
    weight: float


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


class _Concept(msgspec.Struct, array_like=True):
    """One line of the outline."""

    names: dict[str, None]  # the label first
    keys: dict[str, str]  # spelling → the name it spells
    spoken: dict[str, None] = msgspec.field(default_factory=dict)  # spellings that name the tag in a text
    broader: dict[str, None] = msgspec.field(default_factory=dict)
    narrower: dict[str, None] = msgspec.field(default_factory=dict)

    @classmethod
    def of(cls, label: str) -> _Concept:
        return cls({label: None}, dict.fromkeys(spellings(label), label))

    @property
    def label(self) -> str:
        return next(iter(self.names))

    def add(self, name: str, *, is_spoken: bool) -> None:
        self.names.setdefault(name)
        for key in spellings(name):
            self.keys.setdefault(key, name)
            if is_spoken:
                self.spoken.setdefault(key)


class Taxonomy:
    """Immutable."""

    def __init__(self, concepts: Mapping[str, _Concept]) -> None:
        self._concepts = concepts
        self._named = _under_keys(concepts, spoken=False)
        self._spoken = _under_keys(concepts, spoken=True)
        self._longest = _longest(self._spoken)

    def __len__(self) -> int:
        return len(self._concepts)

    def table(self) -> bytes:
        """The parsed taxonomy as JSON lines, one concept each."""
        return msgspec.json.Encoder().encode_lines(self._concepts.values())

    def expand(self, tag: str) -> tuple[Expansion, ...]:
        """Synonyms, narrower and broader tags, by weight, bounded."""
        found = dict.fromkeys(found for found in self.keys_of(tag).values() if found.relation != "spelling")
        return tuple(sorted(found, key=lambda expansion: -expansion.weight))

    def keys_of(self, tag: str) -> Mapping[str, Expansion]:
        """Every spelling that answers for the tag, including its own."""
        return _keys_of(self, spellings(tag))

    def spoken(self, key: str) -> str | None:
        """The label of the concept that a phrase names, by its spelling, or None."""
        labels = self._spoken.get(key)
        return labels[0] if labels else None

    @property
    def phrases(self) -> tuple[dict[str, int], dict[str, tuple[str, ...]]]:
        """The longest phrase (in terms) by first term, and the labels of each phrase."""
        return self._longest, self._spoken

    def related(self, keys: tuple[str, ...]) -> Iterator[tuple[str, Expansion]]:
        """Spellings with their expansions, by priority: synonyms, broader tags, labels of narrower tags, then all their names."""
        roots = dict.fromkeys(label for key in keys for label in self._named.get(key, ()))
        above = dict.fromkeys(over for label in roots for over in self._concepts[label].broader)
        yield from self._names_of(roots, "synonym", SYNONYM)
        yield from self._names_of(above, "broader", BROADER)
        levels = [roots]
        for _ in range(_NARROWER_STEPS):
            levels.append(dict.fromkeys(under for label in levels[-1] for under in self._concepts[label].narrower))
        for step, labels in enumerate(levels[1:], start=1):
            for label in labels:
                yield from ((key, Expansion(label, "narrower", NARROWER**step)) for key in spellings(label))
        for step, labels in enumerate(levels[1:], start=1):
            yield from self._names_of(labels, "narrower", NARROWER**step)

    def _names_of(self, labels: Iterable[str], relation: Relation, weight: float) -> Iterator[tuple[str, Expansion]]:
        for label in labels:
            for key, name in self._concepts[label].keys.items():
                yield key, Expansion(name, relation, weight)


def _under_keys(concepts: Mapping[str, _Concept], *, spoken: bool) -> dict[str, tuple[str, ...]]:
    labels: dict[str, tuple[str, ...]] = {}
    for label, concept in concepts.items():
        alone = (label,)
        for key in concept.spoken if spoken else concept.keys:
            known = labels.setdefault(key, alone)
            if known is not alone:
                labels[key] = (*known, label)
    return labels


def _longest(phrases: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for phrase in phrases:
        first = phrase.partition(" ")[0]
        found[first] = max(found.get(first, 0), phrase.count(" ") + 1)
    return found


@lru_cache(maxsize=_EXPANSION_CACHE)
def _keys_of(taxonomy: Taxonomy, keys: tuple[str, ...]) -> Mapping[str, Expansion]:
    found = {key: Expansion(keys[0], "spelling", 1.0) for key in keys}
    for key, expansion in taxonomy.related(keys):
        if len(found) >= _EXPANSIONS:
            break
        found.setdefault(key, expansion)
    return found


# --- Outlines ---


@cache
def standard_taxonomy() -> Taxonomy:
    """The standard taxonomy, loaded on first use."""
    return load_taxonomy((files(__package__) / "data" / "taxonomy.jsonl").read_bytes())


def standard_outline() -> str:
    return (files(__package__) / "data" / "taxonomy.txt").read_text("utf-8")


def load_taxonomy(table: bytes) -> Taxonomy:
    """Load the result of `Taxonomy.table`."""
    concepts = msgspec.json.Decoder(_Concept).decode_lines(table)
    return Taxonomy({concept.label: concept for concept in concepts})


def parse_taxonomy(*outlines: str) -> Taxonomy:
    """Parse outlines into one taxonomy; a repeated label gains names and relations."""
    concepts: dict[str, _Concept] = {}
    unders: list[tuple[str, str, str]] = []
    for outline in outlines:
        parents: list[str] = []
        for number, line in enumerate(outline.splitlines(), start=1):
            if line.strip() and not line.lstrip().startswith("#"):
                unders += _parse_line(line, f"line {number}", parents, concepts)
    for label, over, path in unders:
        if over not in concepts:
            raise InvalidDocument(f"{over!r} is not a label.", path=path, hint="Give it a line of its own.")
        _relate(concepts, label, over)
    return Taxonomy(concepts)


def _parse_line(line: str, path: str, parents: list[str], concepts: dict[str, _Concept]) -> list[tuple[str, str, str]]:
    """Parse one line; return its `under` relations, whose labels may come later."""
    depth, odd = divmod(len(line) - len(line.lstrip(" ")), _INDENT)
    if odd or depth > len(parents) or line.startswith("\t"):
        raise InvalidDocument("The indentation of the line is invalid.", path=path, hint="Indent by two spaces.")
    head, *parts = line.strip().split("|")
    written, _, synonyms = head.partition("=")
    label = fold_tag(written.strip().removeprefix("~"))
    if not label:
        raise InvalidDocument("The line has no label.", path=path, hint="Begin it with a tag.")
    concept = concepts.get(label) or concepts.setdefault(label, _Concept.of(label))
    concept.add(label, is_spoken=not written.strip().startswith("~"))
    _add_names(concept, synonyms)
    del parents[depth:]
    if parents:
        _relate(concepts, label, parents[-1])
    parents.append(label)
    return [(label, over, path) for part in parts for over in _parse_part(part, concept, path)]


def _parse_part(part: str, concept: _Concept, path: str) -> list[str]:
    kind, colon, values = part.partition(":")
    if kind.strip() == "under" and colon:
        return [fold_tag(value) for value in values.split(",") if value.strip()]
    if not colon or not _LANGUAGE.match(kind.strip()):
        raise InvalidDocument(
            f"{part.strip()[:40]!r} is neither a language nor `under`.", path=path, hint="Write it like `es: viajes`."
        )
    _add_names(concept, values)
    return []


def _add_names(concept: _Concept, names: str) -> None:
    for name in filter(None, map(str.strip, names.split(","))):
        concept.add(fold_tag(name.removeprefix("~")), is_spoken=not name.startswith("~"))


def _relate(concepts: dict[str, _Concept], label: str, over: str) -> None:
    if label != over:
        concepts[label].broader.setdefault(over)
        concepts[over].narrower.setdefault(label)


# --- Tags of a query ---

PHRASE_CONFIDENCE: Final = 0.9  # that several words in a row mean the tag of that spelling

WORD_CONFIDENCE: Final = 0.6  # that a single word does

DIRECT_WEIGHT: Final = 1.0

_PHRASE_TERMS: Final = 4

_MAX_PREDICTED: Final = 8  # tags found in one text; more would be guessing

_PAIR: Final = 2


class SoughtTag(NamedTuple):
    """One tag that the query asks for."""

    tag: str  # as requested, or found in the text
    confidence: float  # 1 for a requested tag
    keys: Mapping[str, Expansion]  # by spelling


class ExpandedTag(NamedTuple):
    """A tag of a record that answers for another."""

    tag: str  # as the record writes it
    sought: str
    relation: Relation
    weight: float


class TagMatch(NamedTuple):
    """The tags of a record that match a query."""

    direct: tuple[str, ...]
    expanded: tuple[ExpandedTag, ...]
    share: float  # of the requested tags, each by its best match; 0 if none were requested


class TagQuery:
    """The tags of one query, matched with each explained record."""

    def __init__(self, text: str, requested: Iterable[str], taxonomy: Taxonomy) -> None:
        self._text = text[: limits.QUERY_CHARS]
        terms = analyse(self._text).split()
        self.requested = tuple(dict.fromkeys(map(fold_tag, requested)))
        self.sought = (
            *(SoughtTag(tag, 1.0, taxonomy.keys_of(tag)) for tag in self.requested),
            *predict_tags(terms, taxonomy),
        )
        self._terms = frozenset(terms)

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(fold(word) for word in split_words(self._text))

    def match_tags(self, tags: Iterable[str]) -> TagMatch:
        """The tags of a record that were requested or occur in the query; separately those that match by stem, spelling or
        taxonomy."""
        direct, expanded = [], []
        best = dict.fromkeys(self.requested, 0.0)
        for tag in dict.fromkeys(tags):
            folded = fold_tag(tag)
            if folded in best:
                best[folded] = DIRECT_WEIGHT
                direct.append(tag)
                continue
            found = self._expanded(tag)
            if found is not None and found.sought in best:
                best[found.sought] = max(best[found.sought], found.weight)
            if self._words.issuperset(split_words(folded) or ("",)):
                direct.append(tag)
            elif found is not None:
                expanded.append(found)
        share = sum(best.values()) / len(best) if best else 0.0
        return TagMatch(tuple(direct), tuple(expanded), share)

    def _expanded(self, tag: str) -> ExpandedTag | None:
        """The strongest expansion that a tag answers for."""
        found: ExpandedTag | None = None
        keys = spellings(tag)
        for sought in self.sought:
            for key in keys:
                expansion = sought.keys.get(key)
                if expansion is not None and (found is None or expansion.weight * sought.confidence > found.weight):
                    found = ExpandedTag(tag, sought.tag, expansion.relation, expansion.weight * sought.confidence)
        if found is None and self._terms.issuperset(analyse(tag).split() or ("",)):
            return ExpandedTag(tag, tag, "spelling", WORD_CONFIDENCE)
        return found


def predict_tags(
    terms: Sequence[str], taxonomy: Taxonomy, is_tag: Callable[[str], bool] | None = None
) -> tuple[SoughtTag, ...]:
    """Tags that the analysed words of a query name, with confidences.

    A phrase names a tag if the taxonomy knows it, or if `is_tag` says that a visible agent has a tag of that spelling. The
    longest phrase counts, and no word counts twice: "machine learning" does not name learning.
    """
    found = find_tag_names(terms, taxonomy, is_tag)
    return tuple(SoughtTag(tag, confidence, taxonomy.keys_of(tag)) for tag, confidence in found.items())


def find_tag_names(
    terms: Sequence[str], taxonomy: Taxonomy, is_tag: Callable[[str], bool] | None = None
) -> Mapping[str, float]:
    """The same tags, with their confidences only."""
    if is_tag is None:
        return _known_names(terms[: limits.QUERY_TERMS], *taxonomy.phrases)
    found: dict[str, float] = {}
    start, end = 0, min(len(terms), limits.QUERY_TERMS)
    while start < end and len(found) < _MAX_PREDICTED:
        tag, size = _named(terms[start : min(start + _PHRASE_TERMS, end)], taxonomy, is_tag)
        if tag is not None:
            found.setdefault(tag, WORD_CONFIDENCE if size == 1 else PHRASE_CONFIDENCE)
        start += size
    return found


def _known_names(
    terms: Sequence[str], longest: Mapping[str, int], spoken: Mapping[str, tuple[str, ...]]
) -> dict[str, float]:
    """The tags of the taxonomy that the terms name. `longest` is the longest phrase by first term."""
    found: dict[str, float] = {}
    start = 0
    while start < len(terms) and len(found) < _MAX_PREDICTED:
        labels, size = None, min(longest.get(terms[start], 0), _PHRASE_TERMS, len(terms) - start)
        while size and (labels := spoken.get(" ".join(terms[start : start + size]))) is None:
            size -= 1
        if labels is None and start + 1 < len(terms):  # chat bot for chatbot
            labels, size = spoken.get(terms[start] + terms[start + 1]), _PAIR
        if labels is None:
            start += 1
            continue
        found.setdefault(labels[0], WORD_CONFIDENCE if size == 1 else PHRASE_CONFIDENCE)
        start += size
    return found


def _named(terms: Sequence[str], taxonomy: Taxonomy, is_tag: Callable[[str], bool]) -> tuple[str | None, int]:
    """The tag that the longest phrase at the start names, and its number of terms."""
    for size in range(len(terms), 0, -1):
        phrase = " ".join(terms[:size])
        label = taxonomy.spoken(phrase)
        if label is not None:
            return label, size
        if is_tag(phrase):
            return phrase, size
    label = taxonomy.spoken(terms[0] + terms[1]) if len(terms) > 1 else None  # chat bot for chatbot
    return (None, 1) if label is None else (label, _PAIR)
