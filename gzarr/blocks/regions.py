"""What is known of the labels of one block, found by compiled code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gzarr_kernels.slots import regions as R

from ..engines import kernels
from .components import bits_of, bits_of_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]

#: Labels that there is memory for at first; a block with more of them is begun again.
_FEW_LABELS: Final = 1 << 10


@dataclass(frozen=True, eq=False)
class Regions:
    """What is known of each of ``n`` labels, in the order of the labels.

    Attributes
    ----------
    labels
        Their bits, uint64 ``(n,)``.
    areas, firsts
        Number of elements, and the first of them in C order, int64 ``(n,)``.
    sums, boxes
        Sums of coordinates, int64 ``(n, ndim)``, and begin and end along each axis, int64 ``(n, ndim, 2)``.
    images
        Of each image the items of ``slots/regions.py``, float64 ``(images, n, 5)``.
    """

    labels: npt.NDArray[np.uint64]
    areas: IntArray
    firsts: IntArray
    sums: IntArray
    boxes: IntArray
    images: npt.NDArray[np.float64]


def regions_of(labels: npt.NDArray[Any], background: int, images: Sequence[npt.NDArray[Any]] = ()) -> Regions:
    """Return what is known of the labels of a block.

    Parameters
    ----------
    labels
        Integers, of at least one axis.
    background
        The value that is no label.
    images
        Arrays of the same shape, of numbers of one of ``slots.regions.KINDS``, or of booleans.
    """
    # The kernel reads these; they are held until it ends.
    block = bits_of(labels)
    arrays = [bits_of(one) if one.dtype == np.bool_ else np.ascontiguousarray(one) for one in images]
    ndim = block.ndim
    lengths, coords = np.array(block.shape, np.int64), np.zeros(ndim, np.int64)
    rows = np.array(
        [(kernels.address(one), R.KINDS.index(f"{one.dtype.kind}{one.itemsize}")) for one in arrays], np.int64
    )
    job = np.zeros(R.SIZE, np.int64)
    job[R.SOURCE], job[R.WIDTH] = kernels.address(block), block.itemsize
    job[R.BACKGROUND] = bits_of_value(background, labels.dtype)
    job[R.LEADING], job[R.LENGTHS], job[R.COORDS] = ndim - 1, kernels.address(lengths), kernels.address(coords)
    job[R.ROWS], job[R.LENGTH] = block.size // max(block.shape[-1], 1), block.shape[-1]
    job[R.IMAGES], job[R.IMAGE_ROWS] = len(arrays), kernels.address(rows)
    capacity = min(_FEW_LABELS, max(block.size, 1))
    while True:
        table = np.zeros(1 << (2 * capacity - 1).bit_length(), np.int64)
        found = Regions(
            np.empty(capacity, np.uint64),
            np.empty(capacity, np.int64),
            np.empty(capacity, np.int64),
            np.empty((capacity, ndim), np.int64),
            np.empty((capacity, ndim, 2), np.int64),
            np.empty((len(arrays), capacity, R.STATISTICS), np.float64),
        )
        job[R.TABLE], job[R.TABLE_SIZE], job[R.CAPACITY] = kernels.address(table), len(table), capacity
        job[R.LABELS], job[R.AREAS] = kernels.address(found.labels), kernels.address(found.areas)
        job[R.FIRSTS], job[R.SUMS] = kernels.address(found.firsts), kernels.address(found.sums)
        job[R.BOXES], job[R.MEASURES] = kernels.address(found.boxes), kernels.address(found.images)
        job[R.COUNT] = 0
        kernels.call("regions", "measure", kernels.address(job))
        if job[R.COUNT] >= 0:
            break
        capacity = min(8 * capacity, block.size)
    order = np.argsort(found.labels[: job[R.COUNT]])
    return Regions(
        found.labels[order],
        found.areas[order],
        found.firsts[order],
        found.sums[order],
        found.boxes[order],
        found.images[:, order],
    )


def renamed(
    labels: npt.NDArray[Any], old: npt.NDArray[np.uint64], new: npt.NDArray[np.uint64], dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    """Return labels with new numbers, 0 for those that have none.

    Parameters
    ----------
    labels
        Integers.
    old
        Bits of labels, ascending.
    new
        Their numbers.
    dtype
        uint32 or uint64.
    """
    block = bits_of(labels)
    old, new = np.ascontiguousarray(old), np.ascontiguousarray(new)
    target = np.empty(block.shape, dtype)
    job = np.zeros(R.SIZE, np.int64)
    job[R.SOURCE], job[R.WIDTH] = kernels.address(block), block.itemsize
    job[R.ROWS], job[R.LENGTH] = 1, block.size
    job[R.OLD], job[R.NEW], job[R.OLD_COUNT] = kernels.address(old), kernels.address(new), len(old)
    job[R.TARGET], job[R.TARGET_WIDTH] = kernels.address(target), target.itemsize
    kernels.call("regions", "rename", kernels.address(job))
    return target
