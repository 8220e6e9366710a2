"""What a loader takes as an array: arrays of gzarr, and what becomes one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..arrays.array import Array
from ..errors import ArgumentError
from ..hierarchy.create_filled import array as new_array
from ..hierarchy.open import open_array

#: An array of gzarr, a path or a URL of one, an array of zarr-python, an OME image, or an array in memory.
Input: TypeAlias = Any
#: One array, or arrays by name; or a list of such volumes.
Inputs: TypeAlias = "Input | Mapping[str, Input] | Sequence[Input | Mapping[str, Input]]"

_KINDS = (
    "an array of gzarr, the path or URL of one, an array of zarr-python, an OME image (its level 0), or an array in "
    "memory (of NumPy, or of xarray with loaded elements)"
)


def volumes_of(given: Inputs) -> list[dict[str, Array]]:
    """Return the arrays of each volume by name; a single one has the name ``""``.

    Arrays that are not open are opened on the device of those that are, and those in memory are copied.

    Raises
    ------
    ArgumentError
        If something is no array.
    NodeNotFoundError, NodeTypeError, MetadataError, StoreError, DeviceError
        If one cannot be opened.
    """
    listed = given if isinstance(given, (list, tuple)) else [given]
    named: list[dict[str, Any]] = [dict(v) if isinstance(v, Mapping) else {"": v} for v in listed]
    known: dict[int, Array] = {}
    opened = [value for volume in named for value in volume.values() if isinstance(value, Array)]
    device = opened[0].device if opened else "auto"
    for volume in named:
        for name, value in volume.items():
            if id(value) not in known:
                known[id(value)] = array_of(value, device)
            volume[name] = known[id(value)]
    return named


def array_of(value: Any, device: str) -> Array:
    """Return an array for what a loader takes as one, on a device if it is not open yet."""
    if isinstance(value, Array):
        return value
    if isinstance(value, (str, os.PathLike)):
        return open_array(os.fspath(value), device=device)
    if hasattr(value, "levels") and hasattr(value, "multiscale"):
        level: Array = value.levels[0].array
        return level
    package = type(value).__module__.partition(".")[0]
    if package == "zarr" and hasattr(value, "store") and hasattr(value, "path") and hasattr(value, "shape"):
        return open_array(value.store, path=value.path, device=device)
    if package == "xarray" and hasattr(value, "variable"):
        value = value.variable._data
    if isinstance(value, np.ndarray):
        # There is nothing to decode.
        return new_array(value, device=device, codecs=None)
    raise ArgumentError(f"a loader takes {_KINDS}; a dict of those by name; or a list of either; not {value!r:.100}")
