"""The fallback of `kernels/use_network.pyx`: the layers of the sentence encoder, one call per stage, and token sums.

Same signatures, same digits. Integers are multiplied as float64, which is exact; every other sum is added in a fixed order: over
tokens one after the other, over the numbers of a row in sixteen lanes (`sums`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import numpy as np
import numpy.typing as npt

from waypost.embedders.use_model import (
    BRANCHES,
    CHANNELS,
    FIRST,
    HIDDEN,
    MAX_INPUT,
    MAX_ROW,
    ROW,
    Arrays,
    quantized_layer,
)

F32 = npt.NDArray[np.float32]

I64 = npt.NDArray[np.int64]

I32 = npt.NDArray[np.int32]

I16 = npt.NDArray[np.int16]

U8 = npt.NDArray[np.uint8]

Step = F32 | np.float32

_LANES: Final = 16


class _Product:
    """The product of quantized rows with one layer."""

    def __init__(self, arrays: Arrays, name: str) -> None:
        found = quantized_layer(arrays, name)
        self._numbers = np.ascontiguousarray(found.numbers.T, np.float64)
        self._steps = found.steps

    def __call__(self, rows: npt.NDArray[np.float64], steps: Step) -> F32:
        """`steps` are the quantization steps of the rows, or of all."""
        return (rows @ self._numbers).astype(np.float32) * self._steps * steps


class UseLayers:
    """`first_convolution`, which caches token rows, is not thread-safe."""

    def __init__(self, arrays: Arrays, table: U8, scale: F32, low: F32, rows: I16) -> None:
        """`table` has the embedding of each token: value · `scale` + `low`, by shard. `rows` is the cache of token rows; its
        first row is unused."""
        self._arrays, self._table, self._scale, self._low = arrays, table, scale, low
        self._epsilon = np.float32(arrays["epsilon"][0])
        self._project = _Product(arrays, "project")
        self._first = [_Product(arrays, f"first{width}") for width, _ in BRANCHES]
        self._second = [_Product(arrays, f"second{width}") for width, _ in BRANCHES]
        self._out, self._d1, self._d2, self._d3 = (_Product(arrays, name) for name in ("out", "d1", "d2", "d3"))
        self._carry = _Product(arrays, "carry") if "carry.numbers" in arrays else None
        self.dims = len(arrays["carry.steps" if self._carry else "d3.steps"])
        self._rows = rows
        self._steps: F32 = np.zeros(len(rows), np.float32)
        self._slots: I32 = np.full(len(table), -1, np.int32)
        self._holders: I64 = np.full(len(rows), -1, np.int64)  # the token of each row
        self._used = 1

    # --- Tokens by themselves ---------------------------------------------------------------------

    def token_rows(self, numbers: I64) -> tuple[I16, F32]:
        """The quantized rows of these tokens, and their steps."""
        self._check(numbers)
        made = np.empty((len(numbers), ROW), np.float32)
        made[:, FIRST:] = self._normalised(numbers)
        column = 0
        for product, (width, _), part in zip(self._first, BRANCHES, _parts(made[:, FIRST:]), strict=True):
            made[:, column : column + width * CHANNELS] = product(*_quantized(part))
            column += width * CHANNELS
        rows, steps = _quantized(made, MAX_ROW)
        return rows.astype(np.int16), steps[:, 0]

    def _cache_rows(self, numbers: I64) -> I32:
        """The slot of each token's row. Missing rows are computed; when the cache is full, the oldest are replaced."""
        slots = self._slots[numbers]
        while (slots < 0).any():  # again, if this evicted others of these
            missing = np.unique(numbers[slots < 0])
            at = self._room(len(missing))
            self._rows[at], self._steps[at] = self.token_rows(missing)
            self._holders[at] = missing
            self._slots[missing] = np.arange(at.start, at.stop)
            slots = self._slots[numbers]
        return slots

    def _rows_of(self, slots: I32) -> F32:
        return self._rows[slots] * self._steps[slots, None]

    def _check(self, numbers: I64) -> None:
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self._table):
            raise IndexError("no such token")

    def _normalised(self, numbers: I64) -> F32:
        """The input of the three branches: one layernorm over all of them."""
        arrays = self._arrays
        shards = numbers % len(self._scale)
        x = self._project(self._table[numbers].astype(np.float64), self._scale[shards, None])
        x += self._low[shards, None] * arrays["project.sum"]
        x += arrays["project.bias"]
        x -= (sums(x) / np.float32(HIDDEN))[:, None]
        x *= (np.float32(1) / np.sqrt(sums(x * x) / np.float32(HIDDEN) + self._epsilon))[:, None]
        x *= arrays["gain"]
        x += arrays["bias"]
        return x

    def _room(self, count: int) -> slice:
        if self._used + count > len(self._rows):
            self._used = 1
        at = slice(self._used, self._used + count)
        self._slots[[token for token in self._holders[at].tolist() if token >= 0]] = -1
        self._used = at.stop
        return at

    # --- Convolutions -----------------------------------------------------------------------------

    def first_convolution(self, numbers: I64, sizes: Sequence[int]) -> F32:
        """The sum of the neighbours' parts at each position, and the residual."""
        if 2 * len(numbers) > len(self._rows) - 1:
            raise ValueError("more tokens at once than the cache holds")
        self._check(numbers)
        spans, slots = _spans(sizes, len(numbers)), self._cache_rows(numbers)
        out = np.empty((len(slots), HIDDEN), np.float32)
        for start, stop in spans:
            rows = np.zeros((stop - start + 4, ROW), np.float32)
            rows[2:-2] = self._rows_of(slots[start:stop])
            column = 0
            for part, (width, left) in zip(_parts(out[start:stop]), BRANCHES, strict=True):
                part[:] = rows[2 - left : 2 - left + len(part), column : column + CHANNELS]
                for place in range(1, width):
                    column += CHANNELS
                    part += rows[2 - left + place : 2 - left + place + len(part), column : column + CHANNELS]
                column += CHANNELS
            out[start:stop] += self._arrays["first.bias"]
            np.maximum(out[start:stop], 0, out=out[start:stop])
            out[start:stop] += rows[2:-2, FIRST:]
        return out

    def second_convolution(self, line: F32, sizes: Sequence[int]) -> F32:
        out = np.empty_like(line)
        for start, stop in _spans(sizes, len(line)):
            parts = zip(_parts(line[start:stop]), _parts(out[start:stop]), self._second, BRANCHES, strict=True)
            for part, made, product, (width, left) in parts:
                step = _steps(np.abs(part).max(initial=0))
                padded = np.zeros((len(part) + 4, CHANNELS))
                padded[2:-2] = _rounded(part, step)
                windows = [padded[2 - left + place : 2 - left + place + len(part)] for place in range(width)]
                made[:] = product(np.hstack(windows), step)
        out += self._arrays["second.bias"]
        np.maximum(out, 0, out=out)
        out += line
        return out

    # --- Pooling ----------------------------------------------------------------------------------

    def pool(self, numbers: I64, hidden: F32, groups: Sequence[tuple[int, int, int, int]]) -> F32:
        """The unit vector of each group: one position, a run of positions (from, to), and one more position."""
        if len(numbers) != len(hidden):
            raise IndexError("no such token")
        self._check(numbers)
        x = self._out(*_quantized(self._pooled(numbers, hidden, groups)))
        x += np.sqrt(_counts(groups))[:, None] * self._arrays["out.bias"]
        activated, residual = np.split(x, 2, axis=1)
        x = np.maximum(self._d1(*_quantized(np.maximum(activated, 0))) + residual, 0)
        activated, residual = np.split(self._d2(*_quantized(x)), 2, axis=1)
        x = tanh(self._d3(*_quantized(np.maximum(activated, 0))) + residual, self._arrays)
        x = self._carry(*_quantized(x)) if self._carry is not None else x
        x /= np.maximum(np.sqrt(sums(x * x)), np.float32(1e-6))[:, None]
        return x

    def _pooled(self, numbers: I64, hidden: F32, groups: Sequence[tuple[int, int, int, int]]) -> F32:
        """The sum of the layernormed tokens of each group, divided by the root of their number."""
        embedded = self._table[numbers]
        scale, low = self._scale[numbers % len(self._scale)], self._low[numbers % len(self._scale)]
        mean, inverse = self._moments(embedded, scale, low, hidden)
        factors, lows, means = inverse * scale, inverse * low, inverse * mean
        pooled = np.empty((len(groups), embedded.shape[1] + HIDDEN), np.float32)
        for row, (first, start, stop, last) in zip(pooled, groups, strict=True):
            if not (0 <= first < len(numbers) and 0 <= start <= stop <= len(numbers) and 0 <= last < len(numbers)):
                raise IndexError("no such position")
            at = np.array([first, *range(start, stop), last])
            row[:-HIDDEN] = in_order(factors[at, None] * embedded[at]) + in_order(lows[at])
            row[-HIDDEN:] = in_order(inverse[at, None] * hidden[at])
            row -= in_order(means[at])
            row /= np.sqrt(np.float32(len(at)))
            row *= self._arrays["out.gain"]
        return pooled

    def _moments(self, embedded: U8, scale: F32, low: F32, hidden: F32) -> tuple[F32, F32]:
        """Mean and inverse deviation of each token's numbers. Sums of its integers are exact."""
        width = np.float32(embedded.shape[1] + HIDDEN)
        wide, deep, count = scale.astype(np.float64), low.astype(np.float64), embedded.shape[1]
        plain = embedded.sum(1, dtype=np.int64).astype(np.float64)
        squares = np.square(embedded, dtype=np.int64).sum(1).astype(np.float64)
        total = (wide * plain + count * deep).astype(np.float32)
        square = (wide * wide * squares + 2 * wide * deep * plain + count * deep * deep).astype(np.float32)
        mean = (total + sums(hidden)) / width
        variance = (square + sums(hidden * hidden)) / width - mean * mean + self._epsilon
        return mean, np.float32(1) / np.sqrt(variance)


def _counts(groups: Sequence[tuple[int, int, int, int]]) -> F32:
    return np.array([stop - start + 2 for _, start, stop, _ in groups], np.float32)


def _spans(sizes: Sequence[int], count: int) -> list[tuple[int, int]]:
    ends = [*accumulate(sizes)]
    if any(size < 0 for size in sizes) or (ends[-1] if ends else 0) != count:
        raise IndexError("the sizes do not add up to the number of tokens")
    return list(zip([0, *ends], ends, strict=False))


def _parts(rows: F32) -> list[F32]:
    """The columns of each branch."""
    return [rows[:, at : at + CHANNELS] for at in range(0, HIDDEN, CHANNELS)]


def _steps(highest: Step, most: int = MAX_INPUT) -> F32:
    return np.asarray(np.maximum(highest, np.float32(1e-30)) / np.float32(most), np.float32)


def _rounded(x: F32, step: Step) -> npt.NDArray[np.float64]:
    return np.rint(x * (np.float32(1) / step)).astype(np.float64)


def _quantized(x: F32, most: int = MAX_INPUT) -> tuple[npt.NDArray[np.float64], F32]:
    """Each row as integers, and its step."""
    steps = _steps(np.abs(x).max(1), most)[:, None]
    return _rounded(x, steps), steps


def tanh(x: F32, arrays: Arrays) -> F32:
    """To about 4e-7. Not from a library, because those differ in their last digits."""
    over, under = arrays["tanh.over"], arrays["tanh.under"]
    y = np.clip(x, -over[-1], over[-1])
    z = y * y
    p, q = over[0] * z + over[1], under[0] * z + under[1]
    for factor in over[2:-1]:
        p = p * z + factor
    for factor in under[2:]:
        q = q * z + factor
    return np.asarray(y * p / q)


def sums(x: F32) -> F32:
    """The sum of each row: in sixteen lanes, then pairwise."""
    lanes = np.add.reduce(x.reshape(len(x), x.shape[1] // _LANES, _LANES), 1)
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return np.asarray(lanes[:, 0])


def in_order(rows: F32) -> F32:
    """The sum of rows in order; numpy would add a single column pairwise."""
    return np.asarray(np.add.reduce(rows, 0) if rows.ndim > 1 else np.add.accumulate(rows)[-1])


class TokenSums:
    """Sums of token vectors: `codes` with one of the `scales` each. Thread-safe."""

    def __init__(self, codes: npt.NDArray[np.int8], scales: F32) -> None:
        self._codes, self._scales = codes, scales

    def sum_runs(self, numbers: npt.NDArray[np.int64], runs: Sequence[tuple[int, int]]) -> F32:
        """The unit vector of each run of tokens (from, to), added in order; zeros for an empty run."""
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self._codes):
            raise IndexError("no such token")
        rows = self._codes[numbers] * self._scales[numbers, None]
        out = np.zeros((len(runs), self._codes.shape[1]), np.float32)
        for made, (start, stop) in zip(out, runs, strict=True):
            if not 0 <= start <= stop <= len(numbers):
                raise IndexError("no such position")
            if stop > start:
                made[:] = in_order(rows[start:stop])
        out /= np.maximum(np.sqrt(sums(out * out)), np.float32(1e-12))[:, None]
        return out
