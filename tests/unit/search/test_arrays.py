"""Arrays in a file are read back unchanged, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from waypost.search.index.storage import DamagedFile, read_arrays, write_arrays

ARRAYS = {
    "numbers": np.arange(1000, dtype=np.uint32),
    "nothing": np.zeros(0, dtype=np.float32),
    "table": np.arange(60, dtype=np.int8).reshape(12, 5),
    "odd": np.array([True, False, True]),
}


def test_arrays_come_back_equal_and_read_only(tmp_path: Path) -> None:
    digest = write_arrays(tmp_path / "file", ARRAYS)
    found = read_arrays(tmp_path / "file", digest)
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)
    with pytest.raises(ValueError, match="read-only"):
        found["numbers"][0] = 7


def test_any_flipped_bit_is_found(tmp_path: Path) -> None:
    path = tmp_path / "file"
    digest = write_arrays(path, ARRAYS)
    whole = path.read_bytes()
    for at in range(0, len(whole), 37):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        with pytest.raises(DamagedFile):
            read_arrays(path, digest)


@pytest.mark.parametrize("length", [0, 5, 100, -1])
def test_a_file_cut_short_is_found(tmp_path: Path, length: int) -> None:
    path = tmp_path / "file"
    digest = write_arrays(path, ARRAYS)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(DamagedFile):
        read_arrays(path, digest)


def test_blocks_that_changed_places_are_found(tmp_path: Path) -> None:
    path = tmp_path / "file"
    digest = write_arrays(path, {"long": np.arange(1 << 19, dtype=np.uint64)})
    whole, block = path.read_bytes(), 1 << 20
    path.write_bytes(whole[:block] + whole[2 * block : 3 * block] + whole[block : 2 * block] + whole[3 * block :])
    with pytest.raises(DamagedFile):
        read_arrays(path, digest)


@pytest.mark.parametrize("sector", [512, 4096])
def test_swapped_sectors_are_found_and_named(tmp_path: Path, sector: int) -> None:
    path = tmp_path / "file"
    digest = write_arrays(path, {"long": np.arange(1 << 19, dtype=np.uint64)})
    whole = bytearray(path.read_bytes())
    one, other = (1 << 20) + sector, (1 << 20) + 5 * sector
    whole[one : one + sector], whole[other : other + sector] = (
        whole[other : other + sector],
        whole[one : one + sector],
    )
    path.write_bytes(whole)
    with pytest.raises(DamagedFile, match="the block of bytes 1048576 to 2097152 is damaged"):
        read_arrays(path, digest)


def test_a_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_arrays(tmp_path / "file", ARRAYS)
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_a_missing_file_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(DamagedFile, match="cannot be read"):
        read_arrays(tmp_path / "none", "1")
