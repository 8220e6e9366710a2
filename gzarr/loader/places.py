"""Random places along one axis, in groups of windows that stay within their group.

Neighbouring groups begin at multiples of the stride, as cells do, and have no element in common, so chunks of that
length are decoded once. A window across the edge of two groups is no sample then. (Groups of few cells are an
exception: each has a cell in which windows begin anywhere.) Edges are others in each epoch, and
places near them make up for it: where some of the possible edges are in the way, a place is drawn more often with the
others. So all places come equally often in the mean of all epochs:

- A place that ``m`` of the choices of edges allow has the mass 1 / ``m``, whichever of these is chosen.
- A choice is drawn as often as the mass of all places that it allows says.
- A group has as many samples as its mass says. They are numbers that are rounded up or down, which is drawn, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Places:
    """The places of an epoch along an axis.

    Attributes
    ----------
    bounds
        The first sample of each group, and the number of all, int64 ``(groups + 1,)``: samples are numbered along the
        axis.
    low, high
        The first and the last place of each group, int64 ``(groups,)``.
    begin, end
        Mass of all places before each group's first one, and up to its last one, float64 ``(groups,)``.
    knots, masses
        Places between which the mass grows evenly, and the mass of all places before each, float64 ``(n,)``.
    """

    bounds: IntArray
    low: IntArray
    high: IntArray
    begin: FloatArray
    end: FloatArray
    knots: FloatArray
    masses: FloatArray

    @classmethod
    def of(
        cls, count: int, length: int, stride: int, window: int, size: int, draws: tuple[float, float] = (0.0, 0.0)
    ) -> Places:
        """Return the places of windows inside of an axis.

        Parameters
        ----------
        count
            Number of samples along the axis, one for each cell.
        length
            Cells of a group, at least 1; those at the ends have up to twice as many.
        stride, window, size
            Elements of a cell, of a window (at most ``size``) and of the axis.
        draws
            Numbers of at least 0 and below 1 that determine the edges of groups, and their numbers of samples.
        """
        total = size - window + 1
        # Cells before an edge from which windows would lead across it; at least one cell of a group is none of these.
        across = min(-(-(window - 1) // stride), length - 1)
        # Edges are from here to there, and those of one choice are the length of a group apart.
        least, most = length, min(count - length, (total - 1) // stride)
        ends = [np.arange(n - across, n + 1) for n in (least, most)] if most >= least else []
        cells = np.unique(np.concatenate([[0], *ends]).clip(0, (total - 1) // stride))
        allowed = length - np.maximum(np.minimum(cells + across, most) - np.maximum(cells + 1, least) + 1, 0)
        knots = np.append(cells * stride, total).astype(np.float64)
        masses = np.append(0.0, np.cumsum(np.diff(knots) / (stride * allowed)))
        result = cls(*(np.empty(0, np.int64),) * 3, *(np.empty(0),) * 2, knots, masses)
        edges = np.empty(0, np.int64)
        if most >= least:
            first = np.arange(least, min(2 * length, most + 1))
            last = first + (most - first) // length * length
            # Groups between two edges have the mass 1.
            inner = result._mass_before((first - across) * stride) + (last - first) // length
            chosen = np.cumsum(inner + masses[-1] - result._mass_before(last * stride))
            # If there are fewer edges than cells of a group, some choices have none.
            chosen = np.append(chosen, chosen[-1] + (length - len(first)) * masses[-1])
            which = int(np.searchsorted(chosen, draws[0] * chosen[-1], "right"))
            if which < len(first):
                edges = np.arange(first[which], last[which] + 1, length)
        low, stop = np.append(0, edges * stride), np.append((edges - across) * stride, total)
        begin, end = result._mass_before(low), result._mass_before(stop)
        of_each = np.append(0.0, np.cumsum(end - begin))
        bounds = np.floor(count * (of_each / of_each[-1]) + draws[1]).astype(np.int64)
        bounds[-1] = count
        # Those without samples are none.
        some = np.flatnonzero(np.diff(bounds))
        bounds = np.append(bounds[some], count)
        return cls(bounds, low[some], stop[some] - 1, begin[some], end[some], knots, masses)

    def at(self, groups: IntArray, fractions: FloatArray) -> IntArray:
        """Return the place in each of some groups before which a fraction of the group's mass lies, int64 ``(n,)``.

        Parameters
        ----------
        groups
            int64 ``(n,)``.
        fractions
            float64 ``(n,)``, at least 0 and below 1.
        """
        begin = self.begin[groups]
        mass = begin + fractions * (self.end[groups] - begin)
        found = np.floor(_between(self.masses, self.knots, mass)).astype(np.int64)
        return np.clip(found, self.low[groups], self.high[groups])

    def _mass_before(self, places: IntArray) -> FloatArray:
        return _between(self.knots, self.masses, places.astype(np.float64))


def _between(x: FloatArray, y: FloatArray, at: FloatArray) -> FloatArray:
    """Return a function that is linear between points: as ``np.interp``, with the same bits on every machine."""
    i = np.clip(np.searchsorted(x, at, "right") - 1, 0, len(x) - 2)
    return np.asarray(y[i] + (at - x[i]) * ((y[i + 1] - y[i]) / (x[i + 1] - x[i])))
