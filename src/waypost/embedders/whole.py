"""Weights of the network as whole numbers, and the layers that are made of them.

Sums of products of whole numbers are the same in any order, so that a kernel may add them up as quickly as it can and give,
digit for digit, what its twin gives. A column of weights has one step: as fine as 16 bits allow, and as its sums fit into
32 bits whatever comes in. What comes in has one step for each text or row (`MOST` of them up to its largest number); the
pieces' own numbers are whole already. Against the weights as they are, vectors turn by a cosine above 0.99999.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from waypost.embedders.copies import Arrays
from waypost.embedders.package import Model

F32 = npt.NDArray[np.float32]

VERSION: Final = 2  # of what `layers_of` makes
BRANCHES: Final = ((2, 0), (3, 1), (5, 2))  # how many pieces a convolution sees, and how many of them to the left
CHANNELS: Final = 256
HIDDEN: Final = len(BRANCHES) * CHANNELS
FIRST: Final = sum(width for width, _ in BRANCHES) * CHANNELS  # numbers of a row that the first convolution adds up
ROW: Final = FIRST + HIDDEN
MOST: Final = 4095  # what a number that comes in becomes at most
ROW_MOST: Final = 2**15 - 1  # the same of what is kept of a piece
BYTE: Final = 255
PANEL: Final = 16  # columns whose numbers stand side by side

# The hyperbolic tangent as a quotient of two polynomials in x², the highest power first: only sums and products, so that it
# has the same digits everywhere. The last number is the x beyond which it is one.
_TANH_OVER: Final = (
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
    1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03, 7.90531110763549805,
)  # fmt: skip
_TANH_UNDER: Final = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)

_SUM: Final = 2**31 - 1
_WEIGHT: Final = 2**15 - 1


class Whole(NamedTuple):
    """A matrix [columns, rows], each column's numbers side by side, and what one step of each column is worth."""

    numbers: npt.NDArray[np.int16]
    steps: F32


def layers_of(model: Model, projection: F32 | None) -> Arrays:
    """All that a pass needs beside the table of pieces. Layers that follow each other without a bend are one product."""
    weights = model.weights
    dense = np.concatenate([weights["d0"], weights["p1"]], 1)
    project = whole(_joined(model, "proj", 1), BYTE)
    layers = {"project": project}
    for width, _ in BRANCHES:
        layers[f"first{width}"] = whole(_side_by_side(weights[f"w1_{width}"], width))
        layers[f"second{width}"] = whole(weights[f"w2_{width}"])
    out = (weights["ln_g"][:, None] * weights["cnn_W"]) @ dense
    reach = np.maximum(np.sqrt(np.square(out).sum(1)), np.finfo(np.float32).tiny)
    layers["out"] = whole(
        out / reach[:, None]
    )  # so that a step of any number that comes in is worth as much as another's
    layers["d1"] = whole(weights["d1"])
    layers["d2"] = whole(np.concatenate([weights["d2"], weights["p3"]], 1))
    layers["d3"] = whole(weights["d3"])
    if projection is not None:
        layers["carry"] = whole(projection)
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
        "most": np.array([MOST, ROW_MOST], np.float32),
        "tanh.over": np.array(_TANH_OVER, np.float32),
        "tanh.under": np.array(_TANH_UNDER, np.float32),
        "epsilon": np.asarray(weights["eps"], np.float32).reshape(1),
    }
    for name, layer in layers.items():
        made |= {f"{name}.numbers": packed(layer.numbers), f"{name}.steps": layer.steps}
    return made


def packed(numbers: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
    """In the order in which a kernel reads them: of sixteen columns two numbers each, then the next two."""
    columns, rows = numbers.shape
    return np.ascontiguousarray(numbers.reshape(columns // PANEL, PANEL, rows // 2, 2).transpose(0, 2, 1, 3))


def layer(arrays: Arrays, name: str) -> Whole:
    found = arrays[f"{name}.numbers"]
    numbers = found.transpose(0, 2, 1, 3).reshape(len(found) * PANEL, -1)
    return Whole(numbers, arrays[f"{name}.steps"])


def whole(weights: F32, most: int = MOST) -> Whole:
    """Of weights [rows, columns], for numbers that come in as `most` at most."""
    columns = np.ascontiguousarray(weights.T, np.float32)
    sizes = np.abs(columns)
    room = _SUM // most - len(weights)  # rounding adds less than one for each row
    steps = np.maximum(sizes.sum(1, dtype=np.float64) / room, sizes.max(1) / _WEIGHT)
    steps = np.maximum(steps, np.finfo(np.float32).tiny).astype(np.float32)
    return Whole(np.rint(columns / steps[:, None]).astype(np.int16), steps)


def _joined(model: Model, name: str, axis: int = 0) -> F32:
    return np.concatenate([model.weights[f"{name}{width}"] for width, _ in BRANCHES], axis)


def _side_by_side(weights: F32, width: int) -> F32:
    """The products of all places of a convolution at once: 256 × (width · 256)."""
    places = weights.reshape(width, CHANNELS, CHANNELS).transpose(1, 0, 2)
    return np.ascontiguousarray(places.reshape(CHANNELS, width * CHANNELS))
