"""Boxes in a coordinate system: which part of each axis of an image they cover."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..errors import UnsupportedError
from .levels import indexes_of_box

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .transforms.maps import Points


@dataclass(frozen=True, slots=True)
class Span:
    """What a box covers of an axis of an image.

    Attributes
    ----------
    low, high
        Ends of the box along that axis.
    factor, offset
        The place ``p`` on that axis is ``factor * p + offset`` on the image's.
    """

    low: float
    high: float
    factor: float = 1.0
    offset: float = 0.0

    def indexes(self, scale: float, translation: float, length: int) -> slice:
        """Return the elements of a level within, given where they are; see :func:`indexes_of_box`."""
        return indexes_of_box(
            self.low, self.high, scale / self.factor, (translation - self.offset) / self.factor, length
        )


def spans_of_box(box: Mapping[str, tuple[float, float]], names: Sequence[str], matrix: Points) -> list[Span | None]:
    """Return what a box covers of each axis of an image, None for all of it.

    Parameters
    ----------
    box
        Ends of the box, by names of axes of a coordinate system. Along the others, it has none.
    names
        Names of the coordinate system's axes.
    matrix
        The map from the coordinate system to the image's, ``(axes of the image, axes of the system + 1)``.

    Raises
    ------
    UnsupportedError
        If the box is none in the image: axes of the one are mixed in the other.
    """
    bounded = np.array([name in box for name in names])
    linear = matrix[:, :-1] != 0
    used = linear[:, bounded].any(1)
    if (linear[used].sum(1) > 1).any() or (linear[:, bounded].sum(0) > 1).any():
        raise UnsupportedError(
            "the box is rotated or sheared against the image's axes, so it is not a box of elements; "
            "gzarr.read_affine(image, …, system=…) resamples it"
        )
    spans: list[Span | None] = []
    for row, mixed in zip(matrix, linear, strict=True):
        columns = np.flatnonzero(mixed)
        if not len(columns):
            # The coordinate system has no such axis: it is a plane of the image.
            place = float(row[-1])
            spans.append(Span(place, place))
        elif bounded[columns].any():
            spans.append(Span(*box[names[columns[0]]], float(row[columns[0]]), float(row[-1])))
        else:
            spans.append(None)
    return spans
