"""The engine for xarray on a device, beside xarray's own engine on the host."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
from support import devices
from support.xarray_datasets import ENGINE, stores, values, varied

import gzarr
from gzarr.integrations.xarray_device import DeviceVariable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings(
    "ignore:Consolidated metadata is currently not part", "ignore:.*does not have a Zarr V3 specification"
)
#: Data variables that stay on the host.
ON_HOST = {"text", "objects", "bytes", "characters", "codes", "time_bounds"}
CHUNKED = {"plain", "packed", "masked", "unsigned"}


@pytest.fixture(params=devices.KINDS[1:])
def kind(request: pytest.FixtureRequest) -> Iterator[type]:
    """Make ``device="cuda"`` mean a device; return the type of its arrays, which NumPy cannot take."""
    import cupy

    with devices.use(request.param):
        yield cupy.ndarray


def both(options: dict[str, Any], zarr_format: int = 3, **more: Any) -> tuple[xr.Dataset, xr.Dataset]:
    """Return the dataset on the device by gzarr's engine, and on the host by xarray's."""
    found = xr.open_dataset(stores(zarr_format), engine=ENGINE, device="cuda", **options, **more)
    return found, xr.open_dataset(stores(zarr_format), engine="zarr", **options)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mask_and_scale": False},
        {"mask_and_scale": {"packed": False, "unsigned": False}},
        {"decode_cf": False},
        {"decode_times": False, "decode_timedelta": False},
        {"decode_coords": False},
        {"drop_variables": ["packed"]},
    ],
    ids=str,
)
def test_values_are_those_of_the_host(kind: type, zarr_format: int, options: dict[str, Any]) -> None:
    found, expected = both(options, zarr_format)
    assert found.variables.keys() == expected.variables.keys()
    assert set(found.coords) == set(expected.coords)
    for name, variable in expected.variables.items():
        one = found[name].variable
        assert (one.dims, one.shape, one.dtype) == (variable.dims, variable.shape, variable.dtype), name
        assert repr(one.attrs) == repr(variable.attrs), name
        encoding = {key: value for key, value in one.encoding.items() if key != "serializer"}
        assert encoding.keys() == variable.encoding.keys() - {"serializer"}
        np.testing.assert_equal(encoding, {key: variable.encoding[key] for key in encoding}, err_msg=name)
        numbers = variable.dtype.kind in "biufc"
        in_memory, elements = one._in_memory, one.data
        if name in found.coords or not numbers:
            assert type(elements) is np.ndarray, name
        else:
            assert type(elements) is kind, name
            assert not in_memory
            elements = elements.get()
        assert elements.dtype == variable.dtype
        np.testing.assert_array_equal(elements, variable.values, err_msg=name)


def test_what_is_on_the_host_by_default(kind: type) -> None:
    found, _ = both({})
    assert {name for name, a in found.items() if type(a.data) is not kind} == ON_HOST
    assert all(type(a.data) is np.ndarray for a in found.coords.values())
    assert type(found.indexes["x"].values) is np.ndarray


@pytest.mark.parametrize("name", ["packed", "unsigned", "plain", "flag"])
def test_selections(kind: type, name: str) -> None:
    found, expected = (dataset[name] for dataset in both({}))
    points = {"y": xr.DataArray([0, 4, 1], dims="p"), "x": xr.DataArray([9, 0, 3], dims="p")}
    for select in (
        {"y": 1, "x": slice(1, 6, 2)},
        {"y": [3, 1]},
        {"y": slice(None, None, -1), "x": -1},
        points,
        {"y": 1, "x": 3},
    ):
        one, other = found.isel(select), expected.isel(select)
        assert type(one.data) is kind
        np.testing.assert_array_equal(one.data.get(), other.values)
    np.testing.assert_array_equal(found.sel(x=[30, 10]).data.get(), expected.sel(x=[30, 10]).values)
    np.testing.assert_array_equal(found.T.data.get(), expected.T.values)


def test_only_what_is_selected_is_read(kind: type) -> None:
    store = values(3)
    for key in [key for key in store if key.startswith("packed/c/")]:
        if key != "packed/c/0/1":
            store[key] = b"damaged"
    packed = xr.open_dataset(store, engine=ENGINE, device="cuda").packed
    expected = xr.open_dataset(stores(3), engine="zarr").packed
    window = {"y": slice(0, 2), "x": slice(4, 8)}
    np.testing.assert_array_equal(packed[window].data.get(), expected[window].values)
    with pytest.raises(gzarr.ChunkDecodeError):
        packed.load()


def test_loading_keeps_the_device(kind: type) -> None:
    found, expected = both({})
    loaded = found[["packed", "time_bounds"]].load()
    assert type(loaded.packed.data) is kind
    assert loaded.packed.data is loaded.packed.data
    doubled = loaded.packed * 2 + 1
    assert type(doubled.data) is kind
    np.testing.assert_array_equal(doubled.data.get(), (expected.packed * 2 + 1).values)
    assert "(y: 5, x: 10)" in repr(found.packed)


def test_results_of_xarray_are_not_shared(kind: type) -> None:
    """Decoding changes elements in place; what was read before stays as it was."""
    found, expected = both({}, cache=False)
    first, second = found.packed.data, found.packed.data
    np.testing.assert_array_equal(first.get(), second.get())
    np.testing.assert_array_equal(first.get(), expected.packed.values)


@pytest.mark.parametrize("chunks", [{}, {"x": 5}, -1, "auto"])
def test_chunks_know_that_they_are_on_the_device(kind: type, chunks: Any) -> None:
    dropped = sorted({*varied()} - CHUNKED)
    found, expected = both({"chunks": chunks, "drop_variables": dropped})
    for name in CHUNKED:
        one, other = found[name], expected[name]
        assert type(one.variable) is xr.Variable
        assert one.chunks == other.chunks
        assert type(one.data._meta) is kind, name
        assert one.dtype == other.dtype
        elements = one.data.compute(scheduler="threads")
        assert type(elements) is kind
        np.testing.assert_array_equal(elements.get(), other.values)
        part = (one.isel(x=slice(3, 8), y=[2, 0]) + 1).data.compute()
        np.testing.assert_array_equal(part.get(), (other.isel(x=slice(3, 8), y=[2, 0]) + 1).values)


@pytest.mark.parametrize("cache", [True, False])
def test_chunks_made_later(kind: type, cache: bool) -> None:
    found, expected = both({"cache": cache})
    for select in ({}, {"x": slice(2, 9)}, {"y": [4, 2]}):
        chunked = found[["packed"]].isel(select).chunk({"x": 3}).packed
        assert type(chunked.data._meta) is kind
        np.testing.assert_array_equal(chunked.data.compute().get(), expected.packed.isel(select).values)
    loaded = found[["packed"]].load().chunk({"x": 3}).packed
    assert type(loaded.data._meta) is kind
    np.testing.assert_array_equal(loaded.data.compute().get(), expected.packed.values)


def test_trees(kind: type, tmp_path: Path) -> None:
    tree = xr.DataTree.from_dict(
        {
            "/": xr.Dataset({"a": ("x", [1.0, 2.0])}, coords={"x": [1, 2]}),
            "/b": xr.Dataset({"c": ("x", [3, 4])}),
        }
    )
    tree.to_zarr(tmp_path / "t.zarr", consolidated=True)
    found = xr.open_datatree(tmp_path / "t.zarr", engine=ENGINE, device="cuda")
    assert type(found["a"].data) is kind
    assert type(found["b/c"].data) is kind
    assert type(found["b/x"].data) is np.ndarray
    np.testing.assert_array_equal(found["b/c"].data.get(), [3, 4])


def test_variables_can_be_pickled(kind: type) -> None:
    found = xr.open_dataset(gzarr.MemoryStore(values(3)), engine=ENGINE, device="cuda")
    _, expected = both({})
    again = pickle.loads(pickle.dumps(found[["packed"]])).packed
    assert type(again.variable) is DeviceVariable
    np.testing.assert_array_equal(again.data.get(), expected.packed.values)


def test_devices_that_are_not_there() -> None:
    with pytest.raises(gzarr.DeviceError):
        xr.open_dataset(stores(3), engine=ENGINE, device="cuda:17")
    with pytest.raises(gzarr.ArgumentError, match="device"):
        xr.open_dataset(stores(3), engine=ENGINE, device="gpu")


def test_automatic_choice(kind: type) -> None:
    found = xr.open_dataset(stores(3), engine=ENGINE, device="auto")
    assert type(found.packed.data) is kind
    assert type(found.text.data) is np.ndarray


def test_automatic_choice_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    found = xr.open_dataset(stores(3), engine=ENGINE, device="cpu")
    assert type(found.packed.data) is np.ndarray
    assert type(found.packed.variable) is xr.Variable
