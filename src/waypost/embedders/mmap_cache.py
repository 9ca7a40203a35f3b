"""A cache of computed arrays in a folder, memory-mapped and shared by all processes.

The file name contains the checksum: a damaged file is removed and computed again. If no file can be written, the arrays stay in
memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from waypost.search.index.storage import Array, DamagedFile, read_arrays, write_arrays

Arrays = dict[str, Array]


def cached_arrays(folder: Path | None, kind: str, version: str, make: Callable[[], Arrays]) -> Arrays:
    """The cached arrays of this kind and version; `make` computes them. A new version replaces older ones."""
    if folder is None:
        return make()
    found = _find_cached(folder, f"{kind}-{version}")
    if found is not None:
        return found
    arrays = make()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for older in folder.glob(f"{kind}-*.arrays"):
            older.unlink(missing_ok=True)
        return _write_cached(folder, f"{kind}-{version}", arrays)
    except (OSError, DamagedFile):
        return arrays


def _find_cached(folder: Path, stem: str) -> Arrays | None:
    for path in sorted(folder.glob(f"{stem}.*.arrays")):
        try:
            return read_arrays(path, int(path.name.split(".")[-2], 16))
        except (DamagedFile, ValueError):
            with contextlib.suppress(OSError):
                path.unlink()
    return None


def _write_cached(folder: Path, stem: str, arrays: Arrays) -> Arrays:
    """Concurrent processes write the same content, under temporary names until it is complete."""
    temporary = folder / f".{uuid4().hex}"
    try:
        checksum = write_arrays(temporary, arrays)
        return read_arrays(temporary.replace(folder / f"{stem}.{checksum:016x}.arrays"), checksum)
    finally:
        for leftover in folder.glob(f"{temporary.name}*"):
            leftover.unlink()
