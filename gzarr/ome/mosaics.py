"""Pictures side by side: the wells of a plate, and the fields of a well."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..documents.json import quote
from ..errors import ArgumentError, NodeNotFoundError, NodeTypeError
from ..integers import as_integer
from .nodes import place
from .rendering import Look, PlannedPicture, size_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt

    Place = tuple[int, int]
    Pixels = npt.NDArray[np.uint8]

#: Grey of the lines between pictures, and of places without one.
_LINE: Final = 96
_EMPTY: Final = 40
#: Most places of a plate that is shown: of more, a few bytes of metadata would make a picture of any size.
_MOST_PLACES: Final = 1 << 16
#: Fewest pixels of one picture.
_SMALLEST: Final = 4
#: Wells that are opened and read side by side, as each of them waits for several requests.
_SIDE_BY_SIDE: Final = 8


def mosaic(tiles: Mapping[Place, Pixels], rows: int, columns: int, tile: int) -> Pixels:
    """Return pictures in a grid, with lines of one pixel between and around them.

    Parameters
    ----------
    tiles
        Pictures, u1 ``(y, x, 3)``, of at most ``tile`` pixels along each side, by row and column.
    rows, columns
        Numbers of rows and of columns.
    tile
        Pixels of each side of a place.
    """
    # Fields are rarely square: places are as large as the largest picture.
    height = max((one.shape[0] for one in tiles.values()), default=tile)
    width = max((one.shape[1] for one in tiles.values()), default=tile)
    picture = np.full((rows * (height + 1) + 1, columns * (width + 1) + 1, 3), _LINE, np.uint8)
    for row in range(rows):
        for column in range(columns):
            y, x = row * (height + 1) + 1, column * (width + 1) + 1
            at = picture[y : y + height, x : x + width]
            one = tiles.get((row, column))
            at[...] = _EMPTY if one is None else 0
            if one is not None:
                above, left = (height - one.shape[0]) // 2, (width - one.shape[1]) // 2
                at[above : above + one.shape[0], left : left + one.shape[1]] = one
    return picture


class MosaicWindows:
    """Windows of channels that all pictures of a mosaic share, so that they can be compared: the first one's."""

    def __init__(self) -> None:
        self._found: dict[Any, tuple[float, float]] = {}

    def pixels(self, image: Any, look: Look, tile: int) -> Pixels:
        """Return a picture of an image in host memory, of at most ``tile`` pixels along each side."""
        return _Alike(image, look, self._found).small_pixels(tile)


class _Alike(PlannedPicture):
    def __init__(self, image: Any, look: Look, found: dict[Any, tuple[float, float]]) -> None:
        super().__init__(image, look)
        self._windows = found

    def window(self, number: Any, plane: Any) -> tuple[float, float]:
        found = self._windows.get(number)
        if found is None:
            found = self._windows[number] = super().window(number, plane)
        return found


def plate_pixels(plate: Any, look: Look, field: int) -> Pixels:
    """Return the picture of a plate: a field of each well, at its row and column; ``look.size`` is for all of it.

    Raises
    ------
    ArgumentError
        If the plate has no wells, or too many rows and columns.
    """
    rows, columns = len(plate.rows), len(plate.columns)
    if not len(plate):
        raise ArgumentError(f"{place(plate.group)} has no wells yet")
    if rows * columns > _MOST_PLACES:
        raise ArgumentError(
            f"{place(plate.group)} has {rows:,} rows and {columns:,} columns, and at most {_MOST_PLACES:,} places are "
            "shown in one picture; make pictures of its wells"
        )
    tile = tile_of(look.size, rows, columns)
    wells = {at: (lambda path=path: _field(plate[path], field)) for at, path in plate._paths.items()}
    return mosaic(_tiles(wells, look, tile), rows, columns, tile)


def well_pixels(well: Any, look: Look) -> Pixels:
    """Return the picture of a well: its fields in rows, in a grid that is about square.

    Raises
    ------
    ArgumentError
        If the well has no fields.
    """
    count = len(well)
    if not count:
        raise ArgumentError(f"{place(well.group)} has no fields yet")
    columns = math.ceil(math.sqrt(count))
    rows = -(-count // columns)
    tile = tile_of(look.size, rows, columns)
    fields = {divmod(i, columns): (lambda i=i: well[i]) for i in range(count)}
    return mosaic(_tiles(fields, look, tile), rows, columns, tile)


def tile_of(size: int, rows: int, columns: int) -> int:
    """Return the pixels of each picture of a grid that has about ``size`` pixels along its longer side."""
    return max(_SMALLEST, size_of(size) // max(rows, columns) - 1)


def _field(well: Any, field: int) -> Any:
    number = as_integer(field)
    if number is None or number < 0:
        raise ArgumentError(f"field must be an integer of at least 0, not {quote(field)}")
    return well[number] if number < len(well) else None


def _tiles(images: Mapping[Place, Any], look: Look, tile: int) -> dict[Place, Pixels]:
    """Return the pictures of some images, given as functions that open them; the first one decides the windows."""
    windows = MosaicWindows()
    small = Look(c=look.c, z=look.z, level=look.level, size=tile, others=look.others)

    def made(at: Place) -> tuple[Place, Pixels | None]:
        try:
            image = images[at]()
        except (NodeNotFoundError, NodeTypeError):
            # A plate may list wells that are not there, or not complete, and shows the others all the same.
            return at, None
        return at, None if image is None else windows.pixels(image, small, tile)

    places = sorted(images)
    found: list[tuple[Place, Pixels | None]] = []
    while places and all(pixels is None for _, pixels in found):
        found.append(made(places.pop(0)))
    found.extend(_side_by_side(made, places))
    return {at: pixels for at, pixels in found if pixels is not None}


def _side_by_side(made: Any, places: Iterable[Place]) -> list[tuple[Place, Pixels | None]]:
    with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="gzarr-wells") as pool:
        return list(pool.map(made, places))
