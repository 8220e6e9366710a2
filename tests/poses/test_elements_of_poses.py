"""Elements that ``read_affine`` copies to results of other data types, and places that are too far away."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.poses.host import converted

SAME = np.eye(2)
ONE = np.array([[300, -5], [7, 70000]])


@pytest.mark.parametrize("interpolation", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i4", "u8"])
def test_integers_are_cut(interpolation: Any, dtype: str) -> None:
    info = np.iinfo(dtype)
    found = gzarr.read_affine(ONE, SAME, dtype=dtype, interpolation=interpolation)
    assert found.tolist() == [[min(max(n, info.min), info.max) for n in row] for row in ONE.tolist()]
    # Beyond the ends, where nothing is read.
    outside = gzarr.read_affine(ONE, SAME, offset=100, boundary=-300, dtype=dtype, interpolation=interpolation)
    assert (outside == min(max(-300, info.min), info.max)).all()


def test_integers_of_all_sizes_are_cut() -> None:
    integers = [np.dtype(kind + size) for kind in "iu" for size in "1248"]
    for source in integers:
        info = np.iinfo(source)
        values = [info.min, info.min + 1, 0, 1, info.max - 1, info.max]
        for target in integers:
            least, most = np.iinfo(target).min, np.iinfo(target).max
            found = converted(np.array(values, source), target)
            assert found.dtype == target
            assert found.tolist() == [min(max(n, least), most) for n in values]


def test_an_output_of_the_caller() -> None:
    out = np.zeros((1, 1), "i1")
    gzarr.read_affine(np.array([[200]], "u1"), SAME, out=out)
    assert out.item() == 127
    # Big-endian floats are computed as others are.
    data = np.random.default_rng(0).random((4, 5))
    way: dict[str, Any] = {"offset": [0.25, 0.5], "boundary": "edge"}
    for dtype in (">f8", ">f4"):
        big = gzarr.read_affine(data, SAME, out=np.zeros((4, 5), dtype), **way)
        np.testing.assert_array_equal(big, gzarr.read_affine(data, SAME, dtype=dtype[1:], **way))


@pytest.mark.parametrize(
    ("data", "dtype"),
    [(np.array([[2j]]), "f4"), (np.array([["abc"]]), "U1"), (np.array([[b"ab"]]), "S1")],
    ids=["complex", "U", "S"],
)
def test_results_without_a_part_of_elements(data: np.ndarray, dtype: str) -> None:
    with pytest.raises(gzarr.ArgumentError, match="lacks a part of them"):
        gzarr.read_affine(data, SAME, dtype=dtype, interpolation="nearest")
    whole = gzarr.read_affine(data, SAME, dtype=data.dtype, interpolation="nearest")
    assert whole.tolist() == data.tolist()


@pytest.mark.parametrize("interpolation", ["nearest", "linear", "cubic"])
def test_places_far_beyond_the_ends(interpolation: Any) -> None:
    data = np.arange(1.0, 9.0).reshape(4, 2)
    for far in (5e18, 1e19, 1e300):
        for step, first in ((far, 1), (-far, 7)):
            way: dict[str, Any] = {
                "offset": [0.0 if step > 0 else 3.0, 0],
                "shape": (2, 1),
                "interpolation": interpolation,
            }
            found = gzarr.read_affine(data, np.diag([step, 1]), boundary=9, **way)
            np.testing.assert_allclose(found, [[first], [9]], rtol=1e-14)
            found = gzarr.read_affine(data, np.diag([step, 1]), boundary="edge", **way)
            np.testing.assert_allclose(found, [[first], [8 - first]], rtol=1e-14)
        # If all of them are beyond the ends, nothing is read.
        assert (gzarr.read_affine(data, SAME, offset=far, interpolation=interpolation, boundary=9) == 9).all()
    # The sum of two numbers beyond float64 is none.
    with pytest.raises(gzarr.ArgumentError, match="beyond the range of float64"):
        gzarr.read_affine(
            data, [[1e308, -1e308], [0, 1]], shape=(9, 9), interpolation=interpolation, boundary="edge"
        )  # fmt: skip


def weighted(data: np.ndarray, matrix: Any, offset: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return the sums of the neighbours that have a weight, of places inside of an array."""
    found = np.empty(shape)
    for index in np.ndindex(*shape):
        place = np.array(matrix) @ index + offset
        before = np.floor(place).astype(int)
        total = 0.0
        for corner in itertools.product((0, 1), repeat=data.ndim):
            weight = np.prod(np.where(corner, place - before, 1 - (place - before)))
            if weight:
                with np.errstate(invalid="ignore"):
                    total += weight * float(data[tuple(before + corner)])
        found[index] = total
    return found


LARGE = float(np.finfo("f8").max)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("k", [2, 3])
def test_elements_without_differences(k: int, dtype: str) -> None:
    """Infinite ones, what is no number, and those whose difference is beyond float64."""
    rng = np.random.default_rng(k)
    data = rng.integers(-9, 9, (7,) * k).astype(dtype)
    for value in (np.nan, np.inf, -np.inf, np.inf):
        data[tuple(rng.integers(0, 7, k))] = value
    if dtype == "f8":
        data[rng.random(data.shape) < 0.2] = LARGE / 2**k
        data[rng.random(data.shape) < 0.2] = -LARGE
    for step in (1.0, 0.5, 0.25):
        matrix, n = np.eye(k) * step, int(5 / step)
        for offset in (0.25, [0.5, *(0,) * (k - 1)], 0.5):
            wanted = weighted(data, matrix, offset, (n,) * k)
            found = gzarr.read_affine(data, matrix, offset=offset, shape=(n,) * k)
            np.testing.assert_allclose(found, wanted, rtol=1e-15, atol=1e-15 * LARGE if dtype == "f8" else 0)
            # Whatever lies around it.
            for d in range(k):
                shape = tuple(1 if axis == d else n for axis in range(k))
                one = gzarr.read_affine(data, matrix, offset=offset, shape=shape)
                np.testing.assert_array_equal(one, np.take(found, [0], d))


@pytest.mark.parametrize("dtype", ["u2", "f4", "f8"])
@pytest.mark.parametrize("k", [2, 3])
def test_a_place_has_one_value(k: int, dtype: str) -> None:
    """Whether its neighbours are the last ones of what is read or not: of a plane, nothing else is read."""
    rng = np.random.default_rng(3)
    data = (rng.random((9,) * k) * 1000).astype(dtype)
    matrix = np.eye(k)
    matrix[1:, 1:] = np.linalg.qr(rng.normal(size=(k - 1, k - 1)))[0] * 0.7
    offset = np.array([2.0, *4 - matrix[1:, 1:] @ np.full(k - 1, 2.5)])
    way: dict[str, Any] = {"dtype": "f8", "boundary": "edge"}
    whole = gzarr.read_affine(data, matrix, offset=offset, shape=(6,) * k, **way)
    for i in range(6):
        offset[0] = 2 + i
        plane = gzarr.read_affine(data, matrix, offset=offset, shape=(1, *(6,) * (k - 1)), **way)
        np.testing.assert_array_equal(plane[0], whole[i])


def test_what_is_hardly_below_the_first_element() -> None:
    """Its distance from the one before is 1 by rounding: of that one, there is no part."""
    data = np.array([[5.0, 1], [7, 2]])
    for boundary in (1e300, np.nan, np.inf):
        found = gzarr.read_affine(data, SAME, offset=[-1e-20, 0.5], shape=(2, 1), boundary=boundary)
        np.testing.assert_array_equal(found, [[3], [4.5]])
