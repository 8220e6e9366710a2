"""PNG files of pictures, without another library.

Source: https://www.w3.org/TR/png-3/ (chunks: section 5, filters: section 9).
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_RGB: Final = 2
#: Filters of rows: none, for few colours, and the difference from the row above, for photographs.
_NONE: Final = 0
_UP: Final = 2


def png(pixels: npt.NDArray[Any]) -> bytes:
    """Return a PNG file.

    Parameters
    ----------
    pixels
        Red, green and blue, u1 ``(y, x, 3)``; y and x at least 1.
    """
    height, width, _ = pixels.shape
    rows = np.ascontiguousarray(pixels).reshape(height, -1)
    above = np.vstack([np.zeros_like(rows[:1]), rows[:-1]])
    data = min((_packed(_NONE, rows), _packed(_UP, rows - above)), key=len)
    header = struct.pack(">2I5B", width, height, 8, _RGB, 0, 0, 0)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _packed(kind: int, rows: npt.NDArray[Any]) -> bytes:
    return zlib.compress(np.insert(rows, 0, kind, axis=1).tobytes(), 6)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
