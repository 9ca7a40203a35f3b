"""The Universal Sentence Encoder, multilingual, version 3: tokens in, one unit vector per text out. And static vectors.

    token → 512 numbers → three branches, each layernorm(projection) to 256, then two residual ReLU convolutions over
    2, 3 and 5 tokens → with the first 512 (1280) → layernorm → sum/√n → four dense layers → tanh → projection → unit length

Up to the first convolution everything depends on one token, so it is cached per token as one row (ten products of 256, one per
branch and position, and the residual), and that convolution becomes lookups and sums. The last layernorm and the sum over tokens
are one weighted sum per text. Consecutive linear layers are one product. Weights are quantized (`use_model`).

A static vector is the weighted mean of a text's token embeddings: no network and no word order, and therefore very fast. Frequent
tokens weigh less (a / (a + p), p by the probabilities of the vocabulary), and the mean of frequent tokens is subtracted. Weight,
offset and projection are the same for every text, so they are folded into one table of a few bytes per token.
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
from waypost.embedders.lazy_embedder import Encode
from waypost.embedders.use_model import (
    BEGIN,
    DIMS,
    END,
    NETWORK,
    QUANTIZED_VERSION,
    ROW,
    SHARDS,
    STATIC,
    Arrays,
    Tokenizer,
    UseModel,
    UsePackage,
    cached_arrays,
    load_model,
    load_projection,
    load_tokenizer,
    quantize_layers,
)
from waypost.search.vectors import Vectors

try:
    from waypost.search.kernels.use_network import TokenSums, UseLayers
except ImportError:
    from waypost.embedders.network_fallback import TokenSums, UseLayers  # type: ignore[assignment]

F32 = npt.NDArray[np.float32]

I64 = npt.NDArray[np.int64]

I16 = npt.NDArray[np.int16]

Group = tuple[int, int, int, int]
"""Tokens of one vector: the first of the text, a run (from, to), the last."""


class UseNetwork:
    """Thread-safe; only the cache of token rows is locked."""

    def __init__(self, model: UseModel, projection: F32 | None = None, layers: Arrays | None = None) -> None:
        """Without a projection [512, dims], vectors have the 512 numbers of the original model. `layers` are the result of
        `quantize_layers`, if it was cached."""
        arrays = quantize_layers(model, projection) if layers is None else layers
        self._layers = UseLayers(
            arrays, model.table, model.scale, model.low, _empty_rows(limits.EMBEDDER_ROW_CACHE + 1)
        )
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[Sequence[int]]) -> F32:
        """One unit vector for each list of tokens, which must not be empty."""
        out = np.empty((len(texts), self._layers.dims), np.float32)
        lines = [_with_markers(tokens) for tokens in texts]
        first = total = 0
        for at, line in enumerate(lines):
            if at > first and total + len(line) > limits.EMBEDDER_BATCH_TOKENS:
                out[first:at] = self._encode(lines[first:at])
                first, total = at, 0
            total += len(line)
        if lines:
            out[first:] = self._encode(lines[first:])
        return out

    def encode_runs(self, tokens: Sequence[int], runs: Sequence[tuple[int, int]]) -> F32:
        """The vector of the whole text, then of each run of its tokens (from, to) in its context. One pass serves them all."""
        line = _with_markers(tokens)
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
        with self._lock:
            first = self._layers.first_convolution(numbers, sizes)
        return self._layers.pool(numbers, self._layers.second_convolution(first, sizes), groups)


def _with_markers(tokens: Sequence[int]) -> list[int]:
    return [BEGIN, *tokens[: limits.EMBEDDER_TOKENS - 2], END]


def _empty_rows(count: int) -> I16:
    """Zeros in normal pages: with huge pages, which numpy requests, one query in thirty would wait for a page to be cleared."""
    if sys.platform != "linux":
        return np.zeros((count, ROW), np.int16)
    memory = mmap.mmap(-1, count * ROW * np.int16().nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a system without huge pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.int16).reshape(count, ROW)


# --- Static vectors ---

_COMMON_TOKENS: Final = 20_000  # tokens whose mean is subtracted

_HALF_WEIGHT_PROBABILITY: Final = 1e-4  # of a token that weighs one half

_STEP: Final = 4096  # tokens at once, so that they stay in the CPU cache


class StaticEncoder:
    """Thread-safe."""

    def __init__(self, table: Arrays) -> None:
        """`table` is the result of `condense_table`."""
        self._sums = TokenSums(table["codes"], table["scales"])

    def encode(self, texts: Sequence[Sequence[int]]) -> F32:
        """One unit vector for each list of tokens, which must not be empty."""
        lines = [tokens[: limits.EMBEDDER_TOKENS] for tokens in texts]
        ends = [*accumulate(map(len, lines))]
        numbers = np.fromiter(chain.from_iterable(lines), np.int64, ends[-1] if ends else 0)
        return self._sums.sum_runs(numbers, list(zip([0, *ends], ends, strict=False)))

    def encode_runs(self, tokens: Sequence[int], runs: Sequence[tuple[int, int]]) -> F32:
        """The vector of the whole text, then of each run of its tokens (from, to)."""
        numbers = np.array(tokens[: limits.EMBEDDER_TOKENS], np.int64)
        return self._sums.sum_runs(numbers, [(0, len(numbers)), *runs])


def condense_table(model: UseModel, projection: F32) -> Arrays:
    """The contribution of each token to a mean, projected: int8 with one scale each."""
    count = len(model.scores)
    probabilities = np.exp(model.scores.astype(np.float64))
    weights = (_HALF_WEIGHT_PROBABILITY / (_HALF_WEIGHT_PROBABILITY + probabilities)).astype(np.float32)
    common = np.argsort(-probabilities, kind="stable")[:_COMMON_TOKENS]
    mean = _token_vectors(model, common).mean(0, dtype=np.float64).astype(np.float32)
    codes = np.empty((count, projection.shape[1]), np.int8)
    scales = np.empty(count, np.float32)
    for start in range(0, count, _STEP):
        numbers = np.arange(start, min(start + _STEP, count))
        vectors = (_token_vectors(model, numbers) - mean) @ projection * weights[numbers, None]
        scales[numbers] = np.maximum(np.abs(vectors).max(1), 1e-12) / 127
        codes[numbers] = np.rint(vectors / scales[numbers, None])
    return {"codes": codes, "scales": scales}


def _token_vectors(model: UseModel, numbers: npt.NDArray[np.int64]) -> F32:
    shards = numbers % SHARDS
    return np.asarray(model.table[numbers] * model.scale[shards, None] + model.low[shards, None])


# --- From texts to vectors ---

_EncodeTokens = Callable[[Sequence[Sequence[int]]], Vectors]

_EncodeRuns = Callable[[Sequence[int], Sequence[tuple[int, int]]], Vectors]

_WARM_UP_TEXTS: Final = (
    "what can you do for me?",
    "find an agent",
)  # so that no query is the first to read the weights

_loaded: dict[UsePackage, dict[str, Encode]] = {}


class TextTokenizer(Protocol):
    def encode(self, text: str, most: int) -> list[int]:
        """The ids of the first `most` tokens. The list is cached: do not change it."""
        ...


class _TokenCache:
    """Caches the tokens of recent texts: both spaces need them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.encode = lru_cache(maxsize=limits.EMBEDDER_TOKEN_CACHE)(tokenizer.encode)


class TokenEncoder:
    """`Embedder.encode` for a model that takes tokens."""

    def __init__(
        self, tokenizer: TextTokenizer, model: _EncodeTokens, dims: int, runs: _EncodeRuns | None = None
    ) -> None:
        """`runs` encodes a list of tokens and runs of it; None: parts are encoded as separate texts."""
        self._tokenizer = tokenizer
        self._model = model
        self._runs = runs
        self._dims: Final = dims

    def __call__(self, texts: Sequence[str]) -> Vectors:
        tokens = [self._tokenize(text) for text in texts]
        if all(tokens):
            return self._model(tokens)
        out = np.zeros((len(texts), self._dims), np.float32)
        filled = [at for at, found in enumerate(tokens) if found]
        if filled:
            out[filled] = self._model([tokens[at] for at in filled])
        return out

    def encode_parts(self, text: str, parts: Sequence[str]) -> Vectors:
        if self._runs is None:
            return self((text, *parts))
        tokens = self._tokenize(text)
        found = [_find_run(self._tokenize(part), tokens) for part in parts]
        runs = [run for run in found if run is not None]
        return self._runs(tokens, runs) if len(runs) == len(parts) and tokens else self((text, *parts))

    def _tokenize(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, limits.EMBEDDER_TOKENS)


def _find_run(part: Sequence[int], tokens: Sequence[int]) -> tuple[int, int] | None:
    """The run of a part in the whole text, perhaps without its first or last token, which may differ next to punctuation."""
    most = limits.EMBEDDER_TOKENS - 2
    for some in (part, part[:-1], part[1:], part[1:-1]):
        if (found := _find_exact_run(some, tokens, most)) is not None:
            return found
    return None


def _find_exact_run(part: Sequence[int], tokens: Sequence[int], most: int) -> tuple[int, int] | None:
    """The run (from, to) of a part in the first `most` tokens, or None."""
    size = len(part)
    last = min(len(tokens), most) - size
    for start in range(last + 1 if size else 0):
        if tokens[start] == part[0] and tokens[start : start + size] == part:
            return start, start + size
    return None


def load_encoders(package: UsePackage, copies: Path | None) -> dict[str, Encode]:
    """The encoders of both spaces; services in one process share them. Raises Unavailable."""
    if package not in _loaded:
        _loaded[package] = _load(package, copies)
    return _loaded[package]


def _load(package: UsePackage, copies: Path | None) -> dict[str, Encode]:
    model = load_model(package, copies)
    tokenizer = _TokenCache(load_tokenizer(package))
    static, network = _static(package, copies, model), _network(package, copies, model)
    encoders: dict[str, Encode] = {
        STATIC: TokenEncoder(tokenizer, static.encode, DIMS, static.encode_runs),
        NETWORK: TokenEncoder(tokenizer, network.encode, DIMS, network.encode_runs),
    }
    for encode in encoders.values():
        encode(_WARM_UP_TEXTS)
    return encoders


def _static(package: UsePackage, copies: Path | None, model: UseModel) -> StaticEncoder:
    projection = load_projection(STATIC)
    version = f"{package.print}-{crc32(projection.tobytes()):08x}"
    return StaticEncoder(cached_arrays(copies, "means", version, lambda: condense_table(model, projection)))


def _network(package: UsePackage, copies: Path | None, model: UseModel) -> UseNetwork:
    projection = load_projection(NETWORK)
    version = f"{package.print}-{QUANTIZED_VERSION}-{crc32(projection.tobytes()):08x}"
    return UseNetwork(
        model,
        projection,
        cached_arrays(copies, "network", version, lambda: quantize_layers(model, projection)),
    )
