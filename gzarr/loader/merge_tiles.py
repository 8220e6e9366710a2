"""The tiles that predictions are put together in: whole chunks (shards) of an array, and the patches that touch them.

All patches are known before the first one comes. So it is known how many of them touch a tile, and the tile can be
written, whole and once, as soon as the last of these has come.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from ..display import readable_size
from ..errors import ArgumentError
from .machine import memory_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..metadata.chunk_grid import ChunkAxis
    from .cells import IntArray
    from .samples import Samples

    Box = tuple[slice, ...]

#: Bytes of a tile of small chunks.
TILE_BYTES: Final = 1 << 20
# Bytes that a tile takes in lists of all tiles while they are made, a patch in that of all patches, and a place of
# patches along an axis.
_TILE_ENTRY_BYTES: Final = 80
_PATCH_ENTRY_BYTES: Final = 1
_PLACE_BYTES: Final = 40


def tile_axes(axes: Sequence[ChunkAxis], shape: Sequence[int], element_nbytes: int) -> tuple[ChunkAxis, ...]:
    """Return tiles along each axis, which are runs of whole chunks.

    A tile is about as long as a patch, so that a patch touches few of them. If that is little memory, it is longer
    along the last axes: in C order, they are complete first.

    Parameters
    ----------
    axes
        Chunks (shards) along each axis.
    shape
        Shape of a patch.
    element_nbytes
        Bytes that a tile takes for each of its elements along the axes.
    """
    tiles = [axis.merged(length) for axis, length in zip(axes, shape, strict=True)]
    for d in reversed(range(len(tiles))):
        nbytes = math.prod(min(tile.longest, max(tile.size, 1)) for tile in tiles) * element_nbytes
        times = TILE_BYTES // nbytes
        if times < 2:
            break
        tiles[d] = axes[d].merged(tiles[d].longest * times)
    return tuple(tiles)


@dataclass(frozen=True, eq=False)
class TilePiece:
    """What a patch and a tile have in common.

    Attributes
    ----------
    tile
        Number of the tile, in C order.
    extents
        Begin and end of the tile along each axis, in elements of the array.
    in_tile, in_patch
        Where the common elements are.
    """

    tile: int
    extents: tuple[tuple[int, int], ...]
    in_tile: Box
    in_patch: Box


class Tiles:
    """Tiles, and the patches that touch them.

    Parameters
    ----------
    axes
        Tiles along each axis.
    shape
        Shape of a patch, without its halo.
    samples
        The patches. Those that begin at the same element are one.

    Attributes
    ----------
    total
        Number of patches.
    touching
        int64 ``(tiles,)``, number of patches that touch each tile.
    most_overlapping
        No more patches than this have an element in common.
    covers_all
        Whether each element is known to be in a patch.

    Raises
    ------
    ArgumentError
        If lists of all tiles and patches do not fit the memory of this machine.
    """

    def __init__(self, axes: tuple[ChunkAxis, ...], shape: tuple[int, ...], samples: Samples) -> None:
        self._axes, self._shape, self._size = axes, shape, samples.size
        self._stride, self._counts = np.array(samples.stride), samples.counts
        self._listed: IntArray | None = None
        self.covers_all: bool = samples.chosen is None and all(
            step <= length and (count - 1) * step + length >= size
            for step, length, count, size in zip(samples.stride, shape, samples.counts, samples.size, strict=True)
        )
        self._grid = tuple(axis.count for axis in axes)
        _refuse_too_many(math.prod(self._grid), samples)
        self.touching: IntArray
        if samples.chosen is None:
            self.total: int = math.prod(samples.counts)
            self.touching, self._first, self._last = self._of_grid()
        else:
            keys = _keys(samples.chosen, self._size)
            self._listed, places = np.unique(keys, return_index=True)
            self.total = len(self._listed)
            self.touching, self._first, self._last = self._of_list(samples.chosen[np.sort(places)])
        # Those of an element touch its tile, and no two of them begin at the same place.
        steps = samples.stride if samples.chosen is None else (1,) * len(shape)
        places_before = math.prod(-(-length // step) for length, step in zip(shape, steps, strict=True))
        self.most_overlapping: int = min(int(self.touching.max(initial=0)), places_before)

    def _of_grid(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return how many patches touch each tile, and the number of the first and the last of them."""
        number, first, last = (np.full((1,) * len(self._grid), n, np.int64) for n in (1, 0, 0))
        for d, count in enumerate(self._counts):
            low, high = self._touched(d, np.arange(count, dtype=np.int64) * int(self._stride[d]))
            tiles = np.arange(self._grid[d])
            # Patches go forward along an axis, and so do the tiles that they touch.
            begin, end = np.searchsorted(high, tiles, "left"), np.searchsorted(low, tiles, "right")
            along = [-1 if d == axis else 1 for axis in range(len(self._grid))]
            number = number * np.maximum(end - begin, 0).reshape(along)
            first, last = first * count + begin.reshape(along), last * count + (end - 1).reshape(along)
        return number.ravel(), first.ravel(), last.ravel()

    def _of_list(self, origins: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return the same for listed patches, int64 ``(n, axes)``."""
        tiles = math.prod(self._grid)
        number, first, last = np.zeros(tiles, np.int64), np.full(tiles, len(origins)), np.full(tiles, -1)
        if not len(origins):
            return number, first, last
        low, high = (
            np.stack(ends, axis=1) for ends in zip(*map(self._touched, range(len(self._grid)), origins.T), strict=True)
        )
        for offset in itertools.product(*(range(n) for n in (high - low).max(axis=0) + 1)):
            rows = np.flatnonzero((low + offset <= high).all(axis=1))
            which = np.ravel_multi_index(tuple((low[rows] + offset).T), self._grid)
            np.add.at(number, which, 1)
            np.minimum.at(first, which, rows)
            np.maximum.at(last, which, rows)
        return number, first, last

    def _touched(self, d: int, begins: IntArray) -> tuple[IntArray, IntArray]:
        """Return the first and the last tile along an axis that patches touch which begin there."""
        ends = np.minimum(begins + self._shape[d], self._size[d])
        return self._axes[d].chunk_of(begins), self._axes[d].chunk_of(ends - 1)

    def rows(self, origins: IntArray) -> IntArray:
        """Return the number of each patch, int64 ``(n,)``, by where it begins, int64 ``(n, axes)``.

        Raises
        ------
        ArgumentError
            If there is no such patch.
        """
        wrong = np.asarray(((origins < 0) | (origins >= np.array(self._size))).any(axis=1))
        rows = np.zeros(len(origins), np.int64)
        if not self.total:
            wrong[:] = True
        elif self._listed is None:
            cells, rest = np.divmod(np.where(wrong[:, np.newaxis], 0, origins), self._stride)
            wrong |= rest.any(axis=1) | (cells >= np.array(self._counts)).any(axis=1)
            cells[wrong] = 0
            rows = np.asarray(np.ravel_multi_index(tuple(cells.T), self._counts))
        else:
            keys = _keys(np.where(wrong[:, np.newaxis], 0, origins), self._size)
            rows = np.minimum(np.searchsorted(self._listed, keys), self.total - 1)
            wrong |= self._listed[rows] != keys
        if wrong.any():
            first = tuple(origins[np.argmax(wrong)].tolist())
            raise ArgumentError(
                f"no patch of the sampler begins at {first} in an array of {self._size}: out must have the shape of "
                "the loader's first array along the patch's axes, and the sampler must be the loader's"
            )
        return rows

    def origin(self, row: int) -> tuple[int, ...]:
        """Return where a patch begins."""
        if self._listed is not None:
            return tuple(int(i) for i in np.unravel_index(int(self._listed[row]), self._size))
        return tuple(int(i) for i in np.array(np.unravel_index(row, self._counts)) * self._stride)

    def pieces(self, origin: Sequence[int]) -> Iterator[TilePiece]:
        """Yield what a patch has in common with each tile that it touches; what is outside of the array is left out."""
        along: list[list[tuple[int, tuple[int, int], slice, slice]]] = []
        for axis, begin, length in zip(self._axes, origin, self._shape, strict=True):
            end = min(begin + length, axis.size)
            parts = []
            for i in axis.touching(begin, end):
                low, high = axis.extent(i)
                first, last = max(begin, low), min(end, high)
                parts.append((i, (low, high), slice(first - low, last - low), slice(first - begin, last - begin)))
            along.append(parts)
        for combined in itertools.product(*along):
            index, extents, in_tile, in_patch = zip(*combined, strict=True)
            tile = 0
            for i, count in zip(index, self._grid, strict=True):
                tile = tile * count + i
            yield TilePiece(tile, extents, in_tile, in_patch)

    def most_elements(self) -> int:
        """Return the most elements of tiles that have some of their patches, but not all, if these come in order."""
        elements = np.ones((), np.int64)
        for axis in self._axes:
            elements = np.multiply.outer(elements, np.array(axis.lengths_inside(), np.int64))
        some = np.flatnonzero(self.touching)
        if not len(some):
            return 0
        # In this order: tiles that begin with a patch are there before others end with it.
        when = np.concatenate([self._first[some], self._last[some]])
        change = np.concatenate([elements.ravel()[some], -elements.ravel()[some]])
        return int(np.cumsum(change[np.argsort(when, kind="stable")]).max())


def _refuse_too_many(tiles: int, samples: Samples) -> None:
    """Refuse lists of tiles and patches that this machine has no memory for, before they are made."""
    nbytes = tiles * _TILE_ENTRY_BYTES + samples.total * _PATCH_ENTRY_BYTES
    if samples.chosen is None:
        nbytes += max(samples.counts, default=0) * _PLACE_BYTES
    if nbytes > (most := memory_bytes()):
        raise ArgumentError(
            f"{samples.total} patches are put together in {tiles} parts of the array, and lists of both take "
            f"{readable_size(nbytes)}: more than the memory of this machine, {readable_size(most)}. Use larger "
            "patches, or larger chunks or shards; or put pieces of the array together, each as an array of its own"
        )


def _keys(origins: IntArray, size: Sequence[int]) -> IntArray:
    """Return one number for each element of an array, int64 ``(n,)``, given by its coordinates, ``(n, axes)``."""
    # An array without elements has none.
    return np.asarray(np.ravel_multi_index(tuple(origins.T), [max(n, 1) for n in size]), np.int64)
