"""Outputs of ``map_blocks`` with shapes and data types of their own."""

from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.blocks import Output
from gzarr.errors import ArgumentError, OutputError

if TYPE_CHECKING:
    from pathlib import Path

    from gzarr.blocks import Block

SHAPE, CHUNKS = (13, 18, 11), (4, 6, 5)


def elements(shape: tuple[int, ...] = SHAPE) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(0, 1000, shape).astype("i4")


def stored(data: np.ndarray[Any, Any], chunks: Any = CHUNKS) -> gzarr.Array:
    return gzarr.create_array({}, data=data, chunks=chunks, device="cpu")


def scaled(x: np.ndarray[Any, Any], scales: tuple[Fraction, ...]) -> np.ndarray[Any, Any]:
    """Every n-th element, or every element n times, along each axis."""
    for d, scale in enumerate(scales):
        x = np.repeat(x, scale.numerator, axis=d)
        x = x[(slice(None),) * d + (slice(None, None, scale.denominator),)]
    return x


def three(x: np.ndarray[Any, Any]) -> list[Any]:
    """The volume, every second element of it, and what is bright of its projection."""
    return [x, x[::2, ::2, ::2].astype("u2"), x.max(axis=0) > 900]


def test_a_volume_with_a_smaller_one_and_a_projection(tmp_path: Path) -> None:
    data = elements()
    outputs = [
        tmp_path / "whole",
        Output(tmp_path / "half", scale=0.5, dtype="u2"),
        Output(drop_axis=0, dtype="bool"),
    ]
    whole, half, bright = gzarr.map_blocks(three, stored(data), out=outputs)
    for found, expected in zip((whole[...], half[...], bright), three(data), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@settings(deadline=None, max_examples=200)
@given(drawn=st.data())
def test_any_outputs(drawn: st.DataObject) -> None:
    """Their halo is cut off by their own scale; blocks are whole chunks of all of them."""
    ndim = drawn.draw(st.integers(1, 3))
    shape = tuple(drawn.draw(st.lists(st.integers(1, 14), min_size=ndim, max_size=ndim)))
    data = elements(shape)
    scales = st.sampled_from([Fraction(1), Fraction(2), Fraction(3), Fraction(1, 2), Fraction(1, 3), Fraction(1, 4)])
    outputs, functions, expected, seen = [], [], [], []
    halo = [0] * ndim
    for _ in range(drawn.draw(st.integers(1, 3))):
        dropped = tuple(d for d in range(ndim) if drawn.draw(st.integers(0, 3)) == 0)
        own = tuple(Fraction(1) if d in dropped else drawn.draw(scales) for d in range(ndim))
        result = scaled(data, own).sum(axis=dropped)
        kept = [d for d in range(ndim) if d not in dropped]
        chunks = tuple(drawn.draw(st.integers(1, 5)) for _ in kept)
        target: Any = np.full(result.shape, -1, result.dtype)
        if drawn.draw(st.booleans()):
            target = gzarr.create_array({}, shape=result.shape, chunks=chunks, dtype=result.dtype, device="cpu")
        outputs.append(Output(target, scale=own, drop_axis=dropped))
        functions.append((own, dropped))
        expected.append(result)
    if not any(dropped for _, dropped in functions) and drawn.draw(st.booleans()):
        # A halo that each scale can cut off.
        halo = [math.lcm(*(own[d].denominator for own, _ in functions)) for d in range(ndim)]

    def function(x: Any, *, block_info: Block) -> Any:
        seen.append(block_info)
        results = []
        for own, dropped in functions:
            # With boundary=None, a halo at the end may be shorter.
            inner = tuple(slice(b, n - a) for (b, a), n in zip(block_info.halo, x.shape, strict=True))
            results.append(scaled(x[inner], own).sum(axis=dropped))
        return results if len(results) > 1 else results[0]

    block: Any = "auto" if drawn.draw(st.booleans()) else None
    source = stored(data, drawn.draw(st.lists(st.integers(1, 6), min_size=ndim, max_size=ndim)))
    if block is None:
        # Small budgets make small blocks.
        gzarr.map_blocks(function, source, out=outputs, halo=halo, boundary=None, budget_bytes=512)
    else:
        gzarr.map_blocks(function, source, out=outputs, halo=halo, boundary=None)
    for output, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(output.target[...], wanted)
    for i, wanted in enumerate(expected):
        sizes = [math.prod(s.stop - s.start for s in block.boxes[i]) for block in seen]
        assert sum(sizes) == wanted.size, "an element is written twice"


def test_results_with_the_halo_are_cut() -> None:
    data = elements()
    half, twice = gzarr.map_blocks(
        lambda x: [x[::2, ::2, ::2], scaled(x, (Fraction(2),) * 3)],
        stored(data),
        out=[Output(scale=0.5), Output(scale=2)],
        halo=(2, 4, 2),
        block=(2, 3, 5),
    )
    np.testing.assert_array_equal(half, data[::2, ::2, ::2])
    np.testing.assert_array_equal(twice, scaled(data, (Fraction(2),) * 3))


def test_arguments_of_the_call_are_those_of_outputs_without_their_own() -> None:
    data = elements()
    first, second, third = gzarr.map_blocks(
        lambda x: [x[::2], x[::2] * 2, x],
        stored(data),
        out=[None, Output(dtype="f8"), Output(scale=1)],
        scale=(0.5, 1, 1),
    )
    np.testing.assert_array_equal(first, data[::2])
    np.testing.assert_array_equal(second, data[::2] * 2.0)
    assert second.dtype == np.float64
    np.testing.assert_array_equal(third, data)


def test_new_axes() -> None:
    data = elements()
    outputs = [Output(np.zeros((2, *SHAPE), "i4"), new_axis=0), None]
    stacked, plain = gzarr.map_blocks(lambda x: [np.stack([x, -x]), x], stored(data), out=outputs, block=(2, 4, 6, 5))
    np.testing.assert_array_equal(stacked, [data, -data])
    np.testing.assert_array_equal(plain, data)


def test_blocks_of_a_projection_are_whole_along_it() -> None:
    blocks = []

    def function(x: Any, *, block_info: Block) -> list[Any]:
        blocks.append(block_info)
        return [x, x.sum(axis=0)]

    data = elements()
    out = [gzarr.create_array({}, shape=SHAPE, chunks=CHUNKS, dtype="i4", device="cpu"), Output(drop_axis=0)]
    _, total = gzarr.map_blocks(function, stored(data), out=out, block=CHUNKS)
    np.testing.assert_array_equal(total, data.sum(axis=0))
    assert {block.grid_shape for block in blocks} == {(1, 3, 3)}
    assert blocks[0].box == blocks[0].boxes[0]
    assert blocks[0].boxes[1] == blocks[0].box[1:]


def count_calls(x: Any) -> list[Any]:
    CALLS.append(x.shape)
    return [x + 1, x[::2, ::2, ::2] + 1]


CALLS: list[Any] = []


def test_resuming(tmp_path: Path) -> None:
    """A block is done when its chunks of all outputs are there."""
    data = elements((12, 12, 12))
    outputs = [tmp_path / "whole", Output(tmp_path / "half", scale=0.5)]
    source = stored(data, (4, 4, 4))
    gzarr.map_blocks(count_calls, source, out=outputs, block=8)
    CALLS.clear()
    gzarr.map_blocks(count_calls, source, out=outputs, block=8, resume=True)
    assert not CALLS
    (tmp_path / "half" / "c" / "1" / "0" / "0").unlink()
    found = gzarr.map_blocks(count_calls, source, out=outputs, block=8, resume=True)
    assert CALLS == [(4, 8, 8)]
    np.testing.assert_array_equal(found[1][...], data[::2, ::2, ::2] + 1)


def test_in_other_processes(tmp_path: Path) -> None:
    data = elements()
    source = gzarr.create_array(tmp_path / "a", data=data, chunks=CHUNKS, device="cpu")
    outputs = [tmp_path / "whole", Output(tmp_path / "half", scale=0.5)]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        whole, half = gzarr.map_blocks(count_calls, source, out=outputs, client=pool)
    np.testing.assert_array_equal(whole[...], data + 1)
    np.testing.assert_array_equal(half[...], data[::2, ::2, ::2] + 1)


def test_wrong_outputs() -> None:
    source = stored(elements())
    with pytest.raises(OutputError, match=r"results have shape \(7, 9, 6\)"):
        gzarr.map_blocks(three, source, out=[None, Output(np.zeros((7, 9, 5), "i4"), scale=0.5)])
    with pytest.raises(ArgumentError, match="scale must be whole numbers or their inverses"):
        gzarr.map_blocks(three, source, out=[None, Output(scale=0.4)])
    half = gzarr.create_array({}, shape=(7, 9, 6), chunks=(2, 3, 5), dtype="i4", device="cpu")
    with pytest.raises(ArgumentError, match="along axis 2, blocks must be multiples of 10 elements"):
        gzarr.map_blocks(three, source, out=[None, Output(half, scale=0.5)], block=(4, 6, 5))
    with pytest.raises(ArgumentError, match=r"returned an array of shape \(4, 6, 6\) .* expected \(2, 3, 3\)"):
        gzarr.map_blocks(lambda x: [x, x], source, out=[None, Output(scale=0.5)], block=(4, 6, 6), overlap=False)


@pytest.mark.parametrize("first", [None, Output(drop_axis=0)])
def test_outputs_without_blocks(first: Any, tmp_path: Path) -> None:
    """Nothing would fill them; so nothing is created."""
    source = gzarr.create_array({}, shape=(0, 5), chunks=(1, 5), dtype="i4", device="cpu")
    others = [Output(drop_axis=0), None]
    for out in ([first, Output(tmp_path / "a", drop_axis=0)], others, others[::-1]):
        with pytest.raises(ArgumentError, match=r"there are no blocks of inputs of shape \(0, 5\)"):
            gzarr.map_blocks(lambda x: [x, x.sum(0)], source, out=out)
    assert not (tmp_path / "a").exists()
    with pytest.raises(ArgumentError, match="there are no blocks"):
        gzarr.map_blocks(lambda x: x.sum(0), source, drop_axis=0)
    assert gzarr.map_blocks(lambda x: x, source).shape == (0, 5)


@pytest.mark.parametrize(
    "out",
    [
        [None, Output(scale=1 / 16)],
        [Output(scale=1 / 16), None],
        [None, Output(scale=4)],
        [Output({}, drop_axis=0), {}],
        [{}, Output({}, drop_axis=0)],
        [Output({}, drop_axis=1), None],
        Output(drop_axis=0),
    ],
)
def test_blocks_are_as_large_as_wanted_with_all_their_parts(out: Any) -> None:
    source = gzarr.create_array({}, shape=(512, 512), chunks=16, dtype="u2", device="cpu")
    nbytes = set()

    def function(x: Any, *, block_info: Block) -> Any:
        results = [np.zeros(tuple(s.stop - s.start for s in box), "u2") for box in block_info.boxes]
        nbytes.add(x.nbytes + sum(result.nbytes for result in results))
        return results if isinstance(out, list) else results[0]

    # An eighth of the budget is aimed at, in one thread.
    gzarr.map_blocks(function, source, out=out, budget_bytes=1 << 20, overlap=False)
    assert 32 << 10 < max(nbytes) <= 128 << 10


def test_created_outputs_have_the_chunks_and_names_of_the_input(tmp_path: Path) -> None:
    source = gzarr.create_array({}, data=elements(), chunks=CHUNKS, dimension_names=["z", "y", "x"], device="cpu")
    functions = [Output(tmp_path / "a", drop_axis=0), Output(tmp_path / "b", drop_axis=1, new_axis=2), tmp_path / "c"]
    with pytest.raises(ArgumentError, match="new_axis= needs out= arrays"):
        gzarr.map_blocks(lambda x: [x, x, x], source, out=functions)
    functions[1] = Output(tmp_path / "b", drop_axis=1)
    top, side, same = gzarr.map_blocks(lambda x: [x.max(0), x.max(1), x], source, out=functions)
    assert (top.chunks, top.dimension_names) == ((6, 5), ("y", "x"))
    assert (side.chunks, side.dimension_names) == ((4, 5), ("z", "x"))
    assert (same.chunks, same.dimension_names) == (CHUNKS, ("z", "y", "x"))
    np.testing.assert_array_equal(side[...], elements().max(1))


def test_an_output_that_is_read_elsewhere_is_refused() -> None:
    data = elements((8, 8))
    array = stored(data, (4, 4))
    for out in (
        [None, Output(array, drop_axis=0, new_axis=1)],
        [Output(array, drop_axis=0, new_axis=1), None],
    ):
        with pytest.raises(ArgumentError, match="cannot be the output at the same time"):
            gzarr.map_blocks(lambda x: [x, x], array, out=out, block=(8, 4))
    np.testing.assert_array_equal(array[...], data)
    # Each block replaces what it alone has read.
    _, total = gzarr.map_blocks(lambda x: [x + 1, x.sum(0)], array, out=[array, Output(drop_axis=0)])
    np.testing.assert_array_equal(array[...], data + 1)
    np.testing.assert_array_equal(total, data.sum(0))


def test_an_array_in_memory_is_one_output() -> None:
    x, both = np.arange(12), np.zeros(24, int)
    for out in ([both[:12], both[:12]], [both[:12], both[11::-1]], [both[:12], both[11:23]]):
        with pytest.raises(ArgumentError, match="elements in common"):
            gzarr.map_blocks(lambda w: (w, w + 100), x, out=out, block=4)
    gzarr.map_blocks(lambda w: (w, w + 100), x, out=[both[::2], both[1::2]], block=4)
    np.testing.assert_array_equal(both.reshape(-1, 2), np.stack([x, x + 100], 1))


def test_a_new_axis_is_whole_in_every_block() -> None:
    source = stored(elements((40, 40)), (8, 8))
    out = gzarr.create_array({}, shape=(16, 40, 40), chunks=(1, 8, 8), dtype="i4", device="cpu")
    gzarr.map_blocks(lambda x: np.stack([x] * 16), source, out=out, new_axis=0, budget_bytes=100_000)
    np.testing.assert_array_equal(out[...], np.stack([elements((40, 40))] * 16))


def test_arguments_may_be_arrays() -> None:
    data = elements()
    half, line = gzarr.map_blocks(
        lambda x: [x[::2], x.sum(axis=(0, 1))],
        stored(data),
        out=[Output(scale=np.array([0.5, 1, 1])), Output(drop_axis=np.array([0, 1]))],
    )
    np.testing.assert_array_equal(half, data[::2])
    np.testing.assert_array_equal(line, data.sum(axis=(0, 1)))


def test_wrong_types_and_constants() -> None:
    source = stored(elements().astype("u1"))
    with pytest.raises(ArgumentError, match="dtype='nonsense' is not a data type"):
        gzarr.map_blocks(lambda x: x, source, out=[Output(dtype="nonsense")])
    for boundary in (300, -1, 1j):
        with pytest.raises(ArgumentError, match=r"data type uint8, which cannot hold boundary="):
            gzarr.map_blocks(lambda x: x, source, halo=1, boundary=boundary)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("dtype", "held", "others"),
    [
        ("u1", (0, 255, True, 3.0, np.int64(7)), (1.5, 256, np.int64(300), float("nan"), float("inf"), Fraction(1, 2))),
        ("i8", (-(2**63), 2.0**62), (0.1, 2**63, 2.0**63, np.float64(2.0**64))),
        ("bool", (0, 1, True, 1.0), (0.5, 2, float("nan"))),
        ("f2", (0.1, 65504, float("inf"), float("nan")), (1e5, 10**6, 1j)),
        ("f4", (0.1, 2**24 + 1, Fraction(1, 3), -float("inf"), 1e-300), (1e300, -(10**400), np.float64(1e39))),
        ("c8", (0.1j, complex("inf")), (1e300j, 1e300)),
    ],
)
def test_constants_are_held_as_they_are(dtype: str, held: tuple[Any, ...], others: tuple[Any, ...]) -> None:
    """Numbers that would become others are refused, rounding of floats aside."""
    source = stored(np.zeros(3, dtype), 3)
    for number in held:
        given: list[Any] = []
        gzarr.map_blocks(lambda x, given=given: given.append(x[0]), source, halo=1, boundary=number, reduce=max)
        np.testing.assert_array_equal(given, np.array([number], dtype))
    for number in others:
        with pytest.raises(ArgumentError, match=r"has the data type .*, which cannot hold boundary="):
            gzarr.map_blocks(lambda x: x, source, halo=1, boundary=number)
