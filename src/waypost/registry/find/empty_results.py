"""Explains an empty search result and suggests similar tags, using visible agents only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from pyroaring import BitMap

from waypost import limits
from waypost.model.names import fold, fold_tag
from waypost.model.query import EmptyResult, FilterEffect, Match, Query, Suggestions
from waypost.registry.catalog.catalog import Catalog
from waypost.registry.find.filters import FilterSelection
from waypost.search.index.tag_index import edit_distance
from waypost.search.text.analyzer import STOP_WORDS, analyse, split_words
from waypost.search.text.sanitize import sanitize_text

_PREFIX_TAGS: Final = 20  # tags with a common prefix that are compared
SPELLED_CHARS: Final = 5  # a shorter word of a query is similar to too many others
_KNOWN_CHARS: Final = 4
_SHORT_WORD: Final = 5  # a word up to this length allows one edit, a longer one two


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
    by_tag, suggesters = catalog.tags.by_tag, catalog.suggesters(audience)

    def carried(name: str) -> int:
        return by_tag.get(name).intersection_cardinality(visible)

    near = find_similar_tags(catalog, tag, audience, visible)
    similar = [(distance, -carried(name), name) for name, distance in near.items()]
    if not similar:
        related = (islice(filter(carried, each.with_common_prefix(tag)), _PREFIX_TAGS) for each in suggesters)
        similar = [(0, -carried(name), name) for name in {name for names in related for name in names}]
    nearest = min(similar, default=(0,))[0]
    return (name for distance, _, name in sorted(similar) if distance == nearest)


def suggest_words(
    unknown: Iterable[str], texts: Iterable[str], find_tags: Callable[[str], Mapping[str, int]]
) -> Suggestions:
    """For each word that no visible agent has: the most similar words of these texts, else similar tags."""
    known = _words_in(texts)
    stems = {analyse(word) for word in known}
    # A stem that is known here is of a private agent of the caller, whose words are not counted.
    misspelled = [word for word in map(fold, unknown) if analyse(word) not in stems]
    similar = {word: _find_similar(word, known) or find_tags(word) for word in misspelled}
    return {word: _nearest(near) for word, near in similar.items() if near}


def _find_similar(word: str, known: Sequence[str]) -> dict[str, int]:
    """Known words with nearly the same spelling, with their edit distance."""
    most = 1 if len(word) <= _SHORT_WORD else 2
    letters = set(word)
    alike = (each for each in known if len(letters.difference(each)) <= most)  # quicker than the distance
    return {each: distance for each in alike if (distance := edit_distance(word, each, most)) <= most}


def _nearest(similar: Mapping[str, int]) -> tuple[str, ...]:
    least = min(similar.values())
    return tuple(each for each, distance in similar.items() if distance == least)[: limits.SUGGESTIONS]


def find_similar_tags(
    catalog: Catalog, word: str, audience: frozenset[str] | None, visible: BitMap
) -> Mapping[str, int]:
    """Tags of visible agents with nearly the spelling of a folded word, with their edit distance."""
    by_tag = catalog.tags.by_tag
    near = {name: distance for each in catalog.suggesters(audience) for name, distance in each.near(word).items()}
    return {name: distance for name, distance in sorted(near.items()) if by_tag.get(name).intersect(visible)}


def _words_in(texts: Iterable[str]) -> list[str]:
    words = (word for text in texts for word in split_words(fold(sanitize_text(text))))
    return list(dict.fromkeys(word for word in words if len(word) >= _KNOWN_CHARS and word not in STOP_WORDS))


def spelling_warnings(spelling: Suggestions) -> Iterator[str]:
    for word, near in spelling.items():
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
