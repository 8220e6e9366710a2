"""The arrays of a loader: one, several by name, or a list of such volumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import ArgumentError
from ..windows.columns import inputs_of, stands_for_arrays
from ..windows.inputs import KINDS, Input, array_of, device_of

if TYPE_CHECKING:
    from ..arrays.exporting import ExportedArray

#: One array, or arrays by name; or a list of such volumes.
Inputs: TypeAlias = "Input | Mapping[str, Input] | Sequence[Input | Mapping[str, Input]]"

#: What a loader takes, in messages.
WANTED = f"a loader takes {KINDS}; a dict of those by name; or a list of either"


def volumes_of(given: Inputs) -> list[dict[str, ExportedArray]]:
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
    named: list[dict[str, Any]] = [
        dict(v) if isinstance(v, Mapping) and not stands_for_arrays(v) else {"": v} for v in listed
    ]
    named = [_with_columns(volume) for volume in named]
    known: dict[int, ExportedArray] = {}
    device = device_of([value for volume in named for value in volume.values()])
    for volume in named:
        for name, value in volume.items():
            if id(value) not in known:
                known[id(value)] = array_of(value, device, WANTED)
            volume[name] = known[id(value)]
    return named


def _with_columns(volume: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs of a volume with arrays for groups of AnnData."""
    result: dict[str, Any] = {}
    for name, value in volume.items():
        for own, found in inputs_of(name, value).items():
            if own in result or (own != name and own in volume):
                raise ArgumentError(f"{own!r} is two arrays: that of which values of {name!r} are missing, and another")
            result[own] = found
    return result
