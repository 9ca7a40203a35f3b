"""What is asked of an ARD registry (ard.md §4–6): the bodies of search and explore, and the filter that both share.

Pure: a body in, a request out, or an error that names the member. What an entry holds at a path is asked of `values_at`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from waypost import limits
from waypost.errors import InvalidRequest, UnsupportedFilter
from waypost.model.json import JsonObject, kind_of

FEDERATION: Final = ("auto", "referrals", "none")
PUBLISHER: Final = "publisher"  # no member of an entry: it is read off the identifier (ARD-22)
# Roots of a path. Of other members of an entry ARD says nothing, so nobody can ask for them.
FIELDS: Final = (
    "identifier",
    "displayName",
    "type",
    "url",
    "data",
    "description",
    "tags",
    "capabilities",
    "representativeQueries",
    "version",
    "updatedAt",
    "metadata",
    "trustManifest",
    PUBLISHER,
)


class Filter(msgspec.Struct, frozen=True):
    """Paths with the values that fit: any value of a path, every path."""

    values: dict[str, frozenset[str]] = {}

    def matches(self, entry: Mapping[str, Any]) -> bool:
        return all(not wanted.isdisjoint(values_at(entry, path)) for path, wanted in self.values.items())

    def over(self, paths: Iterable[str]) -> Filter:
        """The part of it that looks at these paths."""
        kept = frozenset(paths)
        return Filter({path: wanted for path, wanted in self.values.items() if path in kept})


class SearchRequest(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    filter: Filter
    federation: str
    page_size: int
    page_token: str | None


class Facet(msgspec.Struct, frozen=True, kw_only=True):
    field: str
    limit: int
    min_count: int


class ExploreRequest(msgspec.Struct, frozen=True, kw_only=True):
    text: str | None
    filter: Filter
    facets: tuple[Facet, ...]


# --- Bodies ---------------------------------------------------------------------------------------


def parse_search(body: JsonObject) -> SearchRequest:
    _check_members(body, ("query", "federation", "pageSize", "pageToken"), "$", "`filter` belongs into `query`")
    query = _query_of(body)
    text = _text_of(query)
    if text is None or not text.strip():
        raise InvalidRequest(
            "A search needs a text.",
            path="$.query.text",
            hint="Say in words what is sought; POST /explore and GET /agents go without.",
        )
    return SearchRequest(
        text=text,
        filter=_filter_of(query),
        federation=_federation_of(body),
        page_size=page_size_of(body.get("pageSize", limits.ARD_SEARCH_PAGE), "$.pageSize"),
        page_token=_token_of(body),
    )


def parse_explore(body: JsonObject) -> ExploreRequest:
    _check_members(body, ("query", "resultType"), "$", "exploring never asks other registries")
    query = _query_of(body, required=False)
    text = _text_of(query)
    wanted = body.get("resultType")
    if not isinstance(wanted, dict):
        raise InvalidRequest(
            "resultType says what is counted.", path="$.resultType", hint='Send {"facets": [{"field": "type"}]}.'
        )
    _check_members(wanted, ("facets",), "$.resultType")
    return ExploreRequest(
        text=text if text and text.strip() else None, filter=_filter_of(query), facets=_facets(wanted)
    )


def _query_of(body: JsonObject, *, required: bool = True) -> JsonObject:
    if "query" not in body and not required:
        return {}
    query = body.get("query")
    if not isinstance(query, dict):
        found = "is missing" if query is None else f"must be an object, not {kind_of(query)}"
        raise InvalidRequest(f"query {found}.", path="$.query", hint='Send {"query": {"text": "…"}}.')
    _check_members(query, ("text", "filter"), "$.query", "put it into `filter`")
    return query


def _text_of(query: JsonObject) -> str | None:
    if "text" not in query:
        return None
    text = query["text"]
    if not isinstance(text, str):
        raise InvalidRequest(f"text must be a string, not {kind_of(text)}.", path="$.query.text")
    if len(text) > limits.ARD_TEXT_CHARS:
        raise InvalidRequest(
            f"The text has {len(text)} characters; at most {limits.ARD_TEXT_CHARS} are read.",
            path="$.query.text",
            hint="Shorten it.",
        )
    return text


def _federation_of(body: JsonObject) -> str:
    value = body.get("federation", "auto")
    if value not in FEDERATION:
        raise InvalidRequest(f"federation must be one of {', '.join(FEDERATION)}.", path="$.federation")
    return str(value)


def _token_of(body: JsonObject) -> str | None:
    """None and an empty text are the beginning (P-15)."""
    token = body.get("pageToken")
    if token is not None and not isinstance(token, str):
        raise InvalidRequest(f"pageToken must be a string, not {kind_of(token)}.", path="$.pageToken")
    return token or None


def page_size_of(value: object, path: str) -> int:
    """More than there may be is as much as there may be (P-13)."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidRequest("pageSize must be a whole number above 0.", path=path)
    return min(value, limits.ARD_PAGE_MAX)


def _check_members(document: JsonObject, known: tuple[str, ...], path: str, hint: str = "") -> None:
    for name in document:
        if name not in known:
            told = f"Known here: {', '.join(known)}"
            raise InvalidRequest(
                f"{name[:64]!r} is not a member of this object.",
                path=f"{path}.{name[:64]}",
                hint=f"{told}; {hint}." if hint else f"{told}.",
            )


# --- Facets ---------------------------------------------------------------------------------------


def _facets(wanted: JsonObject) -> tuple[Facet, ...]:
    facets, path = wanted.get("facets"), "$.resultType.facets"
    if not isinstance(facets, list) or not 1 <= len(facets) <= limits.ARD_FACETS:
        raise InvalidRequest(f"facets is an array of 1 to {limits.ARD_FACETS} objects.", path=path)
    found = tuple(_facet(facet, f"{path}[{index}]") for index, facet in enumerate(facets))
    for index, facet in enumerate(found):
        if facet.field in (earlier.field for earlier in found[:index]):
            raise InvalidRequest(f"{facet.field!r} is asked for twice.", path=f"{path}[{index}].field")
    return found


def _facet(facet: object, path: str) -> Facet:
    if not isinstance(facet, dict):
        raise InvalidRequest(f"A facet is an object, not {kind_of(facet)}.", path=path, hint='Send {"field": "type"}.')
    _check_members(facet, ("field", "limit", "minCount"), path)
    field = facet.get("field")
    if not isinstance(field, str):
        raise InvalidRequest("field names what is counted.", path=f"{path}.field")
    check_path(field, f"{path}.field")
    return Facet(
        field=field,
        limit=_bounded(facet, "limit", limits.ARD_BUCKETS, limits.ARD_BUCKETS_MAX, path),
        min_count=_bounded(facet, "minCount", 1, None, path),
    )


def _bounded(facet: JsonObject, name: str, default: int, most: int | None, path: str) -> int:
    value = facet.get(name, default)
    fits = isinstance(value, int) and not isinstance(value, bool) and value >= 1 and (most is None or value <= most)
    if not fits:
        range_ = f"from 1 to {most}" if most is not None else "above 0"
        raise InvalidRequest(f"{name} must be a whole number {range_}.", path=f"{path}.{name}")
    return int(value)


# --- The filter -----------------------------------------------------------------------------------


def _filter_of(query: JsonObject) -> Filter:
    if "filter" not in query:
        return Filter()
    written = query["filter"]
    if not isinstance(written, dict):
        raise InvalidRequest(
            f"filter must be an object, not {kind_of(written)}.",
            path="$.query.filter",
            hint='Send paths with their values: {"type": ["application/a2a-agent-card+json"]}.',
        )
    if len(written) > limits.ARD_FILTER_KEYS:
        raise InvalidRequest(
            f"filter has {len(written)} paths; at most {limits.ARD_FILTER_KEYS} are read.", path="$.query.filter"
        )
    return Filter({path: _wanted(path, values) for path, values in written.items()})


def _wanted(path: str, values: object) -> frozenset[str]:
    where = f"$.query.filter.{path[:64]}"
    check_path(path, where)
    if not isinstance(values, list):
        return frozenset((_alike(path, _value(values, where)),))
    if len(values) > limits.ARD_FILTER_VALUES:
        raise InvalidRequest(f"At most {limits.ARD_FILTER_VALUES} values are read.", path=where)
    return frozenset(_alike(path, _value(value, f"{where}[{index}]")) for index, value in enumerate(values))


def _value(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(
            f"A value is a string, not {kind_of(value)}.",
            path=where,
            hint="Numbers and booleans of an entry are compared with their JSON text.",
        )
    return value


def check_path(path: str, where: str) -> None:
    root, *rest = path.split(".")
    if root not in FIELDS:
        raise UnsupportedFilter(
            f"{root[:64]!r} is not a field of an entry.", path=where, hint=f"Use one of {', '.join(FIELDS)}."
        )
    if len(path) > limits.ARD_PATH_CHARS or len(rest) >= limits.ARD_PATH_DEPTH:
        raise InvalidRequest(
            f"A path has at most {limits.ARD_PATH_CHARS} characters and {limits.ARD_PATH_DEPTH} parts.", path=where
        )


def values_at(entry: Mapping[str, Any], path: str) -> Iterator[str]:
    """What an entry has at a path, each value as the text that it is compared by; several where the path meets an array."""
    for value in _found(entry, path):
        text = shown(value)
        if text is not None:
            yield _alike(path, text)


def shown(value: object) -> str | None:
    """A value of an entry as a text; None for what has none."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return None


def _alike(path: str, text: str) -> str:
    """Where spelling does not count (P-12): publishers and tags in any case, media types without their parameters."""
    if path == "type":
        return text.partition(";")[0].strip().lower()
    if path == "tags":
        return text.casefold()
    return text.lower() if path == PUBLISHER else text


def _found(value: object, path: str) -> Iterator[object]:
    """The longest key that fits goes first: keys may hold dots themselves (`metadata.org.x.y`)."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _found(item, path)
    elif not path:
        yield value
    elif isinstance(value, Mapping):
        head = path
        while head:
            if head in value:
                yield from _found(value[head], path[len(head) + 1 :])
                return
            head = head.rpartition(".")[0]
