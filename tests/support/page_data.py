"""What the examples of each page of documentation need: the files and names that they read, and what must come of them.

A preparation is a generator: up to its ``yield`` it makes files in the current folder, and names; behind it, it checks
what the examples have made. Its key is the name of a page, or ``PAGE#Heading`` for the part of a page that begins
there: that part has a folder and a namespace of its own. Pages that make their own data need none. Packages that not
every Python has are imported first.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import zarr
from support import imaging_page_data, n5_files, servers
from support.foreign_results import jax_takes_copies, torch_takes_copies
from support.range_server import range_server

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.pages import Names

    Values = np.ndarray[Any, Any]


@dataclass
class Here:
    """Where examples run.

    Attributes
    ----------
    names, theirs
        Their namespace, and that of another library's column in a table.
    hosts
        Beginnings of URLs on the page, and what stands for them here.
    s3
        Function that returns the address of an S3 server with the bucket ``bucket``, which is started when first asked
        for.
    """

    s3: Callable[[], tuple[str, int]]
    names: Names = field(default_factory=lambda: {"__name__": "__main__"})
    theirs: Names = field(default_factory=lambda: {"__name__": "__main__"})
    hosts: dict[str, str] = field(default_factory=dict)

    def bucket(self, stack: contextlib.ExitStack, **arrays: Any) -> None:
        """Let ``s3://bucket/NAME.zarr`` be arrays, for this process without any options."""
        host, port = self.s3()
        url = f"http://{host}:{port}"
        options = servers.s3_options(url)
        known = {name: options[name] for name in ("access_key_id", "secret_access_key", "region")}
        variables = {f"AWS_{name.upper()}": value for name, value in known.items()} | {
            "AWS_ENDPOINT_URL": url,
            "AWS_ALLOW_HTTP": "1",
        }
        stack.enter_context(mock.patch.dict(os.environ, variables))
        for name, data in arrays.items():
            values: dict[str, bytes] = {}
            gzarr.create_array(values, data=data, device="cpu")
            for key, value in values.items():
                # Examples that do not sign their requests can read it.
                headers = {"x-amz-acl": "public-read", "Content-Type": "application/octet-stream"}
                request = urllib.request.Request(f"{url}/bucket/{name}.zarr/{key}", value, headers, method="PUT")
                urllib.request.urlopen(request, timeout=30).close()


def _random(*shape: int) -> Values:
    return np.random.default_rng(5).random(shape, "f4")


def _volume(*shape: int) -> Values:
    data = _random(*(shape or (200, 64, 64)))
    zarr.create_array("volume.zarr", data=data, chunks=(64, 64, 64))
    return data


def _stored(path: str) -> Values:
    """Return an array as zarr-python reads it."""
    return np.asarray(zarr.open_array(path, mode="r")[...])


@contextlib.contextmanager
def xarray_engine() -> Iterator[Any]:
    """Let xarray know the engine by name, as where gzarr's entry points are installed."""
    xarray = importlib.import_module("xarray")
    from xarray.backends import common, plugins

    from gzarr.integrations.xarray import GzarrBackendEntrypoint

    with mock.patch.dict(common.BACKEND_ENTRYPOINTS, gzarr=(None, GzarrBackendEntrypoint)):
        plugins.list_engines.cache_clear()
        yield xarray
    plugins.list_engines.cache_clear()


def _era5(xarray: Any) -> Values:
    """Write ``era5.zarr`` as xarray does; return the values of ``t2m`` and ``u10``."""
    values = np.arange(3 * 19 * 4, dtype="f4").reshape(3, 19, 4)
    sides = {"time": np.arange(3), "latitude": np.linspace(90, -90, 19), "longitude": np.arange(4)}
    names = ("time", "latitude", "longitude")
    dataset = xarray.Dataset({"t2m": (names, values, {"units": "K"}), "u10": (names, values)}, coords=sides)
    dataset.u10.encoding = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}
    dataset.to_zarr("era5.zarr", encoding={"t2m": {"chunks": (1, 19, 4)}}, consolidated=True)
    return values


def _radar(xarray: Any) -> None:
    """Write ``radar.zarr``, volumes of sweeps."""
    sweeps = {f"/volume_{v}/sweep_{i}": xarray.Dataset({"DBZH": ("x", [i])}) for v in range(2) for i in range(3)}
    xarray.DataTree.from_dict(sweeps).to_zarr("radar.zarr", consolidated=True)


def nothing(here: Here) -> Iterator[None]:
    """Prepare nothing."""
    yield


# -- README.md


def _readme(here: Here) -> Iterator[None]:
    data, fields = _volume(), _random(2, 721, 1440)
    here.names.update(buffer=np.empty((64, 64, 64), "f4"), fields=fields)
    with contextlib.ExitStack() as stack:
        here.bucket(stack, volume=data[:3])
        yield
        np.testing.assert_array_equal(here.names["s"][...], data[:3])
    np.testing.assert_array_equal(here.names["x"], data[100:200, ::2, -1])
    np.testing.assert_array_equal(here.names["buffer"], data[:64])
    np.testing.assert_array_equal(_stored("new.zarr"), fields)
    np.testing.assert_array_equal(here.names["y"].get(), here.names["x"])


def _readme_zarr(here: Here) -> Iterator[None]:
    data = _volume()
    here.names.update(zarr=zarr, gzarr=importlib.import_module("gzarr.integrations.zarr") and gzarr)
    yield
    np.testing.assert_array_equal(here.names["x"], data[100:200])
    assert zarr.config.get("codec_pipeline.path") == "gzarr.integrations.zarr.CodecPipeline"


def _readme_xarray(here: Here) -> Iterator[None]:
    with xarray_engine() as here.names["xr"]:
        values = _era5(here.names["xr"])
        yield
    np.testing.assert_array_equal(here.names["field"].data, values[0])


def _readme_dask(here: Here) -> Iterator[None]:
    data = _volume()
    here.names["gzarr"] = gzarr
    yield
    np.testing.assert_array_equal(_stored("doubled.zarr"), data * 2)


def _first_rows_are_replaced(name: str, library: str) -> Callable[[Here], Iterator[None]]:
    def prepared(here: Here) -> Iterator[None]:
        importlib.import_module(library)
        data = _volume()
        here.names["gzarr"] = gzarr
        yield
        np.testing.assert_array_equal(np.asarray(here.names[name]), data)
        np.testing.assert_array_equal(_stored("volume.zarr"), np.concatenate([data[10:20], data[10:]]))

    return prepared


# -- pages


def _first_look(here: Here) -> Iterator[None]:
    data = _v2_volume()
    yield
    np.testing.assert_array_equal(here.names["x"], data[10:20, ::2, -1])


def _start_cupy(here: Here) -> Iterator[None]:
    data = _v2_volume()
    yield
    np.testing.assert_array_equal(_stored("brightest.zarr"), data.max(axis=0))
    np.testing.assert_array_equal(here.names["x"].get(), data[10:20])


def _start_training(here: Here) -> Iterator[None]:
    z, y, x = np.ogrid[:64, :64, :64]
    zarr.create_array("volume.zarr", data=(1000 + 10 * z + y + x).astype("u2"), chunks=(16, 64, 64))
    yield
    assert here.names["losses"][-1] < 0.05 * here.names["losses"][0]
    assert tuple(here.names["batch"].shape) == (16, 3, 32, 32)


def _start_microscopy(here: Here) -> Iterator[None]:
    data = np.arange(8 * 256 * 256, dtype="u4").astype("u2").reshape(8, 256, 256)
    gzarr.ome.create("image.ome.zarr", data, axes="zyx", scale=(2, 0.5, 0.5), units="micrometer", levels=2)
    yield
    np.testing.assert_array_equal(here.names["section"], gzarr.open_array("image.ome.zarr", path="1", device="cpu")[0])
    np.testing.assert_array_equal(here.names["detail"], data[0, 30:50, 30:50])
    np.testing.assert_array_equal(here.names["overview"], data)
    assert here.names["flat"].scale == (0.5, 0.5)
    np.testing.assert_array_equal(here.names["flat"].read(), data.max(axis=0))


def _start_climate(here: Here) -> Iterator[None]:
    with xarray_engine() as xarray:
        values = _era5(xarray)
        yield
    weights = np.cos(np.deg2rad(np.linspace(90, -90, 19)))
    expected = np.average(values.mean(axis=2), axis=1, weights=weights)
    np.testing.assert_allclose(here.names["mean"].values, expected, rtol=1e-6)
    assert len(Path("t2m.csv").read_text().splitlines()) == 4


def _start_engineering(here: Here) -> Iterator[None]:
    data = _v2_volume()
    with xarray_engine() as xarray:
        _era5(xarray)
    yield
    np.testing.assert_array_equal(_stored("copy.zarr"), data)
    np.testing.assert_array_equal(_stored("grown.zarr"), data)


def _v2_volume() -> Values:
    data = np.arange(64 * 256 * 256, dtype="u4").astype("u2").reshape(64, 256, 256)
    zarr.create_array("volume.zarr", data=data, chunks=(16, 128, 128), zarr_format=2)
    return data


def _security(here: Here) -> Iterator[None]:
    gzarr.create_array("upload.zarr", data=_random(8, 8))
    gzarr.create_group("uploads/4711", attributes={"a": 1})
    yield
    np.testing.assert_array_equal(here.names["x"], _random(8, 8))
    assert dict(here.names["g"].attrs) == {"a": 1}


def _stores(here: Here) -> Iterator[None]:
    icechunk = importlib.import_module("icechunk")
    data = _random(20, 30)
    Path("served").mkdir()
    gzarr.create_array("served/volume.zarr", path="images/raw", data=data)
    gzarr.create_array("x.zarr", data=data)
    shutil.make_archive("volume.zarr", "zip", "x.zarr")
    here.names["session"] = icechunk.Repository.create(icechunk.in_memory_storage()).writable_session("main")
    zarr.create_array(here.names["session"].store, name="raw", data=data)
    here.names.update(gzarr=gzarr, x=data)
    with contextlib.ExitStack() as stack:
        here.bucket(stack, volume=data)
        here.hosts["https://example.org"] = stack.enter_context(range_server(Path("served")))
        address = stack.enter_context(servers.gcs_server())
        servers.gcs_bucket(address, "bucket", "PUT")
        host, port = address
        here.names["options"] = {"base_url": f"http://{host}:{port}", "bearer_token": servers.GCS_TOKEN}
        yield
        np.testing.assert_array_equal(here.names["b"][...], data)
    np.testing.assert_array_equal(gzarr.open_array("x.zarr.zip", device="cpu")[...], data)


def _data(here: Here) -> Iterator[None]:
    gzarr.create_array("data.zarr", data=_random(20, 30))
    here.names["gzarr"] = gzarr
    yield


def _gpu(here: Here) -> Iterator[None]:
    importlib.import_module("torch")
    data = _random(200, 64, 64)
    gzarr.create_array("data.zarr", data=data, chunks=(64, 64, 64))
    a = gzarr.open_array("data.zarr", device="cuda")
    here.names.update(gzarr=gzarr, np=np, x=a[...], s=None, sel=slice(0, 10))
    with torch_takes_copies(), jax_takes_copies():
        yield
    np.testing.assert_array_equal(_stored("data.zarr"), data)


def _zarr(here: Here) -> Iterator[None]:
    data = _random(30, 50)
    zarr.create_array("temperature.zarr", data=data, chunks=(10, 20))
    yield
    np.testing.assert_array_equal(here.names["b"], data[10:20, ::5])
    assert (_stored("temperature.zarr")[0] == data[10, 0]).all()
    pipeline: Any = here.names["a"].async_array.codec_pipeline
    assert type(pipeline) is importlib.import_module("gzarr.integrations.zarr").CodecPipeline


def _xarray(here: Here) -> Iterator[None]:
    import cupy

    with xarray_engine() as xarray:
        values = _era5(xarray)
        _radar(xarray)
        yield
        found = here.names
        np.testing.assert_array_equal(found["field"].data, values[0, 3:6])
        assert found["chunked"].t2m.chunks[0] == (1, 1, 1)
        assert list(found["tree"].data_vars) == ["t2m", "u10"]
        kept = ("/", "/volume_0", "/volume_1", "/volume_0/sweep_0", "/volume_1/sweep_0")
        assert found["some"].groups == kept
        np.testing.assert_array_equal(xarray.open_zarr("doubled.zarr").t2m.values, values[0, 3:6] * 2)
        assert type(found["wind"]) is cupy.ndarray
        np.testing.assert_array_equal(found["wind"].get(), values[0])
        assert type(found["mean"]._meta) is cupy.ndarray
        np.testing.assert_array_equal(found["mean"].compute().get(), values.mean(0))


def _dask(here: Here) -> Iterator[None]:
    distributed = importlib.import_module("distributed")
    data = _random(30, 40, 50)
    zarr.create_array("temperature.zarr", data=data, chunks=(7, 10, 50))
    settings = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": 0}
    with distributed.LocalCluster(**settings) as made:
        here.names["address"] = made.scheduler_address
        yield
        here.names["client"].close()
    np.testing.assert_allclose(here.names["mean"], data.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(_stored("anomaly.zarr"), data - data.mean(axis=0), atol=1e-5)
    np.testing.assert_array_equal(_stored("blocks.zarr"), data)
    np.testing.assert_allclose(here.names["total"], data.sum(), rtol=1e-4)
    np.testing.assert_array_equal(_stored("copy.zarr"), data)


def _torch_and_jax(here: Here) -> Iterator[None]:
    torch = importlib.import_module("torch")
    data = _volume()
    zarr.create_array("float64.zarr", data=np.array([1 + 1e-12, 2.0]))
    here.names["buffer"] = torch.zeros(16, 64, 64)
    yield
    doubled = data[:16, ::2] * 2
    for name, expected in {"t": data[:16, ::2], "u": data[:16, ::2], "x": doubled, "y": doubled}.items():
        np.testing.assert_array_equal(np.asarray(here.names[name]), expected)
    np.testing.assert_array_equal(here.names["buffer"][:, ::2].numpy(), doubled)
    doubled[0] = 1
    stored = _stored("volume.zarr")
    np.testing.assert_array_equal(stored[:16, ::2], doubled)
    np.testing.assert_array_equal(stored[16:200], data[16:])
    np.testing.assert_array_equal(stored[200:], 0)
    assert here.names["z"].tolist() == [1 + 1e-12, 2.0]


def _blocks(here: Here) -> Iterator[None]:
    filters = importlib.import_module("scipy.ndimage")
    yield
    smooth = filters.median_filter(here.names["volume"][...], 3)
    np.testing.assert_array_equal(here.names["smooth"][...], smooth)
    np.testing.assert_array_equal(here.names["histogram"], np.bincount(smooth.ravel(), minlength=4096))


def _loader(here: Here) -> Iterator[None]:
    importlib.import_module("torch")
    image = np.random.default_rng(0).integers(0, 1000, (96, 80, 64)).astype("u2")
    gzarr.create_array("image.zarr", data=image, chunks=(32, 32, 32))
    gzarr.create_array("label.zarr", data=(image > 500).astype("u1"), chunks=(16, 80, 64))
    here.names["model"] = lambda patches: patches / np.float32(1000)
    yield
    names = here.names
    np.testing.assert_allclose(_stored("prediction.zarr"), image / 1000, rtol=1e-5)
    assert np.array_equal(names["x"] > 500, names["y"])
    arrays = {"image": names["image"], "label": names["label"]}
    wanted = gzarr.Loader(arrays, names["Patches"]((32,) * 3), batch_size=4, seed=1)
    epochs = [[batch.samples.tolist() for batch in wanted] for _ in range(3)]
    assert [names[name].samples.tolist() for name in ("first", "second")] == epochs[2][:2]
    assert names["tensors"].shape == (2, 32, 32, 32)
    assert sum(batch["data"].shape[0] for batch in names["workers"]) == 8
    assert sum(batch["data"].shape[0] for batch in names["samples"]) == 18


def _reading(here: Here) -> Iterator[None]:
    """A pyramid of N5."""
    data = np.arange(8 * 16 * 16, dtype="u2").reshape(8, 16, 16)
    store: dict[str, bytes] = {}
    n5_files.write_group(store, "em", multiScale=True, resolution=[4, 4, 40])
    n5_files.write_array(store, "em/s0", data, (4, 8, 8))
    n5_files.write_array(store, "em/s1", data[:, ::2, ::2], (4, 8, 8), downsamplingFactors=[2, 2, 1])
    n5_files.write_files(store, Path("sample.n5"))
    yield
    assert here.names["level"].shape == data.shape
    assert here.names["image"].scale == (40, 4, 4)
    assert np.array_equal(_stored("sample.zarr/em/s0"), data)


#: By page, or page and heading.
PREPARATIONS: dict[str, Callable[[Here], Iterator[None]]] = {
    "README.md": _readme,
    "README.md#zarr-python": _readme_zarr,
    "README.md#xarray": _readme_xarray,
    "README.md#dask": _readme_dask,
    "README.md#PyTorch": _first_rows_are_replaced("t", "torch"),
    "README.md#JAX": _first_rows_are_replaced("x", "jax"),
    "README.md#Install": nothing,
    "docs/start.md#First look": _first_look,
    "docs/start.md#Arrays for CuPy": _start_cupy,
    "docs/start.md#Batches for training": _start_training,
    "docs/start.md#Microscopy": _start_microscopy,
    "docs/start.md#Climate": _start_climate,
    "docs/start.md#Data engineering": _start_engineering,
    "docs/security.md": _security,
    "docs/stores.md": _stores,
    "docs/errors.md": _data,
    "docs/reading.md": _reading,
    "docs/gpu.md": _gpu,
    "docs/integrations.md#zarr-python": _zarr,
    "docs/integrations.md#xarray": _xarray,
    "docs/integrations.md#dask": _dask,
    "docs/integrations.md#PyTorch and JAX": _torch_and_jax,
    "docs/blocks.md": _blocks,
    "docs/loader.md": _loader,
    "docs/imaging.md": imaging_page_data.images,
    "docs/imaging.md#Coordinate systems and scenes": imaging_page_data.systems,
    "docs/imaging.md#Writing": imaging_page_data.new_images,
}
