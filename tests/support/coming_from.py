"""What the tables of ``docs/coming-from`` need: the same data for both columns, in a folder for each.

See :mod:`support.page_data`.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import zarr
from support.foreign_results import torch_takes_copies
from support.page_data import Here, xarray_engine

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.pages import Names

    Values = np.ndarray[Any, Any]

_DATA = np.arange(64 * 48 * 8, dtype="u2").reshape(64, 48, 8)
_TABLE = np.array([(1, 0.5), (2, 1.5)], [("id", "i4"), ("time", "f8")])
_MORE = np.random.default_rng(5).random((64, 64), "f4")


def _write() -> None:
    """Write what both columns read into the current folder."""
    options: dict[str, Any] = {"chunks": (16, 16, 8), "attributes": {"units": "K"}, "dimension_names": ("z", "y", "x")}
    zarr.create_array("volume.zarr", data=_DATA, **options)
    zarr.create_group("data.zarr")
    zarr.create_array("data.zarr", name="images/raw", data=_DATA, **options)
    shutil.make_archive("volume.zarr", "zip", "volume.zarr")


def _names() -> Names:
    """Return what both columns name without having made it."""
    return {
        "x": _MORE,
        "buffer": np.zeros((16, 48, 8), "u2"),
        "mask": np.arange(64) % 5 == 0,
        "np": np,
        "os": os,
        "asyncio": importlib.import_module("asyncio"),
    }


def _from(theirs: Callable[[Names], None]) -> Callable[[Here], Iterator[None]]:
    """Return a preparation, given what a library's column needs besides."""

    def prepared(here: Here) -> Iterator[None]:
        for name in ("theirs", "ours"):
            Path(name).mkdir()
            with contextlib.chdir(name):
                _write()
        here.theirs.update(_names())
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.dict(os.environ))
            here.bucket(stack, volume=_DATA)
            pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor())
            here.names.update(_names(), gzarr=gzarr, zarr=zarr, pool=pool, options={})
            with contextlib.chdir("theirs"):
                theirs(here.theirs)
            yield
        np.testing.assert_array_equal(here.names["buffer"], _DATA[:16])
        np.testing.assert_array_equal(here.theirs["buffer"], _DATA[:16])

    return prepared


def _zarr(names: Names) -> None:
    from obstore.store import S3Store
    from zarr.codecs import ZstdCodec
    from zarr.core.buffer.cpu import NDBuffer

    names.update(
        zarr=zarr, NDBuffer=NDBuffer, ZstdCodec=ZstdCodec, ObjectStore=zarr.storage.ObjectStore, S3Store=S3Store
    )


def _tensorstore(names: Names) -> None:
    file = {"driver": "file", "path": "volume.zarr"}
    names.update({name: importlib.import_module(name) for name in ("json", "pathlib")})
    names.update(ts=importlib.import_module("tensorstore"), file=file)


def _h5py(names: Names) -> None:
    names["h5py"] = importlib.import_module("h5py")
    for folder in (".", "../ours"):
        with contextlib.chdir(folder), names["h5py"].File("data.h5", "w") as file:
            raw = file.create_dataset("images/raw", data=_DATA, chunks=(16, 16, 8))
            raw.attrs["units"] = "K"
            file["table"] = _TABLE
    gzarr.create_array("../ours/data.zarr", path="table", data=_TABLE)


def _kvikio(here: Here) -> Iterator[None]:
    """Prepare gzarr's column only: on CUDA in host memory. Theirs needs a GPU."""
    importlib.import_module("torch")
    for name in ("theirs", "ours"):
        Path(name).mkdir()
    with contextlib.chdir("ours"), contextlib.ExitStack() as stack:
        _write()
        xarray = stack.enter_context(xarray_engine())
        values = np.arange(6, dtype="f4").reshape(2, 3)
        xarray.Dataset({"t2m": (("time", "x"), values)}).to_zarr("era5.zarr", zarr_format=2)
        stack.enter_context(mock.patch.dict(os.environ))
        here.bucket(stack, volume=_DATA)
        buffer = gzarr.open_array("volume.zarr", device="cuda")[16:32]
        here.names.update(_names(), gzarr=gzarr, xr=xarray, buffer=buffer, stream=None, options={})
        stack.enter_context(torch_takes_copies())
        with contextlib.chdir(".."):
            yield
    np.testing.assert_array_equal(buffer.get(), _DATA[:16])


PREPARATIONS: dict[str, Callable[[Here], Iterator[None]]] = {
    "docs/coming-from/zarr-python.md": _from(_zarr),
    "docs/coming-from/tensorstore.md": _from(_tensorstore),
    "docs/coming-from/h5py.md": _from(_h5py),
    "docs/coming-from/kvikio.md": _kvikio,
}
