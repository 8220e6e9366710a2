"""The part of images that reads elements: by names of axes, by resolution, and in boxes of micrometres."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from ..documents.json import quote
from ..errors import ArgumentError, MetadataError, SelectionError
from ..integers import as_integer
from ..poses.numbers_given import real_numbers
from .boxes import Span, spans_of_box
from .image_systems import ImageSystems
from .levels import at_level, check_slice, indexes_in, is_several, of_frames
from .metadata.units import meters
from .nodes import place, warn

if TYPE_CHECKING:
    from ..arrays.read_options import Decode
    from ..engines.access.access import Missing, Verify
    from .metadata.model import Axis

#: Index of a level, or the one that suits the wanted resolution or number of pixels.
LevelChoice: TypeAlias = int | Literal["auto"]


class _Options(NamedTuple):
    """Options of a read, as for :meth:`gzarr.Array.read`."""

    out: Any = None
    dtype: Any = None
    missing: Missing | None = None
    stream: Any = None
    budget_bytes: int | None = None
    decode: Decode = "auto"
    verify: Verify | None = None


_DEFAULTS: Final = _Options()


class ImageReads(ImageSystems):
    """The part of :class:`gzarr.ome.Image` that reads elements."""

    def choose_level(
        self,
        *,
        resolution: float | Sequence[float] | Mapping[str, float] | None = None,
        pixels: int | None = None,
        **selection: Any,
    ) -> int:
        """Return the level that suits a wanted resolution or number of pixels.

        Parameters
        ----------
        resolution
            Wanted distance of neighbouring elements in micrometres: one number for all axes of space, one for each, or
            by name. The coarsest level that is at least as fine is chosen; if none is, the finest.
        pixels
            Largest number of elements that the selection may have. The finest such level is chosen; if none is, the
            coarsest.
        **selection
            Selection of the first level, as for :meth:`read`; for ``pixels`` only.

        Raises
        ------
        ArgumentError
            If neither is given, or both are, or if it is no such number.
        """
        if (resolution is None) == (pixels is None):
            raise ArgumentError("a level is chosen by either resolution= (micrometres) or pixels=; pass one of them")
        count = len(self._image.datasets)
        if pixels is not None:
            # Durations of NumPy are integers of NumPy, too.
            if not isinstance(pixels, Real) or isinstance(pixels, np.timedelta64) or not pixels >= 1:
                raise ArgumentError(f"pixels must be a number of elements, at least 1, not {quote(pixels)}")
            selection = self._selected(selection)
            for level in range(count):
                if math.prod(_lengths(self._at(level, selection), self._read_shape(level))) <= pixels:
                    return level
            return count - 1
        wanted = self._by_axis(resolution, "resolution", self.axis_details)
        fine = [level for level in range(count) if self._is_as_fine(level, wanted)]
        return max(fine, key=lambda level: self._micrometers(level)[1], default=0)

    def _is_as_fine(self, level: int, wanted: dict[str, float]) -> bool:
        steps = self._micrometers(level)[0]
        return all(steps[name] <= size * (1 + 1e-6) for name, size in wanted.items())

    def _micrometers(self, level: int) -> tuple[dict[str, float], float]:
        """Return the distances of a level's elements in micrometres by axis of space, and their product."""
        steps = {
            axis.name: abs(size) * self._um(axis)
            for axis, size in zip(self.axis_details, self.grid(level).scale, strict=True)
            if axis.type == "space"
        }
        return steps, math.prod(steps.values())

    # -- reading

    def read(  # noqa: PLR0913
        self,
        level: LevelChoice = 0,
        *,
        resolution: float | Sequence[float] | Mapping[str, float] | None = None,
        pixels: int | None = None,
        out: Any = None,
        dtype: Any = None,
        missing: Missing | None = None,
        stream: Any = None,
        budget_bytes: int | None = None,
        decode: Decode = "auto",
        verify: Verify | None = None,
        **selection: Any,
    ) -> Any:
        """Read a part of the image, given by names of axes: ``image.read(c="DAPI", t=0, z=slice(10, 20))``.

        Parameters
        ----------
        level
            Index of the level, or ``"auto"`` for the one that suits ``resolution`` or ``pixels``; see
            :meth:`choose_level`. Selections then count elements of the first level, and mean elements of the chosen one
            that cover them.
        resolution, pixels
            For ``level="auto"``: wanted distance of elements in micrometres, or largest number of elements.
        out, dtype, missing, stream, budget_bytes, decode, verify
            As for :meth:`gzarr.Array.read`.
        **selection
            By name of an axis, in upper or lower case: an integer, which drops the axis; a slice; or integers or a mask
            as a list or an array of one dimension. Of the axis of channels also the label of a channel, or a list of
            labels. Axes that are not named are read as a whole. An axis that has the name of another parameter is
            selected in upper case: ``LEVEL=2``.

        Returns
        -------
        ``out``, or a new array on the image's device, with the axes in their order.

        Raises
        ------
        ArgumentError
            If ``level`` is none of the above, or an axis has another name.
        SelectionError
            If a selection does not fit, or there is no channel with that label.
        NodeNotFoundError, MetadataError, ChunkError, StoreError, DeviceError
            As for :meth:`level` and :meth:`gzarr.Array.read`.
        """
        options = _Options(out, dtype, missing, stream, budget_bytes, decode, verify)
        named = self._selected(selection)
        if isinstance(level, str) and level == "auto":
            level = self.choose_level(resolution=resolution, pixels=pixels, **named)
            chosen = self._at(level, named)
        elif resolution is not None or pixels is not None:
            raise ArgumentError('resolution= and pixels= choose a level: pass level="auto" with them')
        else:
            chosen = tuple(named.get(name, slice(None)) for name in self.axes)
        return self._read(level, chosen, options)

    def read_um(  # noqa: PLR0913
        self,
        center: Sequence[float] | Mapping[str, float],
        size: float | Sequence[float] | Mapping[str, float],
        level: LevelChoice = 0,
        *,
        system: str | None = None,
        resolution: float | Sequence[float] | Mapping[str, float] | None = None,
        pixels: int | None = None,
        out: Any = None,
        dtype: Any = None,
        missing: Missing | None = None,
        stream: Any = None,
        budget_bytes: int | None = None,
        decode: Decode = "auto",
        verify: Verify | None = None,
        **selection: Any,
    ) -> Any:
        """Read a box given in micrometres.

        Elements whose centres lie from ``center - size / 2`` to below ``center + size / 2`` are read, and at least the
        nearest one along each axis; the box is cut at the edges of the image.

        Parameters
        ----------
        center
            Middle of the box in micrometres: a number for each axis of space in their order, or by name. Axes that are
            not named are read as a whole.
        size
            Lengths of the box in micrometres, likewise; or one number for all axes.
        system
            Name of the coordinate system whose axes ``center`` and ``size`` are of, of the image or of the scene that
            it was taken from; None for the one of scale and translation (:attr:`system`). Elements keep the order of
            the image's axes.
        level, resolution, pixels, out, dtype, missing, stream, budget_bytes, decode, verify
            As for :meth:`read`.
        **selection
            Selection of the other axes, as for :meth:`read`.

        Returns
        -------
        ``out``, or a new array on the image's device.

        Raises
        ------
        SelectionError
            If the box lies outside of the image.
        UnsupportedError
            If there is no scale and translation without ``system``, as for :meth:`grid`; or if the box is rotated or
            bent against the axes of the image: :func:`gzarr.read_affine` resamples rotated ones.
        ArgumentError, MetadataError, NodeNotFoundError, ChunkError, StoreError, DeviceError
            As for :meth:`read`.
        """
        options = _Options(out, dtype, missing, stream, budget_bytes, decode, verify)
        # Scale and translation are in one coordinate system, and maps lead from any to that of the levels.
        there = self if system is None else self._of_levels()
        spans = there._spans(center, size, system)
        named = self._selected(selection)
        twice = {name for name, span in zip(self.axes, spans, strict=True) if span is not None and name in named}
        if twice:
            raise ArgumentError(f"the axis {twice.pop()!r} is in the box, and cannot be selected as well")
        if isinstance(level, str) and level == "auto":
            first = dict(zip(self.axes, there._box(0, spans), strict=True))
            level = self.choose_level(resolution=resolution, pixels=pixels, **{**first, **named})
        elif resolution is not None or pixels is not None:
            raise ArgumentError('resolution= and pixels= choose a level: pass level="auto" with them')
        box = there._box(level, spans)
        chosen = tuple(named.get(name, part) for name, part in zip(self.axes, box, strict=True))
        return self._read(level, chosen, options)

    def _spans(self, center: Any, size: Any, system: str | None) -> list[Span | None]:
        """Return what a box covers of each axis, in the units of the box's axes."""
        if system is None:
            axes, matrix = self.axis_details, np.eye(self.ndim, self.ndim + 1)
        else:
            axes, matrix = self._system_named(system).axes, self._matrix_from(system)
        middle = self._by_axis(center, "center", axes)
        lengths = self._by_axis(size, "size", axes, tuple(middle))
        box = {}
        for axis in axes:
            if axis.name in middle:
                unit, half = self._um(axis), lengths[axis.name] / 2
                box[axis.name] = (middle[axis.name] - half) / unit, (middle[axis.name] + half) / unit
        return spans_of_box(box, [axis.name for axis in axes], matrix)

    def _box(self, level: int, spans: Sequence[Span | None]) -> tuple[slice, ...]:
        """Return the elements of a level that a box covers."""
        grid = self.grid(level)
        found = []
        for name, span, scale, translation, length in zip(
            self.axes, spans, grid.scale, grid.translation, self._read_shape(level), strict=True
        ):
            try:
                found.append(slice(None) if span is None else span.indexes(scale, translation, length))
            except SelectionError as error:
                raise SelectionError(
                    f"axis {name!r} of {self._group.name!r}, in the unit of the box's axis: {error}"
                ) from None
        return tuple(found)

    # -- selections

    def _selected(self, selection: Mapping[str, Any]) -> dict[str, Any]:
        """Return the selection of a read, as :meth:`_named` does; each part must be of the axis that it names.

        Raises
        ------
        SelectionError
            If a part is of no axis, or of several: then the parts after it would be of other axes.
        """
        named = self._named(selection)
        for name, part in named.items():
            if part is None or part is Ellipsis or getattr(part, "ndim", 1) > 1:
                raise SelectionError(
                    f"{place(self._group)}: the axis {name!r} takes an integer, a slice or a list of integers, not "
                    f"{quote(part)}; an axis that is not named is read as a whole"
                )
        return named

    def _named(self, selection: Mapping[str, Any]) -> dict[str, Any]:
        """Return a selection with labels of channels replaced by their indexes."""
        types = {axis.name: axis.type for axis in self.axis_details}
        found: dict[str, Any] = {}
        for given, part in selection.items():
            name = self._axis_name(given)
            if name in found:
                raise ArgumentError(f"the axis {name!r} is selected twice")
            is_channel = types[name] == "channel"
            part = _plain(part, keep_arrays=not is_channel)
            check_slice(part)
            found[name] = self._channels(part) if is_channel else part
        return found

    def _axis_name(self, given: Any, axes: Sequence[Axis] | None = None) -> str:
        """Return the name of an axis as the document has it: files have ``Z`` as well as ``z``."""
        names = [axis.name for axis in (self.axis_details if axes is None else axes)]
        told = given if isinstance(given, str) else ""
        if told in names:
            return told
        alike = [name for name in names if name.casefold() == told.casefold()]
        if len(alike) != 1:
            raise ArgumentError(f"{place(self._group)} has the axes {', '.join(names)}, not {quote(given)}")
        return alike[0]

    def _channels(self, part: Any) -> Any:
        if isinstance(part, str):
            return self._channel(part)
        if isinstance(part, list):
            return [self._channel(one) if isinstance(one, str) else one for one in part]
        return part

    def _channel(self, label: str) -> int:
        labels = [channel.label for channel in self.channels]
        if labels.count(label) != 1:
            known = ", ".join(repr(known) for known in labels[:20]) or "no names of channels"
            how = "no" if label not in labels else "more than one"
            raise SelectionError(f"{place(self._group)} has {how} channel {quote(label)}; it has {known}")
        return labels.index(label)

    def _at(self, level: int, selection: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return a selection of the first level in elements of another."""
        chosen = [selection.get(name, slice(None)) for name in self.axes]
        if level == 0:
            return tuple(
                indexes_in(part, self._read_shape(0)[d]) if is_several(part) else part for d, part in enumerate(chosen)
            )
        first, here = self._read_shape(0), self._read_shape(level)
        factors = [b / a for a, b in zip(self._own_grid(0).scale, self._own_grid(level).scale, strict=True)]
        return tuple(
            part if _is_whole(part) or (factor == 1 and not is_several(part)) else at_level(part, n, m, factor)
            for part, n, m, factor in zip(chosen, first, here, factors, strict=True)
        )

    def _read(self, level: int, chosen: tuple[Any, ...], options: _Options = _DEFAULTS) -> Any:
        level = self._index(level)
        frames = self._frames(level)
        if frames:
            chosen = tuple(of_frames(part, frames[d]) if d in frames else part for d, part in enumerate(chosen))
        array = self.level(level)
        reader = array.oindex if any(is_several(part) for part in chosen) else array
        return reader.read(chosen, **options._asdict())

    def _by_axis(
        self, values: Any, what: str, axes: Sequence[Axis], names: tuple[str, ...] | None = None
    ) -> dict[str, float]:
        """Return numbers by names of axes of space, of those that an image or a coordinate system has."""
        spaces = tuple(axis.name for axis in axes if axis.type == "space")
        names = spaces if names is None else names
        if isinstance(values, Mapping):
            found = {self._axis_name(name, axes): value for name, value in values.items()}
        elif isinstance(values, Real) or (isinstance(values, np.ndarray) and not values.ndim):
            found = dict.fromkeys(names, values)
        else:
            given = [] if isinstance(values, str) or not hasattr(values, "__iter__") else list(values)
            if len(given) != len(names):
                raise ArgumentError(
                    f"{what}= needs a number for each of the axes {', '.join(names)}, got {quote(values)}"
                )
            found = dict(zip(names, given, strict=True))
        if not set(found) <= set(spaces) or not set(names if what == "size" else ()) <= set(found):
            raise ArgumentError(f"{what}= needs numbers for the axes of space {', '.join(names)}, got {quote(values)}")
        finite = real_numbers(list(found.values()))
        if finite is None or finite.ndim != 1:
            raise ArgumentError(f"{what}= needs finite numbers, got {quote(values)}")
        if what != "center" and (finite < 0).any():
            raise ArgumentError(f"{what}= needs numbers of micrometres, at least 0, got {quote(values)}")
        return dict(zip(found, finite.tolist(), strict=True))

    def _um(self, axis: Axis) -> float:
        """Return the micrometres in the unit of an axis."""
        size = meters(axis.unit)
        if size is None:
            if axis.unit is not None:
                raise MetadataError(
                    f"axis {axis.name!r} of {place(self._group)} has the unknown unit {axis.unit!r:.100}"
                )
            warn(f"{place(self._group)}: axis {axis.name!r} has no unit; taken as micrometres")
            return 1.0
        return size * 1e6


def _plain(part: Any, *, keep_arrays: bool) -> Any:
    """Return a selection of an axis as an integer or a list if it is one of another type; anything else as it is.

    ``keep_arrays`` says whether arrays of integers, and masks, stay what they are: as a list, one of millions takes
    far longer than the read.
    """
    if isinstance(part, np.ndarray) and part.ndim == 1:
        return part if keep_arrays and part.dtype.kind in "biu" else part.tolist()
    if isinstance(part, tuple | range):
        return list(part)
    number = as_integer(part)
    return part if number is None else number


def _is_whole(part: Any) -> bool:
    return isinstance(part, slice) and part == slice(None)


def _lengths(selection: tuple[Any, ...], shape: tuple[int, ...]) -> list[int]:
    return [
        len(range(*part.indices(n))) if isinstance(part, slice) else len(part) if is_several(part) else 1
        for part, n in zip(selection, shape, strict=True)
    ]
