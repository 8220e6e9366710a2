"""Methods of images, plates and wells that make pictures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from ..errors import ArgumentError

#: Names of files end like this if they are pictures of another format.
_OTHERS: Final = frozenset(
    (".avif", ".bmp", ".eps", ".gif", ".heic", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg", ".jxl", ".pdf", ".svg", ".tif",
     ".tiff", ".webp")
)  # fmt: skip


def check_name(file: Any) -> None:
    """Refuse the path of a picture that ends like one of another format, before anything is read.

    Raises
    ------
    ArgumentError
        If it does.
    """
    if isinstance(file, str | os.PathLike):
        ending = Path(os.fsdecode(file)).suffix
        if ending.lower() in _OTHERS:
            raise ArgumentError(f"pictures are written as PNG files: end the name in .png, not in {ending}")


class ImagePictures:
    """The part of :class:`gzarr.ome.Image` that makes pictures."""

    def render(
        self,
        *,
        c: Any = None,
        z: Any = "max",
        level: Any = "auto",
        size: int = 512,
        file: Any = None,
        **selection: Any,
    ) -> Any:
        """Return a picture of the image, with the colours and windows of its document.

        Channels are added up in their colours, each between the values of its window (``omero``). Of a channel without
        a window, these are the 1st and the 99.9th percentile of the same planes at the smallest level. Of a label
        image, each label has the colour that ``image-label`` gives it, or one of a fixed palette; 0 is black.

        Parameters
        ----------
        c
            Channel or channels, as for :meth:`read`. None for those that the document says are active; channels of
            which it says nothing are added until there are 6.
        z
            What of the third axis of space is shown: the largest element along it (``"max"``), the mean (``"mean"``),
            the plane in the middle (``"middle"``), one plane (an integer), or the largest of some planes (a slice).
        level
            Index of the level; ``"auto"`` for the coarsest one with at least ``size`` elements along the longer side of
            the picture. Selections then count elements of the first level. If even that level has more than twice as
            many, elements are left out: every second one, for example.
        size
            See ``level``.
        file
            Path of a PNG file to be written as well, or a file that takes bytes.
        **selection
            By name of an axis: slices of y and x; of others an integer, 0 by default, or the document's default time.

        Returns
        -------
        Red, green and blue, u1 ``(y, x, 3)``, on the image's device.

        Raises
        ------
        ArgumentError, SelectionError
            If an argument is wrong, nothing is selected, or the image has fewer than two axes of space.
        UnsupportedError
            If elements are no numbers, or labels no integers.
        NodeNotFoundError, MetadataError, ChunkError, StoreError, DeviceError
            As for :meth:`read`; also if the file cannot be written.
        """
        from ..display.png import write_png
        from .coloring import on_host
        from .rendering import Look, PlannedPicture

        check_name(file)
        picture = PlannedPicture(self, Look(c=c, z=z, level=level, size=size, others=tuple(selection.items()))).pixels()
        if file is not None:
            write_png(on_host(picture), file)
        return picture

    def thumbnail(
        self,
        size: int = 256,
        *,
        c: Any = None,
        z: Any = "max",
        level: Any = "auto",
        file: Any = None,
        **selection: Any,
    ) -> bytes:
        """Return a small picture as a PNG file, with at most ``size`` pixels along its longer side.

        Parameters
        ----------
        size
            Pixels of the longer side; smaller images stay as they are. A pixel is the mean of the elements of
            :meth:`render` that it covers, or of labels the one in the middle.
        c, z, level, file, **selection
            As for :meth:`render`.

        Returns
        -------
        The bytes of the file.

        Raises
        ------
        ArgumentError, SelectionError, UnsupportedError, NodeNotFoundError, MetadataError, ChunkError, StoreError,
        DeviceError
            As for :meth:`render`.
        """
        from ..display.png import write_png
        from .rendering import Look, PlannedPicture

        check_name(file)
        look = Look(c=c, z=z, level=level, size=size, others=tuple(selection.items()))
        return write_png(PlannedPicture(self, look).small_pixels(size), file)


class PlatePictures:
    """The part of :class:`gzarr.ome.Plate` that makes pictures."""

    def thumbnail(
        self,
        size: int = 512,
        *,
        field: int = 0,
        c: Any = None,
        z: Any = "max",
        level: Any = "auto",
        file: Any = None,
        **selection: Any,
    ) -> bytes:
        """Return a picture of the plate as a PNG file: a field of each well, at its row and column.

        All wells have the windows of the first one, so that they can be compared. Each well costs several requests.

        Parameters
        ----------
        size
            About the number of pixels of the longer side; each well has at least 4.
        field
            Number of the field in each well.
        c, z, level, file, **selection
            As for :meth:`Image.render`.

        Returns
        -------
        The bytes of the file.

        Raises
        ------
        ArgumentError
            Also if the plate has no wells, or more than 65,536 places for them.
        SelectionError, UnsupportedError, MetadataError, ChunkError, StoreError, DeviceError
            As for :meth:`Image.render`, for the first well that cannot be shown.
        """
        from ..display.png import write_png
        from .mosaics import plate_pixels
        from .rendering import Look

        check_name(file)
        look = Look(c=c, z=z, level=level, size=size, others=tuple(selection.items()))
        return write_png(plate_pixels(self, look, field), file)


class WellPictures:
    """The part of :class:`gzarr.ome.Well` that makes pictures."""

    def thumbnail(
        self,
        size: int = 512,
        *,
        c: Any = None,
        z: Any = "max",
        level: Any = "auto",
        file: Any = None,
        **selection: Any,
    ) -> bytes:
        """Return a picture of the well as a PNG file: its fields side by side, with the windows of the first one.

        Parameters
        ----------
        size
            About the number of pixels of the longer side.
        c, z, level, file, **selection
            As for :meth:`Image.render`.

        Returns
        -------
        The bytes of the file.

        Raises
        ------
        ArgumentError, SelectionError, UnsupportedError, MetadataError, ChunkError, StoreError, DeviceError
            As for :meth:`Image.render`.
        """
        from ..display.png import write_png
        from .mosaics import well_pixels
        from .rendering import Look

        check_name(file)
        look = Look(c=c, z=z, level=level, size=size, others=tuple(selection.items()))
        return write_png(well_pixels(self, look), file)
