"""Accepted selections, the errors for all others, and the views through which results are placed."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest

from gzarr.errors import SelectionError
from gzarr.metadata.chunk_grid import ChunkGrid
from gzarr.plan.selection import Selection, parse_basic, parse_blocks, parse_orthogonal, parse_points

SHAPE = (6, 7, 8)
ARRAY = np.arange(6 * 7 * 8).reshape(SHAPE)


class Three:
    """An object with ``__index__``."""

    def __index__(self) -> int:
        return 3


class Level(enum.IntEnum):
    TWO = 2


class Column:
    """An object that NumPy can convert to an array."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array([1, 5, 0])


class Stubborn:
    """An array that is not in host memory."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("call .get() first")


def fill(selection: Selection, out: Any) -> Any:
    """Place the selected elements of ARRAY through the view, like an engine, and return ``out``."""
    view = selection.view(out)
    assert view is not None
    if selection.points is not None:
        view[...] = ARRAY[tuple(selection.points.T)].reshape(selection.result_shape)
        return out
    axes = []
    for d in range(3):
        indices = None if selection.indices is None else selection.indices[d]
        if indices is None:
            indices = selection.start[d] + selection.step[d] * np.arange(selection.count[d])
        axes.append(indices)
    view[...] = ARRAY[np.ix_(*axes)]
    return out


@pytest.mark.parametrize(
    "selection",
    [
        Three(),
        Level.TWO,
        np.int8(-3),
        np.uint64(4),
        np.array(2),
        np.array(2, np.uint8),
        (np.array(1), slice(np.int16(1), np.array(5)), Three()),
        (slice(None, None, -2), 3, slice(100, -100, -3)),
        (None, 2, ..., None, -1),
        (..., 3, slice(1, 10**400)),
        (slice(-(10**400), None, 10**400), 0, 0),
        (),
        ...,
        (1, 2, 3),
        [1, 3, 5],
        [[0, 1], [2, 3]],
        [],
        [[]],
        (slice(1, 3), ((2, 2),)),
        range(1, 6, 2),
        Column(),
        np.array([5, 1], np.uint64),
        (slice(None), np.array([6, 0, -7], np.int8), 2),
        (0, slice(None), [1, 0]),
        ([1, 0], slice(2, 4), 3),
        (0, ..., [[1, 0], [2, 2]]),
        (slice(None), 2, None, [[1, 0, 7]]),
        (ARRAY[:, 0, 0] > 100),
        (slice(None), ARRAY[0, :, 0] % 3 == 0, slice(6, 1, -2)),
        (ARRAY[0] % 5 == 0, 3)[::-1],
        (..., ARRAY[:, :, 0] % 5 == 0, 2),
        ([1, 2], [3, 4], [-1, 0]),
        ([[1], [2]], 4, [0, 5, 7]),
        (None, [1, 2], [3, 4], None, 5),
        ARRAY % 7 == 0,
        np.zeros(SHAPE, bool),
    ],
)
@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_results_and_their_views(selection: Any, order: str) -> None:
    parsed = parse_basic(selection, SHAPE)
    expected = ARRAY[selection]
    assert parsed.result_shape == np.shape(expected)
    if order == "strided":
        every_other = (slice(None, None, 2),) * len(parsed.result_shape)
        out = np.full(tuple(2 * n for n in parsed.result_shape), -1)[(*every_other, ...)]
    else:
        out = np.full(parsed.result_shape, -1, order=order)  # type: ignore[call-overload]
    joined = parsed.block is not None and parsed.block[1] > 1
    if joined and order != "C" and parsed.view(out) is None:
        return
    np.testing.assert_array_equal(fill(parsed, out), expected)


def test_no_view_where_axes_cannot_be_joined() -> None:
    parsed = parse_basic(([[0, 1], [2, 3]], 1), SHAPE)
    assert parsed.view(np.empty((2, 2, 8), order="F")) is None
    assert parsed.view(np.empty((2, 4, 8))[:, :2]) is None
    # Strides within the joined axes decide, not those of the others.
    wide = np.empty((2, 2, 16))[:, :, ::2]
    view = parsed.view(wide)
    assert view is not None
    assert view.shape == (4, 1, 8)
    assert np.shares_memory(view, wide)


def test_a_zero_dimensional_result_is_viewed_as_an_array() -> None:
    out = np.empty((), object)
    view = parse_basic((1, 2, 3), SHAPE).view(out)
    assert view is not None
    assert view.shape == (1, 1, 1)
    out = np.empty((1, 1), object)
    view = parse_basic((None, ..., None), ()).view(out)
    assert isinstance(view, np.ndarray)
    assert view.shape == ()
    view[...] = "x"
    assert out[0, 0] == "x"


def test_even_index_arrays_are_slices() -> None:
    parsed = parse_basic(np.arange(1, 6, 2), SHAPE)
    assert parsed.indices is None
    assert (parsed.start[0], parsed.step[0], parsed.count[0]) == (1, 2, 3)
    for uneven in ([5, 3, 1], [1, 1, 1], [0, 1, 3], [0, 3, 2, 3]):
        parsed = parse_basic(uneven, SHAPE)
        assert parsed.indices is not None
        np.testing.assert_array_equal(parsed.indices[0], uneven)


def test_a_selection_does_not_follow_the_callers_array() -> None:
    rows = np.array([5, 0, 3])
    parsed = parse_basic(rows, SHAPE)
    rows[:] = 1000
    assert parsed.indices is not None
    np.testing.assert_array_equal(parsed.indices[0], [5, 0, 3])


BASIC_ERRORS: list[tuple[Any, str]] = [
    (6, r"index 6 is out of bounds for axis 0 with size 6 \(selection \[6\] of an array of shape \(6, 7, 8\)\)"),
    ((0, -8), "index -8 is out of bounds for axis 1 with size 7"),
    ((slice(2, 4), 7, ...), r"selection \[2:4, 7, \.\.\.\]"),
    (10**5000, "out of bounds"),
    ((0, 0, 0, 0), "too many indices: 4"),
    ((0, ..., 0, ...), "single ellipsis"),
    (slice(None, None, 0), "zero"),
    (slice(1.5, None), "slice indices"),
    (slice("a"), "slice indices"),
    (1.0, "float"),
    (np.float64(1), "float"),
    (np.timedelta64(1), "timedelta64"),
    (np.timedelta64("NaT"), "timedelta64"),
    (np.array(1, "m8[s]"), "timedelta64"),
    ("field", "str"),
    (b"x", "bytes"),
    (True, "boolean"),
    (np.True_, "boolean"),
    (np.array(True), "boolean"),
    ((0, False), "boolean"),
    ([0.5, 1], "float64"),
    (np.array([]), "float64"),
    (["a"], "integer or boolean"),
    ([[1, 2], [3]], "index array"),
    ({"a": 1}, "integer or boolean"),
    (object(), "integer or boolean"),
    (Stubborn(), r"call \.get\(\) first"),
    ([0, 6], "index 6 is out of bounds for axis 0"),
    ((slice(None), [0, -8]), "index -8 is out of bounds for axis 1"),
    (np.array([2**64 - 1], np.uint64), "18446744073709551615 is out of bounds"),
    ([True, False], r"mask of shape \(2,\).*dimensions of shape \(6,\)"),
    (np.ones((6, 8), bool), r"mask of shape \(6, 8\).*dimensions of shape \(6, 7\)"),
    (np.ones((6, 7, 8, 1), bool), "too many indices: 4"),
    ((..., np.ones((6, 7), bool)), r"dimensions of shape \(7, 8\)"),
    (([0, 1], [0, 1]), "oindex.*vindex"),
    (np.ones((6, 7), bool), "oindex.*vindex"),
    (([0, 1], [0, 1, 2], 0), "do not broadcast"),
    (np.zeros((3, 3, 3), int) + 9, r"array of int64, shape \(3, 3, 3\)"),
]


@pytest.mark.parametrize(("selection", "message"), BASIC_ERRORS, ids=lambda value: str(type(value).__name__))
def test_wrong_basic_selections(selection: Any, message: str) -> None:
    with pytest.raises(SelectionError, match=message) as caught:
        parse_basic(selection, SHAPE)
    assert "(6, 7, 8)" in str(caught.value)
    assert isinstance(caught.value, IndexError)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (None, "newaxis"),
        (([0, 1], None), "newaxis"),
        ([[0, 1]], "one-dimensional"),
        (np.ones((6, 7), bool), "one-dimensional"),
        ((0, 7), "out of bounds for axis 1"),
        (([0], [1], [2], [3]), "too many"),
        ((..., ...), "ellipsis"),
        (True, "boolean"),
        (slice(0, 1, 0), "zero"),
        ((0, np.ones(3, bool)), "mask"),
        (([0], np.timedelta64(1, "s")), "timedelta64"),
    ],
)
def test_wrong_orthogonal_selections(selection: Any, message: str) -> None:
    with pytest.raises(SelectionError, match=message) as caught:
        parse_orthogonal(selection, SHAPE)
    assert "(6, 7, 8)" in str(caught.value)


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ([0, 1], "per dimension: 3, not 1"),
        (([0], [1], slice(None)), "no slices"),
        (([0], [1], ...), "no slices"),
        (([0], [1], [2], None), "no slices"),
        (([0], [1], [8]), "index 8 is out of bounds for axis 2"),
        ((0, -8, 0), "index -8 is out of bounds for axis 1"),
        (([0, 1], [1, 2, 3], 0), "do not broadcast"),
        (np.ones((6, 7), bool), "per dimension: 3, not 2"),
        (np.ones((6, 7, 7), bool), "mask"),
        ((np.zeros((10**6, 1), int), np.zeros(10**6, int), 0), "points"),
        ((0, 0, np.timedelta64(1, "s")), "timedelta64"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_wrong_point_selections(selection: Any, message: str) -> None:
    with pytest.raises(SelectionError, match=message):
        parse_points(selection, SHAPE)


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (3, "block 3 is out of bounds for axis 0 with 3 blocks"),
        ((0, -4), "block -4 is out of bounds for axis 1 with 3 blocks"),
        (slice(None, None, 2), "step 1"),
        (slice(None, None, -1), "step 1"),
        ([0, 1], "integers and slices"),
        (None, "integers and slices"),
        ((0, 0, 0, 0), "too many"),
        (0.5, "float"),
        (np.timedelta64(1, "s"), "timedelta64"),
    ],
)
def test_wrong_block_selections(selection: Any, message: str) -> None:
    with pytest.raises(SelectionError, match=message):
        parse_blocks(selection, ChunkGrid.regular(SHAPE, (2, 3, 4)))


def test_zero_dimensions() -> None:
    for parse in (parse_basic, parse_orthogonal, parse_points):
        assert parse((), ()).result_shape == ()
    assert parse_basic(..., ()).result_shape == ()
    assert parse_basic(None, ()).result_shape == (1,)
    assert parse_blocks((), ChunkGrid.regular((), ())).result_shape == ()
    for wrong in (0, slice(None), [0]):
        with pytest.raises(SelectionError, match="too many indices: 1 for an array with 0 dimensions"):
            parse_basic(wrong, ())
