"""Views where arrays are taken: ``map_blocks``, the loader and the others do what they would do for their elements."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.ndimage
from hypothesis import HealthCheck, given, settings
from support.counting_store import CountingStore

import gzarr
from gzarr.loader import Dataset, Loader, Patches, Rows, Windows

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

SHAPE, CHUNKS, NAMES = (3, 20, 30, 40), (1, 5, 12, 16), ("c", "z", "y", "x")
DATA = np.random.default_rng(1).integers(0, 1000, SHAPE).astype("u2")

#: Selections of the array, most of which cut its chunks.
PARTS: list[Any] = [
    (1,),
    (slice(1, 3), slice(None), slice(3, 27), slice(16, None)),
    (0, 7),
    (2, slice(None), slice(None, None, 2), slice(None, None, -1)),
    (slice(None, None, -2), ..., slice(5, 33, 7)),
    (..., 3),
]

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")


def stored(store: Any = None, **options: Any) -> gzarr.Array:
    options = {"chunks": CHUNKS, "dimension_names": NAMES, "device": "cpu", **options}
    return gzarr.create_array({} if store is None else store, data=DATA, **options)


def opened(device: TestedDevice, **options: Any) -> gzarr.Array:
    return device.open(stored(**options).store)


# -- map_blocks


@pytest.mark.parametrize("part", PARTS, ids=str)
@pytest.mark.parametrize("options", [{}, {"shards": (3, 10, 24, 32)}], ids=["chunks", "shards"])
def test_blocks(part: Any, options: dict[str, Any], device: TestedDevice) -> None:
    wanted = DATA[part]

    def lowest(x: Any) -> Any:
        return device.array(scipy.ndimage.minimum_filter(device.to_numpy(x), 3, mode="mirror"))

    view = opened(device, **options).view[part]
    for block, budget in (("auto", 1 << 20), (tuple(-(-n // 2) for n in wanted.shape), 1)):
        found = gzarr.map_blocks(lowest, view, halo=1, boundary="reflect", block=block, budget_bytes=budget)
        np.testing.assert_array_equal(device.to_numpy(found), scipy.ndimage.minimum_filter(wanted, 3, mode="mirror"))
    same = gzarr.map_blocks(lambda x: x, view, block="auto")
    np.testing.assert_array_equal(device.to_numpy(same), wanted)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_blocks(data: st.DataObject, device: TestedDevice) -> None:
    ndim = data.draw(st.integers(1, 3))
    shape, chunks = (tuple(data.draw(st.integers(1, n)) for _ in range(ndim)) for n in (14, 6))
    everything = np.arange(np.prod(shape)).reshape(shape).astype("i4")
    array = device.open(gzarr.create_array({}, data=everything, chunks=chunks, device="cpu").store)
    part = tuple(
        slice(None, None, data.draw(st.sampled_from([1, -1, 2, -3])))
        if data.draw(st.booleans())
        else slice(data.draw(st.integers(0, n - 1)), None)
        for n in shape
    )
    wanted = everything[part]
    halo = tuple(data.draw(st.integers(0, 3)) for _ in shape)
    block = tuple(data.draw(st.integers(1, n)) for n in wanted.shape)
    budget_bytes = data.draw(st.sampled_from([1, 500, 1 << 20]))

    def highest(x: Any) -> Any:
        return device.array(scipy.ndimage.maximum_filter(device.to_numpy(x), [2 * n + 1 for n in halo]))

    found = gzarr.map_blocks(highest, array.view[part], halo=halo, block=block, budget_bytes=budget_bytes)
    expected = scipy.ndimage.maximum_filter(wanted, [2 * n + 1 for n in halo])
    np.testing.assert_array_equal(device.to_numpy(found), expected)


def test_one_channel_is_decoded_and_no_more() -> None:
    store = CountingStore()
    array = stored(store)
    store.asked.clear()
    out = gzarr.map_blocks(np.negative, array.view[1], out={}, halo=2)
    np.testing.assert_array_equal(out[...], np.negative(DATA[1]))
    assert sum("c/" in request.key for request in store.asked) == 4 * 3 * 3
    assert (out.chunks, out.dimension_names, out.shards) == (CHUNKS[1:], NAMES[1:], None)


def test_outputs_are_like_the_view(tmp_path: Path) -> None:
    sharded = stored(shards=(3, 10, 24, 32), zarr_format=3)
    out = gzarr.map_blocks(lambda x: x / 2, sharded.view[1, :, 5:], out=tmp_path / "a")
    assert (out.chunks, out.shards, out.dtype) == (CHUNKS[1:], (10, 24, 32), np.dtype("f8"))
    uneven = stored(chunks=[[1, 2], [20], [11, 19], [40]])
    out = gzarr.map_blocks(np.negative, uneven.view[0, :, 5:], out=tmp_path / "b")
    np.testing.assert_array_equal(out[...], np.negative(DATA[0, :, 5:]))
    # Channels of one array are inputs side by side, and their axes are named.
    array = stored()
    ratio = gzarr.map_blocks(
        lambda a, b: a / (b + 1.0), array.view[0], array.view[1], out={}, block={"z": 5, "x": -1, "y": 12}
    )
    np.testing.assert_array_equal(ratio[...], DATA[0] / (DATA[1] + 1.0))


def test_blocks_in_other_processes(tmp_path: Path) -> None:
    view = stored(tmp_path / "a").view[1, ::-1, 3:]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        out = gzarr.map_blocks(np.negative, view, out=tmp_path / "b", client=pool)
    np.testing.assert_array_equal(out[...], np.negative(DATA[1, ::-1, 3:]))
    with pytest.raises(gzarr.ArgumentError, match="memory of this process"):
        gzarr.map_blocks(np.negative, stored().view[1], out=tmp_path / "c", client=ProcessPoolExecutor(1))


def test_a_part_of_the_output_is_no_input() -> None:
    array = stored()
    with pytest.raises(gzarr.ArgumentError, match="has its elements in another order"):
        gzarr.map_blocks(np.negative, array.view[::-1], out=array)
    with pytest.raises(gzarr.ArgumentError, match="is a part of the output"):
        gzarr.map_blocks(np.negative, array.view[0], out=array.store, overwrite=True)
    np.testing.assert_array_equal(array[...], DATA)


# -- arrays like views


def test_arrays_like_views() -> None:
    array = stored(order="F", codecs="zstd", fill_value=9)
    copy = gzarr.array(array.view[1, :, 10:], device="cpu")
    np.testing.assert_array_equal(copy[...], DATA[1, :, 10:])
    assert (copy.chunks, copy.dimension_names, copy.fill_value, copy.order) == (CHUNKS[1:], NAMES[1:], 9, "F")
    assert [type(codec) for codec in copy.codecs] == [type(codec) for codec in array.codecs]
    empty = gzarr.empty_like(array.view[0, 0, ::2, 38:])
    assert (empty.shape, empty.chunks, empty.dtype) == ((15, 2), (12, 2), np.dtype("u2"))
    np.testing.assert_array_equal(gzarr.array(array.view[0, 0, 0])[...], DATA[0, 0, 0])


# -- the loader


@pytest.mark.parametrize("part", PARTS, ids=str)
@pytest.mark.parametrize("shuffle", [False, "blocks", "full"])
def test_batches(part: Any, shuffle: Any, device: TestedDevice) -> None:
    wanted = DATA[part]
    patch = tuple(min(n, 4) for n in wanted.shape)
    loader = Loader(opened(device).view[part], Patches(patch), batch_size=3, shuffle=shuffle, drop_last=False)
    # Beyond its ends, a view is what it would be by itself.
    padded, count = np.pad(wanted, [(0, n) for n in patch], mode="reflect"), 0
    for batch in loader:
        for found, origin in zip(device.to_numpy(batch["data"]), batch.origins, strict=True):
            box = tuple(slice(a, a + n) for a, n in zip(origin, patch, strict=True))
            np.testing.assert_array_equal(found, padded[box])
            count += 1
    assert count == np.prod([-(-n // w) for n, w in zip(wanted.shape, patch, strict=True)])
    np.testing.assert_array_equal(device.to_numpy(Dataset(opened(device).view[part], Rows())[1]["data"]), wanted[1])


@pytest.mark.parametrize("shuffle", ["blocks", "full"])
def test_samples_that_overlap_and_volumes(shuffle: Any, device: TestedDevice) -> None:
    array = opened(device)
    volumes = [{"a": array.view[c], "b": array.view[(c + 1) % 3, ::-1]} for c in range(3)]
    seen = set()
    for batch in Loader(volumes, Patches((6, 8, 8), stride=(3, 4, 4), pad="reflect"), batch_size=5, shuffle=shuffle):
        for i, (volume, origin) in enumerate(zip(batch.volumes.tolist(), batch.origins.tolist(), strict=True)):
            box = tuple(slice(a, a + n) for a, n in zip(origin, (6, 8, 8), strict=True))
            if all(s.stop <= n for s, n in zip(box, SHAPE[1:], strict=True)):
                np.testing.assert_array_equal(device.to_numpy(batch["a"])[i], DATA[volume][box])
                np.testing.assert_array_equal(device.to_numpy(batch["b"])[i], DATA[(volume + 1) % 3, ::-1][box])
            seen.add((volume, *origin))
    assert len(seen) == len({tuple(row) for row in seen}) > 100


def test_windows_and_states(tmp_path: Path) -> None:
    array = stored(tmp_path / "a")
    view = array.view[1, :, 4, 8:]
    for batch in Loader(view, Windows(0, {"x": (0, 3), "y": (4, 5)}), batch_size=2):
        for x, y, (origin,) in zip(batch["x"], batch["y"], batch.origins, strict=True):
            np.testing.assert_array_equal(x, DATA[1, origin : origin + 4, 4, 8:])
            np.testing.assert_array_equal(y, DATA[1, origin + 4 : origin + 6, 4, 8:])
    state = Loader(view, Rows(), batch_size=2).state_dict()
    Loader(array.view[1].view[:, 4, 8:], Rows(), batch_size=2).load_state_dict(state)
    with pytest.raises(gzarr.ArgumentError, match="the state does not belong to this loader"):
        Loader(array.view[2, :, 4, 8:], Rows(), batch_size=2).load_state_dict(state)


def test_arrays_that_grow_and_shrink(tmp_path: Path) -> None:
    array = stored(tmp_path / "a")
    loader = Loader(array.view[1, 2:18], Rows(), batch_size=4)
    array.resize((5, 18, 30, 40))
    assert sum(len(batch["data"]) for batch in loader) == 16
    array.resize((5, 17, 30, 40))
    with pytest.raises(gzarr.ArgumentError, match="since this loader was made"):
        list(loader)


# -- dask


@pytest.mark.parametrize("part", PARTS, ids=str)
@pytest.mark.parametrize("options", [{}, {"shards": (3, 10, 24, 32)}], ids=["chunks", "shards"])
def test_dask_arrays(part: Any, options: dict[str, Any], device: TestedDevice) -> None:
    view = opened(device, **options).view[part]
    found = view.to_dask({})
    assert found.chunks == tuple(lengths or (0,) for lengths in view.chunk_lengths)
    np.testing.assert_array_equal(device.to_numpy(found.compute(scheduler="sync")), DATA[part])
    reversed_ = gzarr.to_dask(view)[::-1]
    np.testing.assert_array_equal(device.to_numpy(reversed_.compute(scheduler="threads")), DATA[part][::-1])


def test_names_of_dask_arrays(tmp_path: Path) -> None:
    array = stored(tmp_path / "a")
    names = [array.view[part].to_dask().name for part in (0, 1, slice(1), slice(1, None), slice(None, None, -1))]
    names.append(array.to_dask().name)
    assert len(set(names)) == 6
    assert gzarr.open_array(tmp_path / "a", device="cpu").view[0].to_dask().name == names[0]
    arrived = pickle.loads(pickle.dumps(array.view[1, ::-1].to_dask()))
    np.testing.assert_array_equal(arrived.compute(scheduler="sync"), DATA[1, ::-1])


# -- copies


@pytest.mark.parametrize("part", PARTS, ids=str)
@pytest.mark.parametrize("zarr_format", [2, 3, "sharded", "uneven"])
def test_copies(part: Any, zarr_format: Any, tmp_path: Path, device: TestedDevice) -> None:
    options: dict[str, Any] = {"zarr_format": 2} if zarr_format == 2 else {}
    if zarr_format == "sharded":
        options["shards"] = (3, 10, 24, 32)
    elif zarr_format == "uneven":
        options["chunks"] = [[1, 2], [20], [11, 19], [40]]
    view = stored(attributes={"a": 1}, codecs="zstd", **options).view[part]
    copied = gzarr.copy(view, tmp_path / "a", read_back=True, device=device.name, progress=False)
    np.testing.assert_array_equal(device.to_numpy(copied[...]), DATA[part])
    assert (copied.dimension_names, copied.attrs["a"]) == (view.dimension_names, 1)
    assert (copied.zarr_format, copied.compressors) == (view.zarr_format, view.base.compressors)
    if zarr_format in (2, 3):
        assert copied.chunks == tuple(min(n, c) for n, c in zip(view.shape, axes_of(part, CHUNKS), strict=True))
    other = gzarr.copy(view, tmp_path / "b", zarr_format=3, chunks=4, shards=None, codecs="auto", progress=False)
    np.testing.assert_array_equal(other[...], DATA[part])
    assert other.chunks == (4,) * view.ndim


def axes_of(part: Any, items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the items of the axes that a part has."""
    at = part.index(...) if ... in part else len(part)
    whole = (slice(None),) * (len(items) - len([one for one in part if one is not ...]))
    full = (*part[:at], *whole, *part[at + 1 :])
    return tuple(item for item, one in zip(items, full, strict=True) if not isinstance(one, int))


def test_copies_that_are_resumed_and_refused(tmp_path: Path) -> None:
    array = stored(tmp_path / "a", fill_value=0)
    array[0, :5] = 0
    view = array.view[0, ::2]
    copied = gzarr.copy(view, tmp_path / "b", progress=False)
    np.testing.assert_array_equal(copied[...], array[0, ::2])
    # Chunks of nothing but the fill value are not stored.
    copied.store.erase("c/1/1/1")
    again = gzarr.copy(view, tmp_path / "b", resume=True, read_back=True, progress=False)
    np.testing.assert_array_equal(again[...], array[0, ::2])
    with pytest.raises(gzarr.ArgumentError, match="is not a copy of the source"):
        gzarr.copy(array.view[0], tmp_path / "b", resume=True, progress=False)
    with pytest.raises(gzarr.ArgumentError):
        gzarr.copy(view, tmp_path / "a", overwrite=True, progress=False)
    array.resize((3, 10, 30, 40))
    with pytest.raises(gzarr.ArgumentError, match="is not there any more"):
        gzarr.copy(view, tmp_path / "c", progress=False)
    assert not (tmp_path / "c").exists()


def test_copies_by_other_processes(tmp_path: Path) -> None:
    view = stored(tmp_path / "a").view[2, ..., ::-1]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        copied = gzarr.copy(view, tmp_path / "b", client=pool, progress=False)
    np.testing.assert_array_equal(copied[...], DATA[2, ..., ::-1])


def test_views_with_xarrays_names_in_version_2(tmp_path: Path) -> None:
    array = stored(zarr_format=2)
    assert array.attrs["_ARRAY_DIMENSIONS"] == list(NAMES)
    assert array.view[0, 0].attrs["_ARRAY_DIMENSIONS"] == ["y", "x"]
    assert gzarr.array(array.view[0, 0]).attrs["_ARRAY_DIMENSIONS"] == ["y", "x"]
    assert gzarr.copy(array.view[0, 0], tmp_path / "a", progress=False).attrs["_ARRAY_DIMENSIONS"] == ["y", "x"]


# -- images


@pytest.mark.parametrize("part", [(1,), (slice(1, 3), slice(None), slice(3, 27)), (2, ..., slice(None, None, -1))])
def test_images(part: Any, tmp_path: Path, device: TestedDevice) -> None:
    view = opened(device).view[part]
    image = gzarr.ome.create(tmp_path / "a", data=view, axes="zyx" if view.ndim == 3 else "czyx", levels=2)
    wanted = gzarr.ome.create(tmp_path / "b", data=DATA[part], axes=list(image.axes), levels=2)
    for found, level in zip(image.levels, wanted.levels, strict=True):
        np.testing.assert_array_equal(np.asarray(found.array._on_device("cpu")), level.array._on_device("cpu")[...])
    labels = gzarr.create_array({}, data=DATA // 100, chunks=CHUNKS, device="cpu").view[part]
    if view.ndim == 3:
        made = gzarr.ome.create_labels(tmp_path / "a", "n", labels)
        np.testing.assert_array_equal(made.levels[0].array._on_device("cpu")[...], (DATA // 100)[part])


def test_strings() -> None:
    words = gzarr.array(np.array([["a", "bc"], ["", "d"]], object), dtype=str, chunks=1)
    assert gzarr.array(words.view[:, 1])[...].tolist() == ["bc", "d"]
    assert gzarr.map_blocks(lambda x: x, words.view[::-1], out={})[...].tolist() == [["", "d"], ["a", "bc"]]
    assert gzarr.copy(words.view[1], {}, progress=False)[...].tolist() == ["", "d"]
