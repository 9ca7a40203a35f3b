"""Evidence: why a record matches a query, from the record's own text, for the returned candidates only.

Pure and independent of the corpus: evidence reveals nothing but its record (PRO-38), so pass records that the caller may see.
Components are the parts of the score, which add up to it (see `ranking/scoring`). They need the signals of the hit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from waypost import limits
from waypost.model.names import fold_tag
from waypost.model.query import Evidence, ExampleMatch, MatchSignals, Query
from waypost.model.record import AgentRecord
from waypost.search.text.analyzer import analyse, analyze_query
from waypost.search.text.spam import lint_flags
from waypost.search.text.taxonomy import TagQuery, standard_taxonomy

_EXAMPLES: Final = 3
_SNIPPETS: Final = 2
_SNIPPET_CHARS: Final = 240
_DECIMALS: Final = 4
_SENTENCE: Final = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")


def explain(query: Query, record: AgentRecord, near: MatchSignals | None = None) -> Evidence:
    """The evidence for one candidate; `near` are its measured signals."""
    terms = frozenset(analyze_query(query.text[: limits.QUERY_CHARS]).terms)
    requested = tuple(dict.fromkeys(map(fold_tag, (*query.required_tags, *query.preferred_tags))))
    tags = TagQuery(query.text, requested, standard_taxonomy()).match_tags(record.tags)
    examples = _examples(record, terms, near)
    return Evidence(
        components={name: round(part, _DECIMALS) for name, part in near.components.items()} if near is not None else {},
        matched_tags=tags.direct,
        expanded_tags=tags.expanded,
        matched_examples=examples,
        snippets=_snippets(record.description[: limits.INDEXED_DESCRIPTION_CHARS], terms),
        flags=lint_flags(record),
    )


def _examples(record: AgentRecord, terms: frozenset[str], near: MatchSignals | None) -> tuple[ExampleMatch, ...]:
    """Examples by the query terms they share; the nearest by vector also by that similarity."""
    nearest, similarity = (near.place - 1, near.example or 0.0) if near is not None and near.place else (-1, 0.0)
    found = [
        ExampleMatch(text=example.text, score=score, id=example.id)
        for at, example in enumerate(record.examples)
        if (
            score := max(
                _coverage(example.text[: limits.INDEXED_EXAMPLE_CHARS], terms),
                round(similarity, _DECIMALS) if at == nearest else 0.0,
            )
        )
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
