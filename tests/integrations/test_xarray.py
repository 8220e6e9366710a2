"""The engine for xarray, beside xarray's own."""

from __future__ import annotations

import asyncio
import copy
import pickle
import shutil
import subprocess
import sys
import tomllib
import warnings
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
import zarr
import zarr.codecs
import zarr.storage
from support.xarray_datasets import ENGINE, check, stores, values, varied, written

import gzarr
from gzarr.integrations import xarray as integration
from gzarr.integrations.xarray_store import GzarrStore

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.filterwarnings(
    "ignore:Consolidated metadata is currently not part",
    "ignore:.*does not have a Zarr V3 specification",
    "ignore:Numcodecs",
)
HERE = Path(__file__).parent

OPTIONS: list[dict[str, Any]] = [
    {},
    {"decode_cf": False},
    {"mask_and_scale": False},
    {"mask_and_scale": {"packed": False, "several": False}},
    {"decode_times": False},
    {"decode_times": {"time": False}},
    {"decode_timedelta": True},
    {"decode_timedelta": False},
    {"concat_characters": False},
    {"decode_coords": False},
    {"decode_coords": "all"},
    {"drop_variables": "packed"},
    {"drop_variables": ["time", "text", "absent"]},
    {"consolidated": False},
]


def both(store: Any, **options: Any) -> tuple[xr.Dataset, xr.Dataset]:
    """Return a dataset opened by gzarr's engine and by xarray's."""
    return xr.open_dataset(store, engine=ENGINE, **options), xr.open_dataset(store, engine="zarr", **options)


# With characters, all variables are decoded by xarray; without them, most by gzarr.
@pytest.mark.parametrize(
    "dropped", [["bytes", "characters", "codes"], []], ids=["without characters", "with characters"]
)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_is_as_with_the_engine_zarr(
    tmp_path: Path, zarr_format: Any, options: dict[str, Any], dropped: list[str]
) -> None:
    path = written(varied().drop_vars(dropped), tmp_path / "a.zarr", zarr_format)
    found, expected = both(path, **options)
    if options == {"consolidated": False}:
        # The order of a directory is nobody's.
        expected = expected[sorted(expected)]
        found = found[sorted(found)]
    check(found, expected)


def test_formats(tmp_path: Path) -> None:
    # Both in one directory.
    for length, zarr_format in ((1, 2), (2, 3)):
        path = written(xr.Dataset({"a": ("x", np.ones(length))}), tmp_path / f"{zarr_format}.zarr", zarr_format)
        shutil.copytree(path, tmp_path / "a.zarr", dirs_exist_ok=True)
    assert [xr.open_dataset(tmp_path / "a.zarr", engine=ENGINE, zarr_format=n).sizes["x"] for n in (2, 3)] == [1, 2]


def test_fill_values_may_be_masked_or_not() -> None:
    for store, is_version_2 in ((stores(2), True), (stores(3), False)):
        masked = xr.open_dataset(store, engine=ENGINE, use_zarr_fill_value_as_mask=True)
        plain = xr.open_dataset(store, engine=ENGINE, use_zarr_fill_value_as_mask=False)
        default = xr.open_dataset(store, engine=ENGINE)
        assert np.isnan(masked.filled.values[0])
        assert plain.filled.values[0] == 7
        assert plain.filled.attrs == {}
        xr.testing.assert_identical(default, masked if is_version_2 else plain)


@pytest.mark.parametrize("dtype", ["c8", ">c16"])
def test_both_parts_of_masked_complex_elements_are_nan(dtype: str, tmp_path: Path) -> None:
    data = np.array([1 + 2j, 9, 3 - 1j], dtype)
    gzarr.create_array(tmp_path, path="a", data=data, dimension_names=["x"], fill_value=9, zarr_format=2)
    found, expected = (
        xr.open_dataset(tmp_path, engine=engine, consolidated=False)["a"].to_numpy() for engine in (ENGINE, "zarr")
    )
    assert np.isnan(found[1].imag)
    np.testing.assert_array_equal(found.astype("c16").view("f8"), expected.astype("c16").view("f8"))


SELECTIONS: dict[str, Callable[[xr.DataArray], xr.DataArray]] = {
    "all": lambda a: a,
    "integers": lambda a: a.isel(y=2, x=-1),
    "one integer": lambda a: a.isel(x=3),
    "slices": lambda a: a.isel(y=slice(1, 4), x=slice(None, None, 2)),
    "backwards": lambda a: a.isel(y=slice(None, None, -1), x=slice(8, 2, -3)),
    "nothing": lambda a: a.isel(y=slice(2, 2)),
    "lists": lambda a: a.isel(y=[3, 0, 0], x=[5, -1]),
    "list and integer": lambda a: a.isel(y=[3, 1], x=4),
    "list and slice": lambda a: a.isel(y=slice(1, None), x=[7, 2]),
    "mask": lambda a: a.isel(x=np.arange(10) % 3 == 0),
    "points": lambda a: a.isel(y=xr.DataArray([0, 4, 2], dims="p"), x=xr.DataArray([9, -2, 1], dims="p")),
    "points of one dimension": lambda a: a.isel(y=xr.DataArray([[0, 4], [2, 1]], dims=("p", "q"))),
    "twice": lambda a: a.isel(y=slice(1, 5)).isel(y=[2, 0], x=slice(3)),
    "points of a window": lambda a: a.isel(x=slice(1, 9)).isel(y=xr.DataArray([0, 4], dims="p")),
    "transposed": lambda a: a.transpose("x", "y").isel(x=slice(2, 5)),
    "labels": lambda a: a.sel(x=[20, 50]),
}


@pytest.mark.parametrize("name", ["packed", "plain", "text", "flag", "several"])
@pytest.mark.parametrize("select", SELECTIONS.values(), ids=SELECTIONS)
def test_selections(select: Callable[[xr.DataArray], xr.DataArray], name: str) -> None:
    found, expected = (select(dataset[name]) for dataset in both(stores(3)))
    assert not found.variable._in_memory
    xr.testing.assert_identical(found, expected)
    assert type(found.variable.data) is np.ndarray


@pytest.mark.parametrize("select", SELECTIONS.values(), ids=SELECTIONS)
def test_asynchronous_loading(select: Callable[[xr.DataArray], xr.DataArray]) -> None:
    for name in ("packed", "plain", "text"):
        found, expected = (select(dataset[name]) for dataset in both(stores(3)))
        xr.testing.assert_identical(asyncio.run(found.load_async()), expected.load())


def test_many_variables_load_at_the_same_time() -> None:
    # Characters and flags are decoded by xarray in a way that does not load asynchronously.
    names = ["plain", "packed", "objects", "text", "unsigned"]
    found, expected = (dataset[names] for dataset in both(stores(2)))

    async def load() -> list[xr.Dataset]:
        return await asyncio.gather(*(found.copy().load_async() for _ in range(4)))

    for one in asyncio.run(load()):
        xr.testing.assert_identical(one, expected)


def test_only_what_is_selected_is_read() -> None:
    store = values(3)
    for key in [key for key in store if key.startswith("plain/c/")]:
        if key != "plain/c/0/1":
            store[key] = b"damaged"
    plain = xr.open_dataset(store, engine=ENGINE).plain
    np.testing.assert_array_equal(plain.isel(y=slice(0, 2), x=slice(4, 8)), np.arange(50.0).reshape(5, 10)[:2, 4:8])
    with pytest.raises(gzarr.ChunkDecodeError, match="plain"):
        plain.load()


class TestChunks:
    @pytest.mark.parametrize("chunks", [{}, {"x": 5}, "auto", -1])
    def test_as_with_the_engine_zarr(self, chunks: Any) -> None:
        # dask does not know the size of objects.
        found, expected = both(stores(3), chunks=chunks, drop_variables="objects")
        assert {name: a.chunks for name, a in found.items()} == {name: a.chunks for name, a in expected.items()}
        xr.testing.assert_identical(found.compute(), expected.compute())
        assert type(found.plain.data._meta) is np.ndarray

    def test_of_shards(self, tmp_path: Path) -> None:
        dataset = xr.Dataset({"a": (("y", "x"), np.arange(96.0).reshape(8, 12))})
        dataset.to_zarr(tmp_path / "a.zarr", encoding={"a": {"chunks": (2, 3), "shards": (4, 6)}}, zarr_format=3)
        check(*both(tmp_path / "a.zarr"))
        found = xr.open_dataset(tmp_path / "a.zarr", engine=ENGINE, chunks={})
        assert found.a.encoding["shards"] == (4, 6)
        assert found.a.chunks == ((2,) * 4, (3,) * 4)

    @pytest.mark.parametrize(
        ("chunks", "expected"),
        [([[2, 1, 4], 4], ((2, 1, 4), 4)), ([[3, 3, 1], 4], (3, 4)), ([[7], [1, 5]], (7, (1, 5)))],
    )
    def test_of_different_lengths(self, chunks: Any, expected: Any) -> None:
        store: dict[str, bytes] = {}
        group = gzarr.create_group(store)
        values = np.arange(42).reshape(7, 6)
        group.create_array("a", data=values, chunks=chunks, dimension_names=("y", "x"))
        found = xr.open_dataset(store, engine=ENGINE, consolidated=False, chunks={})
        assert found.a.encoding["chunks"] == expected
        assert found.a.encoding["preferred_chunks"] == dict(zip("yx", expected, strict=True))
        assert all(sum(lengths) == n for lengths, n in zip(found.a.chunks, (7, 6), strict=True))
        np.testing.assert_array_equal(found.a.values, values)

    def test_of_nothing(self, tmp_path: Path) -> None:
        xr.Dataset({"a": (("y", "x"), np.empty((0, 3)))}).to_zarr(tmp_path / "a.zarr", zarr_format=3)
        for options in ({}, {"chunks": {}}):
            check(*both(tmp_path / "a.zarr", **options))


class TestGroups:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        tree = xr.DataTree.from_dict(
            {
                "/": xr.Dataset({"top": ("x", [1, 2])}, coords={"x": [10, 20]}, attrs={"level": 0}),
                "/a": xr.Dataset({"one": ("x", [3.0, 4.0])}),
                "/a/b": xr.Dataset({"two": (("x", "y"), [[5], [6]])}, coords={"y": ["z"]}),
                "/c": xr.Dataset(),
            }
        )
        tree.to_zarr(tmp_path / "a.zarr", consolidated=True)
        return tmp_path / "a.zarr"

    @pytest.mark.parametrize(
        "options", [{}, {"group": "/a"}, {"group": "a/b"}, {"consolidated": False}, {"chunks": {}}]
    )
    def test_trees(self, path: Path, options: Any) -> None:
        found = xr.open_datatree(path, engine=ENGINE, **options)
        expected = xr.open_datatree(path, engine="zarr", **options)
        xr.testing.assert_identical(found, expected)
        for node in expected.subtree:
            check(found[node.path].to_dataset(inherit=False).compute(), node.to_dataset(inherit=False).compute())

    @pytest.mark.parametrize("options", [{}, {"group": "/a"}, {"consolidated": False}])
    def test_dictionaries(self, path: Path, options: Any) -> None:
        found = xr.open_groups(path, engine=ENGINE, **options)
        expected = xr.open_groups(path, engine="zarr", **options)
        assert set(found) == set(expected)
        for name, dataset in expected.items():
            check(found[name], dataset)

    @pytest.mark.parametrize("group", ["a", "/a/b", "c/", None, "/"])
    @pytest.mark.parametrize("consolidated", [None, True, False])
    def test_one(self, path: Path, group: str | None, consolidated: bool | None) -> None:
        check(*both(path, group=group, consolidated=consolidated))

    def test_groups_that_do_not_fit_each_other(self, path: Path) -> None:
        xr.Dataset({"one": ("x", [1, 2, 3])}).to_zarr(path, group="d", mode="a", consolidated=False)
        assert len(xr.open_groups(path, engine=ENGINE, consolidated=False)["/d"].one) == 3
        with pytest.raises(ValueError, match="not aligned"):
            xr.open_datatree(path, engine=ENGINE, consolidated=False)

    def test_absent(self, path: Path) -> None:
        for consolidated in (None, True, False):
            with pytest.raises(FileNotFoundError, match=r"the group 'nothing' does not exist") as caught:
                xr.open_dataset(path, engine=ENGINE, group="nothing", consolidated=consolidated)
            assert isinstance(caught.value, gzarr.NodeNotFoundError)
        with pytest.raises(FileNotFoundError, match="does not exist: there is no directory"):
            xr.open_dataset(path / "nothing", engine=ENGINE)

    @pytest.mark.parametrize("zarr_format", [2, 3])
    @pytest.mark.parametrize("consolidated", [None, False])
    def test_directories_of_archives(self, tmp_path: Path, zarr_format: Any, consolidated: bool | None) -> None:
        for i in range(12):
            gzarr.create_group(tmp_path / f"{i:02}.zarr", zarr_format=zarr_format)
        written(xr.Dataset({"a": ("x", [1, 2])}), tmp_path / "deep" / "a.zarr", zarr_format)
        options: dict[str, Any] = {"consolidated": consolidated, "engine": ENGINE}
        with pytest.raises(
            FileNotFoundError, match=r"no group '/' .* only groups: '00.zarr', .*'09.zarr' and 3 others;"
        ):
            xr.open_dataset(tmp_path, **options)
        with pytest.raises(
            gzarr.NodeNotFoundError, match=r"no group '/deep' .* only groups: 'a.zarr'; open one of these"
        ):
            xr.open_dataset(tmp_path, group="deep", **options)
        with pytest.raises(FileNotFoundError):
            xr.open_dataset(tmp_path, engine="zarr", consolidated=consolidated)
        for group in ("deep/a.zarr", "03.zarr"):
            assert list(xr.open_dataset(tmp_path, group=group, **options)) == ["a"] * group.startswith("deep")
        assert "/deep/a.zarr" in xr.open_datatree(tmp_path, **options).groups

    def test_groups_without_documents(self, path: Path) -> None:
        (path / "a" / "b" / "zarr.json").unlink()
        found = xr.open_dataset(path, engine=ENGINE, group="a/b", consolidated=False)
        assert list(found) == ["two"]

    def test_array_in_its_place(self, path: Path) -> None:
        for consolidated in (None, False):
            with pytest.raises(gzarr.NodeTypeError, match="an array, not a group"):
                xr.open_dataset(path, engine=ENGINE, group="a/one", consolidated=consolidated)


class TestConsolidated:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        xr.Dataset({"a": ("x", [1, 2])}).to_zarr(tmp_path / "a.zarr", consolidated=False)
        return tmp_path / "a.zarr"

    def test_absence_is_warned_of_where_it_is_opened(self, path: Path) -> None:
        with pytest.warns(RuntimeWarning, match="Failed to open Zarr store with consolidated metadata") as caught:
            xr.open_dataset(path, engine=ENGINE)
        assert [warning.filename for warning in caught] == [__file__]

    def test_absence_is_an_error_if_asked_for(self, path: Path) -> None:
        with pytest.raises(gzarr.ArgumentError, match="consolidated"):
            xr.open_dataset(path, engine=ENGINE, consolidated=True)

    def test_no_warning_if_not_asked_for(self, path: Path) -> None:
        with warnings.catch_warnings(action="error"):
            xr.open_dataset(path, engine=ENGINE, consolidated=False)

    def test_is_what_counts(self, tmp_path: Path) -> None:
        path = tmp_path / "b.zarr"
        xr.Dataset({"a": ("x", [1, 2]), "b": ("x", [3, 4])}).to_zarr(path, consolidated=True, zarr_format=3)
        (path / "a" / "zarr.json").unlink()
        assert list(xr.open_dataset(path, engine=ENGINE)) == ["a", "b"]
        assert list(xr.open_dataset(path, engine=ENGINE, consolidated=False)) == ["b"]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_attributes_of_rasters_and_of_nothing(tmp_path: Path, zarr_format: Any) -> None:
    values = np.zeros((2, 2), "f4")
    attributes: dict[str, Any] = {"units": "m", "bounds": [0.0, 0.0, 10.0, 10.0], "scale_factor": None}
    group = zarr.create_group(tmp_path, zarr_format=zarr_format)
    names: Any = {"dimension_names": ["y", "x"]}
    if zarr_format == 2:
        names, attributes = {}, {**attributes, "_ARRAY_DIMENSIONS": ["y", "x"]}
    group.create_array("dem", data=values, attributes=attributes, **names)
    check(*both(tmp_path, consolidated=False))


#: Attributes that name other variables, all that decoding looks at, and values that they may have.
RELATED = (
    *("bounds", "coordinates", "grid_mapping", "ancillary_variables", "cell_measures", "formula_terms"),
    "climatology",
)
ATTRIBUTES = (
    *RELATED,
    *("units", "calendar", "dtype", "_FillValue", "missing_value", "scale_factor", "add_offset", "_Unsigned"),
)
VALUES: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1.5,
        300,
        2**70,
        float("nan"),
        "",
        "v",
        "w",
        "w absent",
        "days",
        "days since 2000-01-01",
    ),
    *(
        "true",
        "nan",
        "1",
        "bool",
        "timedelta64[ns]",
        "AAAAAAAA+H8=",
        [],
        [1],
        [0.0, 0.0, 10.0, 10.0],
        ["v"],
        [[1]],
        [None],
    ),
    *([float("nan"), 1], ["a", "b"], {}, {"a": 1}),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", ["f4", "i2"])
@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_of_any_type(name: str, dtype: str, zarr_format: Any) -> None:
    """What xarray makes of an attribute's value, be it an error, is the same with both engines."""
    group = zarr.create_group(zarr.storage.MemoryStore(), zarr_format=zarr_format)
    dims: dict[str, Any] = {"_ARRAY_DIMENSIONS": ["x"]} if zarr_format == 2 else {}
    for other in ("v", "w"):
        group.create_array(
            other,
            data=np.array([1, 2, 3], dtype),
            attributes=dims,
            dimension_names=["x"] if zarr_format == 3 else None,
        )
    array = group["v"]
    for value in VALUES:
        array.attrs.put({**dims, name: value})
        for options in ({}, {"decode_coords": "all"} if name in RELATED else {"mask_and_scale": False}):
            one, expected = (opened(group.store, engine, **options) for engine in (ENGINE, "zarr"))
            what = f"{value!r} {options} {one!r} {expected!r}"
            if isinstance(expected, xr.Dataset):
                assert isinstance(one, xr.Dataset), what
                check(one, expected)
            elif (name, dtype, zarr_format) == ("_FillValue", "f4", 3) and type(value) in (int, float):
                # Only gzarr reads what others than xarray write.
                assert isinstance(one, xr.Dataset), what
            else:
                assert type(one) is type(expected), what


def opened(store: Any, engine: Any, **options: Any) -> xr.Dataset | Exception:
    """Return the variable ``v``, and the coordinates that there are, or the error."""
    try:
        # In which order a group is listed is the store's matter.
        return xr.open_dataset(store, engine=engine, consolidated=False, **options)[["v"]].load()
    except Exception as error:
        return error


def test_fill_values_of_others_in_version_3() -> None:
    store: dict[str, bytes] = {}
    group = gzarr.create_group(store)
    values = np.array([1.5, -9999.0], "f4")
    group.create_array("a", data=values, dimension_names=("x",), attributes={"_FillValue": -9999.0})
    # xarray's own notation.
    group.create_array("b", data=values, dimension_names=("x",), attributes={"_FillValue": "AAAAAICHw8A="})
    group.create_array("c", data=values.astype("i2"), dimension_names=("x",), attributes={"_FillValue": -9999})
    found = xr.open_dataset(store, engine=ENGINE, consolidated=False)
    for name, first in {"a": 1.5, "b": 1.5, "c": 1.0}.items():
        np.testing.assert_array_equal(found[name].values, [first, np.nan], err_msg=name)
        assert found[name].dtype == np.float32
        assert found[name].encoding["_FillValue"] == -9999


class TestStores:
    expected = xr.Dataset({"a": ("x", [1, 2])})

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return written(self.expected, tmp_path / "a.zarr", 3)

    def test_paths(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(path.parent)
        monkeypatch.setenv("HOME", str(path.parent))
        for store in (path, str(path), "a.zarr", "~/a.zarr", f"file://{path}", f"{path}/"):
            found = xr.open_dataset(store, engine=ENGINE)
            xr.testing.assert_identical(found.load(), self.expected)
        monkeypatch.chdir("/")
        xr.testing.assert_identical(xr.open_dataset(path, engine=ENGINE), self.expected)

    def test_mappings_and_stores(self, path: Path) -> None:
        values = {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}
        # zarr-python's store fills its mapping with buffers.
        buffers: dict[str, Any] = {}
        self.expected.to_zarr(zarr.storage.MemoryStore(buffers))
        assert not isinstance(buffers["zarr.json"], bytes)
        for store in (
            values, buffers, gzarr.MemoryStore(values), gzarr.LocalStore(path), zarr.storage.LocalStore(path),
            zarr.storage.MemoryStore(buffers), zarr.open_group(path, mode="r"),
        ):  # fmt: skip
            xr.testing.assert_identical(xr.open_dataset(store, engine=ENGINE), self.expected)

    def test_zip_archives(self, tmp_path: Path) -> None:
        with zarr.storage.ZipStore(tmp_path / "a.zip", mode="w") as archive:
            self.expected.to_zarr(archive, zarr_format=3, consolidated=False)
        with xr.open_dataset(tmp_path / "a.zip", engine=ENGINE, consolidated=False) as found:
            xr.testing.assert_identical(found.load(), self.expected)

    def test_stores_of_the_caller_stay_open(self, tmp_path: Path) -> None:
        with zarr.storage.ZipStore(tmp_path / "a.zip", mode="w") as archive:
            self.expected.to_zarr(archive, consolidated=False)
        with gzarr.ZipStore(tmp_path / "a.zip") as archive:
            xr.open_dataset(archive, engine=ENGINE, consolidated=False).close()
            xr.testing.assert_identical(xr.open_dataset(archive, engine=ENGINE, consolidated=False), self.expected)

    def test_options_of_stores(self, path: Path) -> None:
        with pytest.raises(gzarr.ArgumentError, match="storage_options"):
            xr.open_dataset(path, engine=ENGINE, storage_options={"timeout": 3})

    def test_as_data_store(self, path: Path) -> None:
        store = GzarrStore.open(path)
        assert store.get_dimensions() == {"x": 2}
        xr.testing.assert_identical(xr.open_dataset(store), self.expected)
        xr.testing.assert_identical(xr.open_dataset(store, engine=ENGINE), self.expected)

    def test_modes(self, path: Path) -> None:
        with pytest.raises(gzarr.ArgumentError, match=r"mode='a'.*to_zarr"):
            xr.open_dataset(path, engine=ENGINE, mode="a")


def test_datasets_can_be_pickled_and_copied(tmp_path: Path) -> None:
    path = written(varied(), tmp_path / "a.zarr", 3)
    found, expected = both(path)
    for one in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found), found.copy(deep=True)):
        assert not one.plain.variable._in_memory or one.plain.values is not None
        xr.testing.assert_identical(one, expected)
    chunked = pickle.loads(pickle.dumps(xr.open_dataset(path, engine=ENGINE, chunks={})))
    xr.testing.assert_identical(chunked.compute(), expected)


@pytest.mark.parametrize("options", [{}, {"parallel": True}])
def test_many_files(tmp_path: Path, options: Any) -> None:
    paths = [tmp_path / f"{i}.zarr" for i in range(3)]
    for i, path in enumerate(paths):
        written(xr.Dataset({"a": ("x", [i, 10 * i])}, coords={"x": [2 * i, 2 * i + 1]}), path, 3)
    with xr.open_mfdataset(paths, engine=ENGINE, **options) as found:
        np.testing.assert_array_equal(found.a.values, [0, 0, 1, 10, 2, 20])
    with xr.open_datatree(paths[0], engine=ENGINE) as tree:
        assert tree["a"].shape == (2,)


def test_entry_point() -> None:
    project = tomllib.loads((HERE.parents[1] / "pyproject.toml").read_text())["project"]
    ((name, value),) = project["entry-points"]["xarray.backends"].items()
    assert name == "gzarr"
    assert EntryPoint(name, value, "xarray.backends").load() is integration.GzarrBackendEntrypoint
    assert "gzarr" in repr(integration.GzarrBackendEntrypoint())


def test_is_only_guessed_without_zarr_python(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = integration.GzarrBackendEntrypoint()
    assert not engine.guess_can_open("a.zarr")
    monkeypatch.setattr(integration, "find_spec", lambda name: None)
    assert engine.guess_can_open("a.zarr/")
    assert engine.guess_can_open(Path("a.zarr"))
    assert not engine.guess_can_open("a.nc")
    assert not engine.guess_can_open({})


def test_zarr_python_is_not_needed(tmp_path: Path) -> None:
    path = written(varied(), tmp_path / "a.zarr", 3)
    program = (
        "import sys; sys.modules['zarr'] = None\n"
        "import xarray\n"
        "from gzarr.integrations.xarray import GzarrBackendEntrypoint\n"
        "assert 'gzarr.integrations.xarray_store' not in sys.modules\n"
        f"dataset = xarray.open_dataset({str(path)!r}, engine=GzarrBackendEntrypoint)\n"
        "print(float(dataset.plain.sum()), len(xarray.open_datatree(dataset.encoding['source'], engine="
        "GzarrBackendEntrypoint).text))\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.stdout == "1225.0 5\n", found.stderr
