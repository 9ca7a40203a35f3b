"""Arrays in a file: written once, checked when opened, then mapped into memory and shared by every process that opens it.

A file is a JSON header (name, type, shape and place of each array) and the arrays behind it, each on a border of 64 bytes.
The checksum is not part of the file: whoever keeps the list of files keeps it. It is a sum of words, block by block with the
block's number as a factor, because it must read gigabytes in a blink; it finds damage, it does not prove an author.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_MAGIC: Final = b"waypost arrays 1\n"
_BORDER: Final = 64
_BLOCK_BYTES: Final = 1 << 20
_WORD: Final = 8


class Damaged(Exception):
    """A file is missing, cut short, or not what was written."""


class _Place(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    offset: int


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> int:
    """Write a new file; returns its checksum. The name is taken only when all is written."""
    places, contents, end = {}, [], 0
    for name, array in arrays.items():
        flat = np.ascontiguousarray(array)
        places[name] = _Place(flat.dtype.str, flat.shape, end)
        contents.append(flat)
        end += _padded(flat.nbytes)
    header = _MAGIC + msgspec.json.encode(places)
    beside = path.with_name(path.name + ".new")
    with beside.open("wb") as file:
        file.write(len(header).to_bytes(_WORD, "little"))
        file.write(header.ljust(_padded(len(header) + _WORD) - _WORD))
        for flat in contents:
            file.write(flat.data if flat.nbytes else b"")
            file.write(bytes(_padded(flat.nbytes) - flat.nbytes))
    checksum = _checksum(beside)
    beside.replace(path)
    return checksum


def read_arrays(path: Path, checksum: int) -> dict[str, Array]:
    """Map the arrays of a file, read-only. Raises Damaged."""
    try:
        if _checksum(path) != checksum:
            raise Damaged(f"{path.name} is not what was written.")
        whole: Array = np.memmap(path, dtype=np.uint8, mode="r")
        length = int.from_bytes(whole[:_WORD].tobytes(), "little")
        header = whole[_WORD : _WORD + length].tobytes()
        if not header.startswith(_MAGIC):
            raise Damaged(f"{path.name} is of another kind.")
        places = msgspec.json.decode(header[len(_MAGIC) :], type=dict[str, _Place])
        first = _padded(length + _WORD)
        return {name: _mapped(whole, place, first) for name, place in places.items()}
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise Damaged(f"{path.name} cannot be read: {error}") from error


def _mapped(whole: Array, place: _Place, first: int) -> Array:
    dtype = np.dtype(place.dtype)
    start = first + place.offset
    size = int(np.prod(place.shape, dtype=np.int64)) * dtype.itemsize
    # A plain array over the mapping: a memmap's own slices cost three times as much.
    return np.frombuffer(whole[start : start + size].data, dtype=dtype).reshape(place.shape)


def _padded(size: int) -> int:
    return -(-size // _BORDER) * _BORDER


def _checksum(path: Path) -> int:
    """By plain reads: mapped pages that were only summed would count as memory of this process."""
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
