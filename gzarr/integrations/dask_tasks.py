"""What dask's tasks hold: a Zarr array that they read from or write to, in whichever process they run."""

from __future__ import annotations

import dataclasses
import functools
import pickle
from typing import Any, Final

import numpy as np

import gzarr

from ..stores.sharing import home_of

#: Arrays that a worker keeps open for tasks to come, and the most bytes of their descriptions.
_KEPT_ARRAYS: Final = 64
_KEPT_NBYTES: Final = 1 << 20


class _Portable:
    """An array in a graph: the same in each process, on the current GPU there if it is on one here.

    Parameters
    ----------
    array
        The array, or a view to read from.
    writes
        Whether tasks write to it.
    edition
        What a worker tells it from others of the same place and metadata by, whose values may be other ones, such as
        those of other references at the same URL.
    """

    def __init__(self, array: Any, *, writes: bool = False, edition: str = "") -> None:
        self._array = array
        self.writes = writes
        self._edition = edition
        self._described: bytes | None = None

    @property
    def array(self) -> Any:
        """The array."""
        if self._array is None:
            data = self._described or b""
            # What is large is not kept for other tasks.
            self._array = _opened(data) if len(data) <= _KEPT_NBYTES else _opened.__wrapped__(data)
        return self._array

    def __reduce__(self) -> tuple[Any, ...]:
        described = self._described
        if described is None:
            described = self._describe()
            # A scheduler pickles it for each task. What takes its values along has others after a write.
            if gzarr.stores.why_not_shared(self.array.store) is None:
                self._described = described
        return _arrived, (type(self), self.writes, described)

    def _describe(self) -> bytes:
        array: Any = self.array
        view = None
        if isinstance(self.array, gzarr.ArrayView):
            # Views of all kinds are made of the array and what else they are pickled with.
            kind, (array, *others) = self.array.__reduce__()
            view = kind, others
        if self.writes:
            check_shared(array)
        # Tasks need neither attributes nor documents, which may be large.
        metadata = dataclasses.replace(array.metadata, attributes={}, document={})
        options = {
            "device": "cpu" if array.device == "cpu" else "cuda",
            "missing": array.missing,
            "verify": array.verify,
            "mode": "r+" if self.writes else "r",
            "write_empty_chunks": array.write_empty_chunks,
        }
        described = (metadata, array.store, array.path, options, view, home_of(array.store), self._edition)
        try:
            return pickle.dumps(described)
        except (pickle.PicklingError, AttributeError, TypeError):
            # Providers of credentials may be local functions.
            import cloudpickle

            found: bytes = cloudpickle.dumps(described)
            return found


@functools.lru_cache(maxsize=_KEPT_ARRAYS)
def _opened(data: bytes) -> gzarr.Array | gzarr.ArrayView:
    metadata, store, path, options, view, home, _ = pickle.loads(data)
    if home is not None and home != home_of(store):
        raise gzarr.ArgumentError(
            f"/{path} in {store!r} cannot be read by other processes: its files are in the memory of the process that "
            "made the dask array. Copy it to a directory or an object store, or compute with scheduler='threads'"
        )
    array = gzarr.Array(metadata, store, path, **options)
    if view is None:
        return array
    kind, others = view
    return kind(array, *others)  # type: ignore[no-any-return]


def _arrived(kind: type[_Portable], writes: bool, data: bytes) -> _Portable:
    """Restore an array in a worker, where all tasks share one, with its connections and what it has learned.

    A task opens it: the scheduler of dask.distributed unpickles it, too, and an error here would end a worker.
    """
    arrived = kind(None, writes=writes)
    arrived._described = data
    return arrived


class TaskSource(_Portable):
    """What :func:`dask.array.from_array` slices: it reads from the array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array, in elements."""
        return self.array.shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the elements."""
        return self.array.dtype  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.array.ndim  # type: ignore[no-any-return]

    def __getitem__(self, selection: Any) -> Any:
        """Read elements. Dask's indices are independent of each other: a list and an integer do not make points."""
        indices = selection if isinstance(selection, tuple) else (selection,)
        lists = any(isinstance(index, list | np.ndarray) for index in indices)
        block = self.array.oindex[selection] if lists else self.array[selection]
        # The next task may run in another thread, on another stream.
        self.array.synchronize()
        return block


class TaskTarget(_Portable):
    """What blocks are written to.

    Parameters
    ----------
    array, writes
        The array.
    lock, aligned, fill_masked
        As for :meth:`gzarr.Array.write`.
    offset
        Position of the first block in the array.
    """

    lock: bool = False
    aligned: bool = False
    offset: tuple[int, ...] = ()
    fill_masked: bool = False

    @classmethod
    def of(
        cls, array: gzarr.Array, *, lock: bool, aligned: bool, offset: tuple[int, ...], fill_masked: bool
    ) -> TaskTarget:
        """Return the target for an array."""
        target = cls(array, writes=True)
        target.__setstate__((lock, aligned, offset, fill_masked))
        return target

    def __reduce__(self) -> tuple[Any, ...]:
        return (*super().__reduce__(), (self.lock, self.aligned, self.offset, self.fill_masked))

    def __setstate__(self, state: tuple[bool, bool, tuple[int, ...], bool]) -> None:
        self.lock, self.aligned, self.offset, self.fill_masked = state

    def write(self, box: tuple[slice, ...], block: Any) -> None:
        """Write a block to its box, whose position is relative to the first block."""
        at = tuple(slice(s.start + n, s.stop + n) for s, n in zip(box, self.offset, strict=True))
        self.array.write(at, block, lock=self.lock, aligned=self.aligned, fill_masked=self.fill_masked)


def write_block(block: Any, target: TaskTarget, box: tuple[slice, ...]) -> Any:
    """Write a block; return the count of blocks written, as a block of a dask array."""
    target.write(box, block)
    return np.ones((1,) * block.ndim, np.int64)


def check_shared(array: gzarr.Array) -> None:
    """Raise ArgumentError if what other processes write to an array would be lost."""
    if (reason := gzarr.stores.why_not_shared(array.store)) is not None:
        raise gzarr.ArgumentError(
            f"{array.name} in {array.store!r} cannot be written by other processes: {reason}. Write to a directory "
            "or an object store, or compute with scheduler='threads'"
        )
