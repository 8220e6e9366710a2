"""What posed patches need of the arrays of a loader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np

from ..arrays.read_options import as_dtype
from ..errors import ArgumentError
from ..poses.arguments import Interpolation, order_of, source_dtype
from ..poses.host import is_number
from ..poses.numbers_given import spacing_of
from .cells import Footprint
from .poses import checked_poses
from .posing import Posing
from .samples import Part

if TYPE_CHECKING:
    from .poses import Poses
    from .samples import Geometry, Pad

#: Patches that reach further, in elements, are refused: places in windows are counted by 32 bits.
_FAR: Final = 2.0**30
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
    def axes(self) -> tuple[int, ...] | None:
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
    length
        Shape of a patch with its halo, in its own elements.
    room
        Elements of the first array that a patch without its halo stands for.
    spacing, own
        Distances of a patch's elements and of the first array's.
    orders
        Order of interpolation of each array, by name.
    dtype
        Data type of patches that are interpolated; None for that of their array.
    """

    poses: Poses
    length: tuple[int, ...]
    room: tuple[int, ...]
    spacing: tuple[float, ...]
    own: tuple[float, ...]
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
        own = spacing = (1.0,) * k
        room = shape
        if sampler.spacing is not None:
            own, spacing = _spacings(sampler, next(iter(arrays.values())), k)
            if any(array.spacing is None for array in arrays.values()):
                raise ArgumentError("spacing= is for OME images, whose elements have known distances; not for arrays")
            room = tuple(max(round(min(n * s / o, _FAR)), 1) for n, s, o in zip(shape, spacing, own, strict=True))
        length = tuple(n + 2 * h for n, h in zip(shape, halo, strict=True))
        reach = poses.reach(np.array(length) * spacing) / own + poses.shift
        if not (reach < _FAR).all():
            raise ArgumentError(
                f"patches reach {reach.max():.3g} elements in some poses: choose less of scale, shear, shift or spacing"
            )
        orders = _orders(sampler.interpolation, arrays)
        dtype = None if sampler.dtype is None else as_dtype(sampler.dtype)
        if dtype is not None and not (is_number(dtype) or dtype == np.float16):
            raise ArgumentError(f"dtype of posed patches must be one of integers or floats, not {dtype}")
        return cls(poses, length, room, spacing, own, orders, dtype)

    def part(
        self,
        name: str,
        array: Geometry,
        axes: tuple[int, ...],
        factors: tuple[int, ...],
        size: tuple[int, ...],
        stride: tuple[int, ...],
        pad: Pad | None,
    ) -> tuple[Part, Footprint]:
        """Return the part of an array, and its footprint in elements of the first array."""
        order = self.orders[name]
        dtype = self.dtype if order else None
        posing = Posing(self.poses, axes, self.length, self.room, self.spacing, self.own, factors, order, dtype)
        around = posing.around()
        ndim = array.ndim
        window, low, factor = list(array.shape), [0] * ndim, [1] * ndim
        grid_axes: list[int | None] = [None] * ndim
        for i, (axis, (begin, length)) in enumerate(zip(axes, around, strict=True)):
            window[axis], low[axis], factor[axis], grid_axes[axis] = length, begin, factors[i], i
        part = Part((name,), name, tuple(window), tuple(low), tuple(grid_axes), tuple(factor), pad, posed=posing)
        footprint = Footprint(
            stride,
            tuple(begin * f for (begin, _), f in zip(around, factors, strict=True)),
            tuple(length * f for (_, length), f in zip(around, factors, strict=True)),
            tuple(array.chunks[axis] * f for axis, f in zip(axes, factors, strict=True)),
            size,
            array.nbytes,
        )
        return part, footprint


def _orders(interpolation: Any, arrays: Mapping[str, Geometry]) -> dict[str, int]:
    """Return the order of each array by name."""
    given = interpolation if isinstance(interpolation, Mapping) else dict.fromkeys(arrays, interpolation)
    if unknown := sorted(set(given) - set(arrays)):
        raise ArgumentError(f"interpolation= names {unknown}, and the loader has {sorted(arrays)}")
    orders = {name: order_of(given.get(name, "linear")) for name in arrays}
    for name, order in orders.items():
        source_dtype(arrays[name].dtype, order, f"the array {name!r}" if name else "the array")
    return orders


def _spacings(sampler: PosedSampler, first: Geometry, k: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the distances of the first array's elements, and of a patch's, along its axes."""
    wanted = spacing_of(sampler.spacing, k)
    if sampler.axes is not None and tuple(sampler.axes) != tuple(range(first.ndim - k, first.ndim)):
        raise ArgumentError("spacing= is for the last axes of images; leave axes= out")
    own = (1.0,) * k if first.spacing is None else first.spacing[-k:]
    return own, wanted
