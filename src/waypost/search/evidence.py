"""Why a record answers a question: told from the record's own text, for the few that are returned.

Pure, and blind to the corpus: evidence reveals nothing but the record it is given (PRO-38), so hand it a record that the
caller may see. Components are in 0..1, each by itself: `words` the share of the question's weight that the record's words
carry, `context` the nearness of name and description (without sentence vectors: the share of words found there), `example`
that of the best example, `tag` the share of the tags asked for, `protocol` of the protocols accepted, `freshness` halved by
each half year since the record's last update.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from waypost import limits
from waypost.model.names import fold, fold_tag
from waypost.model.query import Evidence, ExampleMatch, MatchSignals, Query
from waypost.model.record import AgentRecord
from waypost.model.times import find_instant
from waypost.search.text.analyzer import analyse
from waypost.search.text.lint import lint_flags
from waypost.search.text.query_analysis import analyze_query
from waypost.search.text.taxonomy import TagMatch, TagQuery, standard_taxonomy

_EXAMPLES: Final = 3
_SNIPPETS: Final = 2
_SNIPPET_CHARS: Final = 240
_HALF_LIFE_SECONDS: Final = 182 * 86_400
_PLACES: Final = 4
_SENTENCE: Final = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")


def explain(query: Query, record: AgentRecord, now: float | None = None, near: MatchSignals | None = None) -> Evidence:
    """The evidence for one candidate. Without `now` nothing is said of freshness; `near` is what was measured of it."""
    terms = frozenset(analyze_query(query.text[: limits.QUERY_CHARS]).terms)
    asked = tuple(dict.fromkeys(map(fold_tag, (*query.required_tags, *query.preferred_tags))))
    carried = TagQuery(query.text, asked, standard_taxonomy()).match_tags(record.tags)
    examples = _examples(record, terms, near)
    return Evidence(
        components=_components(query, record, terms, carried, examples, now, near),
        matched_tags=carried.direct,
        expanded_tags=tuple(each.tag for each in carried.expanded),
        matched_examples=examples,
        snippets=_snippets(record.description, terms),
        flags=lint_flags(record),
    )


def _components(
    query: Query,
    record: AgentRecord,
    terms: frozenset[str],
    carried: TagMatch,
    examples: tuple[ExampleMatch, ...],
    now: float | None,
    near: MatchSignals | None,
) -> dict[str, float]:
    """Only what the question asks about and the record can answer."""
    components: dict[str, float] = {}
    if query.required_tags or query.preferred_tags:
        components["tag"] = round(carried.share, _PLACES)
    if near is not None:
        components["words"] = round(near.words, _PLACES)
    if terms:
        said = _coverage(f"{record.name} {record.description}", terms)
        components["context"] = said if near is None or near.context is None else round(near.context, _PLACES)
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


def _examples(record: AgentRecord, terms: frozenset[str], near: MatchSignals | None) -> tuple[ExampleMatch, ...]:
    """By the words they share with the question; the one whose vector is nearest by that nearness, if it is more."""
    nearest, nearness = (near.place - 1, near.example or 0.0) if near is not None and near.place else (-1, 0.0)
    found = [
        ExampleMatch(text=example.text, score=score, id=example.id)
        for at, example in enumerate(record.examples)
        if (score := max(_coverage(example.text, terms), round(nearness, _PLACES) if at == nearest else 0.0))
    ]
    found.sort(key=lambda example: -example.score)
    return tuple(found[:_EXAMPLES])


def _snippets(description: str, terms: frozenset[str]) -> tuple[str, ...]:
    """The sentences of the description that say most of what was asked, in their own order."""
    sentences = [sentence.strip() for sentence in _SENTENCE.findall(description)]
    weighed = [(_coverage(sentence, terms), -at) for at, sentence in enumerate(sentences)]
    best = sorted((item for item in weighed if item[0]), reverse=True)[:_SNIPPETS]
    return tuple(_truncate(sentences[at]) for at in sorted(-at for _, at in best))


def _truncate(sentence: str) -> str:
    return sentence if len(sentence) <= _SNIPPET_CHARS else sentence[: _SNIPPET_CHARS - 1].rstrip() + "…"


def _coverage(text: str, terms: Iterable[str]) -> float:
    wanted = frozenset(terms)
    return _share(len(wanted.intersection(analyse(text).split())), len(wanted)) if wanted else 0.0


def _share(part: int, whole: int) -> float:
    return round(part / whole, _PLACES)
