"""Results that overlap, blended: equal to the weighted means of the results of all blocks, computed at once."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.blocks import Block, Output
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from support.devices import TestedDevice

Array = np.ndarray[Any, Any]


def elements(shape: tuple[int, ...], dtype: str = "f8") -> Array:
    return np.random.default_rng(3).normal(size=shape).astype(dtype)


def stored(data: Array, chunks: Any) -> gzarr.Array:
    return gzarr.create_array({}, data=data, chunks=chunks, device="cpu")


def worse_at_the_ends(x: Array) -> Array:
    """Return elements, each with an error of its own for every block that has it."""
    places = np.indices(x.shape).sum(axis=0)
    return x + np.cos(places + x.flat[0]) + 0.01 * places


def whole(data: Array, block: Any, halos: Any, *, boundary: Any, pad_blocks: bool, function: Any) -> Array:
    """Compute all windows and their weighted means over the whole volume, in the plainest way."""
    mode = {} if boundary is None else {"mode": boundary}
    around = (
        data
        if boundary is None
        else np.pad(data, [(before, after + b) for (before, after), b in zip(halos, block, strict=True)], **mode)
    )
    shift = [0 if boundary is None else before for before, _ in halos]
    total, weight = np.zeros(data.shape), np.zeros(data.shape)
    for index in np.ndindex(*(-(-n // b) for n, b in zip(data.shape, block, strict=True))):
        windows, lengths = [], []
        for i, b, n, (before, after) in zip(index, block, data.shape, halos, strict=True):
            end = (i + 1) * b if pad_blocks else min((i + 1) * b, n)
            windows.append((i * b - before, end + after))
            lengths.append(end - i * b + before + after)
        clipped = [(max(low, 0), min(high, n)) for (low, high), n in zip(windows, data.shape, strict=True)]
        taken = clipped if boundary is None else windows
        result = function(around[tuple(slice(low + s, high + s) for (low, high), s in zip(taken, shift, strict=True))])
        inner = tuple(slice(low - first, high - first) for (low, high), (first, _) in zip(clipped, taken, strict=True))
        box = tuple(slice(low, high) for low, high in clipped)
        own = np.ones(())
        for (low, high), (first, _), length in zip(clipped, windows, lengths, strict=True):
            own = np.multiply.outer(own, np.sin(np.pi * (np.arange(low, high) - first + 0.5) / length) ** 2)
        total[box] += result[inner] * own
        weight[box] += own
    mean: Array = total / weight
    return mean


@settings(max_examples=100)
@given(drawn=st.data())
def test_it_is_the_weighted_mean_over_the_whole_volume(drawn: st.DataObject) -> None:
    ndim = drawn.draw(st.integers(1, 3))
    draw = lambda low, high: tuple(drawn.draw(st.integers(low, high)) for _ in range(ndim))  # noqa: E731
    shape, chunks, own_chunks = draw(1, 12), draw(1, 6), draw(1, 4)
    halos = tuple(zip(draw(0, 5), draw(0, 5), strict=True))
    if not np.any(halos):
        halos = ((1, 0), *halos[1:])
    block = tuple(c * n for c, n in zip(own_chunks, draw(1, 3), strict=True))
    boundary = drawn.draw(st.sampled_from([None, "edge", "symmetric"]))
    pad_blocks = boundary is not None and drawn.draw(st.booleans())
    budget_bytes = drawn.draw(st.sampled_from([1, 5000, 1 << 20]))
    data = elements(shape)
    out = gzarr.create_array({}, shape=shape, chunks=own_chunks, dtype="f8", device="cpu")
    gzarr.map_blocks(
        worse_at_the_ends, stored(data, chunks), out=out, halo=halos, boundary=boundary, pad_blocks=pad_blocks,
        block=block, blend="hann", budget_bytes=budget_bytes,
    )  # fmt: skip
    expected = whole(data, block, halos, boundary=boundary, pad_blocks=pad_blocks, function=worse_at_the_ends)
    np.testing.assert_allclose(out[...], expected, rtol=1e-12, atol=1e-12)


def test_what_is_the_same_in_all_blocks_stays() -> None:
    """Weights add up to one."""
    data = elements((40, 30))
    found = gzarr.map_blocks(lambda x: 2 * x, stored(data, 8), halo=3, block=8, blend="hann")
    np.testing.assert_allclose(found, 2 * data, rtol=1e-15)


def test_steps_at_faces_of_blocks_are_gone() -> None:
    """A function that gives the number of its block has steps at all faces; blended, it rises."""

    def number(x: Array, block_info: Block) -> Array:
        return np.full(x.shape, block_info.number, "f4")

    source = stored(np.zeros(64, "u1"), 16)
    plain = gzarr.map_blocks(number, source, block=16, halo=8, boundary=None)
    found = gzarr.map_blocks(number, source, block=16, halo=8, boundary=None, blend="hann")
    assert found.dtype == np.float32
    assert np.diff(plain).max() == 1
    assert 0 <= np.diff(found).min() <= np.diff(found).max() < 0.15


@pytest.mark.parametrize("scale", [2, 0.5])
def test_scaled_results(scale: float) -> None:
    data = np.repeat(np.repeat(elements((12, 10)), 2, 0), 2, 1)
    up, down = (2, 1) if scale == 2 else (1, 2)

    def scaled(x: Array) -> Array:
        return np.repeat(np.repeat(x, up, 0), up, 1)[::down, ::down]

    found, same = gzarr.map_blocks(
        lambda x: (scaled(x), x), stored(data, (8, 20)), out=[None, Output(scale=1)], halo=[(4, 2), (0, 0)],
        scale=scale, block=(8 * up // down, -1), blend="hann",
    )  # fmt: skip
    np.testing.assert_allclose(found, scaled(data), rtol=1e-15)
    np.testing.assert_allclose(same, data, rtol=1e-15)


def test_new_and_dropped_axes() -> None:
    """Networks take channels and give classes."""
    data = elements((3, 20, 16), "f4")

    def network(x: Array) -> Array:
        return np.stack([x.sum(axis=0), x.max(axis=0)])

    out = np.zeros((2, 20, 16), "f4")
    gzarr.map_blocks(
        network,
        stored(data, (1, 4, 4)),
        out=out,
        drop_axis=0,
        new_axis=0,
        halo=(0, 2, 2),
        block=(2, 8, 8),
        blend="hann",
    )
    np.testing.assert_allclose(out, network(data), rtol=1e-6, atol=1e-6)


def test_small_and_complex_numbers() -> None:
    data = elements((50,))
    half = gzarr.map_blocks(lambda x: x.astype("f2"), stored(data, 10), halo=4, block=10, blend="hann")
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half, data.astype("f2"))
    waves = gzarr.map_blocks(lambda x: x * (1 + 2j), stored(data, 10), halo=4, block=10, blend="hann")
    np.testing.assert_allclose(waves, data * (1 + 2j), rtol=1e-15)


def test_each_block_is_computed_once_if_memory_allows() -> None:
    calls: Counter[tuple[int, ...]] = Counter()
    lock = threading.Lock()

    def count(x: Array, block_info: Block) -> Array:
        with lock:
            calls[block_info.index] += 1
        return x

    data = elements((64, 48))
    for budget_bytes in (1 << 24, 30_000):
        calls.clear()
        found = gzarr.map_blocks(
            count, stored(data, 8), halo=2, block=8, blend="hann", budget_bytes=budget_bytes, out=np.empty_like(data)
        )
        np.testing.assert_allclose(found, data, rtol=1e-15)
        assert set(calls) == set(np.ndindex(8, 6))
        again = sum(calls.values()) - len(calls)
        assert (again == 0) if budget_bytes > 1 << 20 else (0 < again < 3 * len(calls))


def test_results_are_dropped_when_no_block_needs_them() -> None:
    """What is kept does not grow with the array."""
    alive, most, lock = [0], [0], threading.Lock()

    class Counted(np.ndarray[Any, Any]):
        def __del__(self) -> None:
            if self.base is None:
                with lock:
                    alive[0] -= 1

    def count(x: Array) -> Array:
        result = np.ndarray.__new__(Counted, x.shape, x.dtype)
        result[...] = x
        with lock:
            alive[0] += 1
            most[0] = max(most[0], alive[0])
        return result

    source = gzarr.create_array({}, shape=(400, 16), chunks=4, dtype="f4", device="cpu")
    gzarr.map_blocks(count, source, halo=1, block=4, blend="hann", out=np.empty(source.shape, "f4"))
    assert not alive[0]
    # Three rows of four blocks, and those in progress; of 400.
    assert most[0] < 30


def test_it_goes_on_where_it_was(tmp_path: Any) -> None:
    data = elements((32, 8)) + 5

    def fail(x: Array, block_info: Block) -> Array:
        if block_info.index[0] == 3:
            raise RuntimeError("killed")
        return worse_at_the_ends(x)

    options: dict[str, Any] = {"halo": (2, 0), "block": 4, "blend": "hann", "dtype": "f8"}
    source = stored(data, 4)
    with pytest.raises(RuntimeError, match="killed") as caught:
        gzarr.map_blocks(fail, source, out=str(tmp_path / "a.zarr"), **options)
    assert any("in block (2, " in note for note in caught.value.__notes__)
    assert 0 < gzarr.open_array(str(tmp_path / "a.zarr")).nchunks_initialized < 16
    found = gzarr.map_blocks(worse_at_the_ends, source, out=str(tmp_path / "a.zarr"), resume=True, **options)
    expected = whole(data, (4, 4), ((2, 2), (0, 0)), boundary="symmetric", pad_blocks=False, function=worse_at_the_ends)
    np.testing.assert_allclose(found[...], expected, rtol=1e-12)


def test_on_devices(device: TestedDevice) -> None:
    data = elements((20, 24), "f4")
    out = gzarr.create_array({}, shape=data.shape, chunks=8, dtype="f4", device="cpu")
    gzarr.map_blocks(
        lambda x: device.array(worse_at_the_ends(device.to_numpy(x)).astype("f4")), stored(data, 8), out=out, halo=2,
        block=8, blend="hann", boundary="edge", device=device.name,
    )  # fmt: skip
    expected = whole(data, (8, 8), ((2, 2), (2, 2)), boundary="edge", pad_blocks=False, function=worse_at_the_ends)
    np.testing.assert_allclose(device.to_numpy(out[...]), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"blend": "linear"}, "blend must be 'hann' or None"),
        ({"halo": 0}, "blend= needs a halo"),
        ({"halo": 3, "scale": 0.5, "block": 2}, "multiples of the inverse of scale"),
        ({"reduce": max}, "leave reduce= and client= out"),
        ({"client": 5}, "leave reduce= and client= out"),
    ],
)
def test_arguments_that_are_wrong(arguments: Any, message: str) -> None:
    options = {"blend": "hann", "halo": 2, "block": 4} | arguments
    with pytest.raises(ArgumentError, match=message):
        gzarr.map_blocks(lambda x: x, stored(elements((16,)), 4), **options)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda x: x[2:-2],
            r"returned an array of shape \(4,\).*with blend=, results have the halo, and the shape \(8,\)",
        ),
        (lambda x: x.astype("i4"), "returned elements of int32 .*blend= takes means"),
        (lambda x: None, "returned NoneType"),
    ],
)
def test_results_that_cannot_be_blended(function: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        gzarr.map_blocks(function, stored(elements((16,)), 4), blend="hann", halo=2, block=4)
