"""The levels of a pyramid: factors, shapes, and the order in which a pass visits them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...documents.json import quote
from ...errors import ArgumentError
from ...integers import as_integer
from .downsample import MOST_ELEMENTS, cells_of

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Axes whose spacing is more than this many times the smallest are not reduced: halving the others then brings the
#: spacings closer to each other than halving all.
_ANISOTROPIC: Final = math.sqrt(2)
#: Most levels, so that a wrong argument ends soon.
MOST_LEVELS: Final = 64

Shape = tuple[int, ...]
Box = tuple[slice, ...]


@dataclass(frozen=True)
class LevelShape:
    """One level below level 0.

    Attributes
    ----------
    shape
        Its shape in elements.
    factors
        Elements of the level before that become one of its, along each axis.
    scale
        Factors from level 0 along each axis.
    """

    shape: Shape
    factors: Shape
    scale: Shape


def plan_levels(
    shape: Shape,
    axes: Sequence[str],
    space: Sequence[bool],
    spacing: Sequence[float],
    chunk_shape: Shape,
    levels: Any = "auto",
    factors: Any = None,
    *,
    of_labels: bool = False,
) -> list[LevelShape]:
    """Return the levels below level 0.

    Parameters
    ----------
    shape, axes, space, spacing
        Shape of level 0; for each axis its name, whether it is of space, and the distance between its elements.
    chunk_shape
        Shape of a chunk of level 0.
    levels
        Number of levels with level 0, unless nothing is left to be reduced before; ``"auto"`` for as many as it takes
        until one has no more elements in space than a chunk.
    factors
        Factor of each level along all axes of space; a mapping of names of axes to factors (others are 1); or a list
        of these, one for each level but level 0. None: 2 along each axis of space, but 1 for those whose spacing is
        far above the smallest, until it no longer is. Of a list, the entries after the last one that reduces an axis
        are left out.
    of_labels
        Whether they are for labels, which have a level for each entry: as many as their image.

    Raises
    ------
    ArgumentError
        If ``levels`` or ``factors`` is none of these.
    """
    if isinstance(factors, np.ndarray):
        factors = factors.tolist()
    each = _given(factors, axes, space)
    count = _count(levels)
    if isinstance(factors, list | tuple):
        if count not in (None, len(factors) + 1):
            raise ArgumentError(f"levels={count}, but factors= has {len(factors)} entries, one for each but level 0")
        count = len(factors) + 1
    enough = math.prod(n for n, is_space in zip(chunk_shape, space, strict=True) if is_space)
    found: list[LevelShape] = []
    scale: Shape = (1,) * len(shape)
    for i in itertools.count():
        if count is None:
            elements = math.prod(n for n, is_space in zip(shape, space, strict=True) if is_space)
            if elements <= enough or not elements:
                return found
        elif i == count - 1:
            return found
        if each is None:
            own = _halved(shape, space, [s * k for s, k in zip(spacing, scale, strict=True)])
        else:
            own = each[min(i, len(each) - 1)]
        rest = each[i:] if each is not None and count == len(each) + 1 else [own]
        if not of_labels and all(cells_of(shape, one) == shape for one in rest):
            # Nothing is left to be reduced.
            return found
        shape = cells_of(shape, own)
        scale = tuple(a * b for a, b in zip(scale, own, strict=True))
        found.append(LevelShape(shape, own, scale))
    raise AssertionError


def _count(levels: Any) -> int | None:
    """Return the number of levels; None for as many as it takes."""
    if isinstance(levels, str) and levels == "auto":
        return None
    count = as_integer(levels)
    if count is None or not 0 < count <= MOST_LEVELS:
        raise ArgumentError(f"levels must be 'auto' or a number from 1 to {MOST_LEVELS}, not {quote(levels)}")
    return count


def _halved(shape: Shape, space: Sequence[bool], spacing: Sequence[float]) -> Shape:
    """Return 2 for each axis of space that can be halved, but 1 where the spacing is far above the smallest."""
    can = [is_space and n > 1 for n, is_space in zip(shape, space, strict=True)]
    least = min((s for s, yes in zip(spacing, can, strict=True) if yes), default=1.0)
    return tuple(2 if yes and s <= _ANISOTROPIC * least else 1 for s, yes in zip(spacing, can, strict=True))


def _given(factors: Any, axes: Sequence[str], space: Sequence[bool]) -> list[Shape] | None:
    if factors is None:
        return None
    entries = list(factors) if isinstance(factors, list | tuple) else [factors]
    if len(entries) >= MOST_LEVELS:
        raise ArgumentError(f"factors= has {len(entries)} entries; a pyramid has at most {MOST_LEVELS} levels")
    return [_one(entry, axes, space) for entry in entries]


def _one(entry: Any, axes: Sequence[str], space: Sequence[bool]) -> Shape:
    if isinstance(entry, Mapping):
        for name in entry:
            if name not in axes:
                raise ArgumentError(f"factors: there is no axis {quote(name)}; the axes are {', '.join(axes)}")
        wanted = [entry.get(name, 1) for name in axes]
    else:
        wanted = [entry if is_space else 1 for is_space in space]
    found: list[int] = []
    for given, is_space, name in zip(wanted, space, axes, strict=True):
        factor = as_integer(given)
        if factor is None or factor < 1:
            raise ArgumentError(f"factors must be positive integers, or map names of axes to them, not {quote(entry)}")
        if factor != 1 and not is_space:
            raise ArgumentError(f"factors: only axes of space are reduced, and {name!r} is none")
        found.append(factor)
    result = tuple(found)
    if math.prod(result) > MOST_ELEMENTS:
        raise ArgumentError(f"factors {quote(entry)}: at most {MOST_ELEMENTS:,} elements become one")
    return result


@dataclass(frozen=True)
class PlannedGrid:
    """The boxes in which a level is worked on: each is complete before it is passed on.

    Attributes
    ----------
    shape
        Shape of the level, in elements.
    unit
        Shape of a box, cut at the level's end.
    factors
        Factors from the level before; None for level 0.
    """

    shape: Shape
    unit: Shape
    factors: Shape | None

    def box(self, place: Shape) -> Box:
        """Return the box with some grid coordinates."""
        return tuple(slice(i * u, min((i + 1) * u, n)) for i, u, n in zip(place, self.unit, self.shape, strict=True))

    @property
    def count(self) -> int:
        """Number of boxes."""
        return math.prod(cells_of(self.shape, self.unit))


def in_order(grids: Sequence[PlannedGrid]) -> Iterator[Box]:
    """Yield the boxes of level 0 so that those which become one box of any level follow each other.

    Where factors are 2 and boxes of all levels have the same shape, this is the Z-order (Morton's). Only the boxes on
    the way from level 0 to the last level are then incomplete at any time.
    """
    *others, last = grids
    for place in itertools.product(*map(range, cells_of(last.shape, last.unit))):
        yield from _within(others, last, last.box(place))


def _within(below: Sequence[PlannedGrid], grid: PlannedGrid, box: Box) -> Iterator[Box]:
    """Yield the boxes of level 0 of which the first element becomes part of a box."""
    if not below:
        yield box
        return
    *others, before = below
    assert grid.factors is not None
    ranges = []
    for s, factor, unit, size in zip(box, grid.factors, before.unit, before.shape, strict=True):
        begin, end = s.start * factor, min(s.stop * factor, size)
        ranges.append(range(-(-begin // unit), -(-end // unit)))
    for place in itertools.product(*ranges):
        yield from _within(others, before, before.box(place))
