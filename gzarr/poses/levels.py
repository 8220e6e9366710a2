"""Which level of an image a map of physical places is read from, and the map to the elements of that level."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self, cast

import numpy as np

from ..documents.json import quote
from ..errors import ArgumentError, UnsupportedError
from ..integers import as_integer
from .maps import AffineMap

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ..arrays.array import Array


class _Grid(Protocol):
    scale: tuple[float, ...]
    translation: tuple[float, ...]


class OmeImage(Protocol):
    """What is asked of an image of :mod:`gzarr.ome`, which this package knows nothing of."""

    @property
    def levels(self) -> Sequence[Any]:
        """The levels, the finest first."""

    def grid(self, level: int) -> _Grid:
        """Return scale and translation of a level."""

    def _of_levels(self) -> Self:
        """Return the image with scale and translation in the coordinate system that its levels are in."""

    def _matrix_from(self, system: Any) -> npt.NDArray[np.float64]:
        """Return the affine map from a coordinate system to the one of scale and translation."""


def is_image(value: object) -> bool:
    """Return whether a value is an OME image."""
    # Of an image without a scale, the levels are an error.
    return all(hasattr(type(value), name) for name in ("levels", "multiscale", "grid"))


def is_auto(level: object) -> bool:
    """Return whether a level is to be chosen."""
    return isinstance(level, str) and level == "auto"


def chosen_level(image: OmeImage, steps: Sequence[float], level: Any) -> int:
    """Return the index of a level: the coarsest one whose elements are no further apart than a result's.

    Parameters
    ----------
    image
        The image.
    steps
        Distances of a result's elements along the image's last axes, in its units.
    level
        ``"auto"``, or an index.
    """
    count, k = len(image.levels), len(steps)
    if not is_auto(level):
        index = as_integer(level)
        if index is None or not -count <= index < count:
            raise ArgumentError(
                f"level must be 'auto' or an integer: the image has levels 0 to {count - 1}, not {quote(level)}"
            )
        return index % count
    scales = [np.abs(image.grid(i).scale[-k:]) for i in range(count)]
    # Products of scales are not exact.
    fine = [i for i, scale in enumerate(scales) if (scale <= np.array(steps) * (1 + 1e-6)).all()]
    return max(fine, key=lambda i: float(np.prod(scales[i])), default=0)


def map_from_system(image: OmeImage, affine: AffineMap, system: Any) -> AffineMap:
    """Return the map to places in an image's units.

    Parameters
    ----------
    image
        The image.
    affine
        Map to places in a coordinate system, along its last axes.
    system
        The coordinate system, as for :meth:`gzarr.ome.Image.coordinate_map`.

    Raises
    ------
    ArgumentError
        If the coordinate system has fewer axes.
    UnsupportedError
        If its last axes are not the image's last axes.
    """
    matrix, k = image._matrix_from(system), len(affine.offset)
    linear = matrix[:, :-1]
    if linear.shape[1] < k:
        raise ArgumentError(f"a map of {k} axes cannot be of the coordinate system {quote(system)}, which has fewer")
    if linear[-k:, :-k].any() or linear[:-k, -k:].any():
        raise UnsupportedError(
            f"the last {k} axes of the coordinate system {quote(system)} are mixed with other axes of the image, so "
            "a result along them is not a box in another pose; image.coordinate_map(…) maps points"
        )
    own = linear[-k:, -k:]
    return AffineMap(own @ affine.matrix, own @ affine.offset + matrix[-k:, -1])


def map_to_level(image: OmeImage, affine: AffineMap, level: Any) -> tuple[Array, AffineMap]:
    """Return the array of a level, and the map to its elements.

    Parameters
    ----------
    image
        The image; the element ``i`` of a level has its centre at ``scale * i + translation``.
    affine
        Map to places in the image's units.
    level
        As for :func:`chosen_level`. The distance of a result's elements along an axis of the image is the length of
        the matrix's row: their spacing, where they are not rotated.
    """
    k = len(affine.offset)
    index = chosen_level(image, np.sqrt((affine.matrix**2).sum(axis=1)).tolist(), level)
    grid = image.grid(index)
    scale, first = np.array(grid.scale[-k:]), np.array(grid.translation[-k:])
    array = cast("Array", image.levels[index].array)
    return array, AffineMap(affine.matrix / scale[:, np.newaxis], (affine.offset - first) / scale)
