"""Arrays that are dear to make and cheap to keep: a copy in a folder, mapped into memory and shared by all processes.

A copy holds nothing that cannot be made again. Its name carries its checksum: one that is damaged is thrown away and made
anew, and where none can be written, a process does without.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from waypost.search.index.storage import Array, DamagedFile, read_arrays, write_arrays

Arrays = dict[str, Array]


def cached_arrays(folder: Path | None, kind: str, version: str, make: Callable[[], Arrays]) -> Arrays:
    """The copy of this kind and version; copies of another version are removed once there is a new one."""
    if folder is None:
        return make()
    found = _find_copy(folder, f"{kind}-{version}")
    if found is not None:
        return found
    made = make()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for older in folder.glob(f"{kind}-*.arrays"):
            older.unlink(missing_ok=True)
        return _write_copy(folder, f"{kind}-{version}", made)
    except (OSError, DamagedFile):
        return made


def _find_copy(folder: Path, stem: str) -> Arrays | None:
    for path in sorted(folder.glob(f"{stem}.*.arrays")):
        try:
            return read_arrays(path, int(path.name.split(".")[-2], 16))
        except (DamagedFile, ValueError):
            with contextlib.suppress(OSError):
                path.unlink()
    return None


def _write_copy(folder: Path, stem: str, arrays: Arrays) -> Arrays:
    """Several processes may be at it. Each writes the same, under a name of its own until it is whole."""
    fresh = folder / f".{uuid4().hex}"
    try:
        checksum = write_arrays(fresh, arrays)
        return read_arrays(fresh.replace(folder / f"{stem}.{checksum:016x}.arrays"), checksum)
    finally:
        for rest in folder.glob(f"{fresh.name}*"):
            rest.unlink()
