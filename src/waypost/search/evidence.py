"""Why a record answers a question: told from the record's own text, for the few that are returned.

Pure, and blind to the corpus: evidence reveals nothing but the record it is given (PRO-38), so hand it a record that the
caller may see. Components are shares in 0..1, each by itself: `context` of the words found in name and description,
`example` of the words found in the best example, `tag` of the tags asked for, `protocol` of the protocols accepted,
`freshness` halved by each half year since the record's last update (told, not weighed).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from waypost import limits
from waypost.model.names import fold, fold_tag
from waypost.model.query import Evidence, MatchedExample, Query
from waypost.model.record import AgentRecord
from waypost.model.times import find_instant
from waypost.search.text import analyse, query_terms, words_of

_EXAMPLES: Final = 3
_SNIPPETS: Final = 2
_SNIPPET_CHARS: Final = 240
_HALF_LIFE_SECONDS: Final = 182 * 86_400
_PLACES: Final = 4
_SENTENCE: Final = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")


def explain(query: Query, record: AgentRecord, now: float | None = None) -> Evidence:
    """The evidence for one candidate. Without `now` nothing is said of freshness."""
    terms = frozenset(query_terms(query.text))
    asked = tuple(dict.fromkeys(map(fold_tag, (*query.required_tags, *query.preferred_tags))))
    matched, expanded = _tags(record, query, asked)
    examples = _examples(record, terms)
    return Evidence(
        components=_components(query, record, terms, asked, examples, now),
        matched_tags=matched,
        expanded_tags=expanded,
        matched_examples=examples,
        snippets=_snippets(record.description, terms),
    )


def _components(
    query: Query,
    record: AgentRecord,
    terms: frozenset[str],
    asked: tuple[str, ...],
    examples: tuple[MatchedExample, ...],
    now: float | None,
) -> dict[str, float]:
    """Only what the question asks about and the record can answer."""
    components: dict[str, float] = {}
    if asked:
        carried = set(map(fold_tag, record.tags))
        components["tag"] = _share(sum(tag in carried for tag in asked), len(asked))
    if terms:
        components["context"] = _coverage(f"{record.name} {record.description}", terms)
        if record.examples:
            components["example"] = examples[0].score if examples else 0.0
    if query.protocols:
        spoken = {fold(binding.protocol) for binding in record.bindings}
        accepted = set(map(fold, query.protocols))
        components["protocol"] = _share(len(spoken & accepted), len(accepted))
    updated_at = find_instant(record.updated_at)
    if updated_at is not None and now is not None:
        components["freshness"] = round(0.5 ** (max(0.0, now - updated_at) / _HALF_LIFE_SECONDS), _PLACES)
    return components


def _tags(record: AgentRecord, query: Query, asked: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tags of the record that were asked for or written in the query; and, apart from them (PRO-14), those that only a
    stem or another spelling leads to."""
    words = {fold(word) for word in words_of(query.text[: limits.QUERY_CHARS])}
    terms = frozenset(query_terms(query.text))
    stems = {analyse(tag) for tag in asked}
    matched, expanded = [], []
    for tag in dict.fromkeys(record.tags):
        stem = analyse(tag)
        if fold_tag(tag) in asked or words.issuperset(words_of(fold_tag(tag)) or ("",)):
            matched.append(tag)
        elif stem and (stem in stems or terms.issuperset(stem.split())):
            expanded.append(tag)
    return tuple(matched), tuple(expanded)


def _examples(record: AgentRecord, terms: frozenset[str]) -> tuple[MatchedExample, ...]:
    found = [
        MatchedExample(text=example.text, score=score, id=example.id)
        for example in record.examples
        if (score := _coverage(example.text, terms))
    ]
    found.sort(key=lambda example: -example.score)
    return tuple(found[:_EXAMPLES])


def _snippets(description: str, terms: frozenset[str]) -> tuple[str, ...]:
    """The sentences of the description that say most of what was asked, in their own order."""
    sentences = [sentence.strip() for sentence in _SENTENCE.findall(description)]
    weighed = [(_coverage(sentence, terms), -at) for at, sentence in enumerate(sentences)]
    best = sorted((item for item in weighed if item[0]), reverse=True)[:_SNIPPETS]
    return tuple(_shortened(sentences[at]) for at in sorted(-at for _, at in best))


def _shortened(sentence: str) -> str:
    return sentence if len(sentence) <= _SNIPPET_CHARS else sentence[: _SNIPPET_CHARS - 1].rstrip() + "…"


def _coverage(text: str, terms: Iterable[str]) -> float:
    wanted = frozenset(terms)
    return _share(len(wanted.intersection(analyse(text).split())), len(wanted)) if wanted else 0.0


def _share(part: int, whole: int) -> float:
    return round(part / whole, _PLACES)
