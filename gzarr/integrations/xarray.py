"""An engine for xarray: ``xr.open_dataset(store, engine="gzarr")``.

::

    ds = xr.open_dataset("s3://bucket/era5.zarr", engine="gzarr")
    ds = xr.open_dataset("era5.zarr", engine="gzarr", device="cuda")      # data variables arrive as CuPy

xarray finds it by its entry point, so nothing has to be imported. It reads without zarr-python. Its results, and its
arguments, are those of xarray's own engine "zarr"; ``device`` comes on top. xarray has no hook for writing: ``to_zarr``
always uses zarr-python, for which there is :mod:`gzarr.integrations.zarr`.

xarray imports this module whenever it looks for engines, so what it needs is imported when something is opened.
"""

from __future__ import annotations

import inspect
import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from xarray.backends import BackendEntrypoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TypeAlias

    import xarray as xr
    from xarray.backends import AbstractDataStore

    import gzarr
    from gzarr.stores.resolve import StoreLike

    Toggle: TypeAlias = "bool | Mapping[str, bool]"

__all__ = ["GzarrBackendEntrypoint", "data_array"]


def data_array(array: gzarr.Array, dims: tuple[str, ...], coordinates: Mapping[str, Any], name: str | None) -> Any:
    """Return an array as a ``DataArray`` that is read when it is indexed.

    Parameters
    ----------
    array
        The array.
    dims
        Name of each dimension.
    coordinates
        By dimension: a list of values; or distance, first value, number and attributes of evenly spaced ones.
    name
        Name of the result.
    """
    import numpy as np
    import xarray as xr
    from xarray.core import indexing

    from .xarray_arrays import StoredArray

    found: dict[str, Any] = {}
    for dim, values in coordinates.items():
        if isinstance(values, list):
            found[dim] = (dim, values, {})
        else:
            step, first, length, attributes = values
            found[dim] = (dim, np.arange(length) * step + first, attributes)
    return xr.DataArray(indexing.LazilyIndexedArray(StoredArray(array)), found, dims, name=name)


class GzarrBackendEntrypoint(BackendEntrypoint):  # type: ignore[misc]
    """The engine "gzarr" of xarray. Pass its options to :func:`xarray.open_dataset` and its siblings."""

    description: ClassVar[str] = "Open Zarr stores with gzarr, into host memory or GPU memory"
    supports_groups: ClassVar[bool] = True

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Return whether this engine is the one to take if none is named: if xarray's own "zarr" is not there."""
        if not isinstance(filename_or_obj, str | os.PathLike) or find_spec("zarr") is not None:
            return False
        return os.fspath(filename_or_obj).rstrip("/").endswith(".zarr")

    def open_dataset(  # noqa: PLR0913
        self,
        filename_or_obj: StoreLike | AbstractDataStore,
        *,
        mask_and_scale: Toggle = True,
        decode_times: Any = True,
        concat_characters: Toggle = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: Any = None,
        decode_timedelta: Any = None,
        group: str | os.PathLike[str] | None = None,
        mode: str = "r",
        consolidated: bool | None = None,
        storage_options: Mapping[str, Any] | None = None,
        zarr_format: Any = None,
        use_zarr_fill_value_as_mask: bool | None = None,
        device: str = "cpu",
    ) -> xr.Dataset:
        """Open the arrays of one group; see :func:`xarray.open_dataset` for the arguments that are not below.

        Parameters
        ----------
        filename_or_obj
            Whatever :func:`gzarr.open` takes: path, URL, zip archive, mapping, store of gzarr or zarr-python.
        group
            Path of the group; the root by default.
        mode
            ``"r"``, the only one.
        consolidated
            None to use the consolidated metadata of the root, and to warn if it has none; True to raise if it has none;
            False to read the documents of all nodes.
        storage_options
            Options for the store of a URL: see :func:`gzarr.open_store`.
        zarr_format
            Zarr format if known, as for :func:`gzarr.open`.
        use_zarr_fill_value_as_mask
            Whether elements that equal the arrays' fill value are masked; None for version 2 and older only, as in
            xarray's own engine.
        device
            Device of the data variables: ``"cpu"``, ``"cuda"``, ``"cuda:N"`` or ``"auto"``. They are read when they are
            used. On a GPU, they arrive as CuPy, masked and scaled there. Coordinates, dates, times and strings are read
            to host memory on any device.

        Returns
        -------
        The dataset. Its variables read from the store until they are loaded.

        Raises
        ------
        NodeNotFoundError, NodeTypeError
            If there is no such group, or it has neither a document nor arrays, only groups below it. The former is a
            ``FileNotFoundError`` and a ``KeyError``.
        DimensionNamesError
            If an array has no names of its dimensions.
        ArgumentError, DeviceError, MetadataError, StoreError
            As for :func:`gzarr.open_group`.
        """
        from .xarray_decoding import decoded
        from .xarray_store import GzarrStore

        store = GzarrStore.open(
            filename_or_obj,
            group=group,
            mode=mode,
            consolidated=consolidated,
            storage_options=storage_options,
            zarr_format=zarr_format,
            use_zarr_fill_value_as_mask=use_zarr_fill_value_as_mask,
            device=device,
        )
        store.check_described()
        return decoded(
            store,
            mask_and_scale=mask_and_scale,
            decode_times=decode_times,
            concat_characters=concat_characters,
            decode_coords=decode_coords,
            drop_variables=drop_variables,
            use_cftime=use_cftime,
            decode_timedelta=decode_timedelta,
        )

    def open_datatree(self, filename_or_obj: StoreLike, **options: Any) -> xr.DataTree:
        """Open all groups at and below ``group`` as a tree; options as for :meth:`open_groups_as_dict`.

        A group has its parents' dimensions and coordinates, too, and must agree with them.
        """
        import xarray as xr

        datasets = self.open_groups_as_dict(filename_or_obj, **options)
        tree = xr.DataTree.from_dict(datasets)
        for path, dataset in datasets.items():
            tree[path].set_close(dataset._close)
        return tree

    def open_groups_as_dict(  # noqa: PLR0913
        self,
        filename_or_obj: StoreLike,
        *,
        mask_and_scale: Toggle = True,
        decode_times: Any = True,
        concat_characters: Toggle = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: Any = None,
        decode_timedelta: Any = None,
        group: str | os.PathLike[str] | None = None,
        group_filter: str | None = None,
        mode: str = "r",
        consolidated: bool | None = None,
        storage_options: Mapping[str, Any] | None = None,
        zarr_format: Any = None,
        use_zarr_fill_value_as_mask: bool | None = None,
        device: str = "cpu",
    ) -> dict[str, xr.Dataset]:
        """Open all groups at and below ``group``; options that are not below are as for :meth:`open_dataset`.

        Parameters
        ----------
        group_filter
            Pattern of the paths of groups; not together with ``group``. Only groups that match are opened, and those
            above them. In ``"/*/sweep_0"``, ``*`` is any text within a name; ``?`` is any character, ``[01]`` one of
            some, and a name ``**`` any number of names. A pattern without ``/`` at the beginning matches the end of
            paths: ``"*/sweep_0"`` is ``"/**/*/sweep_0"``.

        Returns
        -------
        Datasets by the path of their group, ``"/"``, ``"/a"``, ``"/a/b"``, …; with ``group``, by the path relative to
        that, ``"."``, ``"b"``, …

        Raises
        ------
        ArgumentError
            If ``group_filter`` is no pattern, or matches no group: the message names some. Other errors are those of
            :meth:`open_dataset`.
        """
        import gzarr

        from .group_patterns import GroupPattern
        from .xarray_decoding import decoded
        from .xarray_store import GzarrStore, group_path

        group = group_path(group)
        if group_filter is not None and group.strip("/"):
            raise gzarr.ArgumentError(
                f"group={group!r} and group_filter={group_filter!r} exclude each other: begin the pattern with the "
                f"path of the group, {'/' + group.strip('/') + '/'!r}"
            )
        pattern = GroupPattern("/**" if group_filter is None else group_filter)
        store = GzarrStore.open(
            filename_or_obj,
            group=group,
            mode=mode,
            consolidated=consolidated,
            storage_options=storage_options,
            zarr_format=zarr_format,
            use_zarr_fill_value_as_mask=use_zarr_fill_value_as_mask,
            device=device,
        )
        return {
            # As xarray's own engine names them.
            (path.removeprefix("/") or "." if group else path): decoded(
                below,
                mask_and_scale=mask_and_scale,
                decode_times=decode_times,
                concat_characters=concat_characters,
                decode_coords=decode_coords,
                drop_variables=drop_variables,
                use_cftime=use_cftime,
                decode_timedelta=decode_timedelta,
            )
            for path, below in store.read_together(pattern)
        }


# xarray finds this out itself for engines that it knows by name, but not for a class that it is given.
_PARAMETERS = inspect.signature(GzarrBackendEntrypoint.open_dataset).parameters
GzarrBackendEntrypoint.open_dataset_parameters = tuple(_PARAMETERS)[1:]
