"""Files of the index: arrays in a checked, memory-mapped file, and a folder of segment files with a manifest.

An array file is a JSON header (name, type, shape and offset of each array) and the arrays, aligned to 64 bytes. It is written
once, checked when opened, and shared by all processes. Its checksum is stored by the owner of the file list. It is a weighted
sum of words, because it must read gigabytes quickly: it detects damage, not forgery.

The manifest is replaced atomically, so a reader in another process sees one state or the next. A file that a crash truncated is
not in any manifest.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

Scalar = TypeVar("Scalar", bound=np.generic)


def sorted_unique(values: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """As `np.unique`, which would load masked arrays first: 30 ms of the first query."""
    ordered = np.sort(values)
    return ordered[_is_first(ordered)]


def sorted_unique_counts(values: npt.NDArray[Scalar]) -> tuple[npt.NDArray[Scalar], npt.NDArray[np.intp]]:
    """The same, with the count of each value."""
    ordered = np.sort(values)
    places = _is_first(ordered).nonzero()[0]
    return ordered[places], np.diff(np.append(places, len(ordered)))


def _is_first(ordered: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    first = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return first


# --- Array files ---

Array = npt.NDArray[Any]

_MAGIC: Final = b"waypost arrays 1\n"

_ALIGNMENT: Final = 64

_BLOCK_BYTES: Final = 1 << 20

_WORD: Final = 8


class DamagedFile(Exception):
    """A file is missing, truncated or changed."""


class _ArrayInfo(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    offset: int


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> int:
    """Write a new file atomically; return its checksum."""
    places, contents, end = {}, [], 0
    for name, array in arrays.items():
        flat = np.ascontiguousarray(array)
        places[name] = _ArrayInfo(flat.dtype.str, flat.shape, end)
        contents.append(flat)
        end += _padded(flat.nbytes)
    header = _MAGIC + msgspec.json.encode(places)
    temporary = path.with_name(path.name + ".new")
    with temporary.open("wb") as file:
        file.write(len(header).to_bytes(_WORD, "little"))
        file.write(header.ljust(_padded(len(header) + _WORD) - _WORD))
        for flat in contents:
            file.write(flat.data if flat.nbytes else b"")
            file.write(bytes(_padded(flat.nbytes) - flat.nbytes))
    checksum = _checksum(temporary)
    temporary.replace(path)
    return checksum


def read_arrays(path: Path, checksum: int) -> dict[str, Array]:
    """Map the arrays of a file, read-only. Raises DamagedFile."""
    try:
        if _checksum(path) != checksum:
            raise DamagedFile(f"{path.name} has a wrong checksum.")
        whole: Array = np.memmap(path, dtype=np.uint8, mode="r")
        length = int.from_bytes(whole[:_WORD].tobytes(), "little")
        header = whole[_WORD : _WORD + length].tobytes()
        if not header.startswith(_MAGIC):
            raise DamagedFile(f"{path.name} is not an array file.")
        places = msgspec.json.decode(header[len(_MAGIC) :], type=dict[str, _ArrayInfo])
        first = _padded(length + _WORD)
        return {name: _mapped(whole, place, first) for name, place in places.items()}
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise DamagedFile(f"{path.name} cannot be read: {error}") from error


def _mapped(whole: Array, place: _ArrayInfo, first: int) -> Array:
    dtype = np.dtype(place.dtype)
    start = first + place.offset
    size = int(np.prod(place.shape, dtype=np.int64)) * dtype.itemsize
    # A plain array over the mapping: slices of a memmap cost three times as much.
    return np.frombuffer(whole[start : start + size].data, dtype=dtype).reshape(place.shape)


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _checksum(path: Path) -> int:
    """By plain reads: mapped pages would count as memory of this process."""
    total = np.uint64(0)
    buffer = np.empty(_BLOCK_BYTES // _WORD, dtype=np.uint64)
    with path.open("rb", buffering=0) as file, np.errstate(over="ignore"):
        number = 1
        while read := file.readinto(buffer.data.cast("B")):
            words = buffer[: -(-read // _WORD)]
            if read % _WORD:
                buffer.data.cast("B")[read : len(words) * _WORD] = bytes(len(words) * _WORD - read)
            total += words.sum(dtype=np.uint64) * np.uint64(2 * number + 1) + np.uint64(read)
            number += 1
    return int(total)


# --- Segment files ---

Arrays = dict[str, npt.NDArray[Any]]

_MANIFEST: Final = "index.json"


class SegmentFile(msgspec.Struct, frozen=True):
    name: str
    checksum: int


class SavedSegment(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one segment."""

    rows: SegmentFile
    dead: SegmentFile | None = None
    blocks: dict[str, list[SegmentFile]] = {}  # by space

    @property
    def files(self) -> list[SegmentFile]:
        every = [self.rows, *(file for files in self.blocks.values() for file in files)]
        return [*every, self.dead] if self.dead else every


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: str  # versions of the file contents; on any difference the index is rebuilt
    revision: int
    segments: tuple[SavedSegment, ...]


class SegmentDirectory:
    """The files of the index. Without a folder nothing is stored."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    @property
    def is_persistent(self) -> bool:
        return self._folder is not None

    def manifest(self) -> Manifest | None:
        if self._folder is None:
            return None
        try:
            return msgspec.json.decode((self._folder / _MANIFEST).read_bytes(), type=Manifest)
        except (OSError, msgspec.MsgspecError):
            return None

    def read(self, file: SegmentFile) -> Arrays:
        """Raises DamagedFile."""
        if self._folder is None:
            raise DamagedFile(f"{file.name} was not stored.")
        return read_arrays(self._folder / file.name, file.checksum)

    def write(self, kind: str, arrays: Mapping[str, npt.NDArray[Any]]) -> SegmentFile:
        if self._folder is None:
            return SegmentFile("", 0)
        name = f"{secrets.token_hex(8)}.{kind}"
        return SegmentFile(name, write_arrays(self._folder / name, arrays))

    def commit(self, manifest: Manifest) -> None:
        """Replace the manifest, and remove files that it does not name."""
        if self._folder is None:
            return
        temporary = self._folder / f"{_MANIFEST}.new"
        temporary.write_bytes(msgspec.json.encode(manifest))
        temporary.replace(self._folder / _MANIFEST)
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
        """Remove other files. A process that still maps one keeps its content."""
        wanted = {_MANIFEST, *names}
        for path in self._folder.iterdir() if self._folder else ():
            if path.name not in wanted and path.is_file():
                path.unlink(missing_ok=True)
