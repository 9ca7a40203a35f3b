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
from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from waypost import limits
from waypost.embedders.copies import Arrays
from waypost.embedders.package import Model
from waypost.embedders.tokenizer import BEGIN, END
from waypost.embedders.whole import ROW, layers_of

try:
    from waypost.compiled.network import Layers
except ImportError:
    from waypost.embedders.plain_network import Layers  # type: ignore[assignment]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
I16 = npt.NDArray[np.int16]
Group = tuple[int, int, int, int]
"""Pieces that make one vector: where their text begins, a run of it from and to, where it ends."""


class Network:
    """May be used by several threads; only the memory of rows is entered one by one."""

    def __init__(self, model: Model, projection: F32 | None = None, layers: Arrays | None = None) -> None:
        """Without a projection [512, dims], vectors have the 512 numbers that the network was trained to give. `layers` as
        `layers_of` makes them, where they were kept."""
        found = layers_of(model, projection) if layers is None else layers
        self._layers = Layers(found, model.table, model.scale, model.low, _empty_rows(limits.EMBEDDER_ROWS + 1))
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[Sequence[int]]) -> F32:
        """One unit vector for each list of pieces, which must not be empty."""
        out = np.empty((len(texts), self._layers.dims), np.float32)
        lines = [_line(pieces) for pieces in texts]
        first = total = 0
        for at, line in enumerate(lines):
            if at > first and total + len(line) > limits.EMBEDDER_BATCH_PIECES:
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
            return self._layers.line(numbers, sizes)

    def _seen(self, line: F32, sizes: list[int]) -> F32:
        """The second convolution."""
        return self._layers.hidden(line, sizes)

    def _sentences(self, numbers: I64, hidden: F32, groups: Sequence[Group]) -> F32:
        """From the pieces of each group to its vector."""
        return self._layers.vectors(numbers, hidden, groups)


def _line(pieces: Sequence[int]) -> list[int]:
    return [BEGIN, *pieces[: limits.EMBEDDER_PIECES - 2], END]


def _empty_rows(count: int) -> I16:
    """Zeros that take memory as they are used, a little at a time: in large pages, which numpy asks for, one question in
    thirty would wait for one to be found and emptied."""
    if sys.platform != "linux":
        return np.zeros((count, ROW), np.int16)
    memory = mmap.mmap(-1, count * ROW * np.int16().nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a system without large pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.int16).reshape(count, ROW)
