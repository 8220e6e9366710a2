"""PNG files of pictures, without another library.

Source: https://www.w3.org/TR/png-3/ (chunks: section 5, filters: section 9).
"""

from __future__ import annotations

import os
import struct
import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..errors import ArgumentError, StoreError

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


def write_png(pixels: npt.NDArray[Any], file: Any) -> bytes:
    """Return a PNG file, which is also written.

    Parameters
    ----------
    pixels
        Red, green and blue, u1 ``(y, x, 3)``, in host memory.
    file
        Path, or a file that takes bytes; None for neither.

    Raises
    ------
    ArgumentError
        If ``file`` is none of these.
    StoreError
        If it cannot be written.
    """
    data = png(pixels)
    if file is None:
        return data
    if not (hasattr(file, "write") or isinstance(file, str | os.PathLike)):
        raise ArgumentError(f"file must be a path or a file that takes bytes, not {type(file).__name__}")
    try:
        if hasattr(file, "write"):
            file.write(data)
        else:
            with open(file, "wb") as target:  # noqa: PTH123
                target.write(data)
    except (OSError, ValueError) as error:
        # A path with a NUL is a ValueError.
        reason = getattr(error, "strerror", None) or error
        raise StoreError(f"the picture cannot be written to {file!r}: {reason}") from error
    except TypeError as error:
        raise ArgumentError(f"file must take bytes: open it with 'wb' ({error})") from error
    return data


def _packed(kind: int, rows: npt.NDArray[Any]) -> bytes:
    return zlib.compress(np.insert(rows, 0, kind, axis=1).tobytes(), 6)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
