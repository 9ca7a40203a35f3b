"""Files of the index: arrays in a checked, memory-mapped file, and a folder of segment files with a manifest.

An array file is a JSON header (name, type, shape and offset of each array), the arrays, aligned to 64 bytes, and a BLAKE2b
digest of each block of 1 MiB. The number of a block is part of its digest, so that moved and swapped blocks are detected like
flipped bits. The digest of all these digests is stored by the owner of the file list. A file is written once, checked when
opened, and shared by all processes.

The manifest is replaced atomically, so a reader in another process sees one state or the next. It ends with its own digest. A
file that a crash truncated is not in any manifest. All files are private (mode 0600): they contain the ids of private agents.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from waypost.files import make_folder, open_private

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


def is_member(values: npt.NDArray[Scalar], ordered: npt.NDArray[Scalar]) -> npt.NDArray[np.bool_]:
    """Which of the values are among sorted ones, by binary search."""
    if not len(ordered):
        return np.zeros(len(values), dtype=np.bool_)
    found: npt.NDArray[np.bool_] = ordered.take(ordered.searchsorted(values), mode="clip") == values
    return found


def _is_first(ordered: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    first = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return first


# --- Array files ---

Array = npt.NDArray[Any]

_MAGIC: Final = b"waypost arrays 2\n"
_ALIGNMENT: Final = 64
_BLOCK_BYTES: Final = 1 << 20
_WORD: Final = 8
_DIGEST_BYTES: Final = 16
_HASH_THREADS: Final = 2  # BLAKE2b reads about 0.9 GB/s on one core; hashlib releases the lock of the interpreter
_PARALLEL_FROM: Final = 16  # blocks: a smaller file is hashed faster by one thread


class DamagedFile(Exception):
    """A file is missing, truncated or changed."""


class _ArrayInfo(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    offset: int


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> str:
    """Write a new file atomically; return its digest."""
    places, contents, end = {}, [], 0
    for name, array in arrays.items():
        flat = np.ascontiguousarray(array)
        places[name] = _ArrayInfo(flat.dtype.str, flat.shape, end)
        contents.append(flat)
        end += _padded(flat.nbytes)
    header = _MAGIC + msgspec.json.encode(places)
    temporary = path.with_name(path.name + ".new")
    with open_private(temporary) as file:
        file.write(len(header).to_bytes(_WORD, "little"))
        file.write(header.ljust(_padded(len(header) + _WORD) - _WORD))
        for flat in contents:
            file.write(flat.data if flat.nbytes else b"")
            file.write(bytes(_padded(flat.nbytes) - flat.nbytes))
        file.flush()
        digests = b"".join(_hash_blocks(temporary, file.tell()))
        file.write(digests)
    temporary.replace(path)
    return _digest(digests)


def read_arrays(path: Path, digest: str) -> dict[str, Array]:
    """Map the arrays of a file, read-only. Raises DamagedFile, which names the first damaged block."""
    try:
        _check_blocks(path, digest)
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


def _check_blocks(path: Path, digest: str) -> None:
    size = path.stat().st_size
    count = -(-size // (_BLOCK_BYTES + _DIGEST_BYTES))
    end = size - count * _DIGEST_BYTES
    with path.open("rb") as file:
        file.seek(max(0, end))
        digests = file.read()
    if not size or _digest(digests) != digest:
        raise DamagedFile(f"{path.name}: the digests at its end do not match the manifest; it is damaged or truncated.")
    for number, found in enumerate(_hash_blocks(path, end)):
        if found != digests[number * _DIGEST_BYTES :][:_DIGEST_BYTES]:
            start = number * _BLOCK_BYTES
            raise DamagedFile(
                f"{path.name}: the block of bytes {start} to {min(start + _BLOCK_BYTES, end)} is damaged."
            )


def _hash_blocks(path: Path, end: int) -> list[bytes]:
    """The digest of each block of the first `end` bytes. By plain reads: mapped pages would count as memory of this process."""
    starts = range(0, end, _BLOCK_BYTES)

    def hash_block(start: int) -> bytes:
        with path.open("rb", buffering=0) as file:
            file.seek(start)
            block = file.read(min(_BLOCK_BYTES, end - start))
        salt = (start // _BLOCK_BYTES).to_bytes(hashlib.blake2b.SALT_SIZE, "little")
        return hashlib.blake2b(block, digest_size=_DIGEST_BYTES, salt=salt).digest()

    if len(starts) < _PARALLEL_FROM:
        return list(map(hash_block, starts))
    with ThreadPoolExecutor(_HASH_THREADS, thread_name_prefix="waypost-hash") as threads:
        return list(threads.map(hash_block, starts))


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()


def _mapped(whole: Array, place: _ArrayInfo, first: int) -> Array:
    dtype = np.dtype(place.dtype)
    start = first + place.offset
    size = int(np.prod(place.shape, dtype=np.int64)) * dtype.itemsize
    # A plain array over the mapping: slices of a memmap cost three times as much.
    return np.frombuffer(whole[start : start + size].data, dtype=dtype).reshape(place.shape)


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


# --- Segment files ---

Arrays = dict[str, npt.NDArray[Any]]

_MANIFEST: Final = "index.json"


class SegmentFile(msgspec.Struct, frozen=True):
    name: str
    digest: str


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
        """None if there is none, or a damaged one."""
        try:
            return self.read_manifest()
        except DamagedFile:
            return None

    def read_manifest(self) -> Manifest | None:
        """None if there is none. Raises DamagedFile."""
        if self._folder is None:
            return None
        try:
            content, _, digest = (self._folder / _MANIFEST).read_bytes().partition(b"\n")
            if _digest(content).encode() != digest.rstrip(b"\n"):
                raise DamagedFile(f"{_MANIFEST} does not match the digest in its last line.")
            return msgspec.json.decode(content, type=Manifest)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise DamagedFile(f"{_MANIFEST} cannot be read: {error}") from error

    def read(self, file: SegmentFile) -> Arrays:
        """Raises DamagedFile."""
        if self._folder is None:
            raise DamagedFile(f"{file.name} was not stored.")
        return read_arrays(self._folder / file.name, file.digest)

    def write(self, kind: str, arrays: Mapping[str, npt.NDArray[Any]]) -> SegmentFile:
        if self._folder is None:
            return SegmentFile("", "")
        name = f"{secrets.token_hex(8)}.{kind}"
        return SegmentFile(name, write_arrays(self._folder / name, arrays))

    def commit(self, manifest: Manifest) -> None:
        """Replace the manifest, and remove files that it does not name."""
        if self._folder is None:
            return
        temporary = self._folder / f"{_MANIFEST}.new"
        content = msgspec.json.encode(manifest)
        with open_private(temporary) as file:
            file.write(b"%s\n%s\n" % (content, _digest(content).encode()))
        temporary.replace(self._folder / _MANIFEST)
        self._sweep(file.name for saved in manifest.segments for file in saved.files)

    def clear(self) -> None:
        if self._folder is None:
            return
        if self._folder.exists() and not self._folder.is_dir():
            self._folder.unlink()
        make_folder(self._folder)
        (self._folder / _MANIFEST).unlink(missing_ok=True)
        self._sweep(())

    def _sweep(self, names: Iterable[str]) -> None:
        """Remove other files. A process that still maps one keeps its content."""
        wanted = {_MANIFEST, *names}
        for path in self._folder.iterdir() if self._folder else ():
            if path.name not in wanted and path.is_file():
                path.unlink(missing_ok=True)
