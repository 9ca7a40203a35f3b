"""Catalog entries by columns, as the store loads them at the start. An entry object is made when it is first read; what the
start needs of all agents at once is read from the columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import msgspec

from waypost.model.registration import CatalogEntry

FIELDS = msgspec.structs.fields(CatalogEntry)
AUDIENCE_FIELDS = ("owner", "visibility", "invitees")  # the arguments of `record_scopes`
_INDEXES = {field.name: index for index, field in enumerate(FIELDS)}


class EntryColumns(Sequence[CatalogEntry]):
    """One column for each field of an entry, in their order. `entries` are the entry objects, if they exist already."""

    def __init__(self, columns: Sequence[Sequence[Any]], entries: Sequence[CatalogEntry] | None = None) -> None:
        self._columns = columns
        self._entries = entries

    @classmethod
    def of(cls, entries: Sequence[CatalogEntry]) -> EntryColumns:
        if isinstance(entries, EntryColumns):
            return entries
        return cls(list(zip(*map(msgspec.structs.astuple, entries), strict=True)) or [()] * len(FIELDS), entries)

    @property
    def is_materialized(self) -> bool:
        return self._entries is not None

    def column(self, name: str) -> Sequence[Any]:
        return self._columns[_INDEXES[name]]

    def rows_with(self, name: str, *others: str) -> Iterator[tuple[Any, ...]]:
        """This column and others beside it, of the rows in which it is not None."""
        column = self.column(name)
        if column.count(None) == len(column):
            return iter(())
        rows = zip(column, *map(self.column, others), strict=True)
        return (row for row in rows if row[0] is not None)

    def __len__(self) -> int:
        return len(self._columns[0])

    @overload
    def __getitem__(self, row: int) -> CatalogEntry: ...

    @overload
    def __getitem__(self, row: slice) -> list[CatalogEntry]: ...

    def __getitem__(self, row: int | slice) -> CatalogEntry | list[CatalogEntry]:
        if self._entries is not None:
            return list(self._entries[row]) if isinstance(row, slice) else self._entries[row]
        if isinstance(row, slice):
            return list(map(CatalogEntry, *(column[row] for column in self._columns)))
        return CatalogEntry(*[column[row] for column in self._columns])

    def __iter__(self) -> Iterator[CatalogEntry]:
        return iter(self._entries) if self._entries is not None else map(CatalogEntry, *self._columns)


class LazyEntries(dict[str, Any]):
    """Entries by id. An int is the row of an entry that is not made yet."""

    def __init__(self, entries: dict[str, CatalogEntry], columns: EntryColumns) -> None:
        super().__init__(entries)
        self._columns = columns
        self.update(zip(columns.column("id"), range(len(columns)), strict=True))

    def __getitem__(self, agent_id: str) -> CatalogEntry:
        found = super().__getitem__(agent_id)
        return self._make(agent_id, found) if isinstance(found, int) else found

    def get(self, agent_id: str, default: Any = None) -> Any:
        found = super().get(agent_id, default)
        return self._make(agent_id, found) if isinstance(found, int) else found

    def pop(self, agent_id: str, *default: Any) -> Any:
        found = self.get(agent_id)
        return found if super().pop(agent_id, *default) is not None else None

    def fill(self, entries: Iterable[CatalogEntry]) -> None:
        """Take entries that were made elsewhere, except those that were read or changed meanwhile."""
        get = super().get
        self.update([(entry.id, entry) for entry in entries if isinstance(get(entry.id), int)])

    def _make(self, agent_id: str, row: int) -> CatalogEntry:
        entry = self[agent_id] = self._columns[row]
        return entry
