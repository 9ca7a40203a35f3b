"""Evidence: why a record matches a query, from the record's own text, for the returned candidates only.

Pure and independent of the corpus: evidence reveals nothing but its record (PRO-38), so pass records that the caller may see.
Components are in 0..1:

    words      share of the query's weight (Σ idf²) in the record's words
    context    similarity of name and description (without sentence vectors: share of the query terms in them)
    example    similarity of the best example
    tag        share of the requested tags
    protocol   share of the accepted protocols
    freshness  halved by each half year since the last update
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
from waypost.search.text.analyzer import analyse, analyze_query
from waypost.search.text.spam import lint_flags
from waypost.search.text.taxonomy import TagMatch, TagQuery, standard_taxonomy

_EXAMPLES: Final = 3
_SNIPPETS: Final = 2
_SNIPPET_CHARS: Final = 240
_HALF_LIFE_SECONDS: Final = 182 * 86_400
_DECIMALS: Final = 4
_SENTENCE: Final = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")


def explain(query: Query, record: AgentRecord, now: float | None = None, near: MatchSignals | None = None) -> Evidence:
    """The evidence for one candidate. Without `now` there is no freshness; `near` are its measured signals."""
    terms = frozenset(analyze_query(query.text[: limits.QUERY_CHARS]).terms)
    requested = tuple(dict.fromkeys(map(fold_tag, (*query.required_tags, *query.preferred_tags))))
    tags = TagQuery(query.text, requested, standard_taxonomy()).match_tags(record.tags)
    examples = _examples(record, terms, near)
    return Evidence(
        components=_components(query, record, terms, tags, examples, now, near),
        matched_tags=tags.direct,
        expanded_tags=tuple(each.tag for each in tags.expanded),
        matched_examples=examples,
        snippets=_snippets(record.description, terms),
        flags=lint_flags(record),
    )


def _components(
    query: Query,
    record: AgentRecord,
    terms: frozenset[str],
    tags: TagMatch,
    examples: tuple[ExampleMatch, ...],
    now: float | None,
    near: MatchSignals | None,
) -> dict[str, float]:
    """Only the components that the query and the record have."""
    components: dict[str, float] = {}
    if query.required_tags or query.preferred_tags:
        components["tag"] = round(tags.share, _DECIMALS)
    if near is not None:
        components["words"] = round(near.words, _DECIMALS)
    if terms:
        coverage = _coverage(f"{record.name} {record.description}", terms)
        components["context"] = coverage if near is None or near.context is None else round(near.context, _DECIMALS)
        if record.examples:
            components["example"] = examples[0].score if examples else 0.0
    if query.protocols:
        spoken = {fold(binding.protocol) for binding in record.bindings}
        accepted = set(map(fold, query.protocols))
        components["protocol"] = _share(len(spoken & accepted), len(accepted))
    updated_at = find_instant(record.updated_at)
    if updated_at is not None and now is not None:
        components["freshness"] = round(0.5 ** (max(0.0, now - updated_at) / _HALF_LIFE_SECONDS), _DECIMALS)
    return components


def _examples(record: AgentRecord, terms: frozenset[str], near: MatchSignals | None) -> tuple[ExampleMatch, ...]:
    """Examples by the query terms they share; the nearest by vector also by that similarity."""
    nearest, similarity = (near.place - 1, near.example or 0.0) if near is not None and near.place else (-1, 0.0)
    found = [
        ExampleMatch(text=example.text, score=score, id=example.id)
        for at, example in enumerate(record.examples)
        if (score := max(_coverage(example.text, terms), round(similarity, _DECIMALS) if at == nearest else 0.0))
    ]
    found.sort(key=lambda example: -example.score)
    return tuple(found[:_EXAMPLES])


def _snippets(description: str, terms: frozenset[str]) -> tuple[str, ...]:
    """The sentences of the description that share most query terms, in their order."""
    sentences = [sentence.strip() for sentence in _SENTENCE.findall(description)]
    scored = [(_coverage(sentence, terms), -at) for at, sentence in enumerate(sentences)]
    best = sorted((item for item in scored if item[0]), reverse=True)[:_SNIPPETS]
    return tuple(_truncate(sentences[at]) for at in sorted(-at for _, at in best))


def _truncate(sentence: str) -> str:
    return sentence if len(sentence) <= _SNIPPET_CHARS else sentence[: _SNIPPET_CHARS - 1].rstrip() + "…"


def _coverage(text: str, terms: Iterable[str]) -> float:
    wanted = frozenset(terms)
    return _share(len(wanted.intersection(analyse(text).split())), len(wanted)) if wanted else 0.0


def _share(part: int, whole: int) -> float:
    return round(part / whole, _DECIMALS)
