"""The criteria of `rtfs.registry.discover` as a predicate over an agent_card, and the order of matches (rtfs.md §5).

Criteria are combined with AND. `discovery_query` is a JSON object of conditions (RTFS-50). Its keys are dotted paths
(`metadata.owner`), or single names that are looked up in the usual places; `-` and `_` are equivalent.
`<name>_contains`, `min_<name>` and `max_<name>` compare; a member that has such a name itself is compared for equality.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from waypost import limits
from waypost.errors import InvalidParameter, UnsupportedFilter
from waypost.model.json import JsonObject, kind_of
from waypost.model.names import fold, fold_tag, is_same_id
from waypost.model.versions import Range, find_version, parse_range
from waypost.protocols.rtfs.codec import split_version

CardPredicate = Callable[[Any], bool]

_CRITERIA = ("capability_id", "agent_id", "discovery_tags", "discovery_query", "version_constraint")
PARAMETERS = (*_CRITERIA, "tags_mode", "limit", "cursor")
_TEXT_WEIGHTS = (("name", 3.0), ("tags", 2.5), ("capability_ids", 2.0), ("description", 1.0), ("capabilities", 1.0))


@dataclass(frozen=True, slots=True)
class DiscoverCriteria:
    agent_id: str | None = None
    capability: CapabilityPattern | None = None
    tags: frozenset[str] = frozenset()  # folded
    any_tag: bool = False
    conjuncts: tuple[CardPredicate, ...] = ()
    terms: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    versions: Range | None = None
    limit: int = limits.RTFS_LIMIT_DEFAULT
    given: tuple[str, ...] = ()  # names of the given criteria
    unknown: tuple[str, ...] = field(default=())  # unknown parameters

    def matches(self, card: JsonObject) -> bool:
        if self.agent_id is not None and not is_same_id(str(card.get("agent_id")), self.agent_id):
            return False
        if self.tags and not self._has_tags(card):
            return False
        matched = list(self.capability.among(card)) if self.capability is not None else None
        if matched is not None and not matched:
            return False
        if self.versions is not None and not _version_matches(self.versions, card, matched):
            return False
        return all(predicate(card) for predicate in self.conjuncts) and (not self.terms or self.score(card) > 0)

    def _has_tags(self, card: JsonObject) -> bool:
        tags = {fold_tag(tag) for tag in _texts(card.get("discovery_tags"))}
        return not self.tags.isdisjoint(tags) if self.any_tag else self.tags <= tags

    def score(self, card: JsonObject) -> float:
        """Return the score of `text_search` in 0..1; 0 unless every word is found."""
        if not self.terms:
            return 0.0
        texts = _searchable(card)
        total = 0.0
        for term in self.terms:
            best = max((weight for name, weight in _TEXT_WEIGHTS if term in texts[name]), default=0.0)
            if best == 0.0:
                return 0.0
            total += best
        return round(total / (len(self.terms) * _TEXT_WEIGHTS[0][1]), 4)

    def preference(self, card: JsonObject) -> int:
        """Return the position of the card's best protocol among the preferred ones; a card without one comes last."""
        communication = card.get("communication")
        endpoints = communication.get("endpoints") if isinstance(communication, dict) else None
        protocols = {fold(item["protocol"]) for item in _objects(endpoints) if isinstance(item.get("protocol"), str)}
        return next((at for at, name in enumerate(self.preferred) if name in protocols), len(self.preferred))

    def order(self, card: JsonObject) -> tuple[float, int, str]:
        """Return the sort key: text score, then protocol preference, then id."""
        return (-self.score(card), self.preference(card), str(card.get("agent_id")))


@dataclass(frozen=True, slots=True)
class CapabilityPattern:
    """A requested `capability_id`: exact, `{agent_id}/{capability_id}`, a glob, or without its version."""

    text: str

    @property
    def is_glob(self) -> bool:
        return "*" in self.text

    def among(self, card: JsonObject) -> Iterator[JsonObject]:
        for item in _objects(card.get("capabilities")):
            name = item.get("capability_id")
            if isinstance(name, str) and (self.fits(name) or self.text == f"{card.get('agent_id')}/{name}"):
                yield item

    def fits(self, name: str) -> bool:
        if name == self.text:
            return True
        if self.is_glob:
            return glob_matches(self.text, name)
        plain, version = split_version(name)
        return version is not None and plain == self.text


def glob_matches(pattern: str, text: str) -> bool:
    """Match a glob, in which `*` stands for any characters. Linear, because the pattern is external input."""
    first, *middle, last = pattern.split("*")
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _version_matches(versions: Range, card: JsonObject, matched: list[JsonObject] | None) -> bool:
    """RTFS-53: compare the version of a matched capability, from its member or its id; else the card's."""
    return any(versions.allows(text) for text in _versions(card, matched))


def _versions(card: JsonObject, matched: list[JsonObject] | None) -> Iterator[str]:
    own = card.get("version")
    for item in matched if matched is not None else [{}]:
        version = item.get("version")
        if version is None:
            version = split_version(str(item.get("capability_id", "")))[1]
        if version is None:
            version = own
        if isinstance(version, str) and find_version(version) is not None:
            yield version


def _searchable(card: JsonObject) -> dict[str, str]:
    capabilities = _objects(card.get("capabilities"))
    return {
        "name": fold(_text(card.get("name"))),
        "tags": fold("\n".join(_texts(card.get("discovery_tags")))),
        "capability_ids": fold("\n".join(_text(item.get("capability_id")) for item in capabilities)),
        "description": fold(_text(card.get("description"))),
        "capabilities": fold("\n".join(_text(item.get("description")) for item in capabilities)),
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _objects(value: Any) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


# --- Parameters -----------------------------------------------------------------------------------


def parse_criteria(params: JsonObject, *, list_all: bool = False) -> DiscoverCriteria:
    """Parse the parameters of a discover call."""
    tags = _read_tags(params.get("discovery_tags"))
    capability = _read_text(params, "capability_id")
    constraint = _read_text(params, "version_constraint", blank=True)
    query = params.get("discovery_query")
    conjuncts, terms, preferred = _compile_query(query) if query is not None else ([], (), ())
    criteria = DiscoverCriteria(
        agent_id=_read_text(params, "agent_id"),
        capability=CapabilityPattern(capability) if capability is not None else None,
        tags=tags,
        any_tag=_read_mode(params.get("tags_mode")),
        conjuncts=tuple(conjuncts),
        terms=terms,
        preferred=preferred,
        versions=parse_range(constraint) if constraint is not None else None,
        limit=_read_limit(params.get("limit")),
        given=tuple(name for name in _CRITERIA if params.get(name) not in (None, [], {})),
        unknown=tuple(name for name in params if name not in PARAMETERS),
    )
    if not criteria.given and not list_all:
        raise InvalidParameter(
            "A search needs at least one criterion.", path="params", hint=f"Use one of {', '.join(_CRITERIA)}."
        )
    return criteria


def _read_text(params: JsonObject, name: str, *, blank: bool = False) -> str | None:
    value = params.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or (not blank and not value):
        raise InvalidParameter(f"{name} must be a string, not {kind_of(value) if value != '' else 'empty'}.", path=name)
    if len(value) > limits.ID_CHARS:
        raise InvalidParameter(f"{name} must have at most {limits.ID_CHARS} characters.", path=name)
    return value


def _read_tags(value: Any) -> frozenset[str]:
    if value is None:
        return frozenset()
    if not isinstance(value, list):
        raise InvalidParameter(f"discovery_tags must be an array, not {kind_of(value)}.", path="discovery_tags")
    if len(value) > limits.FILTER_VALUES:
        raise InvalidParameter(f"discovery_tags must have at most {limits.FILTER_VALUES} items.", path="discovery_tags")
    return frozenset(_fold_tags(value))


def _fold_tags(value: Iterable[Any]) -> Iterator[str]:
    for at, tag in enumerate(value):
        if not isinstance(tag, str) or not fold_tag(tag):
            raise InvalidParameter("A tag must be a string.", path=f"discovery_tags[{at}]")
        yield fold_tag(tag)


def _read_mode(value: Any) -> bool:
    if value in (None, "all", "any"):
        return bool(value == "any")
    raise InvalidParameter('tags_mode must be "all" or "any".', path="tags_mode")


def _read_limit(value: Any) -> int:
    """Parse the limit; a larger one is clamped (P-31)."""
    if value is None:
        return limits.RTFS_LIMIT_DEFAULT
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidParameter(f"limit must be an integer from 1 to {limits.RTFS_LIMIT_MAX}.", path="limit")
    return min(value, limits.RTFS_LIMIT_MAX)


# --- discovery_query ------------------------------------------------------------------------------

_PATH = "discovery_query"
_TEXT_SEARCH = "text_search"
_PREFERENCE = "protocol_preference"
_USUAL_PLACES = (("metadata",), ("capabilities",), ("communication", "endpoints"))
_SPELLINGS: tuple[Callable[[str], str], ...] = (
    str,
    lambda name: name.replace("-", "_"),
    lambda name: name.replace("_", "-"),
)


def _compile_query(query: Any) -> tuple[list[CardPredicate], tuple[str, ...], tuple[str, ...]]:
    """Return the predicates over a card, the terms of `text_search`, and the preferred protocols."""
    if not isinstance(query, dict):
        raise InvalidParameter(f"discovery_query must be an object, not {kind_of(query)}.", path=_PATH)
    _check_bounds(query, _PATH, 1)
    conjuncts: list[CardPredicate] = []
    terms: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    for key, value in query.items():
        name = key.replace("-", "_")
        if name == _TEXT_SEARCH:
            terms = _terms(value, f"{_PATH}.{key}")
        elif name == _PREFERENCE:
            preferred = _preference(value, f"{_PATH}.{key}")
        else:
            conjuncts.append(_conjunct(key, value, f"{_PATH}.{key}", top=True))
    return conjuncts, terms, preferred


def _check_bounds(value: Any, path: str, depth: int) -> int:
    """Return the number of keys; raises an error if there are too many, or if they are nested too deeply."""
    if depth > limits.RTFS_QUERY_DEPTH:
        raise InvalidParameter(f"Nested deeper than {limits.RTFS_QUERY_DEPTH}.", path=path)
    keys = 0
    if isinstance(value, dict):
        keys = len(value) + sum(_check_bounds(item, f"{path}.{name}", depth + 1) for name, item in value.items())
    elif isinstance(value, list):
        keys = sum(_check_bounds(item, path, depth + 1) for item in value)
    if keys > limits.RTFS_QUERY_KEYS:
        raise InvalidParameter(f"More than {limits.RTFS_QUERY_KEYS} keys.", path=path)
    return keys


def _terms(value: Any, path: str) -> tuple[str, ...]:
    if not isinstance(value, str) or not value.strip():
        raise InvalidParameter("text_search must be a string with at least one word.", path=path)
    if len(value) > limits.QUERY_CHARS:
        raise InvalidParameter(f"text_search must have at most {limits.QUERY_CHARS} characters.", path=path)
    return tuple(dict.fromkeys(fold(value).split()))[: limits.QUERY_TERMS]


def _preference(value: Any, path: str) -> tuple[str, ...]:
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str) for item in items):
        raise InvalidParameter("protocol_preference must be a name or an array of names.", path=path)
    return tuple(fold(item) for item in items)


# --- Conjuncts ------------------------------------------------------------------------------------


def _conjunct(key: str, value: Any, path: str, *, top: bool) -> CardPredicate:
    if not key or key.startswith("$"):
        raise UnsupportedFilter(
            f"{key[:40]!r} is not a path into a card.",
            path=path,
            hint="Use a member, a dotted path, <name>_contains, min_<name> or max_<name>.",
        )
    literal = _equality(key, _test(value, path), top=top)
    compared = _comparison(key, value, path, top=top)
    if compared is None:
        return literal

    def matches(card: Any) -> bool:
        return literal(card) if any(True for _ in _values(card, key, top=top)) else compared(card)

    return matches


def _equality(key: str, test: Callable[[list[Any]], bool], *, top: bool) -> CardPredicate:
    return lambda card: test(list(_values(card, key, top=top)))


def _test(value: Any, path: str) -> Callable[[list[Any]], bool]:
    """Return the test for the values at a path."""
    if value is None:
        return lambda found: all(item is None for item in found)
    if isinstance(value, list):
        tests = [_test(item, path) for item in value]
        return lambda found: any(test(found) for test in tests)
    if isinstance(value, dict):
        parts = [_conjunct(key, item, f"{path}.{key}", top=False) for key, item in value.items()]
        return lambda found: any(
            all(part(item) for part in parts) for item in _flatten(found) if isinstance(item, dict)
        )
    return lambda found: any(_equal(item, value) for item in _flatten(found))


def _equal(found: Any, expected: Any) -> bool:
    if isinstance(expected, bool) or isinstance(found, bool):
        return found is expected
    if isinstance(expected, str):
        return isinstance(found, str) and fold(found) == fold(expected)
    return isinstance(found, (int, float)) and bool(found == expected)


def _comparison(key: str, value: Any, path: str, *, top: bool) -> CardPredicate | None:
    """Return the comparison that a name requests, or None."""
    name = key.replace("-", "_")
    if name.endswith("_contains") and len(name) > len("_contains"):
        return _equality(key[: -len("_contains")], _contains(value, path), top=top)
    head, dot, last = key.rpartition(".")
    for lead, compare in (("min_", _at_least), ("max_", _at_most)):
        if name.startswith(lead):
            return _equality(key[len(lead) :], _numeric(value, path, compare), top=top)
        if dot and last.replace("-", "_").startswith(lead):
            return _equality(f"{head}.{last[len(lead) :]}", _numeric(value, path, compare), top=top)
    return None


def _contains(value: Any, path: str) -> Callable[[list[Any]], bool]:
    if not isinstance(value, str):
        raise InvalidParameter(f"_contains needs a string, not {kind_of(value)}.", path=path)
    part = fold(value)
    return lambda found: any(isinstance(item, str) and part in fold(item) for item in _flatten(found))


def _numeric(value: Any, path: str, compare: Callable[[float, float], bool]) -> Callable[[list[Any]], bool]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidParameter(f"min_ and max_ need a number, not {kind_of(value)}.", path=path)
    return lambda found: any(
        isinstance(item, (int, float)) and not isinstance(item, bool) and compare(item, value)
        for item in _flatten(found)
    )


def _at_least(found: float, bound: float) -> bool:
    return found >= bound


def _at_most(found: float, bound: float) -> bool:
    return found <= bound


# --- Paths ----------------------------------------------------------------------------------------


def _values(card: Any, key: str, *, top: bool) -> Iterator[Any]:
    """Yield the values at a path. A single name is also looked up in the usual places; the first that has it counts."""
    found = list(_follow(card, key))
    if not found and top and "." not in key:
        for place in _USUAL_PLACES:
            found = [value for item in _inside(card, place) for value in _follow(item, key)]
            if found:
                break
    return iter(found)


def _inside(card: Any, place: Sequence[str]) -> Iterable[Any]:
    value = card
    for name in place:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, list) else [value]


def _follow(value: Any, path: str) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _follow(item, path)
        return
    if not isinstance(value, dict):
        return
    name = _find_name(value, path)
    if name is not None:  # a member whose own name contains dots has precedence
        yield value[name]
        return
    head, dot, rest = path.partition(".")
    name = _find_name(value, head) if dot and rest else None
    if name is not None:
        yield from _follow(value[name], rest)


def _find_name(value: JsonObject, name: str) -> str | None:
    for spell in _SPELLINGS:
        spelled = spell(name)
        if spelled in value:
            return spelled
    return None


def _flatten(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the values, and the items of arrays."""
    for value in values:
        if isinstance(value, list):
            yield from _flatten(value)
        else:
            yield value
