"""What was fitted once, to generic texts, and ships with the product: projections and landmarks of the two default spaces.

Made by `scripts/train_spaces.py`. Whoever changes a file here raises VERSION: vectors that were kept are then made anew.
"""

from __future__ import annotations

import io
from importlib.resources import files
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from waypost.search.vectors.quantizer import CoarseQuantizer

SPACES_VERSION: Final = 2
DIMS: Final = 256
NETWORK: Final = "network"
STATIC: Final = "static"


def load_quantizer(part: str) -> CoarseQuantizer:
    return CoarseQuantizer(_array(f"{part}.landmarks.npy"))


def load_projection(part: str) -> npt.NDArray[np.float32]:
    """Orthogonal directions [512, DIMS] that keep most of what tells texts apart, the longest ones shortened."""
    return np.asarray(_array(f"{part}.projection.npy"), np.float32)


def _array(name: str) -> npt.NDArray[Any]:
    return np.asarray(np.load(io.BytesIO((files(__package__) / "data" / name).read_bytes()), allow_pickle=False))
