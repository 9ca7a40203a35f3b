"""The compiled kernels of `waypost.compiled.order` give what their twins give."""

from __future__ import annotations

import numpy as np
import pytest

from waypost.search import fusion, plain_order
from waypost.search.candidates import Signals
from waypost.search.fusion import Names, Weights

order = pytest.importorskip("waypost.compiled.order", reason="the kernels are not compiled here")

ROWS = np.zeros(1, dtype=np.uint32)
WRITTEN = np.frombuffer("agentä€".encode(), dtype=np.uint8)


def some_signals(noise: np.random.Generator, count: int, units: int, names: Names) -> Signals:
    def column(most: float = 1.0) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        return (noise.random((count, units)) * most).astype(np.float32)

    spaces = [name for name in names if name is not None]
    flags = noise.random((3, count)) < 0.3
    skills = noise.random(count) * (noise.random(count) < noise.choice([0.0, 0.4]))
    return Signals(
        place=np.zeros(count, dtype=np.int64),
        rows=np.arange(count, dtype=np.uint32),
        mark=noise.integers(0, 2**63, count).astype(np.uint64),
        deprecated=flags[0],
        worth=np.ones(count, dtype=np.float32),
        updated=noise.random(count),
        language=np.zeros(count, dtype=np.uint8),
        lexical=column(40.0),
        coverage=column(),
        centres={name: column() - np.float32(0.2) for name in spaces},
        examples={name: column() - np.float32(0.2) for name in spaces},
        covered=dict.fromkeys(spaces, ~flags[1]),
        skills=skills.astype(np.float32),
        tags=column()[:, 0].copy(),
        preferred=column()[:, 0].copy(),
    )


@pytest.mark.parametrize("names", [Names("network", "static"), Names("network"), Names(None, "static"), Names()])
@pytest.mark.parametrize("seed", range(40))
def test_signals_are_weighed_alike_to_the_last_digit(seed: int, names: Names) -> None:
    noise = np.random.default_rng(seed)
    count = (0, 1, 5, 200)[seed % 4]
    signals = some_signals(noise, count, 1 + seed % 5, names)
    weights = Weights() if seed % 2 else Weights(skills=0.3, clauses=0.7, lexical=1 / 3)
    given = (signals, names, weights, float(noise.choice([0.0, 7.7, 123.4])), noise.random(count) < 0.3)
    assert order.fused(*given).tobytes() == fusion.fused(*given).tobytes()


def test_signals_of_unlike_length_are_refused() -> None:
    signals = some_signals(np.random.default_rng(1), 5, 2, Names("network"))
    short = signals._replace(examples={"network": signals.examples["network"][:4]})
    with pytest.raises(ValueError, match="as many"):
        order.fused(short, Names("network"), Weights(), 1.0, np.zeros(5, dtype=np.bool_))


@pytest.mark.parametrize("seed", range(100))
def test_the_same_candidates_are_chosen(seed: int) -> None:
    noise = np.random.default_rng(seed)
    sizes = [int(size) for size in noise.choice([0, 1, 5, 60, 300], 1 + seed % 3)]
    marks = [noise.integers(0, 2**63, size).astype(np.uint64) for size in sizes]
    signals = []
    for _ in range(seed % 5):
        rows = [noise.permutation(size)[: noise.integers(0, size + 1)].astype(np.uint32) for size in sizes]
        figures = [noise.random(len(some)).round(int(noise.choice([1, 9]))).astype(np.float32) for some in rows]
        signals.append(([*zip(rows, figures, strict=True)], int(noise.choice([1, 30, 64, 1000]))))
    assert order.chosen(signals, marks) == plain_order.chosen(signals, marks)


def test_candidates_that_are_not_there_are_refused() -> None:
    marks, figures = [np.zeros(3, dtype=np.uint64)], np.zeros(1, dtype=np.float32)
    with pytest.raises(IndexError):
        order.chosen([([(np.array([3], dtype=np.uint32), figures)], 9)], marks)
    with pytest.raises(ValueError, match="as many"):
        order.chosen([([(np.zeros(2, dtype=np.uint32), figures)], 9)], marks)
    with pytest.raises(ValueError, match="as many"):
        order.chosen([([], 9)], marks)


@pytest.mark.parametrize("seed", range(100))
def test_candidates_stand_in_the_same_order_to_the_last_digit(seed: int) -> None:
    noise = np.random.default_rng(seed)
    count = (0, 1, 2, 8, 9, 130, 400, 1300)[seed % 8]
    scores = np.where(noise.random(count) < 0.3, 0.5, noise.random(count).round(seed % 11))
    worth = noise.choice([1.0, 0.8, 1 / 3], count).astype(np.float32)
    deprecated = (noise.random(count) < 0.2).astype(np.uint8)
    marks = noise.integers(0, noise.choice([3, 2**63]), count).astype(np.uint64)
    given = (scores, worth, deprecated, marks, 0.5, 1e9)
    assert order.ordered(*given) == plain_order.ordered(*given)


@pytest.mark.parametrize("seed", range(40))
def test_figures_become_the_same_scores_to_the_last_digit(seed: int) -> None:
    noise = np.random.default_rng(seed)
    count = (0, 1, 7, 300)[seed % 4]
    figures = (noise.random(count) * noise.choice([0.3, 1.0, 100.0])).astype(np.float32)
    lift = (noise.integers(0, 3, count) * 1.5).astype(np.float32)
    updated = noise.choice([0.0, 1.7e9, 1.9e9, -1e300], count) + noise.random(count) * 1e7
    for given in ((figures, lift, 0.32, 0.04), (-figures, lift, 0.2, 0.04)):
        assert order.logistic(*given) == plain_order.logistic(*given)
    faded = (figures, updated, 1.78e9, 182 * 86_400.0, 0.01)
    assert order.faded(*faded) == plain_order.faded(*faded)


def test_texts_are_read_by_their_rows() -> None:
    starts, rows = np.array([0, 5, 5, 7, 10]), np.array([3, 0, 1, 2, 0], dtype=np.uint32)
    for kernel in (order.texts, plain_order.texts):
        assert kernel(WRITTEN, starts, rows) == ["€", "agent", "", "ä", "agent"]
        assert kernel(WRITTEN, starts, rows[:0]) == []


@pytest.mark.parametrize("starts", [[0], [0, 11], [-1, 3], [5, 2], [2**62, 2**62 + 1]])
def test_a_text_that_is_not_there_is_refused(starts: list[int]) -> None:
    with pytest.raises(IndexError):
        order.texts(WRITTEN, np.array(starts), ROWS)


def test_half_a_letter_is_no_text() -> None:
    for kernel in (order.texts, plain_order.texts):
        with pytest.raises(UnicodeDecodeError):
            kernel(WRITTEN, np.array([0, 6]), ROWS)


def test_columns_of_unlike_length_are_refused() -> None:
    few, marks = np.zeros(2, dtype=np.float32), np.zeros(3, dtype=np.uint64)
    with pytest.raises(ValueError, match="as many"):
        order.ordered(np.zeros(3), few, np.zeros(3, dtype=np.uint8), marks, 0.5, 1e9)
