"""Labels of all blocks, which of them are one object, and the number of each object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..errors import ArgumentError
from .components import united

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]
    Bits = npt.NDArray[np.uint64]

#: In place of the first element of a label that has none, since it is in a halo only.
NOWHERE: Final = int(np.iinfo(np.int64).max)


def places_in(shape: Sequence[int], box: Sequence[slice], elements: IntArray) -> IntArray:
    """Return places among all elements of an array in C order, for the places in a box of it.

    Parameters
    ----------
    shape
        Shape of the array.
    box
        The box.
    elements
        Places in C order of the elements of the box.
    """
    inside = np.unravel_index(elements, [s.stop - s.start for s in box])
    places = np.zeros(len(elements), np.int64)
    for s, coords, n in zip(box, inside, shape, strict=True):
        places = places * n + (s.start + coords)
    return places


@dataclass(frozen=True, eq=False)
class ObjectNumbers:
    """The final number of each label of each block.

    Attributes
    ----------
    count
        Number of objects, which have the numbers 1 to ``count``.
    offsets
        Place of each block's first label.
    sizes
        Labels of each block.
    numbers
        0, and the number of each label, uint64 ``(1 + labels,)``.
    labels
        Bits of the labels, uint64 ``(labels,)``, ascending in each block; None where they are 1, 2, …
    """

    count: int
    offsets: dict[int, int]
    sizes: dict[int, int]
    numbers: Bits
    labels: Bits | None

    def of_block(self, block: int) -> Bits:
        """Return 0, and the numbers of a block's labels."""
        begin = self.offsets[block]
        return self.numbers[begin : begin + self.sizes[block] + 1]

    def labels_of(self, block: int) -> Bits:
        """Return the labels of a block."""
        assert self.labels is not None
        return self.labels[self.offsets[block] : self.offsets[block] + self.sizes[block]]

    def check_fits(self, dtype: np.dtype[Any]) -> None:
        """Refuse a data type that cannot hold all numbers.

        Raises
        ------
        ArgumentError
            If so.
        """
        if self.count > np.iinfo(dtype).max:
            raise ArgumentError(
                f"there are {self.count} objects, and {dtype} ends at {np.iinfo(dtype).max}: pass dtype='uint64', or "
                "an output that can hold them; nothing was written"
            )


class ObjectMembers:
    """Labels of blocks that become objects. Takes 16 bytes a label, and 16 for each pair that is joined."""

    def __init__(self) -> None:
        self._firsts: dict[int, IntArray] = {}
        self._labels: dict[int, Bits] = {}
        self._pairs: list[tuple[int, int, npt.NDArray[Any]]] = []

    def add(self, block: int, firsts: IntArray, labels: Bits | None = None) -> None:
        """Add the labels of a block.

        Parameters
        ----------
        block
            Number of the block.
        firsts
            The first element of each label, in C order of all elements, or :data:`NOWHERE`.
        labels
            Bits of the labels, ascending; None for 1, 2, …
        """
        self._firsts[block] = firsts
        if labels is not None:
            self._labels[block] = labels

    def join(self, one: int, other: int, pairs: npt.NDArray[Any]) -> None:
        """Join labels of two blocks, as places among their labels or as these, integers ``(n, 2)``."""
        if len(pairs):
            self._pairs.append((one, other, pairs))

    def numbers(self) -> ObjectNumbers:
        """Return the number of each label: objects are numbered in the order of their first elements."""
        blocks = sorted(self._firsts)
        sizes = {block: len(self._firsts[block]) for block in blocks}
        offsets, total = {}, 0
        for block in blocks:
            offsets[block] = total
            total += sizes[block]
        pairs = np.empty((sum(len(found) for _, _, found in self._pairs), 2), np.int64)
        at = 0
        for one, other, found in self._pairs:
            part = pairs[at : at + len(found)]
            for column, block in enumerate((one, other)):
                places = found[:, column]
                if self._labels:
                    places = np.searchsorted(self._labels[block], places)
                part[:, column] = places + offsets[block]
            at += len(found)
        self._pairs.clear()
        roots = united(total, pairs)
        firsts = np.concatenate([np.empty(0, np.int64), *(self._firsts[block] for block in blocks)])
        self._firsts.clear()
        np.minimum.at(firsts, roots, firsts.copy())
        objects = np.flatnonzero(roots == np.arange(total))
        objects = objects[firsts[objects] != NOWHERE]
        objects = objects[np.argsort(firsts[objects])]
        of_root = np.zeros(total, np.uint64)
        of_root[objects] = np.arange(1, len(objects) + 1, dtype=np.uint64)
        numbers = np.zeros(1 + total, np.uint64)
        numbers[1:] = of_root[roots]
        labels = np.concatenate([np.empty(0, np.uint64), *(self._labels[b] for b in blocks)]) if self._labels else None
        return ObjectNumbers(len(objects), offsets, sizes, numbers, labels)
