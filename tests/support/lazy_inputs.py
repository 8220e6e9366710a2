"""One array in a directory, opened in every way in which it may be read later: by spelling, library and laziness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dask
import dask.array as da
import fsspec
import obstore.store
import xarray as xr
import zarr
import zarr.storage

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _link(root: Path) -> Path:
    link = root.with_name("link")
    link.symlink_to(root)
    return link


def _variable(root: Path, path: str, engine: str, **options: Any) -> Any:
    group, _, name = path.rpartition("/")
    options = {"drop_variables": ["1"], "consolidated": False, **options}
    return xr.open_dataset(root, group=group or None, engine=engine, **options)[name]


def _wrapped(store: Any) -> Any:
    return zarr.storage.WrapperStore(store)


#: Handles of gzarr, by the way to the directory.
HANDLES: dict[str, Callable[[Path, str], gzarr.Array]] = {
    "r": lambda root, path: gzarr.open_array(root, path=path),
    "r+": lambda root, path: gzarr.open_array(root, path=path, mode="r+"),
    "node": lambda root, path: gzarr.open_array(root / path),
    "dots": lambda root, path: gzarr.open_array(f"{root}/../{root.name}//./{path}"),
    "link": lambda root, path: gzarr.open_array(_link(root), path=path),
    "file URL": lambda root, path: gzarr.open_array(root.as_uri(), path=path),
    "fsspec URL": lambda root, path: gzarr.open_array(f"fsspec+file://{root}", path=path),
    "simplecache": lambda root, path: gzarr.open_array(f"simplecache::file://{root}", path=path),
    "mapper": lambda root, path: gzarr.open_array(fsspec.get_mapper(str(root)), path=path),
    "cached": lambda root, path: gzarr.open_array(gzarr.CachedStore(root, root.with_name("cache"), 1 << 20), path=path),
    "zarr store": lambda root, path: gzarr.open_array(zarr.storage.LocalStore(root), path=path),
    "wrapped zarr store": lambda root, path: gzarr.open_array(_wrapped(zarr.storage.LocalStore(root)), path=path),
    "obstore": lambda root, path: gzarr.open_array(obstore.store.LocalStore(str(root)), path=path),
    "zarr over obstore": lambda root, path: gzarr.open_array(
        zarr.storage.ObjectStore(obstore.store.LocalStore(str(root))), path=path
    ),
}

#: Arrays of dask.
DASK: dict[str, Callable[[Path, str], Any]] = {
    "dask of gzarr": lambda root, path: gzarr.open_array(root, path=path).to_dask(4) * 1,
    "dask of zarr": lambda root, path: da.from_zarr(zarr.open_array(root, path=path, mode="r")) * 1,
    "dask of zarr inline": lambda root, path: da.from_array(
        zarr.open_array(root, path=path, mode="r"), chunks=4, inline_array=True
    ),
    "dask of a link": lambda root, path: gzarr.open_array(_link(root), path=path).to_dask(4),
    "dask overlap": lambda root, path: gzarr.open_array(root, path=path).to_dask(4).map_overlap(lambda x: x, 1),
    "dask closure": lambda root, path: _from_closure(gzarr.open_array(root, path=path)),
    "dask delayed": lambda root, path: _from_delayed(gzarr.open_array(root, path=path)),
    "xarray dask": lambda root, path: _variable(root, path, "zarr", chunks={}).data,
    "xarray dask of gzarr": lambda root, path: _variable(root, path, "gzarr", chunks={}).data * 1,
}


def _from_closure(array: gzarr.Array) -> Any:
    def block(block_info: Any = None) -> Any:
        where = block_info[None]["array-location"]
        return array[tuple(slice(*ends) for ends in where)]

    return da.map_blocks(
        block, chunks=tuple((4,) * (n // 4) for n in array.shape), dtype=array.dtype, meta=array[:0, :0]
    )


def _from_delayed(array: gzarr.Array) -> Any:
    return da.from_delayed(dask.delayed(lambda a: a[...])(array), array.shape, array.dtype)


#: Other arrays that are read when they are used.
LAZY: dict[str, Callable[[Path, str], Any]] = {
    "zarr": lambda root, path: zarr.open_array(root, path=path, mode="r"),
    "zarr in a wrapper": lambda root, path: zarr.open_array(
        _wrapped(zarr.storage.LocalStore(root, read_only=True)), path=path, mode="r"
    ),
    "xarray": lambda root, path: _variable(root, path, "zarr"),
    "xarray part": lambda root, path: _variable(root, path, "zarr")[::1],
    "xarray of gzarr": lambda root, path: _variable(root, path, "gzarr"),
    "xarray's variable": lambda root, path: _variable(root, path, "gzarr").variable,
}
