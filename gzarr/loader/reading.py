"""Reading samples into batches: each window is placed where its sample is in its batch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..arrays.outputs import no_room
from ..cached import cached_property
from ..distinct import distinct
from ..errors import ArgumentError
from ..plan.planner import plan_windows
from ..sparse.kept_rows import KeptRows, SparseRows, entry_nbytes, row_nbytes
from ..sparse.parts import Parts
from ..sparse.view import DenseView
from ..windows.runs import runs
from .posing import pose

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from ..arrays.array import Array
    from ..arrays.exporting import ExportedArray
    from ..metadata.chunk_grid import ChunkGrid
    from ..windows.runs import Run
    from .memory import Memory
    from .samples import Part

    B = TypeVar("B", bound=dict[str, Any])
    IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ReadOutput:
    """An array of a batch, with the windows of one or several arrays.

    Attributes
    ----------
    arrays
        Number of arrays that are stacked; None for one, without an axis for it.
    steps
        Number of windows of each, if they have an axis; else None.
    shape
        Shape of a window.
    dtype
        Data type.
    sparse
        The view whose rows stay sparse; None for arrays.
    """

    arrays: int | None
    steps: int | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    sparse: DenseView | None = field(default=None, compare=False)

    @property
    def places(self) -> int:
        """Number of windows of a sample."""
        return (self.arrays or 1) * (self.steps or 1)

    @property
    def nbytes(self) -> int:
        """Bytes of one sample; the mean where it stays sparse."""
        if self.sparse is not None:
            return row_nbytes(self.sparse)
        return self.places * math.prod(self.shape) * self.dtype.itemsize

    def empty(self, count: int, memory: Memory) -> Any:
        """Return a new array for ``count`` samples, ``(count, arrays, steps, *shape)``, or sparse rows."""
        if self.sparse is not None:
            return SparseRows(self.sparse, count, memory.stream)
        axes = [n for n in (self.arrays, self.steps) if n is not None]
        shape = (count, *axes, *self.shape)
        try:
            return memory.results.empty(shape, self.dtype)
        except MemoryError as error:
            hint = "use a smaller batch_size, or smaller samples"
            raise no_room(memory.results, shape, self.dtype, error, "an array of samples", hint) from error

    def windows(self, array: Any) -> Any:
        """Return an array for some samples with one axis for all windows of them, one sample after the other."""
        if self.arrays is None and self.steps is None:
            return array
        return array.reshape((len(array) * self.places, *self.shape))


@dataclass(frozen=True, eq=False)
class Source:
    """The windows of one array, for all parts of a sample that are cut from them.

    Attributes
    ----------
    array
        The array.
    part
        A part that needs the windows; the others differ in ``names`` and ``take`` only.
    read_shape
        Shape of the windows that are read: the part's, or the array's where that is smaller.
    output
        Where they are read to.
    number
        Its number among the arrays of a batch.
    place
        The first window's place among the windows of a sample there.
    """

    array: ExportedArray
    part: Part
    read_shape: tuple[int, ...]
    output: ReadOutput
    number: int
    place: int = 0

    @cached_property
    def is_rows(self) -> bool:
        """Whether each window is a whole row of a sparse matrix, in an array of its own."""
        part, array = self.part, self.array
        return (
            isinstance(array, DenseView)
            and (part.windows, part.axes, part.low, part.factor[0], part.flip) == (1, (0, None), (0, 0), 1, ())
            # Not the shape that is read, of which a matrix without rows has none.
            and part.shape == (1, array.shape[1])
            and self.output.places == 1
        )

    @property
    def row_offsets(self) -> IntArray:
        """How many entries are before each row of the matrix, int64 ``(rows + 1,)``."""
        return self._view._snapshot.indptr

    @cached_property
    def entry_nbytes(self) -> int:
        """Bytes of an entry of the matrix in memory."""
        return entry_nbytes(self._view)

    @property
    def _view(self) -> DenseView:
        assert isinstance(self.array, DenseView)
        return self.array

    def targets(self, arrays: Sequence[Any]) -> list[Any]:
        """Return arrays of batches with one axis for windows, and the window's axes as the array has them."""
        found = [self.output.windows(array) for array in arrays]
        if self.part.flip:
            turned = tuple(slice(None, None, -1 if d in self.part.flip else 1) for d in range(len(self.part.shape)))
            found = [array[(slice(None), *turned)] for array in found]
        return found

    def rows(self, samples: IntArray) -> IntArray:
        """Return the places of the windows of samples in such arrays, of which the samples have these places."""
        places, windows = self.output.places, self.part.windows
        if places == 1:
            return samples
        return (places * samples[:, np.newaxis] + self.place + np.arange(windows)).reshape(-1)

    @property
    def is_apart(self) -> bool:
        """Whether windows are read to memory of their own, out of which samples are made."""
        return self.read_shape != self.part.shape or self.part.posed is not None

    @property
    def apart_nbytes(self) -> int:
        """Bytes of the windows of a sample that are read apart; those around poses are much larger than the sample."""
        return self.part.windows * math.prod(self.read_shape) * self.array.dtype.itemsize if self.is_apart else 0

    @property
    def grid(self) -> ChunkGrid:
        """Grid of the array's chunks, or of the inner chunks of its shards."""
        return self.array._planned_grid

    @property
    def nchunks(self) -> int:
        """Number of chunks of :attr:`grid`."""
        return math.prod(self.grid.grid_shape)

    @property
    def chunk_nbytes(self) -> int:
        """Bytes of a chunk of :attr:`grid`, decoded; of the largest one if they differ."""
        return math.prod(self.grid.chunk_shape) * self.array.dtype.itemsize

    def inside(self, origins: IntArray) -> IntArray:
        """Return the first element of each window that is read, int64 ``(n * windows, ndim)``: moved into the array."""
        return np.clip(self.part.starts(origins), 0, np.array(self.array.shape) - np.array(self.read_shape))

    def uses(self, origins: IntArray) -> int:
        """Return how many chunks windows need, counted for each window; of a matrix, of ``data`` and ``indices``."""
        if not isinstance(self.array, DenseView):
            return self.grid_uses(origins)
        layout = self.array._snapshot.layout
        ends = [self._chunks_of_rows(origins, array) for array in (layout.data, layout.indices)]
        return sum(int((last - first + 1).sum()) for first, last in ends)

    def grid_uses(self, origins: IntArray) -> int:
        """Return how many chunks of :attr:`grid` windows need, counted for each window."""
        first, chunks = self.inside(origins), np.array(self.array.chunks)
        last = first + np.array(self.read_shape) - 1
        return int((last // chunks - first // chunks + 1).prod(axis=1).sum())

    def touched(self, origins: IntArray) -> IntArray:
        """Return the numbers of the chunks that windows need, ascending; of rows of a matrix, those of ``data``."""
        if self.is_rows:
            first, last = self._chunks_of_rows(origins, self._view._snapshot.layout.data)
            every = np.repeat(first, last - first + 1)
            nth = np.arange(len(every)) - np.repeat(np.cumsum(last - first + 1) - (last - first + 1), last - first + 1)
            return distinct(every + nth)
        found = plan_windows(self.inside(origins), self.read_shape, (1,) * self.array.ndim, self.grid)
        return distinct(np.ravel_multi_index(tuple(found.chunks.T), self.grid.grid_shape))

    @property
    def touched_nbytes(self) -> int:
        """Bytes of each of them, decoded; of a matrix, with that of ``indices``."""
        if not self.is_rows:
            return self.chunk_nbytes
        layout = self._view._snapshot.layout
        itemsize = layout.data.dtype.itemsize + layout.indices.dtype.itemsize
        return math.prod(layout.data._planned_grid.chunk_shape) * itemsize

    def _chunks_of_rows(self, origins: IntArray, entries: Array) -> tuple[IntArray, IntArray]:
        """Return the first and the last chunk of ``data`` or ``indices`` that rows with entries need."""
        offsets, rows = self.row_offsets, self.inside(origins)[:, 0]
        begins, ends = offsets[rows], offsets[rows + self.read_shape[0]]
        some = begins < ends
        length = entries._planned_grid.chunk_shape[0]
        return begins[some] // length, (ends[some] - 1) // length

    def overlaps(self, stride: Sequence[int]) -> bool:
        """Return whether windows of samples, neighbours of which are ``stride`` apart, may share elements."""
        part = self.part
        return part.windows > 1 or any(
            axis is not None and length * factor > stride[axis]
            for axis, length, factor in zip(part.axes, self.read_shape, part.factor, strict=True)
        )

    def is_dense(self, stride: Sequence[int]) -> bool:
        """Return whether a window of each sample, ``stride`` apart along each axis, leaves no gap to its neighbours."""
        part = self.part
        return part.windows == 1 and all(
            axis is None or length * factor >= stride[axis]
            for axis, length, factor in zip(part.axes, self.read_shape, part.factor, strict=True)
        )

    def read(self, origins: IntArray, outputs: Sequence[Any], memory: Memory, rows: IntArray | None = None) -> None:
        """Read the windows of some samples.

        Parameters
        ----------
        origins
            int64 ``(n, columns)``.
        outputs
            Arrays of batches for ``n`` samples together.
        memory
            Memory of the arrays.
        rows
            int64 ``(n,)``, place of each sample along the first axes of ``outputs``; None for 0 to n − 1.
        """
        if rows is not None and len(outputs) > len(rows):
            outputs, rows = _only_needed(outputs, rows)
        if self.output.sparse is not None:
            self._read_sparse(origins, outputs, memory, rows)
            return
        target = Target(self, origins, outputs, memory, rows)
        self.array.read_windows(
            target.inside, self.read_shape, out=target.outputs, rows=target.rows, stream=memory.stream
        )
        target.pad()

    def _read_sparse(self, origins: IntArray, outputs: Sequence[Any], memory: Memory, rows: IntArray | None) -> None:
        """Read rows that stay sparse; as :meth:`read`."""
        wanted, which = np.unique(self.inside(origins)[:, 0], return_inverse=True)
        kept = KeptRows(self._view, wanted, memory.stream)
        places = np.arange(len(which)) if rows is None else rows
        begin = 0
        for output in outputs:
            here = np.flatnonzero((places >= begin) & (places < begin + len(output)))
            if len(here):
                output.put(places[here] - begin, kept.taken(which[here], memory.results))
            begin += len(output)

    def pose(
        self, windows: Sequence[Any], inside: IntArray, origins: IntArray, samples: Sequence[Any], memory: Memory
    ) -> None:
        """Fill samples, whose part is posed, from the windows that were read for them.

        Parameters
        ----------
        windows, samples
            An array of :attr:`read_shape` for each sample, and its array.
        inside
            int64 ``(n, ndim)``, first element of each window.
        origins
            int64 ``(n, columns)``.
        memory
            Memory of the arrays.
        """
        assert self.part.posed is not None
        pose(self.array, self.part.posed, str(self.part.pad), windows, inside, origins, samples, memory)

    def runs(self, d: int, start: int) -> list[Run]:
        """Return the runs of elements that a window of the part's shape has along a dimension, from ``start`` on."""
        pad = self.part.pad
        boundary = 0 if pad is None or pad == "fill" else pad
        return runs(start, start + self.part.shape[d], self.array.shape[d], boundary)

    def pad(self, sample: Any, window: Any, start: IntArray, inside: IntArray, memory: Memory) -> None:
        """Fill a sample from the window that was read for it, which may share its memory.

        Parameters
        ----------
        sample
            Array of the part's shape.
        window
            Elements of the array from ``inside`` on.
        start
            First element of the sample, which may be outside of the array.
        memory
            Memory of the arrays.
        """
        empty, copy = memory.results.empty, memory.results.copy
        whole = window
        axes = [d for d, length in enumerate(self.part.shape) if start[d] != inside[d] or length != window.shape[d]]
        for d in axes:
            shape = (*whole.shape[:d], self.part.shape[d], *whole.shape[d + 1 :])
            padded = empty(shape, whole.dtype)
            before = (slice(None),) * d
            for run in self.runs(d, int(start[d])):
                target = padded[(*before, slice(run.begin, run.end))]
                if run.first is None:
                    copy(target, memory.constant(self.array.metadata.absent_element, target.dtype, target.shape))
                    continue
                first = run.first - int(inside[d])
                if run.step:
                    end = first + run.step * (run.end - run.begin)
                    copy(target, whole[(*before, slice(first, end if end >= 0 else None, run.step))])
                else:
                    for i in range(run.begin, run.end):
                        copy(padded[(*before, slice(i, i + 1))], whole[(*before, slice(first, first + 1))])
            whole = padded
        copy(sample, whole)


@dataclass(frozen=True, eq=False)
class Reading:
    """What is read for a sample.

    Attributes
    ----------
    sources
        The windows.
    outputs
        The arrays of a batch.
    results
        What a batch gives out: for each part, one of those that have its names, and the number of its array.
    shared
        Those of them that have elements in common with one before, of the same memory.
    """

    sources: list[Source]
    outputs: list[ReadOutput]
    results: list[tuple[Part, int]]
    shared: list[tuple[Part, int]]

    @classmethod
    def of(cls, parts: Sequence[Part], arrays: Mapping[str, ExportedArray], *, dense: bool = True) -> Reading:
        """Return what is read for parts of some arrays by name; rows of matrices stay sparse if not ``dense``."""
        together: dict[tuple[str, ...], list[Part]] = {}
        for part in parts:
            if part.array not in arrays:
                raise ArgumentError(f"the sampler wants an array {part.array!r}; the loader has {sorted(arrays)}")
            together.setdefault(part.names, []).append(part)
        _refuse_one_place(together)
        found: list[Source] = []
        outputs: list[ReadOutput] = []
        results = []
        known: dict[Any, int] = {}
        for some in together.values():
            # Parts that differ in their names and in what they take are cut from one array.
            key = tuple(map(_window, some))
            if key not in known:
                known[key] = number = len(outputs)
                first = some[0]
                output = ReadOutput(
                    len(some) if len(some) > 1 else None,
                    len(first.steps) or None,
                    first.result_shape,
                    _dtype_of(first, arrays),
                    None if dense else _view_of(arrays[first.array]),
                )
                outputs.append(output)
                for i, part in enumerate(some):
                    array = arrays[part.array]
                    dtype = _dtype_of(part, arrays)
                    if (part.result_shape, dtype, part.windows) != (output.shape, output.dtype, first.windows):
                        raise ArgumentError(
                            f"{first.array!r} and {part.array!r} cannot be stacked: their samples are {output.dtype} "
                            f"of shape {output.shape} and {dtype} of shape {part.result_shape}"
                        )
                    shape = tuple(min(w, n) for w, n in zip(part.shape, array.shape, strict=True))
                    found.append(Source(array, part, shape, output, number, i * part.windows))
            results.append((some[0], known[key]))
        for source in found:
            if source.output.sparse is not None and not source.is_rows:
                raise ArgumentError(
                    f"dense=False is for whole rows of sparse matrices, as Rows() takes them, each in an array of its "
                    f"own; {source.part.array or 'the array'!r} is taken or stacked in another way"
                )
        views: dict[int, list[list[range]]] = {}
        shared = []
        for part, number in results:
            before, own = views.setdefault(number, []), _elements(part)
            if any(all(map(_meet, own, other)) for other in before):
                shared.append((part, number))
            else:
                before.append(own)
        return cls(found, outputs, results, shared)

    @cached_property
    def stay_sparse(self) -> set[str]:
        """The names of the matrices of which batches have rows that are sparse."""
        return {source.part.array for source in self.sources if source.output.sparse is not None}

    @property
    def names(self) -> set[str]:
        """The names that a batch has of them."""
        return {_names(part)[0] for part, _ in self.results}

    def place(self, batch: B, arrays: Sequence[Any]) -> B:
        """Put what is given out of the arrays of a batch into it, under its names; return it."""
        for part, number in self.results:
            inner, name = _place_of(part, batch)
            inner[name] = _taken(part, self.outputs[number], arrays[number])
        return batch

    def separate(self, batch: dict[str, Any], memory: Memory, mark: Any) -> Any:
        """Copy what shares memory with another result of a batch, which may be changed in place.

        Parameters
        ----------
        batch
            What :meth:`place` has filled.
        memory, mark
            Memory of its arrays, and the mark after which they are ready.

        Returns
        -------
        The mark after which they are ready now.
        """
        for part, _ in self.shared:
            inner, name = _place_of(part, batch)
            result = inner[name]
            if isinstance(result, Parts):
                arrays = {"data": result.data, "indices": result.indices, "indptr": result.indptr}
                copies, mark = memory.copied(arrays, mark)
                inner[name] = result._replace(**copies)
            else:
                copies, mark = memory.copied({name: result}, mark)
                inner.update(copies)
        return mark

    @property
    def copied_nbytes(self) -> int:
        """Bytes of a sample that are copied for that."""
        found = 0
        for part, number in self.shared:
            output = self.outputs[number]
            if output.sparse is not None:
                found += output.nbytes
            else:
                found += (output.arrays or 1) * math.prod(map(len, _elements(part))) * output.dtype.itemsize
        return found


def _names(part: Part) -> tuple[str, ...]:
    """Return the keys of the result of a part in a batch."""
    return (*part.names[:-1], part.names[-1] or "data")


def _place_of(part: Part, batch: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the dict that has the result of a part, which is made if it is not there, and its name in it."""
    *outer, name = _names(part)
    for one in outer:
        batch = batch.setdefault(one, {})
    return batch, name


def _refuse_one_place(together: Mapping[tuple[str, ...], list[Part]]) -> None:
    """Refuse results of which one would take another one's place in a batch."""
    places: set[tuple[str, ...]] = set()
    dicts: set[tuple[str, ...]] = set()
    for first, *_ in together.values():
        names = _names(first)
        outer = {names[:i] for i in range(1, len(names))}
        if names in places or names in dicts or places & outer:
            raise ArgumentError(
                f"a batch would have two results in one place, {'/'.join(names)!r}: give each array and each run a "
                "name of its own; an array without a name is 'data', or has the name of its run"
            )
        places.add(names)
        dicts |= outer


def _elements(part: Part) -> list[range]:
    """Return which indices along each axis of what was read for a sample a part takes; all if it takes them oddly."""
    shape = (*((len(part.steps),) if part.steps else ()), *part.result_shape)
    if len(part.take) > len(shape) or not all(isinstance(one, (int, slice)) for one in part.take):
        return [*map(range, shape)]
    taken = [
        range(n)[one if isinstance(one, slice) else slice(one, one + 1 or None)]
        for n, one in zip(shape, part.take, strict=False)
    ]
    return [*taken, *map(range, shape[len(taken) :])]


def _meet(some: range, other: range) -> bool:
    """Return whether two ranges have a number in common."""
    if not some or not other:
        return False
    begin = max(min(some[0], some[-1]), min(other[0], other[-1]))
    end = min(max(some[0], some[-1]), max(other[0], other[-1]))
    if begin > end:
        return False
    return abs(some.step) == abs(other.step) == 1 or any(i in other for i in some)


def _view_of(array: ExportedArray) -> DenseView | None:
    return array if isinstance(array, DenseView) else None


def _dtype_of(part: Part, arrays: Mapping[str, ExportedArray]) -> np.dtype[Any]:
    """Return the data type of the result of a part."""
    own = arrays[part.array].dtype
    return own if part.posed is None or part.posed.dtype is None else part.posed.dtype


def _window(part: Part) -> Any:
    return part.array, part.shape, part.low, part.axes, part.factor, part.pad, part.steps, part.flip, part.posed


def _taken(part: Part, output: ReadOutput, array: Any) -> Any:
    """Return what a part has of an array of a batch."""
    if output.sparse is not None:
        return array if isinstance(array, Parts) else array.taken()
    before = 1 if output.arrays is None else 2
    result = array[(*(slice(None),) * before, *part.take)] if part.take else array
    if part.steps and (axis := part.axes.index(0)):
        # The axis of the windows, to where they lie in the array.
        order = [*range(before), *range(before + 1, before + 1 + axis), before]
        result = result.transpose((*order, *range(len(order), result.ndim)))
    return result


def _row(outputs: Sequence[Any], i: int) -> Any:
    for output in outputs:
        if i < len(output):
            return output[i]
        i -= len(output)
    raise IndexError(i)


def _only_needed(outputs: Sequence[Any], rows: IntArray) -> tuple[list[Any], IntArray]:
    """Return the outputs that samples go to, and the places of samples in these.

    Of thousands of volumes, each has samples in few batches of a block, and is read on its own.
    """
    lengths = np.fromiter(map(len, outputs), np.int64, len(outputs))
    ends = np.cumsum(lengths)
    of_row = np.searchsorted(ends, rows, "right")
    needed, which = np.unique(of_row, return_inverse=True)
    begins = ends - lengths
    moved = np.cumsum(lengths[needed]) - lengths[needed]
    return [outputs[i] for i in needed.tolist()], rows - begins[of_row] + moved[which]


class Target:
    """Where the windows of some samples are read to.

    Parameters
    ----------
    source, origins, outputs, memory, rows
        As for :meth:`Source.read`.

    Attributes
    ----------
    inside
        int64 ``(n, ndim)``, first element of each window that is read.
    outputs, rows
        Arrays for windows of the shape that is read, and their places along the first axes of these, of any strides.
    """

    def __init__(
        self, source: Source, origins: IntArray, outputs: Sequence[Any], memory: Memory, rows: IntArray | None
    ) -> None:
        self._source, self._memory, self._samples = source, memory, source.targets(outputs)
        self._starts, self._origins = source.part.starts(origins), origins
        self.inside: IntArray = source.inside(origins)
        self._places = source.rows(np.arange(len(origins)) if rows is None else rows)
        self.outputs: list[Any] = self._samples
        # All windows, in their order, need no places.
        whole = rows is None and source.output.places == source.part.windows
        self.rows: IntArray | None = None if whole else self._places
        self._apart = source.is_apart
        if self._apart:
            shape = (len(self.inside), *source.read_shape)
            self.outputs, self.rows = [memory.results.empty(shape, source.array.dtype)], None

    def pad(self) -> None:
        """Fill what is outside of the array, once the windows have been read."""
        if self._source.part.posed is not None:
            samples = [_row(self._samples, i) for i in self._places.tolist()]
            windows = [self.outputs[0][i, ...] for i in range(len(samples))]
            self._source.pose(windows, self.inside, self._origins, samples, self._memory)
            return
        moved = np.arange(len(self.inside))
        if not self._apart:
            moved = np.flatnonzero((self.inside != self._starts).any(axis=1))
        for i in moved.tolist():
            sample = _row(self._samples, int(self._places[i]))
            window = self.outputs[0][i, ...] if self._apart else sample
            self._source.pad(sample, window, self._starts[i], self.inside[i], self._memory)
