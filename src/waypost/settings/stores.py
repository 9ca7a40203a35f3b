"""The stores that a service can keep its records in. A new store is a module and one row here."""

from __future__ import annotations

from typing import Final

import msgspec


class StoreKind(msgspec.Struct, frozen=True, kw_only=True):
    """`module` has the functions of `waypost.stores.StoreBackend`. It is named, not imported: settings come before stores."""

    module: str
    doc: str
    is_durable: bool  # records outlive the process, and several processes can share them


STORES: Final[dict[str, StoreKind]] = {
    "sqlite": StoreKind(module="waypost.stores.sqlite", doc="durable, in the data folder", is_durable=True),
    "memory": StoreKind(module="waypost.stores.memory", doc="lost when the service stops", is_durable=False),
}
