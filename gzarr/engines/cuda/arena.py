"""Alignments and sizes that all parts of a wave's arena share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, overload

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]

#: Alignment of chunks and regions, in bytes.
ALIGNMENT: Final = 256
#: Bytes per frame in the results: bytes produced, decoder status, checksum status.
RESULT_BYTES: Final = 16
#: What words of results hold until the device writes them: a size that no frame has, and statuses of failure.
NOT_WRITTEN: Final = -1
#: Bytes per chunk after those, if filters mark chunks.
MARK_BYTES: Final = 8


@overload
def aligned(nbytes: int, to: int = ...) -> int: ...
@overload
def aligned(nbytes: IntArray, to: int = ...) -> IntArray: ...
def aligned(nbytes: Any, to: int = ALIGNMENT) -> Any:
    """Return ``nbytes`` rounded up to a multiple of ``to``."""
    return -(-nbytes // to) * to
