"""Poses of patches: how each sample is rotated, scaled, sheared, flipped and shifted, drawn by its key.

A key is a hash of seed, epoch and sample. So poses depend on nothing else: not on ranks, threads, or on where an epoch
was resumed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from ..documents.json import quote
from ..errors import ArgumentError
from ..poses.numbers_given import real_numbers
from .arguments import integers, several
from .permutation import hashed, mix

if TYPE_CHECKING:
    import numpy.typing as npt

    FloatArray = npt.NDArray[np.float64]
    IntArray = npt.NDArray[np.int64]

Rotate: TypeAlias = bool | float | tuple[float, ...]
Flip: TypeAlias = bool | tuple[int, ...]

# What a hash is for; a part of its key.
_ROTATION: Final = 21
_SCALE: Final = 22
_FLIP: Final = 23
_SHEAR: Final = 24
_SHIFT: Final = 25


@dataclass(frozen=True)
class Poses:
    """How poses are drawn, in as many axes as patches have.

    Attributes
    ----------
    k
        Number of axes, 2 or 3.
    rotate
        True for any rotation, all of them as often; else the most degrees: one number for any axis of rotation, or one
        for rotations about each axis; False for none.
    scale
        Least and largest factor, drawn evenly in its logarithm. Things look larger by it.
    flip
        Axes along which every second patch is reversed.
    shear
        Most that an axis is moved along each other one, relative to the distance from the centre.
    shift
        Most elements that a patch is moved along each axis.
    """

    k: int
    rotate: Rotate
    scale: tuple[float, float]
    flip: tuple[int, ...]
    shear: float
    shift: tuple[float, ...]

    def matrices(self, keys: IntArray) -> FloatArray:
        """Return the matrix of each key, float64 ``(n, k, k)``: from a patch, around its centre, to what it shows."""
        result = self._rotations(keys)
        if self.shear:
            sheared = np.broadcast_to(np.eye(self.k), result.shape).copy()
            for i in range(self.k):
                for j in range(self.k):
                    if i != j:
                        sheared[:, i, j] = self.shear * _signed(keys, _SHEAR, i * self.k + j)
            result = result @ sheared
        low, high = self.scale
        if low != 1 or high != 1:
            factor = low * (high / low) ** _drawn(keys, _SCALE, 0)
            result = result / factor[:, np.newaxis, np.newaxis]
        for axis in self.flip:
            result[:, :, axis] *= np.where(_drawn(keys, _FLIP, axis) < 0.5, 1.0, -1.0)[:, np.newaxis]
        return result

    def shifts(self, keys: IntArray) -> FloatArray:
        """Return how far patches are moved, float64 ``(n, k)``, in elements."""
        return np.stack([most * _signed(keys, _SHIFT, d) for d, most in enumerate(self.shift)], axis=1)

    def reach(self, half: FloatArray) -> FloatArray:
        """Return how far a patch reaches from its centre at most, in any pose.

        Parameters
        ----------
        half
            float64 ``(k,)``, half of the patch's size.
        """
        sheared = (np.eye(self.k) + self.shear * (1 - np.eye(self.k))) @ half / self.scale[0]
        # In a rotation, no further than its corners.
        return np.minimum(self._largest() @ sheared, np.linalg.norm(sheared)) if self.rotate else sheared

    def _rotations(self, keys: IntArray) -> FloatArray:
        k, rotate = self.k, self.rotate
        if rotate is False:
            return np.broadcast_to(np.eye(k), (len(keys), k, k)).copy()
        if k == 2:
            most = 180.0 if rotate is True else float(np.ravel(rotate)[0])
            return _about(math.radians(most) * _signed(keys, _ROTATION, 0), 2, 0)
        if isinstance(rotate, tuple):
            result = np.broadcast_to(np.eye(3), (len(keys), 3, 3))
            for axis, most in enumerate(rotate):
                result = result @ _about(math.radians(most) * _signed(keys, _ROTATION, axis), 3, axis)
            return result
        u = [_drawn(keys, _ROTATION, i) for i in range(3)]
        if rotate is True:
            # Shoemake, "Uniform random rotations", 1992.
            a, b = np.sqrt(1 - u[0]), np.sqrt(u[0])
            v, w = 2 * np.pi * u[1], 2 * np.pi * u[2]
            x, y, z, w = a * np.sin(v), a * np.cos(v), b * np.sin(w), b * np.cos(w)
        else:
            # A direction, each as often, and an angle.
            up, around = 2 * u[0] - 1, 2 * np.pi * u[1]
            out = np.sqrt(1 - up**2)
            angle = math.radians(float(rotate)) * (2 * u[2] - 1) / 2
            x, y, z = (np.sin(angle) * part for part in (out * np.cos(around), out * np.sin(around), up))
            w = np.cos(angle)
        return np.stack(
            [
                np.stack([1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)], axis=1),
                np.stack([2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)], axis=1),
                np.stack([2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)], axis=1),
            ],
            axis=1,
        )

    def _largest(self) -> FloatArray:
        """Return a bound of the size of each number of rotations, float64 ``(k, k)``."""
        k, rotate = self.k, self.rotate
        if rotate is True:
            return np.ones((k, k))
        if k == 3 and isinstance(rotate, tuple):
            result = np.eye(3)
            for axis, most in enumerate(rotate):
                one = np.full((3, 3), _sine(most))
                one[axis] = one[:, axis] = 0
                np.fill_diagonal(one, 1.0)
                result = result @ one
            return result
        most = float(np.ravel(rotate)[0])
        # About any axis: sin a + (1 - cos a) / 2 at most (Rodrigues).
        tilt = (1 - math.cos(math.radians(min(abs(most), 90.0)))) / 2 if k == 3 else 0.0
        result = np.full((k, k), min(_sine(most) + tilt, 1.0))
        np.fill_diagonal(result, 1.0)
        return result


def _sine(degrees: float) -> float:
    return math.sin(math.radians(min(abs(degrees), 90.0)))


def _about(angle: FloatArray, k: int, axis: int) -> FloatArray:
    """Return rotations in a plane, float64 ``(n, k, k)``; in space, about an axis."""
    a, b = (0, 1) if k == 2 else [(1, 2), (2, 0), (0, 1)][axis]
    result = np.broadcast_to(np.eye(k), (len(angle), k, k)).copy()
    result[:, a, a] = result[:, b, b] = np.cos(angle)
    result[:, b, a] = np.sin(angle)
    result[:, a, b] = -result[:, b, a]
    return result


def _drawn(keys: IntArray, *what: int) -> FloatArray:
    """Return a number from 0 to below 1 for each key."""
    return (hashed(mix(*what), keys) >> np.uint64(11)) / 2.0**53


def _signed(keys: IntArray, *what: int) -> FloatArray:
    return 2 * _drawn(keys, *what) - 1


def checked_poses(k: int, rotate: Any, scale: Any, flip: Any, shear: Any, shift: Any) -> Poses:
    """Return poses of options, as :class:`gzarr.loader.Patches` has them.

    Raises
    ------
    ArgumentError
        If one is not valid.
    """
    if k not in (2, 3):
        raise ArgumentError(f"patches are posed along 2 or 3 axes, not along {k}")
    # None and False are the same, and truth values of NumPy are those of Python.
    rotate, scale, flip, shear, shift = (_plain(option) for option in (rotate, scale, flip, shear, shift))
    if rotate is None:
        rotate = False
    elif rotate is not True:
        angles = _numbers(rotate)
        if angles is None or len(angles) not in ({1} if k == 2 else {1, 3}) or not all(0 <= a <= 180 for a in angles):
            count = "one number" if k == 2 else "one number, or one for each axis"
            raise ArgumentError(f"rotate must be True or degrees from 0 to 180 ({count}), not {quote(rotate)}")
        rotate = angles[0] if len(angles) == 1 else angles
    factors = (1.0, 1.0) if scale is None else _numbers(scale)
    if factors is None or len(factors) != 2 or not 0 < factors[0] <= factors[1]:
        raise ArgumentError(f"scale must be the least and the largest factor, such as (0.8, 1.25), not {quote(scale)}")
    axes = tuple(range(k)) if flip is True else () if flip is None else flip
    listed = several(axes)
    given = [axes] if listed is None else listed
    axes = integers(given, 0, k - 1)
    # True among axes would be axis 1.
    if len(axes) != len(given) or any(isinstance(axis, (bool, np.bool_)) for axis in given):
        raise ArgumentError(f"flip must be True or axes of a patch, from 0 to {k - 1}, not {quote(flip)}")
    most = (0.0,) if shear is None else _numbers(shear)
    if most is None or len(most) != 1 or most[0] < 0:
        raise ArgumentError(f"shear must be a number of at least 0, not {quote(shear)}")
    moved = (0.0,) if shift is None else _numbers(shift)
    moved = moved * k if moved is not None and len(moved) == 1 else moved
    if moved is None or len(moved) != k or min(moved) < 0:
        raise ArgumentError(
            f"shift must be elements of at least 0, one number or one for each axis, not {quote(shift)}"
        )
    return Poses(k, rotate, (factors[0], factors[1]), axes, most[0], moved)


def is_given(option: Any) -> bool:
    """Return whether an option of poses is something else than None and False."""
    return _plain(option) is not None


def _plain(option: Any) -> Any:
    """Return an option of poses with a truth value of NumPy as one of Python; None for False."""
    plain = bool(option) if isinstance(option, np.bool_) else option
    return None if plain is False else plain


def _numbers(value: Any) -> tuple[float, ...] | None:
    """Return finite numbers of a number or several; None for something else, as truth values are."""
    if any(isinstance(item, (bool, np.bool_)) for item in several(value) or [value]):
        return None
    found = real_numbers(value)
    return tuple(found.ravel().tolist()) if found is not None and found.size else None
