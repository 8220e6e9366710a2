"""Samples of arrays whose document has no fill value: what is padded is what absent chunks are read as."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.loader import Dataset, Loader, Patches, Rows, Windows

if TYPE_CHECKING:
    from support.devices import TestedDevice

# Small buffers, to have many blocks.
pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

DTYPES = ("i2", "u1", "i8", "f4", "?", "c8", "M8[s]", "m8[ns]", "S3", "U2", "V3", [("a", "u1"), ("b", "<f4")])
SAMPLERS = {
    "rows": Rows(),
    "windows": Windows(0, {"x": (0, 3), "y": (3, 4)}),
    "steps": Windows(0, {"x": (0, 3)}, stride=2),
    "patches": Patches((4, 4)),
    "overlapping": Patches((4, 4), stride=2),
    "padded": Patches((5, 3), pad="fill"),
    "halo": Patches((4, 4), halo=1, pad="fill"),
    "overlapping halos": Patches((4, 4), stride=2, halo=(1, 5), pad="fill"),
    "posed": Patches((4, 4), shift=6.0, pad="fill", interpolation="nearest"),
    "linear": Patches((4, 4), shift=6.0, rotate=True, pad="fill"),
    "cubic": Patches((4, 4), shift=6.0, rotate=True, pad="fill", interpolation="cubic"),
}


def without_fill_value(dtype: Any, device: str = "cpu") -> tuple[gzarr.Array, np.ndarray[Any, Any]]:
    """Return an array, part of whose chunks are absent, and the element that these must be read as."""
    store: dict[str, bytes] = {}
    made = gzarr.create_array(store, shape=(8, 8), dtype=dtype, chunks=4, zarr_format=2, device="cpu")
    made[4:] = (np.arange(32).reshape(4, 8) % 7 + 1).astype(dtype)
    document = json.loads(bytes(store[".zarray"]))
    store[".zarray"] = json.dumps({**document, "fill_value": None}).encode()
    absent = np.full((), "NaT", dtype) if np.dtype(dtype).kind in "mM" else np.zeros((), dtype)
    return gzarr.open_array(store, mode="r", device=device), absent


def with_fill_value(dtype: Any, absent: np.ndarray[Any, Any], device: str = "cpu") -> gzarr.Array:
    """Return the same array with the fill value written out, in version 2 if that can say it."""
    store: dict[str, bytes] = {}
    options: dict[str, Any] = {"fill_value": absent[()], "zarr_format": 2}
    made = gzarr.create_array(store, shape=(8, 8), dtype=dtype, chunks=4, device="cpu", **options)
    made[4:] = (np.arange(32).reshape(4, 8) % 7 + 1).astype(dtype)
    return gzarr.open_array(store, mode="r", device=device)


def same(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def fits(dtype: Any, sampler: str) -> bool:
    """Return whether elements can be interpolated."""
    return sampler not in ("linear", "cubic") or np.dtype(dtype).kind in "iuf"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", SAMPLERS)
def test_samples(name: str, dtype: Any) -> None:
    sampler = SAMPLERS[name]
    given, absent = without_fill_value(dtype)
    other = with_fill_value(dtype, absent)
    assert given.fill_value is None
    assert other.fill_value is not None
    np.testing.assert_array_equal(given[...], other[...])
    if not fits(dtype, name):
        with pytest.raises(gzarr.ArgumentError, match="cannot be interpolated"):
            Loader(given, sampler, batch_size=3)
        return
    orders: tuple[Any, ...] = ("blocks", "full", False)
    for shuffle in orders:
        batches = [list(Loader(array, sampler, batch_size=3, shuffle=shuffle, seed=1)) for array in (given, other)]
        for one, expected in zip(*batches, strict=True):
            assert list(one) == list(expected)
            assert all(same(one[key], expected[key]) for key in one)
    for one, expected in zip(Dataset(given, sampler, seed=1), Dataset(other, sampler, seed=1), strict=True):
        assert all(same(np.asarray(one[key]), np.asarray(expected[key])) for key in one)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_padded(dtype: Any) -> None:
    given, absent = without_fill_value(dtype)
    for shuffle in ("blocks", False):
        loader: Any = Loader(given, Patches((4, 4), halo=1, pad="fill"), batch_size=4, shuffle=shuffle)
        for sample in next(iter(loader))["data"]:
            edges = [side for side in (sample[0], sample[-1], sample[:, 0], sample[:, -1]) if same(side[0], side[1])]
            assert any(same(side, np.full(6, absent)) for side in edges)


@pytest.mark.parametrize("dtype", ["i2", "?", "f4", "c8"])
@pytest.mark.parametrize("name", SAMPLERS)
def test_devices(name: str, dtype: str, device: TestedDevice) -> None:
    if not fits(dtype, name):
        return
    (given, absent), sampler = without_fill_value(dtype, device.name), SAMPLERS[name]
    other = with_fill_value(dtype, absent)
    for shuffle in ("blocks", False):
        loaders: list[Any] = [Loader(array, sampler, batch_size=3, shuffle=shuffle, seed=1) for array in (given, other)]
        for one, expected in zip(*loaders, strict=True):
            assert all(same(device.to_numpy(one[key]), expected[key]) for key in one)


@pytest.mark.parametrize("fill_value", [[1, 2], {"a": 1}, None])
def test_an_object_that_is_a_list_is_one_element(fill_value: Any) -> None:
    store: dict[str, bytes] = {}
    gzarr.create_array(store, shape=(4,), dtype=object, filters=[{"id": "json2"}], chunks=2, zarr_format=2)
    document = json.loads(bytes(store[".zarray"]))
    store[".zarray"] = json.dumps({**document, "fill_value": fill_value}).encode()
    array = gzarr.open_array(store, device="cpu")
    (batch,) = Loader(array, Patches((2,), halo=1, pad="fill"), batch_size=2, shuffle=False)
    assert batch["data"].tolist() == [[array[0]] * 4] * 2
