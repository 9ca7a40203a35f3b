"""Files that answers are read from, brought into the system's cache: after a start nobody should wait for a disk.

It asks the system for it and knows nothing of what is in them. What is larger than a share of the memory is left to be read by
whoever needs it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_AT_ONCE = 8 << 20  # bytes; between two of these others have their turn
_SHARE = 4  # of the memory, all files together
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def read_ahead(paths: Iterable[Path]) -> int:
    """Ask for these files, in their order, as far as there is room; how many bytes were asked for. What is not there, or
    cannot be asked for, is passed over: nothing depends on it."""
    room = _memory_bytes() // _SHARE
    asked = 0
    for path in paths:
        try:
            size = path.stat().st_size
            if asked + size <= room:
                asked += _ask_for(path, size)
        except OSError:
            continue
    return asked


def _ask_for(path: Path, size: int) -> int:
    if not hasattr(os, "posix_fadvise"):
        return 0
    file = os.open(path, os.O_RDONLY)
    try:
        for start in range(0, size, _AT_ONCE):
            os.posix_fadvise(file, start, _AT_ONCE, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(file)
    return size


def _memory_bytes() -> int:
    """Of the machine, or of the container, where that has a limit of its own."""
    try:
        installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0
    return min([installed, *(found for found in map(_limit_in, _LIMITS) if found is not None)])


def _limit_in(path: Path) -> int | None:
    try:
        told = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return int(told) if told.isdigit() else None  # `max`: none
