"""The metadata and the levels of an image. Only the levels cost store requests."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.array import Array
from ..documents.json import quote
from ..errors import ArgumentError, MetadataError, NodeNotFoundError, NodeTypeError, UnsupportedError
from ..integers import as_integer
from .levels import LevelGrid, grid_by_shape, grid_of, in_image
from .metadata.axes import axes_by_ndim
from .metadata.model import PHYSICAL
from .nodes import child, needed, place, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from ..hierarchy.group import Group
    from .metadata.model import Axis, Channel, ImageLabel, Multiscale, OmeMetadata


@dataclass(frozen=True, slots=True)
class Level:
    """One resolution of an image. It can be indexed as its array, and ``np.asarray`` reads all of it.

    Attributes
    ----------
    index
        Index of the level; 0 has the highest resolution.
    array
        Its elements.
    scale
        Distance of neighbouring elements along each axis, in the axis's unit.
    translation
        Coordinate of the first element along each axis.
    """

    index: int
    array: Array
    scale: tuple[float, ...]
    translation: tuple[float, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape in elements."""
        return self.array.shape

    @property
    def dtype(self) -> Any:
        """Data type of the elements."""
        return self.array.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.array.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.array.size

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.array)

    def __getitem__(self, selection: Any) -> Any:
        return self.array[selection]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Read the whole level, for ``np.asarray``."""
        return self.array.__array__(dtype, copy)


class ImageLevels:
    """The part of :class:`gzarr.ome.Image` that does not read elements."""

    def __init__(self, group: Group, metadata: OmeMetadata, index: int = 0) -> None:
        needed(metadata, "multiscales", group)
        if not metadata.multiscales:
            raise NodeTypeError(
                f"{place(group)} is not an OME-Zarr image: it lacks 'multiscales', which is written last; if writing "
                "it has failed, write it again, with overwrite=True"
            )
        number, count = as_integer(index), len(metadata.multiscales)
        if number is None or not 0 <= number < count:
            raise ArgumentError(f"{place(group)} has {count} images, so none has index {quote(index)}")
        self._group = group
        self._metadata = metadata
        self._number = number
        self._image = metadata.multiscales[number]
        self._arrays: dict[int, Array] = {}
        self._axes: tuple[Axis, ...] | None = self._image.axes
        self._unreduced: frozenset[int] | None = None
        # The image that was labelled, if these are labels that were taken from it: its frames are theirs.
        self._labelled: ImageLevels | None = None

    def __repr__(self) -> str:
        axes = self._image.axes
        names = "" if axes is None else f" {''.join(axis.name for axis in axes)[:40]},"
        levels = len(self._image.datasets)
        return f"<gzarr.ome.Image {self._group.name[:200]!r},{names} {levels} level{'s' * (levels != 1)}>"

    #: NumPy's operators leave comparisons to this class.
    __array_ufunc__ = None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Refuse: NumPy would wrap the object without a word. Which of the levels is meant is for the caller to say."""
        if dtype is not None and np.dtype(dtype).hasobject:
            found = np.empty((), object)
            found[()] = self
            return found
        raise ArgumentError(
            f"{place(self._group)}: an Image is no array; pass the array of one of its levels, such as image.level(0)"
        )

    def _repr_html_(self) -> str:
        from .pages import image_html

        return image_html(self)

    # -- metadata

    @property
    def group(self) -> Group:
        """Group of the image."""
        return self._group

    @property
    def metadata(self) -> OmeMetadata:
        """All OME metadata of the group."""
        return self._metadata

    @property
    def multiscale(self) -> Multiscale:
        """Axes, levels and transformations, as the document has them."""
        return self._image

    @property
    def version(self) -> str:
        """Version of OME-Zarr."""
        return self._metadata.version

    @property
    def name(self) -> str | None:
        """Name of the image."""
        return self._image.name

    @property
    def axes(self) -> tuple[str, ...]:
        """Name of each axis, such as ``("t", "c", "z", "y", "x")``.

        For a document without axes they are told by the array: by its dimension names, or else the last of t, c, z, y
        and x.
        """
        return tuple(axis.name for axis in self.axis_details)

    @property
    def axis_details(self) -> tuple[Axis, ...]:
        """Name, type and unit of each axis."""
        if self._axes is None:
            array = self.level(0)
            self._axes = axes_by_ndim(array.ndim, array.dimension_names, place(self._group))
        return self._axes

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.axis_details)

    @property
    def units(self) -> tuple[str | None, ...]:
        """Unit of each axis; None if it has none."""
        return tuple(axis.unit for axis in self.axis_details)

    @property
    def scale(self) -> tuple[float, ...]:
        """Distance of neighbouring elements of the first level along each axis, in the axis's unit."""
        return self.grid(0).scale

    @property
    def translation(self) -> tuple[float, ...]:
        """Coordinate of the first element of the first level along each axis, in the axis's unit."""
        return self.grid(0).translation

    @property
    def system(self) -> str | None:
        """Name of the coordinate system of scale and translation; ``"physical"`` if the document has no names.

        Of the coordinate systems of an image of SpatialData it is the only one, or else ``"global"``. None if the
        document has several, and does not say which.
        """
        return self._image.physical if self._image.coordinate_systems else PHYSICAL

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Names, colours and windows of the channels; empty if the document has none."""
        return () if self._metadata.omero is None else self._metadata.omero.channels

    @property
    def image_label(self) -> ImageLabel | None:
        """Colours and properties of values, if this is a label image."""
        return self._metadata.image_label

    # -- levels

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first level, in elements."""
        return self.level(0).shape

    @property
    def dtype(self) -> Any:
        """Data type of the elements."""
        return self.level(0).dtype

    @property
    def levels(self) -> tuple[Level, ...]:
        """All levels; each that was not used before costs a request."""
        found = []
        for index in range(len(self._image.datasets)):
            grid = self.grid(index)
            found.append(Level(index, self.level(index), grid.scale, grid.translation))
        return tuple(found)

    def level(self, index: int) -> Array:
        """Return the array of a level; one request when it is first used.

        Parameters
        ----------
        index
            Index of the level; 0 has the highest resolution, −1 the lowest.

        Raises
        ------
        ArgumentError
            If there is no such level.
        NodeNotFoundError, NodeTypeError
            If there is no array where the document says.
        MetadataError
            If the array has another number of dimensions than the image has axes.
        """
        index = self._index(index)
        array = self._arrays.get(index)
        if array is None:
            array = child(self._group, self._image.datasets[index].path, "level")
            if not isinstance(array, Array):
                raise NodeTypeError(f"level {index} of {place(self._group)} is a group, not an array")
            axes = self._image.axes
            if axes is not None and array.ndim != len(axes):
                raise MetadataError(
                    f"level {index} of {place(self._group)} has {array.ndim} dimensions, and the image "
                    f"{len(axes)} axes; gzarr.open_array reads it",
                    json_path="$..multiscales[*].axes",
                )
            self._arrays[index] = array
            self._compare(index)
        return array

    # -- lengths of levels

    def _compare(self, index: int) -> None:
        """Warn if a level that is new here disagrees with level 0 about the length of an axis."""
        if index == 0:
            # Levels that were opened before may have grown since: they are opened again.
            for other in [other for other in self._arrays if other and self._disagreement(other)]:
                del self._arrays[other]
        elif 0 in self._arrays and (text := self._disagreement(index)):
            warn(f"{place(self._group)}: {text}")

    def _disagreement(self, index: int, *, frames: bool = False) -> str:
        """Return which length of a level is not that of level 0, along an axis that is not reduced; "" if none.

        More frames than level 0 has are a disagreement with ``frames`` only: they are being appended, and
        :meth:`gzarr.ome.Image.read` leaves them out.
        """
        for d in self._equal_axes(index):
            first, own = self.level(0).shape[d], self._arrays[index].shape[d]
            if first == own or (own > first and not frames and d in self._frame_axes(index)):
                continue
            return (
                f"level {index} has {own} elements along {self.axes[d]!r}, and level 0 has {first}, at the same scale; "
                "image.append adds to all levels, and gzarr.ome.pyramid(…, overwrite=True) makes them anew"
            )
        return ""

    def _equal_axes(self, index: int) -> list[int]:
        """Return the axes along which a level has the elements of level 0."""
        transforms = self._image.datasets[index].transforms, self._image.datasets[0].transforms
        if not all(transforms):
            # Lengths are all that is known of such levels, so nothing can disagree with them.
            return []
        try:
            scales = self._own_grid(index).scale, self._own_grid(0).scale
        except (MetadataError, UnsupportedError):
            return []
        return [d for d, (a, b) in enumerate(zip(*scales, strict=True)) if math.isclose(a, b, rel_tol=1e-9)]

    def _frame_axes(self, index: int) -> list[int]:
        """Return the axes along which frames may be appended, as far as a level has those of level 0.

        These are axes of time, and others that no level reduces, but for channels that have names.
        """
        types = [axis.type for axis in self.axis_details]
        if self._unreduced is None:
            further = range(1, len(self._image.datasets))
            equal = [self._equal_axes(level) for level in further] or [self._equal_axes(0)]
            self._unreduced = frozenset(equal[0]).intersection(*equal[1:])
        found = set(self._unreduced)
        if "time" in types:
            found.update(d for d in self._equal_axes(index) if types[d] == "time")
        return sorted(d for d in found if types[d] != "channel" or not self.channels)

    def _frames(self, index: int) -> dict[int, int]:
        """Return the number of frames along each axis along which a level has others than level 0, or their image."""
        counts = {} if self._labelled is None else self._frames_of(self._labelled)
        axes = self._frame_axes(index) if index else []
        if not axes:
            return counts
        self.level(index)
        try:
            first = self.level(0)
        except (MetadataError, NodeNotFoundError, NodeTypeError):
            # Other levels can be read without it.
            return {}
        array = self.level(index)
        counts = {d: counts.get(d, first.shape[d]) for d in axes}
        # A level that is shorter along another axis is a smaller one, whose scale is wrong in the document.
        is_time = [axis.type == "time" for axis in self.axis_details]
        return {d: n for d, n in counts.items() if array.shape[d] > n or (array.shape[d] < n and is_time[d])}

    def _frames_of(self, image: ImageLevels) -> dict[int, int]:
        """Return the number of frames of the labelled image along each axis along which these labels have more."""
        try:
            there = {image.axes[d]: d for d in image._frame_axes(0)}
            shared = {d: there[name] for d, name in enumerate(self.axes) if name in there}
            if not shared:
                return {}
            own, first = self.level(0).shape, image.level(0).shape
            # One frame of labels holds for all.
            longer = {d: k for d, k in shared.items() if own[d] > max(first[k], 1)}
            if not longer:
                return {}
            # Elements of labels at another scale are no frames of the image.
            scale, other = self._own_grid(0).scale, image._own_grid(0).scale
        except (MetadataError, NodeNotFoundError, NodeTypeError, UnsupportedError):
            # Labels can be read without their level 0, and without the image.
            return {}
        return {d: first[k] for d, k in longer.items() if math.isclose(scale[d], other[k], rel_tol=1e-9)}

    def _read_shape(self, index: int) -> tuple[int, ...]:
        """Return the shape of what is read of a level: with the frames of level 0, or of the labelled image."""
        frames, shape = self._frames(index), self.level(index).shape
        return tuple(frames.get(d, length) for d, length in enumerate(shape)) if frames else shape

    def grid(self, level: int) -> LevelGrid:
        """Return scale and translation of a ``level``, given by its index.

        Without transformations in the document (versions before 0.4), they are told by the shapes of the levels, in
        elements of the first.

        Raises
        ------
        UnsupportedError
            If a transformation of the level is not a scale and a translation, or if the image has several coordinate
            systems and does not say which one is meant (:attr:`system` is None); elements can be read by their indexes
            all the same.
        MetadataError
            If a transformation has not a number for each axis.
        """
        return in_image(self._own_grid(level), self._image, self._group.name)

    def _own_grid(self, level: int) -> LevelGrid:
        """Return where the elements of a level are without the transformations of the whole image.

        Levels are compared by that: it is known where those are not scales and translations.
        """
        level = self._index(level)
        found = grid_of(self._image, level, self.ndim, self._group.name)
        return grid_by_shape(self.level(level).shape, self.level(0).shape) if found is None else found

    def _index(self, level: Any) -> int:
        """Return the index of a level from 0 on."""
        count, number = len(self._image.datasets), as_integer(level)
        if number is None or not -count <= number < count:
            raise ArgumentError(f"{place(self._group)} has levels 0 to {count - 1}, not {quote(level)}")
        return number % count
