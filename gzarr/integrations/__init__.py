"""gzarr inside other libraries. Each module imports its library, and is imported only when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if not TYPE_CHECKING:
    _MODULES = frozenset({"dask", "jax", "torch", "xarray", "zarr"})

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module 'gzarr.integrations' has no attribute {name!r}")
        from ..plugins import integration

        return integration(name)

    def __dir__():
        return sorted({*globals(), *_MODULES})
