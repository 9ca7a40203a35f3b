"""A long question holds several wishes. Its clauses, so that an agent that meets one of them well is not lost in the mean."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from waypost import limits
from waypost.search.text.analyzer import query_terms

MAX_CLAUSES: Final = 12

MIN_CLAUSE_WORDS: Final = 3  # shorter pieces are no wish of their own

MIN_CLAUSE_TERMS: Final = 2  # that say anything: "can you help me with that" says one

_MIN_DENSE_CHARS: Final = 6  # characters, in scripts without spaces

CONJUNCTIONS: Final = ("and", "then", "also", "y", "luego", "también", "und", "dann", "sowie", "auch")

_AND: Final = rf"(?:{'|'.join(CONJUNCTIONS)})\s+"
# Every break begins with one of these: the expression passes over all other characters in one stride.
_BREAK: Final = re.compile(
    r"[\s.!?;:,。！？；，然并以](?:(?<=[.!?;:\n])[.!?;:\n]*\s+|(?<=[。！？；])[。！？；]*"
    rf"|(?<=,)\s+{_AND}|(?<=\s)\s*{_AND}|(?<=,)\s+"
    r"|(?<=，)(?:然后|并且|以及)|(?<=然)后|(?<=并)且|(?<=以)及|(?<=，))",
    re.IGNORECASE,
)


def split_clauses(text: str) -> tuple[str, ...]:
    """The pieces of a text that stand for themselves, without the whole; nothing when there are not at least two."""
    pieces = dict.fromkeys(piece.strip(" ,.") for piece in _BREAK.split(text[: limits.QUERY_CHARS]))
    long = [piece for piece in pieces if _is_long(piece)]
    if len(long) < 2:  # as in most questions: nothing is left to analyse
        return ()
    kept = [piece for piece in long if len(query_terms(piece)) >= MIN_CLAUSE_TERMS]
    return tuple(kept[:MAX_CLAUSES]) if len(kept) > 1 else ()


def _is_long(piece: str) -> bool:
    return len(piece.split()) >= MIN_CLAUSE_WORDS or (not piece.isascii() and len(piece) >= _MIN_DENSE_CHARS)


# ---- What a question only quotes: a title, a city, a key. It is what the agent is to work on, and says little of what it does.
#
# It knows marks and words, and refuses to know what a quoted text means. Somebody who asks in few words and puts one of them
# into quotation marks insists on it: that is no quotation.

MIN_UNQUOTED_TERMS: Final = 4  # terms outside the marks: with fewer, the marks insist

MAX_QUOTE_CHARS: Final = 80  # characters between two marks: more is no quotation, but a mark that was forgotten

_MARK: Final = re.compile("[\"\u201c\u201e\u00ab\u300c]|(?<!\\w)['\u2018]")

_SOME: Final = f"{{1,{MAX_QUOTE_CHARS}}}"

_QUOTED: Final = re.compile(
    f'"[^"]{_SOME}"|[\u201c\u201e][^\u201c\u201d]{_SOME}[\u201c\u201d]|\u00ab[^\u00bb]{_SOME}\u00bb|\u300c[^\u300d]{_SOME}\u300d'
    rf"|(?<!\w)'(?!\s)[^']{_SOME}(?<!\s)'(?!\w)"  # not the apostrophe of "Ann's" or "the students' work"
    f"|(?<!\\w)\u2018(?!\\s)[^\u2018\u2019]{_SOME}(?<!\\s)\u2019(?!\\w)"
)


def quoted_terms(text: str) -> frozenset[str]:
    """The terms of a question that stand in quotation marks and nowhere else."""
    if (text.isascii() and '"' not in text and "'" not in text) or not _MARK.search(text):
        return frozenset()
    quoted = _QUOTED.findall(text)
    if not quoted:
        return frozenset()
    beside = query_terms(_QUOTED.sub(" ", text))
    if len(beside) < MIN_UNQUOTED_TERMS:
        return frozenset()
    return frozenset(term for each in quoted for term in query_terms(each)).difference(beside)


# ---- A text that asks, read once: its terms, those that it only quotes, its clauses, and which terms each of these has.
#
# `text`, `quotes` and `clauses` define these.

Flags = bytes  # single floats, one beside the other: whoever reads a text need not load numpy

_READ: Final = 64  # texts that are remembered: what is asked for once is asked for several times over


class AnalyzedQuery(NamedTuple):
    terms: tuple[str, ...]  # each once, within bounds
    quoted: frozenset[str]
    parts: tuple[str, ...]
    has: Flags | None  # [terms, 1 + parts]: 1 where the whole, or a part, has the term; None: there are no parts


@lru_cache(maxsize=_READ)
def analyze_query(text: str) -> AnalyzedQuery:
    terms, parts = query_terms(text), split_clauses(text)
    return AnalyzedQuery(terms, quoted_terms(text), parts, _had(terms, parts) if parts else None)


def _had(terms: Sequence[str], parts: Sequence[str]) -> Flags:
    """The terms of the whole, then those of each part."""
    units = len(parts) + 1
    places = {term: units * at for at, term in enumerate(terms)}
    has = array("f", [1.0, *[0.0] * len(parts)] * len(terms))
    for unit, part in enumerate(parts, start=1):
        for term in query_terms(part):
            if term in places:
                has[places[term] + unit] = 1.0
    return has.tobytes()
