"""What blocks are given beside their own elements: halos by side, boundaries by axis, and what pads the last ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.blocks import Block, Output
from gzarr.errors import ArgumentError
from gzarr.windows.boundary import MODES, folded
from gzarr.windows.runs import runs

Array = np.ndarray[Any, Any]
BOUNDARIES: list[Any] = ["symmetric", "reflect", "edge", "wrap", 7, -3]


def elements(shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(2).integers(0, 1000, shape).astype("i4")


def stored(data: Array, chunks: Any, **options: Any) -> gzarr.Array:
    return gzarr.create_array({}, data=data, chunks=chunks, device="cpu", **options)


def padded(data: Array, halos: Any, boundaries: Any) -> Array:
    """Pad an array with NumPy, along one axis after the other."""
    for d, (halo, boundary) in enumerate(zip(halos, boundaries, strict=True)):
        widths = [halo if axis == d else (0, 0) for axis in range(data.ndim)]
        if isinstance(boundary, str):
            data = np.pad(data, widths, boundary)
        else:
            data = np.pad(data, widths, constant_values=boundary)
    return data


def highest(halos: Any) -> Any:
    """Return a function that gives the highest element of those around each one, and drops the halo."""
    size = tuple(before + after + 1 for before, after in halos)

    def function(x: Array) -> Array:
        found: Array = np.lib.stride_tricks.sliding_window_view(x, size).max(axis=tuple(range(-x.ndim, 0)))
        return found

    return function


@settings(max_examples=150)
@given(drawn=st.data())
def test_it_is_what_numpy_pads_with(drawn: st.DataObject) -> None:
    ndim = drawn.draw(st.integers(1, 3))
    draw = lambda low, high: tuple(drawn.draw(st.integers(low, high)) for _ in range(ndim))  # noqa: E731
    shape, chunks, own_chunks = draw(1, 12), draw(1, 6), draw(1, 6)
    halos = tuple(zip(draw(0, 4), draw(0, 4), strict=True))
    boundaries = [drawn.draw(st.sampled_from(BOUNDARIES)) for _ in range(ndim)]
    block = tuple(c * n for c, n in zip(own_chunks, draw(1, 3), strict=True))
    pad_blocks, budget_bytes = drawn.draw(st.booleans()), drawn.draw(st.sampled_from([1, 500, 1 << 20]))
    data = elements(shape)
    out = gzarr.create_array({}, shape=shape, chunks=own_chunks, dtype="i4", device="cpu")
    shapes = set()
    function = highest(halos)

    def recording(x: Array) -> Array:
        shapes.add(x.shape)
        found: Array = function(x)
        return found

    gzarr.map_blocks(
        recording, stored(data, chunks), out=out, halo=halos, boundary=boundaries, pad_blocks=pad_blocks, block=block,
        budget_bytes=budget_bytes,
    )  # fmt: skip
    np.testing.assert_array_equal(out[...], function(padded(data, halos, boundaries)))
    if pad_blocks:
        assert shapes == {tuple(n + before + after for n, (before, after) in zip(block, halos, strict=True))}


@settings(max_examples=200)
@given(st.integers(1, 6), st.integers(-30, 30), st.integers(0, 40), st.sampled_from(MODES))
def test_runs_are_what_stands_at_each_place(size: int, begin: int, length: int, mode: Any) -> None:
    along = runs(begin, begin + length, size, mode)
    there = folded(np.arange(begin, begin + length), size, mode).tolist()
    for each, expected in (along, there), ([run.turned(length) for run in reversed(along)], there[::-1]):
        found: list[int] = []
        for run in each:
            assert run.first is not None
            assert run.begin == len(found) < run.end
            found += [run.first + run.step * i for i in range(run.end - run.begin)]
        assert found == expected


@pytest.mark.parametrize(("mode", "size"), [("edge", 12), *((mode, 1) for mode in MODES)])
def test_one_element_that_is_repeated_is_one_run(mode: Any, size: int) -> None:
    assert len(runs(-(10**12), 10**12, size, mode)) == 3


def test_long_halos() -> None:
    data = elements((3, 40))

    def check(x: Array) -> Array:
        assert x.shape == (3 + 2 * 250, 40)
        assert (x[:250] == data[:1]).all()
        assert (x[-250:] == data[-1:]).all()
        return x

    # A block is always held, and so is its halo, unless it is far longer than the array.
    found = gzarr.map_blocks(
        check, stored(data, (2, 40)), block=(3, 40), halo=(250, 0), boundary="edge", budget_bytes=1
    )
    np.testing.assert_array_equal(found, data)


def test_one_pair_is_for_all_axes() -> None:
    halos = set()

    def record(x: Array, block_info: Block) -> Array:
        halos.add(block_info.halo)
        return x

    data = elements((6, 6))
    np.testing.assert_array_equal(gzarr.map_blocks(record, stored(data, 3), halo=[(2, 1)], block=3), data)
    assert halos == {((2, 1), (2, 1))}


def test_a_boundary_of_none_is_for_its_axis() -> None:
    shapes = set()

    def record(x: Array, block_info: Block) -> Array:
        shapes.add((block_info.index, x.shape))
        return x

    data = elements((4, 4))
    found = gzarr.map_blocks(record, stored(data, 2), halo=1, boundary=[None, "wrap"], block=2)
    np.testing.assert_array_equal(found, data)
    assert shapes == {((i, j), (3, 4)) for i in range(2) for j in range(2)}


@pytest.mark.parametrize("given", ["whole", "padded", "cut"])
@pytest.mark.parametrize("scale", [1, 2, 0.5])
def test_results_of_padded_blocks(given: str, scale: float) -> None:
    """They may have the halo, or only the padding, or neither."""
    data = elements((10, 14))
    up, down = (2, 1) if scale == 2 else (1, 2) if scale == 0.5 else (1, 1)
    halo = [(2, 4), (0, 2)]

    def scaled(x: Array, block_info: Block) -> Array:
        x = np.repeat(np.repeat(x, up, 0), up, 1)[::down, ::down]
        if given == "whole":
            return x
        (top, _), (left, _) = [(before * up // down, after) for before, after in block_info.halo]
        length = 8 * up // down
        x = x[top : top + length, left : left + length]
        return x if given == "padded" else x[: block_info.shape[0], : block_info.shape[1]]

    found = gzarr.map_blocks(
        scaled, stored(data, 4), halo=halo, scale=scale, pad_blocks=True, block=8 * up // down, boundary="edge"
    )
    np.testing.assert_array_equal(found, np.repeat(np.repeat(data, up, 0), up, 1)[::down, ::down])


def test_blocks_longer_than_the_array_are_padded_to_their_length() -> None:
    shapes = set()

    def record(x: Array) -> Array:
        shapes.add(x.shape)
        return x + 1

    data = elements((5, 7))
    found = gzarr.map_blocks(record, stored(data, 4), pad_blocks=True, block=(16, -1))
    np.testing.assert_array_equal(found, data + 1)
    assert shapes == {(16, 7)}


def test_uneven_chunks_are_padded_to_the_longest() -> None:
    shapes = set()

    def record(x: Array) -> Array:
        shapes.add(x.shape)
        return x

    data = elements((32,))
    out = gzarr.create_array({}, shape=32, chunks=[[10, 16, 6]], dtype="i4", device="cpu")
    gzarr.map_blocks(record, stored(data, 8), out=out, pad_blocks=True, block=10, boundary=0)
    np.testing.assert_array_equal(out[...], data)
    assert shapes == {(16,)}


def test_several_outputs_of_padded_blocks() -> None:
    data = elements((10, 6))
    half, sums = gzarr.map_blocks(
        lambda x: (x[::2, ::2], x[:, :6].sum(axis=1)),
        stored(data, (4, 6)),
        out=[Output(scale=0.5), Output(drop_axis=1)],
        pad_blocks=True,
        block=(2, -1),
    )
    np.testing.assert_array_equal(half, data[::2, ::2])
    np.testing.assert_array_equal(sums, data.sum(axis=1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"halo": [(1, 2, 3)]}, "halo must be whole numbers of elements, at least 0, or pairs"),
        ({"halo": [(1, -2), (0, 0)]}, "halo must be"),
        ({"halo": [(1, 2), (1, 2), (1, 2)]}, "one for each of 2 axes"),
        ({"halo": [1, [2, "a"]]}, "halo must be"),
        ({"boundary": ["edge"]}, "one for each of 2 axes"),
        ({"boundary": ["edge", "mirror"]}, r"what SciPy calls 'mirror' is 'reflect'"),
        ({"boundary": [1e300, "edge"], "halo": 1}, "which cannot hold boundary=1e"),
        ({"pad_blocks": True, "boundary": ["edge", None]}, "pad_blocks=True needs a boundary"),
    ],
)
def test_arguments_that_are_wrong(arguments: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        gzarr.map_blocks(lambda x: x, stored(elements((4, 4)), 2), **arguments)


def test_a_result_of_another_shape_is_refused_with_those_that_would_do() -> None:
    with pytest.raises(ArgumentError, match=r"expected \(2,\) or, padded, \(4,\) or, with the halo, \(6,\)"):
        gzarr.map_blocks(
            lambda x: x[:3] if x[1] else x, stored(np.array([0, 0, 0, 0, 9, 9], "i4"), 4), halo=1, pad_blocks=True,
            block=4, overlap=False,
        )  # fmt: skip


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_arrays_without_dimensions_are_numbers(library: str) -> None:
    new = np.array if library == "numpy" else pytest.importorskip("torch").tensor
    source = stored(elements((9, 7)), 3)
    total = lambda x: x + x.sum()  # noqa: E731
    for own, plain in (
        ({"halo": new(1), "block": new(3)}, {"halo": 1, "block": 3}),
        ({"halo": new([[1, 0], [0, 2]]), "block": new([3, 2])}, {"halo": [(1, 0), (0, 2)], "block": [3, 2]}),
        ({"halo": 1, "boundary": new(5)}, {"halo": 1, "boundary": 5}),
        ({"scale": new(1), "block": {}}, {"block": "auto"}),
    ):
        np.testing.assert_array_equal(gzarr.map_blocks(total, source, **own), gzarr.map_blocks(total, source, **plain))
    for wrong in ({"halo": new(1.5)}, {"halo": new(True)}, {"block": new(2.5)}, {"halo": new([1.5, 1])}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            gzarr.map_blocks(total, source, **wrong)
