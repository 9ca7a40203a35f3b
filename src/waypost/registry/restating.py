"""Entries that an earlier release wrote do not tell what their agents state: it is read from the records, after a start."""

from __future__ import annotations

from waypost.registry.catalogue import Catalogue
from waypost.registry.entries import entry_of
from waypost.registry.ports import Store


async def restate(catalogue: Catalogue, store: Store) -> None:
    """Until it is done such agents count as silent. An entry tells by itself from its next change on."""
    ids = catalogue.take_unstated()
    if ids:
        async for page in store.scan(ids):
            for registration in page:
                catalogue.restate(entry_of(registration))
