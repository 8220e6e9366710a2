"""Maps from points of one coordinate system to points of another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...documents.json import quote
from ...errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Points: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class CoordinateMap(ABC):
    """Map from points of one coordinate system to points of another.

    Get one from :meth:`gzarr.ome.Image.coordinate_map` or :meth:`gzarr.ome.Scene.coordinate_map`.

    Attributes
    ----------
    input_ndim, output_ndim
        Numbers of axes of the two coordinate systems.
    """

    input_ndim: int
    output_ndim: int

    @property
    def matrix(self) -> Points | None:
        """Matrix of an affine map, None for any other.

        float64 of shape ``(output_ndim, input_ndim + 1)``; its last column is added: ``m[:, :-1] @ point + m[:, -1]``.
        """
        return None

    def __call__(self, points: Any) -> Points:
        """Return where points are mapped to.

        Parameters
        ----------
        points
            Real numbers of shape ``(…, input_ndim)``: coordinates in the order of the axes.

        Returns
        -------
        float64 of shape ``(…, output_ndim)``, in host memory. NaN where the map is not defined: outside of a field of
        displacements or coordinates.

        Raises
        ------
        ArgumentError
            If the points have another shape, or are not real numbers.
        ChunkError, StoreError
            If a field cannot be read.
        """
        try:
            found = np.asarray(points, np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise ArgumentError(f"points= needs real numbers, got {quote(points)}") from error
        if not found.ndim or found.shape[-1] != self.input_ndim or np.iscomplexobj(points):
            raise ArgumentError(
                f"points= needs {self.input_ndim} coordinates along its last axis, got shape {found.shape}"
            )
        return self._mapped(found.reshape(-1, self.input_ndim)).reshape(*found.shape[:-1], self.output_ndim)

    @abstractmethod
    def _mapped(self, points: Points) -> Points:
        """Map points of shape ``(n, input_ndim)``."""

    def inverse(self) -> CoordinateMap:
        """Return the map from the output to the input.

        Raises
        ------
        UnsupportedError
            If it has no closed form, and the document has none either.
        """
        return self._inverse()

    @abstractmethod
    def _inverse(self) -> CoordinateMap: ...


@dataclass(frozen=True, slots=True, eq=False)
class MatrixMap(CoordinateMap):
    """Multiplication by a matrix and addition of a vector, both in :attr:`whole`."""

    whole: Points

    @property
    def matrix(self) -> Points:
        """See :attr:`CoordinateMap.matrix`."""
        return self.whole.copy()

    def _mapped(self, points: Points) -> Points:
        return points @ self.whole[:, :-1].T + self.whole[:, -1]

    def _inverse(self) -> MatrixMap:
        if self.input_ndim != self.output_ndim:
            raise UnsupportedError(f"a transformation from {self.input_ndim} axes to {self.output_ndim} has no inverse")
        linear = self.whole[:, :-1]
        turned = np.zeros_like(linear)
        if _is_monomial(linear):
            # Exact where each axis has a scale of its own, such as a power of 2.
            rows, columns = np.nonzero(linear)
            turned[columns, rows] = 1 / linear[rows, columns]
        else:
            try:
                turned[...] = np.linalg.inv(linear)
            except np.linalg.LinAlgError:
                turned[...] = np.nan
        if not np.isfinite(turned).all():
            raise UnsupportedError(f"a transformation with the matrix {linear.tolist()!s:.200} has no inverse")
        # Without the sum, zeros would be negative.
        return affine(turned, 0.0 - turned @ self.whole[:, -1])


def _is_monomial(linear: Points) -> bool:
    found = linear != 0
    return bool((found.sum(0) == 1).all() and (found.sum(1) == 1).all())


def affine(linear: Any, offset: Any = None) -> MatrixMap:
    """Return the map that multiplies by a matrix, and then adds a vector; None for zeros."""
    rows = np.asarray(linear, np.float64)
    column = np.zeros(len(rows)) if offset is None else np.asarray(offset, np.float64)
    return MatrixMap(rows.shape[1], rows.shape[0], np.concatenate([rows, column[:, None]], axis=1))


@dataclass(frozen=True, slots=True, eq=False)
class Chain(CoordinateMap):
    """Maps one after the other; at least one."""

    steps: tuple[CoordinateMap, ...]

    def _mapped(self, points: Points) -> Points:
        for step in self.steps:
            points = step._mapped(points)
        return points

    def _inverse(self) -> CoordinateMap:
        return chain([step.inverse() for step in reversed(self.steps)])


def chain(steps: Sequence[CoordinateMap]) -> CoordinateMap:
    """Return maps one after the other as one; affine ones that are neighbours become one matrix."""
    found: list[CoordinateMap] = []
    for step in steps:
        for single in step.steps if isinstance(step, Chain) else (step,):
            if found and isinstance(single, MatrixMap) and isinstance(last := found[-1], MatrixMap):
                linear, offset = single.whole[:, :-1], single.whole[:, -1]
                found[-1] = affine(linear @ last.whole[:, :-1], linear @ last.whole[:, -1] + offset)
            else:
                found.append(single)
    return found[0] if len(found) == 1 else Chain(found[0].input_ndim, found[-1].output_ndim, tuple(found))


@dataclass(frozen=True, slots=True, eq=False)
class Pair(CoordinateMap):
    """A map whose inverse is known as well (``bijection``)."""

    forward: CoordinateMap
    backward: CoordinateMap

    @property
    def matrix(self) -> Points | None:
        """See :attr:`CoordinateMap.matrix`."""
        return self.forward.matrix

    def _mapped(self, points: Points) -> Points:
        return self.forward._mapped(points)

    def _inverse(self) -> Pair:
        return Pair(self.output_ndim, self.input_ndim, self.backward, self.forward)


@dataclass(frozen=True, slots=True, eq=False)
class AxesPart:
    """A map of some axes of the input to some of the output, given by their indexes."""

    map: CoordinateMap
    input_axes: tuple[int, ...]
    output_axes: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ByAxes(CoordinateMap):
    """Maps of some axes each, which together give all axes of the output (``byDimension``)."""

    parts: tuple[AxesPart, ...]

    def _mapped(self, points: Points) -> Points:
        found = np.empty((len(points), self.output_ndim))
        for part in self.parts:
            found[:, part.output_axes] = part.map._mapped(points[:, part.input_axes])
        return found

    def _inverse(self) -> CoordinateMap:
        used = [axis for part in self.parts for axis in part.input_axes]
        if sorted(used) != list(range(self.input_ndim)):
            raise UnsupportedError("a transformation by dimension that does not use each axis once has no inverse")
        parts = [AxesPart(part.map.inverse(), part.output_axes, part.input_axes) for part in self.parts]
        return by_axes(parts, self.output_ndim)


def by_axes(parts: Sequence[AxesPart], input_ndim: int) -> CoordinateMap:
    """Return maps of some axes each as one map; if all are affine, it is."""
    output_ndim = sum(len(part.output_axes) for part in parts)
    if not all(isinstance(part.map, MatrixMap) for part in parts):
        return ByAxes(input_ndim, output_ndim, tuple(parts))
    linear, offset = np.zeros((output_ndim, input_ndim)), np.zeros(output_ndim)
    for part in parts:
        assert isinstance(part.map, MatrixMap)
        linear[np.ix_(part.output_axes, part.input_axes)] = part.map.whole[:, :-1]
        offset[list(part.output_axes)] = part.map.whole[:, -1]
    return affine(linear, offset)
