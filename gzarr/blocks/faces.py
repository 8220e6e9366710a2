"""The faces of blocks, kept until their neighbours are there: which components touch each other across them."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ..distinct import distinct
from ..stores.temporary_files import temporary_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    import numpy.typing as npt

    Index = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class BlockFaces:
    """The components of the faces of a block.

    Attributes
    ----------
    faces
        For each axis and side (0 before, 1 after) with a neighbour, the components of the elements there.
    values
        The bits of each component's value, if only equal ones touch.
    """

    faces: dict[tuple[int, int], npt.NDArray[Any]]
    values: npt.NDArray[np.uint64] | None

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return sum(face.nbytes for face in self.faces.values()) + (0 if self.values is None else self.values.nbytes)


class KeptFaces:
    """Faces of blocks whose neighbours are not all there yet; those beyond some bytes wait in a temporary file.

    Parameters
    ----------
    grid_shape
        Number of blocks along each axis.
    connectivity
        Most axes along which neighbours differ.
    room
        Bytes that are kept in memory.

    Attributes
    ----------
    nbytes
        Bytes in memory.
    """

    def __init__(self, grid_shape: Index, connectivity: int, room: int) -> None:
        self._grid_shape, self._connectivity, self._room = grid_shape, connectivity, room
        self._directions = [
            place
            for place in itertools.product((-1, 0, 1), repeat=len(grid_shape))
            if 0 < sum(map(abs, place)) <= connectivity
        ]
        self._kept: dict[Index, BlockFaces | _Stored] = {}
        # Neighbours that are not there yet.
        self._missing: dict[Index, int] = {}
        self._file: IO[bytes] | None = None
        self.nbytes: int = 0

    def __enter__(self) -> KeptFaces:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            # What it has not written yet is no longer needed.
            with contextlib.suppress(OSError):
                self._file.close()

    def add(self, index: Index, own: BlockFaces) -> Iterator[tuple[Index, npt.NDArray[np.int64]]]:
        """Add the faces of a block; yield each neighbour that is there, and places of the pairs that touch.

        Pairs are ``(n, 2)``: components of the block and of the neighbour, counted from 0.
        """
        missing = 0
        for direction in self._directions:
            other = tuple(i + step for i, step in zip(index, direction, strict=True))
            if any(not 0 <= i < n for i, n in zip(other, self._grid_shape, strict=True)):
                continue
            if other not in self._kept:
                missing += 1
                continue
            theirs = self._kept[other]
            if isinstance(theirs, _Stored):
                assert self._file is not None
                with _in_file():
                    theirs = theirs.load(self._file)
            yield other, touching(own, theirs, direction, self._connectivity)
            self._missing[other] -= 1
            if not self._missing[other]:
                dropped = self._kept.pop(other)
                del self._missing[other]
                self.nbytes -= dropped.nbytes if isinstance(dropped, BlockFaces) else 0
        if missing:
            self._keep(index, own, missing)

    def _keep(self, index: Index, own: BlockFaces, missing: int) -> None:
        self._missing[index] = missing
        if self.nbytes + own.nbytes <= self._room:
            self._kept[index] = own
            self.nbytes += own.nbytes
            return
        with _in_file():
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115
            self._kept[index] = _Stored.of(own, self._file)


def _in_file() -> contextlib.AbstractContextManager[None]:
    return temporary_files(
        "the faces of blocks that wait for their neighbours", "pass a larger budget_bytes=, to have them in memory"
    )


@dataclass(frozen=True, eq=False)
class _Stored:
    """Faces in a file: where each array begins there, its data type and shape."""

    arrays: dict[Any, tuple[int, np.dtype[Any], Index]]

    @classmethod
    def of(cls, own: BlockFaces, file: IO[bytes]) -> _Stored:
        """Store the faces of a block at the end of a file."""
        found: dict[Any, tuple[int, np.dtype[Any], Index]] = {}
        arrays: dict[Any, npt.NDArray[Any]] = dict(own.faces)
        if own.values is not None:
            arrays[None] = own.values
        for key, array in arrays.items():
            found[key] = file.seek(0, 2), array.dtype, array.shape
            file.write(np.ascontiguousarray(array).data)
        return cls(found)

    def load(self, file: IO[bytes]) -> BlockFaces:
        """Return them."""
        found = {}
        for key, (at, dtype, shape) in self.arrays.items():
            file.seek(at)
            count = int(np.prod(shape, dtype=np.int64))
            found[key] = np.frombuffer(file.read(count * dtype.itemsize), dtype).reshape(shape)
        values = found.pop(None, None)
        return BlockFaces(found, values)


def touching(own: BlockFaces, theirs: BlockFaces, direction: Index, connectivity: int) -> npt.NDArray[np.int64]:
    """Return the components of a block that touch components of its neighbour, ``(n, 2)``, counted from 0.

    Parameters
    ----------
    own, theirs
        Faces of the block and of the neighbour.
    direction
        Where the neighbour is: -1, 0 or 1 along each axis.
    connectivity
        Most axes along which elements that touch differ.
    """
    axis = next(d for d, step in enumerate(direction) if step)
    after = int(direction[axis] > 0)
    mine, other = own.faces[axis, after], theirs.faces[axis, 1 - after]
    ends = {1: (slice(-1, None), slice(0, 1)), -1: (slice(0, 1), slice(-1, None)), 0: (slice(None), slice(None))}
    mine = mine[tuple(ends[step if d != axis else 0][0] for d, step in enumerate(direction))]
    other = other[tuple(ends[step if d != axis else 0][1] for d, step in enumerate(direction))]
    left = connectivity - sum(map(abs, direction))
    # What elements that touch differ by along the faces, beside the step across them.
    shifts = itertools.product(*((-1, 0, 1) if not step else (0,) for step in direction))
    apart = {
        1: (slice(None, -1), slice(1, None)),
        -1: (slice(1, None), slice(None, -1)),
        0: (slice(None), slice(None)),
    }
    found = [
        _pairs(
            mine[tuple(apart[s][0] for s in shift)],
            other[tuple(apart[s][1] for s in shift)],
            own.values,
            theirs.values,
        )
        for shift in shifts
        if sum(map(abs, shift)) <= left
    ]
    keys = distinct(*found)
    return np.stack([keys >> 32, keys & 0xFFFFFFFF], axis=1).astype(np.int64, copy=False) - 1


def _pairs(mine: npt.NDArray[Any], other: npt.NDArray[Any], values: Any, other_values: Any) -> npt.NDArray[np.int64]:
    """Return the pairs of components that lie on each other, as integers; most of those that repeat left out."""
    both = (mine != 0) & (other != 0)
    a, b = mine[both].astype(np.int64), other[both].astype(np.int64)
    keys: npt.NDArray[np.int64] = (a << 32) | b
    if len(keys):
        keys = distinct(keys[np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))])
    if values is not None:
        keys = keys[values[(keys >> 32) - 1] == other_values[(keys & 0xFFFFFFFF) - 1]]
    return keys
