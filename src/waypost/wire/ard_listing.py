"""How an ARD list is narrowed and ordered (ard.md §7): the grammar of `filter` (P-20) and of `orderBy` (P-21).

type = 'application/mcp-server-card+json' AND createdAfter > '2026-01-01'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import ge, gt, le, lt
from typing import Final, NamedTuple, Protocol

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter
from waypost.model.times import find_instant

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


class Listed(Protocol):
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


class Clause(msgspec.Struct, frozen=True):
    field: str
    op: str
    values: tuple[str, ...]
    since: float = 0.0

    def matches(self, entry: Listed) -> bool:
        if self.field in _SINCE:
            return (entry.created_at if self.field == "createdAfter" else entry.updated_at) > self.since
        found = [_folded(self.field, text) for text in _texts(entry, self.field)]
        if self.op == ":":
            return any(value in text for value in self.values for text in found)
        if self.op == "=":
            return any(text in self.values for text in found)
        compare = _COMPARISONS[self.op]
        return any(compare(text, value) for value in self.values for text in found)


class Order(NamedTuple):
    attribute: str
    descending: bool


def parse_filter(text: str | None) -> tuple[Clause, ...]:
    if text is None or not text.strip():
        return ()
    if len(text) > limits.ARD_LIST_FILTER_CHARS:
        raise InvalidParameter(f"At most {limits.ARD_LIST_FILTER_CHARS} characters are read.", path="filter")
    return tuple(_clauses(text))


def _clauses(text: str) -> Iterator[Clause]:
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


def _clause(field: str, op: str, value: str, column: int) -> Clause:
    if field in _SINCE:
        return Clause(field, op, (), _since(field, op, value))
    _check(field, op, column)
    parts = (part.strip() for part in value.split(","))
    return Clause(field, op, tuple(_folded(field, part) for part in parts if part))


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


def _texts(entry: Listed, field: str) -> Iterable[str]:
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


def parse_order(text: str | None) -> tuple[Order, ...]:
    """Fields in order; the identifier always decides last."""
    parts = [part.split() for part in (text or "").split(",")] if text and text.strip() else []
    if len(parts) > limits.ARD_ORDER_FIELDS:
        raise InvalidParameter(f"At most {limits.ARD_ORDER_FIELDS} fields order a list.", path="orderBy")
    orders = [_order(part) for part in parts]
    return (*orders, Order("identifier", descending=False))


def _order(part: Sequence[str]) -> Order:
    if not 1 <= len(part) <= 2 or part[0] not in _ORDERS:
        raise InvalidParameter(
            f"A list cannot be ordered by {' '.join(part)[:40]!r}.",
            path="orderBy",
            hint=f"Use {', '.join(_ORDERS)}, each with ASC or DESC.",
        )
    direction = part[1].upper() if len(part) == 2 else "ASC"
    if direction not in ("ASC", "DESC"):
        raise InvalidParameter(f"{part[1][:40]!r} is no direction.", path="orderBy", hint="Use ASC or DESC.")
    return Order(_ORDERS[part[0]], direction == "DESC")


def ordered(entries: list[tuple[str, Listed]], orders: Sequence[Order]) -> list[tuple[str, Listed]]:
    """Sorted by the last field first: each pass keeps the order of those before it among equals."""
    for order in reversed(orders):
        entries.sort(key=lambda item: _key(item[1], order.attribute), reverse=order.descending)
    return entries


def _key(entry: Listed, attribute: str) -> str | float:
    value: str | float = getattr(entry, attribute)
    return value.casefold() if attribute == "display_name" and isinstance(value, str) else value
