"""Patches in their poses, resampled from the windows that were read around them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..arrays.outputs import DeviceResults
from ..poses.arguments import source_dtype
from ..poses.boxes import MARGIN, Need
from ..poses.device import OnDevice
from ..poses.host import Host, Posed
from ..poses.maps import AffineMap
from ..poses.reading import resample_box

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ..arrays.exporting import ExportedArray
    from .factors import Factor
    from .memory import Memory
    from .poses import Poses

    FloatArray = npt.NDArray[np.float64]
    IntArray = npt.NDArray[np.int64]


#: Bytes of elements in another dtype, of windows and of patches, that are made at a time: enough for all threads.
_CONVERTED: Final = 1 << 24


@dataclass(frozen=True)
class Posing:
    """How the windows of an array become patches.

    Attributes
    ----------
    poses
        The poses, of all arrays of a sample.
    axes
        Dimensions of the array that they are along, for each axis of the grid.
    length
        Shape of a patch of this array along these axes, with its halo, in its own elements.
    room
        Elements of the first array that a patch stands for, along these axes; it begins at the sample's origin.
    spacing, own
        Distances of this patch's elements and of the first array's, in any unit.
    factor
        Elements of the first array that one element of this array stands for.
    order
        0: nearest, 1: linear, 3: cubic.
    dtype
        Data type of the patches; None for that of the array.
    """

    poses: Poses
    axes: tuple[int, ...]
    length: tuple[int, ...]
    room: tuple[int, ...]
    spacing: tuple[float, ...]
    own: tuple[float, ...]
    factor: tuple[Factor, ...]
    order: int
    dtype: np.dtype[Any] | None = None

    def result_shape(self, window: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of a patch of this array, for the shape of its windows."""
        shape = list(window)
        for axis, n in zip(self.axes, self.length, strict=True):
            shape[axis] = n
        return tuple(shape)

    @property
    def copies(self) -> bool:
        """Whether all poses only copy elements, in any order, so that no neighbours are needed."""
        poses = self.poses
        only_flip = poses.rotate is False and poses.scale == (1, 1) and not poses.shear and not any(poses.shift)
        is_whole = self.spacing == self.own and all(factor == 1 for factor in self.factor)
        # Elements of another type come from the interpolation.
        return only_flip and is_whole and self.dtype is None

    def around(self) -> list[tuple[int, int]]:
        """Return the first element, relative to the origin, and the length of windows that are large enough."""
        if self.copies:
            return [((room - n) // 2, n) for room, n in zip(self.room, self.length, strict=True)]
        factors = np.array(self.factor, np.float64)
        # To the outer elements of the first array, where elements of this array stand for several of them.
        several = np.maximum(factors, 1)
        half = (np.array(self.length) * several - 1) / 2 * (np.array(self.spacing) / several)
        reach = self.poses.reach(half) / np.array(self.own) + np.array(self.poses.shift)
        # For its neighbours, and for what coefficients of splines depend on.
        more = MARGIN + 2 if self.order == 3 else 1
        found = []
        for room, far, factor in zip(self.room, reach.tolist(), factors.tolist(), strict=True):
            # Centres of the elements of a finer array lie before those of the first array's.
            middle = (room - 1) / 2 - min(factor - 1, 0) / 2
            # An element more for the origin's place in an element of this array.
            low = min(math.floor((middle - far) / factor) - more, 0)
            high = max(math.ceil((middle + far) / factor) + 1 + more, math.ceil(room / factor))
            found.append((low, high + 1 - low))
        return found

    def maps(self, origins: IntArray) -> list[AffineMap]:
        """Return the map of each patch's elements to the array's.

        Parameters
        ----------
        origins
            int64 ``(n, k + 1)``: origins in the first array, and keys.
        """
        keys = origins[:, -1]
        own, factor = np.array(self.own), np.array(self.factor, np.float64)
        matrices = self.poses.matrices(keys) * np.array(self.spacing) / own[:, np.newaxis]
        centres = origins[:, :-1] + (np.array(self.room) - 1) / 2 + self.poses.shifts(keys)
        # The centre of an element of a smaller array is that of the elements that it stands for.
        offsets = centres - (factor - 1) / 2 - matrices @ ((np.array(self.length) - 1) / 2)
        matrices = matrices / factor[:, np.newaxis]
        return [AffineMap(m, o) for m, o in zip(matrices, offsets / factor, strict=True)]


def pose(
    array: ExportedArray,
    posing: Posing,
    pad: str,
    windows: Sequence[Any],
    inside: IntArray,
    origins: IntArray,
    targets: Sequence[Any],
    memory: Memory,
) -> None:
    """Resample patches from windows.

    Parameters
    ----------
    array
        The array.
    posing
        How its windows become patches.
    pad
        What lies beyond its ends.
    windows
        For each patch, an array of elements around it.
    inside
        int64 ``(n, ndim)``, first element of each window in the array.
    origins
        int64 ``(n, k + 1)``, as for :meth:`Posing.maps`.
    targets
        For each patch, its array.
    memory
        Memory of the arrays.
    """
    way = OnDevice(memory.results) if isinstance(memory.results, DeviceResults) else Host()
    final = targets[0].dtype if len(targets) else None
    given = source_dtype(array.dtype, posing.order, f"the array {array.name!r}", final)
    mode = "constant" if pad == "fill" else pad
    fill = array.metadata.absent_element
    others = [d for d in range(array.ndim) if d not in posing.axes]
    order = (*others, *posing.axes)
    size = [array.shape[d] for d in posing.axes]
    jobs: dict[int, list[Posed]] = {}
    made: list[tuple[Any, Any]] = []

    def finish() -> None:
        for how, posed in jobs.items():
            way.resample(posed, how, mode)
        for values, wanted in made:
            way.store(wanted, values)
        jobs.clear()
        made.clear()

    converted = 0
    for i, affine in enumerate(posing.maps(origins)):
        target = way.made(posing.order, given, targets[i])
        window = way.cast(windows[i], given)
        if target is not targets[i]:
            made.append((target, targets[i]))
            converted += target.nbytes
        if window is not windows[i]:
            converted += window.nbytes
        box, into = window.transpose(order), target.transpose(order)
        low = inside[i, list(posing.axes)].tolist()
        how = 0 if affine.is_exact and target.dtype == given else posing.order
        need = None
        if how == 3:
            # One after the other: coefficients take more memory than elements.
            need = Need.of(affine, into.shape[len(others) :], how, mode, size, copies=False)
            how = 1
        if need is not None and not need.is_constant:
            taken = (slice(along.start - a, along.stop - a) for along, a in zip(need.selection, low, strict=True))
            resample_box(way, need, box[(..., *taken)], fill, into)
        else:
            for at in np.ndindex(*into.shape[: len(others)]):
                jobs.setdefault(how, []).append(Posed(box[at], low, size, affine, into[at], fill))
        if converted >= _CONVERTED:
            finish()
            converted = 0
    finish()
