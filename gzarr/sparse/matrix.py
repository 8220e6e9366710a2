"""A sparse matrix that is read by rows and columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..arrays.outputs import HOST
from ..arrays.read_options import as_dtype
from ..errors import ArgumentError, OutputError, SelectionError
from ..flags import check_flags
from ..guarded import Lock
from .appending import append, reopened
from .chosen import Columns, chosen_along
from .entries import DenseTarget
from .layout import layout_of, shape_of
from .libraries import OF_CUPY
from .names import column_names, numbers_of
from .parts import Parts
from .snapshot import Snapshot, memory_of, some_of
from .view import DenseView
from .wanted import Wanted

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from ..arrays.array import Array
    from ..hierarchy.group import Group
    from .chosen import Missing
    from .layout import Form, Layout

    IntArray = npt.NDArray[np.int64]


class Matrix:
    """A sparse matrix in a group, CSR or CSC; get one from :func:`open` or :func:`create`.

    ``m[rows]`` reads rows and ``m[rows, columns]`` some of their columns. Rows and columns are chosen by a slice, a
    mask, an integer (which keeps its axis) or integers in any order, also repeated; results have their order. A result
    is a ``csr_array`` or ``csc_array`` of SciPy, or of CuPy for arrays on a GPU.

    In CSR, what a read costs depends on the rows: of those, all columns are read. In CSC it depends on the columns.

    Threads may read it while another one appends: each read sees the matrix before or after.

    Parameters
    ----------
    group
        The group.
    """

    def __init__(self, group: Group) -> None:
        self._start(Snapshot(layout_of(group)))

    def _start(self, snapshot: Snapshot) -> None:
        # Swapped as a whole, and taken once for each read.
        self._snapshot = snapshot
        self._swapping = Lock()
        # Numbers of the last look at the group that was begun, and of the one whose snapshot is kept.
        self._begun = self._kept = 0

    def _as_of(self, snapshot: Snapshot) -> Matrix:
        """Return this matrix as it was."""
        return self if snapshot is self._snapshot else _matrix_of(snapshot.layout)

    def __reduce__(self) -> tuple[Any, ...]:
        # It keeps its shape, as arrays do.
        return _matrix_of, (self._snapshot.layout,)

    def __dask_tokenize__(self) -> str:
        return self._snapshot.token()

    def __repr__(self) -> str:
        now = self._snapshot
        rows, columns = now.shape
        return f"<gzarr.sparse.Matrix {now.name!r} {now.form} ({rows}, {columns}) {now.dtype} {now.data.device}>"

    # -- what it is

    @property
    def group(self) -> Group:
        """The group that holds it."""
        return self._snapshot.group

    @property
    def name(self) -> str:
        """Path of the group in its store, with a leading slash."""
        return self._snapshot.name

    @property
    def format(self) -> Form:
        """``"csr"`` or ``"csc"``."""
        return self._snapshot.form

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self._snapshot.shape

    @property
    def ndim(self) -> int:
        """2."""
        return 2

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the stored values."""
        return self._snapshot.dtype

    @property
    def device(self) -> str:
        """Device that it is read to: ``"cpu"`` or ``"cuda:N"``."""
        return self._snapshot.data.device

    @property
    def data(self) -> Array:
        """Array of the values; it may be longer than :attr:`nnz`."""
        return self._snapshot.data

    @property
    def indices(self) -> Array:
        """Array of the column of each value (in CSC, of the row)."""
        return self._snapshot.layout.indices

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
        return self._snapshot.indptr

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
        now = self._snapshot
        wanted = now.value_dtype(dtype)
        options = now.options(stream)
        if options.memory is not HOST and wanted.char not in OF_CUPY:
            raise ArgumentError(
                f"matrix {now.name!r}: sparse matrices of CuPy have no {wanted}; pass dtype='float32', or use "
                "to_dense or read_parts"
            )
        memory = memory_of(options)
        entries, shape = now.entries(now.chosen(rows, columns, missing), wanted, options, memory)
        return memory.matrix(entries, shape, now.form)

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
        now = self._snapshot
        options = now.options(stream)
        memory = memory_of(options)
        chosen = now.chosen(rows, columns, missing)
        entries, shape = now.entries(chosen, now.value_dtype(dtype), options, memory)
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
        now = self._snapshot
        final = now.dtype if dtype is None else as_dtype(dtype)
        wanted = now.value_dtype(final)
        scaling = now.scaling(normalize, log1p, final)
        options = now.options(stream)
        memory = memory_of(options)
        major, minor = now.chosen(rows, columns, missing)
        counts = (now.major if major is None else len(major), now.minor if minor is None else len(minor))
        shape = counts if now.form == "csr" else (counts[1], counts[0])
        try:
            result = now.data._output(shape, final, out, options.memory)
        except OutputError as error:
            raise OutputError(f"matrix {now.name!r}: {error}") from None
        target = result if now.form == "csr" else result.T
        made = Wanted(wanted, None if minor is None else Columns.of(minor, now.minor), scaling)
        if wanted == final:
            now.densify(major, made, options, DenseTarget.of(target, memory.address))
            return result
        for first, last in now.batches(major, counts[1]):
            dense = options.memory.empty((last - first, counts[1]), wanted)
            memory.densify(
                now.fetch(some_of(major, first, last), made, options, memory),
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
        now = self._snapshot
        if now.form != "csr":
            raise ArgumentError(
                f"matrix {now.name!r} is CSC, of which single rows cannot be read: write it as CSR, for example by "
                "gzarr.sparse.create(store, m[:].tocsr())"
            )
        wanted = now.value_dtype(dtype)
        scaling = now.scaling(normalize, log1p, wanted)
        chosen = chosen_along(columns, now.shape[1], "columns", now.name, missing)
        return DenseView(self, chosen, wanted, scaling)

    def columns_named(self, names: Sequence[str], *, missing: Missing = None) -> IntArray:
        """Return the numbers of columns by their names, for ``columns=``.

        The names are the index of AnnData's ``var`` beside the matrix (for ``raw/X``, of ``raw/var``).

        Parameters
        ----------
        names
            Strings, or bytes of UTF-8, in the order that columns are wanted in.
        missing
            ``"zero"``: those that the matrix has not are −1, which means a column of zeros where ``missing="zero"`` is
            passed along. None: they are an error.

        Returns
        -------
        int64 ``(n,)``.

        Raises
        ------
        ArgumentError
            If there is no column of a name, or if there are several; if a name is no string; if the matrix is one whose
            columns are none of ``var``, such as those in ``obsp``.
        NodeNotFoundError
            If there is no ``var``.

        Examples
        --------
        >>> genes = ["CD3D", "MS4A1", "NKG7"]                                                        # doctest: +SKIP
        >>> m.dense(columns=m.columns_named(genes, missing="zero"), missing="zero")                  # doctest: +SKIP
        """
        if missing not in (None, "zero"):
            raise ArgumentError(f"missing must be 'zero' or None, not {missing!r:.100}")
        now = self._snapshot
        known = column_names(now.group, now.shape[1])
        return numbers_of(names, known, now.name, missing=missing is not None)

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
            If the block does not fit, if its arrays do not fit together, or if the matrix cannot hold its values;
            nothing was changed.
        ReadOnlyError
            If the group was opened for reading.
        ChunkDecodeError
            If :attr:`indptr` ends with a wrong number; nothing was changed.
        ChunkWriteError, StoreError
            If the store fails; the matrix is as it was.
        """
        check_flags(lock=lock)
        append(self.group, block, lock=lock)
        self.refresh()

    def refresh(self) -> None:
        """Look again at the group, which others may have appended to; errors as for :func:`open`."""
        with self._swapping:
            self._begun += 1
            begun = self._begun
        found = Snapshot(layout_of(reopened(self.group)))
        with self._swapping:
            # Of threads that look at the same time, the one that began last sees all that the others have appended.
            if begun > self._kept:
                self._snapshot, self._kept = found, begun

    def present_shape(self) -> tuple[int, int]:
        """Return the shape that the group in the store has now; this matrix keeps its own until :meth:`refresh`.

        Raises
        ------
        NodeNotFoundError, NodeTypeError, MetadataError, StoreError
            As for :func:`open`.
        """
        return shape_of(reopened(self.group))


def _matrix_of(layout: Layout) -> Matrix:
    """Return the matrix of a layout, without a request."""
    found = Matrix.__new__(Matrix)
    found._start(Snapshot(layout))
    return found
