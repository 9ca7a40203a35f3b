"""The network of the Universal Sentence Encoder, multilingual, version 3: pieces in, one unit vector for each text out.

    piece → 512 numbers → three branches, each layernorm(projection) to 256, then two residual ReLU convolutions over
    2, 3 and 5 pieces → beside the first 512 (1280) → layernorm → sum/√n → four dense layers → tanh → projection → unit length

What makes it quick: up to the first convolution everything depends on one piece alone, so it is kept per piece as one row
(ten products of 256, one for each branch and place, and what the residual adds) in a bounded memory, and that convolution
becomes lookups and sums. The last layernorm and the sum over pieces are one weighted sum per text. Layers that follow each
other without a bend between them are one product.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from waypost import limits
from waypost.embedders.package import SHARDS, WIDTH, Model
from waypost.embedders.sentencepiece import BEGIN, END

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

BRANCHES: Final = ((2, 0), (3, 1), (5, 2))  # how many pieces a convolution sees, and how many of them to the left
_CHANNELS: Final = 256
_HIDDEN: Final = len(BRANCHES) * _CHANNELS
_FIRST: Final = sum(width for width, _ in BRANCHES) * _CHANNELS  # numbers of a row that the first convolution adds up
_ROW: Final = _FIRST + _HIDDEN
_PAD: Final = 2  # empty places around each text, as many as a convolution reaches
_EVEN: Final = 4  # rows of a matrix that are multiplied at once: more of them cost less than a few over
_FILL: Final = (
    _EVEN  # rows that are multiplied at once: always as many, so that no digit tells which ones came together
)
_FLOAT: Final = 4  # bytes
_FEW: Final = 3  # rows up to which products with vectors beat one with a matrix
_ABREAST: Final = 64  # columns: fewer would be added up in another order
_KEPT: Final = 256 * 1024  # bytes of weights that stay in the cache from one row to the next


class _Batch(NamedTuple):
    """Several texts in one line, with empty places around each."""

    numbers: I64
    sizes: list[int]
    starts: list[int]
    places: I64  # of the pieces on the line
    length: int


class _Seen(NamedTuple):
    """What is known of each piece in its place."""

    facts: F32
    embedded: npt.NDArray[np.uint8]
    hidden: F32


class Network:
    """May be used by several threads; only the memory of rows is entered one by one."""

    def __init__(self, model: Model, projection: F32 | None = None) -> None:
        """Without a projection [512, dims], vectors have the 512 numbers that the network was trained to give."""
        self._rows = _Rows(model)
        self._convolution = _Convolution(model)
        self._head = _Head(model, projection)

    def encode(self, texts: Sequence[Sequence[int]]) -> F32:
        """One unit vector for each list of pieces, which must not be empty."""
        out = np.empty((len(texts), self._head.dims), np.float32)
        lines = [[BEGIN, *pieces[: limits.EMBEDDER_PIECES - 2], END] for pieces in texts]
        first = total = 0
        for at, line in enumerate(lines):
            if at > first and total + len(line) > limits.EMBEDDER_BATCH_PIECES:
                out[first:at] = self._encode(_batch(lines[first:at]))
                first, total = at, 0
            total += len(line)
        if lines:
            out[first:] = self._encode(_batch(lines[first:]))
        return out

    def encode_runs(self, pieces: Sequence[int], runs: Sequence[tuple[int, int]]) -> F32:
        """The vector of the whole, then of each run of its pieces (from, to) as it stands there: a piece is seen with its
        neighbours, also those beyond the run. One pass over the whole serves them all."""
        batch = _batch([[BEGIN, *pieces[: limits.EMBEDDER_PIECES - 2], END]])
        members: F32 = np.zeros((len(runs) + 1, len(batch.numbers)), np.float32)
        members[:, [0, -1]] = 1
        members[0] = 1
        for member, (start, stop) in zip(members[1:], runs, strict=True):
            member[start + 1 : stop + 1] = 1
        return self._head.encode(self._seen(batch), members)

    def _encode(self, batch: _Batch) -> F32:
        return self._head.encode(self._seen(batch), batch.starts)

    def _seen(self, batch: _Batch) -> _Seen:
        rows, facts, embedded = self._rows.take(batch)
        return _Seen(facts, embedded, self._convolution.encode(rows, batch))


def _batch(lines: list[list[int]]) -> _Batch:
    sizes = [len(line) for line in lines]
    starts = [0, *accumulate(sizes)]
    count = starts.pop()
    places = np.arange(_PAD, _PAD + count)
    if len(lines) > 1:
        places += np.repeat(np.arange(0, _PAD * len(lines), _PAD), sizes)
    numbers = np.fromiter(chain.from_iterable(lines), np.int64, count)
    return _Batch(numbers, sizes, starts, places, count + _PAD * (len(lines) + 1))


def _joined(model: Model, name: str, axis: int = 0) -> F32:
    return np.concatenate([model.weights[f"{name}{width}"] for width, _ in BRANCHES], axis)


class _Rows:
    """What is known of each piece by itself, made on first use. When it is full, the oldest make room."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._epsilon = float(model.weights["eps"].item())
        self._projection = _joined(model, "proj", 1)
        self._projection_bias = _joined(model, "proj_b")
        self._gain, self._bias = _joined(model, "ln_g"), _joined(model, "ln_b")
        self._first = [_side_by_side(model.weights[f"w1_{width}"], width) for width, _ in BRANCHES]
        self._lock = threading.Lock()
        capacity = limits.EMBEDDER_ROWS
        self._rows: F32 = np.zeros((capacity + 1, _ROW), np.float32)  # the first one is the empty place
        self._facts: F32 = np.zeros((capacity + 1, 4), np.float32)  # sum, sum of squares, scale, low
        self._slots: npt.NDArray[np.int32] = np.full(len(model.table), -1, np.int32)
        self._holders: I64 = np.full(capacity + 1, -1, np.int64)  # the piece of each row
        self._used = 1

    def take(self, batch: _Batch) -> tuple[F32, F32, npt.NDArray[np.uint8]]:
        """The rows of the whole line, and of each piece its facts and its numbers as they are kept."""
        line = np.zeros(batch.length, np.int64)
        with self._lock:
            slots = self._found(batch.numbers)
            line[batch.places] = slots
            return self._rows.take(line, 0), self._facts.take(slots, 0), self._model.table.take(batch.numbers, 0)

    def _found(self, numbers: I64) -> npt.NDArray[np.int32]:
        slots = self._slots[numbers]
        while slots.min() < 0:  # again, where making some pushed out others of these
            self._fill(sorted({*numbers[slots < 0].tolist()}))
            slots = self._slots[numbers]
        return slots

    def _fill(self, pieces: list[int]) -> None:
        at = self._room(len(pieces))
        numbers = np.array([*pieces, *(pieces[-1:] * (-len(pieces) % _FILL))])  # by fours: the last one again
        shards = numbers % SHARDS
        scale, low = self._model.scale.take(shards), self._model.low.take(shards)
        embedded = self._model.table.take(numbers, 0) * scale[:, None]
        embedded += low[:, None]
        x = _in_fours(embedded, self._projection)
        x += self._projection_bias
        x -= np.add.reduce(x, 1, keepdims=True) / x.shape[1]  # one layernorm over all three branches
        x /= np.sqrt(_squares(x) / x.shape[1] + self._epsilon)[:, None]
        x *= self._gain
        x += self._bias
        made, facts, column = self._rows[at], self._facts[at], 0
        for branch, (width, _) in enumerate(BRANCHES):
            part = np.ascontiguousarray(x[:, branch * _CHANNELS : (branch + 1) * _CHANNELS])
            made[:, column : column + width * _CHANNELS] = _in_fours(part, self._first[branch])[: len(made)]
            column += width * _CHANNELS
        made[:, _FIRST:] = x[: len(made)]
        for place, fact in enumerate((np.add.reduce(embedded, 1), _squares(embedded), scale, low)):
            facts[:, place] = fact[: len(made)]
        self._holders[at] = pieces
        self._slots[pieces] = np.arange(at.start, at.stop)

    def _room(self, count: int) -> slice:
        """Rows for so many: those of the oldest, where none is free."""
        if self._used + count > len(self._rows):
            self._used = 1
        at = slice(self._used, self._used + count)
        self._slots[[piece for piece in self._holders[at].tolist() if piece >= 0]] = -1
        self._used = at.stop
        return at


def _side_by_side(weights: F32, width: int) -> F32:
    """The products of all places of a convolution at once: 256 × (width · 256)."""
    places = weights.reshape(width, _CHANNELS, _CHANNELS).transpose(1, 0, 2)
    return np.ascontiguousarray(places.reshape(_CHANNELS, width * _CHANNELS))


class _Convolution:
    """Both convolutions: the first one out of rows, the second one as a product for each branch."""

    def __init__(self, model: Model) -> None:
        self._first_bias, self._second_bias = _joined(model, "b1_"), _joined(model, "b2_")
        self._second = [np.ascontiguousarray(model.weights[f"w2_{width}"]) for width, _ in BRANCHES]

    def encode(self, rows: F32, batch: _Batch) -> F32:
        line = self._added(rows, batch)
        out = np.empty((len(batch.numbers), _HIDDEN), np.float32)
        for branch, (width, left) in enumerate(BRANCHES):
            at = branch * _CHANNELS
            shape = (batch.length - width + 1, width, _CHANNELS)
            step = _FLOAT * _HIDDEN
            windows: F32 = np.ndarray(shape, np.float32, line, _FLOAT * at, (step, step, _FLOAT))
            seen = windows[batch.places - left].reshape(-1, width * _CHANNELS)
            np.matmul(seen, self._second[branch], out=out[:, at : at + _CHANNELS])
        out += self._second_bias
        np.maximum(out, 0, out=out)
        out += line[batch.places]
        return out

    def _added(self, rows: F32, batch: _Batch) -> F32:
        """After the first convolution: at each place the sum of the neighbours' parts, and its own residual."""
        line = np.zeros((batch.length, _HIDDEN), np.float32)
        inner = batch.length - 2 * _PAD
        core = line[_PAD : _PAD + inner]
        column = 0
        for branch, (width, left) in enumerate(BRANCHES):
            start = _FLOAT * ((_PAD - left) * _ROW + column)
            steps = (_FLOAT * _ROW, _FLOAT * (_ROW + _CHANNELS), _FLOAT)  # one row further is one part further
            parts: F32 = np.ndarray((inner, width, _CHANNELS), np.float32, rows, start, steps)
            np.add.reduce(parts, 1, out=core[:, branch * _CHANNELS : (branch + 1) * _CHANNELS])
            column += width * _CHANNELS
        core += self._first_bias
        np.maximum(core, 0, out=core)
        core += rows[_PAD : _PAD + inner, _FIRST:]
        if len(batch.sizes) > 1:
            gaps = np.array(batch.starts[1:]) + np.arange(_PAD, _PAD * len(batch.sizes), _PAD)
            line[gaps] = 0
            line[gaps + 1] = 0
        return line


class _Head:
    """From the pieces of a text to its vector."""

    def __init__(self, model: Model, projection: F32 | None) -> None:
        weights = model.weights
        self._projection = projection
        self.dims = WIDTH if projection is None else projection.shape[1]
        self._epsilon = float(weights["eps"].item())
        dense = np.concatenate([weights["d0"], weights["p1"]], 1)
        self._out: F32 = np.ascontiguousarray((weights["ln_g"][:, None] * weights["cnn_W"]) @ dense)
        self._out_sum: F32 = self._out.sum(0)
        self._out_bias: F32 = (weights["ln_b"] @ weights["cnn_W"] + weights["cnn_b"]) @ dense
        self._d1 = np.ascontiguousarray(weights["d1"])
        self._d2 = np.concatenate([weights["d2"], weights["p3"]], 1)
        self._d3 = np.ascontiguousarray(weights["d3"])

    def encode(self, seen: _Seen, groups: list[int] | F32) -> F32:
        """A vector for each group of pieces: runs, by where each begins, or any, as rows of 1 and 0 [groups, pieces]."""
        pooled, centre, count = self._pooled(seen, groups)
        x = _product(pooled, self._out)
        x -= centre[:, None] * self._out_sum
        x += count[:, None] * self._out_bias
        x /= np.sqrt(count)[:, None]
        bent, straight = _halves(x)
        x = np.maximum(_product(np.maximum(bent, 0), self._d1) + straight, 0)
        bent, straight = _halves(_product(x, self._d2))
        x = np.tanh(_product(np.maximum(bent, 0), self._d3) + straight)
        if self._projection is not None:
            x = _product(x, self._projection)
        x /= np.sqrt(np.maximum(_squares(x), 1e-12))[:, None]
        return x

    def _pooled(self, seen: _Seen, groups: list[int] | F32) -> tuple[F32, F32, F32]:
        """The sum over the pieces of each group, each divided by its deviation; what the means add up to; how many."""
        width = WIDTH + _HIDDEN
        total, square, scale, low = seen.facts.T
        mean = (total + seen.hidden.sum(1)) / width
        inverse = 1.0 / np.sqrt((square + _squares(seen.hidden)) / width - mean * mean + self._epsilon)
        whole, factors = seen.embedded.astype(np.float32), inverse * scale
        pooled = np.empty((len(groups), width), np.float32)
        if isinstance(groups, np.ndarray):
            np.matmul(groups * factors, whole, out=pooled[:, :WIDTH])
            np.matmul(groups * inverse, seen.hidden, out=pooled[:, WIDTH:])
            pooled[:, :WIDTH] += (groups @ (inverse * low))[:, None]
            return pooled, groups @ (inverse * mean), groups.sum(1)
        ends = [*groups[1:], len(whole)]
        for row, start, stop in zip(pooled, groups, ends, strict=True):
            np.matmul(factors[start:stop], whole[start:stop], out=row[:WIDTH])
            np.matmul(inverse[start:stop], seen.hidden[start:stop], out=row[WIDTH:])
        pooled[:, :WIDTH] += np.add.reduceat(inverse * low, groups)[:, None]
        return pooled, np.add.reduceat(inverse * mean, groups), np.subtract(ends, groups).astype(np.float32)


def _squares(rows: F32) -> F32:
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def _halves(x: F32) -> tuple[F32, F32]:
    middle = x.shape[1] // 2
    return x[:, :middle], x[:, middle:]


def _in_fours(rows: F32, weights: F32) -> F32:
    """Their product, four at a time: more at once would have other digits."""
    out = np.empty((len(rows), weights.shape[1]), np.float32)
    for at in range(0, len(rows), _FILL):
        np.matmul(rows[at : at + _FILL], weights, out=out[at : at + _FILL])
    return out


def _product(rows: F32, weights: F32) -> F32:
    if len(rows) > _FEW:
        return _by_fours(rows, weights)
    out = np.empty((len(rows), weights.shape[1]), np.float32)
    if len(rows) == 1:
        np.matmul(rows[0], weights, out=out[0])
        return out
    width = max(1, _KEPT // (_FLOAT * len(weights)) // _ABREAST) * _ABREAST
    for at in range(0, weights.shape[1], width):  # some columns at a time, which the next row finds in the cache
        some = weights[:, at : at + width]
        for row, made in zip(rows, out, strict=True):
            np.matmul(row, some, out=made[at : at + width])
    return out


def _by_fours(rows: F32, weights: F32) -> F32:
    """Their product, with empty rows to a whole number of fours."""
    if odd := -len(rows) % _EVEN:
        rows = np.concatenate((rows, np.zeros((odd, rows.shape[1]), np.float32)))
    return np.asarray((rows @ weights)[: len(rows) - odd])
