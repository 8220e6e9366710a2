"""Plans for compiled code that gathers samples from slabs: which box of which slab goes where in which sample."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engines.cpu.batch import Pieces
from ..engines.kernels import address

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from .boxes import Boxes
    from .reading import Source

    IntArray = npt.NDArray[np.int64]


class GatheredWindows:
    """The windows of one source of a volume, and the slabs that they are cut from.

    Parameters
    ----------
    source
        The source.
    boxes
        The boxes that its slabs hold.
    slabs
        The slabs, arrays in host memory without Python objects; the caller keeps them alive.
    """

    def __init__(self, source: Source, boxes: Boxes, slabs: Sequence[npt.NDArray[Any]]) -> None:
        self.source: Source = source
        self.boxes: Boxes = boxes
        self.bases: IntArray = np.array([address(slab) for slab in slabs], np.int64)
        self.strides: IntArray = np.array([slab.strides for slab in slabs], np.int64).reshape(
            len(slabs), source.array.ndim
        )
        # As the slabs have them: what follows is turned where the result is.
        self._bases, self._strides = self.bases.copy(), self.strides.copy()
        for d in source.part.flip:
            self.bases += (boxes.high[:, d] - boxes.low[:, d] - 1) * self.strides[:, d]
            self.strides[:, d] *= -1
        # One element, which lives as long as this.
        self._fill = np.array([source.array.metadata.absent_element], source.array.dtype)

    def padded(self, start: IntArray, box: int) -> Iterator[tuple[Any, Any, int, Any]]:
        """Yield the pieces of a window that is partly outside of the array.

        Parameters
        ----------
        start
            int64 ``(ndim,)``, first element of the window.
        box
            Its box.

        Yields
        ------
        First element of the piece in the window, its shape, the address of its first element in the slab, and the
        strides of its elements there, in bytes.
        """
        part = self.source.part
        axes = []
        for d, length in enumerate(part.shape):
            along = self.source.runs(d, int(start[d]))
            axes.append([run.turned(length) for run in along] if d in part.flip else along)
        strides = self._strides[box].tolist()
        base = int(self._bases[box] - self.boxes.low[box] @ self._strides[box])
        for piece in itertools.product(*axes):
            begins, counts = [run.begin for run in piece], [run.end - run.begin for run in piece]
            firsts = [run.first for run in piece if run.first is not None]
            if len(firsts) < len(piece):
                yield begins, counts, address(self._fill), [0] * len(strides)
            else:
                first = base + sum(i * s for i, s in zip(firsts, strides, strict=True))
                yield begins, counts, first, [run.step * s for run, s in zip(piece, strides, strict=True)]


def pieces(parts: Sequence[tuple[GatheredWindows, IntArray, IntArray, IntArray]]) -> Pieces:
    """Return the pieces of some samples' windows of one shape: a row is a sample, with an axis for several windows.

    Parameters
    ----------
    parts
        For each volume of the samples, its windows, and int64 ``(n,)``, ``(n * windows,)`` and ``(n, axes)``: the rows
        of its samples, the boxes of their windows, and their origins.
    """
    source = parts[0][0].source
    shape, windows_of_sample, places_of_sample = source.part.shape, source.part.windows, source.output.places

    def with_column(columns: IntArray, first: IntArray | int) -> IntArray:
        """Return columns with one more before them, if a row has several windows."""
        if places_of_sample == 1:
            return columns
        return np.column_stack([np.broadcast_to(first, len(columns)), columns])

    # Of each: row, start, count, first and which of ``Pieces``; all but the row and the last for each axis.
    columns: list[tuple[IntArray, ...]] = []
    inputs: list[tuple[IntArray, IntArray]] = []
    known = 0
    for windows, rows, which, origins in parts:
        starts, inside = windows.source.part.starts(origins), windows.source.inside(origins)
        rows = np.repeat(rows, windows_of_sample)
        places = windows.source.place + np.arange(len(rows)) % windows_of_sample
        # Nothing is copied to samples without elements.
        moved = (starts != inside).any(axis=1) | (windows.source.read_shape != shape)
        plain = np.flatnonzero(~moved & (0 not in shape))
        first = (inside - windows.boxes.low[which])[plain]
        for d in windows.source.part.flip:
            box = which[plain]
            first[:, d] = windows.boxes.high[box, d] - windows.boxes.low[box, d] - first[:, d] - shape[d]
        begin = np.zeros_like(first)
        whole = np.broadcast_to(np.array(shape, np.int64), begin.shape)
        columns.append(
            (
                rows[plain],
                with_column(begin, places[plain]),
                with_column(whole, 1),
                with_column(first, 0),
                known + which[plain],
            )
        )
        inputs.append((windows.bases, with_column(windows.strides, 0)))
        known += len(windows.bases)
        found = [
            (int(rows[i]), int(places[i]), *piece)
            for i in np.flatnonzero(moved & (0 not in shape)).tolist()
            for piece in windows.padded(starts[i], int(which[i]))
        ]
        if found:
            # Each is an input of its own: its first element is where it begins.
            row, place, begins, counts, bases, strides = (
                np.array(column, np.int64) for column in zip(*found, strict=True)
            )
            zeros = with_column(np.zeros_like(begins), 0)
            columns.append(
                (row, with_column(begins, place), with_column(counts, 1), zeros, known + np.arange(len(row)))
            )
            inputs.append((bases, with_column(strides, 0)))
            known += len(row)
    row, start, count, first, which = (np.concatenate(column) for column in zip(*columns, strict=True))
    if len(columns) > 1:
        order = np.argsort(row, kind="stable")
        row, start, count, first, which = (column[order] for column in (row, start, count, first, which))
    bases, strides = (np.concatenate(column) for column in zip(*inputs, strict=True))
    return Pieces(
        shape if places_of_sample == 1 else (places_of_sample, *shape),
        source.array.dtype,
        row,
        start,
        count,
        first,
        which,
        bases,
        strides,
    )
