"""What everything in the arena of a wave goes by: alignments, and bytes of results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, overload

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]

#: Where chunks and regions begin.
ALIGNMENT: Final = 256
#: Bytes a frame takes in the results: bytes produced, status, checksum's status.
RESULT_BYTES: Final = 16
#: Bytes a chunk takes behind them, if filters mark chunks.
MARK_BYTES: Final = 8


@overload
def aligned(nbytes: int, to: int = ...) -> int: ...
@overload
def aligned(nbytes: IntArray, to: int = ...) -> IntArray: ...
def aligned(nbytes: Any, to: int = ALIGNMENT) -> Any:
    """Return the least multiple of ``to`` that is not below ``nbytes``."""
    return -(-nbytes // to) * to
