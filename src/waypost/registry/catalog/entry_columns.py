"""Entries as a start reads them: by columns. An entry is made when somebody first asks for it; what a start has to know of
all agents at once stands in the columns.

It knows nothing of where the columns come from, and changes nothing in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import msgspec

from waypost.model.registration import CatalogEntry

FIELDS = msgspec.structs.fields(CatalogEntry)
AUDIENCE_FIELDS = ("owner", "visibility", "invitees")  # what `record_scopes` asks for
_PLACES = {field.name: place for place, field in enumerate(FIELDS)}


class EntryColumns(Sequence[CatalogEntry]):
    """One column for each member of an entry, in their order. `made` are the entries themselves, where they are there."""

    def __init__(self, columns: Sequence[Sequence[Any]], made: Sequence[CatalogEntry] | None = None) -> None:
        self._columns = columns
        self._made = made

    @classmethod
    def of(cls, entries: Sequence[CatalogEntry]) -> EntryColumns:
        """The same entries by columns."""
        if isinstance(entries, EntryColumns):
            return entries
        return cls(list(zip(*map(msgspec.structs.astuple, entries), strict=True)) or [()] * len(FIELDS), entries)

    @property
    def is_materialized(self) -> bool:
        return self._made is not None

    def column(self, name: str) -> Sequence[Any]:
        return self._columns[_PLACES[name]]

    def stated(self, name: str, *others: str) -> Iterator[tuple[Any, ...]]:
        """That column and others beside it, of the rows where it says something: few, where it is asked like this."""
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
        if isinstance(row, slice):
            columns = [column[row] for column in self._columns] if self._made is None else []
            return list(self._made[row]) if self._made is not None else list(map(CatalogEntry, *columns))
        if self._made is not None:
            return self._made[row]
        return CatalogEntry(*[column[row] for column in self._columns])

    def __iter__(self) -> Iterator[CatalogEntry]:
        return iter(self._made) if self._made is not None else map(CatalogEntry, *self._columns)


class LazyEntries(dict[str, Any]):
    """Entries by id. The number of a row stands for one that is still to be made."""

    def __init__(self, held: dict[str, CatalogEntry], roll: EntryColumns) -> None:
        super().__init__(held)
        self._roll = roll
        self.update(zip(roll.column("id"), range(len(roll)), strict=True))

    def __getitem__(self, agent_id: str) -> CatalogEntry:
        found = super().__getitem__(agent_id)
        return self._made(agent_id, found) if isinstance(found, int) else found

    def get(self, agent_id: str, default: Any = None) -> Any:
        found = super().get(agent_id, default)
        return self._made(agent_id, found) if isinstance(found, int) else found

    def pop(self, agent_id: str, *default: Any) -> Any:
        found = self.get(agent_id)
        return found if super().pop(agent_id, *default) is not None else None

    def settle(self, entries: Iterable[CatalogEntry]) -> None:
        """Keep what was made elsewhere, where nobody has asked for it or changed it meanwhile."""
        held = super().get
        self.update([(entry.id, entry) for entry in entries if isinstance(held(entry.id), int)])

    def _made(self, agent_id: str, row: int) -> CatalogEntry:
        entry = self[agent_id] = self._roll[row]
        return entry
