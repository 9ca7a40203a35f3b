"""Text analysis: from what people write to the terms that are indexed and asked for. One analysis for both.

NFKC, identifiers split (`getFoodData` is also food and data), English function words dropped, English stems, bigrams for
scripts that write no spaces. It knows no field, no index and no score.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from threading import Lock
from typing import Final

import Stemmer

from waypost import limits

VERSION: Final = 1  # raise it when the same text gives other terms: saved indices are then built anew

_TERM_CHARS: Final = 40  # longer ones are keys, hashes and blobs; their beginning is enough
_QUERY_CACHE: Final = (
    64  # texts whose terms are remembered: a question and its clauses are asked for several times over
)

# Han, kana, hangul: no spaces, or spaces that do not part the words that people look for.
_DENSE: Final = (
    "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
_ASCII_WORD: Final = re.compile(r"[A-Za-z0-9]+")
_ANY_WORD: Final = rf"[{_DENSE}]+|[^\W_{_DENSE}]+"
_IS_DENSE: Final = rf"[{_DENSE}]"
_CAMEL_HUMP: Final = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]|[A-Z][0-9]+[a-z]")  # only then is it worth cutting
_PART: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+[0-9]*|[A-Z]+[0-9]*|[0-9]+")

_compile_pattern = cache(re.compile)  # such large sets take their time, which no start and no English text waits for

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
    """Word as written → its terms, joined by spaces; empty for a function word. Bounded: it is emptied when full."""

    def __init__(self) -> None:
        super().__init__()
        self._stemmer = Stemmer.Stemmer("english", 0)
        self._lock = Lock()  # a stemmer serves one thread at a time

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
    """The terms of a text in order, repeated as often as they occur, joined by single spaces."""
    return terms_of(split_words(text))


def terms_of(words: list[str]) -> str:
    """The same of words as written."""
    return " ".join(filter(None, map(_terms_of, words)))


def split_words(text: str) -> list[str]:
    """The words as written, before they are folded, cut and stemmed."""
    return (
        _ASCII_WORD.findall(text)
        if text.isascii()
        else _compile_pattern(_ANY_WORD).findall(unicodedata.normalize("NFKC", text))
    )


def split_identifier(name: str) -> str:
    """An identifier as words: "getFoodData" and "food_data" are no words that a model has read. Other names stay as they are."""
    if not name.isascii() or len(name.split()) != 1:
        return name
    parts = (_PART.findall(word) if _CAMEL_HUMP.search(word) else (word,) for word in split_words(name))
    return " ".join(part.lower() for some in parts for part in some) or name


@lru_cache(maxsize=_QUERY_CACHE)
def query_terms(text: str) -> tuple[str, ...]:
    """The distinct terms of a question, within bounds."""
    terms = dict.fromkeys(analyse(text[: limits.QUERY_CHARS]).split())
    return tuple(terms)[: limits.QUERY_TERMS]
