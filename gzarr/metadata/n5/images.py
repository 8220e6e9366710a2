"""Pyramids in N5, described as images of OME-Zarr 0.4.

Three conventions, by the attributes of a group whose datasets are named ``s0``, ``s1``, …:

===================  ===================================================================================================
BigDataViewer,       ``multiScale``, ``resolution`` and ``offset`` of the group; ``downsamplingFactors`` of each
Paintera             dataset. A group with ``painteraData`` has the pyramid in its group ``data``.
N5 viewer            ``pixelResolution``, with its unit, and ``scales`` of the group, or ``pixelResolution`` and
                     ``downsamplingFactors`` of each dataset
cellmap (COSEM)      ``multiscales`` of the group: for each dataset a ``transform`` with ``axes``, ``scale``,
                     ``translate`` and ``units``
===================  ===================================================================================================

The first two state sizes in N5's order of dimensions, [x, y, z], and mean that an element of a level covers
``downsamplingFactors`` elements of the first: its centre lies ``(factor - 1) / 2`` elements of the first level further
than that of its first element. So levels have the scale ``resolution * factor`` and the translation ``offset +
resolution * (factor - 1) / 2``, as in BigDataViewer, Paintera and n5-universe. The transforms of cellmap are in NumPy's
order, unless their ``order`` is ``"F"``, and are taken as they are. Sizes without a unit get none.

Sources: https://github.com/saalfeldlab/n5-viewer#container-structure, https://github.com/saalfeldlab/paintera,
https://github.com/bigdataviewer/bigdataviewer-core/blob/master/BDV%20N5%20format.md,
https://github.com/janelia-cellmap/cellmap-schemas.
"""

from __future__ import annotations

import math
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from ...documents.json import quote
from ..model import ArrayMetadata
from ..parts import fail

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..model import NodeMetadata

    Numbers = tuple[float, ...]
    Child = Callable[[str], NodeMetadata | None]

#: Axes of arrays of N5 that do not name them, in its order: the third is space, as everywhere in the field.
_AXES: Final = ("x", "y", "z", "c", "t")
_TYPES: Final = {"x": "space", "y": "space", "z": "space", "c": "channel", "t": "time"}
#: Names of UDUNITS-2 for what Java programs and ImageJ call units.
_UNITS: Final = {
    "nm": "nanometer", "nanometers": "nanometer", "um": "micrometer", "µm": "micrometer", "μm": "micrometer",
    "micron": "micrometer", "microns": "micrometer", "micrometers": "micrometer", "mm": "millimeter",
    "cm": "centimeter", "m": "meter", "pm": "picometer", "å": "angstrom", "a": "angstrom", "in": "inch",
    "inches": "inch", "s": "second", "sec": "second", "ms": "millisecond",
}  # fmt: skip
#: What programs write if they know no unit.
_NO_UNITS: Final = frozenset(("", "pixel", "pixels", "px", "voxel", "voxels", "null", "unknown"))
_DATA: Final = "data"
#: Attributes of a group or its datasets, one of which a pyramid has.
_MARKS: Final = ("multiScale", "resolution", "pixelResolution", "scales", "downsamplingFactors")
_MAX_LEVELS: Final = 64


def image_attributes(attributes: Mapping[str, Any], child: Child) -> dict[str, Any] | None:
    """Return the attributes of OME-Zarr 0.4 for a group that is a pyramid; None if it is none, or has its own.

    Parameters
    ----------
    attributes
        Attributes of the group.
    child
        Function from a path below the group to the metadata of the node there; None if there is none.

    Raises
    ------
    MetadataError
        If it is a pyramid whose sizes are malformed.
    """
    if "ome" in attributes or _is_ome(attributes.get("multiscales")):
        return None
    listed = _listed(attributes.get("multiscales"))
    if listed is not None:
        found = _of_cellmap(*listed, child)
        if found is not None:
            return found
    if isinstance(attributes.get("painteraData"), dict):
        below = child(_DATA)
        if below is not None and not isinstance(below, ArrayMetadata):
            inherited = {name: attributes[name] for name in ("resolution", "offset", "unit") if name in attributes}
            found = _of_levels({**inherited, **below.attributes}, lambda path: child(f"{_DATA}/{path}"), f"{_DATA}/")
            if found is not None and attributes["painteraData"].get("type") == "label":
                found["image-label"] = {"version": "0.4"}
            return found
    return _of_levels(attributes, child, "")


def axes_of(attributes: Mapping[str, Any], ndim: int) -> tuple[str, ...] | None:
    """Return the names of an array's axes, in NumPy's order, that cellmap or ImageJ gave it; None if there are none."""
    transform = attributes.get("transform")
    if isinstance(transform, dict) and (names := _names(transform.get("axes"), ndim)) is not None:
        return names[::-1] if _is_reversed(transform) else names
    names = _names(attributes.get("axes"), ndim)
    return None if names is None else names[::-1]


def _names(value: Any, ndim: int) -> tuple[str, ...] | None:
    if not isinstance(value, list) or len(value) != ndim or not all(isinstance(name, str) and name for name in value):
        return None
    return tuple(value) if len(set(value)) == ndim else None


# -- cellmap


def _is_ome(images: Any) -> bool:
    """Return whether ``multiscales`` are those of OME-Zarr, whose images have axes."""
    return isinstance(images, list) and any(isinstance(image, dict) and "axes" in image for image in images)


def _listed(images: Any) -> tuple[Mapping[str, Any], list[Any]] | None:
    """Return the first image of cellmap's ``multiscales``, and its datasets."""
    if not isinstance(images, list) or not images or not isinstance(images[0], dict):
        return None
    datasets = images[0].get("datasets")
    return (images[0], datasets) if isinstance(datasets, list) and datasets else None


def _of_cellmap(image: Mapping[str, Any], datasets: list[Any], child: Child) -> dict[str, Any] | None:
    levels = []
    axes: list[dict[str, Any]] | None = None
    for i, dataset in enumerate(datasets):
        at = f"$.multiscales[0].datasets[{i}]"
        path = dataset.get("path") if isinstance(dataset, dict) else None
        if not isinstance(path, str):
            fail(f"expected an object with a path, got {quote(dataset)}", at)
        transform = dataset.get("transform")
        if transform is None:
            node = child(path)
            transform = None if node is None else node.attributes.get("transform")
        if transform is None:
            return None
        at = f"{at}.transform"
        listed = transform.get("axes") if isinstance(transform, dict) else None
        ndim = len(listed) if isinstance(listed, list) else 0
        names = _names(listed, ndim)
        if not names:
            fail(f"expected an object with the names of axes, got {quote(transform)}", at)
        step = -1 if _is_reversed(transform) else 1
        scale = _numbers(transform.get("scale"), ndim, f"{at}.scale")[::step]
        translation = _numbers(transform.get("translate", [0] * ndim), ndim, f"{at}.translate")[::step]
        units = transform.get("units")
        units = units[::step] if isinstance(units, list) and len(units) == ndim else [None] * ndim
        levels.append(_level(path, scale, translation))
        if axes is None:
            axes = [_axis(name, unit) for name, unit in zip(names[::step], units, strict=True)]
    assert axes is not None
    return _described(image.get("name"), axes, levels)


def _is_reversed(transform: Mapping[str, Any]) -> bool:
    """Return whether a transform is in N5's order, by the member that cellmap has for that."""
    return bool(transform.get("order", transform.get("ordering")) == "F")


# -- levels s0, s1, …


def _of_levels(attributes: Mapping[str, Any], child: Child, prefix: str) -> dict[str, Any] | None:
    levels = []
    for i in count():
        node = child(f"s{i}") if i < _MAX_LEVELS else None
        if not isinstance(node, ArrayMetadata) or node.zarr_format != "n5":
            break
        levels.append(node)
    if not levels or any(level.ndim != levels[0].ndim for level in levels):
        return None
    if not any(mark in holder for mark in _MARKS for holder in (attributes, *(level.attributes for level in levels))):
        return None
    first, ndim = levels[0], levels[0].ndim
    names = first.dimension_names or axes_of(attributes, ndim)
    if names is None:
        if ndim > len(_AXES):
            return None
        names = tuple(reversed(_AXES[:ndim]))
    axes = tuple(map(str, reversed(names)))
    resolution, unit = _resolution(attributes, first.attributes, axes)
    offset = _in_space(attributes, first.attributes, "offset", 0.0, axes)
    scales = attributes.get("scales")
    factors = [_factors(level, first, scales, i, axes) for i, level in enumerate(levels)]
    found = []
    for i, factor in enumerate(factors):
        ratio = tuple(f / f0 for f, f0 in zip(factor, factors[0], strict=True))
        scale = tuple(r * f for r, f in zip(resolution, ratio, strict=True))
        shifts = ((s - r) / 2 for s, r in zip(scale, resolution, strict=True))
        translation = tuple(o + shift for o, shift in zip(offset, shifts, strict=True))
        found.append(_level(f"{prefix}s{i}", scale[::-1], translation[::-1]))
    named = [_axis(name, unit if _kind(name) == "space" else None) for name in reversed(axes)]
    return _described(None, named, found)


def _resolution(group: Mapping[str, Any], first: Mapping[str, Any], axes: tuple[str, ...]) -> tuple[Numbers, Any]:
    """Return the size of an element of the first level in N5's order of dimensions, and its unit."""
    unit = group.get("unit", first.get("unit"))
    for holder, name in ((group, "resolution"), (group, "pixelResolution"), (first, "pixelResolution")):
        value = holder.get(name)
        if value is None:
            continue
        if isinstance(value, dict):
            unit = value.get("unit", unit)
            return _padded(value.get("dimensions"), 1.0, axes, f"$.{name}.dimensions"), unit
        return _padded(value, 1.0, axes, f"$.{name}"), unit
    return _in_space({}, first, "resolution", 1.0, axes), unit


def _in_space(
    group: Mapping[str, Any], first: Mapping[str, Any], name: str, default: float, axes: tuple[str, ...]
) -> Numbers:
    value = group.get(name, first.get(name))
    return (default,) * len(axes) if value is None else _padded(value, default, axes, f"$.{name}")


def _factors(level: ArrayMetadata, first: ArrayMetadata, scales: Any, index: int, axes: tuple[str, ...]) -> Numbers:
    """Return how many elements of the full resolution one of a level covers, in N5's order of dimensions."""
    found = level.attributes.get("downsamplingFactors")
    if found is None and isinstance(scales, list) and index < len(scales):
        found = scales[index]
    if found is not None:
        factors = _padded(found, 1.0, axes, f"$.downsamplingFactors of s{index}")
        if min(factors) <= 0:
            fail(f"expected factors above 0, got {quote(found)}", f"$.downsamplingFactors of s{index}")
        return factors
    # Not stated: whatever comes closest to the lengths.
    pairs = zip(first.shape[::-1], level.shape[::-1], strict=True)
    return tuple(float(max(round(a / b), 1)) if b else 1.0 for a, b in pairs)


def _padded(value: Any, default: float, axes: tuple[str, ...], json_path: str) -> Numbers:
    """Return a number for each axis, in N5's order; there may be numbers for the axes of space only."""
    length = len(value) if isinstance(value, list) else 0
    if not length:
        fail(f"expected an array of numbers, got {quote(value)}", json_path)
    numbers = iter(_numbers(value, length, json_path))
    return tuple(
        next(numbers, default) if length >= len(axes) or _kind(name) in ("space", None) else default for name in axes
    )


# -- OME-Zarr


def _numbers(value: Any, ndim: int, json_path: str) -> Numbers:
    good = isinstance(value, list) and len(value) == ndim
    if not good or not all(isinstance(n, int | float) and not isinstance(n, bool) and _is_finite(n) for n in value):
        fail(f"expected {ndim} numbers, got {quote(value)}", json_path)
    return tuple(map(float, value))


def _is_finite(number: int | float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


def _kind(name: str) -> str | None:
    return _TYPES.get(name.lower())


def _axis(name: str, unit: Any) -> dict[str, Any]:
    axis = {"name": name}
    if (kind := _kind(name)) is not None:
        axis["type"] = kind
    text = unit.strip() if isinstance(unit, str) else ""
    if text.lower() not in _NO_UNITS:
        axis["unit"] = _UNITS.get(text.lower(), text)
    return axis


def _level(path: str, scale: Sequence[float], translation: Sequence[float]) -> dict[str, Any]:
    transforms: list[dict[str, Any]] = [{"type": "scale", "scale": list(scale)}]
    if any(translation):
        transforms.append({"type": "translation", "translation": list(translation)})
    return {"path": path, "coordinateTransformations": transforms}


def _described(name: Any, axes: list[dict[str, Any]], levels: list[dict[str, Any]]) -> dict[str, Any]:
    named = {"name": name} if isinstance(name, str) and name else {}
    return {"multiscales": [{"version": "0.4", **named, "axes": axes, "datasets": levels}]}
