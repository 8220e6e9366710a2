"""The caller's description of an image: axes, units, spacing, channels."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from ...choices import choice
from ...documents.json import quote
from ...errors import ArgumentError
from ...items import has_items
from ...metadata.to_documents import plain
from ...nodes.location import advising
from ...real_numbers import real
from ..coloring import apart, on_host
from ..metadata.documents import WRITTEN, to_attributes
from ..metadata.model import Axis, Channel, LabelColor, OmeMetadata, Omero, Window
from ..metadata.parse import parse
from ..metadata.units import UNITS, meters, unit_named
from ..nodes import warn

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ...arrays.array import Array

Written: TypeAlias = Literal["0.4", "0.5"]

_TYPES: Final = {"t": "time", "c": "channel", "z": "space", "y": "space", "x": "space"}
#: Colours of channels for which none is given: distinct on black, for most eyes.
_COLORS: Final = ("FFFFFF", "00FF00", "FF00FF", "00FFFF", "FFFF00", "FF0000", "0000FF")
_HEX: Final = re.compile("[0-9A-Fa-f]{6}")
#: Bytes of a level that are looked at, for the values that a channel has.
_LOOK_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class Description:
    """The axes of an image, and where its elements are.

    Attributes
    ----------
    axes
        Axes.
    spacing, origin
        Physical distance between elements, and coordinates of the first one, along each axis.
    """

    axes: tuple[Axis, ...]
    spacing: tuple[float, ...]
    origin: tuple[float, ...]

    @property
    def names(self) -> list[str]:
        """Names of the axes."""
        return [axis.name for axis in self.axes]

    @property
    def space(self) -> list[bool]:
        """Whether each axis is one of space."""
        return [axis.type == "space" for axis in self.axes]

    @property
    def comparable_spacing(self) -> list[float]:
        """Spacing in one unit for all axes of space, if the sizes of all of their units are known; or else as it is.

        It is not negative, also along axes whose coordinates fall.
        """
        sizes = [meters(axis.unit) if is_space else 0.0 for axis, is_space in zip(self.axes, self.space, strict=True)]
        known = [size for size in sizes if size]
        spacing = list(map(abs, self.spacing))
        if not known or None in sizes:
            return spacing
        # The same units must not round the spacing.
        return [own * (size / known[0] if size else 1.0) for own, size in zip(spacing, sizes, strict=True)]


def check_version(version: Any) -> Literal[2, 3]:
    """Return the Zarr format of images of a version.

    Raises
    ------
    ArgumentError
        If images of that version are not written.
    """
    choice("version", version, WRITTEN)
    return 2 if version == "0.4" else 3


def advising_versions() -> AbstractContextManager[None]:
    """Have errors of new nodes advise a version of images in place of a Zarr format."""
    return advising(formats={2: "pass version='0.4'", 3: "pass version='0.5'"})


def describe(
    ndim: int, axes: Any, scale: Any, translation: Any, units: Any, known: Description | None = None
) -> Description:
    """Return the description of an image from the arguments of :func:`gzarr.ome.create`.

    ``known`` is where elements are along axes for which the arguments do not say it, as a document has it: its scales
    may be negative. Without it, scales are 1 and translations 0.

    Raises
    ------
    ArgumentError
        If one of them is wrong.
    """
    found = axes_of(axes)
    names = [axis.name for axis in found]
    if len(names) != ndim or len(set(names)) < ndim:
        raise ArgumentError(f"axes: {ndim} different ones are needed, one for each dimension, not {quote(names)}")
    if isinstance(units, str):
        units = {axis.name: units for axis in found if axis.type == "space"}
    nothing = [None] * ndim
    texts = _for_each(units, names, nothing, "units", lambda unit: unit is None or isinstance(unit, str), "texts")
    with_units = tuple(
        Axis(axis.name, axis.type, written_unit(axis, axis.unit if unit is None else unit))
        for axis, unit in zip(found, texts, strict=True)
    )
    steps, starts = ([1.0] * ndim, [0.0] * ndim) if known is None else (known.spacing, known.origin)
    spacing = _for_each(scale, names, steps, "scale", lambda n: _is_number(n) and n > 0, "positive numbers")
    origin = _for_each(translation, names, starts, "translation", _is_number, "numbers")
    return Description(with_units, tuple(map(float, spacing)), tuple(map(float, origin)))


def written_unit(axis: Axis, unit: str | None) -> str | None:
    """Return the unit of an axis as it is written: by its name in the specification, if it has one.

    Another unit of space or time is written as it is, with a warning.
    """
    known = UNITS.get(axis.type or "")
    if unit is None or axis.type is None or known is None:
        return unit
    name = unit_named(unit, axis.type)
    if name is None:
        warn(
            f"axis {axis.name!r:.100}: {quote(unit)} is no unit of {axis.type} that OME-Zarr recommends, such as "
            f"{next(iter(known))!r}, and is written as it is; other programs may not know it"
        )
        return unit
    return name


def axes_of(axes: Any) -> list[Axis]:
    """Return axes that are given by a text or a list of names or axes.

    Raises
    ------
    ArgumentError
        If they are something else.
    """
    if not isinstance(axes, Sequence) or not axes or not all(isinstance(a, str | Axis) for a in axes):
        raise ArgumentError(f"axes must be a text such as 'tczyx', or a list of names or Axis, not {quote(axes)}")
    return [axis if isinstance(axis, Axis) else Axis(axis, _TYPES.get(axis)) for axis in axes]


def _is_number(value: Any) -> bool:
    number = None if isinstance(value, Decimal) else real(value)
    return number is not None and math.isfinite(number)


def _for_each(
    given: Any, names: list[str], defaults: Sequence[Any], what: str, is_good: Any, expected: str
) -> list[Any]:
    """Return one value for each axis, from a sequence or a mapping of some names; others have their default."""
    if given is None:
        return list(defaults)
    if isinstance(given, Mapping):
        for name in given:
            if name not in names:
                raise ArgumentError(f"{what}: there is no axis {quote(name)}; the axes are {', '.join(names)}")
        values = [given.get(name, default) for name, default in zip(names, defaults, strict=True)]
    elif not has_items(given):
        raise ArgumentError(f"{what} must have a value for each axis, or map names of axes to them: {quote(given)}")
    else:
        values = list(given)
    checked = given.values() if isinstance(given, Mapping) else values
    if len(values) != len(names) or not all(map(is_good, checked)):
        raise ArgumentError(f"{what} must be {len(names)} {expected}, one for each axis, not {quote(given)}")
    return values


def omero_of(channels: Any, description: Description, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Omero | None:
    """Return how channels are shown; those that are given as names get a colour and all values that they can have."""
    if channels is None:
        return None
    if not has_items(channels):
        raise ArgumentError(f"channels must be a list of names or Channel, not {quote(channels)}")
    given = list(channels)
    for channel in given:
        color = channel.color if isinstance(channel, Channel) else None
        if color is not None and not _HEX.fullmatch(str(color)):
            raise ArgumentError(f"colours of channels are six hexadecimal digits, such as '00FF00', not {quote(color)}")
    count = next((n for n, axis in zip(shape, description.axes, strict=True) if axis.type == "channel"), 1)
    if len(given) != count or not all(isinstance(c, str | Channel) for c in given):
        raise ArgumentError(f"channels must be {count} names or Channel, one for each channel, not {quote(given)}")
    low, high = (0.0, 1.0)
    if dtype.kind in "iu":
        bits = 8 * dtype.itemsize - (dtype.kind == "i")
        low, high = float(-(2**bits) if dtype.kind == "i" else 0), float(2**bits - 1)
    window = Window(low, high, low, high)
    return Omero(
        tuple(
            c if isinstance(c, Channel) else Channel(c, _COLORS[i % len(_COLORS)], window, True)
            for i, c in enumerate(given)
        )
    )


def shown(omero: Omero | None, given: Any, description: Description, level: Array) -> Omero | None:
    """Return channels that show the values which are there, for those that were given as names.

    Parameters
    ----------
    omero
        The channels.
    given
        The argument ``channels``.
    description
        The axes.
    level
        The smallest level. Of times and the like, the middle one is looked at; of large levels, the middle planes.
        Elements that are not finite are left out.
    """
    if omero is None or not level.size:
        return omero
    middle: list[int | slice] = [n // 2 for n in level.shape]
    for d in reversed([d for d, is_space in enumerate(description.space) if is_space]):
        whole = [*middle[:d], slice(None), *middle[d + 1 :]]
        nbytes = level.dtype.itemsize * math.prod(
            n for n, s in zip(level.shape, whole, strict=True) if s == slice(None)
        )
        if nbytes <= _LOOK_BYTES:
            middle = whole
    names = [axis.type for axis in description.axes]
    channels = []
    for i, (channel, own) in enumerate(zip(omero.channels, given, strict=True)):
        if not isinstance(own, Channel) and channel.window is not None:
            if "channel" in names:
                middle[names.index("channel")] = i
            found = on_host(level.read(tuple(middle)))
            # One element without data must not decide how all others are shown.
            found = found[np.isfinite(found)]
            if found.size:
                low, high = apart(float(found.min()), float(found.max()), found.dtype)
                least, most = channel.window.min, channel.window.max
                if found.dtype.kind == "f":
                    # Floats have no range of their own.
                    least, most = low, high
                window = Window(low, high, min(least, low), max(most, high))
                channel = replace(channel, window=window)
        channels.append(channel)
    return replace(omero, channels=tuple(channels))


def label_value(value: Any) -> int:
    """Return a label.

    Raises
    ------
    ArgumentError
        If it is no integer.
    """
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentError(f"labels are integers, not {quote(value)}") from None


def label_colors(given: Any) -> tuple[LabelColor, ...]:
    """Return the colours of labels.

    Raises
    ------
    ArgumentError
        If a label is no integer, or a colour is not four integers from 0 to 255.
    """
    if given is not None and not isinstance(given, Mapping):
        raise ArgumentError(f"colors must map labels to colours, not {quote(given)}")
    found = []
    for value, color in (given or {}).items():
        try:
            red, green, blue, alpha = map(operator.index, color)
        except (TypeError, ValueError):
            raise ArgumentError(
                "colors must map labels to four integers from 0 to 255 (red, green, blue, alpha), not "
                f"{quote(value)} to {quote(color)}"
            ) from None
        found.append(LabelColor(label_value(value), (red, green, blue, alpha)))
    return tuple(found)


def checked_attributes(metadata: OmeMetadata, version: Written) -> dict[str, Any]:
    """Return the attributes of a group.

    Raises
    ------
    ArgumentError
        If they are no JSON, or would break a rule of the specification.
    """
    # Plain before they are checked: NumPy's numbers are numbers, and what is no JSON is said to be none.
    attributes = plain(to_attributes(metadata, version))
    found = parse(attributes, version=version)
    for error in found.errors.values():
        raise ArgumentError(f"OME-Zarr {version} does not allow that: {error}")
    for problem in found.problems:
        if problem.is_rule:
            raise ArgumentError(f"OME-Zarr {version} does not allow that: {problem}")
    return attributes
