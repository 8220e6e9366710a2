"""Zarr arrays into GPU and host memory.

Names are loaded when they are first used: ``import gzarr`` itself imports nothing else.
"""

from __future__ import annotations

# Type checkers take this name for true; importing typing for it would be most of the time that this import takes.
TYPE_CHECKING = False

__version__ = "0.1.0.dev0"

__all__ = [
    "ArgumentError",
    "Array",
    "ChunkDecodeError",
    "ChunkError",
    "ChunkReadError",
    "ChunkWriteError",
    "DeviceError",
    "Group",
    "GzarrError",
    "LocalStore",
    "MemoryStore",
    "MetadataError",
    "MissingChunkError",
    "NodeNotFoundError",
    "NodeTypeError",
    "OutputError",
    "ReadOnlyError",
    "SelectionError",
    "StoreError",
    "UnsupportedError",
    "ValueSizeError",
    "__version__",
    "consolidate",
    "copy",
    "create_array",
    "create_group",
    "empty",
    "empty_like",
    "full",
    "full_like",
    "load",
    "ones",
    "ones_like",
    "open",
    "open_array",
    "open_group",
    "release_memory",
    "require_array",
    "require_group",
    "save",
    "verify",
    "zeros",
    "zeros_like",
]

if TYPE_CHECKING:
    from .array import Array
    from .consolidation import consolidate
    from .copying import copy
    from .creation import create_array, create_group, require_array, require_group
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
        ValueSizeError,
    )
    from .filled_arrays import empty, empty_like, full, full_like, ones, ones_like, zeros, zeros_like
    from .group import Group
    from .hierarchy import open, open_array, open_group
    from .memory import release_memory
    from .saving import load, save
    from .stores import LocalStore, MemoryStore
    from .verification import verify
else:
    _CREATION = ("create_array", "create_group", "require_array", "require_group")
    _FILLED = ("empty", "empty_like", "full", "full_like", "ones", "ones_like", "zeros", "zeros_like")
    _MODULES = {
        **dict.fromkeys(_CREATION, "creation"),
        **dict.fromkeys(_FILLED, "filled_arrays"),
        "load": "saving",
        "save": "saving",
        "Array": "array",
        "Group": "group",
        "LocalStore": "stores",
        "MemoryStore": "stores",
        "consolidate": "consolidation",
        "copy": "copying",
        "open": "hierarchy",
        "open_array": "hierarchy",
        "open_group": "hierarchy",
        "release_memory": "memory",
        "verify": "verification",
    }
    _SUBMODULES = frozenset({"codecs", "errors", "stores"})

    def __getattr__(name):
        from importlib import import_module

        if name in _SUBMODULES:
            return import_module(f"gzarr.{name}")
        if name not in __all__:
            raise AttributeError(f"module 'gzarr' has no attribute {name!r}")
        value = getattr(import_module(f"gzarr.{_MODULES.get(name, 'errors')}"), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *__all__, *_SUBMODULES})
