"""Saving arrays from memory in one call, and loading them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.array import Array
from ..arrays.elements import all_of
from ..errors import ArgumentError
from ..flags import check_flags
from ..hierarchy.array_spec import new_metadata
from ..hierarchy.create import create_array, create_group
from ..hierarchy.new_nodes import arguments_of_data
from ..hierarchy.open import open as open_node
from ..metadata.formats import FORMATS, check_zarr_format
from ..stores.base import flushing
from ..stores.keys import join_path, normalize_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..metadata.model import NewFormat, ZarrFormat
    from ..stores.resolve import StoreLike


def save(
    store: StoreLike,
    *arrays: Any,
    path: str = "",
    zarr_format: NewFormat = 3,
    overwrite: bool = False,
    named: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **more: Any,
) -> None:
    """Save one array, or several in a group.

    Parameters
    ----------
    store
        As for :func:`create_array`.
    *arrays
        Arrays to save. A single array becomes the node itself; several, or any beside named arrays, are named
        ``arr_0``, ``arr_1``, ….
    path, zarr_format, overwrite
        As for :func:`create_array`. With ``overwrite``, arrays that are not in memory (of gzarr, dask, …) are read into
        memory before anything is erased, since they may be part of the erased node.
    named
        Arrays by name, for names that are also parameters of this function.
    storage_options
        Options for the store of a URL: see :func:`gzarr.open_store`.
    **more
        Arrays by name.

    Raises
    ------
    ArgumentError
        If there are no arrays, if two arrays have the same name, or if one cannot have its name; nothing was changed.
    ArgumentError, ReadOnlyError, NodeTypeError, StoreError, ChunkWriteError
        As for :func:`create_array`.

    Examples
    --------
    >>> import gzarr, numpy as np
    >>> store = {}
    >>> gzarr.save(store, a=np.arange(3), b=np.ones(2))
    >>> sorted(gzarr.load(store))
    ['a', 'b']
    """
    check_flags(overwrite=overwrite)
    # A table has no truth value.
    named = {} if named is None else named
    if not hasattr(named, "items"):
        raise ArgumentError(f"named= must be a mapping from names to arrays, not {type(named).__name__}")
    together = {**named, **more}
    if len(arrays) == 1 and not together:
        create_array(
            store,
            path=path,
            data=arrays[0],
            zarr_format=zarr_format,
            overwrite=overwrite,
            storage_options=storage_options,
        )
        return
    for i, array in enumerate(arrays):
        if f"arr_{i}" in together:
            raise ArgumentError(f"two arrays are named 'arr_{i}'")
        together[f"arr_{i}"] = array
    if not together:
        raise ArgumentError("save needs at least one array")
    # A name or an array that cannot be stored raises before anything is written.
    together = _by_path(together, path, zarr_format)
    dtypes = {}
    for name, array in together.items():
        data, shape, arguments = arguments_of_data(array, None, {}, zarr_format)
        metadata = new_metadata(name, shape, zarr_format, **arguments)
        # Arrays that are not in memory are read when they are stored, unless they may be in the group to be erased.
        together[name] = all_of(data, metadata, name) if overwrite or isinstance(data, np.ndarray) else data
        dtypes[name] = arguments["dtype"]
    group = create_group(
        store, path=path, zarr_format=zarr_format, overwrite=overwrite, storage_options=storage_options
    )
    with flushing(store, group.store):
        for name, array in together.items():
            # Chunks may lie there that are part of no node, and were not erased with the group.
            group.create_array(name, data=array, dtype=dtypes[name], overwrite=overwrite)


def _by_path(named: Mapping[str, Any], path: str, zarr_format: NewFormat) -> dict[str, Any]:
    """Return arrays by their paths in a group that will have nothing else.

    Raises
    ------
    ArgumentError
        If one cannot have its name there.
    """
    check_zarr_format(zarr_format, new=True)
    format, group = FORMATS[zarr_format], normalize_path(path)
    found: dict[str, Any] = {}
    for name, array in named.items():
        below = normalize_path(name)
        if not below:
            raise ArgumentError(f"an array in a group needs a name, not {name!r}")
        if below in found:
            raise ArgumentError(f"two arrays are named {below!r}")
        # Names that each are possible may be too many together.
        normalize_path(join_path(group, below))
        for segment in below.split("/"):
            if format.is_reserved(segment):
                raise ArgumentError(f"an array cannot be named {name!r}: {format.title} reserves {segment!r}")
        found[below] = array
    for below in found:
        *above, _ = itertools.accumulate(below.split("/"), join_path)
        for other in found.keys() & above:
            raise ArgumentError(f"an array cannot be named {below!r}: {other!r} is an array, too, and not a group")
    return found


def load(
    store: StoreLike,
    *,
    path: str = "",
    device: str = "auto",
    zarr_format: ZarrFormat | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """Read a whole array, or all arrays directly in a group.

    Parameters
    ----------
    store, path, device, zarr_format, storage_options
        As for :func:`gzarr.open`.

    Returns
    -------
    An array on the device, or a dict of arrays by name for a group.

    Raises
    ------
    NodeNotFoundError, ArgumentError, DeviceError, MetadataError, StoreError
        As for :func:`gzarr.open`.
    ChunkError
        If a chunk cannot be read.
    """
    node = open_node(store, path=path, device=device, zarr_format=zarr_format, storage_options=storage_options)
    if isinstance(node, Array):
        return node.read()
    return {name: array.read() for name, array in node.arrays()}
