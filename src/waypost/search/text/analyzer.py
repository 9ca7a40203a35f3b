"""Text analysis: terms and character n-grams of documents and queries, clauses of queries, and language detection.

Terms: NFKC, identifiers split (`getFoodData` is also food and data), English stop words removed, English stems, bigrams for
scripts without spaces.

Grams: the four-letter sequences inside words, hashed to 16 bits. A misspelled word shares most of them with the right one.

A query may state several wishes; its clauses let an agent match one of them well. A name after a negation ("but not postgres")
is ruled out: it earns no credit.

A language is detected by script, or by stop words that only one language has, and is unknown rather than guessed: words are
compared only between texts that are not known to differ in language.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from threading import Lock
from typing import Final, NamedTuple
from zlib import crc32

import Stemmer

from waypost import limits

VERSION: Final = 1  # raise it when the same text gives other terms: saved indexes are then rebuilt
_TERM_CHARS: Final = 40  # longer ones are keys, hashes and blobs: a prefix is enough
_QUERY_CACHE: Final = 64  # texts: a query and its clauses are analysed several times

# Han, kana, hangul: no spaces, or spaces that do not separate search terms.
_DENSE: Final = (
    "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
_ASCII_WORD: Final = re.compile(r"[A-Za-z0-9]+")
_ANY_WORD: Final = rf"[{_DENSE}]+|[^\W_{_DENSE}]+"
_IS_DENSE: Final = rf"[{_DENSE}]"
_CAMEL_HUMP: Final = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]|[A-Z][0-9]+[a-z]")  # only then the word is split
_PART: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+[0-9]*|[A-Z]+[0-9]*|[0-9]+")

_compile_pattern = cache(
    re.compile
)  # such large character classes take time to compile; English texts do not need them

_FUNCTION_WORDS: Final = """
    a about above after again all also am an and any are aren as at be because been before being below between both but by
    can cannot could couldn d did didn do does doesn doing don down during each either else every few for from further
    get gets got had hadn has hasn have haven having he her here hers him his how i if in into is isn it its itself just
    let ll m may me might more most much must my need no nor not of off on once only or other our ours out over own
    please re s same shall she should shouldn so some such t than that the their theirs them then there these they this
    those through to too under until up upon us ve very want was wasn we were weren what when where which while who whom
    whose why will with within without won would wouldn yet you your yours
"""
STOP_WORDS: Final = frozenset(_FUNCTION_WORDS.split())


class _WordTerms(dict[str, str]):
    """Word as written → its terms, joined by spaces; empty for a stop word. Cleared when full."""

    def __init__(self) -> None:
        super().__init__()
        self._stemmer = Stemmer.Stemmer("english", 0)
        self._lock = Lock()  # a stemmer is not thread-safe

    def __missing__(self, word: str) -> str:
        with self._lock:
            terms = " ".join(self._terms(word))
            if len(word) <= limits.TERM_CACHE_CHARS:
                if len(self) >= limits.TERM_CACHE:
                    self.clear()
                self[word] = terms
        return terms

    def _terms(self, word: str) -> list[str]:
        if not word.isascii() and _compile_pattern(_IS_DENSE).match(word):
            return [word[at : at + 2] for at in range(len(word) - 1)] or [word]
        parts = [word]
        if _CAMEL_HUMP.search(word) and word.isascii():
            parts += _PART.findall(word)
        folded = (part.casefold()[:_TERM_CHARS] for part in parts)
        return [self._stemmer.stemWord(part) for part in folded if part not in STOP_WORDS]


WORD_TERMS: Final = _WordTerms()
_terms_of = WORD_TERMS.__getitem__


def analyse(text: str) -> str:
    """The terms of a text in order, with repetitions, joined by spaces."""
    return terms_of(split_words(text))


def terms_of(words: list[str]) -> str:
    """The terms of words as written."""
    return " ".join(filter(None, map(_terms_of, words)))


def split_words(text: str) -> list[str]:
    """The words as written, before folding, splitting and stemming."""
    return (
        _ASCII_WORD.findall(text)
        if text.isascii()
        else _compile_pattern(_ANY_WORD).findall(unicodedata.normalize("NFKC", text))
    )


def without_terms(text: str, terms: frozenset[str]) -> str:
    """The words of a text, without those that have one of the terms."""
    return " ".join(word for word in split_words(text) if terms.isdisjoint(_terms_of(word).split()))


def split_identifier(name: str) -> str:
    """An identifier as words, because a sentence model does not know "getFoodData" or "food_data". Other names are unchanged."""
    if not name.isascii() or len(name.split()) != 1:
        return name
    parts = (_PART.findall(word) if _CAMEL_HUMP.search(word) else (word,) for word in split_words(name))
    return " ".join(part.lower() for some in parts for part in some) or name


@lru_cache(maxsize=_QUERY_CACHE)
def query_terms(text: str) -> tuple[str, ...]:
    """The distinct terms of a query, within limits."""
    terms = dict.fromkeys(analyse(text[: limits.QUERY_CHARS]).split())
    return tuple(terms)[: limits.QUERY_TERMS]


# --- Grams ---

GRAM_CHARS: Final = 4
GRAMS: Final = 1 << 16  # distinct hashes


class _WordGrams(dict[str, tuple[int, ...]]):
    """Folded word → hashes of its grams; a shorter word is a gram itself. Cleared when full."""

    def __missing__(self, word: str) -> tuple[int, ...]:
        last = max(1, len(word) - GRAM_CHARS + 1)
        grams = tuple({crc32(word[at : at + GRAM_CHARS].encode()) & (GRAMS - 1) for at in range(last)})
        if len(word) <= limits.TERM_CACHE_CHARS:
            if len(self) >= limits.TERM_CACHE:
                self.clear()
            self[word] = grams  # concurrent misses store the same value
        return grams


_grams_of = _WordGrams().__getitem__


def fold_words(texts: Iterable[str]) -> set[str]:
    """The distinct words of texts, folded."""
    return {word for text in texts for word in split_words(text.casefold())}


def grams_of(words: Iterable[str]) -> set[int]:
    """The distinct grams of folded words."""
    return set().union(*[_grams_of(word[:_TERM_CHARS]) for word in words])


# --- Clauses ---

MAX_CLAUSES: Final = 12
MIN_CLAUSE_WORDS: Final = 3  # shorter parts are not a clause
MIN_CLAUSE_TERMS: Final = 2  # "can you help me with that" has one
_MIN_DENSE_CHARS: Final = 6  # characters, in scripts without spaces
CONJUNCTIONS: Final = ("and", "then", "also", "y", "luego", "también", "und", "dann", "sowie", "auch")
_AND: Final = rf"(?:{'|'.join(CONJUNCTIONS)})\s+"
# Every break begins with one of the first characters, so that the search skips all others quickly.
_BREAK: Final = re.compile(
    r"[\s.!?;:,。！？；，然并以](?:(?<=[.!?;:\n])[.!?;:\n]*\s+|(?<=[。！？；])[。！？；]*"
    rf"|(?<=,)\s+{_AND}|(?<=\s)\s*{_AND}|(?<=,)\s+"
    r"|(?<=，)(?:然后|并且|以及)|(?<=然)后|(?<=并)且|(?<=以)及|(?<=，))",
    re.IGNORECASE,
)


def split_clauses(text: str) -> tuple[str, ...]:
    """The clauses of a text; none if there are fewer than two."""
    parts = dict.fromkeys(part.strip(" ,.") for part in _BREAK.split(text[: limits.QUERY_CHARS]))
    long = [part for part in parts if _is_long(part)]
    if len(long) < 2:  # as in most queries
        return ()
    kept = [part for part in long if len(query_terms(part)) >= MIN_CLAUSE_TERMS]
    return tuple(kept[:MAX_CLAUSES]) if len(kept) > 1 else ()


def _is_long(part: str) -> bool:
    return len(part.split()) >= MIN_CLAUSE_WORDS or (not part.isascii() and len(part) >= _MIN_DENSE_CHARS)


class AnalyzedQuery(NamedTuple):
    terms: tuple[str, ...]  # distinct, within limits
    counts: tuple[int, ...]  # how often each occurs
    ruled_out: frozenset[str]  # terms that occur after a negation only
    parts: tuple[str, ...]  # clauses


@lru_cache(maxsize=_QUERY_CACHE)
def analyze_query(text: str) -> AnalyzedQuery:
    counts = Counter(analyse(text[: limits.QUERY_CHARS]).split())
    terms = tuple(counts)[: limits.QUERY_TERMS]
    return AnalyzedQuery(terms, tuple([counts[term] for term in terms]), ruled_out_terms(text), split_clauses(text))


_NEGATION: Final = re.compile(
    r"\b(?:but not|not|no|without|except(?: for)?|excluding|other than|instead of|rather than|anything but)\s+"
    r"(?:(?:with|using|use|by|in|on|for|from|the|a|an|any)\s+){0,3}([\w.+#-]+(?:\s+[\w.+#-]+){0,3})",
    re.IGNORECASE,
)


def ruled_out_terms(text: str) -> frozenset[str]:
    """The terms in the four words after a negation that the text does not have elsewhere."""
    spans = _NEGATION.findall(text)
    if not spans:
        return frozenset()
    rest = frozenset(analyse(_NEGATION.sub(" ", text)).split())
    return frozenset(term for span in spans for term in analyse(span).split()).difference(rest)


# --- Languages ---

UNKNOWN: Final = 0
ENGLISH: Final = 1
LANGUAGES: Final = ("", "en", "es", "de", "fr", "pt", "it", "nl", "zh", "ja", "ko", "ru", "ar", "th")

_STOP_WORDS_BY_LANGUAGE: Final = {
    "en": "the and for with from that this your are you can which into their what how when where please have will of to "
    "is it an my me i need want find get any who does should would could about by or",
    "es": "el los las del para con una por que como más sobre según entre desde hasta está esta este mis mi quiero "
    "necesito cómo qué y en un la de se lo al su sus muy",
    "de": "der die das und für mit eine einen einem einer ein den dem des von ist sind ich wie auf aus zu im am bei nach "
    "über meine meinen mir nicht auch wird werden kann oder",
    "fr": "le les des du pour avec une un et dans sur qui que est sont par plus je mon ma mes aux ce cette vos votre "
    "nous vous comment ou la de",
    "pt": "os as do da dos das para com uma um por que como mais sobre entre até está este esta meu minha quero preciso "
    "não em ao e o de",
    "it": "il gli dei della delle per con una un che come più su tra sono è questo questa mio mia voglio nel nella di e "
    "le la",
    "nl": "het een voor met van naar niet zijn ik wij deze dit mijn hoe wat op bij uit en de te om aan",
}
# Stop words of other languages that occur in English keywords: "infrastructure as code", "Los Angeles", "die casting".
_ENGLISH_WORDS: Final = "am as come den des die do dos las los ma met par per plus sus van"
_ENGLISH_TOO: Final = frozenset(_ENGLISH_WORDS.split())
_RANGES: Final = (
    ("ja", r"[\u3040-\u30ff]"),
    ("ko", r"[\uac00-\ud7a3]"),
    ("zh", r"[\u4e00-\u9fff]"),
    ("ru", r"[\u0400-\u04ff]"),
    ("ar", r"[\u0600-\u06ff]"),
    ("th", r"[\u0e00-\u0e7f]"),
)
_SCRIPTS: Final = tuple((language, re.compile(ranges)) for language, ranges in _RANGES)
_ANY_SCRIPT: Final = re.compile("|".join(ranges for _, ranges in _RANGES))
_LETTERS_WORD: Final = re.compile(r"[^\W\d_]+")
_LATIN_WORD: Final = re.compile(r"[A-Za-z]+")
_MAX_CHARS: Final = 2000  # of a text that are examined
_MIN_LETTERS: Final = 2
_MIN_MARKS: Final = 2  # stop words of one language
_MARK_SHARE: Final = 0.08  # of all words; prose has three times as many
_SCRIPT_SHARE: Final = 0.2


def _owners() -> Mapping[str, tuple[str, ...]]:
    owners: dict[str, tuple[str, ...]] = {}
    for language, words in _STOP_WORDS_BY_LANGUAGE.items():
        for word in dict.fromkeys(words.split()):
            owners[word] = (*owners.get(word, ()), language)
    return owners


_OWNERS: Final = _owners()


def detect_language(text: str) -> int:
    """An index into LANGUAGES, or UNKNOWN."""
    text = text[:_MAX_CHARS]
    if not text.isascii() and _ANY_SCRIPT.search(text):
        for language, script in _SCRIPTS:
            found = len(script.findall(text))
            if found >= _MIN_LETTERS and found >= _SCRIPT_SHARE * len(_letters(text)):
                return LANGUAGES.index(language)
    return _by_stop_words(text)


def is_not_english(text: str) -> bool:
    """Whether a short text has a stop word or accent of another language, and no English stop word."""
    words = _LETTERS_WORD.findall(text[:_MAX_CHARS].casefold())
    owned = [(word, owners) for word in words if (owners := _OWNERS.get(word))]
    if any("en" in owners for _, owners in owned):
        return False
    return any(word not in _ENGLISH_TOO for word, _ in owned) or not all(map(str.isascii, words))


def is_foreign(text: str) -> bool:
    """Whether a query is written in another language than English."""
    language = detect_language(text)
    return is_not_english(text) if language == UNKNOWN else language != ENGLISH


def _letters(text: str) -> str:
    return "".join(_LETTERS_WORD.findall(text))


def _by_stop_words(text: str) -> int:
    counts: dict[str, float] = {}
    words = (_LATIN_WORD if text.isascii() else _LETTERS_WORD).findall(text.casefold())
    for owners in filter(None, map(_OWNERS.get, words)):
        mark = 1.0 / len(owners)
        for language in owners:
            counts[language] = counts.get(language, 0.0) + mark
    if not counts:
        return UNKNOWN
    best = max(counts, key=counts.__getitem__)
    marks = counts.pop(best)
    is_plain = marks >= max(_MIN_MARKS, _MARK_SHARE * len(words)) and marks >= 2 * max(counts.values(), default=0.0)
    return LANGUAGES.index(best) if is_plain else UNKNOWN
