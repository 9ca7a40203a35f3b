"""Explains an empty search result and suggests similar tags, using visible agents only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any, Final

from pyroaring import BitMap

from waypost import limits
from waypost.model.names import fold_tag
from waypost.model.query import EmptyResult, FilterEffect, Match, Query, Suggestions
from waypost.registry.catalog.catalog import Catalog
from waypost.registry.find.filters import FilterSelection

_PREFIX_TAGS: Final = 20  # tags with a common prefix that are compared


def suggest_tags(
    catalog: Catalog, tags: Iterable[str], audience: frozenset[str] | None, visible: BitMap
) -> Suggestions:
    """For each tag that no visible agent carries: the most similar tags that some of them carry."""
    found: Suggestions = {}
    for tag in dict.fromkeys(tags):
        if not catalog.tags.by_tag.get(fold_tag(tag)).intersect(visible):
            near = tuple(islice(_near(catalog, fold_tag(tag), audience, visible), limits.SUGGESTIONS))
            if near:
                found[tag] = near
    return found


def _near(catalog: Catalog, tag: str, audience: frozenset[str] | None, visible: BitMap) -> Iterator[str]:
    """Tags with a similar spelling, else with a common prefix: those that most agents carry first."""
    by_tag, suggesters = catalog.tags.by_tag, catalog.suggesters(audience)

    def carried(name: str) -> int:
        return by_tag.get(name).intersection_cardinality(visible)

    similar = {name for each in suggesters for name in filter(carried, each.near(tag))}
    if not similar:
        related = (islice(filter(carried, each.with_common_prefix(tag)), _PREFIX_TAGS) for each in suggesters)
        similar = {name for names in related for name in names}
    return iter(sorted(similar, key=lambda name: (-carried(name), name)))


def spelling_warnings(spelling: Suggestions, corrections: Collection[str]) -> Iterator[str]:
    """For misspelled words that were not corrected."""
    for word, near in spelling.items():
        if word not in corrections:
            yield f"No agent has the word {_shown(word)}. Did you mean {' or '.join(map(repr, near))}?"


def explain_empty_result(
    selection: FilterSelection, best_score: float | None, best_match: Match | None = None
) -> EmptyResult:
    visible, counts = len(selection.visible), selection.counts()
    left = counts[-1].remaining if counts else visible
    if not visible:
        return EmptyResult(reason="nothing_registered", visible=0)
    if not left:
        return EmptyResult(reason="filtered", visible=visible, filters=counts)
    if best_score is not None:
        return EmptyResult(reason="below_min_score", visible=visible, filters=counts, best_score=best_score)
    if best_match is not None:
        return EmptyResult(reason="below_min_match", visible=visible, filters=counts, best_match=best_match)
    return EmptyResult(reason="no_match", visible=visible, filters=counts)


def empty_warnings(empty: EmptyResult, query: Query, suggestions: Suggestions) -> Iterator[str]:
    if empty.reason == "nothing_registered":
        yield "No agent is registered that you may see."
    elif empty.reason == "below_min_score":
        yield f"The best match has a score of {empty.best_score}, which is below min_score {query.min_score}."
    elif empty.reason == "below_min_match":
        yield f"The best match is {empty.best_match}, which is below min_match {query.min_match}."
    elif empty.reason == "filtered":
        yield from _filtered(empty, suggestions)
    elif empty.filters:
        left = empty.filters[-1].remaining
        yield f"{_agents(left)} {'pass' if left != 1 else 'passes'} the filters, and none matches the query."
    else:
        yield f"Of {_agents(empty.visible)} none matches the query."


def _filtered(empty: EmptyResult, suggestions: Suggestions) -> Iterator[str]:
    """Filters that no agent passes; a tag with a suggestion is left to that suggestion."""
    impossible = [each for each in empty.filters if not each.matching]
    for each in impossible:
        if each.filter == "required_tags" and each.value in suggestions:
            continue
        yield f"Of {_agents(empty.visible)} none {_passes(each)}."
    if not impossible:
        parts = ", ".join(f"{each.matching} {_passes(each, many=each.matching != 1)}" for each in empty.filters)
        yield f"No agent passes all filters together: of {_agents(empty.visible)} {parts}."


def _passes(each: FilterEffect, *, many: bool = False) -> str:
    value = _shown(each.value)
    if each.filter == "required_tags":
        return f"{'carry' if many else 'carries'} the tag {value}"
    if each.filter == "excluded_tags":
        return f"{'are' if many else 'is'} without the tag {value}"
    if each.filter == "protocols":
        return f"{'speak' if many else 'speaks'} {value}"
    if each.filter == "statuses":
        return f"{'are' if many else 'is'} {value}"
    return f"{'state' if many else 'states'} what {each.filter} asks for ({value})"


def _shown(value: Any) -> str:
    text = " or ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return repr(text if len(text) <= 64 else text[:63] + "…")


def suggestion_warnings(suggestions: Suggestions) -> Iterator[str]:
    for tag, near in suggestions.items():
        yield f"No agent carries the tag {_shown(tag)}. Did you mean {' or '.join(map(repr, near))}?"


def _agents(count: int) -> str:
    return f"{count} agents" if count != 1 else "1 agent"
