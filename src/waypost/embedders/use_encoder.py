"""The Universal Sentence Encoder, multilingual, version 3: tokens in, one unit vector per text out. And static vectors.

    token → 512 numbers → three branches, each layernorm(projection) to 256, then two residual ReLU convolutions over
    2, 3 and 5 tokens → with the first 512 (1280) → layernorm → sum/√n → four dense layers → tanh → projection → unit length

onnxruntime computes it by the graph of `scripts/build_graph.py`, with products over tokens in int8. A static vector is the
weighted mean of a text's tokens: no network and no word order, and therefore very fast. Weights, offset and projection of all
tokens are folded into one table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from waypost import limits
from waypost.embedders.lazy_embedder import Encode, stop_at_exit
from waypost.embedders.session import ModelSession
from waypost.embedders.use_model import (
    BEGIN,
    DIMS,
    END,
    NETWORK,
    PROJECTION,
    STATIC,
    WIDTH,
    Tokenizer,
    UseModel,
    UsePackage,
    load_graph,
    load_model,
    load_projection,
    load_tokenizer,
    quantize_weights,
)
from waypost.errors import Unavailable
from waypost.search.index.storage import sorted_unique
from waypost.search.vectors import Vectors

F32 = npt.NDArray[np.float32]
_GAP: Final = 2  # paddings between two texts, the longest reach of a convolution
_PADDING: Final = -1


class UseNetwork:
    """Thread-safe."""

    def __init__(self, model: UseModel, *, is_projected: bool = True, exact_graph: bytes | None = None) -> None:
        """Vectors that are not projected have the 512 numbers of the original model. `exact_graph` computes without
        quantization. Raises Unavailable."""
        self._table = model.table
        weights = {**model.weights, PROJECTION: load_projection(NETWORK)}
        try:
            if exact_graph is None:
                self._session = ModelSession(load_graph(), quantize_weights(weights))
            else:
                self._session = ModelSession(exact_graph, weights)
        except Exception as error:  # onnxruntime raises classes of its own
            raise Unavailable(f"The sentence model cannot be used: {error}", hint="Reinstall onnxruntime.") from error
        self._output = "vectors" if is_projected else "sentences"
        self._dims = DIMS if is_projected else WIDTH

    def encode(self, texts: Sequence[Sequence[int]]) -> F32:
        """One unit vector for each list of tokens, which must not be empty."""
        out = np.empty((len(texts), self._dims), np.float32)
        lines = [_with_markers(tokens) for tokens in texts]
        first = total = 0
        for at, line in enumerate(lines):
            if at > first and total + len(line) > limits.EMBEDDER_BATCH_TOKENS:
                out[first:at] = self._encode(lines[first:at])
                first, total = at, 0
            total += len(line) + _GAP
        if lines:
            out[first:] = self._encode(lines[first:])
        return out

    def encode_runs(self, tokens: Sequence[int], runs: Sequence[tuple[int, int]]) -> F32:
        """The vector of the whole text, then of each run of its tokens (from, to) in its context. One pass serves them all."""
        line = _with_markers(tokens)
        groups = np.zeros((1 + len(runs), len(line)), np.float32)
        groups[0] = groups[:, 0] = groups[:, -1] = 1
        for group, (start, stop) in zip(groups[1:], runs, strict=True):
            group[start + 1 : stop + 1] = 1
        return self._run(np.array(line, np.int64), groups)

    def _encode(self, lines: Sequence[Sequence[int]]) -> F32:
        size = sum(map(len, lines)) + _GAP * (len(lines) - 1)
        tokens, groups = np.full(size, _PADDING, np.int64), np.zeros((len(lines), size), np.float32)
        start = 0
        for group, line in zip(groups, lines, strict=True):
            end = start + len(line)
            tokens[start:end], group[start:end] = line, 1
            start = end + _GAP
        return self._run(tokens, groups)

    def _run(self, tokens: npt.NDArray[np.int64], groups: F32) -> F32:
        distinct = sorted_unique(tokens[tokens >= 0])
        places = np.where(tokens >= 0, np.searchsorted(distinct, tokens), _PADDING)
        return self._session.run(
            {"tokens": self._table.embed(distinct), "places": places, "groups": groups}, self._output
        )


def _with_markers(tokens: Sequence[int]) -> list[int]:
    return [BEGIN, *tokens[: limits.EMBEDDER_TOKENS - 2], END]


class StaticEncoder:
    """Means of token vectors. Thread-safe."""

    def __init__(self, codes: npt.NDArray[np.int8], scales: F32) -> None:
        self._codes, self._scales = codes, scales

    def encode(self, texts: Sequence[Sequence[int]]) -> F32:
        """One unit vector for each list of tokens, which must not be empty."""
        lines = [tokens[: limits.EMBEDDER_TOKENS] for tokens in texts]
        starts = np.cumsum([0, *map(len, lines)])
        rows = self._rows(np.fromiter(chain.from_iterable(lines), np.int64, starts[-1]))
        return _unit(np.add.reduceat(rows, starts[:-1], axis=0) if lines else rows)

    def encode_runs(self, tokens: Sequence[int], runs: Sequence[tuple[int, int]]) -> F32:
        """The vector of the whole text, then of each run of its tokens (from, to)."""
        rows = self._rows(np.array(tokens[: limits.EMBEDDER_TOKENS], np.int64))
        return _unit(np.array([rows.sum(0), *(rows[start:stop].sum(0) for start, stop in runs)]))

    def _rows(self, tokens: npt.NDArray[np.int64]) -> F32:
        return np.asarray(self._codes[tokens] * self._scales[tokens, None])


def _unit(rows: F32) -> F32:
    return np.asarray(rows / np.maximum(np.sqrt((rows * rows).sum(1, keepdims=True)), 1e-12), np.float32)


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
        self,
        tokenizer: TextTokenizer,
        model: _EncodeTokens,
        dims: int,
        runs: _EncodeRuns | None = None,
        most: int = limits.EMBEDDER_TOKENS,
    ) -> None:
        """`runs` encodes a list of tokens and runs of it; None: parts are encoded as separate texts. `most` limits the tokens of
        a text, two of which mark its ends."""
        self._tokenizer = tokenizer
        self._model = model
        self._runs = runs
        self._dims: Final = dims
        self._most: Final = most

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
        """Parts are encoded in their context by one pass over the text; those that are not in its tokens, for example because
        the text is too long, by themselves."""
        tokens = self._tokenize(text)
        if self._runs is None or not tokens:
            return self((text, *parts))
        runs = [_find_run(self._tokenize(part), tokens, self._most - 2) for part in parts]
        inside = [at for at, run in enumerate(runs, 1) if run is not None]
        outside = [at for at, run in enumerate(runs, 1) if run is None]
        made = np.empty((1 + len(parts), self._dims), np.float32)
        made[[0, *inside]] = self._runs(tokens, [run for run in runs if run is not None])
        if outside:
            made[outside] = self([parts[at - 1] for at in outside])
        return made

    def has_word(self, word: str) -> bool:
        return len(self._tokenizer.encode(word, 2)) == 1

    def _tokenize(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, self._most - 2)


def _find_run(part: Sequence[int], tokens: Sequence[int], most: int) -> tuple[int, int] | None:
    """The run of a part in the whole text, perhaps without its first or last token, which may differ next to punctuation."""
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
    stop_at_exit()
    tokenizer = _TokenCache(load_tokenizer(package))
    static, network = StaticEncoder(model.static_codes, model.static_scales), UseNetwork(model)
    encoders: dict[str, Encode] = {
        STATIC: TokenEncoder(tokenizer, static.encode, DIMS, static.encode_runs),
        NETWORK: TokenEncoder(tokenizer, network.encode, DIMS, network.encode_runs),
    }
    for encode in encoders.values():
        encode(_WARM_UP_TEXTS)
    return encoders
