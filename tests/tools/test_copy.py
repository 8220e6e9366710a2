"""Copying: everything arrives, with any format, chunks and codecs; nothing is trusted, nothing is left half done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from support import zarr_arrays as z
from support.copied_hierarchies import DATA, check_same, draft_hierarchy, hierarchy
from support.copies import planned_copy

import gzarr
from gzarr.errors import (
    ArgumentError,
    ChunkDecodeError,
    ChunkWriteError,
    MetadataError,
    NodeNotFoundError,
    ReadOnlyError,
    StoreError,
)
from gzarr.hierarchy.create import create_array, create_group
from gzarr.stores.local import LocalStore
from gzarr.stores.memory import MemoryStore
from gzarr.tools.comparing import identical
from gzarr.tools.copy import copy
from gzarr.tools.copy_array import region_shape
from gzarr.tools.verify import verify

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from support import devices

pytestmark = pytest.mark.slow

TARGETS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "version 3": {"zarr_format": 3},
    "version 2": {"zarr_format": 2},
    "draft": {"zarr_format": "3-draft-2022"},
    "chunks": {"chunks": 13},
    "shards": {"zarr_format": 3, "chunks": 8, "shards": 24},
    "codecs": {"codecs": [{"name": "zstd", "configuration": {"level": 1, "checksum": True}}]},
    "everything": {"zarr_format": 3, "chunks": "auto", "shards": "auto", "codecs": "auto"},
}


@pytest.mark.parametrize("source_format", [2, 3, "3-draft-2022"])
@pytest.mark.parametrize("target", TARGETS)
def test_hierarchies(target: str, source_format: Any, tmp_path: Path) -> None:
    options = TARGETS[target]
    wanted = options.get("zarr_format", source_format)
    source = (
        hierarchy(source_format) if "3-draft-2022" not in (source_format, wanted) else draft_hierarchy(source_format)
    )
    before = dict(source)
    if options.get("chunks") in (8, 13):
        # One length for any number of dimensions.
        assert isinstance(options["chunks"], int)
    node = copy(source, tmp_path / "copy", read_back=True, **options)
    assert node.zarr_format == wanted
    assert not node.read_only
    check_same(source, tmp_path / "copy")
    assert source == before
    if wanted in (2, 3):
        peer = zarr.open_group(tmp_path / "copy", mode="r")["g/full"]
        assert isinstance(peer, zarr.Array)
        z.same(np.asarray(peer[...]), DATA)
    again = planned_copy(source, tmp_path / "copy", resume=True, **options)
    again.run()
    assert again.written == 0
    assert again.kept > 0


def test_absent_chunks_stay_absent_and_cost_nothing() -> None:
    source = {}
    array = create_array(source, shape=(10**9, 100), dtype="u2", chunks=(100, 50), fill_value=9)
    array[123_456_700] = 1
    array[-1, -1] = 2
    target: dict[str, bytes] = {}
    made = copy(source, target, chunks=(50, 100), read_back=True, budget_bytes=16 << 20)
    assert isinstance(made, gzarr.Array)
    assert made.nchunks_initialized == 2
    assert (made[123_456_700] == 1).all()
    assert made[-1, -1] == 2
    assert made[-1, 0] == made[5, 5] == 9


def test_values_are_copied_as_they_are_where_they_stay_so() -> None:
    source = hierarchy(2)
    for options in ({}, {"zarr_format": 3}):
        planned = planned_copy(source, {}, **options)
        assert all(array.copies_values for array in planned.arrays)
    target: dict[str, bytes] = {}
    copy(source, target, read_back=True)
    assert target == source
    new: dict[str, bytes] = {}
    copy(source, new, zarr_format=3)
    assert new["g/full/c/1/2"] == source["g/full/1.2"]
    assert not any(array.copies_values for array in planned_copy(source, {}, path="g", chunks=10).arrays)


def test_part_of_a_hierarchy_into_part_of_another() -> None:
    source = hierarchy()
    target = hierarchy()
    before = dict(target)
    copy(source, target, path="g", dest_path="new/place", zarr_format=3, chunks=7)
    z.same(gzarr.open_array(target, path="new/place/full", device="cpu")[...], DATA)
    assert not gzarr.open_group(target, path="new").implicit
    assert all(target[key] == value for key, value in before.items())
    copied = copy(gzarr.open_array(source, path="g/full"), target, dest_path="single")
    assert isinstance(copied, gzarr.Array)
    assert copied.path == "single"
    z.same(copied[...], DATA)
    with pytest.raises(ArgumentError, match="needs a store as source"):
        copy(gzarr.open_group(source), {}, path="g")


@pytest.mark.parametrize("zarr_format", [1, 2])
def test_single_arrays_of_older_formats(zarr_format: Any) -> None:
    source: dict[str, bytes] = {}
    codecs = [{"name": "blosc", "configuration": {"cname": "zstd"}}]
    create_array(source, data=DATA, chunks=(16, 16), zarr_format=zarr_format, codecs=codecs, attributes={"a": 1})
    for wanted in (1, 2, 3):
        made = copy(source, {}, zarr_format=wanted, read_back=True)
        assert made.zarr_format == wanted
        assert dict(made.attrs) == {"a": 1}
        z.same(made[...], DATA)


def test_texts_records_and_byte_orders() -> None:
    texts = np.array(["a", "", "ünï", "long " * 50, "x"], object)
    records = z.sample((9,), [("a", "<u2"), ("b", "<f8")])
    source: dict[str, bytes] = {}
    root = create_group(source, zarr_format=2)
    root.create_array("texts", data=texts, chunks=2)
    root.create_array("records", data=records, chunks=4)
    root.create_array("big", data=np.arange(7, dtype=">i4"), chunks=4)
    root.create_array("fortran", data=DATA, chunks=(16, 16), order="F")
    for options in ({}, {"chunks": 3}, {"zarr_format": 3, "chunks": 3}, {"zarr_format": 3, "codecs": "auto"}):
        target: dict[str, bytes] = {}
        copy(source, target, read_back=True, **options)
        check_same(source, target)


@pytest.mark.parametrize("options", [{}, {"zarr_format": 3}, {"chunks": 4}, {"zarr_format": 3, "chunks": 4}])
def test_texts_whose_fill_value_is_left_open(options: dict[str, Any]) -> None:
    source: dict[str, bytes] = {}
    create_array(source, shape=(4,), dtype=str, chunks=1, zarr_format=2)[1] = "x"
    document = json.loads(source[".zarray"])
    source[".zarray"] = json.dumps({**document, "fill_value": None}).encode()
    made = copy(source, {}, read_back=True, **options)
    assert made[1] == "x"
    if options:
        assert made[...].tolist() == ["", "x", "", ""]


def test_through_a_device(device: devices.TestedDevice) -> None:
    source = hierarchy()
    target: dict[str, bytes] = {}
    planned = planned_copy(source, target, device=device.name, chunks=11, codecs="zstd", read_back=True)
    planned.run()
    assert {array.source.device for array in planned.arrays} >= {device.name}
    check_same(source, target)


def test_rectilinear_grids() -> None:
    source: dict[str, bytes] = {}
    create_array(source, data=DATA, chunks=([10, 5, 35], [20, 21]))
    same = copy(source, {}, read_back=True, codecs="zstd", budget_bytes=10)
    assert isinstance(same, gzarr.Array)
    assert same.chunk_lengths == ((10, 5, 35), (20, 21))
    z.same(same[...], DATA)
    regular = copy(source, {}, read_back=True, chunks=12, budget_bytes=10)
    z.same(regular[...], DATA)
    back = copy(regular, {}, chunks=([30, 20], [40, 1]), read_back=True)
    z.same(back[...], DATA)
    with pytest.raises(ArgumentError, match="format 2"):
        copy(source, {}, zarr_format=2)


def test_regions_are_whole_chunks_of_the_target_and_of_the_source_where_they_fit() -> None:
    def shape(source: Any, target: Any, budget: int) -> tuple[int, ...]:
        arrays = [create_array({}, shape=(1000, 1000), dtype="u1", chunks=chunks) for chunks in (source, target)]
        return region_shape(arrays[0], arrays[1], budget)

    assert shape((100, 100), (50, 50), 1) == (50, 50)
    assert shape((100, 100), (50, 50), 10_000) == (100, 100)
    assert shape((30, 30), (50, 50), 150 * 150) == (150, 150)
    assert shape((30, 30), (50, 50), 300_000) == (300, 1000)
    assert shape((100, 100), (50, 50), 10**9) == (1000, 1000)
    assert shape((7, 7), (1000, 1000), 10) == (1000, 1000)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Return an array's layout, the storage of its copy, and a budget."""
    shape = tuple(draw(st.lists(st.integers(0, 20), max_size=3)))
    lengths = st.tuples(*(st.integers(1, n + 3) for n in shape))
    inner = draw(lengths)
    sharded = draw(st.booleans())
    shards = tuple(n * draw(st.integers(1, 3)) for n in inner) if sharded else None
    copied = {"chunks": inner, "shards": shards, "codecs": draw(st.sampled_from(["auto", "keep"]))}
    return {"shape": shape, "chunks": draw(lengths)}, copied, draw(st.sampled_from([1, 300, 3000, 1 << 20]))


@given(layouts(), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_any_layout(layout: tuple[dict[str, Any], dict[str, Any], int], seed: int) -> None:
    made, options, budget = layout
    rng = np.random.default_rng(seed)
    source: dict[str, bytes] = {}
    array = create_array(source, dtype="i2", fill_value=5, zarr_format=2, **made)
    data = np.full(array.shape, 5, "i2")
    for _ in range(2):
        box = tuple(slice(*sorted(rng.integers(0, n + 1, 2))) for n in array.shape)
        data[box] = array[box] = rng.integers(-9, 9)
    target: dict[str, bytes] = {}
    copied = copy(source, target, zarr_format=3, read_back=True, budget_bytes=budget, **options)
    z.same(copied.read(), data)
    again = planned_copy(source, target, zarr_format=3, resume=True, budget_bytes=budget, **options)
    again.run()
    assert again.written == 0


def test_memory_is_bounded(tmp_path: Path) -> None:
    budget = 4 << 20
    array = create_array(tmp_path / "a", shape=(64, 512, 1024), dtype="u1", chunks=(64, 64, 64), codecs=["zstd"])
    for i in range(0, 512, 64):
        array[:, i : i + 64] = np.random.default_rng(i).integers(0, 9, (64, 64, 1024), "u1")
    planned = planned_copy(tmp_path / "a", tmp_path / "b", chunks=(1, 256, 256), read_back=True, budget_bytes=budget)
    tracemalloc.start()
    try:
        planned.run()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert array.nbytes == 32 << 20
    assert peak < 2 * budget


# -- refusals


def test_what_is_there_is_not_overwritten_unasked() -> None:
    source, target = hierarchy(), {"zarr.json": hierarchy()["zarr.json"], "other": b"1"}
    before = dict(target)
    with pytest.raises(ArgumentError, match="overwrite=True"):
        copy(source, target)
    assert target == before
    copy(source, target, overwrite=True)
    assert "other" not in target
    check_same(source, target)
    strays = {"c/0/0": b"1"}
    with pytest.raises(ArgumentError, match="there are chunks without an array at"):
        copy(source, strays, path="g/full")
    with pytest.raises(ArgumentError, match="one of them"):
        copy(source, {}, overwrite=True, resume=True)


def test_nothing_is_copied_into_itself(tmp_path: Path) -> None:
    source = hierarchy(store=tmp_path / "a")
    store = MemoryStore(hierarchy())
    for options in ({}, {"dest_path": "g/x"}, {"path": "g"}):
        with pytest.raises(ArgumentError, match="copy would overwrite"):
            copy(source, tmp_path / "a", overwrite=True, **options)
        with pytest.raises(ArgumentError, match="copy would overwrite"):
            copy(store, store, overwrite=True, **options)
    for inside in (tmp_path / "a" / "g", tmp_path):
        with pytest.raises(ArgumentError, match="copy would overwrite"):
            copy(source, inside, overwrite=True)
    copy(store, store, path="g", dest_path="h")
    copy(source, tmp_path / "ab")


def test_what_the_format_has_no_words_for_is_refused_by_name_before_anything_is_written() -> None:
    source: dict[str, bytes] = {}
    root = create_group(source)
    root.create_array("a/fine", data=DATA)
    root.create_array("b/texts", shape=(3,), dtype=str)
    target: dict[str, bytes] = {}
    with pytest.raises(ArgumentError, match=r"'/b/texts' cannot be copied to Zarr format '3-draft-2022'"):
        copy(source, target, zarr_format="3-draft-2022", codecs="auto")
    # What was not asked for is named as the way out.
    packed: dict[str, bytes] = {}
    create_array(packed, shape=9, dtype="u2", codecs=[{"id": "bz2", "level": 1}, {"name": "crc32c"}])
    with pytest.raises(ArgumentError, match=r"codecs='auto'"):
        copy(packed, target, zarr_format="3-draft-2022")
    objects: dict[str, bytes] = {}
    create_array(objects, shape=(3,), dtype=object, zarr_format=2, filters=[{"id": "json2"}])
    with pytest.raises(ArgumentError, match=r"'/' cannot be copied to Zarr format 3: .*Python objects"):
        copy(objects, target, zarr_format=3)
    with pytest.raises(ArgumentError, match="version 1 has arrays only"):
        copy(source, target, zarr_format=1)
    with pytest.raises(ArgumentError, match=r"'/a/fine'.*dimensions"):
        copy(source, target, chunks=(1, 2, 3))
    with pytest.raises(ArgumentError, match="budget_bytes"):
        copy(source, target, budget_bytes=0)
    with pytest.raises(ArgumentError, match="zarr_format"):
        copy(source, target, zarr_format=4)  # type: ignore[arg-type]
    with pytest.raises(NodeNotFoundError):
        copy(source, target, path="nothing")
    source["b/texts/zarr.json"] = b"{"
    with pytest.raises(MetadataError, match=r"b/texts/zarr\.json"):
        copy(source, target)
    with pytest.raises(ReadOnlyError):
        copy(source, MemoryStore(target, read_only=True), path="a")
    assert target == {}


# -- what fails on the way


def check_arrays(source: Any, target: Any) -> None:
    """Check that the existing arrays are complete."""
    for path, node in gzarr.open_group(target, device="cpu").members(None):
        if isinstance(node, gzarr.Array):
            z.same(node[...], gzarr.open_array(source, path=path, device="cpu")[...])


class Failing(MemoryStore):
    """A store that fails after a number of values."""

    left = 10**9

    def set(self, key: str, value: bytes) -> None:
        self.left -= 1
        if self.left < 0:
            raise StoreError(f"{self!r}: no space left", key=key)
        super().set(key, value)


@pytest.mark.parametrize("options", [{}, {"chunks": 9}], ids=["values", "regions"])
def test_a_copy_that_fails_anywhere_is_completed_by_resume(options: dict[str, Any]) -> None:
    source = hierarchy()
    whole: dict[str, bytes] = {}
    copy(source, whole, budget_bytes=5000, **options)
    for count in range(0, len(whole), 3):
        target = Failing({})
        target.left = count
        with pytest.raises((StoreError, ChunkWriteError), match="no space left"):
            copy(source, target, budget_bytes=5000, **options)
        if count:
            check_arrays(source, target)
        target.left = 10**9
        if count:
            with pytest.raises(ArgumentError, match="resume=True"):
                copy(source, target, **options)
        copy(source, target, resume=True, read_back=True, budget_bytes=5000, **options)
        assert {key: target.get(key) for key in target.list()} == whole


@pytest.mark.parametrize("options", [{}, {"chunks": 9}], ids=["values", "regions"])
def test_resume_trusts_nothing(options: dict[str, Any]) -> None:
    source = hierarchy()
    whole: dict[str, bytes] = {}
    copy(source, whole, **options)
    target = dict(whole)
    chunks = sorted(key for key in whole if key.startswith("g/full/c/"))
    # Cut off, somebody else's, gone; one too many, in the grid and outside; and the array not there yet.
    target[chunks[0]] = whole[chunks[0]][:-3]
    target[chunks[1]] = whole[chunks[2]]
    del target[chunks[3]], target["g/full/zarr.json"]
    sparse = sorted(key for key in whole if key.startswith("g/sparse/c/"))
    assert "g/sparse/c/11/1" not in whole
    target["g/sparse/c/11/1"] = target[sparse[0]]
    target["g/full/c/77/0"] = b"of another copy"
    planned = planned_copy(source, target, resume=True, budget_bytes=1, **options)
    planned.run()
    assert planned.written >= 3
    assert planned.kept > planned.written
    assert target == whole


def test_resume_refuses_what_is_no_copy_of_this() -> None:
    source = hierarchy()
    target: dict[str, bytes] = {}
    copy(source, target, chunks=9)
    for options in ({}, {"chunks": 9, "codecs": "zstd"}, {"chunks": 9, "zarr_format": 2}):
        before = dict(target)
        with pytest.raises(ArgumentError, match=r"not a copy of the source|has Zarr format"):
            copy(source, target, resume=True, **options)
        assert target == before
    gzarr.Group
    other = hierarchy()
    create_group(other, attributes={"title": "another"}, overwrite=True)
    with pytest.raises(ArgumentError, match="not a copy of the source"):
        copy(source, other, resume=True)


def test_damaged_sources_are_named_as_such() -> None:
    source = hierarchy()
    source["g/full/c/1/1"] = b"damaged"
    with pytest.raises(ChunkDecodeError, match=r"'/g/full', chunk \(1, 1\).*in the source"):
        copy(source, {}, chunks=9)


class Forgetful(MemoryStore):
    """A store that changes a value in transit."""

    def set(self, key: str, value: bytes) -> None:
        super().set(key, value[:-1] + b"?" if key == "a/c/2" else value)


@pytest.mark.parametrize("options", [{}, {"chunks": 3}], ids=["values", "regions"])
def test_verify_finds_what_the_store_did_not_keep(options: dict[str, Any]) -> None:
    source: dict[str, bytes] = {}
    create_group(source).create_array("a", data=np.arange(9, dtype="i8"), chunks=2, codecs=[])
    copy(source, Forgetful({}), budget_bytes=1, **options)
    target = Forgetful({})
    with pytest.raises(ChunkWriteError, match="the data read back is not the data written") as caught:
        copy(source, target, read_back=True, budget_bytes=1, **options)
    assert (caught.value.node, caught.value.chunk, caught.value.key) == ("/a", (2,), "a/c/2")
    # The array is not there as long as it is not right.
    assert target.get("a/zarr.json") is None


def test_identical_compares_bits() -> None:
    nan, other_nan = np.array([0x7FC00000, 0x7FC00001], "u4").view("f4").reshape(2, 1)
    assert identical(nan, nan.copy())
    assert not identical(nan, other_nan)
    assert not identical(np.array([0.0]), np.array([-0.0]))
    padded = np.dtype({"names": ["a"], "formats": ["u1"], "offsets": [3], "itemsize": 8})
    one, two = np.zeros(3, padded), np.frombuffer(b"\1\1\1\0\1\1\1\1" * 3, padded)
    assert identical(one, two)
    objects = np.array(["a", float("nan"), None], object)
    assert identical(objects, np.array(["a", float("nan"), None], object))
    assert not identical(objects, np.array(["a", 1.0, None], object))


CODE = """
import sys
from gzarr.tools.copy import prepare_copy
from gzarr.tools.copy_options import CopyOptions
options = CopyOptions(chunks=(8, 16), resume=sys.argv[3] == "resume", budget_bytes=1)
planned = prepare_copy(sys.argv[1], sys.argv[2], options)
print("ready", flush=True)
planned.run()
"""


def test_killed_at_any_moment_and_resumed(tmp_path: Path) -> None:
    source = tmp_path / "source"
    root = create_group(source, attributes={"a": 1})
    root.create_array("x/first", data=z.sample((128, 160), "f8"), chunks=(32, 32))
    root.create_array("x/second", data=z.sample((64, 160), "i2"), chunks=(32, 32))
    target = tmp_path / "target"
    rng = np.random.default_rng(0)
    killed = 0
    for turn in range(6):
        command = [sys.executable, "-c", CODE, str(source), str(target), "resume" if turn else "new"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ)
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.readline() == b"ready\n"
            time.sleep(rng.uniform(0, 0.12))
            process.send_signal(signal.SIGKILL)
            killed += process.wait() == -signal.SIGKILL
        if (target / "zarr.json").exists():
            check_arrays(source, target)
    assert killed
    copy(source, target, chunks=(8, 16), resume=True, read_back=True)
    check_same(source, target)
    assert list(verify(target, missing="error")) == []
    whole: dict[str, bytes] = {}
    copy(source, whole, chunks=(8, 16))
    assert sorted(LocalStore(target).list()) == sorted(whole)


@st.composite
def sparse_copies(draw: st.DrawFn) -> tuple[dict[str, Any], list[Any], dict[str, Any], list[Any]]:
    """Return an array, its written boxes, arguments of a copy, and boxes written to an earlier copy."""
    shape = tuple(draw(st.lists(st.integers(1, 30), min_size=1, max_size=3)))
    chunks = [tuple(draw(st.integers(1, n)) for n in shape) for _ in range(2)]
    starts = st.tuples(*(st.integers(0, n - 1) for n in shape))
    boxes = st.lists(starts.map(lambda box: tuple(slice(i, i + 4) for i in box)), max_size=4)
    source = {"shape": shape, "chunks": chunks[0], "zarr_format": draw(st.sampled_from([2, 3]))}
    if source["zarr_format"] == 3 and draw(st.booleans()):
        source["chunks"] = tuple([c] * -(-n // c) for n, c in zip(shape, chunks[0], strict=True))
    options = {
        "chunks": chunks[1],
        "zarr_format": draw(st.sampled_from([2, 3])),
        "codecs": draw(st.sampled_from(["keep", "gzip"])),
        "budget_bytes": draw(st.sampled_from([1, 500, 4000, 1 << 20])),
    }
    if options["zarr_format"] == 3 and draw(st.booleans()):
        options["shards"] = tuple(2 * c for c in chunks[1])
    return source, draw(boxes), options, draw(boxes)


@given(sparse_copies(), st.sampled_from([0, 7, -1]), st.sampled_from([0, 7, -1]))
@settings(max_examples=40, deadline=None)
def test_sparse_arrays_between_any_grids(case: Any, fill_value: int, stray: int) -> None:
    """Elements are equal, written or not, even if an unfinished copy has others; zarr-python reads them."""
    arguments, written, options, strays = case
    source: dict[str, bytes] = {}
    array = create_array(source, dtype="i4", fill_value=fill_value, codecs="zstd", **arguments)
    expected = np.full(array.shape, fill_value, "i4")
    for number, box in enumerate(written):
        array[box] = expected[box] = 7 * number

    def check(target: dict[str, bytes]) -> None:
        held = zarr.storage.MemoryStore({key: zarr.core.buffer.cpu.Buffer.from_bytes(v) for key, v in target.items()})
        peer = zarr.open_array(held, mode="r")
        assert peer.fill_value == fill_value
        z.same(np.asarray(peer[...]), expected)

    target: dict[str, bytes] = {}
    made = copy(source, target, read_back=True, **options)
    assert isinstance(made, gzarr.Array)
    z.same(made[...], expected)
    check(target)
    # Chunks of an unfinished copy, some of them others, some absent.
    stored = dict(target)
    for box in strays:
        made[box] = stray
    for key in list(stored)[::3]:
        target.pop(key, None)
    copy(source, target, resume=True, **options)
    check(target)
    assert target.keys() == stored.keys()


@pytest.mark.parametrize("options", [{}, {"chunks": 1}, {"chunks": 1, "shards": 2}, {"codecs": "auto"}])
@pytest.mark.parametrize("fields", [[("a", ">i2"), ("b", ">f8")], [("a", ">f4"), ("b", ">f4")]], ids=["two", "one"])
def test_big_endian_records_become_little_endian_in_version_3(
    fields: Any, options: dict[str, Any], tmp_path: Path
) -> None:
    """zarr-python ignores the byte order of records in version 3."""
    records = np.array([(1, 0.5), (2, 0.25)], fields)
    array = create_array(tmp_path / "old", data=records, chunks=2, zarr_format=2, fill_value=(7, 1.5))
    array.resize(3)
    made = copy(tmp_path / "old", tmp_path / "new", zarr_format=3, read_back=True, **options)
    assert isinstance(made, gzarr.Array)
    expected = [*records.tolist(), (7, 1.5)]
    assert made[...].tolist() == expected
    assert b"big" not in (tmp_path / "new/zarr.json").read_bytes()
    if "shards" not in options:
        # Which zarr-python cannot read of records.
        assert np.asarray(zarr.open_array(tmp_path / "new", mode="r")[...]).tolist() == expected
    # As they are, they are copied as they are.
    same = planned_copy(tmp_path / "old", {})
    assert [one.copies_values for one in same.arrays] == [True]


def test_big_endian_records_that_are_asked_for_stay_so() -> None:
    source: dict[str, bytes] = {}
    records = np.array([(1, 0.5), (2, 0.25)], "i2,f8")
    create_array(source, data=records, serializer={"name": "bytes", "configuration": {"endian": "big"}})
    for options in ({}, {"chunks": 1}):
        target: dict[str, bytes] = {}
        assert copy(source, target, **options)[...].tolist() == records.tolist()
        assert b'"endian": "big"' in target["zarr.json"]


class Meddling(MemoryStore):
    """A store in which some keys get other values than those that are set, or values that nobody set."""

    def __init__(self, values: dict[str, bytes], **others: bytes) -> None:
        super().__init__({})
        self._others = {name.replace("_", "/").replace("/json", ".json"): value for name, value in others.items()}
        for key, value in values.items():
            super().set(key, value)

    def set(self, key: str, value: bytes) -> None:
        super().set(key, self._others.get(key, value))


def test_read_back_compares_documents_and_absent_chunks() -> None:
    source: dict[str, bytes] = {}
    array = create_group(source).create_array("a", shape=8, chunks=2, dtype="i4", fill_value=5, codecs=[])
    array[:2] = 1
    document = json.loads(source["a/zarr.json"])
    for changed in ({"fill_value": 6}, {"attributes": {"_FillValue": 1}}, {"dimension_names": ["x"]}):
        other = json.dumps({**document, **changed}).encode()
        for options in ({}, {"chunks": 4}):
            with pytest.raises(StoreError, match=r"/a in .*its documents differ"):
                copy(source, Meddling({}, a_zarr_json=other), read_back=True, **options)
    for options in ({}, {"chunks": 4}):
        planned = planned_copy(source, target := MemoryStore({}), read_back=True, **options)
        # Somebody else's chunk, where the source has none.
        (length,) = planned.arrays[0].target.chunks
        target.set(f"a/c/{6 // length}", np.arange(length, dtype="i4").tobytes())
        with pytest.raises(ChunkWriteError, match=r"the elements of .* differ"):
            planned.run()


class Watched(MemoryStore):
    """Store that counts what it is asked for, and gets other values before a prefix is listed."""

    def __init__(self, others: dict[str, dict[str, bytes]] | None = None) -> None:
        super().__init__()
        self.asked = 0
        self._others = others or {}

    def get_small_values(self, keys: Sequence[str], max_nbytes: int) -> list[bytes | None]:
        self.asked += len(keys)
        return super().get_small_values(keys, max_nbytes)

    def get(self, key: str) -> bytes | None:
        self.asked += 1
        return super().get(key)

    def list_prefix(self, prefix: str) -> Iterator[str]:
        self.asked += 1
        for key, value in self._others.get(prefix, {}).items():
            self.set(key, value)
        return super().list_prefix(prefix)


def nested_groups(zarr_format: Any, depth: int) -> MemoryStore:
    store = MemoryStore()
    create_group(store, path="/".join(["g"] * depth), zarr_format=zarr_format)
    return store


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_requests_grow_with_the_number_of_nested_groups(zarr_format: Any) -> None:
    asked = {}
    for depth in (10, 40):
        target = Watched()
        copy(nested_groups(zarr_format, depth), target)
        asked[depth] = target.asked
        assert gzarr.open_group(target, path="/".join(["g"] * depth)).implicit is False
    assert asked[40] < 5 * asked[10]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_what_others_create_within_new_groups_stays(zarr_format: Any) -> None:
    array = MemoryStore()
    create_array(array, path="g/g", data=[1, 2], zarr_format=zarr_format)
    others = {key: value for key in array.list_prefix("g/g/") if (value := array.get(key)) is not None}
    target = Watched({"g/g/": others})
    with pytest.raises(ArgumentError, match=r"'/g/g' in .* is not a copy of the source"):
        copy(nested_groups(zarr_format, 3), target)
    assert gzarr.open_array(target, path="g/g")[...].tolist() == [1, 2]
