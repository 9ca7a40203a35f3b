"""A toy store, added the way a new one would be: this module, and one row in the table of stores.

It keeps everything in memory and writes it to a file when it is closed. `python -m support.toy_store …` is the command `waypost`
with that row.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from waypost.registry.memory_key_value import MemoryKeyValueStore
from waypost.registry.ports import CommittedChange, NoteListener
from waypost.settings.service import STORES, StoreKind
from waypost.stores.memory import MemoryStore

ROW: Final = StoreKind(module="support.toy_store", doc="a toy, written when it is closed", is_durable=True)


class ToyStore(MemoryStore):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._file = folder / "toy.pickle"

    async def open(
        self, listener: Callable[[Sequence[CommittedChange]], None], noted: NoteListener | None = None
    ) -> None:
        _load(self, self._file)
        await super().open(listener, noted)

    async def close(self) -> None:
        await super().close()
        _save(self, self._file, "_noted", "_file")


class ToyKeyValueStore(MemoryKeyValueStore):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._file = folder / "toy-items.pickle"

    async def open(self) -> None:
        _load(self, self._file)
        await super().open()

    async def close(self) -> None:
        await super().close()
        _save(self, self._file, "_file")


def _load(store: Any, file: Path) -> None:
    if file.exists():
        vars(store).update(pickle.loads(file.read_bytes()))


def _save(store: Any, file: Path, *without: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(pickle.dumps({name: value for name, value in vars(store).items() if name not in without}))


def make_store(folder: Path, *, read_only: bool = False) -> ToyStore:
    assert not read_only, "several processes cannot share a toy"
    return ToyStore(folder)


def make_key_value_store(folder: Path) -> ToyKeyValueStore:
    return ToyKeyValueStore(folder)


if __name__ == "__main__":
    STORES["toy"] = ROW
    from waypost.cli.main import run  # settings read the table when they are imported

    run()
