"""Copies in another Zarr format, judged by anndata, netCDF-C, GDAL and ngff-zarr: each reads them as the source."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import anndata
import netCDF4
import ngff_zarr
import numpy as np
import pandas as pd
import pytest
import rasterio
import scipy.sparse
import xarray as xr
from anndata.tests.helpers import assert_equal

import gzarr
from gzarr.cli.main import main
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from pathlib import Path

#: GDAL reads zarr-python's documents of version 3 since 3.11.
GDAL_READS_3 = tuple(map(int, rasterio.__gdal_version__.split(".")[:2])) >= (3, 11)


def copies(source: Path, folder: Path, zarr_format: Any) -> dict[str, Path]:
    """Return copies in the other format, back from it, and by ``optimize``, by name."""
    found = {name: folder / name for name in ("other", "back", "optimized")}
    gzarr.copy(source, found["other"], zarr_format=5 - zarr_format, read_back=True)
    gzarr.copy(found["other"], found["back"], zarr_format=zarr_format, read_back=True)
    assert main(["optimize", str(source), str(found["optimized"])]) == 0
    return found


# -- anndata


def annotated(kind: str) -> anndata.AnnData:
    rng = np.random.default_rng(0)
    values = rng.poisson(0.4, (6, 4)).astype("f4")
    sparse = {"csr": scipy.sparse.csr_matrix, "csc": scipy.sparse.csc_matrix}
    obs = pd.DataFrame(
        {
            "cell type": pd.Categorical(["a", "b", None, "a", "b", "a"]),
            "order": pd.Categorical(list("xyxyxy"), ordered=True),
            "count": np.array([0, 1, 2, 0, 5, 6]),
            "flag": [True, False, True, True, False, False],
            "maybe": pd.array([1, None, 0, 2, None, 3], dtype="Int64"),
            "perhaps": pd.array([True, None, False, True, None, True], dtype="boolean"),
            "name": ["", "é", "b", "c", "d", "e"],
        },
        index=[f"cell {i}" for i in range(6)],
    )
    return anndata.AnnData(
        sparse[kind](values) if kind in sparse else values,
        obs=obs,
        var=pd.DataFrame({"mean": [0.0, np.nan, 2, 3]}, index=list("ABCD")),
        obsm={"pca": rng.normal(size=(6, 2)), "zeros": np.zeros((6, 3))},
        layers={"raw": values.astype("i4")},
        uns={"text": "t", "empty": "", "number": 0, "list": np.array(["a", ""]), "nested": {"x": np.float32(1.5)}},
    )


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("kind", ["dense", "csr", "csc"])
def test_anndata(kind: str, zarr_format: int, tmp_path: Path) -> None:
    with anndata.settings.override(zarr_write_format=zarr_format):
        annotated(kind).write_zarr(tmp_path / "source")
    expected = anndata.read_zarr(tmp_path / "source")
    assert gzarr.open_group(tmp_path / "source").zarr_format == zarr_format
    for path in copies(tmp_path / "source", tmp_path, zarr_format).values():
        assert_equal(anndata.read_zarr(path), expected, exact=True)


# -- netCDF-C


def write_netcdf(path: Path, mode: str) -> None:
    with netCDF4.Dataset(f"file://{path}#mode={mode},file", "w") as root:
        root.title = "t"
        root.createDimension("x", 3)
        root.createDimension("y", 2)
        masked = root.createVariable("masked", "f4", ("y", "x"), fill_value=-9999.0)
        masked.units = "m"
        masked[...] = np.ma.masked_equal([[1, -9999, 3], [0, 5, -9999]], -9999)
        root.createVariable("n", "i2", ("x",))[...] = [0, 1, 2]
        packed = root.createVariable("packed", "i2", ("x",), fill_value=-1)
        packed.scale_factor, packed.add_offset = 0.25, 1.0
        packed[...] = np.ma.masked_invalid([1, np.nan, 3])
        root.createVariable("scalar", "f8", ())[...] = 7.5
        below = root.createGroup("g").createVariable("partly", "i4", ("x",), chunksizes=(1,))
        below[:1] = [5]
        below.valid_range = np.array([0, 9], "i4")


def netcdf(path: Path, mode: str) -> dict[str, Any]:
    """Return what netCDF-C reads."""
    found: dict[str, Any] = {}

    def walk(group: Any, prefix: str) -> None:
        found[prefix] = {name: group.getncattr(name) for name in group.ncattrs()}
        for name, variable in group.variables.items():
            values = variable[...]
            attributes = {key: np.asarray(variable.getncattr(key)).tolist() for key in variable.ncattrs()}
            mask = np.ma.getmaskarray(values).tolist()
            found[prefix + name] = variable.dimensions, str(variable.dtype), values.tolist(), mask, attributes
        for name, below in group.groups.items():
            walk(below, f"{prefix}{name}/")

    with netCDF4.Dataset(f"file://{path}#mode={mode},file") as root:
        walk(root, "/")
    return found


@pytest.mark.parametrize("mode", ["nczarr", "zarr"])
def test_netcdf(mode: str, tmp_path: Path) -> None:
    """It reads version 2 only: what has been version 3 in between, and xarray reads version 3."""
    source = tmp_path / "source"
    write_netcdf(source, mode)
    expected = netcdf(source, mode)
    found = copies(source, tmp_path, 2)
    assert netcdf(found["optimized"], mode) == expected
    back = netcdf(found["back"], mode)
    if mode == "zarr":
        # Without NCZarr's attributes, netCDF's default fill values cannot be told from others that xarray masks.
        for one, other in zip(expected.values(), back.values(), strict=True):
            if isinstance(other, tuple):
                other[4].pop("_FillValue", None)
                one[4].pop("_FillValue", None)
    assert back == expected
    for engine in ("zarr", "gzarr"):
        for group in (None, "g"):
            options: dict[str, Any] = {"engine": engine, "group": group, "consolidated": False}
            xr.testing.assert_identical(
                xr.open_dataset(source, **options).load(), xr.open_dataset(found["other"], **options).load()
            )


def older_netcdf() -> dict[str, bytes]:
    """Return what libnetcdf 4.9 writes: descriptions of groups and arrays are members of their documents."""
    array = {"zarr_format": 2, "order": "C", "compressor": None, "filters": None}
    documents = {
        ".zgroup": {
            "zarr_format": 2,
            "_nczarr_superblock": {"version": "2.0.0"},
            "_nczarr_group": {"dims": {"unused": 9, "x": 2}, "vars": ["s"], "groups": ["g"]},
        },
        ".zattrs": {"_NCProperties": "version=2", "_nczarr_attr": {"types": {"_NCProperties": ">S1"}}},
        "s/.zarray": {
            **array, "shape": [1], "dtype": "<f8", "chunks": [1], "fill_value": 9.5,
            "_nczarr_array": {"dimrefs": [], "storage": "scalar"},
        },
        "s/.zattrs": {"_ARRAY_DIMENSIONS": ["_scalar_"], "_nczarr_attr": {"types": {}}},
        "g/.zgroup": {"zarr_format": 2, "_NCZARR_GROUP": {"dims": {}, "vars": ["v"], "groups": []}},
        "g/v/.zarray": {
            **array, "shape": [2], "dtype": "<i4", "chunks": [2], "fill_value": -7,
            "_NCZARR_ARRAY": {"dimrefs": ["/x"], "storage": "chunked"},
        },
        "g/v/.zattrs": {"_ARRAY_DIMENSIONS": ["x"]},
    }  # fmt: skip
    values = {key: json.dumps(document).encode() for key, document in documents.items()}
    return {**values, "s/0": np.array([3.0]).tobytes(), "g/v/0": np.array([1, 2], "<i4").tobytes()}


def test_members_of_netcdf() -> None:
    source = older_netcdf()
    other: dict[str, Any] = {}
    back: dict[str, Any] = {}
    gzarr.copy(source, other, zarr_format=3)
    gzarr.copy(other, back, zarr_format=2)
    for key in (key for key in source if "/." in f"/{key}"):
        one, found = (json.loads(values[key]) for values in (source, back))
        if key.endswith(".zarray"):
            # zarr-python's.
            assert found.pop("dimension_separator") == "."
        if key == "g/v/.zattrs":
            # Without NCZarr's list of attributes, the mask is said in both ways.
            assert found.pop("_FillValue") == -7
        assert found == one, key
    for node in ("", "g"):
        xr.testing.assert_identical(
            *(
                xr.open_dataset(values, engine="gzarr", group=node or None, consolidated=False).load()
                for values in (source, other)
            )
        )


def test_members_of_netcdf_in_other_places() -> None:
    source = older_netcdf()
    alone: dict[str, Any] = {}
    gzarr.copy(source, alone, path="g/v", zarr_format=3)
    assert b"nczarr" not in b"".join(alone.values()).lower()
    # What keeps members cannot change others.
    group = {"zarr_format": 3, "node_type": "group"}
    kept = {"": {"zarr_format": 3}, "a": {"shape": [9], "_nczarr_array": {"storage": "chunked"}}, "b": 3}
    store: dict[str, Any] = {"zarr.json": json.dumps({**group, "attributes": {"_nczarr_members": kept}}).encode()}
    gzarr.create_array(store, path="a", data=np.arange(3), zarr_format=3)
    gzarr.create_array(store, path="b", data=np.arange(3), zarr_format=3)
    back: dict[str, Any] = {}
    gzarr.copy(store, back, zarr_format=2)
    assert json.loads(back[".zgroup"]) == {"zarr_format": 2}
    document = json.loads(back["a/.zarray"])
    assert (document["shape"], document["_nczarr_array"]) == ([3], {"storage": "chunked"})
    assert not any("nczarr" in name for name in json.loads(back["b/.zarray"]))


# -- GDAL


def write_raster(path: Path, zarr_format: int, nodata: float | None, dtype: str, crs: str | None) -> None:
    values = np.arange(24).reshape(4, 6).astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with rasterio.open(
            str(path),
            "w",
            driver="Zarr",
            height=4,
            width=6,
            count=1,
            dtype=dtype,
            nodata=nodata,
            crs=crs,
            transform=rasterio.transform.from_origin(0, 10, 1, 1),
            FORMAT=f"ZARR_V{zarr_format}",
            COMPRESS="GZIP",
        ) as band:
            band.write(values, 1)


def raster(path: Path, name: str) -> tuple[Any, ...]:
    with rasterio.open(f"ZARR:{path}:/{name}") as band:
        return band.read(1).tolist(), band.nodata, band.dtypes, band.crs, band.transform, band.dataset_mask().tolist()


@pytest.mark.parametrize("zarr_format", [2, 3] if GDAL_READS_3 else [2])
@pytest.mark.parametrize("crs", [None, "EPSG:32633"])
@pytest.mark.parametrize(("dtype", "nodata"), [("int16", 7), ("uint8", 0), ("float32", 7), ("float32", np.nan)])
def test_gdal(dtype: str, nodata: float, crs: str | None, zarr_format: int, tmp_path: Path) -> None:
    source = tmp_path / "raster"
    write_raster(source, zarr_format, nodata, dtype, crs)
    expected = raster(source, "raster")
    for name, path in copies(source, tmp_path, zarr_format).items():
        if name != "other" or GDAL_READS_3:
            np.testing.assert_equal(raster(path, "raster"), expected)


@pytest.mark.parametrize("crs", [None, "EPSG:32633"])
def test_gdal_without_nodata(crs: str | None, tmp_path: Path) -> None:
    source = tmp_path / "raster"
    write_raster(source, 2, None, "int16", crs)
    assert main(["optimize", str(source), str(tmp_path / "optimized")]) == 0
    assert raster(tmp_path / "optimized", "raster") == raster(source, "raster")
    with pytest.raises(ArgumentError, match="GDAL sees no nodata"):
        gzarr.copy(source, tmp_path / "other", zarr_format=3)
    gzarr.copy(source, tmp_path / "other", zarr_format=3, lossy=True)


# -- OME-Zarr


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_ngff_zarr(version: str, tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(0, 3, (32, 48)).astype("u2")
    image = ngff_zarr.to_ngff_image(data, dims=("y", "x"), scale={"y": 0.5, "x": 0.25}, name="image")
    scaled = ngff_zarr.to_multiscales(image, [2], method=ngff_zarr.Methods.ITKWASM_BIN_SHRINK)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ngff_zarr.to_ngff_zarr(str(tmp_path / "source"), scaled, version=version)
    expected = ngff_zarr.from_ngff_zarr(str(tmp_path / "source"))
    for name, path in copies(tmp_path / "source", tmp_path, 2 if version == "0.4" else 3).items():
        found = ngff_zarr.from_ngff_zarr(str(path))
        assert len(found.images) == len(expected.images)
        for one, other in zip(expected.images, found.images, strict=True):
            assert (one.dims, one.scale, one.translation, one.name) == (
                other.dims,
                other.scale,
                other.translation,
                other.name,
            )
            np.testing.assert_array_equal(one.data.compute(), other.data.compute())
        said = json.loads((path / ("zarr.json" if gzarr.open_group(path).zarr_format == 3 else ".zattrs")).read_text())
        assert ("ome" in said.get("attributes", {})) == (gzarr.open_group(path).zarr_format == 3), name
