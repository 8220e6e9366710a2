"""Gaussian smoothing with downsampling: cells look at their neighbours, so each level is read to make the next one.

The width is the one at which a pixel of a level blurs as much as one of the level before and the smoothing together, if
the full width at half maximum of a pixel's point spread is its spacing: ``σ = √(f² − 1) / (2 √(2 ln 2))`` pixels for a
factor ``f`` (Cardoso et al., "Scale Factor Point Spread Function Matching", MICCAI 2015). Weights are centred on the
cell, cut off beyond 3 σ, and divided by their sum over the elements that are there. Integers are rounded to the
nearest, halves to even; integers of more than 53 bits are smoothed as floats of 64 bits.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...blocks import workers
from .building import on_device_of
from .downsample import cells_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...arrays.array import Array
    from .plan import Box, LevelShape, Shape

#: Elements of a level that are computed at a time, so that floats of the level before take a few MiB.
_ELEMENTS: Final = 1 << 18


def weights(factor: int) -> list[tuple[int, float]]:
    """Return the weights of the elements around a cell, as their distances from its first element and values."""
    if factor == 1:
        return [(0, 1.0)]
    sigma = math.sqrt(factor**2 - 1) / (2 * math.sqrt(2 * math.log(2)))
    middle = (factor - 1) / 2
    places = range(math.ceil(middle - 3 * sigma), math.floor(middle + 3 * sigma) + 1)
    return [(place, math.exp(-(((place - middle) / sigma) ** 2) / 2)) for place in places]


def smooth_level(source: Array, target: Array, level: LevelShape, threads: int) -> Iterator[None]:
    """Make a level from the one before; yield after each chunk (shard) that is written.

    Parameters
    ----------
    source, target
        Arrays of the level before and of the level, on the same device.
    level
        Shape and factors of the level.
    threads
        Most threads, each of which holds a chunk (shard).
    """
    unit = target.metadata.chunk_shape
    places = itertools.product(*map(range, cells_of(level.shape, unit)))

    def work(place: Shape) -> None:
        own = tuple(slice(i * u, min((i + 1) * u, n)) for i, u, n in zip(place, unit, level.shape, strict=True))
        elements = None
        for box in _parts(own):
            part = smoothed_box(source, box, level.factors)
            if elements is None:
                elements = np.empty_like(part, shape=tuple(s.stop - s.start for s in own))
            with on_device_of(part):
                elements[tuple(slice(b.start - s.start, b.stop - s.start) for b, s in zip(box, own, strict=True))] = (
                    part
                )
        if elements is not None:
            target.write(own, elements)

    def describe(place: Shape) -> str:
        return f"the chunk {place} of {target.name!r}"

    for _ in workers.run(places, work, threads=threads, describe=describe, helped=source.device != "cpu"):
        yield


def _parts(box: Box) -> Iterator[Box]:
    """Yield boxes of some elements that a box consists of."""
    lengths = [s.stop - s.start for s in box]
    while math.prod(lengths) > _ELEMENTS:
        d = lengths.index(max(lengths))
        lengths[d] = -(-lengths[d] // 2)
    for begins in itertools.product(*(range(s.start, s.stop, n) for s, n in zip(box, lengths, strict=True))):
        yield tuple(slice(b, min(b + n, s.stop)) for b, n, s in zip(begins, lengths, box, strict=True))


def smoothed_box(source: Any, box: Box, factors: Shape) -> Any:
    """Return a box of a level.

    Parameters
    ----------
    source
        The level before: an array with ``shape``, ``dtype`` and ``source[box]``.
    box
        The box, in elements of the level.
    factors
        Factors between the two.
    """
    taps = [weights(f) for f in factors]
    wider = tuple(
        slice(max(s.start * f + t[0][0], 0), min((s.stop - 1) * f + t[-1][0] + 1, n))
        for s, f, t, n in zip(box, factors, taps, source.shape, strict=True)
    )
    found = source[wider]
    dtype = source.dtype
    with on_device_of(found):
        elements = found.astype(np.float32 if dtype.itemsize <= 2 or dtype == np.float32 else np.float64)
        for d, factor in enumerate(factors):
            if factor > 1:
                elements = _along(elements, d, box[d], wider[d].start, factor)
        if dtype.kind in "iu":
            elements = np.rint(elements)
        return elements.astype(dtype)


def _along(elements: Any, d: int, cells: slice, first: int, factor: int) -> Any:
    """Smooth and downsample along one axis; ``first`` is the place of the first element in the level before."""
    count = cells.stop - cells.start
    before, after = (slice(None),) * d, (slice(None),) * (elements.ndim - d - 1)
    shape = (*elements.shape[:d], count, *elements.shape[d + 1 :])
    total = np.zeros_like(elements, shape=shape)
    sums = np.zeros(count)
    length = elements.shape[d]
    for place, weight in weights(factor):
        begin = cells.start * factor + place - first
        skipped = max(-(begin // factor), 0)
        there = min(count, (length - 1 - begin) // factor + 1)
        if there <= skipped:
            continue
        begin += skipped * factor
        some = elements[(*before, slice(begin, begin + (there - skipped - 1) * factor + 1, factor), *after)]
        total[(*before, slice(skipped, there), *after)] += some * weight
        sums[skipped:there] += weight
    for i in np.flatnonzero(sums != sums[count // 2]).tolist():
        total[(*before, slice(i, i + 1), *after)] *= sums[count // 2] / sums[i]
    total /= sums[count // 2]
    return total
