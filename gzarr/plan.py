"""A selection of an array as columns: which chunks, and which box of each goes where. No object per chunk.

``n`` chunks, ``m`` pieces, ``k`` placement dimensions (the array's dimensions), ``g`` outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class IndexTable:
    """Integer-array selection along one dimension, sorted by chunk.

    Attributes
    ----------
    source
        int64, index within the chunk.
    target
        int64, index along the same dimension of the output.
    """

    source: IntArray
    target: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Point selection (``vindex``, masks), sorted by chunk.

    Attributes
    ----------
    source
        int64 ``(p, k)``, coordinates within the chunk.
    target
        int64 ``(p,)``, position in the output, counted in C order.
    """

    source: IntArray
    target: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What to read and where it goes.

    Element ``j`` along dimension ``d`` of piece ``p`` is, in the chunk, ``start[p, d] + j * step[d]`` and, in output
    ``output[p]``, ``target[p, d] + j``, for ``j < count[p, d]``. Where ``tables[d]`` is an :class:`IndexTable`, ``start``
    and ``count`` give rows of the table instead, and ``target[p, d]`` is 0.
    Where ``points`` is not None, ``start[p, 0]`` and ``count[p, 0]`` give rows of ``points`` and the other columns are 0 and 1.

    Attributes
    ----------
    chunk_shape
        Of the grid that was planned over, in elements.
    chunks
        int64 ``(n, k)``, grid coordinates, each chunk once.
    piece_offsets
        int64 ``(n + 1,)``: the pieces of chunk ``i`` are rows ``piece_offsets[i]`` to ``piece_offsets[i + 1]``.
    start, count, target
        int64 ``(m, k)``; ``count`` is at least 1.
    output
        int64 ``(m,)``, index of the output array (all 0 but for ``read_many``).
    step
        int64 ``(k,)``, at least 1. A negative step of the selection is a reversed view of the output.
    tables
        One entry a dimension: None for slices and integers.
    points
        Not None for point selections.
    """

    chunk_shape: tuple[int, ...]
    chunks: IntArray
    piece_offsets: IntArray
    start: IntArray
    count: IntArray
    target: IntArray
    output: IntArray
    step: IntArray
    tables: tuple[IndexTable | None, ...]
    points: Points | None = None

    def __len__(self) -> int:
        return len(self.chunks)


Any  # noqa: B018  (placeholder until the planner lands)
