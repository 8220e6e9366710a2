"""A matrix as it was when its group was looked at, and how it is read: each read sees one state of it.

A :class:`gzarr.sparse.Matrix` looks again when something was appended, while other threads read it. So layout and
offsets belong together, and a read takes both once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..arrays.outputs import DeviceResults
from ..arrays.ranges import joined_ranges, read_ranges
from ..arrays.read_options import as_dtype
from ..errors import ArgumentError
from .chosen import Columns, chosen_along
from .device import DeviceMemory
from .entries import Entries
from .host import HostMemory, index_dtype
from .offsets import damaged, element_on_host, read_offsets
from .wanted import Scaling, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from ..arrays.array import Array
    from ..arrays.read_options import ReadOptions
    from ..hierarchy.group import Group
    from .chosen import Missing
    from .entries import DenseTarget, Memory
    from .layout import Form, Layout

    IntArray = npt.NDArray[np.int64]

#: Entries that are read at a time where only some are kept, or where they become dense.
_BATCH_ENTRIES: Final = 1 << 24


class Snapshot:
    """A matrix as it was at one time. Nothing of it changes.

    Parameters
    ----------
    layout
        What its group is.
    """

    __slots__ = ("_indptr", "layout")

    def __init__(self, layout: Layout) -> None:
        self.layout: Layout = layout
        self._indptr: IntArray | None = None

    @property
    def group(self) -> Group:
        """The group, as it was."""
        return self.layout.group

    @property
    def name(self) -> str:
        """Path of the group in its store, with a leading slash."""
        return self.layout.group.name

    @property
    def form(self) -> Form:
        """``"csr"`` or ``"csc"``."""
        return self.layout.form

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.layout.shape

    @property
    def data(self) -> Array:
        """Array of the values."""
        return self.layout.data

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the stored values."""
        return self.layout.data.dtype

    @property
    def indptr(self) -> IntArray:
        """int64 ``(n + 1,)`` in host memory, checked; read at the first use, and kept."""
        # Several threads may do this at once; at worst, it is read twice.
        if self._indptr is None:
            self._indptr = read_offsets(self.layout)
        return self._indptr

    @property
    def nnz(self) -> int:
        """Number of values."""
        return int(self.indptr[-1])

    @property
    def major(self) -> int:
        """Number of rows (of columns, in CSC)."""
        return self.shape[self.form == "csc"]

    @property
    def minor(self) -> int:
        """Number of columns (of rows, in CSC)."""
        return self.shape[self.form == "csr"]

    @property
    def _of_major(self) -> str:
        return "row" if self.form == "csr" else "column"

    @property
    def _of_minor(self) -> str:
        return "column" if self.form == "csr" else "row"

    def token(self) -> str:
        """Return what tells dask that two matrices have the same elements: the tokens of their arrays."""
        layout = self.layout
        arrays = (layout.data, layout.indices, layout.indptr)
        return " ".join((self.form, str(self.shape), *(array.__dask_tokenize__() for array in arrays)))

    def value_dtype(self, dtype: Any) -> np.dtype[Any]:
        """Return the type in which values are read."""
        wanted = self.dtype if dtype is None else as_dtype(dtype)
        if wanted.char not in "?bBhHiIlLqQefdFD":
            raise ArgumentError(f"matrix {self.name!r}: values cannot be converted to dtype={wanted}")
        if self.dtype.kind == "c" and wanted.kind != "c":
            raise ArgumentError(f"matrix {self.name!r}: complex numbers cannot be converted to dtype={wanted}")
        return np.dtype(np.float32) if wanted == np.float16 else wanted.newbyteorder("=")

    def options(self, stream: Any) -> ReadOptions:
        """Return the options of a read of its arrays."""
        return self.data._read_options(None, stream, None, "auto", None)

    def scaling(self, normalize: Any, log1p: Any, dtype: np.dtype[Any]) -> Scaling:
        """Return the scaling that arguments ask for."""
        scaling = Scaling.of(normalize, log1p, dtype, self.name)
        if scaling.total is not None and self.form != "csr":
            raise ArgumentError(f"matrix {self.name!r} is CSC: normalize is for the rows of CSR")
        return scaling

    def chosen(self, rows: Any, columns: Any, missing: Missing) -> tuple[IntArray | None, IntArray | None]:
        """Return what was chosen along the compressed axis and the other one; None for all."""
        if missing is not None and self.form != "csr":
            raise ArgumentError(f"matrix {self.name!r} is CSC: missing= is for the columns of CSR")
        found = (
            chosen_along(rows, self.shape[0], "rows", self.name),
            chosen_along(columns, self.shape[1], "columns", self.name, missing),
        )
        return found if self.form == "csr" else (found[1], found[0])

    def entries(
        self,
        chosen: tuple[IntArray | None, IntArray | None],
        dtype: np.dtype[Any],
        options: ReadOptions,
        memory: Memory,
    ) -> tuple[Entries, tuple[int, int]]:
        """Return the entries of what was :meth:`chosen`, and the shape of the result."""
        major, minor = chosen
        if minor is None:
            rows = some_of(major, 0, self.major if major is None else len(major))
            entries = self.fetch(rows, Wanted(dtype), options, memory, exact=True)
            counts = (entries.rows, self.minor)
        else:
            wanted = Wanted(dtype, Columns.of(minor, self.minor))
            parts = [
                memory.taken(self.fetch(some_of(major, first, last), wanted, options, memory), wanted)
                for first, last in self.batches(major, 0)
            ]
            entries = memory.joined(parts)
            counts = (entries.rows, len(minor))
        return entries, counts if self.form == "csr" else (counts[1], counts[0])

    def densify(self, major: IntArray | None, wanted: Wanted, options: ReadOptions, target: DenseTarget) -> None:
        """Read rows of the compressed form to rows of dense arrays."""
        memory = memory_of(options)
        if major is not None:
            # Neighbours are read at once, and each chunk for all rows in it.
            order = np.argsort(major, kind="stable")
            major, target = major[order], target.ordered(order)
        for first, last in self.batches(major, target.width):
            entries = self.fetch(some_of(major, first, last), wanted, options, memory)
            memory.densify(entries, wanted, target.some(first, last))

    def batches(self, major: IntArray | None, more: int) -> Iterator[tuple[int, int]]:
        """Yield the begins and ends of rows that are read at a time; each counts for ``more`` entries besides its own.

        There is at least one, which may be empty.
        """
        indptr = self.indptr
        rows = self.major if major is None else len(major)
        if major is None:
            ends = indptr[1:] + more * np.arange(1, rows + 1)
        else:
            ends = np.cumsum(indptr[major + 1] - indptr[major] + more)
        first = 0
        while True:
            before = int(ends[first - 1]) if first else 0
            last = min(rows, max(int(np.searchsorted(ends, before + _BATCH_ENTRIES, "right")), first + 1))
            yield first, last
            if last >= rows:
                return
            first = last

    def fetch(
        self,
        major: IntArray | slice,
        wanted: Wanted,
        options: ReadOptions,
        memory: Memory,
        *,
        exact: bool = False,
    ) -> Entries:
        """Return the entries of some rows, whose indices are right; each array is read in one plan.

        Values and indices have types from which kernels make what is wanted; with ``exact``, the types of results.
        """
        indptr = self.indptr
        if isinstance(major, slice):
            ends = indptr[major.start : major.stop + 1]
            offsets = ends - ends[0]
            starts, counts = ends[:1], offsets[-1:]
        else:
            starts = indptr[major]
            counts = indptr[major + 1] - starts
            offsets = np.zeros(len(major) + 1, np.int64)
            np.cumsum(counts, out=offsets[1:])
            starts, counts = joined_ranges(starts, counts)
        layout = self.layout
        read_as, dtype = index_dtype(layout.indices.dtype), wanted.dtype
        if not exact:
            read_as, dtype = memory.kept_types(wanted, layout.indices.dtype, layout.data.dtype)
        indices = memory.narrowed(read_ranges(layout.indices, starts, counts, read_as, options), self.minor)
        entries = Entries(offsets, indices, indices)
        wrong = memory.first_wrong(entries, self.minor)
        if wrong >= 0:
            i = int(np.searchsorted(offsets, wrong, "right")) - 1
            row = major.start + i if isinstance(major, slice) else int(major[i])
            self._refuse_index(row, int(indptr[row]) + wrong - int(offsets[i]))
        values = read_ranges(layout.data, starts, counts, dtype, options)
        entries = Entries(offsets, indices, values)
        return entries if exact else memory.prepared(entries, wanted)

    def _refuse_index(self, row: int, place: int) -> None:
        array = self.layout.indices
        found = int(element_on_host(array, place))
        raise damaged(
            array,
            place,
            f"{self._of_major} {row} has an entry in {self._of_minor} {found}, but the matrix has {self.minor} "
            f"{self._of_minor}s: it is damaged, or was changed meanwhile",
        )


def memory_of(options: ReadOptions) -> Memory:
    """Return the memory of results."""
    return DeviceMemory(options.memory) if isinstance(options.memory, DeviceResults) else HostMemory()


def some_of(major: IntArray | None, first: int, last: int) -> IntArray | slice:
    """Return the numbers of some rows among those that were chosen, or among all."""
    return slice(first, last) if major is None else major[first:last]
