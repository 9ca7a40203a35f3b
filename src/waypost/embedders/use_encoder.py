"""The network of the Universal Sentence Encoder, multilingual, version 3: pieces in, one unit vector for each text out.

    piece → 512 numbers → three branches, each layernorm(projection) to 256, then two residual ReLU convolutions over
    2, 3 and 5 pieces → beside the first 512 (1280) → layernorm → sum/√n → four dense layers → tanh → projection → unit length

What makes it quick: up to the first convolution everything depends on one piece alone, so it is kept per piece as one row
(ten products of 256, one for each branch and place, and what the residual adds) in a bounded memory, and that convolution
becomes lookups and sums. The last layernorm and the sum over pieces are one weighted sum per text. Layers that follow each
other without a bend between them are one product. Weights are whole numbers (`whole`), and each stage is one call.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from pathlib import Path
from typing import Final, Protocol
from zlib import crc32

import numpy as np
import numpy.typing as npt

from waypost import limits
from waypost.embedders import projections, use_model
from waypost.embedders.lazy_embedder import Encode
from waypost.embedders.mmap_cache import Arrays, cached_arrays
from waypost.embedders.tokenizer import BEGIN, END, Tokenizer
from waypost.embedders.use_model import ROW, SHARDS, UseModel, UsePackage, load_model, load_tokenizer, quantize_layers
from waypost.search.vectors.embedding import Vectors

try:
    from waypost.search.kernels.use_network import UseLayers
except ImportError:
    from waypost.embedders.network_fallback import UseLayers  # type: ignore[assignment]

F32 = npt.NDArray[np.float32]

I64 = npt.NDArray[np.int64]

I16 = npt.NDArray[np.int16]

Group = tuple[int, int, int, int]

"""Pieces that make one vector: where their text begins, a run of it from and to, where it ends."""


class UseNetwork:
    """May be used by several threads; only the memory of rows is entered one by one."""

    def __init__(self, model: UseModel, projection: F32 | None = None, layers: Arrays | None = None) -> None:
        """Without a projection [512, dims], vectors have the 512 numbers that the network was trained to give. `layers` as
        `layers_of` makes them, where they were kept."""
        found = quantize_layers(model, projection) if layers is None else layers
        self._layers = UseLayers(found, model.table, model.scale, model.low, _empty_rows(limits.EMBEDDER_ROW_CACHE + 1))
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[Sequence[int]]) -> F32:
        """One unit vector for each list of pieces, which must not be empty."""
        out = np.empty((len(texts), self._layers.dims), np.float32)
        lines = [_line(pieces) for pieces in texts]
        first = total = 0
        for at, line in enumerate(lines):
            if at > first and total + len(line) > limits.EMBEDDER_BATCH_TOKENS:
                out[first:at] = self._encode(lines[first:at])
                first, total = at, 0
            total += len(line)
        if lines:
            out[first:] = self._encode(lines[first:])
        return out

    def encode_runs(self, pieces: Sequence[int], runs: Sequence[tuple[int, int]]) -> F32:
        """The vector of the whole, then of each run of its pieces (from, to) as it stands there: a piece is seen with its
        neighbours, also those beyond the run. One pass over the whole serves them all."""
        line = _line(pieces)
        last = len(line) - 1
        groups = [(0, 1, last, last), *((0, start + 1, stop + 1, last) for start, stop in runs)]
        numbers = np.array(line, np.int64)
        return self._vectors(numbers, [len(line)], groups)

    def _encode(self, lines: Sequence[Sequence[int]]) -> F32:
        sizes = [len(line) for line in lines]
        numbers = np.fromiter(chain.from_iterable(lines), np.int64, sum(sizes))
        groups: list[Group] = []
        start = 0
        for size in sizes:
            last = start + size - 1
            groups.append((start, start + 1, last, last))
            start += size
        return self._vectors(numbers, sizes, groups)

    def _vectors(self, numbers: I64, sizes: list[int], groups: Sequence[Group]) -> F32:
        return self._sentences(numbers, self._seen(self._pieces(numbers, sizes), sizes), groups)

    def _pieces(self, numbers: I64, sizes: list[int]) -> F32:
        """Up to the first convolution: rows of pieces, made where they are not kept, and their sums."""
        with self._lock:
            return self._layers.first_convolution(numbers, sizes)

    def _seen(self, line: F32, sizes: list[int]) -> F32:
        """The second convolution."""
        return self._layers.second_convolution(line, sizes)

    def _sentences(self, numbers: I64, hidden: F32, groups: Sequence[Group]) -> F32:
        """From the pieces of each group to its vector."""
        return self._layers.pool(numbers, hidden, groups)


def _line(pieces: Sequence[int]) -> list[int]:
    return [BEGIN, *pieces[: limits.EMBEDDER_TOKENS - 2], END]


def _empty_rows(count: int) -> I16:
    """Zeros that take memory as they are used, a little at a time: in large pages, which numpy asks for, one question in
    thirty would wait for one to be found and emptied."""
    if sys.platform != "linux":
        return np.zeros((count, ROW), np.int16)
    memory = mmap.mmap(-1, count * ROW * np.int16().nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a system without large pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.int16).reshape(count, ROW)


# ---- A text as the weighted mean of its pieces' vectors: no network, no order of words, and therefore very quick.
#
# The vectors are those of the network's own first layer. Frequent pieces weigh less (a / (a + p), p by the vocabulary's own
# probabilities), and what all frequent pieces have in common is taken away, so that a mean is about what is said. Weight,
# offset and projection are the same for every text, so they are put into one table of a few bytes for each piece.

try:
    from waypost.search.kernels.use_network import TokenSums
except ImportError:
    from waypost.embedders.network_fallback import TokenSums  # type: ignore[assignment]

_COMMON_PIECES: Final = 20_000  # pieces whose mean is taken away

_RARITY: Final = 1e-4  # the probability of a piece that weighs one half

_STEP: Final = 4096  # pieces at once, so that they stay in the cache


class StaticEncoder:
    """May be used by several threads."""

    def __init__(self, table: Arrays) -> None:
        """`table` as `condense` makes it."""
        self._sums = TokenSums(table["codes"], table["scales"])

    def encode(self, texts: Sequence[Sequence[int]]) -> F32:
        """One unit vector for each list of pieces, which must not be empty."""
        lines = [pieces[: limits.EMBEDDER_TOKENS] for pieces in texts]
        ends = [*accumulate(map(len, lines))]
        numbers = np.fromiter(chain.from_iterable(lines), np.int64, ends[-1] if ends else 0)
        return self._sums.sum_runs(numbers, list(zip([0, *ends], ends, strict=False)))

    def encode_runs(self, pieces: Sequence[int], runs: Sequence[tuple[int, int]]) -> F32:
        """The vector of the whole, then of each run of its pieces (from, to)."""
        numbers = np.array(pieces[: limits.EMBEDDER_TOKENS], np.int64)
        return self._sums.sum_runs(numbers, [(0, len(numbers)), *runs])


def condense_table(model: UseModel, projection: F32) -> Arrays:
    """What each piece adds to a mean, carried to fewer dimensions by `projection`: int8 with one scale each."""
    count = len(model.scores)
    chances = np.exp(model.scores.astype(np.float64))
    weights = (_RARITY / (_RARITY + chances)).astype(np.float32)
    common = np.argsort(-chances, kind="stable")[:_COMMON_PIECES]
    mean = _token_vectors(model, common).mean(0, dtype=np.float64).astype(np.float32)
    codes = np.empty((count, projection.shape[1]), np.int8)
    scales = np.empty(count, np.float32)
    for start in range(0, count, _STEP):
        numbers = np.arange(start, min(start + _STEP, count))
        made = (_token_vectors(model, numbers) - mean) @ projection * weights[numbers, None]
        scales[numbers] = np.maximum(np.abs(made).max(1), 1e-12) / 127
        codes[numbers] = np.rint(made / scales[numbers, None])
    return {"codes": codes, "scales": scales}


def _token_vectors(model: UseModel, numbers: npt.NDArray[np.int64]) -> F32:
    shards = numbers % SHARDS
    return np.asarray(model.table[numbers] * model.scale[shards, None] + model.low[shards, None])


# ---- From texts to vectors by way of pieces: cut the text, ask the model, give zeros for a text that says nothing.

_EncodeTokens = Callable[[Sequence[Sequence[int]]], Vectors]

_EncodeRuns = Callable[[Sequence[int], Sequence[tuple[int, int]]], Vectors]

_WARM_UP_TEXTS: Final = (
    "what can you do for me?",
    "find an agent",
)  # so that no question is the first to touch the weights

_loaded: dict[UsePackage, dict[str, Encode]] = {}


class TextTokenizer(Protocol):
    def encode(self, text: str, most: int) -> list[int]:
        """The ids of the first `most` pieces. The list is cached: do not change it."""
        ...


class _TokenCache:
    """The pieces of the last texts: each is asked for by both spaces."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.encode = lru_cache(maxsize=limits.EMBEDDER_TOKEN_CACHE)(tokenizer.encode)


class TokenEncoder:
    """As `Embedder.encode` asks, of any model that takes pieces."""

    def __init__(
        self, tokenizer: TextTokenizer, model: _EncodeTokens, dims: int, runs: _EncodeRuns | None = None
    ) -> None:
        """`runs` gives the vectors of a list of pieces and of some runs of it; None: parts are texts of their own."""
        self._tokenizer = tokenizer
        self._model = model
        self._runs = runs
        self._dims: Final = dims

    def __call__(self, texts: Sequence[str]) -> Vectors:
        pieces = [self._cut(text) for text in texts]
        if all(pieces):
            return self._model(pieces)
        out = np.zeros((len(texts), self._dims), np.float32)
        said = [at for at, found in enumerate(pieces) if found]
        if said:
            out[said] = self._model([pieces[at] for at in said])
        return out

    def encode_parts(self, text: str, parts: Sequence[str]) -> Vectors:
        """As `PartsEmbedder` asks."""
        if self._runs is None:
            return self((text, *parts))
        pieces = self._cut(text)
        found = [_run_in(self._cut(part), pieces) for part in parts]
        runs = [run for run in found if run is not None]
        return self._runs(pieces, runs) if len(runs) == len(parts) and pieces else self((text, *parts))

    def _cut(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, limits.EMBEDDER_TOKENS)


def _run_in(part: Sequence[int], pieces: Sequence[int]) -> tuple[int, int] | None:
    """Where a part stands in the whole, but perhaps for its first or last piece, which may be cut otherwise beside a stop."""
    most = limits.EMBEDDER_TOKENS - 2
    for some in (part, part[:-1], part[1:], part[1:-1]):
        if (found := _run_of(some, pieces, most)) is not None:
            return found
    return None


def _run_of(part: Sequence[int], pieces: Sequence[int], most: int) -> tuple[int, int] | None:
    """Where a part stands in the first `most` of the whole (from, to); None: nowhere."""
    size = len(part)
    last = min(len(pieces), most) - size
    for start in range(last + 1 if size else 0):
        if pieces[start] == part[0] and pieces[start : start + size] == part:
            return start, start + size
    return None


def load_encoders(package: UsePackage, copies: Path | None) -> dict[str, Encode]:
    """Both spaces of the package's one model; services in one process share it. Raises Unavailable."""
    if package not in _loaded:
        _loaded[package] = _load(package, copies)
    return _loaded[package]


def _load(package: UsePackage, copies: Path | None) -> dict[str, Encode]:
    model = load_model(package, copies)
    tokenizer = _TokenCache(load_tokenizer(package))
    means, network = _means(package, copies, model), _network(package, copies, model)
    encoders: dict[str, Encode] = {
        projections.STATIC: TokenEncoder(tokenizer, means.encode, projections.DIMS, means.encode_runs),
        projections.NETWORK: TokenEncoder(tokenizer, network.encode, projections.DIMS, network.encode_runs),
    }
    for encode in encoders.values():
        encode(_WARM_UP_TEXTS)
    return encoders


def _means(package: UsePackage, copies: Path | None, model: UseModel) -> StaticEncoder:
    projection = projections.load_projection(projections.STATIC)
    version = f"{package.print}-{crc32(projection.tobytes()):08x}"
    return StaticEncoder(cached_arrays(copies, "means", version, lambda: condense_table(model, projection)))


def _network(package: UsePackage, copies: Path | None, model: UseModel) -> UseNetwork:
    projection = projections.load_projection(projections.NETWORK)
    version = f"{package.print}-{use_model.QUANTIZED_VERSION}-{crc32(projection.tobytes()):08x}"
    return UseNetwork(
        model,
        projection,
        cached_arrays(copies, "network", version, lambda: use_model.quantize_layers(model, projection)),
    )
