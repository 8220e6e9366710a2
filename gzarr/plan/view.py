"""Views: parts of arrays that are planned like arrays of their own. A plan of a view becomes one of the array.

A chunk of a view is what the view has of one chunk of the array. So a plan over the chunks of a view is one over chunks
of the array, with other numbers in its columns, and with outputs that have the axes of the array.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..distinct import distinct
from ..documents.json import quote
from ..errors import SelectionError
from ..metadata.chunk_grid import MAX_UNEVEN_CHUNKS, ChunkGrid, RectilinearAxis, RegularAxis
from .axes import IndexTable, offsets_of
from .planner import Points, check_int64
from .selection import Selection, is_truth_value, parse_basic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..metadata.chunk_grid import ChunkAxis
    from .axes import IntArray
    from .planner import Plan


@dataclass(frozen=True, slots=True)
class Extent:
    """What a view has along one axis of its array: the elements ``start + i * step`` for ``i < count``.

    Attributes
    ----------
    start, step, count
        ``step`` is not 0; it is 1, and ``start`` 0, without elements. A single element has the step 1.
    kept
        Whether the view has the axis; if not, ``count`` is 1.
    """

    start: int
    step: int
    count: int
    kept: bool = True

    def part(self, item: int | slice) -> Extent:
        """Return the extent of a part, by an index or a slice of the elements of this one; both must be inside."""
        if not isinstance(item, slice):
            return Extent(self.start + (item % self.count) * self.step, 1, 1, kept=False)
        start, stop, step = item.indices(self.count)
        count = max((stop - start + step - (1 if step > 0 else -1)) // step, 0)
        if count <= 1:
            return Extent(self.start + start * self.step if count else 0, 1, count)
        return Extent(self.start + start * self.step, self.step * step, count)

    def within(self, size: int) -> int:
        """Return how many of the elements an axis of some length has."""
        low, high = sorted((self.start, self.start + (self.count - 1) * self.step))
        if not self.count or high < size:
            return self.count
        return 0 if low >= size else (size - 1 - low) // abs(self.step) + 1

    @property
    def item(self) -> int | slice:
        """The integer or the slice that selects these elements of an axis."""
        end = self.start + self.count * self.step
        return slice(self.start, end if end >= 0 else None, self.step) if self.kept else self.start

    def __str__(self) -> str:
        item = self.item
        if not isinstance(item, slice):
            return str(item)
        step = "" if item.step == 1 else f":{item.step}"
        return f"{item.start}:{'' if item.stop is None else item.stop}{step}"


def whole_extents(shape: Sequence[int]) -> tuple[Extent, ...]:
    """Return the extents of all of an array."""
    return tuple(Extent(0, 1, size) for size in shape)


def parts(extents: Sequence[Extent], selection: Any) -> tuple[Extent, ...]:
    """Return the extents of a part of a view.

    Parameters
    ----------
    extents
        Those of the view, for each axis of the array.
    selection
        Integers, slices and at most one ``...``, for the axes that the view has.

    Raises
    ------
    SelectionError
        If the selection is anything else, or does not fit the view.
    """
    shape = tuple(extent.count for extent in extents if extent.kept)
    items = list(selection) if isinstance(selection, tuple) else [selection]
    for item in items:
        if not (item is Ellipsis or isinstance(item, slice) or _is_index(item)):
            raise SelectionError(
                f"{quote(selection)}: a view takes integers, slices and '...', for an array of shape {shape}; read "
                "anything else, such as view.oindex[...]"
            )
    items = [item if item is Ellipsis or isinstance(item, slice) else operator.index(item) for item in items]
    # Says what does not fit.
    parse_basic(tuple(items), shape)
    at = items.index(Ellipsis) if Ellipsis in items else len(items)
    rest = len(shape) - len([item for item in items if item is not Ellipsis])
    wanted = iter([*items[:at], *[slice(None)] * rest, *items[at + 1 :]])
    return tuple(extent.part(next(wanted)) if extent.kept else extent for extent in extents)


def _is_index(item: Any) -> bool:
    # Truth values are masks, and arrays of one element are arrays.
    if not hasattr(item, "__index__") or getattr(item, "ndim", 0) != 0 or is_truth_value(item):
        return False
    try:
        operator.index(item)
    except TypeError:
        return False
    return True


def axis_of_view(axis: ChunkAxis, extent: Extent) -> ChunkAxis:
    """Return the chunks of a view along an axis that it has: what it has of each chunk of the array.

    Raises
    ------
    SelectionError
        If they are too many chunks of different lengths.
    """
    start, step, count = extent.start, extent.step, extent.count
    if not count:
        return RegularAxis(0, max(axis.longest, 1))
    last = start + (count - 1) * step
    first_chunk, last_chunk = (int(axis.chunk_of(np.array([i]))[0]) for i in (start, last))
    if first_chunk == last_chunk:
        return RegularAxis(count, count)
    if isinstance(axis, RegularAxis):
        length, distance = axis.length, abs(step)
        if distance >= length:
            return RegularAxis(count, 1)
        # Elements of the first chunk before the view, as the view runs.
        before = start % length if step > 0 else length - 1 - start % length
        if length % distance == 0 and before < distance:
            return RegularAxis(count, length // distance)
    low, high = min(first_chunk, last_chunk), max(first_chunk, last_chunk)
    if high - low >= MAX_UNEVEN_CHUNKS:
        raise SelectionError(
            f"a view of {extent} has parts of {high - low + 1} chunks, the first of which it cuts; there may be "
            f"{MAX_UNEVEN_CHUNKS}: begin at the first element of a chunk"
        )
    lengths, counts = _parts_of_chunks(axis, low, high, min(start, last), abs(step), count)
    if step < 0:
        lengths, counts = lengths[::-1], counts[::-1]
    return RectilinearAxis(count, lengths, counts)


def _parts_of_chunks(
    axis: ChunkAxis, low: int, high: int, first: int, step: int, count: int
) -> tuple[IntArray, IntArray]:
    """Return what elements ``first + i * step`` for ``i < count`` have of chunks: lengths of parts, and runs of them.

    The first and the last element are in the chunks ``low`` and ``high``, which are two.
    """
    # Chunks between those two have equal parts in a run, unless elements divide them unevenly: these are listed.
    begins = axis.run_chunks
    runs = distinct([low, low + 1, high], begins[(begins > low) & (begins < high)])
    chunks = np.diff(runs, append=high + 1)
    length = axis.lengths(runs)
    parts = np.where((length > step) & (length % step != 0), chunks, 1)
    owner = np.repeat(np.arange(len(runs)), parts)
    chunk = runs[owner] + np.arange(len(owner)) - offsets_of(parts)[owner]
    chunks, length = np.where(parts > 1, 1, chunks)[owner], length[owner]
    # Elements before each of these runs.
    before = np.maximum(-(-(axis.begins(chunk) - first) // step), 0)
    inside = np.diff(before, append=count)
    # Chunks shorter than the step have one element, or none.
    counts = np.where(length < step, inside, chunks)
    counts[inside == 0] = 0
    lengths = inside // np.maximum(counts, 1)
    return lengths[counts > 0], counts[counts > 0]


class View:
    """The chunks of a view, and what they are of the array's.

    Parameters
    ----------
    grid
        Grid that reads of the array are planned over.
    extents
        What the view has along each axis of the array.

    Attributes
    ----------
    grid
        The chunks of the view.
    """

    def __init__(self, grid: ChunkGrid, extents: Sequence[Extent]) -> None:
        self._of = grid
        self._extents = tuple(extents)
        self._axes = [d for d, extent in enumerate(extents) if extent.kept]
        self.grid: ChunkGrid = ChunkGrid(tuple(axis_of_view(grid.axes[d], extents[d]) for d in self._axes))

    def chunks(self, coords: IntArray) -> tuple[IntArray, IntArray]:
        """Return the chunks of the array that chunks of the view are parts of.

        Parameters
        ----------
        coords
            int64 ``(n, dimensions of the view)``, coordinates in :attr:`grid`.

        Returns
        -------
        Both int64 ``(n, dimensions of the array)``: their coordinates, and where in them the first element of each
        chunk of the view is.
        """
        found = np.empty((len(coords), len(self._extents)), np.int64)
        first = np.empty_like(found)
        own = iter(zip(self.grid.axes, coords.T, strict=True))
        for d, (extent, axis) in enumerate(zip(self._extents, self._of.axes, strict=True)):
            if extent.kept:
                of_view, column = next(own)
                first[:, d] = extent.start + extent.step * of_view.begins(column)
            else:
                first[:, d] = extent.start
            found[:, d] = axis.chunk_of(first[:, d])
            first[:, d] -= axis.begins(found[:, d])
        return found, first

    def box(self, selection: Selection) -> tuple[Selection, tuple[Any, ...] | None]:
        """Return the box of the array for a box of the view, without index arrays and points.

        Returns
        -------
        The box, whose result has the axes of the array; and an index that gives them to one of the view, if need be.
        """
        starts, steps, counts = [], [], []
        turned: set[int] = set()
        own = iter(zip(selection.start, selection.step, selection.count, strict=True))
        for d, extent in enumerate(self._extents):
            start, step, count = next(own) if extent.kept else (0, 1, 1)
            if extent.step < 0:
                turned.add(d)
                start += max(count - 1, 0) * step
            starts.append(extent.start + start * extent.step)
            steps.append(step * abs(extent.step) if count > 1 else 1)
            counts.append(count)
        shape = tuple(counts)
        return Selection(shape, tuple(starts), tuple(steps), shape), self._index(turned)

    def selection(self, selection: Selection) -> Selection:
        """Return the selection of the array that has the elements of one of the view, which has no points.

        Its result has the axes of the array, and no negative steps.
        """
        box, _ = self.box(selection)
        if selection.indices is None:
            return box
        own = iter(selection.indices)
        indices = [
            extent.start + extent.step * found if extent.kept and (found := next(own)) is not None else None
            for extent in self._extents
        ]
        return replace(box, indices=tuple(indices))

    def plan(self, the_plan: Plan, lengths: IntArray) -> tuple[Plan, tuple[Any, ...] | None]:
        """Return the plan of the array for one of the view.

        Parameters
        ----------
        the_plan
            A plan over :attr:`grid`.
        lengths
            int64 ``(outputs, dimensions of the view)``, shapes of the outputs; of no use for points.

        Returns
        -------
        The plan over the array's chunks; and an index that gives the outputs the axes of the array, which the plan is
        for, or None if it is for the outputs as they are.

        Raises
        ------
        SelectionError
            If coordinates in the array do not fit 64 bits.
        """
        check_int64(self._of)
        chunks, base = self.chunks(the_plan.chunks)
        m, k = len(the_plan.start), len(self._extents)
        owner = np.repeat(np.arange(len(chunks)), np.diff(the_plan.piece_offsets))
        start, target = base[owner], np.zeros((m, k), np.int64)
        count, step = np.ones((m, k), np.int64), np.ones(k, np.int64)
        tables: list[IndexTable | None] = [None] * k
        points, index = the_plan.points, None
        if points is not None:
            points = Points(self._inside(the_plan, start), points.target)
            start = np.zeros((m, k), np.int64)
            start[:, 0], count[:, 0] = the_plan.start[:, 0], the_plan.count[:, 0]
        else:
            turned: set[int] = set()
            for i, d in enumerate(self._axes):
                own, along, table = self._extents[d].step, the_plan.start[:, i], the_plan.tables[i]
                count[:, d] = the_plan.count[:, i]
                if table is not None:
                    tables[d] = _table(table, along, count[:, d], start[:, d], own)
                    start[:, d] = along
                    continue
                step[d] = the_plan.step[i] * abs(own)
                target[:, d] = the_plan.target[:, i]
                if own > 0:
                    start[:, d] += along * own
                else:
                    # From the last element to the first, into the output from its end to its begin.
                    turned.add(d)
                    start[:, d] += (along + (count[:, d] - 1) * the_plan.step[i]) * own
                    target[:, d] = lengths[the_plan.output, i] - target[:, d] - count[:, d]
            index = self._index(turned)
        planned = replace(
            the_plan,
            chunk_shape=self._of.chunk_shape,
            chunks=chunks,
            start=start,
            count=count,
            target=target,
            step=step,
            tables=tuple(tables),
            points=points,
        )
        return planned, index

    def _index(self, turned: set[int]) -> tuple[Any, ...] | None:
        """Return the index that gives an array of the view the axes of the array, some of which are reversed."""
        if len(self._axes) == len(self._extents) and not turned:
            return None
        return tuple(
            slice(None, None, -1 if d in turned else None) if extent.kept else None
            for d, extent in enumerate(self._extents)
        )

    def _inside(self, the_plan: Plan, base: IntArray) -> IntArray:
        """Return where in chunks of the array the points of a plan are, int64 ``(p, dimensions of the array)``."""
        assert the_plan.points is not None
        source = the_plan.points.source
        found = np.zeros((len(source), len(self._extents)), np.int64)
        rows, pieces = _rows_of(the_plan.start[:, 0], the_plan.count[:, 0])
        found[rows] = base[pieces]
        for i, d in enumerate(self._axes):
            found[rows, d] += source[rows, i] * self._extents[d].step
        return found


def _rows_of(first: IntArray, count: IntArray) -> tuple[IntArray, IntArray]:
    """Return all rows that pieces have, ``count`` from ``first`` on, and the piece of each."""
    pieces = np.repeat(np.arange(len(first)), count)
    rows = np.arange(len(pieces)) - offsets_of(count)[pieces] + first[pieces]
    return rows, pieces


def _table(table: IndexTable, first: IntArray, count: IntArray, base: IntArray, step: int) -> IndexTable:
    """Return a table of a view for the array; pieces have ``count`` rows from ``first`` on, of chunks with a base."""
    source = np.zeros_like(table.source)
    # Pieces have rows in common, which are then of one chunk along the axis.
    _, which = np.unique(first, return_index=True)
    rows, pieces = _rows_of(first[which], count[which])
    source[rows] = base[which][pieces] + table.source[rows] * step
    return IndexTable(source, table.target)
