"""Files are read into the page cache, as far as memory allows."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from pathlib import Path

from waypost.app.application import prefetch_files


def resident_pages(path: Path) -> int:
    """How many pages of a file the system holds."""
    size = path.stat().st_size
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size) as mapped:
        pages = -(-size // mmap.PAGESIZE)
        told = (ctypes.c_ubyte * pages)()
        place = (ctypes.c_char * size).from_buffer(mapped)
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            assert libc.mincore(ctypes.c_void_p(ctypes.addressof(place)), ctypes.c_size_t(size), told) == 0
        finally:
            del place
        return sum(flag & 1 for flag in told)


def test_prefetched_files_are_in_the_page_cache(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(64 * mmap.PAGESIZE))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert prefetch_files([path]) == 64 * mmap.PAGESIZE
    until = time.monotonic() + 20
    while resident_pages(path) < 64 and time.monotonic() < until:
        time.sleep(0)  # it is on its way
    assert resident_pages(path) == 64


def test_missing_files_and_folders_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert prefetch_files([tmp_path / "nowhere", tmp_path, path]) >= 100


def test_files_beyond_the_memory_limit_are_not_read_ahead(tmp_path: Path) -> None:
    vast, small = tmp_path / "vast", tmp_path / "small"
    with vast.open("wb") as file:
        file.truncate(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))  # a hole: it takes no room on the disk
    small.write_bytes(b"x" * 100)
    assert prefetch_files([vast, small]) == 100
