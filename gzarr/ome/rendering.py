"""Pictures of images: which level, channels and planes are read, and how their elements become colours.

What decides, in this order: the arguments, the object ``omero`` of the document (colours, windows, which channels are
active or inverted, the default time), and these rules:

- Channels without a window are shown between two percentiles of the same planes of the smallest level; three channels
  of bytes without any ``omero`` are red, green and blue as they are.
- Channels without colours take them from :func:`gzarr.ome.coloring.default_colors`.
- Of many channels, the first :data:`MOST_CHANNELS` are shown.
- Labels have the colours of ``image-label``, or else of a fixed palette.

Planes are read in slabs of whole chunks along z, so that memory stays bounded by one of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..documents.json import quote
from ..errors import ArgumentError, UnsupportedError
from ..integers import as_integer
from .coloring import composed, default_colors, digits_of, on_host, painted, rgb_of, smaller, window_of
from .levels import at_level, check_slice, indexes_in
from .nodes import place

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ..arrays.array import Array
    from .metadata.model import Channel

#: Channels that are shown if neither the caller nor the document chooses some.
MOST_CHANNELS: Final = 6
#: Bytes of elements that are read at a time, unless one layer of chunks has more.
_SLAB_BYTES: Final = 64 << 20
#: Most elements of the smallest level that are looked at for a window; of larger ones, the picture's elements are.
_MOST_LOOKED_AT: Final = 16 << 20
_PROJECTIONS: Final = ("max", "mean", "middle")
_KINDS: Final = "biuf"


@dataclass(frozen=True, kw_only=True)
class Look:
    """What of an image is shown, with the meanings of :meth:`gzarr.ome.Image.render`."""

    c: Any = None
    z: Any = "max"
    level: Any = "auto"
    size: int = 512
    # Whether elements are left out of a level that is named, too, as of one that is chosen here.
    is_thinned: bool = False
    others: tuple[tuple[str, Any], ...] = ()


class PlannedPicture:
    """A picture of an image that is planned, and not read yet.

    Parameters
    ----------
    image
        The image.
    look
        What of it is shown.

    Attributes
    ----------
    level
        Index of the level that is read.
    channels
        Numbers of the channels; ``[None]`` without an axis of channels.
    is_label
        Whether it is a picture of labels.
    step
        Distance of the elements along y and x that are taken.

    Raises
    ------
    ArgumentError, SelectionError
        If an argument is wrong, or the image has no two axes of space.
    UnsupportedError
        If the elements are no numbers.
    """

    def __init__(self, image: Any, look: Look) -> None:
        self.image = image
        self.is_label: bool = image.image_label is not None
        self._size: int = size_of(look.size)
        self._y, self._x, self._z = _space(image)
        names = image.axes
        types = [axis.type for axis in image.axis_details]
        self._c = types.index("channel") if "channel" in types else None
        given = dict(look.others)
        if look.c is not None:
            if self._c is None:
                raise ArgumentError(f"{place(image.group)} has no axis of channels; leave c= out")
            given[names[self._c]] = look.c
        named = image._named(given)
        self._named = {name: self._checked(name, part) for name, part in named.items()}
        self._depth = self._checked_depth(look.z)
        self.step: int = 1
        self._auto: bool = isinstance(look.level, str) and look.level == "auto"
        self.level: int = self._chosen(look.level)
        self.channels: list[Any] = self._shown_channels()
        array = image.level(self.level)
        if array.dtype.kind not in _KINDS:
            raise UnsupportedError(f"{place(image.group)}: elements of type {array.dtype} cannot be shown")
        if self.is_label and array.dtype.kind == "f":
            raise UnsupportedError(f"{place(image.group)}: labels are integers, not {array.dtype}")
        self._is_thinned = look.is_thinned
        if self._auto or self._is_thinned:
            longest = max(self._length(self.level, d) for d in (self._y, self._x))
            self.step = max(1, -(-longest // (2 * self._size)))

    # -- arguments

    def _checked(self, name: str, part: Any) -> Any:
        d = self.image.axes.index(name)
        if d == self._c:
            return part
        if d == self._z:
            raise ArgumentError(f"the axis {name!r} is chosen by z=")
        if d in (self._y, self._x):
            if not isinstance(part, slice) or part.step not in (None, 1):
                raise ArgumentError(f"{name!r} is shown, so it takes a slice without a step, not {quote(part)}")
            return part
        return _integer(name, part)

    def _checked_depth(self, z: Any) -> Any:
        if isinstance(z, str):
            if z not in _PROJECTIONS or (z == "mean" and self.is_label):
                allowed = [one for one in _PROJECTIONS if one != "mean" or not self.is_label]
                raise ArgumentError(f"z must be {', '.join(map(repr, allowed))}, an integer or a slice, not {quote(z)}")
            return z
        if self._z is None:
            raise ArgumentError(f"{place(self.image.group)} has two axes of space only; leave z= out")
        if isinstance(z, slice):
            check_slice(z)
            if z.step not in (None, 1):
                raise ArgumentError(f"z= takes a slice without a step, not {quote(z)}")
            return z
        return _integer("z", z)

    def _shown_channels(self) -> list[Any]:
        if self._c is None:
            return [None]
        count = self.image._read_shape(self.level)[self._c]
        if not count:
            raise ArgumentError(f"{place(self.image.group)} has no channels; a picture needs at least one channel")
        known: Sequence[Channel] = self.image.channels
        wanted = self._named.get(self.image.axes[self._c])
        if wanted is None:
            found = list(range(count))
            said = {i: known[i].active for i in found if i < len(known) and known[i].active is not None}
            # One of which the document says nothing is active, too, as in other viewers.
            room = max(0, MOST_CHANNELS - list(said.values()).count(True))
            others = [i for i in found if i not in said][:room]
            active = [i for i in found if said.get(i) or i in others]
            # A document in which nothing is active shows nothing, which nobody wants to see.
            found = active or found[:MOST_CHANNELS]
            return found[:1] if self.is_label else found
        if isinstance(wanted, slice):
            wanted = list(range(*wanted.indices(count)))
        numbers = [_integer("c", one) for one in (indexes_in(wanted, count) if isinstance(wanted, list) else [wanted])]
        for number in numbers:
            if not -count <= number < count:
                raise ArgumentError(f"there is no channel {number}; {place(self.image.group)} has {count}")
        if not numbers or (self.is_label and len(numbers) > 1):
            raise ArgumentError(f"c= needs {'one channel' if self.is_label else 'at least one channel'}")
        return [number % count for number in numbers]

    # -- levels

    def _chosen(self, level: Any) -> int:
        if not self._auto:
            found: int = self.image._index(level)
            return found
        # From the coarsest on, since each level costs a request.
        for index in range(len(self.image.multiscale.datasets) - 1, 0, -1):
            if max(self._length(index, d) for d in (self._y, self._x)) >= self._size:
                return index
        return 0

    def _box(self, level: int, d: int) -> slice:
        """Return what of an axis of the picture is shown, in elements of a level."""
        name, length = self.image.axes[d], self.image._read_shape(level)[d]
        part = self._named.get(name, slice(None))
        if self._auto and level and part != slice(None):
            part = at_level(part, self.image._read_shape(0)[d], length, self._factor(0, level, d))
        start, stop, _ = part.indices(length)
        if stop <= start:
            raise ArgumentError(f"nothing is selected along {name!r}, of {length} elements")
        return slice(start, stop)

    def _length(self, level: int, d: int) -> int:
        box = self._box(level, d)
        return int(box.stop - box.start)

    def _factor(self, level: int, other: int, d: int) -> float:
        scales = self.image._own_grid(level).scale[d], self.image._own_grid(other).scale[d]
        return float(scales[1] / scales[0])

    def _planes(self, level: int) -> slice:
        """Return the planes along z that are shown, in elements of a level."""
        if self._z is None:
            return slice(0, 1)
        d = self._z
        length = self.image._read_shape(level)[d]
        part: Any = slice(None) if self._depth in ("max", "mean") else self._depth
        if part == "middle":
            part = length // 2
        elif part != slice(None):
            # In elements of the first level, or of the one that was named.
            base = 0 if self._auto else self.level
            if level != base:
                part = at_level(part, self.image._read_shape(base)[d], length, self._factor(base, level, d))
        if not isinstance(part, slice):
            if not -length <= part < length:
                raise ArgumentError(f"there is no plane {part} along {self.image.axes[d]!r}, of {length} elements")
            return slice(part % length, part % length + 1)
        start, stop, _ = part.indices(length)
        if stop <= start:
            raise ArgumentError(f"nothing is selected along {self.image.axes[d]!r}, of {length} elements")
        return slice(start, stop)

    # -- what it costs

    def cost(self) -> tuple[int, int]:
        """Return the number of chunks that will be decoded at most, and the bytes of their elements."""
        array = self.image.level(self.level)
        counts = [1] * array.ndim
        boxes = {self._y: self._box(self.level, self._y), self._x: self._box(self.level, self._x)}
        if self._z is not None:
            boxes[self._z] = self._planes(self.level)
        for d, box in boxes.items():
            counts[d] = -(-box.stop // array.chunks[d]) - box.start // array.chunks[d]
        if self._c is not None:
            counts[self._c] = len(self.channels)
        return math.prod(counts), math.prod(counts) * math.prod(array.chunks) * array.dtype.itemsize

    # -- reading

    def plane(self, channel: Any, level: int, *, step: int = 1, whole: bool = False) -> Any:
        """Return the elements of a channel that are shown, ``(y, x)``, on the image's device.

        Parameters
        ----------
        channel
            Its number; None without an axis of channels.
        level
            Level to read.
        step
            Distance of the elements along y and x.
        whole
            Whether to read all of y and x.
        """
        array: Array = self.image.level(level)
        kept = [d for d in (self._z, self._y, self._x) if d is not None]
        chosen: list[Any] = [0 if d in kept else self._index(d, level, channel) for d in range(array.ndim)]
        for d in (self._y, self._x):
            box = slice(0, array.shape[d]) if whole else self._box(level, d)
            chosen[d] = slice(box.start, box.stop, step)
        planes = self._planes(level)
        order = [sorted(kept).index(d) for d in kept]
        if self._z is None:
            return self._read(level, chosen).transpose(order)
        lengths = [len(range(*chosen[d].indices(array.shape[d]))) for d in (self._y, self._x)]
        total: Any = None
        for part in _slabs(planes, array.chunks[self._z], math.prod(lengths) * array.dtype.itemsize):
            chosen[self._z] = part
            slab = self._read(level, chosen).transpose(order)
            if self._depth == "mean":
                found = slab.astype(np.float64).sum(axis=0)
                total = found if total is None else total + found
            else:
                found = slab[0] if len(slab) == 1 else _largest(slab)
                total = found if total is None else np.fmax(total, found)
        return total / (planes.stop - planes.start) if self._depth == "mean" else total

    def _read(self, level: int, chosen: Sequence[Any]) -> Any:
        return self.image._read(level, tuple(chosen))

    def _index(self, d: int, level: int, channel: Any) -> int:
        """Return the index along an axis that is not shown."""
        if d == self._c:
            return int(channel or 0)
        name, length = self.image.axes[d], self.image._read_shape(level)[d]
        index = self._named.get(name)
        if index is None:
            index = _default_time(self.image, length) if self.image.axis_details[d].type == "time" else 0
        if not -length <= index < length:
            raise ArgumentError(f"there is no index {index} along {name!r}, of {length} elements")
        return int(index % length)

    def pixels(self) -> Any:
        """Read, and return the picture: u1 ``(y, x, 3)``, on the image's device."""
        planes = [self.plane(channel, self.level, step=self.step) for channel in self.channels]
        if self.is_label:
            label = self.image.image_label
            own = {one.value: one.rgba for one in label.colors if one.rgba is not None and isinstance(one.value, int)}
            return painted(planes[0], own)
        windows = [self.window(channel, plane) for channel, plane in zip(self.channels, planes, strict=True)]
        return composed(planes, windows, self.colors(), [self._inverted(channel) for channel in self.channels])

    def small_pixels(self, size: int) -> npt.NDArray[np.uint8]:
        """Return the picture in host memory, with at most ``size`` pixels along its longer side."""
        return smaller(on_host(self.pixels()), size, mixed=not self.is_label)

    # -- channels

    def _channel(self, number: Any) -> Channel | None:
        known: Sequence[Channel] = self.image.channels
        index = 0 if number is None else number
        return known[index] if index < len(known) else None

    def _is_rgb(self) -> bool:
        if self._c is None or self.image.channels:
            return False
        array = self.image.level(self.level)
        return bool(array.dtype == np.uint8 and array.shape[self._c] == 3)

    def colors(self) -> list[tuple[int, int, int]]:
        """Return the colour of each channel that is shown."""
        if _rdefs(self.image).get("model") == "greyscale":
            return [(255, 255, 255)] * len(self.channels)
        if self._is_rgb():
            each = ((255, 0, 0), (0, 255, 0), (0, 0, 255))
            return [each[number] for number in self.channels] if len(self.channels) > 1 else [(255, 255, 255)]
        others = default_colors(len(self.channels))
        found = []
        for number, other in zip(self.channels, others, strict=True):
            channel = self._channel(number)
            # What is no colour is among the problems of the document.
            digits = None if channel is None else digits_of(channel.color)
            found.append(other if digits is None else rgb_of(digits))
        return found

    def window(self, number: Any, plane: Any) -> tuple[float, float]:
        """Return the values between which a channel is shown.

        Parameters
        ----------
        number
            Number of the channel.
        plane
            Its elements in the picture.
        """
        channel = self._channel(number)
        if channel is not None and channel.window is not None:
            low, high = channel.window.start, channel.window.end
            if math.isfinite(low) and math.isfinite(high):
                return low, high
        if self._is_rgb():
            return 0.0, 255.0
        last = len(self.image.multiscale.datasets) - 1
        is_whole = not {self.image.axes[self._y], self.image.axes[self._x]} & set(self._named)
        if last == self.level and (self.step == 1 or self._is_thinned) and is_whole:
            return window_of(plane, self.image.level(last).dtype)
        array = self.image.level(last)
        planes = self._planes(last)
        if array.shape[self._y] * array.shape[self._x] * (planes.stop - planes.start) > _MOST_LOOKED_AT:
            return window_of(plane, array.dtype)
        return window_of(self.plane(number, last, whole=True), array.dtype)

    def _inverted(self, number: Any) -> bool:
        channel = self._channel(number)
        return channel is not None and channel.extra.get("inverted") is True


def _space(image: Any) -> tuple[int, int, int | None]:
    """Return the axes that are shown downwards and to the right, and the third axis of space if there is one."""
    spaces = [d for d, axis in enumerate(image.axis_details) if axis.type == "space"]
    if len(spaces) < 2:
        raise ArgumentError(f"{place(image.group)} has the axes {', '.join(image.axes)}; a picture needs two of space")
    names = [image.axes[d].casefold() for d in spaces]
    if "y" in names and "x" in names:
        y, x = spaces[names.index("y")], spaces[names.index("x")]
    else:
        y, x = spaces[-2:]
    left = [d for d in spaces if d not in (y, x)]
    return y, x, left[-1] if left else None


def size_of(given: Any) -> int:
    """Return a number of pixels.

    Raises
    ------
    ArgumentError
        If it is no integer of at least 1.
    """
    size = as_integer(given)
    if size is None or size < 1:
        raise ArgumentError(f"size must be a number of pixels, at least 1, not {quote(given)}")
    return size


def _integer(name: str, value: Any) -> int:
    number = as_integer(value)
    if number is None:
        raise ArgumentError(f"{name!r} takes an integer, not {quote(value)}")
    return number


def _default_time(image: Any, length: int) -> int:
    found = _rdefs(image).get("defaultT")
    return found if type(found) is int and 0 <= found < length else 0


def _rdefs(image: Any) -> dict[str, Any]:
    """Return the document's settings for all channels together."""
    rdefs = {} if image.metadata.omero is None else image.metadata.omero.extra.get("rdefs")
    return rdefs if isinstance(rdefs, dict) else {}


def _slabs(planes: slice, chunk: int, plane_nbytes: int) -> list[slice]:
    """Return parts of some planes: whole chunks, as many as there is room for."""
    count = max(1, _SLAB_BYTES // max(1, plane_nbytes) // chunk) * chunk
    first = planes.start // chunk * chunk
    return [
        slice(max(begin, planes.start), min(begin + count, planes.stop)) for begin in range(first, planes.stop, count)
    ]


def _largest(planes: Any) -> Any:
    """Return the largest numbers along the first axis; what is no number counts only where all are none."""
    if planes.dtype.kind != "f":
        return planes.max(axis=0)
    is_nan = np.isnan(planes)
    found = np.where(is_nan, planes.dtype.type(-np.inf), planes).max(axis=0)
    return np.where(is_nan.all(axis=0), planes.dtype.type(np.nan), found)
