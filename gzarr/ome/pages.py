"""HTML of images, labels, plates, wells and collections for notebooks.

It has what is in the metadata that were read already; levels that were not used are only opened, and small pictures
only read, in stores that answer at once (:mod:`gzarr.stores.at_hand`). The classes import this module, so it does not
name them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from ..display.drawing import cells
from ..display.page import array_drawing, escaped, page, table
from ..display.text import short_size
from ..errors import GzarrError
from ..stores.at_hand import is_at_hand
from .coloring import digits_of
from .small_pictures import image_picture, plate_picture

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..arrays.array import Array

#: Most lines of a list, and most rows and columns of a plate that are drawn.
_MOST: Final = 50


def image_html(image: Any) -> str:
    """Return an image as HTML."""
    arrays = _known_levels(image)
    first = arrays[0] if arrays else None
    rows = [["OME-Zarr", escaped(image.version)]]
    if image.name:
        rows.insert(0, ["Name", escaped(image.name)])
    if image.multiscale.axes is not None:
        axes = [axis.name if axis.unit is None else f"{axis.name} ({axis.unit})" for axis in image.multiscale.axes]
        rows.append(["Axes", escaped(", ".join(axes))])
    if image.channels:
        shown = ", ".join(_channel(channel.label, channel.color) for channel in image.channels[:_MOST])
        rows.append(["Channels", shown + _more(image.channels)])
    if first is not None:
        rows.append(["Data type", escaped(first.dtype)])
        rows.append(["Device", escaped(first.device)])
        rows.append(["Decoded by", escaped(first.decode_path)])
    rows.append(["Store", escaped(repr(image.group.store))])
    levels = [_level(image, index, array) for index, array in enumerate(arrays)]
    left = len(image.multiscale.datasets) - len(arrays)
    if left:
        levels.append([f"and {left:,} more"])
    tables = table(rows) + table(levels, ["Level", "Shape", "Distances", "Chunks", "Size"])
    drawing = "" if first is None else array_drawing(first)
    return page(f"gzarr.ome.Image {image.group.name}", [image_picture(image), tables, drawing])


def _known_levels(image: Any) -> list[Array | None]:
    """Return the arrays of the first levels; None for those that are unknown."""
    at_hand = is_at_hand(image.group.store)
    found: list[Array | None] = []
    for index in range(min(len(image.multiscale.datasets), _MOST)):
        array = image._arrays.get(index)
        if array is None and at_hand:
            try:
                array = image.level(index)
            except (GzarrError, OSError):
                array = None
        found.append(array)
    return found


def _level(image: Any, index: int, array: Array | None) -> list[str]:
    path = escaped(image.multiscale.datasets[index].path, 60)
    if array is None:
        return [str(index), f"at {path}"]
    try:
        distances = " × ".join(f"{step:g}" for step in image.grid(index).scale)
    except GzarrError:
        distances = "unknown"
    chunks = escaped(array.chunks)
    if array.shards is not None:
        chunks += f" in shards {escaped(array.shards)}"
    size = short_size(math.prod(array.shape) * array.dtype.itemsize)
    return [str(index), escaped(array.shape), escaped(distances), chunks, size]


def _channel(label: str | None, color: str | None) -> str:
    square = ""
    # Colours of hostile documents are not put into a style.
    digits = digits_of(color)
    if digits is not None:
        square = (
            f'<span style="display:inline-block;width:0.8em;height:0.8em;background:#{digits};'
            'border:1px solid currentColor"></span> '
        )
    return square + (escaped(label, 60) if label else "no name")


def plate_html(plate: Any) -> str:
    """Return a plate as HTML."""
    rows = [
        ["OME-Zarr", escaped(plate.metadata.version)],
        ["Rows", _list(plate.rows)],
        ["Columns", _list(plate.columns)],
        ["Wells", f"{len(plate):,}"],
    ]
    if plate.name:
        rows.insert(0, ["Name", escaped(plate.name)])
    if plate.acquisitions:
        rows.append(["Acquisitions", f"{len(plate.acquisitions):,}"])
    rows.append(["Store", escaped(repr(plate.group.store))])
    drawing = ""
    if 0 < len(plate.rows) <= _MOST and 0 < len(plate.columns) <= _MOST:
        drawing = cells(plate.rows, plate.columns, plate._paths)
    return page(f"gzarr.ome.Plate {plate.group.name}", [plate_picture(plate), table(rows), drawing])


def well_html(well: Any) -> str:
    """Return a well as HTML."""
    paths = [field.path for field in well.fields]
    rows = [["Fields", _list(paths)], ["Store", escaped(repr(well.group.store))]]
    return page(f"gzarr.ome.Well {well.group.name}", [table(rows)])


def names_html(title: str, what: str, names: Sequence[str] | None) -> str:
    """Return a list of names as HTML; None for names that are not known without a request."""
    return page(title, [table([[what, "not read yet" if names is None else _list(names) or "none"]])])


def _list(names: Iterable[str]) -> str:
    found = list(names)
    return ", ".join(escaped(name, 60) for name in found[:_MOST]) + _more(found)


def _more(found: Sequence[object]) -> str:
    return f" and {len(found) - _MOST:,} more" if len(found) > _MOST else ""
