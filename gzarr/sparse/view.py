"""A sparse matrix as a dense array that is read later, for what takes arrays: loaders first of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import numpy as np

from ..arrays.exporting import ExportedArray
from ..arrays.read import Reader
from ..arrays.read_options import NO_OPTIONS, ReadOptions
from ..distinct import distinct
from ..engines import stack
from ..errors import ArgumentError, ReadOnlyError
from ..hierarchy.array_spec import new_metadata
from ..plan.keys import distinct_rows
from .chosen import Columns
from .entries import DenseTarget
from .snapshot import memory_of
from .wanted import AS_STORED, Scaling, Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from ..arrays.array import Array
    from ..arrays.outputs import Results
    from ..arrays.read_options import DeviceOptions
    from ..engines.access.access import Missing, ReadRequest
    from ..hierarchy.group import Group
    from ..metadata.model import ArrayMetadata
    from ..plan.planner import Plan
    from ..plan.selection import Selection
    from .snapshot import Snapshot

    IntArray = npt.NDArray[np.int64]

#: Chunks of ``data`` in a chunk of the view: its rows begin and end within chunks, so one more is decoded for each.
_CHUNKS: Final = 16
#: Least number of chunks of the view, if chunks of ``data`` are small enough.
_PARTS: Final = 64


class CompressedRows(Protocol):
    """What a view needs of its matrix; :class:`gzarr.sparse.Matrix` has it."""

    _snapshot: Snapshot

    @property
    def name(self) -> str:
        """Path of the group."""

    @property
    def group(self) -> Group:
        """The group."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def nnz(self) -> int:
        """Number of values."""

    @property
    def indptr(self) -> IntArray:
        """int64 ``(rows + 1,)``: how many values are before each row."""

    @property
    def data(self) -> Array:
        """Array of the values."""

    @property
    def indices(self) -> Array:
        """Array of their columns."""

    def present_shape(self) -> tuple[int, int]:
        """Return the shape in the store."""

    def _as_of(self, snapshot: Snapshot) -> CompressedRows:
        """Return the matrix as it was at one time."""


class DenseView(ExportedArray):
    """The rows of a sparse matrix as a dense array, which reads nothing before elements are asked for.

    Get one from :meth:`Matrix.dense`. It takes slices, integers, a mask or an index array of rows, and slices or
    integers of columns. Its chunks are so many rows that hardly any chunk of ``data`` is decoded for two of them.

    Parameters
    ----------
    matrix
        The matrix, CSR.
    columns
        int64 ``(n,)``, numbers of the columns; None for all.
    dtype
        Data type of the elements.
    scaling
        How each row is scaled.
    """

    __slots__ = ("_columns", "_matrix", "_scaling", "_snapshot")

    def __init__(
        self,
        matrix: CompressedRows,
        columns: IntArray | None,
        dtype: np.dtype[Any],
        scaling: Scaling = AS_STORED,
    ) -> None:
        self._matrix, self._columns, self._scaling = matrix, columns, scaling
        # Its shape stays, so what it reads does, too.
        self._snapshot: Snapshot = matrix._snapshot
        now, data = self._snapshot, self._snapshot.data
        self._store, self._path, self._mode = data.store, now.group.path, "r"
        self._auto, self._device = data._auto, data._device
        self._missing, self._verify = data._missing, data._verify
        rows, width = now.shape[0], now.shape[1] if columns is None else len(columns)
        of_chunk = -(-rows * data._planned_grid.chunk_shape[0] // max(now.nnz, 1))
        chunk = max(min(_CHUNKS * of_chunk, rows // _PARTS), of_chunk, 1)
        self._metadata: ArrayMetadata = new_metadata(
            self._path, (rows, width), 3, dtype=dtype, chunks=(min(chunk, max(rows, 1)), max(width, 1)), codecs=None
        )
        self._reader: _DenseReader = _DenseReader(self, self._metadata)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DenseView):
            return NotImplemented
        own, others = ((view.name, view.shape, view.dtype, view._scaling) for view in (self, other))
        if self.store != other.store or own != others:
            return False
        if self._columns is None or other._columns is None:
            return self._columns is other._columns
        return np.array_equal(self._columns, other._columns)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        # Rows may have been appended since.
        return DenseView, (self._matrix._as_of(self._snapshot), self._columns, self.dtype, self._scaling)

    def __repr__(self) -> str:
        return f"<gzarr.sparse.DenseView {self.name} {self.shape} {self.dtype} {self.device}>"

    def _repr_html_(self) -> str | None:  # type: ignore[override]
        return None

    def __dask_tokenize__(self) -> str:
        said = f"{self._snapshot.token()} {self.dtype} {self._scaling}"
        return said if self._columns is None else f"{said} {self._columns.tobytes().hex()}"

    @property
    def matrix(self) -> CompressedRows:
        """The matrix, a :class:`Matrix`."""
        return self._matrix

    @property
    def name(self) -> str:
        """Path of the matrix in its store with a leading slash, and how many columns of it these are."""
        return self._matrix.name if self._columns is None else f"{self._matrix.name}[:, {len(self._columns)} columns]"

    @property
    def wanted(self) -> Wanted:
        """What is made of the entries of a row."""
        return Wanted(self.dtype, self._reader._whole, self._scaling)

    @property
    def scaling(self) -> Scaling:
        """How each row is scaled."""
        return self._scaling

    def _check_writable(self) -> None:
        raise ReadOnlyError(f"{self.name} is a dense view of a sparse matrix, which is for reading")

    def _on_device(self, device: str) -> DenseView:
        if device == self.device:
            return self
        raise ArgumentError(f"{self.name} is read to {self.device}; open the matrix with device={device!r}")

    def _present_shape(self) -> tuple[int, ...]:
        """Return the shape that the matrix leaves it now, by its group's document."""
        shape = self._matrix.present_shape()
        return shape if self._columns is None else (shape[0], len(self._columns))


class _DenseReader(Reader):
    """Reader of a dense view: what is planned over its chunks is read as rows of the matrix.

    Parameters
    ----------
    view
        The view.
    metadata
        Its metadata, with the data type of the results.
    """

    __slots__ = ("_view", "_whole")

    def __init__(self, view: DenseView, metadata: ArrayMetadata) -> None:
        super().__init__(metadata, view._store, view._path, view._device)
        self._view = view
        self._whole = None if view._columns is None else Columns.of(view._columns, view._snapshot.shape[1])

    def converting(self, dtype: np.dtype[Any]) -> Reader | None:
        """Return None: elements are converted afterwards."""
        return None

    def ask(self, chunks: IntArray, ask: Callable[[ReadRequest], None]) -> None:
        """Refuse: chunks of the view are none of the store."""
        raise ArgumentError(f"{self._view.name}: chunks of a dense view cannot be asked for")

    def path(self, device: str, verify: Any = "none") -> str:
        """Return what this is for the values of the matrix."""
        return f"dense rows of {self._view._snapshot.data._reader.path(device, verify)}"

    def _fill_quickly(self, selection: Selection, result: Any, missing: Missing) -> bool:
        return False

    def _fill_chunks_quickly(self, coords: Sequence[tuple[int, ...]], results: Sequence[Any], missing: Missing) -> bool:
        return False

    def _run_parts(
        self,
        the_plan: Plan,
        views: Sequence[Any],
        field: str | None,
        missing: Missing,
        memory: Results,
        whole: Any,
        options: DeviceOptions = NO_OPTIONS,
    ) -> None:
        if not len(the_plan):
            return
        if the_plan.points is not None or the_plan.tables[1] is not None:
            raise ArgumentError(
                f"{self._view.name} is a dense view of a sparse matrix, which takes slices of columns: choose others "
                "by m.dense(columns=…), or read m.to_dense(rows, columns)"
            )
        reading = ReadOptions(missing, memory, options)
        now = self._view._snapshot
        address = memory_of(reading).address
        begins, strides = stack.addresses(views, address), stack.strides(views, 2)
        rows, piece, places = _rows_of(the_plan, self.planned_grid.chunk_shape[0])
        output = the_plan.output[piece]
        # Which columns: hardly ever others for one piece than for another.
        kinds = np.stack([the_plan.start[:, 1], the_plan.count[:, 1], the_plan.target[:, 1]], axis=1)
        which = np.zeros(len(piece), np.int64)
        if (kinds == kinds[0]).all():
            kinds = kinds[:1]
        else:
            kinds, of_piece = distinct_rows(kinds)
            which = of_piece[piece]
        step = int(the_plan.step[1])
        for number, (start, count, target) in enumerate(kinds.tolist()):
            some = np.flatnonzero(which == number)
            # Of rows that many views have, all columns have one distance.
            for stride in distinct(strides[output[some], 1]).tolist():
                here = some[strides[output[some], 1] == stride]
                outputs = output[here]
                addresses = begins[outputs] + places[here] * strides[outputs, 0] + target * stride
                found = DenseTarget(
                    whole if whole is not None else views[0],
                    addresses,
                    stride,
                    count,
                    _rows_in(views, outputs, places[here], slice(target, target + count)),
                )
                columns = self._columns_of(start, count, step)
                wanted = Wanted(self._metadata.dtype, columns, self._view._scaling)
                now.densify(rows[here], wanted, reading, found)

    def _columns_of(self, start: int, count: int, step: int) -> Columns | None:
        """Return the columns of a slice of the view."""
        if start == 0 and step == 1 and count == self._metadata.shape[1]:
            return self._whole
        chosen = start + step * np.arange(count, dtype=np.int64)
        if self._view._columns is not None:
            chosen = self._view._columns[chosen]
        return Columns.of(chosen, self._view._snapshot.shape[1])


def _rows_in(views: Sequence[Any], outputs: IntArray, places: IntArray, columns: slice) -> Callable[[int], Any]:
    """Return the function that returns some columns of a row of an output, by its number among some rows."""
    return lambda i: views[int(outputs[i])][int(places[i]), columns]


def _rows_of(the_plan: Plan, length: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return each row that a plan wants, the piece that it is of, and its place along the first axis of its output."""
    counts = the_plan.count[:, 0]
    piece = np.repeat(np.arange(len(counts)), counts)
    nth = np.arange(len(piece)) - np.repeat(np.cumsum(counts) - counts, counts)
    begin = length * np.repeat(the_plan.chunks[:, 0], np.diff(the_plan.piece_offsets))[piece]
    table = the_plan.tables[0]
    at = the_plan.start[piece, 0]
    if table is not None:
        return begin + table.source[at + nth], piece, table.target[at + nth]
    return begin + at + nth * the_plan.step[0], piece, the_plan.target[piece, 0] + nth
