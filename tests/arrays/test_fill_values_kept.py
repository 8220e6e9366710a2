"""Fill values that can be changed, lists, mappings and records: nothing but a write changes elements of an array."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CODECS: dict[str, dict[str, Any]] = {
    "json2": {"id": "json2"},
    "msgpack2": {"id": "msgpack2"},
    "vlen-array": {"id": "vlen-array", "dtype": "<i4"},
}
FILLS: dict[str, list[Any]] = {"json2": [[], [[1], 2], {"a": [1]}], "msgpack2": [[], {"a": 1}], "vlen-array": [[], [7]]}
CASES = [(codec, fill) for codec, fills in FILLS.items() for fill in fills]

READS: dict[str, Callable[[gzarr.Array], Any]] = {
    "element": lambda a: [a[0]],
    "all": lambda a: a[:],
    "reversed": lambda a: a[::-1],
    "list": lambda a: a[[3, 3, 0]],
    "points": lambda a: a.vindex[[0, 2, 2]],
    "mask": lambda a: a[np.array([True, False, True, True])],
    "box": lambda a: a.oindex[[3, 1]],
    "blocks": lambda a: a.blocks[0],
    "view": lambda a: a.view[1:][:],
    "many": lambda a: np.concatenate(a.read_many([slice(0, 2), slice(1, 4)])),
    "windows": lambda a: a.read_windows([[0], [1]], (2,)).ravel(),
    "out": lambda a: a.read(out=np.empty(4, object)),
    "strided out": lambda a: a.read(out=np.empty((4, 2), object)[:, 1]),
    "converted": lambda a: a.read(dtype=object),
    "iteration": list,
    "numpy": np.asarray,
    "fill value": lambda a: [a.fill_value],
    "view's": lambda a: [a.view[1:].fill_value],
}


def made(codec: str, fill: Any, store: Any = None, **options: Any) -> gzarr.Array:
    arguments: dict[str, Any] = {"shape": (4,), "chunks": (4,), "dtype": object, "zarr_format": 2, "fill_value": fill}
    arguments.update(options)
    return gzarr.create_array({} if store is None else store, filters=[CODECS[codec]], **arguments)


def changed(value: Any) -> None:
    if isinstance(value, dict):
        value["changed"] = True
    else:
        value.append(5)


def plain(elements: Any) -> list[Any]:
    return [item.tolist() if isinstance(item, np.ndarray) else item for item in elements]


@pytest.mark.parametrize(("codec", "fill"), CASES, ids=repr)
@pytest.mark.parametrize("read", READS)
def test_what_is_read_is_not_the_fill_value(codec: str, fill: Any, read: str) -> None:
    a = made(codec, fill)
    found = list(READS[read](a))
    assert found == [fill] * len(found)
    # Not one object for all elements either.
    assert len(set(map(id, found))) == len(found)
    for item in found:
        changed(item)
        if item and isinstance(item, list) and isinstance(item[0], list):
            item[0].append("inside")
    assert a[:].tolist() == [fill] * 4
    assert a.fill_value == fill


@pytest.mark.parametrize(("codec", "fill"), CASES, ids=repr)
def test_neighbours_are_stored_as_they_were(codec: str, fill: Any) -> None:
    store: dict[str, bytes] = {}
    a = made(codec, fill, store)
    changed(a[0])
    changed(a.fill_value)
    other = [1, 2]
    a[1] = other
    # As numcodecs reads the chunk itself.
    filters = numcodecs.get_codec(dict(CODECS[codec]))
    assert plain(filters.decode(numcodecs.get_codec({"id": "zstd"}).decode(store["0"]))) == [fill, other, fill, fill]


@pytest.mark.parametrize(("codec", "fill"), CASES, ids=repr)
def test_a_changed_element_is_written(codec: str, fill: Any) -> None:
    store: dict[str, bytes] = {}
    a = made(codec, fill, store)
    item = a[0]
    changed(item)
    a[0] = item
    assert plain(a[:]) == [item, fill, fill, fill]
    assert plain(gzarr.open_array(store)[:]) == [item, fill, fill, fill]
    changed(item)
    copied = gzarr.from_array({}, data=a)
    assert copied.fill_value == fill


def test_an_element_without_dimensions() -> None:
    a = made("json2", [1, 2], shape=(), chunks=())
    for read in (operator.itemgetter(()), lambda a: a.vindex[()], lambda a: a[...], lambda a: a.read()[()]):
        item = read(a)
        assert item == [1, 2]
        item.append(3)
    assert a[()] == [1, 2]


def test_stored_and_absent_chunks_together() -> None:
    a = made("json2", {}, chunks=(2,))
    a[1] = "x"
    found = a[:]
    found[0]["own"] = found[3]["own"] = 1
    assert a[:].tolist() == [{}, "x", {}, {}]


def test_arrays_of_one_group_with_consolidated_metadata() -> None:
    store: dict[str, bytes] = {}
    group = gzarr.create_group(store, zarr_format=2)
    group.create_array("a", shape=(2,), dtype=object, filters=[CODECS["json2"]], fill_value=[])
    gzarr.consolidate_metadata(store)
    group = gzarr.open_group(store)
    for one in (group["a"], group["a"]):
        one[0].append(1)
        one.fill_value.append(1)
    assert group["a"][:].tolist() == [[], []]


@pytest.mark.parametrize("fill", [[], [1, 2], {"a": 1}], ids=repr)
def test_masked_objects_become_one_fill_value_each(fill: Any) -> None:
    a = made("json2", fill)
    value = np.ma.masked_array(np.zeros(4, object), [True, False, True, False])
    value[1] = "x"
    a.write(slice(None), value, fill_masked=True)
    assert a[:].tolist() == [fill, "x", fill, 0]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_record_of_the_fill_value_is_a_copy(zarr_format: Any) -> None:
    dtype = np.dtype([("a", "i4"), ("b", [("c", "f8"), ("d", "u1")])])
    one = np.array((1, (2, 3)), dtype)
    store: dict[str, bytes] = {}
    a = gzarr.create_array(store, shape=(2,), chunks=(2,), dtype=dtype, zarr_format=zarr_format, fill_value=one[()])
    for record in (a.fill_value, a.view[1:].fill_value):
        record["a"] = 5
        record["b"]["c"] = 7
        np.testing.assert_array_equal(a[:], np.stack([one, one]))
    a[:] = record
    expected = np.array([(5, (7, 3))] * 2, dtype)
    np.testing.assert_array_equal(a[:], expected)
    np.testing.assert_array_equal(gzarr.open_array(store)[:], expected)


def test_the_bits_of_numbers_are_kept() -> None:
    payload = np.array([0x7FF8DEAD00000001], "u8").view("f8")[0]
    a = gzarr.create_array({}, shape=(2,), dtype="f8", fill_value=payload)
    assert a.fill_value.tobytes() == payload.tobytes()
    assert type(a.fill_value) is np.float64


def test_samples_of_a_loader_are_copies() -> None:
    """Where nothing is stored, and beyond the ends."""
    a = made("json2", [1])
    a[0] = [0]
    loader = gzarr.Loader(a, gzarr.loader.Patches((3,), pad="fill"), batch_size=2, shuffle=False)
    for batch in loader:
        for element in batch["data"].ravel():
            element.append(5)
    assert a[:].tolist() == [[0], [1], [1], [1]]
    assert a.fill_value == [1]


def test_tools_take_lists_as_fill_values(tmp_path: Path) -> None:
    # The second chunk is absent.
    made("json2", [1, 2], tmp_path / "a", chunks=(2,))[1:2] = [[3]]
    gzarr.copy(tmp_path / "a", tmp_path / "b", read_back=True, progress=False)
    assert gzarr.load(tmp_path / "b").tolist() == gzarr.load(tmp_path / "a").tolist()
    assert main(["optimize", str(tmp_path / "a"), str(tmp_path / "c"), "--dry-run"]) == 0
