"""A sparse matrix that is read by rows and columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..arrays.outputs import HOST, DeviceResults
from ..arrays.ranges import joined_ranges, read_ranges
from ..arrays.read_options import as_dtype
from ..errors import ArgumentError, OutputError, SelectionError
from .appending import append, reopened
from .chosen import Columns, chosen_along
from .device import DeviceMemory
from .entries import DenseTarget, Entries
from .host import HostMemory, index_dtype
from .layout import Form, Layout, layout_of, shape_of
from .libraries import OF_CUPY
from .names import column_names, numbers_of
from .offsets import damaged, element_on_host, read_offsets
from .parts import Parts
from .view import DenseView
from .wanted import Scaling, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from ..arrays.array import Array
    from ..arrays.read_options import ReadOptions
    from ..hierarchy.group import Group
    from .chosen import Missing
    from .entries import Memory

    IntArray = npt.NDArray[np.int64]

#: Entries that are read at a time where only some are kept, or where they become dense.
_BATCH_ENTRIES: Final = 1 << 24


class Matrix:
    """A sparse matrix in a group, CSR or CSC; get one from :func:`open` or :func:`create`.

    ``m[rows]`` reads rows and ``m[rows, columns]`` some of their columns. Rows and columns are chosen by a slice, a
    mask, an integer (which keeps its axis) or integers in any order, also repeated; results have their order. A result
    is a ``csr_array`` or ``csc_array`` of SciPy, or of CuPy for arrays on a GPU.

    In CSR, what a read costs depends on the rows: of those, all columns are read. In CSC it depends on the columns.

    Parameters
    ----------
    group
        The group.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._layout: Layout = layout_of(group)
        self._indptr: IntArray | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Matrix, (self._group,)

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"<gzarr.sparse.Matrix {self.name!r} {self.format} ({rows}, {columns}) {self.dtype} {self.device}>"

    # -- what it is

    @property
    def group(self) -> Group:
        """The group that holds it."""
        return self._group

    @property
    def name(self) -> str:
        """Path of the group in its store, with a leading slash."""
        return self._group.name

    @property
    def format(self) -> Form:
        """``"csr"`` or ``"csc"``."""
        return self._layout.form

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self._layout.shape

    @property
    def ndim(self) -> int:
        """2."""
        return 2

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the stored values."""
        return self._layout.data.dtype

    @property
    def device(self) -> str:
        """Device that it is read to: ``"cpu"`` or ``"cuda:N"``."""
        return self._layout.data.device

    @property
    def data(self) -> Array:
        """Array of the values; it may be longer than :attr:`nnz`."""
        return self._layout.data

    @property
    def indices(self) -> Array:
        """Array of the column of each value (in CSC, of the row)."""
        return self._layout.indices

    @property
    def nnz(self) -> int:
        """Number of stored values; the first use reads :attr:`indptr`."""
        return int(self.indptr[-1])

    @property
    def indptr(self) -> IntArray:
        """int64 ``(n + 1,)`` in host memory: how many values are before each row (in CSC, before each column).

        It is read at the first use, and kept: 8 bytes for each row.

        Raises
        ------
        ChunkDecodeError
            If it does not begin with 0, descends, or goes beyond the values.
        ChunkError, SelectionError
            As for :meth:`gzarr.Array.read`.
        """
        # Several threads may do this at once; at worst, it is read twice.
        if self._indptr is None:
            self._indptr = read_offsets(self._layout)
        return self._indptr

    # -- reading

    def __getitem__(self, selection: Any) -> Any:
        """Read rows, or rows and columns; see :meth:`read`."""
        if not isinstance(selection, tuple):
            return self.read(selection)
        if len(selection) > 2:
            raise SelectionError(f"matrix {self.name!r} has two dimensions, not {len(selection)}")
        return self.read(*selection)

    def read(
        self,
        rows: Any = None,
        columns: Any = None,
        *,
        missing: Missing = None,
        dtype: Any = None,
        stream: Any = None,
    ) -> Any:
        """Read rows and columns as a sparse matrix.

        Parameters
        ----------
        rows, columns
            Slice, mask, integer, or integers in any order, possibly repeated; None for all.
        missing
            ``"zero"``: −1 among ``columns`` stands for one that the matrix has not, whose elements are 0. None: as in
            NumPy, −1 is the last one.
        dtype
            Data type of the values, converted while they are decoded; None for that of the matrix (``float16`` becomes
            ``float32``, which SciPy has). On a GPU, CuPy has ``bool``, ``float32``, ``float64`` and complex numbers.
        stream
            As for :meth:`gzarr.Array.read`.

        Returns
        -------
        ``csr_array`` or ``csc_array`` of SciPy, or of CuPy on a GPU, in the format of the matrix. The entries of a row
        have the order that they have in the store; where columns were chosen, theirs.

        Raises
        ------
        ArgumentError
            If SciPy is not installed, or if ``dtype`` is none of these.
        SelectionError
            If rows or columns do not fit, or if the result is too large.
        ChunkDecodeError
            If an index is outside of the matrix; the message names the row. Other errors of chunks as for
            :meth:`gzarr.Array.read`.
        DeviceError, MemoryError
            If the device cannot be used, or runs out of memory.
        """
        wanted = self._value_dtype(dtype)
        options = self._options(stream)
        if options.memory is not HOST and wanted.char not in OF_CUPY:
            raise ArgumentError(
                f"matrix {self.name!r}: sparse matrices of CuPy have no {wanted}; pass dtype='float32', or use "
                "to_dense or read_parts"
            )
        memory = self._memory_of(options)
        entries, shape = self._entries(self._chosen(rows, columns, missing), wanted, options, memory)
        return memory.matrix(entries, shape, self.format)

    def read_parts(
        self,
        rows: Any = None,
        columns: Any = None,
        *,
        missing: Missing = None,
        dtype: Any = None,
        stream: Any = None,
    ) -> Parts:
        """Read rows and columns as three arrays, without SciPy.

        Parameters
        ----------
        rows, columns, missing, dtype, stream
            As for :meth:`read`; values of any data type on a GPU, too.

        Returns
        -------
        The arrays, of NumPy or CuPy.

        Raises
        ------
        ArgumentError, SelectionError, ChunkError, DeviceError, MemoryError
            As for :meth:`read`.
        """
        options = self._options(stream)
        memory = self._memory_of(options)
        chosen = self._chosen(rows, columns, missing)
        entries, shape = self._entries(chosen, self._value_dtype(dtype), options, memory)
        return Parts(entries.values, entries.indices, memory.offsets(entries), shape)

    def to_dense(
        self,
        rows: Any = None,
        columns: Any = None,
        *,
        missing: Missing = None,
        normalize: float | None = None,
        log1p: bool = False,
        out: Any = None,
        dtype: Any = None,
        stream: Any = None,
    ) -> Any:
        """Read rows and columns as a dense array; entries of one element are added up.

        Parameters
        ----------
        rows, columns, missing, stream
            As for :meth:`read`.
        normalize, log1p
            As for :meth:`dense`, of CSR.
        out
            Array of the result's shape and dtype, with any strides.
        dtype
            Data type of the result; None for that of ``out``, or else of the matrix. Values are converted before they
            are added up.

        Returns
        -------
        ``out``, or a new array ``(rows, columns)`` of NumPy, or of CuPy on a GPU.

        Raises
        ------
        OutputError
            If ``out`` does not fit; nothing was read.
        ArgumentError, SelectionError, ChunkError, DeviceError, MemoryError
            As for :meth:`read`.
        """
        if dtype is None and out is not None:
            dtype = getattr(out, "dtype", None)
        final = self.dtype if dtype is None else as_dtype(dtype)
        wanted = self._value_dtype(final)
        scaling = self._scaling(normalize, log1p, final)
        options = self._options(stream)
        memory = self._memory_of(options)
        major, minor = self._chosen(rows, columns, missing)
        counts = (self._major if major is None else len(major), self._minor if minor is None else len(minor))
        shape = counts if self.format == "csr" else (counts[1], counts[0])
        try:
            result = self.data._output(shape, final, out, options.memory)
        except OutputError as error:
            raise OutputError(f"matrix {self.name!r}: {error}") from None
        target = result if self.format == "csr" else result.T
        made = Wanted(wanted, None if minor is None else Columns.of(minor, self._minor), scaling)
        if wanted == final:
            self._densify(major, made, options, DenseTarget.of(target, memory.address))
            return result
        for first, last in self._batches(major, counts[1]):
            dense = options.memory.empty((last - first, counts[1]), wanted)
            memory.densify(
                self._fetch(_some(major, first, last), made, options, memory),
                made,
                DenseTarget.of(dense, memory.address),
            )
            options.memory.copy(target[first:last], dense)
        return result

    def dense(
        self,
        *,
        columns: Any = None,
        missing: Missing = None,
        dtype: Any = None,
        normalize: float | None = None,
        log1p: bool = False,
    ) -> DenseView:
        """Return the rows as a dense array that is read later, for what takes arrays, such as :class:`gzarr.Loader`.

        Parameters
        ----------
        columns, missing
            As for :meth:`read`.
        dtype
            Data type of the elements; None for that of the matrix (``float16`` becomes ``float32``).
        normalize
            Sum that each row is scaled to, such as 1e4: over all columns of the matrix, also where ``columns`` takes
            some of them. A row whose sum is 0 stays. None for no scaling.
        log1p
            Whether the natural logarithm of 1 + x is taken of each element, after the scaling. Both are computed in
            float64 and rounded once, so ``dtype`` must be ``float32`` or ``float64`` with either.

        Returns
        -------
        The view, on the device of the matrix. :attr:`indptr` has been read, nothing else.

        Raises
        ------
        ArgumentError
            If the matrix is CSC, of which single rows cannot be read, if ``dtype`` is no type of numbers, or if
            ``normalize`` or ``log1p`` is wrong.
        SelectionError
            If columns do not fit.
        ChunkError
            If ``indptr`` cannot be read, or is wrong.
        """
        if self.format != "csr":
            raise ArgumentError(
                f"matrix {self.name!r} is CSC, of which single rows cannot be read: write it as CSR, for example by "
                "gzarr.sparse.create(store, m[:].tocsr())"
            )
        wanted = self._value_dtype(dtype)
        scaling = self._scaling(normalize, log1p, wanted)
        chosen = chosen_along(columns, self.shape[1], "columns", self.name, missing)
        return DenseView(self, chosen, wanted, scaling)

    def columns_named(self, names: Sequence[str], *, missing: Missing = None) -> IntArray:
        """Return the numbers of columns by their names, for ``columns=``.

        The names are the index of AnnData's ``var`` beside the matrix (for ``raw/X``, of ``raw/var``).

        Parameters
        ----------
        names
            Strings, in the order that columns are wanted in.
        missing
            ``"zero"``: those that the matrix has not are −1, which means a column of zeros where ``missing="zero"`` is
            passed along. None: they are an error.

        Returns
        -------
        int64 ``(n,)``.

        Raises
        ------
        ArgumentError
            If there is no column of a name, or if there are several.
        NodeNotFoundError
            If there is no ``var``.

        Examples
        --------
        >>> genes = ["CD3D", "MS4A1", "NKG7"]                                                        # doctest: +SKIP
        >>> m.dense(columns=m.columns_named(genes, missing="zero"), missing="zero")                  # doctest: +SKIP
        """
        if missing not in (None, "zero"):
            raise ArgumentError(f"missing must be 'zero' or None, not {missing!r:.100}")
        known = column_names(self._group, self.shape[1])
        return numbers_of(names, known, self.name, missing=missing is not None)

    # -- changing

    def append(self, block: Any, *, lock: bool = False) -> None:
        """Append rows to CSR, or columns to CSC.

        Values are written before the shape, so readers see all of a block or nothing, and a failed or interrupted call
        leaves the matrix as it was. Threads take turns, and so do processes that pass ``lock=True``.

        Parameters
        ----------
        block
            Sparse matrix or array of SciPy or CuPy with as many columns (in CSC, rows).
        lock
            Whether to exclude other processes that also pass ``lock=True``, by a file lock beside the data.

        Raises
        ------
        ArgumentError
            If the block does not fit, or if the matrix cannot hold its values; nothing was changed.
        ReadOnlyError
            If the group was opened for reading.
        ChunkDecodeError
            If :attr:`indptr` ends with a wrong number; nothing was changed.
        ChunkWriteError, StoreError
            If the store fails; the matrix is as it was.
        """
        append(self._group, block, lock=lock)
        self.refresh()

    def refresh(self) -> None:
        """Look again at the group, which others may have appended to; errors as for :func:`open`."""
        self._group = reopened(self._group)
        self._layout, self._indptr = layout_of(self._group), None

    def present_shape(self) -> tuple[int, int]:
        """Return the shape that the group in the store has now; this matrix keeps its own until :meth:`refresh`.

        Raises
        ------
        NodeNotFoundError, NodeTypeError, MetadataError, StoreError
            As for :func:`open`.
        """
        return shape_of(reopened(self._group))

    # -- how it is read

    @property
    def _major(self) -> int:
        return self.shape[self.format == "csc"]

    @property
    def _minor(self) -> int:
        return self.shape[self.format == "csr"]

    @property
    def _of_major(self) -> str:
        return "row" if self.format == "csr" else "column"

    @property
    def _of_minor(self) -> str:
        return "column" if self.format == "csr" else "row"

    def _value_dtype(self, dtype: Any) -> np.dtype[Any]:
        """Return the type in which values are read."""
        wanted = self.dtype if dtype is None else as_dtype(dtype)
        if wanted.char not in "?bBhHiIlLqQefdFD":
            raise ArgumentError(f"matrix {self.name!r}: values cannot be converted to dtype={wanted}")
        if self.dtype.kind == "c" and wanted.kind != "c":
            raise ArgumentError(f"matrix {self.name!r}: complex numbers cannot be converted to dtype={wanted}")
        return np.dtype(np.float32) if wanted == np.float16 else wanted.newbyteorder("=")

    @staticmethod
    def _memory_of(options: ReadOptions) -> Memory:
        return DeviceMemory(options.memory) if isinstance(options.memory, DeviceResults) else HostMemory()

    def _options(self, stream: Any) -> ReadOptions:
        return self.data._read_options(None, stream, None, "auto", None)

    def _scaling(self, normalize: Any, log1p: Any, dtype: np.dtype[Any]) -> Scaling:
        scaling = Scaling.of(normalize, log1p, dtype, self.name)
        if scaling.total is not None and self.format != "csr":
            raise ArgumentError(f"matrix {self.name!r} is CSC: normalize is for the rows of CSR")
        return scaling

    def _chosen(self, rows: Any, columns: Any, missing: Missing) -> tuple[IntArray | None, IntArray | None]:
        """Return what was chosen along the compressed axis and the other one; None for all."""
        if missing is not None and self.format != "csr":
            raise ArgumentError(f"matrix {self.name!r} is CSC: missing= is for the columns of CSR")
        found = (
            chosen_along(rows, self.shape[0], "rows", self.name),
            chosen_along(columns, self.shape[1], "columns", self.name, missing),
        )
        return found if self.format == "csr" else (found[1], found[0])

    def _entries(
        self,
        chosen: tuple[IntArray | None, IntArray | None],
        dtype: np.dtype[Any],
        options: ReadOptions,
        memory: Memory,
    ) -> tuple[Entries, tuple[int, int]]:
        major, minor = chosen
        if minor is None:
            rows = _some(major, 0, self._major if major is None else len(major))
            entries = self._fetch(rows, Wanted(dtype), options, memory, exact=True)
            counts = (entries.rows, self._minor)
        else:
            wanted = Wanted(dtype, Columns.of(minor, self._minor))
            parts = [
                memory.taken(self._fetch(_some(major, first, last), wanted, options, memory), wanted)
                for first, last in self._batches(major, 0)
            ]
            entries = memory.joined(parts)
            counts = (entries.rows, len(minor))
        return entries, counts if self.format == "csr" else (counts[1], counts[0])

    def _densify(self, major: IntArray | None, wanted: Wanted, options: ReadOptions, target: DenseTarget) -> None:
        """Read rows of the compressed form to rows of dense arrays."""
        memory = self._memory_of(options)
        if major is not None:
            # Neighbours are read at once, and each chunk for all rows in it.
            order = np.argsort(major, kind="stable")
            major, target = major[order], target.ordered(order)
        for first, last in self._batches(major, target.width):
            entries = self._fetch(_some(major, first, last), wanted, options, memory)
            memory.densify(entries, wanted, target.some(first, last))

    def _batches(self, major: IntArray | None, more: int) -> Iterator[tuple[int, int]]:
        """Yield the begins and ends of rows that are read at a time; each counts for ``more`` entries besides its own.

        There is at least one, which may be empty.
        """
        indptr = self.indptr
        rows = self._major if major is None else len(major)
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

    def _fetch(
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
        layout = self._layout
        read_as, dtype = index_dtype(layout.indices.dtype), wanted.dtype
        if not exact:
            read_as, dtype = memory.kept_types(wanted, layout.indices.dtype, layout.data.dtype)
        indices = memory.narrowed(read_ranges(layout.indices, starts, counts, read_as, options), self._minor)
        entries = Entries(offsets, indices, indices)
        wrong = memory.first_wrong(entries, self._minor)
        if wrong >= 0:
            i = int(np.searchsorted(offsets, wrong, "right")) - 1
            row = major.start + i if isinstance(major, slice) else int(major[i])
            self._refuse_index(row, int(indptr[row]) + wrong - int(offsets[i]))
        values = read_ranges(layout.data, starts, counts, dtype, options)
        entries = Entries(offsets, indices, values)
        return entries if exact else memory.prepared(entries, wanted)

    def _refuse_index(self, row: int, place: int) -> None:
        array = self._layout.indices
        found = int(element_on_host(array, place))
        raise damaged(
            array,
            place,
            f"{self._of_major} {row} has an entry in {self._of_minor} {found}, but the matrix has {self._minor} "
            f"{self._of_minor}s: it is damaged, or was changed meanwhile",
        )


def _some(major: IntArray | None, first: int, last: int) -> IntArray | slice:
    return slice(first, last) if major is None else major[first:last]
