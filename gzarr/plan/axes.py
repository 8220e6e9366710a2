"""The chunks that windows touch along one dimension, as columns: slices, uneven chunks, arrays of indices.

In shapes, ``w`` is the number of windows, ``r`` of rows: one for each window and chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from ..distinct import distinct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..metadata.chunk_grid import ChunkAxis
    from .selection import Selection

IntArray: TypeAlias = npt.NDArray[np.int64]

#: Exclusive upper limit of the coordinates of a planned array.
INT64_END = 2**63


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
class AxisRows:
    """Chunks that the windows touch along one dimension: one row per window and chunk, in that order.

    ``coord``, ``start``, ``count`` and ``target``, ``(r,)``, are the dimension's part of the plan's columns; ``first``,
    ``(w,)``, is the first row of each window.
    """

    coord: IntArray
    start: IntArray
    count: IntArray
    target: IntArray
    first: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """Slices of all windows along one dimension with chunks of length ``block``.

    ``start`` and ``count`` are ``(w,)``; all slices have the same step.
    """

    start: IntArray
    count: IntArray
    step: int
    block: int

    def rows(self) -> IntArray:
        """Return the number of chunks that each window touches, ``(w,)``."""
        if self.step > self.block:
            return self.count
        last = self.start + (self.count - 1) * self.step
        touched = last // self.block - self.start // self.block + 1
        return np.where(self.count > 0, touched, 0)

    def axis(self, rows: IntArray) -> AxisRows:
        """Return the dimension's rows, ``rows[w]`` for window ``w``."""
        first = offsets_of(rows)
        window = np.repeat(np.arange(len(rows)), rows)
        nth = np.arange(len(window)) - first[window]
        start = self.start[window]
        if self.step > self.block:
            # Every element is in a chunk of its own; chunks between them are not touched.
            position = start + nth * self.step
            coord = position // self.block
            return AxisRows(coord, position - coord * self.block, np.ones_like(coord), nth, first)
        coord = start // self.block + nth
        # Relative to the window's first element, the chunk begins at base and elements are multiples of the step.
        base = coord * self.block - start
        low = np.maximum(-(-base // self.step), 0)
        high = np.minimum(-(-(base + self.block) // self.step), self.count[window])
        return AxisRows(coord, low * self.step - base, high - low, low, first)


@dataclass(frozen=True, slots=True, eq=False)
class KnownRows:
    """All windows along one dimension with precomputed rows, for index arrays and for uneven chunks."""

    table: IndexTable | None
    grouped: AxisRows
    touched: IntArray
    step: int = 1

    def rows(self) -> IntArray:
        """Return the number of chunks that each window touches, ``(w,)``."""
        return self.touched

    def axis(self, rows: IntArray) -> AxisRows:
        """Return the dimension's rows."""
        return self.grouped


def uneven(start: IntArray, count: IntArray, step: int, axis: ChunkAxis) -> KnownRows:
    """Divide the slices of all windows along one dimension, ``(w,)`` each, among chunks of different lengths."""
    some = count > 0
    low = axis.chunk_of(np.where(some, start, 0))
    high = axis.chunk_of(np.where(some, start + (count - 1) * step, 0))
    between = high - low + 1
    # Of many chunks, a few elements are in few: then the chunk of each element is looked up.
    few = some & (count < between)
    rows = np.where(some, np.minimum(count, between), 0)
    window = np.repeat(np.arange(len(rows)), rows)
    nth = np.arange(len(window)) - offsets_of(rows)[window]
    coord = low[window] + nth
    if few.any():
        looked_up = few[window]
        coord[looked_up] = axis.chunk_of((start[window] + nth * step)[looked_up])
        # Several elements may be in one.
        own = np.append(True, (coord[1:] != coord[:-1]) | (window[1:] != window[:-1]))
        window, coord = window[own], coord[own]
    base = axis.begins(coord) - start[window]
    first = np.maximum(-(-base // step), 0)
    end = np.minimum(-(-(base + axis.lengths(coord)) // step), count[window])
    # Chunks between two elements of a slice are not touched.
    taken = end > first
    window, coord, base, first, end = window[taken], coord[taken], base[taken], first[taken], end[taken]
    touched = np.bincount(window, minlength=len(rows)).astype(np.int64)
    return KnownRows(None, AxisRows(coord, first * step - base, end - first, first, offsets_of(touched)), touched, step)


def touched(selection: Selection, d: int, axis: ChunkAxis) -> tuple[int, int]:
    """Count the chunks that a selection without points touches along dimension ``d``; those of a slice are not listed.

    Returns
    -------
    Their number, and the sum of their lengths in elements.
    """
    start, step, count = selection.start[d], selection.step[d], selection.count[d]
    indices = None if selection.indices is None else selection.indices[d]
    if not count:
        return 0, 0
    if indices is not None:
        coords = distinct(axis.chunk_of(indices))
        return len(coords), int(axis.lengths(coords).sum())
    return axis.touched(start, step, count)


def index_table(selections: Sequence[Selection], empty: list[bool], d: int, along: ChunkAxis) -> KnownRows:
    """Gather the indices of all windows along dimension ``d``; empty windows have none."""
    parts = []
    for selection, nothing in zip(selections, empty, strict=True):
        indices = None if selection.indices is None else selection.indices[d]
        if nothing:
            indices = np.empty(0, np.int64)
        elif indices is None:
            indices = selection.start[d] + selection.step[d] * np.arange(selection.count[d], dtype=np.int64)
        parts.append(indices)
    lengths = np.array([len(part) for part in parts], np.int64)
    indices = np.concatenate(parts) if len(parts) > 1 else parts[0]
    window = np.repeat(np.arange(len(parts)), lengths)
    target = np.arange(len(indices)) - offsets_of(lengths)[window]
    chunk = along.chunk_of(indices)
    begin = along.begins(chunk)
    order, first = sort_groups([window, chunk], len(window))
    table = IndexTable((indices - begin)[order], target[order])
    count = np.diff(first, append=len(order))
    leader = order[first]
    touched = np.bincount(window[leader], minlength=len(parts)).astype(np.int64)
    axis = AxisRows(chunk[leader], first, count, np.zeros_like(first), offsets_of(touched))
    return KnownRows(table, axis, touched)


def offsets_of(lengths: IntArray) -> IntArray:
    """Return the start of each of consecutive parts of these lengths."""
    offsets = np.zeros(len(lengths), np.int64)
    np.cumsum(lengths[:-1], out=offsets[1:])
    return offsets


def sort_groups(columns: list[IntArray], length: int) -> tuple[IntArray, IntArray]:
    """Sort rows by the first column, then the second, and so on; equal rows stay in order.

    Returns
    -------
    order
        int64 ``(length,)``, the sorted rows.
    first
        int64, where in ``order`` each group of equal rows begins.
    """
    if length == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    bits = (length - 1).bit_length()
    span = 1 << bits
    key: IntArray = np.zeros(length, np.int64)
    for column in columns:
        low = int(column.min())
        extent = int(column.max()) - low + 1
        span *= extent
        if span >= INT64_END:
            return _sort_wide_groups(columns)
        key = key * extent + (column - low)
    # With the row number in the low bits all keys differ, so NumPy's fastest sort gives a stable order.
    key = (key << bits) | np.arange(length)
    key.sort()
    group = key >> bits
    first = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    return key & ((1 << bits) - 1), first


def _sort_wide_groups(columns: list[IntArray]) -> tuple[IntArray, IntArray]:
    """Do the same as :func:`sort_groups` for columns whose combined range exceeds 64 bits."""
    order = np.lexsort(columns[::-1])
    new = np.zeros(len(order), bool)
    new[0] = True
    for column in columns:
        ordered = column[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    return order, np.flatnonzero(new)
