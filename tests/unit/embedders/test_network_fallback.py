"""The compiled layers equal their fallback to the last digit, and reject invalid indexes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from support.sentence_model import model
from waypost.embedders import network_fallback, use_model
from waypost.embedders.use_model import Arrays

network = pytest.importorskip("waypost.search.kernels.use_network")

_KEPT = 60  # rows: few, so that some make room for others


@cache
def layers() -> Arrays:
    return use_model.quantize_layers(model(), use_model.load_projection(use_model.NETWORK))


def made(kind: Any, arrays: Arrays | None = None) -> Any:
    rows = np.zeros((_KEPT + 1, use_model.ROW), np.int16)
    return kind.UseLayers(layers() if arrays is None else arrays, model().table, model().scale, model().low, rows)


def lines(seed: int, most: int) -> tuple[np.ndarray[Any, np.dtype[np.int64]], list[int]]:
    dice = random.Random(seed)
    sizes = [dice.randint(2, 9) for _ in range(dice.randint(1, most))]
    common = [dice.randrange(3, 128_000) for _ in range(20)]
    return np.array([dice.choice(common) for _ in range(sum(sizes))]), sizes


def groups_of(sizes: list[int]) -> list[tuple[int, int, int, int]]:
    ends = np.cumsum(sizes).tolist()
    whole_ones = [(end - size, end - size + 1, end - 1, end - 1) for end, size in zip(ends, sizes, strict=True)]
    return [*whole_ones, (0, 1, 1, sizes[0] - 1), (0, 1, 2, sizes[0] - 1)]


@pytest.fixture(params=[2, 1, 0], ids=["wide products", "quick products", "plain products"])
def products(request: pytest.FixtureRequest) -> Iterator[None]:
    network.limit_instructions(request.param)
    yield
    network.limit_instructions(2)


@pytest.mark.usefixtures("products")
def test_every_stage_of_a_pass_equals_the_fallback_bit_for_bit() -> None:
    quick, plain = made(network), made(network_fallback)
    for seed in range(25):
        numbers, sizes = lines(seed, 3)
        line, wanted_line = quick.first_convolution(numbers, sizes), plain.first_convolution(numbers, sizes)
        assert np.array_equal(line, wanted_line)
        hidden, wanted_hidden = quick.second_convolution(line, sizes), plain.second_convolution(line, sizes)
        assert np.array_equal(hidden, wanted_hidden)
        groups = groups_of(sizes)
        assert np.array_equal(quick.pool(numbers, hidden, groups), plain.pool(numbers, hidden, groups))


@pytest.mark.usefixtures("products")
@pytest.mark.parametrize("size", range(1, 15))
def test_texts_of_any_length_equal_the_fallback_bit_for_bit(size: int) -> None:
    line = np.random.default_rng(size).normal(size=(size, use_model.HIDDEN)).astype(np.float32)
    assert np.array_equal(
        made(network).second_convolution(line, [size]), made(network_fallback).second_convolution(line, [size])
    )


@pytest.mark.usefixtures("products")
def test_rows_equal_the_fallback_bit_for_bit_despite_evictions() -> None:
    quick, plain, fresh = made(network), made(network_fallback), made(network)
    numbers, sizes = np.array([1, 77, 900, 900, 12, 5, 2]), [3, 4]
    wanted = fresh.first_convolution(numbers, sizes)
    for each in (quick, plain):
        each.first_convolution(numbers[:3], [3])  # some are kept already
        assert all(
            np.array_equal(*pair) for pair in zip(each.token_rows(numbers), fresh.token_rows(numbers), strict=True)
        )
        for start in range(100, 400, _KEPT // 2):
            each.first_convolution(np.arange(start, start + _KEPT // 2), [_KEPT // 2])
        assert np.array_equal(each.first_convolution(numbers, sizes), wanted)
        with pytest.raises(IndexError):
            each.token_rows(np.array([2**40]))


def test_a_network_without_a_projection_equals_the_fallback_bit_for_bit() -> None:
    arrays = {name: array for name, array in layers().items() if not name.startswith("carry.")}
    quick, plain = made(network, arrays), made(network_fallback, arrays)
    hidden = np.random.default_rng(1).normal(size=(5, use_model.HIDDEN)).astype(np.float32)
    given = np.arange(5, 10), hidden, [(0, 1, 4, 4), (0, 1, 2, 4)]
    assert np.array_equal(quick.pool(*given), plain.pool(*given))
    assert quick.dims == plain.dims == 512


def test_the_last_bend_is_the_hyperbolic_tangent() -> None:
    x = np.linspace(-12, 12, 100_001, dtype=np.float32)
    assert np.abs(network_fallback.tanh(x, layers()) - np.tanh(x.astype(np.float64))).max() < 5e-7


def test_nothing_in_is_nothing_out() -> None:
    none = np.empty(0, np.int64)
    for each in (made(network), made(network_fallback)):
        hidden = each.second_convolution(each.first_convolution(none, [0]), [0])
        assert each.pool(none, hidden, []).shape == (0, use_model.DIMS)


def test_numbers_that_overflow_a_sum_do_not_exist() -> None:
    for name in layers():
        if name.endswith(".numbers"):
            numbers = use_model.quantized_layer(layers(), name.removesuffix(".numbers")).numbers.astype(np.int64)
            most = use_model.BYTE if name.startswith("project") else use_model.MAX_INPUT
            assert np.abs(numbers).sum(1).max() * most < 2**31, name


def test_packed_columns_are_found_again() -> None:
    numbers = np.arange(32 * 48, dtype=np.int16).reshape(32, 48)
    arrays = {"some.numbers": use_model.pack_panels(numbers), "some.steps": np.ones(32, np.float32)}
    assert np.array_equal(use_model.quantized_layer(arrays, "some").numbers, numbers)


@pytest.mark.parametrize("kind", [network, network_fallback])
def test_a_piece_a_row_or_a_place_that_is_not_there_is_refused(kind: Any) -> None:
    each = made(kind)
    numbers = np.array([1, 5, 2])
    line = each.first_convolution(numbers, [3])
    for bad in ([-1], [len(model().table)], [2**40]):
        with pytest.raises(IndexError):
            each.first_convolution(np.array(bad), [1])
        with pytest.raises(IndexError):
            each.pool(np.array(bad), line[:1], [(0, 0, 0, 0)])
    for sizes in ([2], [4], [-1, 4], [2**40]):
        with pytest.raises(IndexError):
            each.first_convolution(numbers, sizes)
        with pytest.raises(IndexError):
            each.second_convolution(line, sizes)
    for group in ((0, 1, 4, 2), (3, 1, 2, 2), (0, 2, 1, 2), (0, -1, 2, 2), (0, 1, 2, 3)):
        with pytest.raises(IndexError):
            each.pool(numbers, line, [group])
    with pytest.raises(IndexError):
        each.pool(numbers[:2], line, [(0, 1, 1, 1)])
    with pytest.raises(ValueError, match="at once"):
        each.first_convolution(np.arange(_KEPT), [_KEPT])


@pytest.mark.parametrize(
    "name", ["project.numbers", "second5.steps", "gain", "first.bias", "d2.numbers", "carry.numbers"]
)
def test_layers_of_another_shape_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="shape"):
        made(network, {**layers(), name: layers()[name][:-16].copy()})


def test_means_equal_the_fallback_bit_for_bit_and_refuse_bad_indices() -> None:
    noise = np.random.default_rng(2)
    codes, scales = noise.integers(-127, 128, (128_000, 256), np.int8), noise.random(128_000, np.float32)
    quick, plain = (kind.TokenSums(codes, scales) for kind in (network, network_fallback))
    for seed in range(40):
        numbers, _ = lines(seed, 5)
        runs = [(0, len(numbers)), (0, 0), (1, 2), (len(numbers) // 2, len(numbers))]
        assert np.array_equal(quick.sum_runs(numbers, runs), plain.sum_runs(numbers, runs))
    for each in (quick, plain):
        for bad, run in (([-1], (0, 1)), ([2**40], (0, 1)), ([5], (0, 2)), ([5], (-1, 1)), ([5], (1, 0))):
            with pytest.raises(IndexError):
                each.sum_runs(np.array(bad), [run])
