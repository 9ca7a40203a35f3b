"""The reason of a candidate: one sentence that says why it was found.

It is made from the record's own public text and from the signals of the hit, for returned candidates only. So it reveals
nothing but its record, and it costs some microseconds each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from waypost import limits
from waypost.model.names import fold_tag
from waypost.model.query import MatchSignals, Query
from waypost.model.record import AgentRecord
from waypost.search.ranking.match import ExactField
from waypost.search.text.analyzer import analyse, ruled_out_terms, split_words
from waypost.search.text.sanitize import sanitize_text

_QUOTE_CHARS: Final = 80
_WORDS_NAMED: Final = 3
_TAGS_NAMED: Final = 2
_MIN_SHARE: Final = 0.34  # of the query's terms: with fewer in a field, similarity in meaning says more
_GOOD_SHARE: Final = 0.5  # of the query's terms: an example with so many matches


class ReasonWriter:
    """Writes the reasons of one query."""

    def __init__(self, query: Query) -> None:
        text = sanitize_text(query.text[: limits.QUERY_CHARS])
        self._words: dict[str, str] = {}  # term → the word as typed
        for word in split_words(text)[: limits.QUERY_TERMS]:
            for term in analyse(word).split():
                self._words.setdefault(term, word)
        self._preferred = frozenset(map(fold_tag, (*query.required_tags, *query.preferred_tags)))
        self._ruled_out = ruled_out_terms(text)

    def write(self, record: AgentRecord, near: MatchSignals | None = None, exact: ExactField | None = None) -> str:
        """The sentence for one candidate. `record` has no private examples; `near` counts its examples without them."""
        if exact == "id":
            return "Its id is what you typed."
        if exact == "name":
            return "Its name is what you typed."
        name_terms = self._matched(record.name)
        if word := self.find_ruled_out(record):
            return f"Its name has the word {word}, which the query rules out."
        return (
            self._tag_reason(record.tags, exact)
            or self._text_reason(record, name_terms, near)
            or self._meaning_reason(record, near)
        )

    def find_ruled_out(self, record: AgentRecord) -> str | None:
        """A word of the record's name that the query excludes: "but not postgres"."""
        if not self._ruled_out:
            return None
        return next((self._words[term] for term in self._matched(record.name) if term in self._ruled_out), None)

    def has_all_words(self, record: AgentRecord) -> bool:
        """Whether the record has every word of the query; a single word counts in the name and the tags only."""
        missing = self._words.keys() - {*_terms_of(record.name), *_terms_of(" ".join(record.tags))}
        if len(self._words) > 1 and missing:
            missing -= set(_terms_of(_beginning(record.description)))
            for example in record.examples if missing else ():
                missing -= set(_terms_of(_beginning(example.text)))
        return bool(self._words) and not missing

    def _matched(self, text: str) -> list[str]:
        return [term for term in _terms_of(text) if term in self._words]

    def _tag_reason(self, tags: Sequence[str], exact: ExactField | None) -> str:
        """The tags, if the caller named them or typed nothing else."""
        named = [tag for tag in tags if fold_tag(tag) in self._preferred]
        if exact == "tag" and not named:
            named = [tag for tag in tags if self._is_covered(tag)][:1]
        if not named or (self._words and exact != "tag"):
            return ""
        return f"Tagged {_join(_quote(tag) for tag in named[:_TAGS_NAMED])}."

    def _is_covered(self, tag: str) -> bool:
        terms = _terms_of(tag)
        return bool(terms) and all(term in self._words for term in terms)

    def _text_reason(self, record: AgentRecord, name_terms: list[str], near: MatchSignals | None) -> str:
        """By words: the field with most words of the query."""
        if not self._words:
            return ""
        in_description = self._matched(_beginning(record.description))
        place, in_example = self._best_example(record, near)
        least = 1 if near is None or near.context is None else max(1, round(_MIN_SHARE * len(self._words)))
        best = max(len(name_terms), len(in_description), len(in_example))
        tagged = [tag for tag in record.tags if self._is_covered(tag)]
        if best >= least:
            if len(in_example) == best and best > len(name_terms):
                quoted = _quote(record.examples[place].text)
                if best < _GOOD_SHARE * len(self._words):
                    return f"Has {self._name_words(in_example)} in its example “{quoted}”."
                return f"Matches its example “{quoted}”."
            if len(name_terms) == best:
                return f"Has {self._name_words(name_terms)} in its name."
        tag_terms = {term for tag in tagged for term in _terms_of(tag)}
        if tagged and (best < least or len(tag_terms) >= len(in_description)):
            return f"Tagged {_join(map(_quote, tagged[:_TAGS_NAMED]))}."
        if best >= least:
            return f"Has {self._name_words(in_description)} in its description."
        in_tags = self._matched(" ".join(record.tags))
        return f"Has {self._name_words(in_tags)} in its tags." if len(in_tags) >= least else ""

    def _best_example(self, record: AgentRecord, near: MatchSignals | None) -> tuple[int, list[str]]:
        """The example with most words of the query; among equals the nearest by meaning."""
        nearest = near.place - 1 if near is not None else -1
        best, found = -1, list[str]()
        for at, example in enumerate(record.examples):
            terms = self._matched(_beginning(example.text))
            if len(terms) > len(found) or (at == nearest and len(terms) == len(found)):
                best, found = at, terms
        return best, found

    def _meaning_reason(self, record: AgentRecord, near: MatchSignals | None) -> str:
        if near is None or near.context is None:
            return "Its words are similar to those of the query." if self._words else "It passes the filters."
        if near.place and near.place <= len(record.examples) and (near.example or 0.0) > near.context:
            return f"Similar in meaning to its example “{_quote(record.examples[near.place - 1].text)}”."
        return "Similar in meaning to its description."

    def _name_words(self, terms: Sequence[str]) -> str:
        """In the order of the query."""
        words = list(dict.fromkeys(word for term, word in self._words.items() if term in terms))[:_WORDS_NAMED]
        return f"the word {words[0]}" if len(words) == 1 else f"the words {_join(words)}"


def _beginning(text: str) -> str:
    """What search reads of a long text."""
    return text[: limits.INDEXED_DESCRIPTION_CHARS]


@lru_cache(maxsize=limits.REASON_TEXTS)
def _terms_of(text: str) -> tuple[str, ...]:
    """The terms of a text, each once. Popular agents are returned again and again: analysing their texts each time would take
    longer than ranking them."""
    return tuple(dict.fromkeys(analyse(text).split()))


def add_remark(reason: str, remark: str) -> str:
    """The sentence with a remark at its end."""
    return f"{reason.removesuffix('.')}; {remark}."


def _quote(text: str) -> str:
    """Publisher's text on one line, without hidden characters, shortened."""
    line = " ".join(sanitize_text(text).split()).removesuffix(".")
    return line if len(line) <= _QUOTE_CHARS else line[: _QUOTE_CHARS - 1].rsplit(" ", 1)[0] + "…"


def _join(words: Iterable[str]) -> str:
    """a, b and c"""
    listed = list(words)
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}"
