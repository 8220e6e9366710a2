"""Read and write Zarr arrays in GPU and host memory.

Names are loaded on first use: ``import gzarr`` itself imports nothing else.
"""

from __future__ import annotations

# Type checkers treat this name as true. Importing typing for it would take most of the time of this import.
TYPE_CHECKING = False

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "Array",
    "ArrayView",
    "CachedStore",
    "ChunkDecodeError",
    "ChunkError",
    "ChunkReadError",
    "ChunkWriteError",
    "DeviceError",
    "FsspecStore",
    "Group",
    "GzarrError",
    "HttpStore",
    "Loader",
    "LocalStore",
    "MemoryStore",
    "MetadataError",
    "MissingChunkError",
    "NodeNotFoundError",
    "NodeTypeError",
    "ObjectStore",
    "OutputError",
    "ReadOnlyError",
    "SelectionError",
    "StoreError",
    "UnsupportedError",
    "ValueReplacedError",
    "ValueSizeError",
    "ZarrStore",
    "ZipStore",
    "__version__",
    "array",
    "consolidate_metadata",
    "copy",
    "create",
    "create_array",
    "create_group",
    "empty",
    "empty_like",
    "explain",
    "from_array",
    "from_dask",
    "full",
    "full_like",
    "group",
    "load",
    "map_blocks",
    "ones",
    "ones_like",
    "open",
    "open_array",
    "open_consolidated",
    "open_group",
    "open_store",
    "read_affine",
    "release_memory",
    "require_array",
    "require_group",
    "save",
    "save_array",
    "save_group",
    "show_progress",
    "stats",
    "store",
    "to_dask",
    "verify",
    "zeros",
    "zeros_like",
]

if TYPE_CHECKING:
    # These are no names in __all__, which would load them.
    from . import blocks as blocks
    from . import codecs as codecs
    from . import errors as errors
    from . import integrations as integrations
    from . import loader as loader
    from . import ome as ome
    from . import sparse as sparse
    from . import stores as stores
    from .arrays.array import Array
    from .arrays.view import ArrayView
    from .blocks import map_blocks
    from .engines.memory import release_memory
    from .errors import (
        ArgumentError,
        ChunkDecodeError,
        ChunkError,
        ChunkReadError,
        ChunkWriteError,
        DeviceError,
        GzarrError,
        MetadataError,
        MissingChunkError,
        NodeNotFoundError,
        NodeTypeError,
        OutputError,
        ReadOnlyError,
        SelectionError,
        StoreError,
        UnsupportedError,
        ValueReplacedError,
        ValueSizeError,
    )
    from .hierarchy.create import create_array, create_group
    from .hierarchy.create_filled import array, empty, empty_like, full, full_like, ones, ones_like, zeros, zeros_like
    from .hierarchy.group import Group
    from .hierarchy.open import group, open, open_array, open_consolidated, open_group, require_array, require_group
    from .integrations.dask import from_dask, store, to_dask
    from .loader import Loader
    from .poses import read_affine
    from .progress import show_progress
    from .stores import (
        CachedStore,
        FsspecStore,
        HttpStore,
        LocalStore,
        MemoryStore,
        ObjectStore,
        ZarrStore,
        ZipStore,
        open_store,
        stats,
    )
    from .tools.consolidate import consolidate_metadata
    from .tools.copy import copy
    from .tools.explain import explain
    from .tools.save import load, save
    from .tools.verify import verify
    from .tools.zarr_names import create, from_array, save_array, save_group
else:
    _NAMES = {
        "arrays.array": ("Array",),
        "arrays.view": ("ArrayView",),
        "blocks": ("map_blocks",),
        "engines.memory": ("release_memory",),
        "hierarchy.create": ("create_array", "create_group"),
        "hierarchy.create_filled": (
            "array",
            "empty",
            "empty_like",
            "full",
            "full_like",
            "ones",
            "ones_like",
            "zeros",
            "zeros_like",
        ),
        "hierarchy.group": ("Group",),
        "hierarchy.open": (
            "group",
            "open",
            "open_array",
            "open_consolidated",
            "open_group",
            "require_array",
            "require_group",
        ),
        "integrations.dask": ("from_dask", "store", "to_dask"),
        "loader": ("Loader",),
        "poses": ("read_affine",),
        "progress": ("show_progress",),
        "stores": (
            "CachedStore",
            "FsspecStore",
            "HttpStore",
            "LocalStore",
            "MemoryStore",
            "ObjectStore",
            "ZarrStore",
            "ZipStore",
            "open_store",
            "stats",
        ),
        "tools.consolidate": ("consolidate_metadata",),
        "tools.copy": ("copy",),
        "tools.explain": ("explain",),
        "tools.save": ("load", "save"),
        "tools.verify": ("verify",),
        "tools.zarr_names": ("create", "from_array", "save_array", "save_group"),
    }
    _MODULES = {name: module for module, names in _NAMES.items() for name in names}
    _SUBMODULES = frozenset({"blocks", "codecs", "errors", "integrations", "loader", "ome", "sparse", "stores"})

    def _before_fork():
        import sys

        # A fork may begin while another thread uses the first name.
        if "gzarr.importing" in sys.modules:
            from .importing import wait_for_others

            wait_for_others()

    # It is loaded whenever Python starts.
    import os as _os

    if hasattr(_os, "register_at_fork"):
        _os.register_at_fork(before=_before_fork)

    def __getattr__(name):
        from importlib import import_module

        # Before anything else, so that forks know of all that follows.
        import_module("gzarr.importing")
        if name in _SUBMODULES:
            return import_module(f"gzarr.{name}")
        if name not in __all__:
            raise AttributeError(f"module 'gzarr' has no attribute {name!r}")
        module = _MODULES.get(name, "errors")
        if module == "integrations.dask":
            from .plugins import function_of

            # Not kept: without dask, it is one that says what to install.
            return function_of("dask", name)
        value = getattr(import_module(f"gzarr.{module}"), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *__all__, *_SUBMODULES})
