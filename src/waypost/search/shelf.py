"""Where a living index is kept: a folder of segment files, and a manifest that says which of them are the index.

Files are written once under a name of their own; the manifest is replaced as a whole. So a reader in another process sees
one state or the next, and a file cut short by a crash is named by no manifest. What cannot be trusted is not opened.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy.typing as npt

from waypost.search.arrays import Damaged, read_arrays, write_arrays

Arrays = dict[str, npt.NDArray[Any]]

_MANIFEST: Final = "index.json"


class File(msgspec.Struct, frozen=True):
    name: str
    checksum: int


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """One segment on the shelf."""

    rows: File
    dead: File | None = None
    blocks: dict[str, list[File]] = {}  # by space

    @property
    def files(self) -> list[File]:
        every = [self.rows, *(file for files in self.blocks.values() for file in files)]
        return [*every, self.dead] if self.dead else every


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: str  # what the files were made with; any difference: they are made anew
    revision: int
    segments: tuple[Saved, ...]


class Shelf:
    """Without a folder nothing is kept, and nothing is found."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    @property
    def is_kept(self) -> bool:
        return self._folder is not None

    def manifest(self) -> Manifest | None:
        if self._folder is None:
            return None
        try:
            return msgspec.json.decode((self._folder / _MANIFEST).read_bytes(), type=Manifest)
        except (OSError, msgspec.MsgspecError):
            return None

    def read(self, file: File) -> Arrays:
        """Raises Damaged."""
        if self._folder is None:
            raise Damaged(f"{file.name} was never kept.")
        return read_arrays(self._folder / file.name, file.checksum)

    def write(self, kind: str, arrays: Mapping[str, npt.NDArray[Any]]) -> File:
        if self._folder is None:
            return File("", 0)
        name = f"{secrets.token_hex(8)}.{kind}"
        return File(name, write_arrays(self._folder / name, arrays))

    def keep(self, manifest: Manifest) -> None:
        """From now on this is the index; files that it does not name are removed."""
        if self._folder is None:
            return
        beside = self._folder / f"{_MANIFEST}.new"
        beside.write_bytes(msgspec.json.encode(manifest))
        beside.replace(self._folder / _MANIFEST)
        self._sweep(file.name for saved in manifest.segments for file in saved.files)

    def clear(self) -> None:
        if self._folder is None:
            return
        if self._folder.exists() and not self._folder.is_dir():
            self._folder.unlink()
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / _MANIFEST).unlink(missing_ok=True)
        self._sweep(())

    def _sweep(self, names: Iterable[str]) -> None:
        """Whoever still maps a file keeps it until it lets go."""
        kept = {_MANIFEST, *names}
        for path in self._folder.iterdir() if self._folder else ():
            if path.name not in kept and path.is_file():
                path.unlink(missing_ok=True)


def same_files(before: Sequence[Saved], after: Sequence[Saved]) -> bool:
    return [saved.files for saved in before] == [saved.files for saved in after]
