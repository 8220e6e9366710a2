"""Downsampling of blocks, beside brute force over single cells and TensorStore."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorstore as ts
from hypothesis import given, settings
from hypothesis import strategies as st
from support import devices

from gzarr.errors import ArgumentError
from gzarr.ome.writing.downsample import METHODS, cells_of, check_method, downsample_into
from gzarr.ome.writing.gaussian import smoothed_box, weights

if TYPE_CHECKING:
    from support.devices import TestedDevice

INTEGERS = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8")
FLOATS = ("f2", "f4", "f8")
CASES = [(m, t) for m in METHODS for t in ("?", *INTEGERS, *FLOATS) if not (m == "mode" and t in FLOATS)]
SHAPES = [
    ((7,), (2,)),
    ((6, 5), (2, 2)),
    ((1, 1, 1), (2, 2, 2)),
    ((5, 4, 9), (1, 2, 2)),
    ((5, 6, 7), (3, 2, 5)),
    ((2, 3, 5, 6, 3), (1, 1, 2, 2, 2)),
    ((2, 6, 5, 3), (1, 2, 2, 1)),
    ((3, 4, 2), (1, 1, 1)),
]


def values(dtype: str, shape: tuple[int, ...], method: str, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return elements of all magnitudes; few different ones for the mode, so that some are frequent."""
    rng = np.random.default_rng(seed)
    if dtype == "?":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in FLOATS:
        return (rng.standard_normal(shape) * 100).astype(dtype)
    info = np.iinfo(dtype)
    if method == "mode":
        few = np.array([info.min, info.max, 0, 7], dtype)
        return rng.choice(few, shape)
    return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def of_cell(cell: np.ndarray[Any, Any], method: str, factors: tuple[int, ...]) -> Any:
    """Return the result for one cell."""
    if method == "mean":
        if cell.dtype.kind == "f":
            return cell.mean(dtype=np.float64)
        return round(Fraction(sum(map(int, cell.flat)), cell.size))
    if method == "max":
        return cell.max()
    if method == "mode":
        found, counts = np.unique(cell, return_counts=True)
        return found[counts.argmax()]
    return cell[tuple(min((f - 1) // 2, n - 1) for f, n in zip(factors, cell.shape, strict=True))]


def by_cells(source: np.ndarray[Any, Any], factors: tuple[int, ...], method: str) -> np.ndarray[Any, Any]:
    result = np.empty(cells_of(source.shape, factors), source.dtype)
    for place in np.ndindex(*result.shape):
        cell = source[tuple(slice(i * f, (i + 1) * f) for i, f in zip(place, factors, strict=True))]
        result[place] = of_cell(cell, method, factors)
    return result


def check(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    assert found.dtype == expected.dtype
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol={2: 1e-3, 4: 1e-6, 8: 1e-12}[found.itemsize], atol=1e-12)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("method", "dtype"), CASES)
def test_blocks_on_the_cpu(method: str, dtype: str) -> None:
    for shape, factors in SHAPES:
        source = values(dtype, shape, method)
        expected = by_cells(source, factors, method)
        result = np.full(expected.shape, 85).astype(dtype)
        downsample_into(source, result, factors, method)
        check(result, expected)


@pytest.mark.parametrize(("method", "dtype"), CASES)
@pytest.mark.parametrize("device", devices.KINDS[1:], indirect=True)
def test_blocks_on_a_device(method: str, dtype: str, device: TestedDevice) -> None:
    for shape, factors in SHAPES:
        source = values(dtype, shape, method)
        expected = by_cells(source, factors, method)
        result = device.array(np.full(expected.shape, 85).astype(dtype))
        downsample_into(device.array(source), result, factors, method)
        check(result.get(), expected)


@pytest.mark.parametrize(("method", "dtype"), [(m, t) for m, t in CASES if t in ("u1", "i2", "u4", "f4")])
def test_views_of_any_strides(method: str, dtype: str) -> None:
    source = values(dtype, (14, 20, 18), method)
    for view in (source[::2, 1:, ::-1], source.T, source[:, ::3, 2:9]):
        expected = by_cells(view, (2, 2, 2), method)
        memory = np.zeros(tuple(2 * n for n in expected.shape), dtype)
        for result in (memory[: len(expected), 1::2, ::2], memory[::2, : expected.shape[1], 3 : 3 + expected.shape[2]]):
            memory[...] = 1
            downsample_into(view, result, (2, 2, 2), method)
            check(np.ascontiguousarray(result), expected)
            result[...] = 1
            assert (memory == 1).all()


@pytest.mark.parametrize(("method", "dtype"), [(m, t) for m, t in CASES if t[1:] in ("1", "2", "4") and t != "f2"])
def test_like_tensorstore(method: str, dtype: str) -> None:
    source = values(dtype, (33, 50, 71), method)
    factors = (2, 2, 2) if method == "nearest" else (2, 3, 2)
    result = np.empty(cells_of(source.shape, factors), dtype)
    downsample_into(source, result, factors, method)
    name = {"nearest": "stride"}.get(method, method)
    expected = ts.downsample(ts.array(source), list(factors), name).read().result()
    # TensorStore adds floats of 32 bits up as such.
    if dtype == "f4" and method == "mean":
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    else:
        np.testing.assert_array_equal(result, expected)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_block(data: st.DataObject) -> None:
    method, dtype = data.draw(st.sampled_from(CASES))
    ndim = data.draw(st.integers(1, 5))
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=ndim, max_size=ndim)))
    factors = tuple(data.draw(st.lists(st.integers(1, 4), min_size=ndim, max_size=ndim)))
    source = values(dtype, shape, method, data.draw(st.integers(0, 99)))
    result = np.empty(cells_of(shape, factors), dtype)
    downsample_into(source, result, factors, method)
    check(result, by_cells(source, factors, method))


def test_means_of_integers_neither_overflow_nor_lose_digits(device: TestedDevice) -> None:
    for dtype in INTEGERS:
        info = np.iinfo(dtype)
        for many in (info.max, info.min, info.max - 1):
            # On a device, each element of a cell is a launch.
            long = 4096 if not device.is_cuda else 300 if info.bits == 8 else 20
            for length in (8, 12, long):
                result = device.array(np.zeros((1,), dtype))
                downsample_into(device.array(np.full((length,), many, dtype)), result, (length,), "mean")
                assert device.to_numpy(result).tolist() == [many], (dtype, length)


@pytest.mark.parametrize("method", ["mean", "max"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_nan_spreads_and_infinity_is_infinite(method: str, dtype: str, device: TestedDevice) -> None:
    source = np.zeros((4, 8), dtype)
    source[0, 1] = source[3, 3] = np.nan
    source[1, 4] = np.inf
    expected = np.zeros((2, 4), dtype)
    expected[0, 0] = expected[1, 1] = np.nan
    expected[0, 2] = np.inf
    result = device.array(np.zeros_like(expected))
    downsample_into(device.array(source), result, (2, 2), method)
    np.testing.assert_array_equal(device.to_numpy(result), expected)


def test_a_byte_order_that_is_not_the_machines() -> None:
    source = np.arange(24, dtype=">u2").reshape(4, 6)
    result = np.zeros((2, 3), ">u2")
    downsample_into(source, result, (2, 2), "mean")
    np.testing.assert_array_equal(result, by_cells(source, (2, 2), "mean"))


def test_bad_methods_and_types() -> None:
    with pytest.raises(ArgumentError, match="method must be one of mean, max, mode, nearest, gaussian"):
        check_method("median", np.dtype("u1"))
    with pytest.raises(ArgumentError, match="labels, which are integers, not float32"):
        check_method("mode", np.dtype("f4"))
    with pytest.raises(ArgumentError, match="complex64 cannot be downsampled"):
        check_method("mean", np.dtype("c8"))
    with pytest.raises(ArgumentError, match="not exact enough for uint64"):
        check_method("gaussian", np.dtype("u8"))


def smoothed(source: np.ndarray[Any, Any], factors: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return all cells of an array, each from its own sum of weighted elements."""
    taps = [weights(f) for f in factors]
    result = np.empty(cells_of(source.shape, factors))
    for place in np.ndindex(*result.shape):
        total = weight = 0.0
        for around in itertools.product(*taps):
            where = tuple(i * f + t[0] for i, f, t in zip(place, factors, around, strict=True))
            if all(0 <= p < n for p, n in zip(where, source.shape, strict=True)):
                own = math.prod(t[1] for t in around)
                total += own * float(source[where])
                weight += own
        result[place] = total / weight
    return np.rint(result).astype(source.dtype) if source.dtype.kind in "iu" else result.astype(source.dtype)


@pytest.mark.parametrize("dtype", ["u1", "i2", "u4", "f4", "f8"])
def test_gaussian(dtype: str, device: TestedDevice) -> None:
    for shape, factors in SHAPES[:6]:
        source = values(dtype, shape, "gaussian")
        cells = cells_of(shape, factors)
        expected = smoothed(source, factors)
        everything = tuple(slice(0, n) for n in cells)
        part = tuple(slice(n // 3, -(-3 * n // 4)) for n in cells)
        for box in (everything, part):
            found = device.to_numpy(smoothed_box(device.array(source), box, factors))
            assert found.dtype == source.dtype
            if dtype in FLOATS:
                np.testing.assert_allclose(found, expected[box], rtol=1e-4, atol=1e-3)
            else:
                # Sums in another order may differ in the last digit, and round to the other neighbour.
                error = np.abs(found.astype(float) - expected[box].astype(float))
                assert error.max(initial=0) <= 1
                assert (error > 0).mean() < 0.02


def test_weights_are_those_of_a_normal_distribution() -> None:
    (a, one), (b, two), (c, three), (d, four) = weights(2)
    assert (a, b, c, d) == (-1, 0, 1, 2)
    assert one == four
    assert two == three
    # Full width at half maximum of a pixel: √(2² − 1) of those of the level before.
    sigma = math.sqrt(3) / 2.3548200450309493
    assert two / one == pytest.approx(math.exp((1.5**2 - 0.5**2) / (2 * sigma**2)))
    assert weights(1) == [(0, 1.0)]
