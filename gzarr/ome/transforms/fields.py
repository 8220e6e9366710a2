"""Fields of vectors as maps: ``displacements`` are added to points, ``coordinates`` are what points are mapped to."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from ...errors import ArgumentError, UnsupportedError
from ...installing import COMMANDS
from .maps import CoordinateMap

if TYPE_CHECKING:
    import numpy.typing as npt

    from ...arrays.array import Array

    Points: TypeAlias = npt.NDArray[np.float64]

Interpolation: TypeAlias = Literal["nearest", "linear", "cubic"]

#: Elements around a box that coefficients of cubic splines depend on, to less than the precision of floats.
_SPLINE_MARGIN: Final = 32
#: Vectors that are held in memory at a time, as float64, but for a spline's margin.
_MOST_BYTES: Final = 64 << 20
#: Points at most this far outside, in elements, are at the edge: coordinates are rounded.
_TOLERANCE: Final = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class FieldMap(CoordinateMap):
    """Vectors at the points of a regular grid, and between them.

    Attributes
    ----------
    array
        Array of the vectors in host memory, of which the box that points need is read.
    vector_axis
        Its axis of components; the others are those of the input, in their order.
    to_indexes
        From coordinates of the input to indexes of the array's other axes.
    adds
        Whether vectors are displacements.
    interpolation
        What is taken between the points of the grid.
    """

    array: Array
    vector_axis: int
    to_indexes: CoordinateMap
    adds: bool
    interpolation: Interpolation

    def _inverse(self) -> CoordinateMap:
        what = "displacements" if self.adds else "coordinates"
        raise UnsupportedError(
            f"the field of {what} {self.array.name!r} has no inverse in closed form; a transformation of type "
            "'bijection' would have one"
        )

    def _mapped(self, points: Points) -> Points:
        lengths = np.delete(self.array.shape, self.vector_axis)
        found = np.full((len(points), self.output_ndim), np.nan)
        indexes = self.to_indexes._mapped(points)
        inside = ((indexes >= -_TOLERANCE) & (indexes <= lengths - 1 + _TOLERANCE)).all(1)
        if inside.any():
            at = np.clip(indexes[inside], 0, lengths - 1)
            found[inside] = self._vectors(at, lengths)
            if self.adds:
                found[inside] += points[inside]
        return found

    def _vectors(self, at: Points, lengths: npt.NDArray[np.int64]) -> Points:
        """Return the vectors at indexes, which are inside."""
        if self.interpolation == "nearest":
            # The upper of two that are as near, as for the centres of pixels.
            at = np.floor(at + 0.5)
        spread = at.max(0) - at.min(0)
        if len(at) > 1 and spread.any() and np.prod(spread + 2) * self.output_ndim * 8 > _MOST_BYTES:
            # Points that are far from each other are looked up apart: what lies between them is not read.
            order = np.argsort(at[:, int(np.argmax(spread))], kind="stable")
            found = np.empty((len(at), self.output_ndim))
            for some in np.array_split(order, 2):
                found[some] = self._vectors(at[some], lengths)
            return found
        margin = _SPLINE_MARGIN if self.interpolation == "cubic" else 0
        first = np.maximum(np.floor(at.min(0)).astype(np.int64) - margin, 0)
        stop = np.minimum(np.ceil(at.max(0)).astype(np.int64) + 1 + margin, lengths)
        box = [slice(int(a), int(b)) for a, b in zip(first, stop, strict=True)]
        box.insert(self.vector_axis, slice(None))
        vectors = np.moveaxis(np.asarray(self.array.read(tuple(box), dtype="f8")), self.vector_axis, -1)
        if self.interpolation == "cubic":
            return _cubic(vectors, at - first)
        return _linear(vectors, at - first)


def _linear(vectors: Points, at: Points) -> Points:
    """Interpolate linearly: weighted means of the corners of the cell around each point."""
    low = np.minimum(np.floor(at).astype(np.int64), np.maximum(np.array(vectors.shape[:-1]) - 2, 0))
    part = at - low
    found: Any = 0.0
    for corner in product((0, 1), repeat=at.shape[1]):
        where = low + corner
        weight = np.prod(np.where(corner, part, 1 - part), axis=1)
        # Axes of one element have no second corner, and its weight is 0.
        where = np.minimum(where, np.array(vectors.shape[:-1]) - 1)
        # A value that is not finite counts only where it has a weight.
        found = found + np.where(weight[:, None] > 0, weight[:, None] * vectors[tuple(where.T)], 0.0)
    return np.asarray(found)


def _cubic(vectors: Points, at: Points) -> Points:
    """Interpolate by cubic B-splines."""
    try:
        from scipy import ndimage
    except ModuleNotFoundError as error:
        raise ArgumentError(
            f"a field that is interpolated by cubic splines needs SciPy: {COMMANDS['sparse']}"
        ) from error
    components = range(vectors.shape[-1])
    found = [ndimage.map_coordinates(vectors[..., i], at.T, order=3, mode="mirror") for i in components]
    return np.stack(found, axis=-1)
