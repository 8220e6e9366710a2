"""The arrays of a loader: one, several by name, or a list of such volumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..arrays.array import Array
from ..documents.json import quote
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


@dataclass(frozen=True, slots=True)
class Axes:
    """What images tell of the axes of an array, None where it is not known.

    Attributes
    ----------
    spacing
        Distances of neighbouring elements, in the units of the first image of the loader where they can be converted.
    names
        Names of the axes.
    """

    spacing: tuple[float, ...] | None = None
    names: tuple[str, ...] | None = None


_UNKNOWN: Final = Axes()


def levels_of(
    given: Inputs, spacing: Sequence[float] | None = None
) -> tuple[list[dict[str, ExportedArray]], list[dict[str, Axes]]]:
    """Return the arrays of each volume by name, and what is known of their axes.

    Parameters
    ----------
    given
        What a loader was given.
    spacing
        Distances that elements of images are to have along their last axes, in the units of the first image: the
        coarsest level is taken whose elements are no further apart. None for level 0.

    Raises
    ------
    ArgumentError, NodeNotFoundError, NodeTypeError, MetadataError, UnsupportedError, StoreError, DeviceError
        As for :func:`volumes_of`; also if there is a ``spacing``, and the scales of an image are not known, its units
        cannot be converted, or its axes have another order than those of the first image.
    """
    named = _named(given)
    spacing = None if spacing is None else spacing_of(spacing)
    every = [value for volume in named for value in volume.values() if is_image(value)]
    known: list[dict[str, Axes]] = []
    for volume in named:
        axes: dict[str, Axes] = {}
        images = [value for value in volume.values() if is_image(value)]
        for name, value in volume.items():
            if is_image(value):
                level = 0
                if spacing is not None:
                    _check_axes(every[0], value, name, len(spacing))
                    units = _conversion(every[0], value, len(spacing))
                    pairs = zip(reversed(spacing), reversed(units), strict=False)
                    level = chosen_level(value, [step / unit for step, unit in pairs][::-1], "auto")
                    volume[name] = value.level(level)
                axes[name] = Axes(_spacing_of_level(every[0], value, level), names_of(value))
            elif is_level(value):
                axes[name] = Axes(scale_of(value), names_of(value))
                volume[name] = value.array
            else:
                axes[name] = _axes_in(every[0], images, value) if images else _UNKNOWN
        known.append(axes)
    volumes = volumes_of(named)
    # Some inputs are several arrays.
    return volumes, [{name: k.get(name, _UNKNOWN) for name in volume} for volume, k in zip(volumes, known, strict=True)]


def is_level(value: object) -> bool:
    """Return whether a value is a level of an OME image."""
    return all(hasattr(value, name) for name in ("array", "scale", "translation"))


def scale_of(value: Any) -> tuple[float, ...] | None:
    """Return the distances of the elements of a level, or of level 0 of an image; None if they are not known."""
    return tuple(map(abs, value.scale)) if is_level(value) else _scale_of_level(value, 0)


def names_of(value: Any) -> tuple[str, ...] | None:
    """Return the names of the axes of an image or of a level of one; None if they are not known."""
    names = value.array.dimension_names if is_level(value) else [axis.name for axis in _details(value)]
    return None if not names or None in names else tuple(names)


def misplaced(first: Sequence[str] | None, other: Sequence[str] | None) -> bool:
    """Return whether some axes have the names of others in another order: one is at another place in both.

    Axes of other names are only other axes, such as depth and time.
    """
    pairs = [] if first is None or other is None else list(zip(first, other, strict=False))
    return any(a != b and (any(a == o for _, o in pairs) or any(b == f for f, _ in pairs)) for a, b in pairs)


def _check_axes(first: Any, image: Any, name: str, k: int) -> None:
    """Refuse an image whose last axes have another order than those of the first image."""
    names, own = names_of(first), names_of(image)
    if names is not None and own is not None and misplaced(names[-k:], own[-k:]):
        raise ArgumentError(
            f"the image {name or image.group.name!r} has the axes {', '.join(own)} where the first image has "
            f"{', '.join(names)}, and spacing= is for axes of one order: write it again with its axes in the order of "
            "the first image"
        )


def _scale_of_level(image: Any, level: int) -> tuple[float, ...] | None:
    try:
        return tuple(map(abs, image.grid(level).scale))
    except (MetadataError, UnsupportedError):
        return None


def _spacing_of_level(first: Any, image: Any, level: int) -> tuple[float, ...] | None:
    """Return the distances of the elements of a level in the units of the first image; None if they are not known."""
    scale = _scale_of_level(image, level)
    if scale is None or image is first:
        return scale
    # 500 nanometres are 0.5 micrometres, to the last bit.
    pairs = zip(scale, _conversion(first, image, 0), strict=True)
    return tuple(size if unit == 1 else float(f"{size * unit:.14g}") for size, unit in pairs)


def _conversion(first: Any, image: Any, needed: int) -> list[float]:
    """Return how many units of the first image one unit of an image is, for each axis; axes are counted from the last.

    Parameters
    ----------
    first, image
        The images.
    needed
        Number of the last axes whose units must be known, if they differ. Other units, and axes without a unit, are
        taken for those of the first image.

    Raises
    ------
    ArgumentError
        If one of these cannot be converted.
    """
    axes, of_firsts = _details(image), _details(first)
    found = [1.0] * len(axes)
    for nth, (axis, of_first) in enumerate(zip(reversed(axes), reversed(of_firsts), strict=False), 1):
        if None in (axis.unit, of_first.unit) or axis.unit == of_first.unit:
            continue
        try:
            found[-nth] = image._um(axis) / first._um(of_first)
        except MetadataError:
            if nth <= needed:
                raise ArgumentError(
                    f"axis {axis.name!r} of the image {image.group.name!r} is in the unit {quote(axis.unit)}, which "
                    f"cannot be converted to {quote(of_first.unit)}, the unit of the first image: spacing= is in the "
                    "units of the first image; correct them with image.update_metadata(units=...)"
                ) from None
    return found


def _details(image: Any) -> Sequence[Any]:
    """Return the axes of an image; none if they are not known, as its scale then is not."""
    try:
        details: Sequence[Any] = image.axis_details
    except (MetadataError, UnsupportedError):
        return ()
    return details


def _axes_in(first: Any, images: Sequence[Any], value: Any) -> Axes:
    """Return what is known of the axes of an array that is a level of one of some images."""
    for image in images:
        for level, dataset in enumerate(image.multiscale.datasets):
            path = f"{image.group.path}/{dataset.path}".strip("/")
            if getattr(value, "store", None) is image.group.store and getattr(value, "path", None) == path:
                return Axes(_spacing_of_level(first, image, level), names_of(image))
    return _UNKNOWN


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
