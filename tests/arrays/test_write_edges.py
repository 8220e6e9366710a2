"""Elements beyond an array in its last chunks: others may have appended them since the array was opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import writers as w

import gzarr
from gzarr.stores import LocalStore, MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.devices import TestedDevice

LAYOUTS: dict[str, dict[str, Any]] = {
    "chunks": {"chunks": (5, 3)},
    "chunks of a codec in threads": {"chunks": (5, 3), "codecs": [{"name": "numcodecs.bz2", "configuration": {}}]},
    "shards": {"chunks": (1, 3), "shards": (5, 3)},
    "shards cut through": {"chunks": (3, 3), "shards": (6, 6)},
    "v2": {"chunks": (5, 3), "zarr_format": 2},
}


class Plain(dict[str, bytes]):
    """A mapping, which is a store without versions."""


def a_store(kind: str, path: Path) -> Any:
    return {"local": LocalStore(path), "memory": MemoryStore(), "mapping": Plain()}[kind]


@pytest.mark.parametrize("kind", ["local", "memory", "mapping"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_others_appended_is_kept(layout: str, kind: str, tmp_path: Path, device: TestedDevice) -> None:
    store = a_store(kind, tmp_path / "a")
    gzarr.create_array(store, shape=(8, 4), dtype="i4", fill_value=1, **LAYOUTS[layout])
    one, two = (gzarr.open_array(store, mode="r+", device=device.name) for _ in range(2))
    two.append(device.array(np.full((3, 4), 9, "i4")))
    two.append(device.array(np.full((11, 2), 8, "i4")), axis=1)
    expected = np.full((11, 6), 9, "i4")
    expected[:8, :4] = 1
    expected[:, 4:] = 8
    for selection, value in ((np.s_[5:8], 7), (np.s_[:, 3:], 6), (np.s_[...], 5)):
        one[selection] = device.array(np.full(one[selection].shape, value, "i4"))
        expected[:8, :4][selection] = value
        np.testing.assert_array_equal(gzarr.open_array(store, device="cpu")[...], expected)
    assert one.shape == (8, 4)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_damage_at_the_edge_is_written_over(layout: str, device: TestedDevice) -> None:
    store = Plain()
    array = gzarr.create_array(store, shape=(8, 4), dtype="i4", device=device.name, **LAYOUTS[layout])
    array[...] = device.array(np.full((8, 4), 9, "i4"))
    for key in [key for key in store if not key.endswith(("json", ".zarray"))]:
        store[key] = b"damaged"
    array[...] = device.array(np.full((8, 4), 7, "i4"))
    np.testing.assert_array_equal(gzarr.open_array(store, device="cpu")[...], 7)
    for key in [key for key in store if not key.endswith(("json", ".zarray"))]:
        store[key] = b"damaged"
    with pytest.raises(gzarr.ChunkDecodeError):
        array[0, 0] = 1


def test_edges_of_rectilinear_chunks() -> None:
    store = MemoryStore()
    gzarr.create_array(store, shape=(8, 4), dtype="i4", chunks=[[2, 6], 3])
    one, two = (gzarr.open_array(store, mode="r+", device="cpu") for _ in range(2))
    two.append(np.full((8, 1), 9, "i4"), axis=1)
    one[...] = 7
    np.testing.assert_array_equal(gzarr.open_array(store)[:, :4], 7)
    np.testing.assert_array_equal(gzarr.open_array(store)[:, 4], 9)


class Interposing(MemoryStore):
    """A store that calls a function once, just before a document is replaced: after the chunks of an ``append``."""

    then: Any = None

    def set(self, key: str, value: Any) -> None:
        then, self.then = self.then, None if key == "zarr.json" else self.then
        if key == "zarr.json" and then is not None:
            w.in_threads([then])
        super().set(key, value)


@pytest.mark.parametrize("layout", ["chunks", "shards"])
def test_a_write_while_another_thread_appends(layout: str) -> None:
    """Appended elements are beyond an array whose shape in the store is still the one that the writer knows."""
    store = Interposing()
    gzarr.create_array(store, shape=(8, 4), dtype="i4", **LAYOUTS[layout])
    one, two = (gzarr.open_array(store, mode="r+", device="cpu") for _ in range(2))
    store.then = lambda: one.write(..., 7)
    two.append(np.full((3, 4), 9, "i4"))
    assert store.then is None
    np.testing.assert_array_equal(gzarr.open_array(store)[:, 0], [7] * 8 + [9] * 3)


#: Filters that do not hold the fill value, which is then another number beyond the array.
FORGETTING: dict[str, dict[str, Any]] = {
    "scaled": {
        "dtype": "f4",
        "codecs": [
            {
                "name": "numcodecs.fixedscaleoffset",
                "configuration": {"dtype": "<f4", "astype": "<i2", "scale": 10} | {"offset": 273.15},
            },
            "bytes",
        ],
    },
    "scaled, of the other byte order": {
        "dtype": "f4",
        "codecs": [
            {
                "name": "numcodecs.fixedscaleoffset",
                "configuration": {"dtype": "<f4", "astype": "<i2", "scale": 10} | {"offset": 273.15},
            },
            {"name": "bytes", "configuration": {"endian": "big"}},
        ],
    },
    "converted": {
        "dtype": "f8",
        "codecs": [
            {"name": "numcodecs.astype", "configuration": {"encode_dtype": "<i4", "decode_dtype": "<f8"}},
            "bytes",
        ],
    },
    "v2": {
        "dtype": ">f8",
        "zarr_format": 2,
        "filters": [{"id": "fixedscaleoffset", "dtype": ">f8", "astype": "<i2", "scale": 10, "offset": 273.15}],
        "compressors": None,
    },
}


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
@pytest.mark.parametrize("kind", ["local", "memory", "mapping"])
@pytest.mark.parametrize(
    ("layout", "shards"),
    [(layout, shards) for layout in FORGETTING for shards in (None, (8,)) if shards is None or layout != "v2"],
)
def test_a_last_chunk_of_the_fill_value_is_erased(layout: str, shards: Any, kind: str, tmp_path: Path) -> None:
    arguments = FORGETTING[layout] | ({} if shards is None else {"shards": shards})
    store = a_store(kind, tmp_path / "a")
    array = gzarr.create_array(store, shape=(6,), chunks=(4,), fill_value=np.nan, device="cpu", **arguments)
    documents = set(array.store.list())
    for _ in range(2):
        array[...] = np.arange(6) + 280
        assert not np.isnan(array[...]).any()
        array[4:] = np.nan
        assert np.isnan(array[...]).tolist() == [False] * 4 + [True] * 2
        array[...] = np.arange(6) + 280
        array[...] = np.nan
        assert np.isnan(gzarr.open_array(store, device="cpu")[...]).all()
        assert set(array.store.list()) == documents


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_budget_for_a_write(layout: str, device: TestedDevice) -> None:
    """Each way to write takes it; what does not fit is encoded on the CPU."""
    data = np.random.default_rng(2).integers(0, 1000, (20, 9)).astype("i4")
    array = gzarr.create_array({}, shape=data.shape, dtype="i4", device=device.name, **LAYOUTS[layout])
    whole, rows = device.array(data), device.array(data[:4])
    writes: list[Callable[[Any], Any]] = [
        lambda budget: array.write(..., whole, budget_bytes=budget),
        lambda budget: array.write_many([slice(0, 4), slice(3, 7)], [rows, rows], budget_bytes=budget),
        lambda budget: array.oindex.write((slice(0, 4), slice(None)), rows, budget_bytes=budget),
        lambda budget: array.blocks.write(..., whole, budget_bytes=budget),
        lambda budget: array.append(rows, budget_bytes=budget),
    ]
    expected = np.zeros_like(data)
    for write in writes:
        before = array.shape
        for wrong in (0, -1, 1.5, True, "1"):
            with pytest.raises(gzarr.ArgumentError, match="budget_bytes must be a positive integer"):
                write(wrong)
        assert array.shape == before
        np.testing.assert_array_equal(device.to_numpy(array[...]), expected)
        for budget in (1, 40_000, 1 << 26):
            write(budget)
        expected = device.to_numpy(array[...])
    assert array.shape == (32, 9)
    np.testing.assert_array_equal(expected, np.concatenate([data, *[data[:4]] * 3]))


def test_masked_elements_are_filled_by_each_indexer(device: TestedDevice) -> None:
    array = gzarr.create_array({}, shape=(2, 3), dtype="i4", fill_value=9, device=device.name)
    value = np.ma.masked_array([[1, 2, 3]], [[False, True, False]])
    array.oindex.write((slice(0, 1), slice(None)), value, fill_masked=True)
    np.testing.assert_array_equal(device.to_numpy(array[...]), [[1, 9, 3], [9, 9, 9]])
