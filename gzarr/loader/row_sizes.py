"""How many bytes rows of sparse matrices take in a block or a read, with the samples of the arrays beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from .cells import Cells
    from .reading import Reading, Source
    from .samples import Samples

    IntArray = npt.NDArray[np.int64]

# Samples whose bytes are counted at once.
_AT_ONCE: Final = 1 << 16


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


def row_sample_bytes(reading: Reading, origins: IntArray, *, in_batches: bool = False) -> IntArray:
    """Return the bytes that each sample of some origins takes as it is read, int64 ``(n,)``.

    Parameters
    ----------
    reading
        What is read for a sample.
    origins
        int64 ``(n, columns)``.
    in_batches
        Whether to return those of a batch instead, of which rows of matrices stay sparse: at most, if columns are
        chosen.
    """
    result = np.full(len(origins), other_nbytes(reading), np.int64)
    for source in reading.sources:
        if source.is_rows:
            offsets, rows = source.row_offsets, source.inside(origins)[:, 0]
            each = source.array.dtype.itemsize + 4 if in_batches else source.entry_nbytes
            result += (offsets[rows + 1] - offsets[rows]) * each + 8
    return result


def cut_by_bytes(
    nbytes: Callable[[int, int], IntArray], begin: int, end: int, least: int, most_bytes: int
) -> tuple[list[int], int]:
    """Cut turns into reads, each at most twice as long as the one before.

    Parameters
    ----------
    nbytes
        Returns the bytes of each turn from one to another, int64 ``(n,)``.
    begin, end
        The turns.
    least
        Turns of the first read, and fewest turns of a read, whatever they take.
    most_bytes
        Most bytes of longer ones.

    Returns
    -------
    The turns at which reading is cut, both ends included, and the bytes of the largest read.
    """
    bounds, length, largest = [begin], least, 0
    # Bytes of the turns from `known` on, summed up: each turn is counted once.
    known, sums = begin, np.empty(0, np.int64)
    while (first := bounds[-1]) < end:
        at, last, total = first, min(first + length, end), 0
        while at < last:
            if at >= known + len(sums):
                known, sums = at, np.cumsum(nbytes(at, min(at + _AT_ONCE, end)))
            so_far = sums[at - known : last - known] + (total - (int(sums[at - known - 1]) if at > known else 0))
            # As many of these as fit, and those that belong to the read anyway.
            taken = max(int(so_far.searchsorted(most_bytes, "right")), min(first + least - at, len(so_far)))
            if taken > 0:
                at, total = at + taken, int(so_far[taken - 1])
            if taken < len(so_far):
                break
        bounds.append(at)
        length, largest = 2 * (at - first), max(largest, total)
    return bounds, largest
