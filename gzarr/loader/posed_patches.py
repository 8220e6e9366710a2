"""What posed patches need of the arrays of a loader."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np

from ..arrays.read_options import as_dtype
from ..errors import ArgumentError
from ..poses.arguments import Interpolation, order_of, source_dtype
from ..poses.host import is_number
from ..poses.numbers_given import spacing_of
from .cells import Footprint
from .factors import known_factor
from .poses import checked_poses
from .posing import Posing
from .samples import Part

if TYPE_CHECKING:
    from ..integers import Integers
    from .factors import Factor
    from .poses import Poses
    from .samples import Geometry, Pad

#: Patches that reach further, in elements, are refused: places in windows are counted by 32 bits.
_FAR: Final = 2.0**30
#: Ratios of distances are fractions of at most so many parts: places in windows are exact.
_PARTS: Final = 10**6
Interpolations: TypeAlias = Interpolation | Mapping[str, Interpolation]


class PosedSampler(Protocol):
    """Options of :class:`gzarr.loader.Patches` that are of poses."""

    @property
    def rotate(self) -> Any:
        """Rotations."""

    @property
    def scale(self) -> Any:
        """Factors."""

    @property
    def flip(self) -> Any:
        """Axes that are reversed."""

    @property
    def shear(self) -> Any:
        """Most that axes are moved along others."""

    @property
    def shift(self) -> Any:
        """Most elements that patches are moved."""

    @property
    def spacing(self) -> Any:
        """Distances of a patch's elements."""

    @property
    def axes(self) -> Integers | None:
        """Axes of the first array that patches are along."""

    @property
    def pad(self) -> Any:
        """What lies beyond the ends."""

    @property
    def interpolation(self) -> Any:
        """Interpolation, or interpolations by name."""

    @property
    def dtype(self) -> Any:
        """Data type of patches that are interpolated."""


@dataclass(frozen=True)
class PosedPatches:
    """Posed patches of some arrays.

    Attributes
    ----------
    poses
        How poses are drawn.
    patch, length
        Shape of a patch without and with its halo, in its own elements.
    room
        Elements of the first array that a patch without its halo stands for.
    spacing, own
        Distances of a patch's elements and of the first array's; both of the first array's if they are not known.
    have_spacing
        Whether the patches of all arrays have elements at these distances. Otherwise, those of smaller arrays have
        fewer elements, as many times further apart.
    orders
        Order of interpolation of each array, by name.
    dtype
        Data type of patches that are interpolated; None for that of their array.
    """

    poses: Poses
    patch: tuple[int, ...]
    length: tuple[int, ...]
    room: tuple[int, ...]
    spacing: tuple[float, ...]
    own: tuple[float, ...]
    have_spacing: bool
    orders: Mapping[str, int]
    dtype: np.dtype[Any] | None

    @classmethod
    def of(
        cls, sampler: PosedSampler, arrays: Mapping[str, Geometry], shape: tuple[int, ...], halo: tuple[int, ...]
    ) -> PosedPatches:
        """Return what a sampler's options mean for some arrays.

        Raises
        ------
        ArgumentError
            If an option is not valid, or does not fit the arrays.
        """
        k = len(shape)
        poses = checked_poses(k, sampler.rotate, sampler.scale, sampler.flip, sampler.shear, sampler.shift)
        if sampler.pad is None:
            raise ArgumentError("posed patches need pad=: in some poses, they reach beyond the ends of the array")
        own = spacing = finest = (1.0,) * k
        room = shape
        if sampler.spacing is not None:
            own, spacing = _spacings(sampler, next(iter(arrays.values())), k)
            if any(array.spacing is None for array in arrays.values()):
                raise ArgumentError("spacing= is for OME images, whose elements have known distances; not for arrays")
            finest = np.min([array.spacing[-k:] for array in arrays.values() if array.spacing is not None], axis=0)
            room = tuple(max(round(min(n * s / o, _FAR)), 1) for n, s, o in zip(shape, spacing, own, strict=True))
        length = tuple(n + 2 * h for n, h in zip(shape, halo, strict=True))
        reach = (poses.reach(np.array(length) * spacing) + np.multiply(poses.shift, own)) / finest
        if not (reach < _FAR).all():
            raise ArgumentError(
                f"patches reach {reach.max():.3g} elements in some poses: choose less of scale, shear, shift or spacing"
            )
        orders = _orders(sampler.interpolation, arrays)
        for name, order in orders.items():
            source_dtype(arrays[name].dtype, order, f"the array {name!r}" if name else "the array")
        dtype = None if sampler.dtype is None else _dtype(sampler.dtype)
        return cls(poses, shape, length, room, spacing, own, sampler.spacing is not None, orders, dtype)

    def factors(self, name: str, array: Geometry, axes: tuple[int, ...], size: tuple[int, ...]) -> tuple[Factor, ...]:
        """Return how many elements of the first array one element of an array stands for, by their distances.

        Raises
        ------
        ArgumentError
            If the array shows a smaller or a larger region than the first one.
        """
        assert array.spacing is not None
        found: list[Factor] = []
        for axis, n, own in zip(axes, size, self.own, strict=True):
            length, ratio = array.shape[axis], array.spacing[axis] / own
            factor = known_factor(n, length, ratio) or Fraction(ratio).limit_denominator(_PARTS)
            # The last element of a level may be filled up, or left out.
            if not factor or abs(float(length * factor) - n) >= max(float(factor), 1.0):
                raise ArgumentError(
                    f"{name} shows {length * array.spacing[axis]:.6g} along axis {axis} ({length} elements), where the "
                    f"first image shows {n * own:.6g} ({n} elements): spacing= is for images of one region, whose "
                    "scales are right"
                )
            found.append(factor)
        return tuple(found)

    def part(
        self,
        name: str,
        array: Geometry,
        axes: tuple[int, ...],
        factors: tuple[Factor, ...],
        size: tuple[int, ...],
        stride: tuple[int, ...],
        pad: Pad | None,
    ) -> tuple[Part, Footprint]:
        """Return the part of an array, and its footprint in elements of the first array."""
        order = self.orders[name]
        dtype = self.dtype if order else None
        length, spacing = self.length, self.spacing
        if not self.have_spacing:
            length = tuple(int(n // f) for n, f in zip(length, factors, strict=True))
            spacing = tuple(float(s * f) for s, f in zip(spacing, factors, strict=True))
        posing = Posing(self.poses, axes, length, self.room, spacing, self.own, factors, order, dtype)
        around = posing.around()
        ndim = array.ndim
        window, low = list(array.shape), [0] * ndim
        factor: list[Factor] = [1] * ndim
        grid_axes: list[int | None] = [None] * ndim
        for i, (axis, (begin, count)) in enumerate(zip(axes, around, strict=True)):
            window[axis], low[axis], factor[axis], grid_axes[axis] = count, begin, factors[i], i
        part = Part((name,), name, tuple(window), tuple(low), tuple(grid_axes), tuple(factor), pad, posed=posing)
        footprint = Footprint(
            stride,
            tuple(math.floor(begin * f) for (begin, _), f in zip(around, factors, strict=True)),
            tuple(math.ceil(count * f) for (_, count), f in zip(around, factors, strict=True)),
            tuple(max(math.floor(array.chunks[axis] * f), 1) for axis, f in zip(axes, factors, strict=True)),
            size,
            array.nbytes,
            array.is_light,
        )
        return part, footprint


def check_unposed(interpolation: Any, dtype: Any, arrays: Mapping[str, Geometry]) -> None:
    """Check options of posed patches of some arrays where patches have no pose, and nothing is interpolated.

    Raises
    ------
    ArgumentError
        If an option is not valid; and of any data type, which patches would not have.
    """
    _orders(interpolation, arrays)
    if dtype is not None:
        raise ArgumentError(
            f"dtype={_dtype(dtype)} is for posed patches (rotate=, scale=, …), and these have the elements of the "
            "array: leave dtype= out, and convert batches by the loader's transform="
        )


def _dtype(given: Any) -> np.dtype[Any]:
    """Return the data type of patches that are interpolated."""
    dtype = as_dtype(given)
    if not (is_number(dtype) or dtype == np.float16):
        raise ArgumentError(f"dtype of posed patches must be one of integers or floats, not {dtype}")
    return dtype


def _orders(interpolation: Any, arrays: Mapping[str, Geometry]) -> dict[str, int]:
    """Return the order of each array by name."""
    given = interpolation if isinstance(interpolation, Mapping) else dict.fromkeys(arrays, interpolation)
    if unknown := sorted(set(given) - set(arrays), key=str):
        raise ArgumentError(f"interpolation= names {unknown}, and the loader has {sorted(arrays)}")
    return {name: order_of(given.get(name, "linear")) for name in arrays}


def _spacings(sampler: PosedSampler, first: Geometry, k: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the distances of the first array's elements, and of a patch's, along its axes."""
    wanted = spacing_of(sampler.spacing, k)
    if sampler.axes is not None and tuple(sampler.axes) != tuple(range(first.ndim - k, first.ndim)):
        raise ArgumentError("spacing= is for the last axes of images; leave axes= out")
    own = (1.0,) * k if first.spacing is None else first.spacing[-k:]
    return own, wanted
