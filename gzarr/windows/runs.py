"""Which elements of an array a window is made of along one axis, also where it goes beyond the array's ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .boundary import Mode


class Cut(NamedTuple):
    """Neighbouring elements of a window along one axis, taken from neighbours in another array, its source.

    Attributes
    ----------
    at, length
        The first of them in the window, and their number.
    first, step
        The element of the source that the first one is taken from, and 1, -1 if they are taken in reverse, or 0 if all
        are taken from that one.
    which, extent
        Number of the source, of those along this axis, and its length.
    """

    at: int
    length: int
    first: int
    step: int
    which: int
    extent: int

    @property
    def elements(self) -> slice:
        """The elements of the source; one that is repeated is there once."""
        if self.step >= 0:
            return slice(self.first, self.first + (self.length if self.step else 1))
        return slice(self.first, self.first - self.length if self.first >= self.length else None, -1)


class Run(NamedTuple):
    """Neighbouring elements of a window, along one axis.

    Attributes
    ----------
    begin, end
        Extent in the window.
    first
        Element of the array that the first of them is taken from; None for the constant.
    step
        1, -1 where the elements of the array are taken in reverse, or 0 where one is repeated.
    """

    begin: int
    end: int
    first: int | None
    step: int

    def within(self, low: int, high: int, which: int) -> Cut | None:
        """Return the part that is taken from elements ``low`` to before ``high`` of the array, source ``which``."""
        if self.first is None:
            return None
        if self.step == 0:
            skip, stop = 0, self.end - self.begin if low <= self.first < high else 0
        elif self.step > 0:
            skip, stop = max(low - self.first, 0), min(high - self.first, self.end - self.begin)
        else:
            skip, stop = max(self.first - high + 1, 0), min(self.first - low + 1, self.end - self.begin)
        if skip >= stop:
            return None
        first = self.first + self.step * skip - low
        return Cut(self.begin + skip, stop - skip, first, self.step, which, high - low)

    def turned(self, length: int) -> Run:
        """Return the same elements in a window of some length that is reversed."""
        count = self.end - self.begin
        first = None if self.first is None else self.first + self.step * (count - 1)
        return Run(length - self.end, length - self.begin, first, -self.step)

    @property
    def extent(self) -> tuple[int, int]:
        """Begin and end of the elements of the array."""
        assert self.first is not None
        count = self.end - self.begin if self.step else 1
        return (self.first, self.first + count) if self.step >= 0 else (self.first - count + 1, self.first + 1)


def runs(begin: int, end: int, size: int, boundary: Mode | float | complex) -> list[Run]:
    """Return the runs that make up a window.

    Parameters
    ----------
    begin, end
        Extent of the window, in elements of the array; it may go beyond them on both sides.
    size
        Length of the array along the axis, at least 1.
    boundary
        What lies beyond; a number is a constant.
    """
    low, high = max(begin, 0), min(end, size)
    result: list[Run] = []
    for part in ((begin, min(low, end)), (low, high), (max(high, begin), end)):
        if part == (low, high):
            if low < high:
                result.append(Run(low - begin, high - begin, low, 1))
        elif part[0] < part[1]:
            if not isinstance(boundary, str):
                result.append(Run(part[0] - begin, part[1] - begin, None, 1))
            else:
                result += _folds(*part, size, boundary, part[0] - begin)
    return result


def _folds(begin: int, end: int, size: int, mode: Mode, at: int) -> Iterator[Run]:
    """Return the runs of places beyond the ends, ``at`` in the window.

    They are what :func:`gzarr.windows.boundary.folded` gives for each place.
    """
    if mode == "edge" or size == 1:
        # They are on one side of the array.
        yield Run(at, at + end - begin, 0 if begin < 0 else size - 1, 0)
        return
    while begin < end:
        step = 1
        if mode == "wrap":
            first = begin % size
            count = size - first
        else:
            # There and back again; the ends once ("reflect") or twice.
            ends = 1 if mode == "reflect" else 0
            period = 2 * (size - ends)
            place = begin % period
            if place < size - ends:
                first, count = place, size - place
            else:
                first, step = period - 1 + ends - place, -1
                count = first + 1
        count = min(count, end - begin)
        yield Run(at, at + count, first, step)
        begin, at = begin + count, at + count
