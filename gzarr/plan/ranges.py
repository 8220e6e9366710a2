"""Many ranges of an array with one dimension, of different lengths, that become one array in the order given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..metadata.chunk_grid import RegularAxis
from .axes import IntArray, Slices, offsets_of, sort_groups, uneven
from .planner import Plan, check_int64

if TYPE_CHECKING:
    from ..metadata.chunk_grid import ChunkGrid


def joined_ranges(starts: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Return the same ranges with fewer of them: empty ones are left out, and neighbours that follow each other joined.

    Parameters
    ----------
    starts, counts
        int64 ``(r,)``, first element and number of elements of each range.
    """
    some = counts > 0
    if not some.all():
        starts, counts = starts[some], counts[some]
    if len(starts) < 2:
        return starts, counts
    ends = starts + counts
    first = np.flatnonzero(np.append(True, starts[1:] != ends[:-1]))
    return starts[first], ends[np.append(first[1:], len(starts)) - 1] - starts[first]


def plan_ranges(starts: IntArray, counts: IntArray, grid: ChunkGrid) -> Plan:
    """Plan the read of ranges, one after the other, into output 0.

    Parameters
    ----------
    starts, counts
        int64 ``(r,)``, first element and number of elements of each range. Every range is inside the array; they may
        overlap, and be in any order.
    grid
        Grid of the array's chunks, or of the inner chunks of its shards; it has one dimension.

    Returns
    -------
    As for :func:`gzarr.plan.planner.plan`: a chunk is planned once, even if several ranges touch it.

    Raises
    ------
    SelectionError
        If coordinates do not fit 64 bits.
    """
    check_int64(grid)
    (along,) = grid.axes
    starts, counts = joined_ranges(starts, counts)
    # Empty ranges are gone, so each has a row.
    dimension = (
        Slices(starts, counts, 1, along.length) if isinstance(along, RegularAxis) else uneven(starts, counts, 1, along)
    )
    rows = dimension.rows()
    found = dimension.axis(rows)
    target = found.target + np.repeat(offsets_of(counts), rows)
    order, first = sort_groups([found.coord], len(target))
    return Plan(
        grid.chunk_shape,
        found.coord[order[first]][:, np.newaxis],
        np.append(first, len(order)),
        found.start[order][:, np.newaxis],
        found.count[order][:, np.newaxis],
        target[order][:, np.newaxis],
        np.zeros(len(order), np.int64),
        np.ones(1, np.int64),
        (None,),
    )
