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

VERSION: Final = 1  # of what `layers_of` makes
BRANCHES: Final = ((2, 0), (3, 1), (5, 2))  # how many pieces a convolution sees, and how many of them to the left
CHANNELS: Final = 256
HIDDEN: Final = len(BRANCHES) * CHANNELS
FIRST: Final = sum(width for width, _ in BRANCHES) * CHANNELS  # numbers of a row that the first convolution adds up
ROW: Final = FIRST + HIDDEN
MOST: Final = 4095  # what a number that comes in becomes at most
BYTE: Final = 255

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
        "most": np.array([MOST], np.float32),
        "epsilon": np.asarray(weights["eps"], np.float32).reshape(1),
    }
    for name, layer in layers.items():
        made |= {f"{name}.numbers": layer.numbers, f"{name}.steps": layer.steps}
    return made


def layer(arrays: Arrays, name: str) -> Whole:
    return Whole(arrays[f"{name}.numbers"], arrays[f"{name}.steps"])


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
