"""Arrays, chunks, shards, codecs and selections drawn by hypothesis, written by zarr-python, read by all readers."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis.extra.numpy as npst
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from support.zarr_arrays import LITTLE, blosc3, codec, same, shard, v3, write
from zarr.storage import LocalStore, MemoryStore
from zarr.testing.strategies import arrays, basic_indices, numpy_arrays, orthogonal_indices

from gzarr.stores.keys import name_fault
from gzarr.stores.temporary_names import is_reserved

if TYPE_CHECKING:
    import zarr
    from support.devices import TestedDevice

    import gzarr

# Bounded in number; machines differ in speed, so not in time.
BOUNDED = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[
        *(HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large),
        # The fixture "device" has nothing of an example that it would have to forget.
        HealthCheck.function_scoped_fixture,
    ],
    derandomize=True,
)
SHAPES = npst.array_shapes(max_dims=4, min_side=0, max_side=6)


def local_store() -> LocalStore:
    # Removed when the process ends: a store outlives the example that made it.
    return LocalStore(tempfile.mkdtemp(dir=SCRATCH.name))


SCRATCH = tempfile.TemporaryDirectory(prefix="gzarr-properties-")
# zarr-python says of some of its data types that their metadata may change.
pytestmark = pytest.mark.filterwarnings("ignore:.*:zarr.errors.UnstableSpecificationWarning")
STORES = st.one_of(st.builds(MemoryStore), st.builds(local_store))


def reopened(array: zarr.Array[Any], device: TestedDevice) -> gzarr.Array:
    # zarr-python gives nodes the names of metadata documents, and hypothesis finds names in the sources of gzarr.
    names = [name for name in array.path.split("/") if name]
    assume(not any(name_fault(name) or is_reserved(name) for name in names))
    store: Any = array.store
    if isinstance(store, MemoryStore):
        return device.open({k: v.to_bytes() for k, v in store._store_dict.items()}, path=array.path)
    return device.open(store.root, path=array.path)


def expected(array: zarr.Array[Any]) -> np.ndarray[Any, Any]:
    return np.asarray(array[...])


@BOUNDED
@given(array=arrays(stores=STORES, shapes=SHAPES))
def test_whole_arrays(array: zarr.Array[Any], device: TestedDevice) -> None:
    ours = reopened(array, device)
    assert (ours.shape, ours.shards) == (array.shape, array.shards)
    # zarr-python writes chunks of no elements for empty arrays of version 2, and opens them as they are.
    assert ours.chunks == tuple(max(n, 1) for n in array.chunks)
    assert (ours.name, ours.zarr_format) == (array.name, array.metadata.zarr_format)
    assert dict(ours.attrs) == dict(array.attrs)
    same(device.read(ours), expected(array))


def taken(everything: Any, selection: Any) -> Any:
    """Return the result of a basic selection as an array: a scalar would lose the length of its type."""
    indices = selection if isinstance(selection, tuple) else (selection,)
    return everything[indices if ... in indices else (*indices, ...)]


@BOUNDED
@given(data=st.data())
def test_basic_selections(data: st.DataObject, device: TestedDevice) -> None:
    array = data.draw(arrays(stores=STORES, shapes=SHAPES))
    ours, everything = reopened(array, device), expected(array)
    selections = []
    for _ in range(4):
        # zarr-python's own indices, then NumPy's: with negative steps and new axes.
        indices = basic_indices(shape=array.shape) | npst.basic_indices(array.shape, allow_newaxis=True, max_dims=8)
        selection = data.draw(indices)
        selections.append(selection)
        same(device.read(ours, selection), taken(everything, selection), selection)
        wanted = taken(everything, selection)
        found = device.to_numpy(ours[selection])
        # NumPy's scalars forget the length of their type.
        same(found if wanted.ndim or wanted.dtype.kind not in "SU" else found.astype(wanted.dtype), wanted, selection)
    results = ours.read_many(selections)
    for selection, result in zip(selections, results, strict=True):
        same(device.to_numpy(result), taken(everything, selection), selection)


@BOUNDED
@given(data=st.data())
def test_orthogonal_selections(data: st.DataObject, device: TestedDevice) -> None:
    array = data.draw(arrays(stores=STORES, shapes=npst.array_shapes(max_dims=4, min_side=1, max_side=6)))
    ours, everything = reopened(array, device), expected(array)
    ours_index, numpy_index = data.draw(orthogonal_indices(shape=array.shape))
    # The dots keep it an array where the strategy drew an integer for every axis, which zarr-python's does since 3.4.
    same(device.read(ours.oindex, ours_index), everything[(*numpy_index, ...)], ours_index)


@BOUNDED
@given(data=st.data())
def test_points_and_masks(data: st.DataObject, device: TestedDevice) -> None:
    array = data.draw(arrays(stores=STORES, shapes=npst.array_shapes(max_dims=4, min_side=1, max_side=6)))
    ours, everything = reopened(array, device), expected(array)
    points = data.draw(npst.integer_array_indices(array.shape, result_shape=npst.array_shapes(max_dims=2, max_side=5)))
    same(device.read(ours.vindex, points), everything[points], points)
    mask = data.draw(npst.arrays(bool, array.shape))
    same(device.read(ours.vindex, mask), everything[mask], mask)
    same(device.read(ours, mask), everything[mask], mask)


@BOUNDED
@given(data=st.data())
def test_outputs(data: st.DataObject, device: TestedDevice) -> None:
    array = data.draw(arrays(stores=STORES, shapes=SHAPES))
    ours, everything = reopened(array, device), expected(array)
    selection = data.draw(npst.basic_indices(array.shape, allow_newaxis=True, max_dims=8))
    wanted = taken(everything, selection)
    # A view into a larger array, with its axes in any order and any of them reversed.
    axes = data.draw(st.permutations(range(wanted.ndim)))
    steps = [data.draw(st.sampled_from([1, -1, 2, -3])) for _ in axes]
    shape = tuple(wanted.shape[axis] * abs(step) for axis, step in zip(axes, steps, strict=True))
    base = np.zeros(shape, ours.dtype) if ours.device == "cpu" else device.empty(shape, ours.dtype)
    spread = base[(*(slice(None, None, step) for step in steps), ...)]
    out = spread.transpose(np.argsort(axes)) if axes else spread
    assert out.shape == wanted.shape
    same(device.read(ours, selection, out=out), wanted, selection)


@st.composite
def chains(draw: st.DrawFn, shape: tuple[int, ...], itemsize: int, depth: int = 0) -> tuple[list[Any], tuple[int, ...]]:
    """Draw a v3 codec chain for chunks of ``shape``, and its description."""
    k = len(shape)
    chain: list[Any] = []
    if depth < 2 and k and draw(st.booleans()):
        inner = tuple(draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0])) for size in shape)
        codecs, _ = draw(chains(inner, itemsize, depth + 1))
        location = draw(st.sampled_from(["start", "end"]))
        index = draw(st.sampled_from([[LITTLE], [LITTLE, {"name": "crc32c"}]]))
        return [shard(list(inner), codecs, location, index)], shape
    if k and draw(st.booleans()):
        chain.append(codec("transpose", order=draw(st.permutations(range(k)))))
    chain.append(codec("bytes", endian=draw(st.sampled_from(["little", "big"]))))
    cname = draw(st.sampled_from(["lz4", "lz4hc", "zstd", "zlib", "blosclz"]))
    shuffle = draw(st.sampled_from(["noshuffle", "shuffle", "bitshuffle"]))
    typesize = draw(st.sampled_from([1, 2, 3, itemsize]))
    compressors: list[Any] = [
        blosc3(cname, shuffle, typesize, draw(st.integers(0, 9)), draw(st.sampled_from([0, 128, 256]))),
        codec("zstd", level=draw(st.integers(-5, 5)), checksum=draw(st.booleans())),
        codec("gzip", level=draw(st.integers(0, 9))),
    ]
    around = st.lists(st.just({"name": "crc32c"}), max_size=1)
    chain += [*draw(around), *draw(st.lists(st.sampled_from(compressors), max_size=1)), *draw(around)]
    return chain, shape


@pytest.mark.slow
@settings(BOUNDED, max_examples=80)
@given(data=st.data())
def test_codec_chains(data: st.DataObject, device: TestedDevice) -> None:
    dtype = data.draw(st.sampled_from([np.dtype(name) for name in ("u1", "i2", "f4", "u8", "c16")]))
    values = data.draw(numpy_arrays(shapes=npst.array_shapes(max_dims=3, max_side=12), dtype=dtype))
    fill: Any = [0.0, 0.0] if values.dtype.kind == "c" else 0
    chunks = tuple(data.draw(st.integers(1, size + 2)) for size in values.shape)
    chain, _ = data.draw(chains(chunks, values.dtype.itemsize))
    directory = Path(tempfile.mkdtemp(dir=SCRATCH.name))
    same(write(directory, v3(values.shape, chunks, values.dtype.name, chain, fill), values)[...], values)
    array = device.open(directory)
    assert array.decode_path.startswith("cuda" if device.is_cuda else "cpu-native")
    same(device.read(array), values, chain)
    selection = data.draw(npst.basic_indices(values.shape, allow_newaxis=True, max_dims=6))
    same(device.read(array, selection), values[selection], (chain, selection))
