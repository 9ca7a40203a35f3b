"""What is asked of an ARD registry (ard.md §4–6): the bodies of search and explore, and the filter that both share.

Pure: a body in, a request out, or an error that names the member. What an entry holds at a path is asked of
`values_at`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter, InvalidRequest, UnsupportedFilter
from waypost.model.json import JsonObject, kind_of
from waypost.model.times import find_instant

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


class ArdFilter(msgspec.Struct, frozen=True):
    """Paths with the values that fit: any value of a path, every path."""

    values: dict[str, frozenset[str]] = {}

    def matches(self, entry: Mapping[str, Any]) -> bool:
        return all(not wanted.isdisjoint(values_at(entry, path)) for path, wanted in self.values.items())

    def over(self, paths: Iterable[str]) -> ArdFilter:
        """The part of it that looks at these paths."""
        kept = frozenset(paths)
        return ArdFilter({path: wanted for path, wanted in self.values.items() if path in kept})


class SearchRequest(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    filter: ArdFilter
    federation: str
    page_size: int
    page_token: str | None


class FacetRequest(msgspec.Struct, frozen=True, kw_only=True):
    field: str
    limit: int
    min_count: int


class ExploreRequest(msgspec.Struct, frozen=True, kw_only=True):
    text: str | None
    filter: ArdFilter
    facets: tuple[FacetRequest, ...]


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
        page_size=parse_page_size(body.get("pageSize", limits.ARD_SEARCH_PAGE), "$.pageSize"),
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


def parse_page_size(value: object, path: str) -> int:
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


def _facets(wanted: JsonObject) -> tuple[FacetRequest, ...]:
    facets, path = wanted.get("facets"), "$.resultType.facets"
    if not isinstance(facets, list) or not 1 <= len(facets) <= limits.ARD_FACETS:
        raise InvalidRequest(f"facets is an array of 1 to {limits.ARD_FACETS} objects.", path=path)
    found = tuple(_facet(facet, f"{path}[{index}]") for index, facet in enumerate(facets))
    for index, facet in enumerate(found):
        if facet.field in (earlier.field for earlier in found[:index]):
            raise InvalidRequest(f"{facet.field!r} is asked for twice.", path=f"{path}[{index}].field")
    return found


def _facet(facet: object, path: str) -> FacetRequest:
    if not isinstance(facet, dict):
        raise InvalidRequest(f"A facet is an object, not {kind_of(facet)}.", path=path, hint='Send {"field": "type"}.')
    _check_members(facet, ("field", "limit", "minCount"), path)
    field = facet.get("field")
    if not isinstance(field, str):
        raise InvalidRequest("field names what is counted.", path=f"{path}.field")
    check_path(field, f"{path}.field")
    return FacetRequest(
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


def _filter_of(query: JsonObject) -> ArdFilter:
    if "filter" not in query:
        return ArdFilter()
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
    return ArdFilter({path: _wanted(path, values) for path, values in written.items()})


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
    """What an entry has at a path, each value as the text that it is compared by; several where the path meets an
    array."""
    for value in _found(entry, path):
        text = value_text(value)
        if text is not None:
            yield _alike(path, text)


def value_text(value: object) -> str | None:
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


# ---- How an ARD list is narrowed and ordered (ard.md §7): the grammar of `filter` (P-20) and of `orderBy` (P-21).
#
# type = 'application/mcp-server-card+json' AND createdAfter > '2026-01-01'

_FIELD: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)")

_OP: Final = re.compile(r"\s*(>=|<=|=|>|<|:)")

_VALUE: Final = re.compile(r"""\s*(?:'((?:[^']|'')*)'|"((?:[^"]|"")*)"|([A-Za-z0-9\-._/+:,]+))""")

_AND: Final = re.compile(r"\s+and\s+", re.IGNORECASE)

_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}\Z")

_SINCE: Final = ("createdAfter", "updatedAfter")

_TEXTS: Final = (
    "displayName",
    "description",
    "type",
    "publisherId",
    "publisher",
    "tags",
    "capabilities",
    "identifier",
    "version",
)

_CONTAINED: Final = ("displayName", "description")

_COMPARED: Final = ("identifier", "version", "displayName")

_FOLDED: Final = ("displayName", "description", "type", "publisherId", "publisher", "tags")

_COMPARISONS: Final[dict[str, Callable[[str, str], bool]]] = {">": gt, ">=": ge, "<": lt, "<=": le}

_ORDERS: Final = {
    "displayName": "display_name",
    "name": "display_name",
    "identifier": "identifier",
    "type": "type",
    "publisher": "publisher",
    "version": "version",
    "updatedAt": "updated_at",
    "updated_at": "updated_at",
    "createdAt": "created_at",
    "created_at": "created_at",
}


class ListableEntry(Protocol):
    """What a list knows of an entry."""

    @property
    def identifier(self) -> str: ...
    @property
    def display_name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def publisher(self) -> str: ...
    @property
    def tags(self) -> Sequence[str]: ...
    @property
    def capabilities(self) -> Sequence[str]: ...
    @property
    def version(self) -> str: ...
    @property
    def updated_at(self) -> float: ...
    @property
    def created_at(self) -> float: ...
    @property
    def description(self) -> str: ...


class FilterClause(msgspec.Struct, frozen=True):
    field: str
    op: str
    values: tuple[str, ...]
    since: float = 0.0

    def matches(self, entry: ListableEntry) -> bool:
        if self.field in _SINCE:
            return (entry.created_at if self.field == "createdAfter" else entry.updated_at) > self.since
        found = [_folded(self.field, text) for text in _texts(entry, self.field)]
        if self.op == ":":
            return any(value in text for value in self.values for text in found)
        if self.op == "=":
            return any(text in self.values for text in found)
        compare = _COMPARISONS[self.op]
        return any(compare(text, value) for value in self.values for text in found)


class SortKey(NamedTuple):
    attribute: str
    descending: bool


def parse_filter(text: str | None) -> tuple[FilterClause, ...]:
    if text is None or not text.strip():
        return ()
    if len(text) > limits.ARD_LIST_FILTER_CHARS:
        raise InvalidParameter(f"At most {limits.ARD_LIST_FILTER_CHARS} characters are read.", path="filter")
    return tuple(_clauses(text))


def _clauses(text: str) -> Iterator[FilterClause]:
    at = 0
    while True:
        field = _token(_FIELD, text, at, "a field such as type")
        op = _token(_OP, text, field.end(), "an operator such as =")
        value = _token(_VALUE, text, op.end(), "a value such as 'application/a2a-agent-card+json'")
        yield _clause(field[1], op[1], _unquoted(value), field.start(1) + 1)
        at = value.end()
        if not text[at:].strip():
            return
        at = _token(_AND, text, at, "AND, or the end").end()


def _token(form: re.Pattern[str], text: str, at: int, expected: str) -> re.Match[str]:
    found = form.match(text, at)
    if found is None:
        raise _unreadable(text, at, expected)
    return found


def _unquoted(value: re.Match[str]) -> str:
    single, double, bare = value.groups()
    if single is not None:
        return str(single).replace("''", "'")
    return str(double).replace('""', '"') if double is not None else str(bare)


def _unreadable(text: str, at: int, expected: str) -> InvalidParameter:
    column = at + len(text[at:]) - len(text[at:].lstrip()) + 1
    return InvalidParameter(
        f"The filter cannot be read at column {column}: expected {expected}.",
        path="filter",
        hint="field = 'value' AND field = 'value'; commas inside a value mean or.",
    )


def _clause(field: str, op: str, value: str, column: int) -> FilterClause:
    if field in _SINCE:
        return FilterClause(field, op, (), _since(field, op, value))
    _check(field, op, column)
    parts = (part.strip() for part in value.split(","))
    return FilterClause(field, op, tuple(_folded(field, part) for part in parts if part))


def _since(field: str, op: str, value: str) -> float:
    if op not in ("=", ">", ">="):
        raise InvalidParameter(f"{field} takes = or >, not {op}.", path="filter")
    instant = find_instant(f"{value}T00:00:00Z" if _DATE.match(value) else value)
    if instant is None:
        raise InvalidParameter(
            f"{value[:40]!r} is no time.", path="filter", hint="Write 2026-01-31 or 2026-01-31T12:00:00Z."
        )
    return instant


def _check(field: str, op: str, column: int) -> None:
    if field not in _TEXTS:
        known = ", ".join((*_TEXTS, *_SINCE))
        raise InvalidParameter(
            f"{field[:40]!r} (column {column}) cannot be asked for.", path="filter", hint=f"Use {known}."
        )
    taken = ["=", *([":"] if field in _CONTAINED else []), *(_COMPARISONS if field in _COMPARED else [])]
    if op not in taken:
        raise InvalidParameter(f"{field} takes {' '.join(taken)}, not {op} (column {column}).", path="filter")


def _texts(entry: ListableEntry, field: str) -> Iterable[str]:
    match field:
        case "displayName":
            return (entry.display_name,)
        case "description":
            return (entry.description,)
        case "type":
            return (entry.type,)
        case "publisher" | "publisherId":
            return (entry.publisher,)
        case "tags":
            return entry.tags
        case "capabilities":
            return entry.capabilities
        case "identifier":
            return (entry.identifier,)
        case _:
            return (entry.version,)


def _folded(field: str, text: str) -> str:
    if field == "type":
        text = text.partition(";")[0].strip()
    return text.casefold() if field in _FOLDED else text


# --- Order ----------------------------------------------------------------------------------------


def parse_order_by(text: str | None) -> tuple[SortKey, ...]:
    """Fields in order; the identifier always decides last."""
    parts = [part.split() for part in (text or "").split(",")] if text and text.strip() else []
    if len(parts) > limits.ARD_ORDER_FIELDS:
        raise InvalidParameter(f"At most {limits.ARD_ORDER_FIELDS} fields order a list.", path="orderBy")
    orders = [_order(part) for part in parts]
    return (*orders, SortKey("identifier", descending=False))


def _order(part: Sequence[str]) -> SortKey:
    if not 1 <= len(part) <= 2 or part[0] not in _ORDERS:
        raise InvalidParameter(
            f"A list cannot be ordered by {' '.join(part)[:40]!r}.",
            path="orderBy",
            hint=f"Use {', '.join(_ORDERS)}, each with ASC or DESC.",
        )
    direction = part[1].upper() if len(part) == 2 else "ASC"
    if direction not in ("ASC", "DESC"):
        raise InvalidParameter(f"{part[1][:40]!r} is no direction.", path="orderBy", hint="Use ASC or DESC.")
    return SortKey(_ORDERS[part[0]], direction == "DESC")


def sort_entries(
    entries: list[tuple[str, ListableEntry]], orders: Sequence[SortKey]
) -> list[tuple[str, ListableEntry]]:
    """Sorted by the last field first: each pass keeps the order of those before it among equals."""
    for order in reversed(orders):
        entries.sort(key=lambda item: _key(item[1], order.attribute), reverse=order.descending)
    return entries


def _key(entry: ListableEntry, attribute: str) -> str | float:
    value: str | float = getattr(entry, attribute)
    return value.casefold() if attribute == "display_name" and isinstance(value, str) else value
