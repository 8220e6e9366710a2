"""Pictures for notebooks: small, of stores that answer at once, and made of few chunks. If that is not enough, none.

A picture of an image is its smallest level. It is made only if the store is at hand (:mod:`gzarr.stores.at_hand`), so
no request is sent, and if at most :data:`MOST_CHUNKS` chunks of together at most :data:`MOST_BYTES` decoded bytes have
to be read: of all planes, or else of the one in the middle. Pictures of plates have these limits for all wells
together, and end after :data:`MOST_SECONDS`. What cannot be read leaves the picture out, never the display.
"""

from __future__ import annotations

import base64
import contextlib
import time
import warnings
from typing import TYPE_CHECKING, Any, Final

from ..display.png import png
from ..errors import GzarrError
from ..hierarchy.open import open_group
from ..stores.at_hand import is_at_hand
from .mosaics import MosaicWindows, mosaic, tile_of
from .rendering import Look, PlannedPicture

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    Pixels = npt.NDArray[np.uint8]

#: Pixels of the longer side.
SIZE: Final = 160
PLATE_SIZE: Final = 384
#: Most chunks that are read, and most bytes of their elements.
MOST_CHUNKS: Final = 64
MOST_BYTES: Final = 16 << 20
#: Most wells of a plate that is drawn, most places for wells, and most seconds until the last one is begun.
MOST_WELLS: Final = 96
MOST_PLACES: Final = 4096
MOST_SECONDS: Final = 1.0
_LEVELS: Final = -1


class PictureBudget:
    """What may still be read."""

    def __init__(self) -> None:
        self._chunks, self._nbytes = MOST_CHUNKS, MOST_BYTES

    def take(self, planned: PlannedPicture) -> bool:
        """Return whether a picture may be read, and take what it costs."""
        chunks, nbytes = planned.cost()
        if chunks > self._chunks or nbytes > self._nbytes:
            return False
        self._chunks -= chunks
        self._nbytes -= nbytes
        return True


def image_picture(image: Any) -> str:
    """Return a small picture of an image as HTML; ``""`` if it would cost too much, or cannot be read."""
    if not is_at_hand(image.group.store):
        return ""
    with _quiet():
        look = affordable(image, PictureBudget())
        return "" if look is None else _html(PlannedPicture(_on_host(image), look).small_pixels(SIZE))
    return ""


def affordable(image: Any, budget: PictureBudget) -> Look | None:
    """Return what of an image can be shown within a budget, which is reduced; None if nothing can."""
    for z in ("max", "middle"):
        look = Look(level=_LEVELS, z=z, size=SIZE, is_thinned=True)
        if budget.take(PlannedPicture(image, look)):
            return look
    return None


def plate_picture(plate: Any) -> str:
    """Return a small picture of a plate as HTML; ``""`` if it would cost too much, or cannot be read."""
    if not is_at_hand(plate.group.store) or not 0 < len(plate) <= MOST_WELLS:
        return ""
    if len(plate.rows) * len(plate.columns) > MOST_PLACES:
        return ""
    begin, budget, windows, tiles = time.monotonic(), PictureBudget(), MosaicWindows(), {}
    tile = tile_of(PLATE_SIZE, len(plate.rows), len(plate.columns))
    with _quiet():
        for at in sorted(plate._paths):
            try:
                image = _on_host(plate[plate._paths[at]][0])
            except (GzarrError, IndexError):
                continue
            look = affordable(image, budget)
            if look is None or time.monotonic() - begin > MOST_SECONDS:
                return ""
            tiles[at] = windows.pixels(image, look, tile)
        return _html(mosaic(tiles, len(plate.rows), len(plate.columns), tile)) if tiles else ""
    return ""


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leave out warnings, which were given when the node was opened, and errors of what cannot be shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(GzarrError, OSError, ValueError, MemoryError, OverflowError):
            yield


def _on_host(image: Any) -> Any:
    """Return an image whose arrays are read to host memory."""
    group = open_group(image.group.store, path=image.group.path, device="cpu")
    return type(image)(group, image.metadata, image._number)


def _html(pixels: Pixels) -> str:
    data = base64.b64encode(png(pixels)).decode()
    height, width, _ = pixels.shape
    return f'<img src="data:image/png;base64,{data}" width="{width}" height="{height}" alt="a picture of it"/>'
