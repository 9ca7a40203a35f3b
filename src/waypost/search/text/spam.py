"""What does not pay: stuffed tags, repeated words, lists of keywords, also those that go along with every example.

Weights in 0..1 that multiply what a field is worth, each a pure function of the one record, so that neither a rival nor a
crowd can move them. Nothing here reads a text's meaning, and no text can raise a weight above that of plain words. What is
only told of a text, and weighs nothing, is in `lint`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from operator import eq
from typing import Final, NamedTuple

from waypost import limits
from waypost.model.record import AgentRecord
from waypost.search.text.analyzer import analyse, split_words, terms_of
from waypost.search.text.sanitize import sanitize_text

_PLENTY_OF_TAGS: Final = 8  # tags that the agent's own words need not bear out
_STUFFED_TAGS: Final = 20  # of such tags: from here on, tags say nothing
_STUFFED_WHOLE: Final = 0.95  # what stuffing costs the whole record, so that it falls behind its honest twin
_REPEATS: Final = 6  # of one term that any text may have
_REPEATED_SHARE: Final = 0.12  # of all its terms that one may be
_REPEATED_SHORT_SHARE: Final = 0.24  # Spanish prose is one tenth "de"
_DISTINCT_SHARE: Final = 0.25  # of the terms of a text: with fewer, it is repetition and no prose
_LEAST_REPEATED: Final = 24  # terms: less is soon said
_REPEATED_WHOLE: Final = 0.9  # what such a text costs the record: a vector hears what is said often
_SUBJECT: Final = 6  # terms that half of the examples may share: those that name what all of them are about
_LEAST: Final = 0.1
_LIST_WORDS: Final = 64  # shorter ones may well be a plain list of features
_LIST_SHARE: Final = 0.1  # of short or function words; prose in any language we know has three times as many
_LIST: Final = 0.5
_SHORT_WORD: Final = 3
_SAID_OFTEN: Final = 3  # of one word in a whole text, for a vector
_SENTENCE: Final = 4  # words: what is shorter goes on with the next
_STOPS: Final = ".!?;"
_PUNCTUATION: Final = ".,;:!?()[]\"'"


_NONE: Final[frozenset[str]] = frozenset()


class VisibleTexts(NamedTuple):
    """The texts of a record as a reader sees them."""

    name: str
    description: str
    examples: tuple[str, ...]


class AnalyzedFields(NamedTuple):
    """What a record says, as a reader sees it and analysed: terms joined by single spaces."""

    name: str
    description: str
    tags: tuple[str, ...]  # its own and those of its examples: where a tag is put makes it no truer
    examples: tuple[str, ...]
    description_words: int  # before function words were dropped
    shared: frozenset[str] = _NONE  # terms of a list of keywords that goes along with the examples

    @property
    def said(self) -> tuple[str, ...]:
        """What a fingerprint is made of: all but the name, which costs nothing to change."""
        return (self.description, *self.examples, *self.tags)


class SpamDamping(NamedTuple):
    """Multiply impacts of a field by its weight; `whole` is for the final score, vectors included."""

    name: float = 1.0
    description: float = 1.0
    tags: float = 1.0
    examples: float = 1.0
    whole: float = 1.0


def visible_texts(record: AgentRecord) -> VisibleTexts:
    return VisibleTexts(
        name=sanitize_text(record.name),
        description=sanitize_text(record.description),
        examples=tuple(sanitize_text(example.text) for example in record.examples),
    )


def analyze_fields(record: AgentRecord, seen: VisibleTexts | None = None) -> AnalyzedFields:
    """`seen` are its texts, where they were looked at already."""
    name, description, examples = seen or visible_texts(record)
    tags = dict.fromkeys((*record.tags, *(tag for example in record.examples for tag in example.tags)))
    words = split_words(description)
    analysed = tuple(map(analyse, examples))
    return AnalyzedFields(
        name=analyse(name),
        description=terms_of(words),
        tags=tuple(map(_tag_terms, tags)),
        examples=analysed,
        description_words=len(words),
        shared=shared_terms(analysed),
    )


def shared_terms(examples: Iterable[str]) -> frozenset[str]:
    """What half of the analysed examples or more say alike, where that is too much to be but the subject of all of them."""
    said = [set(example.split()) for example in examples]
    if sum(map(len, said)) - len(set().union(*said)) <= _SUBJECT:  # then no more than these come twice
        return _NONE
    often = max(2, (len(said) + 1) // 2)
    counts = Counter(term for terms in said for term in terms)
    shared = frozenset(term for term, count in counts.items() if count >= often)
    return shared if len(shared) > _SUBJECT else _NONE


def drop_repeated_shared(examples: Iterable[str], shared: frozenset[str]) -> list[list[str]]:
    """The terms of each example; the first that has a shared one says it for all."""
    if not shared:
        return [example.split() for example in examples]
    found, heard = [], set[str]()
    for example in examples:
        terms = example.split()
        found.append([term for term in terms if term not in heard])
        heard |= shared.intersection(terms)
    return found


def remove_shared_words(text: str, shared: frozenset[str]) -> str:
    """The text as a vector is to hear it: without shared words."""
    if not shared:
        return text
    return " ".join(
        word for word in text.split() if not (terms := _tag_terms(word)) or not shared.issuperset(terms.split())
    )


class _WordCache(dict[str, str]):
    """What is made of a word or a tag as written. Bounded: it is emptied when full."""

    def __init__(self, make: Callable[[str], str]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, written: str) -> str:
        made = self._make(written)
        if len(written) <= limits.TERM_CACHE_CHARS:
            if len(self) >= limits.TERM_CACHE:
                self.clear()
            self[written] = made
        return made


# Two threads may both miss: they put the same.
_tag_terms = _WordCache(lambda tag: analyse(sanitize_text(tag))).__getitem__
_bare = _WordCache(lambda word: word.strip(_PUNCTUATION).casefold()).__getitem__


def remove_repetition(text: str) -> str:
    """The text as a vector is to hear it: a sentence says a word once, and no word comes over and over. Small words may come
    as often as they like. Whoever repeats a list of words gets what the list is worth that says each once."""
    words = text.split()
    plain = list(map(_bare, words))
    if len(set(plain)) == len(words):
        return text
    counts: dict[str, int] = {}  # a Counter takes longer to make than these few words to count
    for bare in plain:
        counts[bare] = counts.get(bare, 0) + 1
    repeated = {word for word, count in counts.items() if count > 1 and len(word) > _SHORT_WORD}
    if not repeated and plain[0] and not any(map(eq, plain, islice(plain, 1, None))):
        return " ".join(words)
    kept: list[str] = []
    said: set[str] = set()
    begun = 0  # words of the sentence so far
    before = ""
    for bare, word in zip(plain, words, strict=True):
        if bare in said or bare == before:
            _stop(kept, word)
        else:
            kept.append(word)
            if bare in repeated:
                said.add(bare)
        before = bare
        begun += 1
        if word[-1] in _STOPS and begun >= _SENTENCE:
            said, begun = {each for each in said if counts[each] > _SAID_OFTEN}, 0
    return " ".join(kept)


def _stop(kept: list[str], dropped: str) -> None:
    """The sentence ends where the word that is dropped ended it."""
    if dropped[-1] in _STOPS and kept:
        kept[-1] = kept[-1].rstrip(_PUNCTUATION) + dropped[-1]


def spam_damping(fields: AnalyzedFields) -> SpamDamping:
    tags = _tag_weight(fields)
    terms = fields.description.split()
    return SpamDamping(
        name=_repetition_weight(fields.name.split()),
        description=_repetition_weight(terms) * _list_weight(terms, fields.description_words),
        tags=tags,
        examples=_example_weight(fields.examples),
        whole=_whole_weight(fields, terms, tags),
    )


def _whole_weight(fields: AnalyzedFields, terms: list[str], tags: float) -> float:
    weight = _STUFFED_WHOLE if tags == 0.0 else 1.0
    return weight * (_REPEATED_WHOLE if fields.shared or _is_repeated(terms) else 1.0)


def _is_repeated(terms: list[str]) -> bool:
    """Whether the text says everything over and over: the longest prose has twice as many distinct words."""
    return len(terms) >= _LEAST_REPEATED and len(set(terms)) < _DISTINCT_SHARE * len(terms)


def _tag_weight(fields: AnalyzedFields) -> float:
    """1 while the agent's own words bear its tags out, but for a few; falling to 0 for a bag of anything."""
    if len(fields.tags) <= _PLENTY_OF_TAGS:
        return 1.0
    said = {*fields.name.split(), *fields.description.split(), *" ".join(fields.examples).split()}
    unfounded = sum(said.isdisjoint(tag.split()) for tag in dict.fromkeys(fields.tags))
    excess = max(0, unfounded - _PLENTY_OF_TAGS)
    return max(0.0, 1.0 - excess / (_STUFFED_TAGS - _PLENTY_OF_TAGS))


def _repetition_weight(terms: list[str]) -> float:
    """1 for prose; less by twice the share of terms that are mere repetition."""
    if len(terms) - len(set(terms)) < _REPEATS:  # then none of them comes more often than any text may have it
        return 1.0
    usual = max(_REPEATS, _REPEATED_SHARE * len(terms))
    usual_short = max(_REPEATS, _REPEATED_SHORT_SHARE * len(terms))
    excess = 0.0
    for term, count in Counter(terms).items():
        if count > _REPEATS:
            excess += max(0.0, count - (usual_short if len(term) <= _SHORT_WORD else usual))
    return max(_LEAST, 1.0 - 2.0 * excess / len(terms))


def _list_weight(terms: list[str], words: int) -> float:
    """Prose has function words: dropped ones in English, short ones in other languages. A bag of keywords has neither."""
    if words < _LIST_WORDS:
        return 1.0
    small = words - len(terms) + sum(len(term) <= _SHORT_WORD for term in terms)
    return 1.0 if small >= _LIST_SHARE * words else _LIST


def _example_weight(examples: tuple[str, ...]) -> float:
    """The worst repetition within one, times the share of examples that are not the same again."""
    if not examples:
        return 1.0
    distinct = dict.fromkeys(examples)
    return min(_repetition_weight(text.split()) for text in distinct) * len(distinct) / len(examples)
