"""ARD queries (ard.md §4–7): the bodies of search and explore, their common filter, and the filter and order of
lists."""

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
from waypost.protocols.ard.codec import bare_type

FEDERATION: Final = ("auto", "referrals", "none")
_PUBLISHER: Final = "publisher"  # derived from the identifier (ARD-22)
# First names of paths: the members of an entry that ARD defines.
_FIELDS: Final = (
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
    _PUBLISHER,
)


class ArdFilter(msgspec.Struct, frozen=True):
    """Paths with accepted values: an entry must have one of the values at every path."""

    values: dict[str, frozenset[str]] = {}

    def matches(self, entry: Mapping[str, Any]) -> bool:
        return all(not accepted.isdisjoint(values_at(entry, path)) for path, accepted in self.values.items())

    def restrict(self, paths: Iterable[str]) -> ArdFilter:
        """Return the part of the filter for these paths."""
        selected = frozenset(paths)
        return ArdFilter({path: accepted for path, accepted in self.values.items() if path in selected})


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
    _check_members(body, ("query", "federation", "pageSize", "pageToken"), "$", "`filter` belongs in `query`")
    query = _query_of(body)
    text = _text_of(query)
    if text is None or not text.strip():
        raise InvalidRequest(
            "A search needs a text.",
            path="$.query.text",
            hint="Describe the task; POST /explore and GET /agents need no text.",
        )
    return SearchRequest(
        text=text,
        filter=_filter_of(query),
        federation=_federation_of(body),
        page_size=parse_page_size(body.get("pageSize", limits.ARD_SEARCH_PAGE), "$.pageSize"),
        page_token=_token_of(body),
    )


def parse_explore(body: JsonObject) -> ExploreRequest:
    _check_members(body, ("query", "resultType"), "$", "explore does not query other registries")
    query = _query_of(body, required=False)
    text = _text_of(query)
    result_type = body.get("resultType")
    if not isinstance(result_type, dict):
        raise InvalidRequest(
            "resultType must be an object that lists the facets.",
            path="$.resultType",
            hint='Send {"facets": [{"field": "type"}]}.',
        )
    _check_members(result_type, ("facets",), "$.resultType")
    return ExploreRequest(
        text=text if text and text.strip() else None, filter=_filter_of(query), facets=_facets(result_type)
    )


def _query_of(body: JsonObject, *, required: bool = True) -> JsonObject:
    if "query" not in body and not required:
        return {}
    query = body.get("query")
    if not isinstance(query, dict):
        found = "is missing" if query is None else f"must be an object, not {kind_of(query)}"
        raise InvalidRequest(f"query {found}.", path="$.query", hint='Send {"query": {"text": "…"}}.')
    _check_members(query, ("text", "filter"), "$.query", "put it in `filter`")
    return query


def _text_of(query: JsonObject) -> str | None:
    if "text" not in query:
        return None
    text = query["text"]
    if not isinstance(text, str):
        raise InvalidRequest(f"text must be a string, not {kind_of(text)}.", path="$.query.text")
    if len(text) > limits.ARD_TEXT_CHARS:
        raise InvalidRequest(
            f"The text has {len(text)} characters; at most {limits.ARD_TEXT_CHARS} are allowed.",
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
    """Return the token; None and an empty string are the first page (P-15)."""
    token = body.get("pageToken")
    if token is not None and not isinstance(token, str):
        raise InvalidRequest(f"pageToken must be a string, not {kind_of(token)}.", path="$.pageToken")
    return token or None


def parse_page_size(value: object, path: str) -> int:
    """Parse the page size; a larger one is clamped (P-13)."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidRequest("pageSize must be a positive integer.", path=path)
    return min(value, limits.ARD_PAGE_MAX)


def _check_members(document: JsonObject, known: tuple[str, ...], path: str, hint: str = "") -> None:
    for name in document:
        if name not in known:
            allowed = f"Allowed: {', '.join(known)}"
            raise InvalidRequest(
                f"{name[:64]!r} is not a member of this object.",
                path=f"{path}.{name[:64]}",
                hint=f"{allowed}; {hint}." if hint else f"{allowed}.",
            )


# --- Facets ---------------------------------------------------------------------------------------


def _facets(result_type: JsonObject) -> tuple[FacetRequest, ...]:
    facets, path = result_type.get("facets"), "$.resultType.facets"
    if not isinstance(facets, list) or not 1 <= len(facets) <= limits.ARD_FACETS:
        raise InvalidRequest(f"facets must be an array of 1 to {limits.ARD_FACETS} objects.", path=path)
    requests = tuple(_facet(facet, f"{path}[{index}]") for index, facet in enumerate(facets))
    for index, facet in enumerate(requests):
        if facet.field in (earlier.field for earlier in requests[:index]):
            raise InvalidRequest(f"The facet {facet.field!r} is requested twice.", path=f"{path}[{index}].field")
    return requests


def _facet(facet: object, path: str) -> FacetRequest:
    if not isinstance(facet, dict):
        raise InvalidRequest(
            f"A facet must be an object, not {kind_of(facet)}.", path=path, hint='Send {"field": "type"}.'
        )
    _check_members(facet, ("field", "limit", "minCount"), path)
    field = facet.get("field")
    if not isinstance(field, str):
        raise InvalidRequest("field must be a string, the path to count.", path=f"{path}.field")
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
        bounds = f"from 1 to {most}" if most is not None else "above 0"
        raise InvalidRequest(f"{name} must be an integer {bounds}.", path=f"{path}.{name}")
    return int(value)


# --- The filter -----------------------------------------------------------------------------------


def _filter_of(query: JsonObject) -> ArdFilter:
    if "filter" not in query:
        return ArdFilter()
    conditions = query["filter"]
    if not isinstance(conditions, dict):
        raise InvalidRequest(
            f"filter must be an object, not {kind_of(conditions)}.",
            path="$.query.filter",
            hint='Send paths with their values: {"type": ["application/a2a-agent-card+json"]}.',
        )
    if len(conditions) > limits.ARD_FILTER_KEYS:
        raise InvalidRequest(
            f"filter has {len(conditions)} paths; at most {limits.ARD_FILTER_KEYS} are allowed.", path="$.query.filter"
        )
    return ArdFilter({path: _accepted_values(path, values) for path, values in conditions.items()})


def _accepted_values(path: str, values: object) -> frozenset[str]:
    where = f"$.query.filter.{path[:64]}"
    check_path(path, where)
    if not isinstance(values, list):
        return frozenset((_normalize(path, _value(values, where)),))
    if len(values) > limits.ARD_FILTER_VALUES:
        raise InvalidRequest(f"At most {limits.ARD_FILTER_VALUES} values are allowed.", path=where)
    return frozenset(_normalize(path, _value(value, f"{where}[{index}]")) for index, value in enumerate(values))


def _value(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(
            f"A value must be a string, not {kind_of(value)}.",
            path=where,
            hint="Numbers and booleans of an entry are compared with their JSON text.",
        )
    return value


def check_path(path: str, where: str) -> None:
    root, *rest = path.split(".")
    if root not in _FIELDS:
        raise UnsupportedFilter(
            f"{root[:64]!r} is not a field of an entry.", path=where, hint=f"Use one of {', '.join(_FIELDS)}."
        )
    if len(path) > limits.ARD_PATH_CHARS or len(rest) >= limits.ARD_PATH_DEPTH:
        raise InvalidRequest(
            f"A path must have at most {limits.ARD_PATH_CHARS} characters and {limits.ARD_PATH_DEPTH} parts.",
            path=where,
        )


def values_at(entry: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the values of an entry at a path, as normalized strings; several if the path meets an array."""
    for value in _follow(entry, path):
        text = value_text(value)
        if text is not None:
            yield _normalize(path, text)


def value_text(value: object) -> str | None:
    """Return a scalar value of an entry as a string; None for other values."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return None


def _normalize(path: str, text: str) -> str:
    """Normalize for comparison (P-12): publishers and tags ignore case, media types have no parameters."""
    if path == "type":
        return bare_type(text)
    if path == "tags":
        return text.casefold()
    return text.lower() if path == _PUBLISHER else text


def _follow(value: object, path: str) -> Iterator[object]:
    """Follow a path. The longest matching key has precedence: keys may contain dots (`metadata.org.x.y`)."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _follow(item, path)
    elif not path:
        yield value
    elif isinstance(value, Mapping):
        head = path
        while head:
            if head in value:
                yield from _follow(value[head], path[len(head) + 1 :])
                return
            head = head.rpartition(".")[0]


# --- Lists: the grammars of `filter` (P-20) and `orderBy` (P-21) ----------------------------------
#
#     type = 'application/mcp-server-card+json' AND createdAfter > '2026-01-01'

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
    """The attributes of an entry that lists filter and sort by."""

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
        texts = [_folded(self.field, text) for text in _texts(entry, self.field)]
        if self.op == ":":
            return any(value in text for value in self.values for text in texts)
        if self.op == "=":
            return any(text in self.values for text in texts)
        compare = _COMPARISONS[self.op]
        return any(compare(text, value) for value in self.values for text in texts)


class SortKey(NamedTuple):
    attribute: str
    descending: bool


def parse_filter(text: str | None) -> tuple[FilterClause, ...]:
    if text is None or not text.strip():
        return ()
    if len(text) > limits.ARD_LIST_FILTER_CHARS:
        raise InvalidParameter(
            f"The filter must have at most {limits.ARD_LIST_FILTER_CHARS} characters.", path="filter"
        )
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


def _token(pattern: re.Pattern[str], text: str, at: int, expected: str) -> re.Match[str]:
    match = pattern.match(text, at)
    if match is None:
        raise _syntax_error(text, at, expected)
    return match


def _unquoted(value: re.Match[str]) -> str:
    single, double, bare = value.groups()
    if single is not None:
        return str(single).replace("''", "'")
    return str(double).replace('""', '"') if double is not None else str(bare)


def _syntax_error(text: str, at: int, expected: str) -> InvalidParameter:
    column = at + len(text[at:]) - len(text[at:].lstrip()) + 1
    return InvalidParameter(
        f"Syntax error in the filter at column {column}: expected {expected}.",
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
            f"{value[:40]!r} is not a time.", path="filter", hint="Write 2026-01-31 or 2026-01-31T12:00:00Z."
        )
    return instant


def _check(field: str, op: str, column: int) -> None:
    if field not in _TEXTS:
        known = ", ".join((*_TEXTS, *_SINCE))
        raise InvalidParameter(
            f"{field[:40]!r} (column {column}) is not a filter field.", path="filter", hint=f"Use {known}."
        )
    allowed = ["=", *([":"] if field in _CONTAINED else []), *(_COMPARISONS if field in _COMPARED else [])]
    if op not in allowed:
        raise InvalidParameter(f"{field} takes {' '.join(allowed)}, not {op} (column {column}).", path="filter")


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
        return bare_type(text)
    return text.casefold() if field in _FOLDED else text


# --- Order ----------------------------------------------------------------------------------------


def parse_order_by(text: str | None) -> tuple[SortKey, ...]:
    """Parse `orderBy`; the identifier is always the last sort key."""
    parts = [part.split() for part in (text or "").split(",")] if text and text.strip() else []
    if len(parts) > limits.ARD_ORDER_FIELDS:
        raise InvalidParameter(f"orderBy must have at most {limits.ARD_ORDER_FIELDS} fields.", path="orderBy")
    orders = [_order(part) for part in parts]
    return (*orders, SortKey("identifier", descending=False))


def _order(part: Sequence[str]) -> SortKey:
    if not 1 <= len(part) <= 2 or part[0] not in _ORDERS:
        raise InvalidParameter(
            f"{' '.join(part)[:40]!r} is not a sort field.",
            path="orderBy",
            hint=f"Use {', '.join(_ORDERS)}, each with ASC or DESC.",
        )
    direction = part[1].upper() if len(part) == 2 else "ASC"
    if direction not in ("ASC", "DESC"):
        raise InvalidParameter(f"{part[1][:40]!r} is not a sort direction.", path="orderBy", hint="Use ASC or DESC.")
    return SortKey(_ORDERS[part[0]], direction == "DESC")


def sort_entries(
    entries: list[tuple[str, ListableEntry]], orders: Sequence[SortKey]
) -> list[tuple[str, ListableEntry]]:
    """Sort by the last key first: the sort is stable."""
    for order in reversed(orders):
        entries.sort(key=lambda item: _key(item[1], order.attribute), reverse=order.descending)
    return entries


def _key(entry: ListableEntry, attribute: str) -> str | float:
    value: str | float = getattr(entry, attribute)
    return value.casefold() if attribute == "display_name" and isinstance(value, str) else value
