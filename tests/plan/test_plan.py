"""Selections and plans against NumPy and zarr-python: every plan is executed on an array in chunks in memory."""

from __future__ import annotations

import gc
import math
import sys
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices

from gzarr.engines.cpu.threads import place
from gzarr.errors import ArgumentError, SelectionError
from gzarr.metadata.chunk_grid import ChunkGrid
from gzarr.metadata.model import ChunkKeyEncoding
from gzarr.plan.planner import FEW_CHUNKS, Plan, chunk_keys, plan
from gzarr.plan.selection import Selection, parse_basic, parse_blocks, parse_orthogonal, parse_points

SETTINGS = settings(max_examples=80, deadline=None)


def check_columns(planned: Plan) -> None:
    """Check the properties of a plan that native code and the other layers rely on."""
    k = len(planned.chunk_shape)
    n, m = len(planned), len(planned.output)
    columns = {
        "chunks": (planned.chunks, (n, k)),
        "piece_offsets": (planned.piece_offsets, (n + 1,)),
        "start": (planned.start, (m, k)),
        "count": (planned.count, (m, k)),
        "target": (planned.target, (m, k)),
        "output": (planned.output, (m,)),
        "step": (planned.step, (k,)),
    }
    if planned.points is not None:
        columns["points.source"] = (planned.points.source, (len(planned.points.target), k))
        columns["points.target"] = (planned.points.target, (len(planned.points.target),))
    for d, table in enumerate(planned.tables):
        if table is not None:
            columns[f"source {d}"] = (table.source, table.target.shape)
            columns[f"target {d}"] = (table.target, table.source.shape)
            assert planned.step[d] == 1
    for name, (column, shape) in columns.items():
        assert column.dtype == np.int64, name
        assert column.flags.c_contiguous, name
        assert column.shape == shape, name
    assert planned.piece_offsets[0] == 0
    assert planned.piece_offsets[-1] == m
    assert (np.diff(planned.piece_offsets) >= 1).all()
    assert (planned.count >= 1).all()
    assert (planned.step >= 1).all()
    assert len(planned.tables) == k
    rows = list(map(tuple, planned.chunks.tolist()))
    assert rows == sorted(set(rows)), "each chunk once, in C order"


def carry_out(array: np.ndarray[Any, Any], selections: list[Selection], block: tuple[int, ...]) -> list[Any]:
    """Read selections of ``array``, divided into chunks of ``block``, like an engine."""
    planned = plan(selections, ChunkGrid.regular(array.shape, block))
    check_columns(planned)
    outputs, views = [], []
    for selection in selections:
        output = np.full(selection.result_shape, -1, array.dtype)
        view = selection.view(output)
        assert view is not None
        if selection.points is None:
            assert view.ndim == array.ndim
            assert view.shape == selection.count
        assert output.size == 0 or np.shares_memory(view, output)
        outputs.append(output)
        views.append(view)
    for i, coords in enumerate(planned.chunks.tolist()):
        chunk = np.full(block, -2, array.dtype)  # -2: the part of an edge chunk that lies beyond the array
        part = array[tuple(slice(c * b, (c + 1) * b) for c, b in zip(coords, block, strict=True))]
        assert part.size, "a chunk outside the array"
        chunk[tuple(slice(0, s) for s in part.shape)] = part
        place(chunk, planned, i, views)
    # As many writes as elements, and (seen when compared) none left out: each is written exactly once.
    if planned.points is not None:
        written = int(planned.count[:, 0].sum())
    else:
        written = sum(math.prod(row) for row in planned.count.tolist())
    assert written == sum(output.size for output in outputs)
    return outputs


def sample(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.arange(math.prod(shape), dtype=np.int32).reshape(shape)


@st.composite
def arrays_in_chunks(draw: st.DrawFn, min_ndim: int = 0, min_side: int = 0) -> tuple[Any, tuple[int, ...]]:
    shape = tuple(draw(st.lists(st.integers(min_side, 9), min_size=min_ndim, max_size=4)))
    block = tuple(draw(st.integers(1, 12 if draw(st.booleans()) else 3)) for _ in shape)
    return sample(shape), block


def slices(size: int) -> st.SearchStrategy[slice]:
    bound = st.none() | st.integers(-size - 2, size + 2)
    return st.builds(slice, bound, bound, st.none() | st.integers(1, size + 3) | st.integers(-size - 3, -1))


def index_arrays(size: int, ndim: int = 1) -> st.SearchStrategy[Any]:
    def of_shape(shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
        n = math.prod(shape)
        values = st.lists(st.integers(-size, size - 1), min_size=n, max_size=n) if size or n else st.nothing()
        return values.map(lambda v: np.array(v, np.int64).reshape(shape))

    side = st.integers(0, 6) if size else st.just(0)
    return st.tuples(*[side] * ndim).flatmap(of_shape)


def masks(shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    n = math.prod(shape)
    return st.lists(st.booleans(), min_size=n, max_size=n).map(lambda v: np.array(v, bool).reshape(shape))


def compare(got: Any, expected: Any) -> None:
    assert got.shape == np.shape(expected)
    np.testing.assert_array_equal(got, expected)


@SETTINGS
@given(st.data())
def test_basic_selections_mean_what_numpy_means(data: st.DataObject) -> None:
    array, block = data.draw(arrays_in_chunks())
    selection = data.draw(basic_indices(array.shape, allow_newaxis=True, allow_ellipsis=True))
    [got] = carry_out(array, [parse_basic(selection, array.shape)], block)
    compare(got, array[selection])


@SETTINGS
@given(st.data())
def test_one_index_array_or_mask_means_what_numpy_means(data: st.DataObject) -> None:
    array, block = data.draw(arrays_in_chunks(min_ndim=1))
    at = data.draw(st.integers(0, array.ndim - 1))
    entries: list[Any] = []
    for d, size in enumerate(array.shape):
        if d == at:
            arrays = index_arrays(size, data.draw(st.integers(1, 3)))
            entries.append(data.draw(arrays | masks((size,)) | index_arrays(size).map(np.ndarray.tolist)))
        else:
            entries.append(data.draw(slices(size) | st.integers(-size, size - 1) if size else slices(size)))
    if data.draw(st.booleans()):
        # An ellipsis for trailing or inner slices, or for no dimension at all, as NumPy lets it separate index arrays.
        i = data.draw(st.integers(0, len(entries)))
        j = i
        while j < len(entries) and j != at and isinstance(entries[j], slice) and data.draw(st.booleans()):
            j += 1
        if at not in range(i, j):
            entries[i:j] = [Ellipsis]
    for _ in range(data.draw(st.integers(0, 2))):
        entries.insert(data.draw(st.integers(0, len(entries))), None)
    selection = tuple(entries)
    [got] = carry_out(array, [parse_basic(selection, array.shape)], block)
    compare(got, array[selection])


@SETTINGS
@given(st.data())
def test_arrays_for_every_dimension_mean_points(data: st.DataObject) -> None:
    array, block = data.draw(arrays_in_chunks(min_ndim=2, min_side=1))
    shape = data.draw(st.sampled_from([(1,), (5,), (2, 3), (0,), (4, 1, 2)]))
    entries: list[Any] = []
    for size in array.shape:
        own = data.draw(st.sampled_from([shape, shape[1:], (1,) * len(shape)]))
        values = data.draw(st.lists(st.integers(-size, size - 1), min_size=math.prod(own), max_size=math.prod(own)))
        entries.append(np.array(values, np.int64).reshape(own) if own else values[0])
    for _ in range(data.draw(st.integers(0, 2))):
        entries.insert(data.draw(st.integers(0, len(entries))), data.draw(st.sampled_from([None, None, Ellipsis])))
    if sum(entry is Ellipsis for entry in entries) > 1:
        entries = [entry for entry in entries if entry is not Ellipsis]
    selection = tuple(entries)
    [got] = carry_out(array, [parse_basic(selection, array.shape)], block)
    compare(got, array[selection])
    points = tuple(np.asarray(entry) for entry in entries if entry is not None and entry is not Ellipsis)
    [got] = carry_out(array, [parse_points(points, array.shape)], block)
    compare(got, np.atleast_1d(array[points]))


@SETTINGS
@given(st.data())
def test_masks_of_the_whole_shape(data: st.DataObject) -> None:
    array, block = data.draw(arrays_in_chunks(min_ndim=1))
    mask = (
        data.draw(masks(array.shape))
        if array.size < 60
        else np.random.default_rng(array.size).random(array.shape) > 0.5
    )
    for parse in (parse_basic, parse_points):
        [got] = carry_out(array, [parse(mask, array.shape)], block)
        compare(got, array[mask])


@SETTINGS
@given(st.data())
def test_orthogonal_selections(data: st.DataObject) -> None:
    array, block = data.draw(arrays_in_chunks())
    entries: list[Any] = []
    for size in array.shape:
        choices: list[Any] = [slices(size), index_arrays(size), masks((size,))]
        if size:
            choices.append(st.integers(-size, size - 1))
        entries.append(data.draw(st.one_of(choices)))
    expected = array
    for d in reversed(range(array.ndim)):
        expected = expected[(slice(None),) * d + (entries[d],)]
    [got] = carry_out(array, [parse_orthogonal(tuple(entries), array.shape)], block)
    compare(got, expected)


@SETTINGS
@given(st.data())
def test_blocks(data: st.DataObject) -> None:
    array, block = data.draw(arrays_in_chunks())
    grid = [-(-size // b) for size, b in zip(array.shape, block, strict=True)]
    entries: list[Any] = []
    expected: list[slice] = []
    for n, b in zip(grid, block, strict=True):
        bound = st.none() | st.integers(-n - 2, n + 2)
        ints = [st.integers(-n, n - 1)] if n else []
        entry = data.draw(st.one_of(st.builds(slice, bound, bound, st.sampled_from([None, 1])), *ints))
        chosen = range(n)[entry] if isinstance(entry, slice) else [range(n)[entry]]
        entries.append(entry)
        expected.append(slice(chosen[0] * b, (chosen[-1] + 1) * b) if len(chosen) else slice(0, 0))
    [got] = carry_out(array, [parse_blocks(tuple(entries), ChunkGrid.regular(array.shape, block))], block)
    compare(got, array[tuple(expected)])


@SETTINGS
@given(st.data())
def test_many_windows_read_each_chunk_once(data: st.DataObject) -> None:
    array, block = data.draw(arrays_in_chunks())
    kind = data.draw(st.sampled_from(["slices", "any"]))
    windows: list[Any] = []
    for _ in range(data.draw(st.integers(0, 6))):
        window: list[Any] = []
        for size in array.shape:
            choices: list[Any] = [st.builds(slice, st.integers(0, size), st.integers(0, size))]
            if kind == "any":
                choices += [slices(size), index_arrays(size)]
            if size:
                choices.append(st.integers(-size, size - 1))
            window.append(data.draw(st.one_of(choices)))
        windows.append(tuple(window))
    parsed = [parse_orthogonal(window, array.shape) for window in windows]
    for window, got in zip(windows, carry_out(array, parsed, block), strict=True):
        [alone] = carry_out(array, [parse_orthogonal(window, array.shape)], block)
        compare(got, alone)
        if not any(isinstance(entry, np.ndarray) for entry in window):
            compare(got, array[window])


def test_many_windows_of_points() -> None:
    array = sample((7, 8))
    rng = np.random.default_rng(5)
    windows = [(rng.integers(-7, 7, n), rng.integers(-8, 8, n)) for n in (5, 0, 1, 40)]
    got = carry_out(array, [parse_points(window, array.shape) for window in windows], (2, 3))
    for window, result in zip(windows, got, strict=True):
        compare(result, array[window])


ORTHOGONAL = [
    (slice(None), [0, 2, 5]),
    ([4, 1, 1, -2], slice(2, 9, 3)),
    (np.array([True, False] * 4 + [True]), [9, -1]),
    (3, [5, 5]),
    (Ellipsis, -1),
    (slice(2, 5), slice(None)),
    (np.array([], int), [1, 2]),
    [0, 3],
    2,
    Ellipsis,
]


@pytest.fixture(scope="module")
def zarr_array() -> Any:
    array = zarr.create_array(zarr.storage.MemoryStore(), shape=(9, 10), chunks=(4, 3), dtype="i4")
    array[...] = sample((9, 10))
    return array


@pytest.mark.parametrize("selection", ORTHOGONAL, ids=str)
def test_oindex_agrees_with_zarr_python(zarr_array: Any, selection: Any) -> None:
    [got] = carry_out(sample((9, 10)), [parse_orthogonal(selection, (9, 10))], (4, 3))
    compare(got, zarr_array.oindex[selection])


@pytest.mark.parametrize(
    "selection",
    [
        ([0, 8, 3, 3], [9, 0, -1, 2]),
        (np.array([[1], [4]]), np.array([[0, 5, 9]])),
        (2, [1, 1, 0]),
        (1, 2),
        (np.array(1), np.array(2)),
        np.arange(90).reshape(9, 10) % 4 == 1,
    ],
)
def test_vindex_agrees_with_zarr_python(zarr_array: Any, selection: Any) -> None:
    [got] = carry_out(sample((9, 10)), [parse_points(selection, (9, 10))], (4, 3))
    compare(got, zarr_array.vindex[selection])


@pytest.mark.parametrize(
    "selection",
    [0, -1, (2, 3), (slice(1, 3), -2), (Ellipsis, 1), slice(None), (slice(-2, None), slice(1, -1))],
)
def test_blocks_agree_with_zarr_python(zarr_array: Any, selection: Any) -> None:
    [got] = carry_out(sample((9, 10)), [parse_blocks(selection, ChunkGrid.regular((9, 10), (4, 3)))], (4, 3))
    compare(got, zarr_array.blocks[selection])


@pytest.mark.parametrize("shape", [(3,), (3, 4)])
def test_no_chunk_shape_is_divided_by_zero(shape: tuple[int, ...]) -> None:
    empty = (0, *shape)
    array = np.empty(empty, np.int32)
    [got] = carry_out(array, [parse_basic(Ellipsis, empty)], (0, *shape))
    assert got.shape == empty


def test_both_planners_of_boxes_agree() -> None:
    # A box of few chunks is planned in plain Python, a larger one by NumPy: the same box through both.
    shape, block = (40, 41), (7, 5)
    for selection in [(slice(3, 30), 7), (slice(0, 20, 9), slice(3, 11, 2)), (slice(None, None, 11), slice(0, 4))]:
        parsed = parse_basic(selection, shape)
        few = plan([parsed], ChunkGrid.regular(shape, block))
        assert 1 < len(few) <= FEW_CHUNKS
        # A second, empty window keeps the plan in NumPy.
        many = plan([parsed, parse_basic((slice(0, 0), 0), shape)], ChunkGrid.regular(shape, block))
        for name in ("chunks", "piece_offsets", "start", "count", "target", "output"):
            np.testing.assert_array_equal(getattr(few, name), getattr(many, name), err_msg=name)


def test_wide_grids_are_sorted_without_overflow() -> None:
    shape = (2**62, 2**61, 2**62)
    first = parse_points(([2**62 - 1, 0, 2**62 - 1], [0, 2**61 - 1, 0], [5, 2**62 - 1, 6]), shape)
    planned = plan([first], ChunkGrid.regular(shape, (1, 1, 4)))
    check_columns(planned)
    assert planned.chunks.tolist() == [[0, 2**61 - 1, 2**60 - 1], [2**62 - 1, 0, 1]]
    assert planned.points is not None
    assert planned.points.target.tolist() == [1, 0, 2]
    windows = [parse_basic((slice(a, a + 2), b, 0), shape) for a, b in [(2**62 - 2, 3), (0, 2**61 - 1)]]
    planned = plan(windows, ChunkGrid.regular(shape, (2, 1, 1)))
    assert planned.chunks.tolist() == [[0, 2**61 - 1, 0], [2**61 - 1, 3, 0]]
    assert planned.output.tolist() == [1, 0]


def test_a_plan_that_cannot_be_held_is_refused_at_once() -> None:
    for shape, block in [((2**40,), (1,)), ((2**20, 2**20), (1, 1)), ((2**16, 2**16), (1, 1))]:
        with pytest.raises(SelectionError, match="too large"):
            plan([parse_basic(Ellipsis, shape)], ChunkGrid.regular(shape, block))
    with pytest.raises(SelectionError, match="64 bits"):
        plan([parse_basic(Ellipsis, (2**63,))], ChunkGrid.regular((2**63,), (10,)))
    # Nothing is planned for an empty window, however large its other dimensions are.
    shape = (5, 2**40)
    empty = parse_basic((slice(0, 0), slice(None, None, 2)), shape)
    assert len(plan([empty], ChunkGrid.regular(shape, (1, 1)))) == 0
    for other in ((0, 5), (0, slice(5, 7)), (0, [7, 5])):
        selection = parse_basic(other, shape)
        assert len(plan([empty, selection], ChunkGrid.regular(shape, (1, 1)))) == selection.count[1]


def test_points_are_not_mixed_with_boxes() -> None:
    with pytest.raises(ArgumentError, match="points"):
        plan([parse_points(([1], [1]), (4, 4)), parse_basic(0, (4, 4))], ChunkGrid.regular((4, 4), (2, 2)))


def python_calls(run: Any) -> int:
    calls = 0

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    # What the garbage collector calls is nobody's plan.
    gc.disable()
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


@pytest.mark.parametrize("kind", ["box", "rows", "points", "windows"])
def test_planning_takes_no_python_call_per_chunk(kind: str) -> None:
    def planned(side: int) -> tuple[int, int]:
        shape = (side * 4, 80)
        block = (4, 8)
        rng = np.random.default_rng(0)
        rows = np.concatenate([rng.permutation(shape[0]), [0]])
        if kind == "box":
            selections = [parse_basic((slice(None), slice(None)), shape)]
        elif kind == "rows":
            selections = [parse_basic(rows, shape)]
        elif kind == "points":
            selections = [parse_points((rows[:, None], np.arange(0, 80, 8)), shape)]
        else:
            selections = [parse_basic(slice(0, shape[0] // 2 + 3), shape), parse_basic(slice(2, None), shape)]
        result: list[Plan] = []
        calls = python_calls(lambda: result.append(plan(selections, ChunkGrid.regular(shape, block))))
        keys = python_calls(lambda: chunk_keys(ChunkKeyEncoding("default", "/"), "a/", result[0].chunks))
        return len(result[0]), calls + keys

    few, calls = planned(100)
    many, more_calls = planned(10_000)
    assert (few, many) == (1000, 100_000)
    assert calls == more_calls


@pytest.mark.parametrize("prefix", ["", "a/b/"])
@pytest.mark.parametrize("encoding", [ChunkKeyEncoding(n, s) for n in ("default", "v2") for s in ("/", ".")], ids=str)
def test_chunk_keys(encoding: ChunkKeyEncoding, prefix: str) -> None:
    rng = np.random.default_rng(1)
    cases = [
        np.empty((0, 2), np.int64),
        np.zeros((1, 0), np.int64),
        np.array([[3]]),
        np.argwhere(np.ones((4, 1, 5, 3), bool)),
        np.argwhere(np.ones((30, 1), bool)),
        np.argwhere(np.ones((1, 30), bool)),
        np.zeros((20, 2), np.int64),
        np.stack([rng.integers(0, 2**62, 50), np.full(50, 7), rng.integers(0, 300, 50)], axis=1),
    ]
    for chunks in cases:
        expected = [prefix + encoding.encode(tuple(row)) for row in chunks.tolist()]
        assert chunk_keys(encoding, prefix, chunks) == expected
