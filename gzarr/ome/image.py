"""Images: arrays of several resolutions, whose axes have names, types and units."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from .. import plugins
from ..errors import ArgumentError, MetadataError, ReadOnlyError, SelectionError
from ..hierarchy.open import open_group
from .image_levels import ImageLevels, Level
from .labels import Labels, labels_of
from .levels import at_level, indexes_of_box, of_frames
from .metadata.parse import parse
from .metadata.units import meters
from .nodes import child_group, place, read_metadata, warn
from .picture_methods import ImagePictures
from .transforms.graph import SystemGraph

if TYPE_CHECKING:
    from ..hierarchy.group import Group
    from .metadata.model import Axis, Channel, OmeMetadata
    from .transforms.graph import SystemName
    from .transforms.maps import CoordinateMap

__all__ = ["Image", "Level", "image_of"]

#: Index of a level, or the one that suits the wanted resolution or number of pixels.
LevelChoice: TypeAlias = int | Literal["auto"]


class Image(ImageLevels, ImagePictures):
    """An OME-Zarr image. Get one from :func:`gzarr.ome.open`, a well, labels or a collection.

    Each level costs a store request when it is first used; nothing else does.

    Parameters
    ----------
    group
        Group of the image.
    metadata
        OME metadata of the group.
    index
        Which of its images, if the group has several.
    """

    def __init__(self, group: Group, metadata: OmeMetadata, index: int = 0) -> None:
        super().__init__(group, metadata, index)
        self._labels: Labels[Image] | None = None

    @property
    def labels(self) -> Labels[Image]:
        """Label images of this image, by name; the first use costs a request."""
        if self._labels is None:
            self._labels = labels_of(self._group, image_of)
        return self._labels

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
            If neither is given, or both are.
        """
        if (resolution is None) == (pixels is None):
            raise ArgumentError("a level is chosen by either resolution= (micrometres) or pixels=; pass one of them")
        count = len(self._image.datasets)
        if pixels is not None:
            for level in range(count):
                if math.prod(_lengths(self._at(level, selection), self.level(level).shape)) <= pixels:
                    return level
            return count - 1
        wanted = self._by_axis(resolution, "resolution")
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

    def read(
        self,
        level: LevelChoice = 0,
        *,
        resolution: float | Sequence[float] | Mapping[str, float] | None = None,
        pixels: int | None = None,
        out: Any = None,
        stream: Any = None,
        budget_bytes: int | None = None,
        **selection: Any,
    ) -> Any:
        """Read a part of the image, given by names of axes: ``image.read(c="DAPI", t=0, z=slice(10, 20))``.

        Parameters
        ----------
        level
            Index of the level, or ``"auto"`` for the one that suits ``resolution`` or ``pixels``; see
            :meth:`choose_level`. Selections then count elements of the first level, and mean those of the chosen one
            that cover them.
        resolution, pixels
            For ``level="auto"``: wanted distance of elements in micrometres, or largest number of elements.
        out, stream, budget_bytes
            As for :meth:`gzarr.Array.read`.
        **selection
            By name of an axis, in upper or lower case: an integer, which drops the axis; a slice; or a list of
            integers. Of the axis of channels also the label of a channel, or a list of labels. Axes that are not named
            are read as a whole.

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
        named = self._named(selection)
        if level == "auto":
            level = self.choose_level(resolution=resolution, pixels=pixels, **named)
            chosen = self._at(level, named)
        elif resolution is not None or pixels is not None:
            raise ArgumentError('resolution= and pixels= choose a level: pass level="auto" with them')
        else:
            chosen = tuple(named.get(name, slice(None)) for name in self.axes)
        return self._read(level, chosen, out, stream, budget_bytes)

    def read_um(
        self,
        center: Sequence[float] | Mapping[str, float],
        size: float | Sequence[float] | Mapping[str, float],
        level: LevelChoice = 0,
        *,
        resolution: float | Sequence[float] | Mapping[str, float] | None = None,
        pixels: int | None = None,
        out: Any = None,
        stream: Any = None,
        budget_bytes: int | None = None,
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
        level, resolution, pixels, out, stream, budget_bytes
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
            If a transformation of the level is not known to gzarr.
        ArgumentError, MetadataError, NodeNotFoundError, ChunkError, StoreError, DeviceError
            As for :meth:`read`.
        """
        middle = self._by_axis(center, "center")
        lengths = self._by_axis(size, "size", names=tuple(middle))
        named = self._named(selection)
        twice = set(middle) & set(named)
        if twice:
            raise ArgumentError(f"the axis {twice.pop()!r} is in the box, and cannot be selected as well")
        if level == "auto":
            first = dict(zip(self.axes, self._box(0, middle, lengths), strict=True))
            level = self.choose_level(resolution=resolution, pixels=pixels, **{**first, **named})
        elif resolution is not None or pixels is not None:
            raise ArgumentError('resolution= and pixels= choose a level: pass level="auto" with them')
        box = self._box(level, middle, lengths)
        chosen = tuple(named.get(name, part) for name, part in zip(self.axes, box, strict=True))
        return self._read(level, chosen, out, stream, budget_bytes)

    def _box(self, level: int, middle: dict[str, float], lengths: dict[str, float]) -> tuple[slice, ...]:
        grid = self.grid(level)
        found = []
        for axis, scale, translation, length in zip(
            self.axis_details, grid.scale, grid.translation, self.level(level).shape, strict=True
        ):
            if axis.name not in middle:
                found.append(slice(None))
                continue
            unit = self._um(axis)
            half = lengths[axis.name] / 2
            low, high = (middle[axis.name] - half) / unit, (middle[axis.name] + half) / unit
            try:
                found.append(indexes_of_box(low, high, scale, translation, length))
            except SelectionError as error:
                raise SelectionError(f"axis {axis.name!r} of {self._group.name!r}, in its unit: {error}") from None
        return tuple(found)

    def coordinate_map(self, source: SystemName, target: SystemName) -> CoordinateMap:
        """Return the map from one coordinate system to another, along the transformations of the document.

        Parameters
        ----------
        source, target
            Name of a coordinate system of the image; or the index of a level, for the indexes of its elements; or, for
            those of another image that a transformation refers to, such as a label image, the path of its group and
            either. Images before version 0.6 have one coordinate system, which has the name ``"physical"`` here.

        Returns
        -------
        The map. Of those that are possible the shortest is taken; transformations are inverted where that is needed.

        Raises
        ------
        ArgumentError
            If there is no such coordinate system or level, or nothing links the two.
        UnsupportedError
            If they are linked only by what has no inverse.
        MetadataError
            If a transformation on the way cannot be read.
        NodeNotFoundError, StoreError
            If another image cannot be opened.

        Examples
        --------
        >>> image.coordinate_map(0, "physical")([[0, 0, 0], [1, 10, 10]])
        array([[0. , 0. , 0. ],
               [2. , 5. , 5. ]])
        """
        return SystemGraph(self._group, lambda path: image_of(child_group(self._group, path, "image")), self).find(
            source, target
        )

    def to_xarray(self, level: int = 0) -> Any:
        """Return a ``level``, given by its index, as an ``xarray.DataArray``, which is read when it is indexed.

        Its coordinates are those of the elements in the units of the axes, and the labels of the channels if all have
        one that differs from the others.

        Raises
        ------
        ArgumentError
            If xarray is not installed, or there is no such level.
        """
        level = self._index(level)
        frames = self._frames(level)
        array, grid = self.level(level), self.grid(level)
        coordinates: dict[str, Any] = {}
        for axis, scale, translation, length in zip(
            self.axis_details, grid.scale, grid.translation, array.shape, strict=True
        ):
            attributes = {} if axis.unit is None else {"units": axis.unit}
            labels = [channel.label for channel in self.channels]
            if axis.type != "channel":
                coordinates[axis.name] = (scale, translation, length, attributes)
            elif len(set(labels)) == length == len(labels) and None not in labels:
                coordinates[axis.name] = labels
        field = plugins.integration("xarray").data_array(array, self.axes, coordinates, self.name)
        return field.isel({self.axes[d]: slice(count) for d, count in frames.items()}) if frames else field

    # -- changes

    def _check_writable(self) -> None:
        if self._group.read_only:
            raise ReadOnlyError(
                f"{place(self._group)} is read-only; open it with gzarr.ome.open(…, mode='r+') to change it"
            )

    def append(
        self,
        frames: Any,
        axis: str = "t",
        *,
        labels: Mapping[str, Any] | None = None,
        method: str | None = None,
        lock: bool = False,
    ) -> tuple[int, ...]:
        """Append frames to all levels of the image, and to its labels.

        Readers see whole frames: level 0 grows last, and what other levels and labels have beyond it is not read. A
        call that fails leaves the image as it was. One that is killed does so for readers, and the next append goes on
        from there. Frames that levels lack, because something was appended to level 0 only, are made first.

        Parameters
        ----------
        frames
            Array of the shape of level 0, but of any length along ``axis``; or one frame, without that axis. It is held
            in memory with its levels.
        axis
            Name of the axis. Levels must not be reduced along it.
        labels
            Frames of labels by name, as ``frames``. Labels that are not named get background, 0, and those that have
            one frame for all of several, or no such axis, stay as they are.
        method
            As for :func:`gzarr.ome.create`; None for the one that the image names, or ``"mean"``.
        lock
            Whether to exclude other processes that also pass ``lock=True``, by a file lock beside the data. Threads
            take turns without it.

        Returns
        -------
        The new shape of level 0, in elements.

        Raises
        ------
        ArgumentError
            If an argument is wrong, the image names its channels and ``axis`` is theirs, or levels are reduced along
            it; nothing was changed.
        ReadOnlyError
            If the image or its store is read-only.
        NodeNotFoundError, MetadataError, ChunkError, StoreError, DeviceError
            As for :meth:`gzarr.Array.append`; the image is as it was.
        """
        self._check_writable()
        # Levels and labels may have been added since.
        group = open_group(self._group.store, path=self._group.path, mode="r+")
        current = Image(group, parse(group.attrs), self._number)
        arrays = _writing("appending").append(current, frames, axis, labels or {}, method=method, lock=lock)
        self._metadata, self._image, self._labels = current._metadata, current._image, None
        self._arrays = dict(enumerate(arrays))
        shape: tuple[int, ...] = arrays[0].shape
        return shape

    def update_metadata(
        self,
        *,
        name: str | None = None,
        scale: Any = None,
        translation: Any = None,
        units: Any = None,
        channels: Sequence[str | Channel] | None = None,
        colors: Mapping[int, tuple[int, int, int, int]] | None = None,
        properties: Mapping[int, Mapping[str, Any]] | None = None,
        lock: bool = False,
    ) -> None:
        """Change metadata of the image; what is not named stays. No element is touched.

        It is one write of one document: readers see all of the change or none. Labels have metadata of their own:
        change theirs as well, if they are to stay in place. Consolidated metadata of groups above, which would be
        outdated, is removed.

        Parameters
        ----------
        name
            Name of the image.
        scale, translation
            Physical distance between the elements of level 0, and coordinates of the first one: a number for each axis,
            or a mapping of names of axes to numbers. The other levels keep their places in elements of level 0.
        units
            Unit of each axis, likewise, or None for an axis without one; one text for all axes of space.
        channels
            Name or :class:`gzarr.ome.metadata.model.Channel` of each channel, which has its colour and its window. A
            name keeps what the channel has besides: for other colours or windows, pass
            ``[dataclasses.replace(c, color="00FF00") for c in image.channels]``.
        colors
            For label images: all colours, as for :func:`gzarr.ome.create_labels`.
        properties
            For label images: properties of labels, all of them. An empty mapping removes them.
        lock
            Whether to exclude other processes that also pass ``lock=True``, by a file lock beside the data. Threads and
            object stores need none.

        Raises
        ------
        ArgumentError
            If an argument is wrong, or if the change would break a rule of the specification; nothing was changed.
        ReadOnlyError
            If the image or its store is read-only.
        UnsupportedError
            If a place is to be changed, and a level has a transformation that gzarr does not apply.
        NodeNotFoundError, MetadataError, StoreError
            If the image is no longer there or cannot be read, or the store fails; the old metadata is kept.
        """
        self._check_writable()
        changing = _writing("changing")
        changes = changing.Changes(
            name=name,
            scale=scale,
            translation=translation,
            units=units,
            channels=channels,
            colors=colors,
            properties=properties,
        )
        changing.change(self, changes, lock=lock)
        self._metadata = parse(self._group.attrs, zarr_format=self._group.zarr_format)
        self._image = self._metadata.multiscales[self._number]
        self._axes = self._image.axes

    # -- selections

    def _named(self, selection: Mapping[str, Any]) -> dict[str, Any]:
        """Return a selection with labels of channels replaced by their indexes."""
        types = {axis.name: axis.type for axis in self.axis_details}
        found: dict[str, Any] = {}
        for given, part in selection.items():
            name = self._axis_name(given)
            if name in found:
                raise ArgumentError(f"the axis {name!r} is selected twice")
            found[name] = self._channels(part) if types[name] == "channel" else part
        return found

    def _axis_name(self, given: str) -> str:
        """Return the name of an axis as the document has it: files have ``Z`` as well as ``z``."""
        if given in self.axes:
            return given
        alike = [name for name in self.axes if name.casefold() == given.casefold()]
        if len(alike) != 1:
            raise ArgumentError(f"{place(self._group)} has the axes {', '.join(self.axes)}, not {given!r:.100}")
        return alike[0]

    def _channels(self, part: Any) -> Any:
        if isinstance(part, str):
            return self._channel(part)
        if isinstance(part, list | tuple):
            return [self._channel(one) if isinstance(one, str) else one for one in part]
        return part

    def _channel(self, label: str) -> int:
        labels = [channel.label for channel in self.channels]
        if labels.count(label) != 1:
            known = ", ".join(repr(known) for known in labels[:20]) or "no names of channels"
            how = "no" if label not in labels else "more than one"
            raise SelectionError(f"{place(self._group)} has {how} channel {label!r:.100}; it has {known}")
        return labels.index(label)

    def _at(self, level: int, selection: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return a selection of the first level in elements of another."""
        chosen = [selection.get(name, slice(None)) for name in self.axes]
        if level == 0:
            return tuple(chosen)
        first, here = self.level(0).shape, self.level(level).shape
        factors = [b / a for a, b in zip(self.grid(0).scale, self.grid(level).scale, strict=True)]
        return tuple(
            part if part == slice(None) or factor == 1 or isinstance(part, list) else at_level(part, n, m, factor)
            for part, n, m, factor in zip(chosen, first, here, factors, strict=True)
        )

    def _read(self, level: int, chosen: tuple[Any, ...], out: Any, stream: Any, budget_bytes: int | None) -> Any:
        level = self._index(level)
        frames = self._frames(level)
        if frames:
            chosen = tuple(of_frames(part, frames[d]) if d in frames else part for d, part in enumerate(chosen))
        array = self.level(level)
        reader = array.oindex if any(isinstance(part, list) for part in chosen) else array
        return reader.read(chosen, out=out, stream=stream, budget_bytes=budget_bytes)

    def _by_axis(self, values: Any, what: str, names: tuple[str, ...] | None = None) -> dict[str, float]:
        """Return numbers by names of axes of space."""
        spaces = tuple(axis.name for axis in self.axis_details if axis.type == "space")
        names = spaces if names is None else names
        if isinstance(values, Mapping):
            found = {self._axis_name(name): value for name, value in values.items()}
        elif isinstance(values, int | float):
            found = dict.fromkeys(names, values)
        else:
            numbers = list(values)
            if len(numbers) != len(names):
                raise ArgumentError(
                    f"{what}= needs a number for each of the axes {', '.join(names)}, got {values!r:.100}"
                )
            found = dict(zip(names, numbers, strict=True))
        if not set(found) <= set(spaces) or not set(names if what == "size" else ()) <= set(found):
            raise ArgumentError(f"{what}= needs numbers for the axes of space {', '.join(names)}, got {values!r:.100}")
        if not all(math.isfinite(number) for number in found.values()):
            raise ArgumentError(f"{what}= needs finite numbers, got {values!r:.100}")
        return {name: float(number) for name, number in found.items()}

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


def _writing(module: str) -> Any:
    """Return a module that changes images, known by name only: these modules make images."""
    return import_module(f"gzarr.ome.writing.{module}")


def _lengths(selection: tuple[Any, ...], shape: tuple[int, ...]) -> list[int]:
    return [
        len(range(*part.indices(n))) if isinstance(part, slice) else len(part) if isinstance(part, list) else 1
        for part, n in zip(selection, shape, strict=True)
    ]


def image_of(group: Group) -> Image:
    """Return the image of a group; costs no request."""
    return Image(group, read_metadata(group))
