"""What a loader takes as an array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
import zarr

import gzarr
from gzarr.errors import ArgumentError
from gzarr.loader import Dataset, Loader, Merge, Patches, Rows, Windows

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

DATA = np.arange(60 * 4, dtype="f4").reshape(60, 4)

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Any]:
    """Return an input of each kind, all of the same elements."""
    gzarr.create_array(tmp_path / "x", data=DATA, chunks=(10, 4))
    gzarr.create_group(tmp_path / "g", zarr_format=2).create_array("two", data=DATA, chunks=(7, 4))
    return {
        "gzarr": gzarr.open_array(tmp_path / "x", device="cpu"),
        "path": tmp_path / "x",
        "string": str(tmp_path / "g/two"),
        "zarr-python": zarr.open_array(tmp_path / "x", mode="r"),
        "zarr-python, in a group": zarr.open_group(tmp_path / "g", mode="r", zarr_format=2)["two"],
        "NumPy": DATA,
        "xarray": xr.DataArray(DATA, dims=("row", "column")),
    }


def test_all_kinds_in_one_loader(inputs: dict[str, Any]) -> None:
    loader = Loader(inputs, Rows(), batch_size=6, seed=2)
    alone = Loader(inputs["gzarr"], Rows(), batch_size=6, seed=2)
    assert sum(len(batch.samples) for batch in alone) == 60
    for batch in loader:
        assert set(batch) == set(inputs)
        for found in batch.values():
            np.testing.assert_array_equal(found, DATA[batch.samples])
    np.testing.assert_array_equal(Dataset(inputs)[3]["path"], DATA[3])
    np.testing.assert_array_equal(Dataset(inputs["path"])[3]["data"], DATA[3])


@pytest.mark.parametrize("kind", ["path", "string", "zarr-python", "NumPy", "xarray"])
def test_alone_and_as_a_volume(kind: str, inputs: dict[str, Any]) -> None:
    for given, count in ((inputs[kind], 60), ([inputs[kind], inputs["gzarr"]], 120)):
        batches = list(Loader(given, batch_size=5))
        assert sum(len(batch["data"]) for batch in batches) == count
        for batch in batches:
            np.testing.assert_array_equal(batch["data"], DATA[batch.samples % 60])


def test_they_go_to_the_device_of_the_others(inputs: dict[str, Any], tmp_path: Path, device: TestedDevice) -> None:
    inputs["gzarr"] = device.open(tmp_path / "x")
    for batch in Loader(inputs, batch_size=20):
        for found in batch.values():
            np.testing.assert_array_equal(device.to_numpy(found), DATA[batch.samples])


def test_an_image(tmp_path: Path) -> None:
    data = np.arange(64 * 64, dtype="u2").reshape(64, 64)
    image = gzarr.ome.create(tmp_path / "x", data=data, axes="yx", levels=2)
    for batch in Loader({"image": image, "half": image.levels[1].array}, Patches((16, 16)), batch_size=4):
        assert batch["half"].shape == (4, 8, 8)
        for patch, (y, x) in zip(batch["image"], batch.origins, strict=True):
            np.testing.assert_array_equal(patch, data[y : y + 16, x : x + 16])


@pytest.mark.parametrize("wrong", [None, 3, {"x": None}, [[1, 2]], gzarr])
def test_what_is_no_array(wrong: Any) -> None:
    with pytest.raises(gzarr.ArgumentError, match="a loader takes an array of gzarr or a view of one, the path"):
        Loader(wrong)


def test_arrays_in_memory_of_other_libraries() -> None:
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    numbers = np.arange(60) * 7 % 11
    index = [f"cell{i}" for i in range(60)]
    given = {
        "NumPy": numbers,
        "pandas": pandas.Series(numbers, index=index),
        "nullable": pandas.array(numbers, "Int64"),
        "pyarrow": pyarrow.chunked_array([numbers[:20], numbers[20:]]),
    }
    frame = pandas.DataFrame(DATA, index=index)
    for batch in Loader(given | {"frame": frame}, batch_size=6, seed=1):
        np.testing.assert_array_equal(batch.pop("frame"), DATA[batch.samples])
        for found in batch.values():
            assert found.dtype == numbers.dtype
            np.testing.assert_array_equal(found, numbers[batch.samples])
    # Beside NaN, integers would be rounded.
    with pytest.raises(gzarr.ArgumentError, match=r"null, .* with value\.fillna\(\.\.\.\)"):
        Loader(pandas.Series([2**53 + 1, None], dtype="Int64"))
    with pytest.raises(gzarr.ArgumentError, match=r"null, .* with value\.fillna\(\.\.\.\)"):
        Loader(pandas.Series(["a", None], dtype="string"))
    with pytest.raises(gzarr.ArgumentError, match="columns of a DataFrame of several types are not one array"):
        Loader(pandas.DataFrame({"a": [2**53 + 1], "b": [0.5]}))
    (batch,) = Loader(pyarrow.array([0.5, None]), batch_size=2, shuffle=False)
    np.testing.assert_array_equal(batch["data"], [0.5, np.nan], strict=True)


@pytest.mark.parametrize("dtype", ["i4", "f4"])
def test_masked_elements(dtype: str) -> None:
    values = np.ma.masked_array(np.arange(3, dtype=dtype), [0, 1, 0])
    with pytest.raises(gzarr.ArgumentError, match=r"masked, .* with value\.filled"):
        Loader(values)
    (batch,) = Loader(values.filled(7), batch_size=3, shuffle=False)
    assert batch["data"].tolist() == [0, 7, 2]


def test_what_is_no_array_is_told_in_a_line() -> None:
    class Lazy:
        """Elements that are not in memory."""

        def __array__(self) -> None:
            raise AssertionError

        def __repr__(self) -> str:
            return "<Lazy\n    of much>"

    with pytest.raises(gzarr.ArgumentError, match=r"not <Lazy of much>$"):
        Loader(Lazy())


def test_elements_that_xarray_has_not_loaded(inputs: dict[str, Any], tmp_path: Path) -> None:
    xr.DataArray(DATA, name="t").to_dataset().to_zarr(tmp_path / "set")
    with xr.open_zarr(tmp_path / "set", chunks=None) as data_set, pytest.raises(gzarr.ArgumentError, match="loaded"):
        Loader(data_set["t"])


def data_set() -> xr.Dataset:
    steps = xr.date_range("2000-01-01", periods=60, freq="D")
    coordinates = {"time": steps, "lat": np.linspace(50, 40, 4), "row": ("time", range(60))}
    return xr.Dataset({"t2m": (("time", "lat"), DATA)}, coords=coordinates)


def test_coordinates_of_xarray() -> None:
    given = data_set()
    arrays = {"t2m": given.t2m, "time": given.time, "loaded": given.time.load(), "range": given.t2m.row}
    loader = Loader({**arrays, "variable": given.time.variable}, Rows(), batch_size=6, seed=1)
    for batch in loader:
        np.testing.assert_array_equal(batch["t2m"], DATA[batch.samples])
        for name in ("time", "loaded", "variable"):
            assert batch[name].dtype == given.time.dtype
            np.testing.assert_array_equal(batch[name], given.time.values[batch.samples])
        np.testing.assert_array_equal(batch["range"], batch.samples)
    np.testing.assert_array_equal(Dataset(given.lat)[1]["data"], given.lat.values[1])
    (selected,) = Loader(given.lat[::-2].rename("other"), batch_size=2, shuffle=False)
    np.testing.assert_array_equal(selected["data"], given.lat.values[::-2])
    levels = given.stack(place=("time", "lat"))["lat"]
    (stacked, *_) = Loader(levels, batch_size=8, shuffle=False)
    np.testing.assert_array_equal(stacked["data"], np.tile(given.lat.values, 2))


def test_coordinates_of_xarray_that_are_objects() -> None:
    given = data_set()
    cftime = pytest.importorskip("cftime")
    days = [cftime.DatetimeNoLeap(2000, 2, day) for day in range(1, 29)]
    of_another_calendar = xr.DataArray(np.zeros(28), dims="time", coords={"time": days}, name="x").time
    pairs = given.stack(place=("time", "lat"))["place"]
    zone = given.assign_coords(time=given.indexes["time"].tz_localize("UTC")).time
    for wrong, objects in ((of_another_calendar, "DatetimeNoLeap"), (pairs, "tuple"), (zone, "Timestamp")):
        words = rf"the index '{wrong.name}' of xarray has Python objects \({objects}\)"
        with pytest.raises(gzarr.ArgumentError, match=words):
            Loader(wrong)


def test_a_loader_tells_what_it_is(inputs: dict[str, Any]) -> None:
    loader = Loader({"a": inputs["gzarr"], "b": DATA[:, 0]}, batch_size=8, rank=1, world_size=2)
    assert repr(loader) == (
        "<gzarr.Loader of a (60, 4) float32, b (60,) float32: Rows(), 60 samples, 3 batches of 8 of rank 1 of 2, "
        "shuffle='blocks', next epoch 0, cpu, buffer of 256.0 MiB (268,435,456 bytes)>"
    )
    assert repr(Windows(0, {"x": (0, 1)}, every=2)) == "Windows(axis=0, runs={'x': (0, 1)}, every=2)"
    list(loader)
    assert "next epoch 1" in repr(loader)
    assert "2 volumes of (60, 4) float32: " in repr(Loader([inputs["gzarr"], inputs["path"]]))


def test_samples_of_many_volumes_go_to_few_batches_each() -> None:
    """A read of a volume is told of no more arrays than it has samples."""
    volumes = [{"x": gzarr.array(np.arange(3) + 3 * i, device="cpu")} for i in range(60)]
    told = []
    read = gzarr.Array.read_windows

    def counting(self: gzarr.Array, *arguments: Any, out: Any, **named: Any) -> Any:
        told.append(len(out))
        return read(self, *arguments, out=out, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gzarr.Array, "read_windows", counting)
        found = [int(batch["x"][0]) for batch in gzarr.Loader(volumes, batch_size=1)]
    assert sorted(found) == list(range(180))
    assert told
    assert max(told) <= 3


def test_tensors_of_bfloat16_and_with_gradients() -> None:
    torch = pytest.importorskip("torch")
    halves = torch.arange(8, dtype=torch.bfloat16)
    expected = np.arange(8, dtype="f4")
    (batch,) = Loader(halves, batch_size=8, shuffle=False)
    assert batch["data"].dtype == gzarr.array(halves).dtype
    np.testing.assert_array_equal(batch["data"].astype("f4"), expected)
    np.testing.assert_array_equal(gzarr.map_blocks(lambda x: x.astype("f4"), halves), expected)
    # One row has all the weight.
    (batch,) = Loader(expected, Rows(weights=halves == 3), batch_size=8)
    (same,) = Loader(expected, Rows(weights=(halves == 3).to(torch.bfloat16)), batch_size=8)
    assert batch["data"].tolist() == same["data"].tolist() == [3] * 8

    steep = torch.ones(8, requires_grad=True)
    for function, name in (
        (lambda: Loader(expected, Rows(weights=steep), batch_size=4), "weights"),
        (lambda: Loader(expected, Rows(weights=list(steep)), batch_size=4), "weights"),
        (lambda: Loader(expected, Rows(where=steep), batch_size=4), "where"),
        (lambda: Loader([expected, expected], Rows(), batch_size=4, weights=steep), "weights"),
        (lambda: Merge(gzarr.zeros(8, dtype="f4"), Patches((8,)), window=steep), "window"),
        (lambda: Loader(steep, batch_size=4), "detach"),
        (lambda: gzarr.map_blocks(lambda x: x, steep), "detach"),
    ):
        with pytest.raises(ArgumentError, match=name):
            next(iter(function()))
