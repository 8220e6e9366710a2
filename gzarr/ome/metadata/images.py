"""Images in documents: axes, levels, transformations, channels, labels."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...errors import MetadataError
from .axes import axes_of
from .model import (
    Channel,
    Dataset,
    Identity,
    ImageLabel,
    LabelColor,
    Multiscale,
    Omero,
    Scale,
    Translation,
    UnknownTransform,
    Window,
)
from .named import named_systems
from .systems import coordinate_systems, further_transforms, transforms_of_level

if TYPE_CHECKING:
    from .model import Axis, CoordinateSystem, SystemLink, Transform, Version
    from .problems import DocumentPart, Level

_COLOR: Final = re.compile(r"[0-9A-Fa-f]{6}")


def multiscales(part: DocumentPart, version: Version) -> tuple[Multiscale, ...]:
    """Return the images of ``multiscales``; one that cannot be read is an error."""
    return tuple(_multiscale(item.object(), version) for item in part.items(1, unique=True))


def _multiscale(part: DocumentPart, version: Version) -> Multiscale:
    systems: tuple[CoordinateSystem, ...] = ()
    further: tuple[SystemLink, ...] = ()
    system: str | None = None
    physical: str | None = None
    if version == "0.6":
        systems = part.needed("coordinateSystems", coordinate_systems)
        datasets, own = transforms_of_level(part, systems)
        axes = None if own is None else own.axes
        system = physical = None if own is None else own.name
        further = part.optional("coordinateTransformations", further_transforms) or ()
        transforms: tuple[Transform, ...] = ()
    else:
        axes = _axes(part, version)
        ndim = None if axes is None else len(axes)
        datasets = part.needed("datasets", partial(_datasets, version=version, ndim=ndim))
        read = partial(_transforms, version=version, ndim=ndim)
        transforms = part.optional("coordinateTransformations", read) or ()
        named = named_systems(part.at("coordinateTransformations"), axes) if transforms and axes else None
        if named is not None:
            systems, further, system, physical, transforms = named
    if version == "0.4" and "version" in part:
        _check_version(part.at("version"), version)
    for name in ("name", "type", "metadata", *(["version"] if version < "0.5" else [])):
        part.expect(name, "strict")
    kind = part.value.get("type")
    return Multiscale(
        axes,
        datasets,
        part.optional("name", lambda name: name.string()),
        transforms,
        kind if isinstance(kind, str) else None,
        part.value.get("metadata"),
        systems,
        further,
        system,
        physical,
    )


def _check_version(part: DocumentPart, version: Version) -> None:
    if part.value != version:
        part.note(f"expected {version!r}, as everything else here is of that version")


# -- axes


def _axes(part: DocumentPart, version: Version) -> tuple[Axis, ...] | None:
    if "axes" not in part:
        # Files written between two versions lack them; the arrays say how many there are.
        if version >= "0.3":
            part.note("lacks 'axes'")
        return None
    return axes_of(part.at("axes"), version)


# -- levels


def _datasets(part: DocumentPart, version: Version, ndim: int | None) -> tuple[Dataset, ...]:
    return tuple(_dataset(item.object(), version, ndim) for item in part.items(1))


def _dataset(part: DocumentPart, version: Version, ndim: int | None) -> Dataset:
    path = part.needed("path", lambda path: path.string())
    if "coordinateTransformations" not in part:
        if version >= "0.4":
            part.note("lacks 'coordinateTransformations'")
        return Dataset(path)
    return Dataset(path, _transforms(part.at("coordinateTransformations"), version, ndim))


def _transforms(part: DocumentPart, version: Version, ndim: int | None) -> tuple[Transform, ...]:
    """Return transformations up to version 0.5: one scale, and perhaps a translation after it.

    What cannot be understood is kept: the elements can be read without it.
    """
    try:
        items = part.items()
    except MetadataError:
        return (UnknownTransform(None, part.value),)
    found = tuple(_transform(item, version, ndim) for item in items)
    kinds = [type(transform) for transform in found]
    if version < "0.4":
        return found
    if kinds.count(Scale) != 1:
        part.note(f"expected exactly one transformation of type 'scale', got {kinds.count(Scale)}")
    if kinds.count(Translation) > 1 or (Translation in kinds and kinds[0] is Translation):
        part.note("expected at most one translation, after the scale", "text")
    return found


def _transform(part: DocumentPart, version: Version, ndim: int | None) -> Transform:
    try:
        return _understood(part.object(), version, ndim)
    except MetadataError:
        kind = part.value.get("type") if isinstance(part.value, dict) else None
        return UnknownTransform(kind if isinstance(kind, str) else None, part.value)


def _understood(part: DocumentPart, version: Version, ndim: int | None) -> Transform:
    kind = part.value.get("type")
    if kind == "identity":
        part.note("expected a transformation of type 'scale' or 'translation', got 'identity'")
        return Identity()
    if kind not in ("scale", "translation"):
        part.note(f"expected a transformation of type 'scale' or 'translation', got {str(kind)[:100]!r}")
        return UnknownTransform(kind if isinstance(kind, str) else None, part.value)
    numbers = part.needed(kind, vector)
    if len(numbers) < 2:
        part.at(kind).note("expected at least 2 numbers")
    if ndim is not None and len(numbers) != ndim:
        # A document of the suite of 0.4 has fewer numbers than axes and is said to be valid.
        level: Level = "should" if version <= "0.4" else "text"
        part.at(kind).note(f"expected {ndim} numbers, one for each axis, got {len(numbers)}", level)
    if kind == "translation":
        return Translation(numbers)
    if any(number <= 0 for number in numbers):
        part.at(kind).note("expected numbers above 0", "text")
    return Scale(numbers)


def vector(part: DocumentPart) -> tuple[float, ...]:
    """Return an array of numbers."""
    return tuple(item.number() for item in part.items())


# -- channels and labels


def omero(part: DocumentPart, version: Version) -> Omero:
    """Return the ``omero`` object; a channel with a wrong member loses only that member."""
    channels = part.object().needed("channels", lambda items: items.items())
    extra = {name: value for name, value in part.value.items() if name != "channels"}
    return Omero(tuple(_channel(item, version) for item in channels), extra)


def _channel(part: DocumentPart, version: Version) -> Channel:
    try:
        part.object()
    except MetadataError:
        return Channel()
    if version <= "0.4":
        for name in ("window", "color"):
            part.expect(name, "schema" if version == "0.4" else "should")
    known = ("label", "color", "window", "active")
    part.optional("family", lambda text: text.string())
    return Channel(
        part.optional("label", lambda text: text.string()),
        part.optional("color", _color),
        part.optional("window", _window),
        part.optional("active", lambda flag: flag.boolean()),
        {name: value for name, value in part.value.items() if name not in known},
    )


def _color(part: DocumentPart) -> str:
    color = part.string()
    if not _COLOR.fullmatch(color):
        part.note("expected six hexadecimal digits", "should")
    return color


def _window(part: DocumentPart) -> Window:
    part.object()
    start, end, low, high = (part.needed(name, lambda n: n.number()) for name in ("start", "end", "min", "max"))
    return Window(start, end, low, high)


def image_label(part: DocumentPart, version: Version) -> ImageLabel:
    """Return the ``image-label`` object."""
    if version == "0.4" and "version" in part.object():
        _check_version(part.at("version"), version)
    for name in ("colors", *(["version"] if version < "0.5" else [])):
        part.object().expect(name, "strict")
    colors = part.optional("colors", lambda items: tuple(items.readable(_label_color, 1, unique=True)))
    if colors and len({color.value for color in colors}) < len(colors):
        part.at("colors").note("expected one colour for each value", "text")
    properties = part.optional("properties", lambda items: tuple(items.readable(_property, 1, unique=True)))
    source = part.optional("source", lambda item: item.object().optional("image", lambda path: path.string()))
    return ImageLabel(colors or (), properties or (), source)


def _label_color(part: DocumentPart) -> LabelColor:
    value = part.object().needed("label-value", _label_value)
    rgba = part.optional("rgba", _rgba)
    return LabelColor(value, rgba)


def _label_value(part: DocumentPart) -> int | float:
    """Return a label: labels of 64 bits are not exact as floats."""
    number = part.number()
    if isinstance(part.value, int):
        return part.value
    return int(number) if number.is_integer() else number


def _rgba(part: DocumentPart) -> tuple[int, int, int, int]:
    items = part.items()
    if len(items) != 4:
        raise part.wrong("4 integers: red, green, blue, alpha")
    red, green, blue, alpha = (item.integer(0, 255) for item in items)
    return red, green, blue, alpha


def _property(part: DocumentPart) -> dict[str, Any]:
    part.object().needed("label-value", lambda number: number.integer())
    return dict(part.value)
