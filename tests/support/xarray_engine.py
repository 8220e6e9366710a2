"""A plugin of pytest that puts gzarr's engine in the place of xarray's "zarr", for xarray's own tests."""

import xarray.backends.zarr
from xarray.backends import common, plugins

from gzarr.integrations.xarray import GzarrBackendEntrypoint

_ORIGINAL = xarray.backends.zarr.ZarrBackendEntrypoint


class InItsPlace(GzarrBackendEntrypoint):
    """The engine, which opens what the other one would without being asked for."""

    guess_can_open = _ORIGINAL.guess_can_open


common.BACKEND_ENTRYPOINTS["zarr"] = ("zarr", InItsPlace)
xarray.backends.zarr.ZarrBackendEntrypoint = InItsPlace
plugins.list_engines.cache_clear()
