"""Images: arrays of several resolutions, whose axes have names, types and units."""

from __future__ import annotations

from copy import copy
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .. import plugins
from ..errors import ReadOnlyError
from ..flags import check_flags
from ..hierarchy.open import open_group
from .image_levels import Level
from .image_reads import ImageReads
from .labels import Labels, labels_of
from .metadata.parse import parse
from .nodes import place, read_metadata
from .picture_methods import ImagePictures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..hierarchy.group import Group
    from .metadata.model import Channel, OmeMetadata

__all__ = ["Image", "Level", "image_of"]


class Image(ImageReads, ImagePictures):
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
            # Of a copy, with the same levels: images that lead to themselves would be freed, with their stores, late.
            self._labels = labels_of(self._group, partial(_labels_of, copy(self)))
        return self._labels

    def to_xarray(self, level: int = 0) -> Any:
        """Return a ``level``, given by its index, as an ``xarray.DataArray``, which is read when it is indexed.

        Its coordinates say where elements lie, in the units of the axes, and the labels of the channels if all have
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
        call that fails leaves the image as it was, unless level 0 was complete in the store: then all arrays keep the
        frames, and a note of the error says so. One that is killed does so for readers, and the next append goes on
        from there. Frames that levels lack, because something was appended to level 0 only, are made first.

        Parameters
        ----------
        frames
            Array of the shape of level 0, but of any length along ``axis``; or one frame, without that axis. Of an
            image, level 0 is taken. It is held in memory with its levels.
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
        NodeNotFoundError, NodeTypeError, MetadataError, ChunkError, StoreError, DeviceError
            As for :meth:`gzarr.Array.append`, and if labels that are listed are not complete; the image is as it was,
            except as said above.
        """
        self._check_writable()
        check_flags(lock=lock)
        # Levels and labels may have been added since.
        group = open_group(self._group.store, path=self._group.path, mode="r+")
        current = Image(group, parse(group.attrs), self._number)
        try:
            shape: tuple[int, ...] = _writing("appending").append(
                current, frames, axis, {} if labels is None else labels, method=method, lock=lock
            )
        finally:
            # They are opened again with the options of the image: frames may have come from another device, and may be
            # there although the call failed.
            self._arrays, self._unreduced, self._labels = {}, None, None
        self._metadata, self._image = current._metadata, current._image
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
            Unit of each axis, likewise, or None for an axis without one; one text for all axes of space. Names are
            written as by :func:`gzarr.ome.create`.
        channels
            Name or :class:`gzarr.ome.metadata.model.Channel` of each channel, which has its colour and its window. A
            name keeps what the channel has besides: for other colours or windows, pass
            ``[dataclasses.replace(c, color="00FF00") for c in image.channels]``. A name of a new channel gets a colour
            and all values of an integer type, or of floats those from the lowest to the highest value of the smallest
            level, which is read for that.
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
        ChunkError, DeviceError
            As for :meth:`gzarr.Array.read`, if the smallest level is read.
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


def _writing(module: str) -> Any:
    """Return a module that changes images, known by name only: these modules make images."""
    return import_module(f"gzarr.ome.writing.{module}")


def _labels_of(image: Image, group: Group) -> Image:
    """Return labels of an image; costs no request."""
    labels = image_of(group)
    labels._labelled = image
    return labels


def image_of(group: Group) -> Image:
    """Return the image of a group; costs no request."""
    return Image(group, read_metadata(group))
