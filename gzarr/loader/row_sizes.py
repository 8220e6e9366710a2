"""How many bytes rows of sparse matrices take in a block, with the samples of the arrays beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from .cells import Cells
    from .reading import Reading, Source
    from .samples import Samples

    IntArray = npt.NDArray[np.int64]


def entries_nbytes(source: Source, rows: IntArray) -> int:
    """Return the bytes of rows of a matrix in memory."""
    offsets = source.row_offsets
    return int((offsets[rows + 1] - offsets[rows]).sum()) * source.entry_nbytes + 8 * len(rows)


def other_nbytes(reading: Reading) -> int:
    """Return the bytes of a sample's arrays other than rows of matrices."""
    numbers = {source.number for source in reading.sources if not source.is_rows}
    return sum(reading.outputs[number].nbytes for number in numbers)


def row_group_bytes(samples: Samples, reading: Reading, cells: Cells) -> IntArray:
    """Return the bytes that the samples of each group take, int64 ``(groups,)``."""
    counts = np.diff(cells.offsets)
    result: IntArray = counts * other_nbytes(reading)
    if not len(counts):
        return result
    for source in reading.sources:
        if not source.is_rows:
            continue
        offsets = source.row_offsets
        numbers = np.append(cells.offsets[:-1], cells.offsets[-1] - 1) if samples.is_line else None
        if numbers is None:
            # Drawn ones, of which one may come several times.
            origins = samples.origins(cells, np.arange(cells.offsets[-1]), 0, 0)
            rows = source.inside(origins)[:, 0]
            entries = np.add.reduceat(offsets[rows + 1] - offsets[rows], cells.offsets[:-1])
        else:
            rows = source.inside(samples.origins(cells, numbers, 0, 0))[:, 0]
            entries = np.diff(offsets[np.append(rows[:-1], rows[-1] + 1)])
        result = result + entries * source.entry_nbytes + 8 * counts
    return result
