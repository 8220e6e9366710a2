"""The arrays of a loader: one, several by name, or a list of such volumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ..poses.levels import chosen_level, is_image
from ..windows.inputs import KINDS, Input, array_of, device_of

if TYPE_CHECKING:
    from ..arrays.exporting import ExportedArray

#: One array, or arrays by name; or a list of such volumes.
Inputs: TypeAlias = "Input | Mapping[str, Input] | Sequence[Input | Mapping[str, Input]]"

#: What a loader takes, in messages.
WANTED = f"a loader takes {KINDS}; a dict of those by name; or a list of either"


#: Distances of the elements of arrays by name, None where they are not known.
Spacings: TypeAlias = "dict[str, tuple[float, ...] | None]"


def levels_of(
    given: Inputs, spacing: Sequence[float] | None = None
) -> tuple[list[dict[str, ExportedArray]], list[Spacings]]:
    """Return the arrays of each volume by name, and the distances of their elements.

    Parameters
    ----------
    given
        What a loader was given.
    spacing
        Distances that elements of images are to have along their last axes, in their units: the coarsest level is
        taken whose elements are no further apart. None for level 0.

    Raises
    ------
    ArgumentError, NodeNotFoundError, NodeTypeError, MetadataError, UnsupportedError, StoreError, DeviceError
        As for :func:`volumes_of`; also if the scales of an image are not known.
    """
    listed = given if isinstance(given, (list, tuple)) else [given]
    named: list[dict[str, Any]] = [dict(v) if isinstance(v, Mapping) else {"": v} for v in listed]
    spacings: list[Spacings] = []
    for volume in named:
        known: Spacings = dict.fromkeys(volume)
        if spacing is not None:
            for name, value in volume.items():
                if is_image(value):
                    level = chosen_level(value, spacing, "auto")
                    known[name] = tuple(map(abs, value.grid(level).scale))
                    volume[name] = value.levels[level].array
        spacings.append(known)
    return volumes_of(named), spacings


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
    named: list[dict[str, Any]] = [dict(v) if isinstance(v, Mapping) else {"": v} for v in listed]
    known: dict[int, ExportedArray] = {}
    device = device_of([value for volume in named for value in volume.values()])
    for volume in named:
        for name, value in volume.items():
            if id(value) not in known:
                known[id(value)] = array_of(value, device, WANTED)
            volume[name] = known[id(value)]
    return named
