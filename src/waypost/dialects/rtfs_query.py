"""`discovery_query`: a JSON object of conjuncts over an agent_card (rtfs.md RTFS-50).

A key is a dotted path (`metadata.owner`), or one name that is looked for in the usual places; `-` and `_` are the same.
`<name>_contains`, `min_<name>` and `max_<name>` compare; a member that really has such a name is compared as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from waypost import limits
from waypost.errors import InvalidParameter, UnsupportedFilter
from waypost.model.json import JsonObject, kind_of
from waypost.model.names import fold

Conjunct = Callable[[Any], bool]

PATH = "discovery_query"
TEXT_SEARCH = "text_search"
PREFERENCE = "protocol_preference"
_USUAL_PLACES = (("metadata",), ("capabilities",), ("communication", "endpoints"))
_SPELLINGS: tuple[Callable[[str], str], ...] = (
    str,
    lambda name: name.replace("-", "_"),
    lambda name: name.replace("_", "-"),
)


def compile_query(query: Any) -> tuple[list[Conjunct], tuple[str, ...], tuple[str, ...]]:
    """The conjuncts over a card, the terms of `text_search`, and the protocols that are preferred."""
    if not isinstance(query, dict):
        raise InvalidParameter(f"discovery_query is an object, not {kind_of(query)}.", path=PATH)
    _check_bounds(query, PATH, 1)
    conjuncts: list[Conjunct] = []
    terms: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    for key, value in query.items():
        name = key.replace("-", "_")
        if name == TEXT_SEARCH:
            terms = _terms(value, f"{PATH}.{key}")
        elif name == PREFERENCE:
            preferred = _preference(value, f"{PATH}.{key}")
        else:
            conjuncts.append(_conjunct(key, value, f"{PATH}.{key}", top=True))
    return conjuncts, terms, preferred


def _check_bounds(value: Any, path: str, depth: int) -> int:
    """How many keys there are in all; refused when there are too many, or when they are nested too deep."""
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
        raise InvalidParameter("text_search is a text of at least one word.", path=path)
    if len(value) > limits.QUERY_CHARS:
        raise InvalidParameter(f"text_search has at most {limits.QUERY_CHARS} characters.", path=path)
    return tuple(dict.fromkeys(fold(value).split()))[: limits.QUERY_TERMS]


def _preference(value: Any, path: str) -> tuple[str, ...]:
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str) for item in items):
        raise InvalidParameter("protocol_preference is a name or an array of names.", path=path)
    return tuple(fold(item) for item in items)


# --- Conjuncts ------------------------------------------------------------------------------------


def _conjunct(key: str, value: Any, path: str, *, top: bool) -> Conjunct:
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

    def holds(card: Any) -> bool:
        return literal(card) if any(True for _ in _values(card, key, top=top)) else compared(card)

    return holds


def _equality(key: str, test: Callable[[list[Any]], bool], *, top: bool) -> Conjunct:
    return lambda card: test(list(_values(card, key, top=top)))


def _test(value: Any, path: str) -> Callable[[list[Any]], bool]:
    """What the values found under a path must be."""
    if value is None:
        return lambda found: all(item is None for item in found)
    if isinstance(value, list):
        tests = [_test(item, path) for item in value]
        return lambda found: any(test(found) for test in tests)
    if isinstance(value, dict):
        parts = [_conjunct(key, item, f"{path}.{key}", top=False) for key, item in value.items()]
        return lambda found: any(all(part(item) for part in parts) for item in _flat(found) if isinstance(item, dict))
    return lambda found: any(_equal(item, value) for item in _flat(found))


def _equal(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, bool) or isinstance(found, bool):
        return found is wanted
    if isinstance(wanted, str):
        return isinstance(found, str) and fold(found) == fold(wanted)
    return isinstance(found, (int, float)) and bool(found == wanted)


def _comparison(key: str, value: Any, path: str, *, top: bool) -> Conjunct | None:
    """The comparison that a name asks for, if it asks for one."""
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
        raise InvalidParameter(f"_contains takes a text, not {kind_of(value)}.", path=path)
    part = fold(value)
    return lambda found: any(isinstance(item, str) and part in fold(item) for item in _flat(found))


def _numeric(value: Any, path: str, compare: Callable[[float, float], bool]) -> Callable[[list[Any]], bool]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidParameter(f"min_ and max_ take a number, not {kind_of(value)}.", path=path)
    return lambda found: any(
        isinstance(item, (int, float)) and not isinstance(item, bool) and compare(item, value) for item in _flat(found)
    )


def _at_least(found: float, bound: float) -> bool:
    return found >= bound


def _at_most(found: float, bound: float) -> bool:
    return found <= bound


# --- Paths ----------------------------------------------------------------------------------------


def _values(card: Any, key: str, *, top: bool) -> Iterator[Any]:
    """The values under a path. One name is also looked for in the usual places; the first that has it decides."""
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
    if name is not None:  # a member whose own name holds dots comes first
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


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    """The values, and the items of those that are arrays."""
    for value in values:
        if isinstance(value, list):
            yield from _flat(value)
        else:
            yield value
