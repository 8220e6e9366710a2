"""Elements that ``read_affine`` copies to results of other data types, and places that are too far away."""

from __future__ import annotations

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


@pytest.mark.parametrize("interpolation", ["linear", "cubic"])
def test_places_that_cannot_be_interpolated(interpolation: Any) -> None:
    data, way = np.arange(1.0, 9.0).reshape(4, 2), {"boundary": 9, "shape": (2, 1)}
    with pytest.raises(gzarr.ArgumentError, match=r"beyond 2\*\*62"):
        gzarr.read_affine(data, np.diag([5e18, 1]), interpolation=interpolation, **way)
    nearest = gzarr.read_affine(data, np.diag([5e18, 1]), interpolation="nearest", **way)
    assert nearest.tolist() == [[1], [9]]
    # If all of them are beyond the ends, nothing is.
    assert (gzarr.read_affine(data, SAME, offset=5e18, interpolation=interpolation, **way) == 9).all()
