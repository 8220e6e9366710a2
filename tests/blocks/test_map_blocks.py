"""``map_blocks``: equal to a function of the whole array, for all halos, boundaries, blocks, orders and devices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.ndimage
from hypothesis import given, settings
from hypothesis import strategies as st
from support.counting_store import CountingStore

import gzarr

if TYPE_CHECKING:
    from pathlib import Path

    from gzarr.blocks import Block

SHAPE, CHUNKS = (37, 29, 41), (8, 7, 9)
#: Names of SciPy, which the tests compare with.
OF_SCIPY = {"symmetric": "reflect", "reflect": "mirror", "edge": "nearest", "wrap": "wrap"}
BOUNDARIES: list[Any] = [*OF_SCIPY, 7, -3]


def elements(shape: tuple[int, ...] = SHAPE, dtype: Any = "i4") -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(0, 1000, shape).astype(dtype)


def stored(data: np.ndarray[Any, Any], chunks: Any = CHUNKS, **options: Any) -> gzarr.Array:
    return gzarr.create_array({}, data=data, chunks=chunks, device="cpu", **options)


def empty(shape: tuple[int, ...] = SHAPE, chunks: Any = CHUNKS, dtype: Any = "i4", **options: Any) -> gzarr.Array:
    return gzarr.create_array({}, shape=shape, chunks=chunks, dtype=dtype, device="cpu", **options)


def bump(x: Any) -> Any:
    return x + 1


def nothing(*_: Any) -> None:
    pass


def highest(size: tuple[int, ...]) -> Any:
    return lambda block: scipy.ndimage.maximum_filter(block, size)


def expected(data: np.ndarray[Any, Any], size: tuple[int, ...], boundary: Any) -> np.ndarray[Any, Any]:
    mode, value = (OF_SCIPY[boundary], 0) if isinstance(boundary, str) else ("constant", boundary)
    result: np.ndarray[Any, Any] = scipy.ndimage.maximum_filter(data, size, mode=mode, cval=value)
    return result


# -- halos, boundaries, blocks


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("budget_bytes", [1 << 30, 60_000])
@pytest.mark.parametrize("block", ["auto", CHUNKS, (16, 14, 18), (8, 29, 41)])
def test_a_filter_of_blocks_is_that_of_the_whole(boundary: Any, budget_bytes: int, block: Any) -> None:
    data, out = elements(), empty()
    found = gzarr.map_blocks(
        highest((5, 3, 1)),
        stored(data),
        out=out,
        halo=(2, 1, 0),
        boundary=boundary,
        block=block,
        budget_bytes=budget_bytes,
    )
    assert found is out
    np.testing.assert_array_equal(out[...], expected(data, (5, 3, 1), boundary))


@settings(deadline=None, max_examples=150)
@given(drawn=st.data())
def test_any_geometry(drawn: st.DataObject) -> None:
    ndim = drawn.draw(st.integers(1, 3))
    lengths = lambda low, high: tuple(drawn.draw(st.integers(low, high)) for _ in range(ndim))  # noqa: E731
    shape, chunks, own_chunks, halo = lengths(1, 12), lengths(1, 6), lengths(1, 6), lengths(0, 5)
    boundary = drawn.draw(st.sampled_from(BOUNDARIES))
    block = tuple(c * drawn.draw(st.integers(1, 3)) for c in own_chunks)
    budget_bytes = drawn.draw(st.sampled_from([1, 500, 1 << 20]))
    overlap = drawn.draw(st.booleans())
    data = elements(shape)
    size = tuple(2 * n + 1 for n in halo)
    out = empty(shape, own_chunks)
    gzarr.map_blocks(
        highest(size), stored(data, chunks), out=out, halo=halo, boundary=boundary, block=block,
        budget_bytes=budget_bytes, overlap=overlap,
    )  # fmt: skip
    np.testing.assert_array_equal(out[...], expected(data, size, boundary))


def test_without_a_boundary_blocks_end_with_the_array() -> None:
    shapes = set()

    def record(x: np.ndarray[Any, Any], block_info: Block) -> np.ndarray[Any, Any]:
        shapes.add((block_info.index, x.shape, block_info.halo))
        return x

    data = elements((20,))
    result = gzarr.map_blocks(record, stored(data, 8), halo=2, boundary=None, block=8)
    np.testing.assert_array_equal(result, data)
    assert shapes == {((0,), (10,), ((0, 2),)), ((1,), (12,), ((2, 2),)), ((2,), (6,), ((2, 0),))}


@pytest.mark.parametrize("sharded", [False, True])
def test_sharded_and_uneven_chunks(sharded: bool) -> None:
    data = elements((32, 24, 40))
    source = stored(data, (4, 4, 8), shards=(8, 8, 16)) if sharded else stored(data, [[10, 22], [24], [8, 32]])
    out = empty(data.shape, (4, 4, 8), shards=(16, 8, 8)) if sharded else empty(data.shape, [[10, 22], [8, 16], [40]])
    gzarr.map_blocks(highest((3, 3, 3)), source, out=out, halo=1)
    np.testing.assert_array_equal(out[...], expected(data, (3, 3, 3), "symmetric"))


# -- shapes


def test_other_shapes() -> None:
    data = elements()
    source = stored(data)
    halved = gzarr.map_blocks(lambda x: x[::2, ::2, ::2], source, scale=0.5, block=(4, 7, 5))
    np.testing.assert_array_equal(halved, data[::2, ::2, ::2])
    twice = gzarr.map_blocks(lambda x: np.repeat(x, 2, 0), source, scale=(2, 1, 1), block=(6, 9, 41))
    np.testing.assert_array_equal(twice, np.repeat(data, 2, 0))
    flat = gzarr.map_blocks(lambda x: x.max(0), source, drop_axis=0, block=(10, 10))
    np.testing.assert_array_equal(flat, data.max(0))
    out = empty((3, *SHAPE), (3, 8, 8, 8))
    gzarr.map_blocks(lambda x: np.stack([x, x + 1, x + 2]), source, new_axis=0, out=out)
    np.testing.assert_array_equal(out[...], np.stack([data, data + 1, data + 2]))


@pytest.mark.parametrize("block", [1, 2, 5, "auto"])
def test_a_halo_and_a_scale(block: Any) -> None:
    data = elements((23,)).astype("f8")

    def halve(x: np.ndarray[Any, Any]) -> Any:
        smooth = scipy.ndimage.uniform_filter1d(x, 5)
        return smooth[::2]

    result = gzarr.map_blocks(halve, stored(data, 7), halo=2, scale=0.5, block=block)
    np.testing.assert_allclose(result, scipy.ndimage.uniform_filter1d(data, 5)[::2], rtol=1e-12)


def test_several_inputs_and_outputs() -> None:
    one, row = elements(), elements((1, 41))
    total, product = empty(), empty(dtype="i8", chunks=(4, 7, 3))
    found = gzarr.map_blocks(
        lambda x, y: (x + y, x.astype("i8") * y), stored(one), stored(row, 9), out=[total, product]
    )
    assert found == [total, product]
    np.testing.assert_array_equal(total[...], one + row)
    np.testing.assert_array_equal(product[...], one.astype("i8") * row)


def test_outputs_in_memory_and_in_stores(tmp_path: Path) -> None:
    data = elements()
    source = stored(data)
    result = gzarr.map_blocks(lambda x: x / 2, source)
    assert result.dtype == "f8"
    np.testing.assert_array_equal(result, data / 2)
    assert gzarr.map_blocks(lambda x: x / 2, source, dtype="f4").dtype == "f4"
    given = np.zeros(SHAPE, "i4")
    assert gzarr.map_blocks(bump, source, out=given) is given
    np.testing.assert_array_equal(given, data + 1)
    made = gzarr.map_blocks(lambda x: x > 500, source, out=tmp_path / "a", dtype="?")
    assert (made.dtype, made.chunks) == (np.dtype(bool), CHUNKS)
    np.testing.assert_array_equal(gzarr.open_array(tmp_path / "a", device="cpu")[...], data > 500)


def test_empty_arrays_and_scalars() -> None:
    assert gzarr.map_blocks(bump, stored(np.zeros((0, 4)), (1, 4))).shape == (0, 4)
    assert gzarr.map_blocks(bump, stored(np.array(3.0), ())).tolist() == 4
    assert gzarr.map_blocks(np.sum, stored(np.zeros((0, 4)), (1, 4)), reduce=max) is None


# -- values of blocks


def test_values_are_reduced_in_the_order_of_blocks() -> None:
    data = elements()
    words = gzarr.map_blocks(
        lambda x, block_info: [block_info.number], stored(data), block=CHUNKS, reduce=lambda a, b: a + b
    )
    assert words == list(range(5 * 5 * 5))
    out = empty()
    found, total = gzarr.map_blocks(
        lambda x: (x + 1, int(x.sum())), stored(data), out=out, block=CHUNKS, reduce=lambda a, b: a + b
    )
    assert (found is out, total) == (True, data.sum())
    np.testing.assert_array_equal(out[...], data + 1)


def test_a_block_says_where_it_is() -> None:
    blocks: list[Block] = []
    gzarr.map_blocks(
        lambda x, block_info: blocks.append(block_info),
        stored(elements()),
        block=(16, 29, 41),
        reduce=nothing,
        overlap=False,
    )
    assert [str(block) for block in blocks[1:]] == [
        "block (1, 0, 0) of (3, 1, 1), [16:32, 0:29, 0:41]",
        "block (2, 0, 0) of (3, 1, 1), [32:37, 0:29, 0:41]",
    ]
    assert [(b.number, b.shape, b.halo) for b in blocks[2:]] == [(2, (5, 29, 41), ((0, 0),) * 3)]


# -- chunks are decoded as rarely as memory allows


def asked(source: CountingStore) -> int:
    return sum("c/" in request.key for request in source.asked)


@pytest.mark.parametrize(
    ("room", "most"),
    [(8, 1.0), (1.0, 1.0), (0.6, 1.1), (0.3, 1.6), (0.0, 8)],
    ids=["all", "layers", "layer", "strips", "none"],
)
def test_chunks_are_decoded_as_rarely_as_memory_allows(room: float, most: float) -> None:
    data = elements((64, 64, 64), "u2")
    store = CountingStore()
    gzarr.create_array(store, data=data, chunks=8, device="cpu")
    store.asked.clear()
    two_layers = 2 * 16 * 64 * 64 * 2
    out = empty(data.shape, 16, "u2")
    gzarr.map_blocks(
        highest((5, 5, 5)), gzarr.open_array(store, device="cpu"), out=out, halo=2, block=16, overlap=False,
        budget_bytes=max(int(room * two_layers) + 6 * 20**3 * 2, 1),
    )  # fmt: skip
    np.testing.assert_array_equal(out[...], expected(data, (5, 5, 5), "symmetric"))
    amplification = asked(store) / 8**3
    assert amplification <= most
    # With no memory, each block decodes all that it needs.
    assert room or amplification > 2


def test_without_a_halo_no_chunk_is_decoded_twice_or_kept() -> None:
    store = CountingStore()
    gzarr.create_array(store, data=elements((64, 64)), chunks=8, device="cpu")
    store.asked.clear()
    gzarr.map_blocks(bump, gzarr.open_array(store, device="cpu"), block=16, budget_bytes=1)
    assert asked(store) == 64


def test_chunks_of_smaller_inputs_are_decoded_once() -> None:
    small, data = elements((1, 64)), elements((64, 64))
    store = CountingStore()
    gzarr.create_array(store, data=small, chunks=(1, 8), device="cpu")
    store.asked.clear()
    row = gzarr.open_array(store, device="cpu")
    result = gzarr.map_blocks(lambda x, y: x + y, stored(data, 8), row, block=16)
    np.testing.assert_array_equal(result, data + small)
    assert asked(store) == 8
    store.asked.clear()
    highest_each = gzarr.map_blocks(lambda x, y: x.max(1) + y.max(), stored(data, 8), row, drop_axis=1, block=16)
    np.testing.assert_array_equal(highest_each, data.max(1) + small.max())
    assert asked(store) == 8


# -- wrong arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"halo": -1}, "halo must be whole numbers"),
        ({"halo": (1, 2)}, "one for each of 3 axes"),
        ({"halo": 1.5}, "halo must be"),
        (
            {"boundary": "constant"},
            r"boundary must be one of symmetric, reflect, edge, wrap, a number or None: one, .*, not 'constant'$",
        ),
        ({"boundary": "mirror"}, "or None: .*, not 'mirror'.*SciPy calls 'mirror' is 'reflect' in NumPy"),
        ({"boundary": "nearest"}, "SciPy calls 'nearest' is 'edge'"),
        ({"scale": 1.5}, "scale must be whole numbers or their inverses"),
        ({"scale": 0}, "scale must be"),
        ({"scale": "x"}, "scale must be"),
        ({"drop_axis": 3}, "drop_axis must be different axes of 3"),
        ({"drop_axis": 0, "halo": 1}, "axes in drop_axis are read whole"),
        ({"new_axis": 0}, "new_axis= needs out="),
        ({"block": 0}, "block must be lengths of at least 1, -1 or None for a whole axis, or 'auto'"),
        ({"block": -2}, "block must be lengths"),
        ({"block": "all"}, "block must be lengths"),
        ({"block": (8, 7, True)}, "block must be lengths"),
        ({"block": (8, 7)}, "one for each of 3 axes"),
        ({"block": {"z": 8}}, "there is no axis 'z'; the axes have no names: pass one for each"),
        ({"block": (8, 7, 10), "out": empty()}, "along axis 2, blocks must be multiples of 9 elements, such as 18"),
        ({"out": empty((1, 2, 3))}, r"out= has shape \(1, 2, 3\); results have shape \(37, 29, 41\)"),
        ({"out": [np.zeros(SHAPE), 5]}, "."),
        ({"budget_bytes": 0}, "budget_bytes must be a positive integer"),
        ({"device": "gpu"}, "device"),
        ({"reduce": 5}, "must be callable"),
        ({"resume": True}, "resume=True needs outputs that are stored"),
        ({"client": 5, "out": empty()}, "client"),
    ],
    ids=str,
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(gzarr.ArgumentError, match=message):
        gzarr.map_blocks(bump, stored(elements()), **arguments)


def test_wrong_inputs() -> None:
    with pytest.raises(gzarr.ArgumentError, match="at least one array"):
        gzarr.map_blocks(bump)
    for wrong in (None, [1, 2], gzarr):
        with pytest.raises(gzarr.ArgumentError, match=r"each is an array of gzarr or a view of one, the path .*, not "):
            gzarr.map_blocks(bump, stored(elements()), wrong)
    with pytest.raises(gzarr.ArgumentError, match="cannot be broadcast"):
        gzarr.map_blocks(max, stored(elements()), stored(elements((2, 41)), 9))
    with pytest.raises(gzarr.ReadOnlyError):
        gzarr.map_blocks(bump, stored(elements()), out=gzarr.open_array(empty().store))


def test_an_input_may_be_the_output_if_no_block_reads_what_another_wrote() -> None:
    data = elements()
    array = stored(data)
    gzarr.map_blocks(bump, array, out=array)
    np.testing.assert_array_equal(array[...], data + 1)
    with pytest.raises(gzarr.ArgumentError, match="cannot be the output at the same time"):
        gzarr.map_blocks(bump, array, out=array, halo=1)
    with pytest.raises(gzarr.ArgumentError, match="cannot be the output at the same time"):
        gzarr.map_blocks(lambda x, y: x + y, array, stored(elements((41,)), 9), out=array, halo=(0, 0, 1))
    np.testing.assert_array_equal(array[...], data + 1)


@pytest.mark.parametrize("shards", [None, (16, 20, 24)])
def test_a_view_of_all_of_an_array_is_that_array(shards: tuple[int, ...] | None) -> None:
    data = elements()
    array = stored(data, (8, 10, 12), shards=shards)
    gzarr.map_blocks(bump, array.view[...], out=array)
    np.testing.assert_array_equal(array[...], data + 1)
    gzarr.map_blocks(lambda x, y: x + y, array.view[:, 0:], array, out=array)
    np.testing.assert_array_equal(array[...], 2 * (data + 1))
    for inputs in ([array.view[::-1]], [array, array.view[:1]], [array, array.view[0]]):
        with pytest.raises(gzarr.ArgumentError, match=r"part of the output, or .* in another order.*write to another"):
            gzarr.map_blocks(lambda x, *_: x, *inputs, out=array)
    with pytest.raises(gzarr.ArgumentError, match="is read for several blocks"):
        gzarr.map_blocks(bump, array.view[...], out=array, halo=1)
    np.testing.assert_array_equal(array[...], 2 * (data + 1))


def test_blocks_end_where_memory_says() -> None:
    """Blocks are as large as the budget lets them be, and whole chunks of the output."""
    shapes = set()
    source = gzarr.create_array({}, shape=(4096, 4096), chunks=64, dtype="u2", device="cpu")
    gzarr.map_blocks(lambda x: shapes.add(x.shape), source, reduce=nothing, budget_bytes=16 << 20)
    assert all(32 << 10 <= math.prod(shape) * 2 <= 2 << 20 for shape in shapes)
