"""The compiled kernels of `waypost.search.kernels.scoring` equal their fallbacks."""

from __future__ import annotations

import numpy as np
import pytest

from waypost.search.kernels import scoring_fallback
from waypost.search.ranking import scoring as fallback
from waypost.search.ranking.candidates import Signals
from waypost.search.ranking.scoring import ScoreCurve, SignalWeights, SpaceNames, curve_for, score_by_tags

scoring = pytest.importorskip("waypost.search.kernels.scoring", reason="the kernels are not compiled here")

ROWS = np.zeros(1, dtype=np.uint32)
WRITTEN = np.frombuffer("agentä€".encode(), dtype=np.uint8)


def some_signals(noise: np.random.Generator, count: int, units: int, names: SpaceNames) -> Signals:
    def column(most: float = 1.0) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        return (noise.random((count, units)) * most).astype(np.float32)

    spaces = [name for name in names if name is not None]
    flags = noise.random((3, count)) < 0.3
    skills = noise.random(count) * (noise.random(count) < noise.choice([0.0, 0.4]))
    return Signals(
        place=np.zeros(count, dtype=np.int64),
        rows=noise.permutation(count).astype(np.uint32),
        mark=noise.integers(0, 2**63, count).astype(np.uint64),
        deprecated=flags[0],
        worth=noise.choice([1.0, 0.8, 1 / 3], count).astype(np.float32),
        updated=noise.choice([0.0, 1.7e9, 1.9e9, -1e300], count) + noise.random(count) * 1e7,
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


@pytest.mark.parametrize(
    "names", [SpaceNames("network", "static"), SpaceNames("network"), SpaceNames(None, "static"), SpaceNames()]
)
@pytest.mark.parametrize("seed", range(40))
def test_signals_become_the_same_places_to_the_last_digit(seed: int, names: SpaceNames) -> None:
    noise = np.random.default_rng(seed)
    count = (0, 1, 5, 200)[seed % 4]
    signals = some_signals(noise, count, 1 + seed % 5, names)
    weights = SignalWeights() if seed % 2 else SignalWeights(skills=0.3, clauses=0.7, lexical=1 / 3)
    foreign, doubtful = [None if noise.random() < 0.3 else noise.random(count) < 0.3 for _ in range(2)]
    mass = float(noise.choice([0.0, 7.7, 123.4]))
    given = (signals, names, weights, mass, foreign, doubtful, 1.78e9, curve_for(names))
    assert scoring.rank_candidates(*given) == fallback.rank_candidates(*given)


@pytest.mark.parametrize("seed", range(60))
def test_scores_become_the_same_places_to_the_last_digit(seed: int) -> None:
    noise = np.random.default_rng(seed)
    count = (0, 1, 2, 8, 9, 130, 400, 1300)[seed % 8]
    scores = np.where(noise.random(count) < 0.3, 0.5, noise.random(count).round(seed % 11))
    marks = noise.integers(0, noise.choice([3, 2**63]), count).astype(np.uint64)
    signals = some_signals(noise, count, 1, SpaceNames())._replace(mark=marks)
    for given in (
        (scores, signals, ScoreCurve(0.2, 0.04)),
        (score_by_tags(signals.preferred), signals, ScoreCurve(0.2, 0.04)),
    ):
        assert scoring.rank_by_scores(*given) == fallback.rank_by_scores(*given)


@pytest.mark.parametrize("column", ["worth", "mark", "rows", "updated", "preferred", "tags", "deprecated"])
def test_signals_of_unlike_length_are_refused(column: str) -> None:
    signals = some_signals(np.random.default_rng(1), 5, 2, SpaceNames("network"))
    short = signals._replace(examples={"network": signals.examples["network"][:4]})
    for wrong in (short, signals._replace(**{column: getattr(signals, column)[:4]})):
        with pytest.raises(ValueError, match="differ in length"):
            scoring.rank_candidates(
                wrong, SpaceNames("network"), SignalWeights(), 1.0, None, None, 1.0, ScoreCurve(0.3, 0.04)
            )
    for flags in ((np.ones(4, dtype=np.bool_), None), (None, np.ones(4, dtype=np.bool_))):
        with pytest.raises(ValueError, match="differ in length"):
            scoring.rank_candidates(
                signals, SpaceNames("network"), SignalWeights(), 1.0, *flags, 1.0, ScoreCurve(0.3, 0.04)
            )


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
    assert scoring.select_rows(signals, marks) == scoring_fallback.select_rows(signals, marks)


def test_candidates_that_are_not_there_are_refused() -> None:
    marks, figures = [np.zeros(3, dtype=np.uint64)], np.zeros(1, dtype=np.float32)
    with pytest.raises(IndexError):
        scoring.select_rows([([(np.array([3], dtype=np.uint32), figures)], 9)], marks)
    with pytest.raises(ValueError, match="differ in length"):
        scoring.select_rows([([(np.zeros(2, dtype=np.uint32), figures)], 9)], marks)
    with pytest.raises(ValueError, match="differ in length"):
        scoring.select_rows([([], 9)], marks)


def test_places_are_called_by_the_ids_of_their_rows() -> None:
    starts, rows = np.array([0, 5, 5, 7, 10]), np.array([3, 0, 1, 2, 0], dtype=np.uint32)
    scores = np.array([0.03125, 0.12345678, 1.0, 0.0, 0.99999])
    for kernel in (scoring.read_ids, scoring_fallback.read_ids):
        shown = [0.0312, 0.1235, 1.0, 0.0, 1.0]
        assert kernel(WRITTEN, starts, rows, scores, range(5), 1e4) == (["€", "agent", "", "ä", "agent"], shown)
        assert kernel(WRITTEN, starts, rows, scores, [4, 0], 1e4) == (["agent", "€"], [1.0, 0.0312])
        assert kernel(WRITTEN, starts, rows, scores, [], 1e4) == ([], [])


def test_scores_are_shown_as_a_reader_writes_them() -> None:
    scores = np.random.default_rng(3).random(10_000)
    assert scoring_fallback.round_scores(scores, 1e4) == [round(score, 4) for score in scores.tolist()]


@pytest.mark.parametrize("starts", [[0], [0, 11], [-1, 3], [5, 2], [2**62, 2**62 + 1]])
def test_a_text_that_is_not_there_is_refused(starts: list[int]) -> None:
    with pytest.raises(IndexError):
        scoring.read_ids(WRITTEN, np.array(starts), ROWS, np.zeros(1), [0], 1e4)


@pytest.mark.parametrize("some", [[1], [-1]])
def test_a_place_that_is_not_there_is_refused(some: list[int]) -> None:
    with pytest.raises(IndexError):
        scoring.read_ids(WRITTEN, np.array([0, 5]), ROWS, np.zeros(1), some, 1e4)
    with pytest.raises(ValueError, match="differ in length"):
        scoring.read_ids(WRITTEN, np.array([0, 5]), ROWS, np.zeros(2), [0], 1e4)


def test_half_a_letter_is_no_text() -> None:
    for kernel in (scoring.read_ids, scoring_fallback.read_ids):
        with pytest.raises(UnicodeDecodeError):
            kernel(WRITTEN, np.array([0, 6]), ROWS, np.zeros(1), [0], 1e4)
