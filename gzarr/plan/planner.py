"""Plans: the chunks that a selection touches and the destination of each piece, as columns without objects per chunk.

In shapes, ``n`` is the number of chunks, ``m`` of pieces, ``k`` of the array's dimensions, ``w`` of windows, which are
the selections of one plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError, SelectionError
from ..metadata.chunk_grid import RegularAxis
from .axes import (
    INT64_END,
    AxisRows,
    IndexTable,
    IntArray,
    KnownRows,
    Slices,
    index_table,
    offsets_of,
    sort_groups,
    touched,
    uneven,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..metadata.chunk_grid import ChunkGrid
    from ..metadata.model import ChunkKeyEncoding
    from .selection import Selection


#: Most pieces in one plan.
MAX_PIECES = 2**31
#: Boxes of up to this many chunks are planned without NumPy.
FEW_CHUNKS = 16


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
    """The pieces of chunks to read and their destinations.

    Element ``j`` of piece ``p`` along dimension ``d``, for ``j < count[p, d]``, is at ``start[p, d] + j * step[d]`` in
    the chunk and at ``target[p, d] + j`` in output ``output[p]``. If ``tables[d]`` is an :class:`IndexTable`,
    ``start`` and ``count`` give rows of the table instead, and ``target[p, d]`` is 0.
    If ``points`` is not None, ``start[p, 0]`` and ``count[p, 0]`` give rows of ``points``, and the other columns are
    0 and 1.

    Attributes
    ----------
    chunk_shape
        Chunk shape of the planned grid, in elements; of the largest chunk if they differ (:func:`by_shape`).
    chunks
        int64 ``(n, k)``, grid coordinates, each chunk once.
    piece_offsets
        int64 ``(n + 1,)``: the pieces of chunk ``i`` are rows ``piece_offsets[i]`` to ``piece_offsets[i + 1]``.
    start, count, target
        int64 ``(m, k)``; ``count`` is at least 1.
    output
        int64 ``(m,)``, index of the output array (all 0 except for ``read_many``).
    step
        int64 ``(k,)``, at least 1. A negative step of the selection becomes a reversed view of the output.
    tables
        One entry per dimension: None for slices and integers.
    points
        None except for point selections.
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


def plan(selections: Sequence[Selection], grid: ChunkGrid) -> Plan:
    """Plan one read of an array.

    Parameters
    ----------
    selections
        One selection per result: selection ``w`` goes to output ``w``. A chunk is planned once, even if several
        selections touch it.
    grid
        Grid of the array's chunks, or of the inner chunks of its shards.

    Returns
    -------
    A plan of the touched chunks only, in C order of their grid coordinates.

    Raises
    ------
    ArgumentError
        If points are mixed with other selections.
    SelectionError
        If there would be more than ``MAX_PIECES`` pieces, or if coordinates do not fit 64 bits.
    """
    if grid.is_regular and len(selections) == 1:
        box = _plan_box(selections[0], grid.chunk_shape)
        if box is not None:
            return box
    check_int64(grid)
    points = [selection.points for selection in selections if selection.points is not None]
    if points:
        if len(points) < len(selections):
            raise ArgumentError("one read takes either points (vindex, masks of several dimensions) or no points")
        return _plan_points(points, grid)
    return _plan_boxes(selections, grid)


def count_chunks(selection: Selection, grid: ChunkGrid) -> tuple[int, int]:
    """Count the chunks of the plan of a selection without points, which may be more than there is memory for.

    Parameters
    ----------
    selection, grid
        As for :func:`plan`.

    Returns
    -------
    The number of chunks, and that of all their elements.

    Raises
    ------
    SelectionError
        As for :func:`plan`.
    """
    along = [touched(selection, d, axis) for d, axis in enumerate(grid.axes)]
    chunks = math.prod(number for number, _ in along)
    if chunks > FEW_CHUNKS or not grid.is_regular:
        check_int64(grid)
    _check_pieces(chunks, grid)
    return chunks, math.prod(length for _, length in along)


def plan_windows(starts: IntArray, shape: tuple[int, ...], step: tuple[int, ...], grid: ChunkGrid) -> Plan:
    """Plan the read of many windows of one shape.

    Parameters
    ----------
    starts
        int64 ``(w, k)``, first element of each window; window ``i`` goes to output ``i``.
    shape, step
        Elements of a window along each dimension and the distance between them. Every window is inside the array.
    grid
        Grid of the array's chunks, or of the inner chunks of its shards.

    Returns
    -------
    As for :func:`plan`.

    Raises
    ------
    SelectionError
        As for :func:`plan`.
    """
    check_int64(grid)
    windows = len(starts)
    if not windows or 0 in shape:
        return _empty_plan(grid.chunk_shape)
    dimensions: list[Slices | KnownRows] = []
    for d, along in enumerate(grid.axes):
        counts = np.full(windows, shape[d], np.int64)
        if isinstance(along, RegularAxis):
            dimensions.append(Slices(starts[:, d], counts, step[d], along.length))
        else:
            dimensions.append(uneven(starts[:, d], counts, step[d], along))
    return _combine(windows, dimensions, np.zeros(windows, bool), grid)


def plan_chunks(coords: Sequence[tuple[int, ...]], shapes: Sequence[tuple[int, ...]], grid: ChunkGrid) -> Plan:
    """Plan the read of whole chunks, each to an output of its own.

    Parameters
    ----------
    coords, shapes
        Coordinates of each chunk, each once; and its shape, cut at the array's end.
    grid
        Grid of the array's chunks, or of the inner chunks of its shards.

    Returns
    -------
    As for :func:`plan`, in the order of ``coords``.

    Raises
    ------
    SelectionError
        As for :func:`plan`.
    """
    check_int64(grid)
    n, k = len(coords), len(grid.chunk_shape)
    start = np.zeros((n, k), np.int64)
    return Plan(
        grid.chunk_shape,
        np.array(coords, np.int64).reshape(n, k),
        np.arange(n + 1),
        start,
        np.array(shapes, np.int64).reshape(n, k),
        start,
        np.arange(n),
        np.ones(k, np.int64),
        (None,) * k,
    )


def by_shape(plan: Plan, grid: ChunkGrid) -> list[Plan]:
    """Split the plan of a rectilinear grid into one plan per chunk shape. The plan of a regular grid stays whole."""
    if grid.is_regular or not len(plan):
        return [plan]
    lengths = [axis.lengths(coords) for axis, coords in zip(grid.axes, plan.chunks.T, strict=True)]
    order, first = sort_groups(lengths, len(plan))
    return [
        replace(some_chunks(plan, np.sort(rows)), chunk_shape=tuple(int(length[rows[0]]) for length in lengths))
        for rows in np.split(order, first[1:])
    ]


def some_chunks(plan: Plan, rows: IntArray) -> Plan:
    """Return the part of the plan for some chunks, given as rows of ``plan.chunks``."""
    pieces = np.diff(plan.piece_offsets)[rows]
    offsets = np.append(offsets_of(pieces), pieces.sum())
    taken = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - plan.piece_offsets[rows], pieces)
    return replace(
        plan,
        chunks=plan.chunks[rows],
        piece_offsets=offsets,
        start=plan.start[taken],
        count=plan.count[taken],
        target=plan.target[taken],
        output=plan.output[taken],
    )


def chunk_keys(encoding: ChunkKeyEncoding, prefix: str, chunks: IntArray) -> list[str]:
    """Return the store key of each chunk.

    Parameters
    ----------
    encoding
        Chunk key encoding of the array.
    prefix
        Prefix of each key: the node's path and ``"/"``, or ``""`` for the root.
    chunks
        int64 ``(n, k)``, grid coordinates, each at least 0.
    """
    n, k = len(chunks), chunks.shape[1]
    if n <= FEW_CHUNKS:
        return [prefix + encoding.encode(tuple(coords)) for coords in chunks.tolist()]
    if encoding.is_reversed:
        chunks = chunks[:, ::-1]
    # Text common to all keys is literal; each distinct coordinate is formatted once, not once per chunk.
    literals = [prefix + encoding.prefix]
    tables: list[tuple[list[int], IntArray]] = []
    for d in range(k):
        column = chunks[:, d]
        low, high = int(column.min()), int(column.max())
        separator = encoding.separator if d < k - 1 else ""
        if low == high:
            literals[-1] += f"{low}{separator}"
        else:
            tables.append(_distinct(column, low, high))
            literals.append(separator)
    if not tables:
        return literals * n
    keys: npt.NDArray[np.object_] | None = None
    for (numbers, which), after in zip(tables, literals[1:], strict=True):
        before = literals[0] if keys is None else ""
        texts = np.array([f"{before}{number}{after}" for number in numbers], object)[which]
        keys = texts if keys is None else keys + texts
    assert keys is not None
    return cast("list[str]", keys.tolist())  # an object array of strings


def _distinct(column: IntArray, low: int, high: int) -> tuple[list[int], IntArray]:
    """Return the distinct numbers of ``column``, sorted, and for each row its index among them."""
    if high - low > 8 * len(column):
        distinct, which = np.unique(column, return_inverse=True)
        return distinct.tolist(), which
    present = np.zeros(high - low + 1, bool)
    present[column - low] = True
    return (np.flatnonzero(present) + low).tolist(), (np.cumsum(present) - 1)[column - low]


#: One chunk of a box along one dimension: grid coordinate, start, count, target (as in :class:`Plan`).
Term: TypeAlias = tuple[int, int, int, int]


def box_chunks(
    selection: Selection, chunk_shape: tuple[int, ...], most: int = FEW_CHUNKS
) -> list[tuple[Term, ...]] | None:
    """Return the chunks of a box that touches at least one and at most ``most``; else None.

    Small reads are frequent, and plain Python is several times faster for them than a dozen NumPy calls per dimension.

    Returns
    -------
    One row per chunk, in C order of the grid, with one term per dimension.
    """
    if selection.indices is not None or selection.points is not None:
        return None
    n = 1
    dimensions: list[list[Term]] = []
    for start, step, count, block in zip(selection.start, selection.step, selection.count, chunk_shape, strict=True):
        if count == 0:
            return None
        coord = start // block
        first = start - coord * block
        if first + (count - 1) * step < block:
            dimensions.append([(coord, first, count, 0)])
            continue
        n *= min(count, (start + (count - 1) * step) // block - coord + 1)
        if n > most:
            return None
        terms = []
        target = 0
        while target < count:
            position = start + target * step
            coord = position // block
            first = position - coord * block
            inside = min(count - target, (block - first + step - 1) // step)
            terms.append((coord, first, inside, target))
            target += inside
        dimensions.append(terms)
    return list(product(*dimensions))


def _plan_box(selection: Selection, chunk_shape: tuple[int, ...]) -> Plan | None:
    rows = box_chunks(selection, chunk_shape)
    if rows is None:
        return None
    n = len(rows)
    k = len(chunk_shape)
    try:
        flat = np.array([term[i] for i in range(4) for row in rows for term in row], np.int64)
        steps = np.array(selection.step, np.int64)
    except OverflowError:
        return None
    chunks, starts, counts, targets = flat.reshape(4, n, k)
    return Plan(
        chunk_shape,
        chunks,
        np.arange(n + 1),
        starts,
        counts,
        targets,
        np.zeros(n, np.int64),
        steps,
        (None,) * k,
    )


def _plan_boxes(selections: Sequence[Selection], grid: ChunkGrid) -> Plan:
    chunk_shape = grid.chunk_shape
    k = len(chunk_shape)
    starts = np.array([selection.start for selection in selections], np.int64).reshape(len(selections), k)
    steps = np.array([selection.step for selection in selections], np.int64).reshape(len(selections), k)
    counts = np.array([selection.count for selection in selections], np.int64).reshape(len(selections), k)
    empty = (counts == 0).any(axis=1)
    if empty.all():
        return _empty_plan(chunk_shape)

    dimensions: list[Slices | KnownRows] = []
    for d, along in enumerate(grid.axes):
        # A window that selects at most one element along the dimension fits any step.
        stepping = steps[(counts[:, d] > 1) & ~empty, d]
        step = int(stepping[0]) if len(stepping) else 1
        if (stepping == step).all() and all(s.indices is None or s.indices[d] is None for s in selections):
            if isinstance(along, RegularAxis):
                dimensions.append(Slices(starts[:, d], counts[:, d], step, along.length))
            else:
                dimensions.append(uneven(starts[:, d], np.where(empty, 0, counts[:, d]), step, along))
        else:
            dimensions.append(index_table(selections, empty.tolist(), d, along))
    return _combine(len(selections), dimensions, empty, grid)


def check_int64(grid: ChunkGrid) -> None:
    """Raise a SelectionError if coordinates, or the end of the last chunk, do not fit 64 bits."""
    shape, chunk_shape = grid.shape, grid.chunk_shape
    if any(size + block >= INT64_END for size, block in zip(shape, chunk_shape, strict=True)):
        raise SelectionError(f"an array of shape {shape} in chunks of {chunk_shape} can't be planned in 64 bits")


def _combine(
    windows: int, dimensions: Sequence[Slices | KnownRows], empty: npt.NDArray[np.bool_], grid: ChunkGrid
) -> Plan:
    """Combine the dimensions of some windows, ``empty`` of which select nothing, into a plan."""
    rows = [np.where(empty, 0, dimension.rows()) for dimension in dimensions]
    pieces = sum(map(math.prod, zip(*(row.tolist() for row in rows), strict=True)))
    _check_pieces(pieces, grid)
    axes = [dimension.axis(row) for dimension, row in zip(dimensions, rows, strict=True)]
    plan_step = np.array([dimension.step for dimension in dimensions], np.int64)
    tables = tuple(dimension.table if isinstance(dimension, KnownRows) else None for dimension in dimensions)
    if windows == 1:
        return _outer_product(axes, grid.chunk_shape, plan_step, tables)
    return _merge_windows(windows, axes, rows, grid.chunk_shape, plan_step, tables)


def _check_pieces(pieces: int, grid: ChunkGrid) -> None:
    if pieces > MAX_PIECES:
        raise SelectionError(
            f"a selection of {pieces} pieces of chunks, from an array of shape {grid.shape} in chunks of "
            f"{grid.chunk_shape}, is too large; the limit is {MAX_PIECES}, so read it in parts"
        )


def _outer_product(
    axes: list[AxisRows], chunk_shape: tuple[int, ...], step: IntArray, tables: tuple[IndexTable | None, ...]
) -> Plan:
    """Combine the dimensions of one window. The rows are in grid order, which is the order of the chunks."""
    k = len(axes)
    grid = tuple(len(axis.coord) for axis in axes)
    n = math.prod(grid)
    chunks, start, count, target = (np.empty((*grid, k), np.int64) for _ in range(4))
    for d, axis in enumerate(axes):
        along = (-1, *(1,) * (k - d - 1))
        chunks[..., d] = axis.coord.reshape(along)
        start[..., d] = axis.start.reshape(along)
        count[..., d] = axis.count.reshape(along)
        target[..., d] = axis.target.reshape(along)
    return Plan(
        chunk_shape,
        chunks.reshape(n, k),
        np.arange(n + 1),
        start.reshape(n, k),
        count.reshape(n, k),
        target.reshape(n, k),
        np.zeros(n, np.int64),
        step,
        tables,
    )


def _merge_windows(
    windows: int,
    axes: list[AxisRows],
    rows: list[IntArray],
    chunk_shape: tuple[int, ...],
    step: IntArray,
    tables: tuple[IndexTable | None, ...],
) -> Plan:
    """Combine the dimensions of each window, then group the pieces by chunk."""
    k = len(axes)
    pieces = np.ones(windows, np.int64)
    for row in rows:
        pieces = pieces * row
    window = np.repeat(np.arange(windows), pieces)
    nth = np.arange(len(window)) - offsets_of(pieces)[window]
    # The row of each axis for a piece: the digits of its number in the mixed radix of its window's row counts.
    digits: list[IntArray] = []
    for axis, row in zip(reversed(axes), reversed(rows), strict=True):
        nth, digit = np.divmod(nth, row[window])
        digits.insert(0, axis.first[window] + digit)
    coords = [axis.coord[digit] for axis, digit in zip(axes, digits, strict=True)]
    order, first = sort_groups(coords, len(window))
    start, count, target = (np.empty((len(order), k), np.int64) for _ in range(3))
    for d, (axis, digit) in enumerate(zip(axes, digits, strict=True)):
        digit = digit[order]
        start[:, d] = axis.start[digit]
        count[:, d] = axis.count[digit]
        target[:, d] = axis.target[digit]
    chunks = _columns([coord[order[first]] for coord in coords], len(first))
    return Plan(chunk_shape, chunks, np.append(first, len(order)), start, count, target, window[order], step, tables)


def _plan_points(points: list[IntArray], grid: ChunkGrid) -> Plan:
    """Plan lists of points, ``(p, k)`` with ``k >= 1``, one per window."""
    chunk_shape = grid.chunk_shape
    k = len(chunk_shape)
    lengths = np.array([len(part) for part in points], np.int64)
    everything = np.concatenate(points) if len(points) > 1 else points[0]
    if len(everything) > MAX_PIECES:
        raise SelectionError(f"{len(everything)} points are too many; the limit is {MAX_PIECES}, so read in parts")
    window = np.repeat(np.arange(len(points)), lengths)
    if not len(everything):
        return _empty_plan(chunk_shape)
    coords = grid.chunk_of(everything)
    # A piece holds the points of one window in one chunk.
    order, first = sort_groups([*coords.T, window], len(window))
    leader = order[first]
    piece_coords = coords[leader]
    new_chunk = np.flatnonzero(np.append(True, (piece_coords[1:] != piece_coords[:-1]).any(axis=1)))
    target = np.arange(len(window)) - offsets_of(lengths)[window]
    start = np.zeros((len(first), k), np.int64)
    start[:, 0] = first
    count = np.ones((len(first), k), np.int64)
    count[:, 0] = np.diff(first, append=len(order))
    return Plan(
        chunk_shape,
        piece_coords[new_chunk],
        np.append(new_chunk, len(first)),
        start,
        count,
        np.zeros_like(start),
        window[leader],
        np.ones(k, np.int64),
        (None,) * k,
        Points((everything - grid.begins(coords))[order], target[order]),
    )


def _empty_plan(chunk_shape: tuple[int, ...]) -> Plan:
    k = len(chunk_shape)
    none = np.empty((0, k), np.int64)
    output = np.empty(0, np.int64)
    return Plan(chunk_shape, none, np.zeros(1, np.int64), none, none, none, output, np.ones(k, np.int64), (None,) * k)


def _columns(columns: list[IntArray], length: int) -> IntArray:
    """Return ``columns``, ``(length,)`` each, as one C-contiguous ``(length, len(columns))`` array."""
    joined = np.empty((length, len(columns)), np.int64)
    for d, column in enumerate(columns):
        joined[:, d] = column
    return joined
