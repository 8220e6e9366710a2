"""The arrays of a loader: one, several by name, or a list of such volumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ..arrays.array import Array
from ..errors import ArgumentError, MetadataError, UnsupportedError
from ..poses.levels import chosen_level, is_image
from ..poses.numbers_given import spacing_of
from ..stores.memory import MemoryStore
from ..windows.columns import inputs_of, stands_for_arrays
from ..windows.inputs import KINDS, Input, array_of, device_of, opened

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
        As for :func:`volumes_of`; also if the scales of an image are not known, and there is a ``spacing``.
    """
    named = _named(given)
    spacing = None if spacing is None else spacing_of(spacing)
    spacings: list[Spacings] = []
    for volume in named:
        known: Spacings = {}
        images = [value for value in volume.values() if is_image(value)]
        for name, value in volume.items():
            if spacing is not None and is_image(value):
                level = chosen_level(value, spacing, "auto")
                known[name] = tuple(map(abs, value.grid(level).scale))
                volume[name] = value.level(level)
            elif is_image(value) or is_level(value):
                known[name] = scale_of(value)
                volume[name] = value.array if is_level(value) else value
            else:
                known[name] = _scale_in(images, value)
        spacings.append(known)
    volumes = volumes_of(named)
    # Some inputs are several arrays.
    return volumes, [{name: k.get(name) for name in volume} for volume, k in zip(volumes, spacings, strict=True)]


def is_level(value: object) -> bool:
    """Return whether a value is a level of an OME image."""
    return all(hasattr(value, name) for name in ("array", "scale", "translation"))


def scale_of(value: Any) -> tuple[float, ...] | None:
    """Return the distances of the elements of a level, or of level 0 of an image; None if they are not known."""
    return tuple(map(abs, value.scale)) if is_level(value) else _scale_of_level(value, 0)


def _scale_of_level(image: Any, level: int) -> tuple[float, ...] | None:
    try:
        return tuple(map(abs, image.grid(level).scale))
    except (MetadataError, UnsupportedError):
        return None


def _scale_in(images: Sequence[Any], value: Any) -> tuple[float, ...] | None:
    """Return the distances of the elements of an array that is a level of one of some images; None if it is not."""
    for image in images:
        for level, dataset in enumerate(image.multiscale.datasets):
            path = f"{image.group.path}/{dataset.path}".strip("/")
            if getattr(value, "store", None) is image.group.store and getattr(value, "path", None) == path:
                return _scale_of_level(image, level)
    return None


def volumes_of(given: Inputs) -> list[dict[str, ExportedArray]]:
    """Return the arrays of each volume by name; a single one has the name ``""``.

    Arrays that are not open are opened on the device of those that are, and those in memory are copied. All volumes
    have the order of the first.

    Raises
    ------
    ArgumentError
        If something is no array.
    NodeNotFoundError, NodeTypeError, MetadataError, StoreError, DeviceError
        If one cannot be opened.
    """
    named = _named(given)
    values = [value for volume in named for value in volume.values()]
    device = device_of(values)
    nodes = {key: opened(value, device) for key, value in {id(value): value for value in values}.items()}
    named = [_with_columns({name: nodes[id(value)] for name, value in volume.items()}) for volume in named]
    arrays: dict[int, ExportedArray] = {}
    for volume in named:
        for name, value in volume.items():
            if id(value) not in arrays:
                arrays[id(value)] = array_of(value, device, WANTED)
            volume[name] = arrays[id(value)]
    # What is read for a sample is in one order.
    order = {name: i for i, name in enumerate(named[0])} if named else {}
    return [dict(sorted(volume.items(), key=lambda item: order.get(item[0], len(order)))) for volume in named]


def _named(given: Inputs) -> list[dict[str, Any]]:
    listed = given if isinstance(given, (list, tuple)) else [given]
    return [dict(v) if isinstance(v, Mapping) and not stands_for_arrays(v) else {"": v} for v in listed]


def _with_columns(volume: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs of a volume with arrays for groups of AnnData."""
    result: dict[str, Any] = {}
    for name, value in volume.items():
        for own, found in inputs_of(name, value).items():
            if own in result or (own != name and own in volume):
                raise ArgumentError(f"{own!r} is two arrays: that of which values of {name!r} are missing, and another")
            result[own] = found
    return result


def light_arrays(arrays: Mapping[str, ExportedArray], most_bytes: int) -> set[str]:
    """Return the names of arrays that cost little, however often their chunks are needed.

    Nothing of those in memory is decoded, if nothing is encoded. Others are the smallest ones, as long as they have at
    most ``most_bytes`` together.
    """
    result, total = set(), 0
    for name, array in sorted(arrays.items(), key=lambda item: item[1].nbytes):
        in_memory = isinstance(array, Array) and isinstance(array.store, MemoryStore)
        if not (in_memory and not (array.filters or array.compressors or array.shards)):
            total += array.nbytes
            if total > most_bytes:
                continue
        result.add(name)
    return result
