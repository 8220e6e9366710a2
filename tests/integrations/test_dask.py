"""Arrays of dask over Zarr arrays, within one process: blocks, tokens, and writes that never share a stored value."""

from __future__ import annotations

import itertools
import math
import pickle
import time
import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.dask_arrays import DATA, LAYOUTS, made

import gzarr
from gzarr.integrations import dask_blocks
from gzarr.integrations.dask_tasks import TaskSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.devices import TestedDevice

    Values = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Compute in this process."""
    with dask.config.set(scheduler="sync"):
        yield


# -- reading


# Some of these cut the chunks of some layouts.
@pytest.mark.filterwarnings("ignore::dask.array.PerformanceWarning")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("chunks", ["auto", {}, {0: -1}, {-1: 6}, (20, 12), -1, ((37,), (12, 11))])
def test_elements(layout: str, chunks: Any) -> None:
    array = made(layout)
    x = gzarr.to_dask(array, chunks)
    assert x.shape == DATA.shape
    assert x.dtype == DATA.dtype
    assert type(x._meta) is np.ndarray
    np.testing.assert_array_equal(x.compute(), DATA)


@given(st.sampled_from(sorted(LAYOUTS)), st.data())
@settings(max_examples=80, deadline=None)
def test_slices_are_numpys(layout: str, data: st.DataObject) -> None:
    index = []
    lists = 0
    for n in DATA.shape:
        kind = data.draw(st.sampled_from(["int", "slice", "list", "mask", "none"]))
        if kind == "none":
            index.append(None)
        if kind in ("list", "mask") and lists:
            kind = "slice"
        if kind == "int":
            index.append(data.draw(st.integers(-n, n - 1)))
        elif kind == "list":
            lists += 1
            index.append(data.draw(st.lists(st.integers(-n, n - 1), max_size=6)))
        elif kind == "mask":
            lists += 1
            index.append(np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n))))
        else:
            index.append(data.draw(st.slices(n)))
    x = gzarr.to_dask(made(layout), {})
    try:
        y = da.from_array(DATA, chunks=x.chunks)[tuple(index)] + 1
        assume(np.array_equal(y.compute(), DATA[tuple(index)] + 1))
    except (NotImplementedError, TypeError):
        # dask itself has no such selection, or fails with arrays of NumPy too.
        return
    y = x[tuple(index)]
    np.testing.assert_array_equal(y.compute(), DATA[tuple(index)])
    np.testing.assert_array_equal((y + 1).compute(), DATA[tuple(index)] + 1)


def test_indices_are_independent() -> None:
    data = np.arange(4 * 5 * 6).reshape(4, 5, 6)
    source = TaskSource(gzarr.create_array({}, data=data, chunks=(2, 5, 4), device="cpu"))
    np.testing.assert_array_equal(source[1, :, [0, 2]], data[1][:, [0, 2]])
    np.testing.assert_array_equal(source[1, 2:, 3], data[1, 2:, 3])


def test_slices_read_only_the_chunks_that_they_need() -> None:
    class Counting(gzarr.MemoryStore):
        keys: ClassVar[list[str]] = []

        def get(self, key: str) -> bytes | None:
            self.keys.append(key)
            return super().get(key)

        def get_partial_values(self, key_ranges: Any) -> Any:
            self.keys += [key for key, _ in key_ranges]
            return super().get_partial_values(key_ranges)

    array = made(store=Counting(), chunks=(5, 5))
    x = gzarr.to_dask(array)
    assert x.numblocks == (1, 1)
    Counting.keys.clear()
    np.testing.assert_array_equal(x[3, 7:9].compute(), DATA[3, 7:9])
    assert Counting.keys == ["c/0/1"]


@pytest.mark.parametrize("shape", [(), (0,), (5, 0, 3), (1,)])
def test_small_shapes(shape: tuple[int, ...]) -> None:
    data = np.full(shape, 7, "u2")
    array = gzarr.create_array({}, data=data, chunks=2, device="cpu")
    for chunks in ("auto", {}):
        np.testing.assert_array_equal(array.to_dask(chunks).compute(), data)
    copy = gzarr.from_dask(da.from_array(data), {})
    np.testing.assert_array_equal(copy[...], data)


@pytest.mark.parametrize("dtype", ["U5", "M8[s]", "c8", "bool", "f2", [("a", "i4"), ("b", "f8")]])
def test_data_types(dtype: Any) -> None:
    data = DATA[:8, :4].astype("u1").astype("i8").astype(dtype) if isinstance(dtype, str) else np.zeros((8, 4), dtype)
    array = gzarr.create_array({}, data=data, chunks=(3, 2), device="cpu")
    x = array.to_dask({})
    np.testing.assert_array_equal(x.compute(), data)
    np.testing.assert_array_equal(gzarr.from_dask(x.rechunk((4, 4)), {})[...], data)


def test_groups() -> None:
    group = gzarr.create_group({})
    group["a"] = DATA
    group.create_group("g")["b"] = DATA + 1
    found = group.to_dask({})
    assert sorted(found) == ["a", "g/b"]
    np.testing.assert_array_equal(found["g/b"].compute(), DATA + 1)
    with pytest.raises(gzarr.ArgumentError, match="names of their own"):
        gzarr.to_dask(group, name="x")
    group.store.mapping["g/b/zarr.json"] = b"{"
    with pytest.raises(gzarr.MetadataError):
        gzarr.to_dask(gzarr.open_group(group.store))


@pytest.mark.parametrize("chunks", ["64 MiB", "10kB", ("2kB", 20, 6), ("auto", 20, 10), ("auto", "5kB", 10)])
def test_sizes_are_taken_as_dask_takes_them(chunks: Any) -> None:
    array = gzarr.create_array({}, (100, 60, 40), "f4", chunks=(10, 20, 10), device="cpu")
    with warnings.catch_warnings():
        # Of blocks that cut chunks.
        warnings.simplefilter("ignore", da.PerformanceWarning)
        assert array.to_dask(chunks).chunks == da.from_array(array, chunks).chunks


def test_sizes_along_some_dimensions() -> None:
    array = gzarr.create_array({}, (100, 60, 40), "f4", chunks=(10, 20, 10), device="cpu")
    assert array.to_dask({0: "16kB"}).chunksize == (20, 20, 10)
    assert array.to_dask({0: "auto", 1: "32kB"}).chunks == array.to_dask(("32kB", "32kB", 10)).chunks
    # dask's configuration is the limit where no size is given.
    with dask.config.set({"array.chunk-size": "16kB"}):
        assert array.to_dask(("auto", 20, 10)).chunksize == (20, 20, 10)
        assert array.to_dask("8kB").chunksize == array.to_dask({}).chunksize


def test_arrays_as_chunks() -> None:
    torch = pytest.importorskip("torch")
    for chunks in (torch.tensor([10, 6]), {0: torch.tensor([10, 10])}):
        with pytest.raises(gzarr.ArgumentError, match=r"does not fit.*pass a length, a size such as '64 MiB', 'auto'"):
            made().to_dask(chunks)


@pytest.mark.parametrize(
    ("chunks", "match"),
    [
        ((5,), "does not fit"),
        ({2: 5}, "cannot name 2"),
        ({np.timedelta64(1, "s"): 5}, "numbers of dimensions"),
        ("no", "does not fit"),
        ("1e999 MB", "does not fit"),
        (("1kB", "2kB"), "does not fit"),
    ],
)
def test_wrong_chunks(chunks: Any, match: str) -> None:
    with pytest.raises(gzarr.ArgumentError, match=match):
        made().to_dask(chunks)
    with pytest.raises(gzarr.ArgumentError, match="not ndarray"):
        gzarr.to_dask(DATA)  # type: ignore[arg-type]


def test_blocks_that_cut_chunks_are_told() -> None:
    with pytest.warns(da.PerformanceWarning, match=r"cut its chunks \(10, 6\)"):
        made().to_dask((10, 7))
    with pytest.warns(da.PerformanceWarning, match=r"cut its chunks \(5, 3\)"):
        made("shards").to_dask((10, 4))
    # Parts of shards are no waste.
    made("shards").to_dask((5, 3))


def test_errors_of_chunks_arrive() -> None:
    array = made()
    array.store.mapping["c/1/2"] = b"broken"
    with pytest.raises(gzarr.ChunkDecodeError, match=r"c/1/2"):
        array.to_dask({}).compute()
    del array.store.mapping["c/1/2"]
    strict = gzarr.open_array(array.store, missing="error", device="cpu")
    with pytest.raises(gzarr.MissingChunkError):
        strict.to_dask().compute()


# -- blocks


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(1, 60), st.integers(1, 6)), min_size=1, max_size=4),
    st.booleans(),
    st.integers(1, 1 << 20),
)
@settings(deadline=None)
def test_auto_blocks(axes: list[tuple[int, int, int]], sharded: bool, limit: int) -> None:
    shape, inner, ratio = zip(*axes, strict=True)
    shards = tuple(a * b for a, b in zip(inner, ratio, strict=True)) if sharded else None
    array = gzarr.create_array({}, shape, "u2", chunks=inner, shards=shards, device="cpu")
    blocks = dask_blocks.auto_blocks(array, limit)
    assert tuple(map(sum, blocks)) == shape
    unit = inner
    if shards is not None and math.prod(map(min, shards, shape)) * 2 <= limit:
        unit = shards
    for lengths, chunk in zip(blocks, unit, strict=True):
        assert all(at % chunk == 0 for at in itertools.accumulate(lengths[:-1]))
    if shards is not None and unit is inner:
        # No block has parts of two shards.
        for lengths, shard in zip(blocks, shards, strict=True):
            ends = list(itertools.accumulate(lengths))
            assert all(
                begin // shard == (end - 1) // shard
                for begin, end in zip([0, *ends], ends, strict=False)
                if end > begin
            )
    largest = math.prod(map(max, blocks)) * 2
    assert largest <= max(limit, math.prod(map(min, unit, shape)) * 2)
    if largest:
        # None could be twice as long within the limit.
        room = [d for d, lengths in enumerate(blocks) if len(lengths) > 1]
        if unit is not inner or shards is None:
            assert all(largest // max(blocks[d]) * min(2 * max(blocks[d]), shape[d]) > limit for d in room)


def test_auto_blocks_have_about_128_mib() -> None:
    array = gzarr.create_array({}, (4096, 4096, 4096), "u2", chunks=(64, 64, 64), device="cpu")
    x = array.to_dask()
    assert x.chunksize == (512, 256, 512) or math.prod(x.chunksize) * 2 == 128 << 20
    with dask.config.set({"array.chunk-size": "1MiB"}):
        assert math.prod(array.to_dask().chunksize) * 2 == 1 << 20


def test_auto_blocks_of_strings_have_the_length_that_these_have() -> None:
    array = gzarr.create_array({}, data=np.full(4096, "x" * 2000, object), chunks=64)
    with dask.config.set({"array.chunk-size": "1MiB"}):
        (lengths,) = array.to_dask().chunks
        assert set(lengths) == {256}
        assert set(array.view[64:].to_dask().chunks[0][:-1]) == {256}
        sharded = gzarr.create_array({}, data=array[...], chunks=64, shards=1024)
        assert set(sharded.to_dask().chunks[0]) == {256}
        absent = gzarr.create_array({}, shape=4096, dtype=str, chunks=64)
        assert absent.to_dask().chunks == ((4096,),)
    assert array.to_dask().compute().tolist() == array[...].tolist()


def test_a_hundred_thousand_chunks_make_a_small_graph() -> None:
    array = gzarr.create_array({}, (100_000, 64, 64), "f4", chunks=(1, 64, 64), device="cpu")
    start = time.process_time()
    total = array.to_dask().sum()
    (optimised,) = dask.optimize(total)
    tasks = len(dict(optimised.__dask_graph__()))
    seconds = time.process_time() - start
    # 1.6 GB of chunks are blocks of 128 MiB, each of which takes a task or two.
    assert tasks < 40
    assert seconds < 2


def test_a_task_holds_no_attributes(tmp_path: Path) -> None:
    array = made(store=tmp_path / "a", attributes={"much": "x" * 100_000})
    x = array.to_dask({})
    layer = next(iter(x.dask.layers.values()))
    task = layer[(x.name, 0, 0)]
    assert len(pickle.dumps(task)) < 5000
    copy = pickle.loads(pickle.dumps(task))
    again = pickle.loads(pickle.dumps(layer[(x.name, 0, 1)]))
    source, other = (
        [a.value for a in t.args if hasattr(a, "value") and hasattr(a.value, "array")] for t in (copy, again)
    )
    # All tasks of a worker share one array.
    assert source[0].array is other[0].array


# -- writing


def writes_per_value(array: gzarr.Array, blocks: Any, offset: tuple[int, ...]) -> int:
    """Return the largest number of blocks that have elements of one stored value, by counting."""
    most = 1
    for d, lengths in enumerate(array.chunk_lengths):
        owner = np.repeat(np.arange(len(lengths)), lengths)[offset[d] :]
        block = np.repeat(np.arange(len(blocks[d])), blocks[d])
        pairs = {(int(a), int(b)) for a, b in zip(owner, block, strict=False)}
        counts = [sum(1 for a, _ in pairs if a == value) for value in {a for a, _ in pairs}]
        most *= max(counts, default=1)
    return most


def cuts(lengths: tuple[int, ...], begin: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Return blocks from ``begin`` on, cut where chunks of some lengths meet, or mostly there, or anywhere."""
    n = sum(lengths) - begin
    meet = [at - begin for at in itertools.accumulate(lengths) if 0 < at - begin < n] or [n]
    anywhere = st.integers(1, max(n - 1, 1))
    some = [st.lists(st.sampled_from(meet), max_size=4), st.lists(anywhere | st.sampled_from(meet), max_size=4)]
    return st.one_of(some).map(lambda at: tuple(np.diff([0, *sorted({a for a in at if a < n}), n]).tolist()))


@given(st.sampled_from(sorted(LAYOUTS)), st.data())
@settings(max_examples=150, deadline=None)
def test_blocks_that_share_stored_values_are_refused(layout: str, data: st.DataObject) -> None:
    array = gzarr.create_array({}, DATA.shape, "i4", device="cpu", **LAYOUTS[layout])
    begins = tuple(data.draw(st.sampled_from([0, 0, 4, 10, 12])) for _ in range(2))
    region = tuple(slice(begin, None) for begin in begins)
    part = DATA[region]
    blocks = tuple(data.draw(cuts(*axis)) for axis in zip(array.chunk_lengths, begins, strict=True))
    x = da.from_array(part, chunks=blocks)
    shared = writes_per_value(array, blocks, begins) > 1
    if shared:
        with pytest.raises(gzarr.ArgumentError, match="two tasks would write to the same one"):
            gzarr.store(x, array, region=region)
        assert not array[...].any()
    count = gzarr.store(x, array, region=region, rechunk=shared, compute=False)
    written = int(count.compute())
    if not shared:
        assert written == x.npartitions
    expected = np.zeros_like(DATA)
    expected[region] = part
    np.testing.assert_array_equal(array[...], expected)


def test_moved_blocks_share_nothing() -> None:
    array = made("rectilinear")
    blocks = ((9, 1, 3, 2, 10, 9, 3), (5, 5, 13))
    moved = dask_blocks.moved_blocks(array, blocks, (0, 0))
    assert moved == ((10, 4, 20, 3), (6, 17))
    assert writes_per_value(array, moved, (0, 0)) == 1


def test_store_to_several_computes_together() -> None:
    calls: list[int] = []

    def count(block: Values) -> Values:
        calls.append(1)
        return block

    x = da.from_array(DATA, chunks=(20, 23)).map_blocks(count, meta=np.empty((0, 0), "i4"))
    targets = [gzarr.create_array({}, DATA.shape, "i4", chunks=(20, 23), device="cpu") for _ in range(2)]
    assert gzarr.store([x, x + 1], targets) is targets
    np.testing.assert_array_equal(targets[0][...], DATA)
    np.testing.assert_array_equal(targets[1][...], DATA + 1)
    assert len(calls) <= 2 * x.npartitions
    with pytest.raises(gzarr.ArgumentError, match="written to twice"):
        gzarr.store([x, x], [targets[0], targets[0]])
    with pytest.raises(gzarr.ArgumentError, match="1 dask arrays, but 2"):
        gzarr.store([x], targets)


def test_writing_again_writes_again() -> None:
    array = gzarr.create_array({}, DATA.shape, "i4", chunks=(20, 23), device="cpu")
    x = da.from_array(DATA, chunks=(20, 23))
    one, two = (gzarr.store(x, array, compute=False) for _ in range(2))
    assert one.name != two.name


def test_what_cannot_be_stored() -> None:
    array = gzarr.create_array({}, DATA.shape, "u1", chunks=(20, 23), device="cpu")
    x = da.from_array(DATA, chunks=(20, 23))
    with pytest.raises(gzarr.ArgumentError, match=r"has the shape \(37, 23\), but / has \(30,\)"):
        gzarr.store(x, gzarr.create_array({}, 30, "u1", device="cpu"))
    with pytest.raises(gzarr.ArgumentError, match="the region"):
        gzarr.store(x, array, region=np.s_[:30, :])
    with pytest.raises(gzarr.ArgumentError, match="2 slices with step 1"):
        gzarr.store(x, array, region=np.s_[::2, :])
    with pytest.raises(gzarr.ArgumentError, match="unknown lengths"):
        gzarr.store(x[x[:, 0] > 0], array)
    with pytest.raises(gzarr.ReadOnlyError):
        gzarr.store(x, gzarr.open_array(array.store, device="cpu"))
    with pytest.raises(gzarr.ArgumentError, match="not ndarray"):
        gzarr.store(DATA, array)
    with pytest.raises(gzarr.ArgumentError, match="not to ndarray"):
        gzarr.store(x, DATA)
    with pytest.raises(gzarr.ArgumentError, match="no locks"):
        gzarr.store(x.rechunk(7), array, lock=True)
    # -999 is no uint8.
    with pytest.raises(gzarr.ArgumentError, match="uint8"):
        gzarr.store(x, array)


def test_locks(tmp_path: Path) -> None:
    array = gzarr.create_array(tmp_path / "a", shape=DATA.shape, dtype="i4", chunks=(20, 20), device="cpu")
    gzarr.store(da.from_array(DATA, chunks=7), array, lock=True, scheduler="threads")
    np.testing.assert_array_equal(array[...], DATA)


@pytest.mark.parametrize("blocks", [(37, 23), (8, 23), (10, 6), (1, 1), ((20, 17), (5, 10, 8))])
@pytest.mark.parametrize("shards", [None, "auto"])
def test_from_dask(blocks: Any, shards: Any, tmp_path: Path) -> None:
    x = da.from_array(DATA, chunks=blocks)
    array = gzarr.from_dask(x, tmp_path / "a", shards=shards, attributes={"units": "K"})
    assert array.attrs["units"] == "K"
    assert not array.read_only
    stored = array.shards or array.chunks
    assert all(at % n == 0 for lengths, n in zip(x.chunks, stored, strict=True) for at in np.cumsum(lengths[:-1]))
    if blocks == (10, 6):
        assert stored == blocks
    np.testing.assert_array_equal(np.asarray(zarr.open_array(tmp_path / "a", mode="r")[...]), DATA)
    np.testing.assert_array_equal(da.from_zarr(str(tmp_path / "a")).compute(), DATA)


def test_from_dask_chooses_chunks() -> None:
    x = da.zeros((1000, 1000, 1000), chunks=(250, 250, 500), dtype="f4")
    array, count = gzarr.from_dask(x, {}, shards="auto", compute=False)
    assert array.shards == (250, 250, 500)
    assert math.prod(array.chunks) * 4 <= 1 << 20
    assert count.shape == ()
    irregular = da.zeros((30, 40), chunks=((7, 11, 12), (20, 20)))
    with pytest.raises(gzarr.ArgumentError, match="no common length"):
        gzarr.from_dask(irregular, {})
    assert gzarr.from_dask(irregular, {}, rechunk=True).shape == (30, 40)
    store: dict[str, bytes] = {}
    with pytest.raises(gzarr.ArgumentError, match="meet at 7"):
        gzarr.from_dask(irregular, store, chunks=(5, 5))
    assert not store
    gzarr.from_dask(da.ones((30, 40), chunks=(10, 20)), store, chunks=(5, 10), shards=(10, 20))
    with pytest.raises(gzarr.ArgumentError, match="there is an array"):
        gzarr.from_dask(da.ones((30, 40), chunks=(10, 20)), store)
    with pytest.raises(gzarr.ArgumentError, match="not ndarray"):
        gzarr.from_dask(DATA, {})


def test_other_processes_cannot_write_to_memory(tmp_path: Path) -> None:
    x = da.from_array(DATA, chunks=(20, 23))
    array = gzarr.create_array({}, DATA.shape, "i4", chunks=(20, 23), device="cpu")
    with pytest.raises(gzarr.ArgumentError, match="memory of this process"):
        gzarr.store(x, array, scheduler="processes")
    with pytest.raises(gzarr.ArgumentError, match="memory of this process"):
        pickle.dumps(dict(gzarr.store(x, array, compute=False).dask))
    with gzarr.ZipStore(tmp_path / "a.zip", mode="w") as archive:
        zipped = gzarr.create_array(archive, DATA.shape, "i4", chunks=(20, 23), device="cpu")
        with pytest.raises(gzarr.ArgumentError, match="one process can write to an archive"):
            gzarr.store(x, zipped, scheduler="processes")
        gzarr.store(x, zipped, scheduler="threads")
    np.testing.assert_array_equal(gzarr.open_array(tmp_path / "a.zip", device="cpu")[...], DATA)
    for store in (zarr.storage.MemoryStore(), "memory://of-fsspec"):
        remembered = gzarr.create_array(store, DATA.shape, "i4", chunks=(20, 23), device="cpu")
        with pytest.raises(gzarr.ArgumentError, match="memory of this process"):
            gzarr.store(x, remembered, scheduler="processes")


# -- devices


def test_blocks_are_on_the_device(device: TestedDevice) -> None:
    made(store=(store := {}))
    array = device.open(store)
    x = array.to_dask((20, 12))
    blocks = [block.compute() for block in x.to_delayed().ravel()]
    assert all(type(block) is type(x._meta) for block in blocks)
    assert all(type(block) is type(array[0:1]) for block in blocks)
    np.testing.assert_array_equal(device.to_numpy(blocks[3]), DATA[20:, 12:])
    target = gzarr.create_array({}, DATA.shape, "i4", chunks=(20, 12), device=device.name)
    gzarr.store(x, target)
    np.testing.assert_array_equal(gzarr.open_array(target.store, device="cpu")[...], DATA)
    copied = gzarr.from_dask(x, {}, device=device.name)
    np.testing.assert_array_equal(gzarr.open_array(copied.store, device="cpu")[...], DATA)
    # What arrives in a worker reads to that worker's GPU.
    arrived = pickle.loads(pickle.dumps(next(iter(x.dask.layers.values()))[(x.name, 1, 1)]))()
    assert type(arrived) is type(x._meta)
