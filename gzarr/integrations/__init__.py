"""gzarr inside other libraries. Each module imports its library, and is imported only when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import dask as dask
    from . import jax as jax
    from . import torch as torch
    from . import xarray as xarray
    from . import zarr as zarr
else:
    _MODULES = frozenset({"dask", "jax", "torch", "xarray", "zarr"})

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module 'gzarr.integrations' has no attribute {name!r}")
        from ..plugins import integration

        return integration(name)

    def __dir__():
        return sorted({*globals(), *_MODULES})
