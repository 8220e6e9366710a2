"""Jobs of the compiled loops as int64 arrays. Slots are filled here.

The slots are documented in ``gzarr_kernels.slots``. Jobs of ``gzarr_kernels.write`` and
``gzarr_kernels.index`` begin with the slots of ``read``, followed by their own. A slot that is not set is 0. Jobs of
small reads are prepared here, too; later only their ``FILL`` slot changes (:mod:`gzarr.engines.cpu.small_reads`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np
from gzarr_kernels.slots import batch as b
from gzarr_kernels.slots import geometry as g
from gzarr_kernels.slots import index
from gzarr_kernels.slots import read as r
from gzarr_kernels.slots import write as w
from gzarr_kernels.slots.conversion import NONE

from .kernels import FILE_FLAGS, address

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ..codecs.codec import ArrayRepresentation
    from ..plan.decode_program import Program
    from ..plan.encode_program import EncodingProgram
    from ..plan.planner import Plan

    IntArray = npt.NDArray[np.int64]

_CREATE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)


@dataclass(frozen=True, slots=True, eq=False)
class PlacedPieces:
    """A plan's columns of pieces, in placement dimensions.

    Attributes
    ----------
    start, count, target
        int64 ``(m, k)``: first element in the chunk, number of elements, first element in the output.
    output
        int64 ``(m,)``, number of the output.
    step
        int64 ``(k,)``, step in the chunk, in elements; at least one dimension.
    """

    start: IntArray
    count: IntArray
    target: IntArray
    output: IntArray
    step: IntArray


class ChunkElements(NamedTuple):
    """The elements of a decoded chunk.

    Attributes
    ----------
    shape, strides, order
        int64 ``(k,)``: shape, strides in bytes, dimensions from slowest to fastest.
    itemsize, swap, field_offset
        Bytes of a placed element in the output, of the units to swap (0 for none), and before the field in a stored
        element.
    conversion
        Number of the conversion of elements (``gzarr_kernels.slots.conversion``), and their bytes in the chunk; None if
        they are placed as they are.
    """

    shape: IntArray
    strides: IntArray
    order: IntArray
    itemsize: int
    swap: int
    field_offset: int = 0
    conversion: tuple[int, int] | None = None


class PlacedMemory(NamedTuple):
    """The memory of outputs (or inputs), which the caller keeps alive.

    Attributes
    ----------
    bases, strides
        int64 ``(g,)`` and ``(g, k)``: addresses, and strides in bytes.
    tables
        int64 ``(2, k)``: addresses of the index tables in the chunk and in the output, 0 where there is none.
    """

    bases: IntArray
    strides: IntArray
    tables: IntArray


class JobSlots:
    """A job, with the slots that several loops have in common.

    Parameters
    ----------
    array
        int64, contiguous zeros.

    Attributes
    ----------
    array
        int64, the slots.
    address
        Address of the first one, as loops take it.
    """

    def __init__(self, array: IntArray) -> None:
        self.array = array
        self.address: int = address(array)
        self._keep: list[Any] = []

    def copy(self) -> Self:
        """Return a job with the same slots, for some of its rows."""
        other = type(self).__new__(type(self))
        JobSlots.__init__(other, self.array.copy())
        other._keep.append(self)
        return other

    def keep(self, array: npt.NDArray[Any]) -> int:
        """Return the address of an array and keep it alive. A strided array is copied, so loops must only read it."""
        interface = array.__array_interface__
        # None for nearly all arrays, and faster than asking for the flags.
        if interface["strides"] is not None and not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
            interface = array.__array_interface__
        self._keep.append(array)
        result: int = interface["data"][0]
        return result

    def set_rows(self, count: int, shared: IntArray, chunk_rows: IntArray | None = None) -> None:
        """Set the rows (chunks, spans or shards) that the workers take.

        Parameters
        ----------
        count
            Number of rows.
        shared
            int64 ``(2,)``, or ``(3,)`` for reads with first touch; zeros, the counters that workers share.
        chunk_rows
            int64 ``(count,)``, planned chunk of each row; None where row and chunk are the same.
        """
        job = self.array
        job[r.SHARED] = self.keep(shared)
        job[r.SPANS] = count
        job[r.CHUNK_ROWS] = 0 if chunk_rows is None else self.keep(chunk_rows)

    def set_program(self, words: IntArray, operations: int, chunk_nbytes: int) -> None:
        """Set the operations, as ``gzarr_kernels.decode`` or ``encode`` reads them, and the size of a decoded chunk."""
        job = self.array
        job[r.PROGRAM] = self.keep(words)
        job[r.OPERATIONS] = operations
        job[r.CHUNK_NBYTES] = chunk_nbytes

    def set_pieces(self, offsets: IntArray, geometry: IntArray) -> None:
        """Set the first piece of each chunk, int64 ``(n + 1,)``, and the geometry, from :meth:`geometry`."""
        self.array[r.PIECE_OFFSETS] = self.keep(offsets)
        self.array[r.GEOMETRY] = self.keep(geometry)

    def geometry(
        self,
        pieces: PlacedPieces,
        chunk: ChunkElements,
        memory: PlacedMemory,
        into: IntArray | None = None,
        *,
        points: tuple[IntArray, IntArray] | None = None,
        dense_rows: int = 0,
        stream: bool = False,
    ) -> IntArray:
        """Return the slots of a geometry, for :meth:`set_pieces`.

        Parameters
        ----------
        pieces, chunk, memory
            The pieces, the elements of their chunks, and the memory that they are placed in (or taken from).
        into
            int64 ``(SIZE,)``, zeros, to fill; None for a new array.
        points
            For a point selection, int64 ``(p,)`` each: byte offsets in the chunk, addresses of the output's elements.
        dense_rows
            0, ``SINGLE_ELEMENTS`` or ``ANY_ROWS``.
        stream
            Whether rows are written past the caches.
        """
        geometry = np.zeros(g.SIZE, np.int64) if into is None else into
        k = len(pieces.step)
        tables_address = self.keep(memory.tables)
        geometry[g.K] = k
        geometry[g.ITEMSIZE] = chunk.itemsize
        geometry[g.SWAP] = chunk.swap
        geometry[g.FIELD_OFFSET] = chunk.field_offset
        geometry[g.START] = self.keep(pieces.start)
        geometry[g.COUNT] = self.keep(pieces.count)
        geometry[g.TARGET] = self.keep(pieces.target)
        geometry[g.OUTPUT] = self.keep(pieces.output)
        geometry[g.STEP] = self.keep(pieces.step)
        geometry[g.SOURCE_STRIDES] = self.keep(chunk.strides)
        geometry[g.BASES] = self.keep(memory.bases)
        geometry[g.TARGET_STRIDES] = self.keep(memory.strides)
        geometry[g.TABLE_SOURCE] = tables_address
        geometry[g.TABLE_TARGET] = tables_address + 8 * k
        geometry[g.ORDER] = self.keep(chunk.order)
        geometry[g.DENSE_ROWS] = dense_rows
        geometry[g.CHUNK_SHAPE] = self.keep(chunk.shape)
        if points is not None:
            geometry[g.POINT_SOURCE] = self.keep(points[0])
            geometry[g.POINT_TARGET] = self.keep(points[1])
        geometry[g.STREAM] = stream
        geometry[g.CONVERSION], geometry[g.SOURCE_ITEMSIZE] = chunk.conversion or (NONE, chunk.itemsize)
        return geometry

    def set_memory(self, where: IntArray, nbytes: IntArray) -> None:
        """Set addresses and sizes of the encoded chunks in memory, int64 ``(n,)`` each."""
        job = self.array
        job[r.MODE] = r.MODE_MEMORY
        job[r.WHERE] = self.keep(where)
        job[r.NBYTES] = self.keep(nbytes)

    def set_files(self, prefix: npt.NDArray[np.uint8], grid: IntArray, k: int, separator: int) -> None:
        """Set the files, one per chunk or shard.

        Parameters
        ----------
        prefix
            uint8, path up to the first coordinate.
        grid
            int64 ``(n, k)``, coordinates.
        k
            Number of coordinates.
        separator
            Code of the character between two of them.
        """
        job = self.array
        job[r.MODE] = r.MODE_FILES
        job[r.PATHS] = self.keep(prefix)
        job[r.PREFIX_NBYTES] = len(prefix)
        job[r.GRID] = self.keep(grid)
        job[r.COORDINATES] = k
        job[r.SEPARATOR] = separator
        job[r.OPEN_FLAGS : r.FOLDER_FLAGS + 1] = FILE_FLAGS

    def set_paths(self, paths: npt.NDArray[np.uint8], offsets: IntArray) -> None:
        """Set the files of byte ranges: NUL-terminated paths, as uint8; int64 ``(files + 1,)``, where each begins."""
        job = self.array
        job[r.MODE] = r.MODE_RANGES
        job[r.PATHS] = self.keep(paths)
        job[r.PATH_OFFSETS] = self.keep(offsets)
        job[r.OPEN_FLAGS : r.FOLDER_FLAGS + 1] = FILE_FLAGS

    def set_ranges(self, file: IntArray, offset: IntArray, nbytes: IntArray) -> None:
        """Set byte ranges: int64 ``(n,)``, file of each chunk, first byte there, size; below 0, it is absent."""
        job = self.array
        job[r.SPAN_FILE] = self.keep(file)
        job[r.WHERE] = self.keep(offset)
        job[r.NBYTES] = self.keep(nbytes)

    def set_spans(self, bounds: IntArray, file: IntArray, offset: IntArray, nbytes: IntArray) -> None:
        """Set the ranges that are read in one request each.

        Parameters
        ----------
        bounds
            int64 ``(spans + 1,)``, first row of each span.
        file, offset, nbytes
            int64 ``(spans,)``: file, first byte and size.
        """
        job = self.array
        job[r.SPAN_ROWS] = self.keep(bounds)
        job[r.SPAN_FILE] = self.keep(file)
        job[r.SPAN_OFFSET] = self.keep(offset)
        job[r.SPAN_NBYTES] = self.keep(nbytes)


class ReadSlots(JobSlots):
    """The job of a read, for ``gzarr_kernels.read.work``.

    Parameters
    ----------
    array
        int64, contiguous zeros to fill; None for a new array.
    """

    def __init__(self, array: IntArray | None = None) -> None:
        super().__init__(np.zeros(r.JOB_SIZE, np.int64) if array is None else array)

    def set_read(self, status: IntArray, most_encoded: int, fill: int, zeros: IntArray) -> None:
        """Set the slots that only reads have.

        Parameters
        ----------
        status
            int64 ``(n, 2)``, zeros; receives status and detail of each chunk.
        most_encoded
            Most bytes of an encoded chunk; larger ones are refused.
        fill
            Address of the element, or field of one, that fills absent chunks, or 0 if they are errors.
        zeros
            int64 ``(k,)``, strides of a chunk of fill values.
        """
        job = self.array
        job[r.STATUS] = self.keep(status)
        job[r.MOST_ENCODED] = most_encoded
        job[r.FILL] = fill
        job[r.ZERO_STRIDES] = self.keep(zeros)

    def set_first_touch(self, begin: int, nbytes: int) -> None:
        """Set address and size of new memory whose pages the workers make ready; 0 bytes for none."""
        self.array[r.NEW] = begin
        self.array[r.NEW_NBYTES] = nbytes


class IndexSlots(JobSlots):
    """The job of reading shard indexes, for ``gzarr_kernels.index.read_indexes``."""

    def __init__(self) -> None:
        super().__init__(np.zeros(index.JOB_SIZE, np.int64))

    def set_indexes(
        self,
        entries: npt.NDArray[np.uint64],
        entries_nbytes: int,
        file_nbytes: IntArray,
        status: IntArray,
        *,
        checksum: bool,
        at_start: bool,
    ) -> None:
        """Set the slots of reading shard indexes.

        Parameters
        ----------
        entries
            uint64, receives the entries of all shards whose status is 0.
        entries_nbytes
            Bytes of the entries of one shard.
        file_nbytes, status
            int64 ``(s,)`` and ``(s, 2)``, zeros; receive sizes of the files, and status and detail of each shard.
        checksum, at_start
            Whether a crc32c follows the entries; whether the index is at the start of the file.
        """
        job = self.array
        job[r.STATUS] = self.keep(status)
        job[index.ENTRIES_NBYTES] = entries_nbytes
        job[index.CHECKSUM] = checksum
        job[index.AT_START] = at_start
        job[index.INTO] = self.keep(entries)
        job[index.FILE_NBYTES] = self.keep(file_nbytes)


class BatchSlots(JobSlots):
    """The job of gathering rows of several arrays, for ``gzarr_kernels.batch.gather_rows``."""

    def __init__(self) -> None:
        super().__init__(np.zeros(b.JOB_SIZE, np.int64))

    def set_arrays(self, geometries: Sequence[IntArray]) -> None:
        """Set the geometry of each array, from :meth:`geometry`; its outputs (here: inputs) are the boxes' arrays."""
        self.array[b.GEOMETRIES] = self.keep(np.array([self.keep(geometry) for geometry in geometries], np.int64))

    def with_bases(self, geometry: IntArray, bases: IntArray) -> IntArray:
        """Return a geometry with other addresses of outputs (or inputs)."""
        other = geometry.copy()
        other[g.BASES] = self.keep(bases)
        return other

    def set_gathered(self, low: int, high: int, targets: IntArray, first_pieces: IntArray, before: IntArray) -> None:
        """Set what to gather.

        Parameters
        ----------
        low, high
            First row, and end.
        targets
            int64 ``(g,)``, address of the first row of each array.
        first_pieces, before
            int64 ``(g,)`` and ``(g + 1,)``: first piece of each array, and how many pieces come before its pieces.
        """
        job = self.array
        job[b.LOW], job[b.HIGH] = low, high
        job[b.TARGETS] = self.keep(targets)
        job[b.FIRST_PIECES] = self.keep(first_pieces)
        job[b.PIECES_BEFORE] = self.keep(before)


class WriteSlots(JobSlots):
    """The job of a write, for ``gzarr_kernels.write.work``.

    Parameters
    ----------
    array
        int64, contiguous zeros to fill; None for a new array.
    """

    def __init__(self, array: IntArray | None = None) -> None:
        super().__init__(np.zeros(w.JOB_SIZE, np.int64) if array is None else array)

    def set_write(
        self, fill: npt.NDArray[np.uint8], stored_fill: npt.NDArray[np.uint8], *, skip_fill: bool, direct: bool
    ) -> None:
        """Set the slots that only writes have.

        Parameters
        ----------
        fill, stored_fill
            uint8 ``(itemsize,)``: the fill value in native and in stored byte order.
        skip_fill
            Whether chunks that hold only the fill value are left out.
        direct
            Whether a chunk may be encoded straight from the input, if it lies there in stored order.
        """
        job = self.array
        job[r.FILL] = self.keep(fill)
        job[w.STORED_FILL] = self.keep(stored_fill)
        job[w.SKIP_FILL] = skip_fill
        job[w.DIRECT] = direct

    def set_values(
        self, state: IntArray, value: IntArray, turn: IntArray | None = None, slot: IntArray | None = None
    ) -> None:
        """Set the stored values that chunks go into.

        Parameters
        ----------
        state
            int64 ``(values, STATE_SIZE)``, state of each stored value.
        value, turn, slot
            int64 ``(rows,)``: stored value of each row, its turn among the value's rows, its entry in the value's
            index; the last two only for files.
        """
        job = self.array
        job[w.STATE] = self.keep(state)
        job[w.VALUE] = self.keep(value)
        if turn is not None:
            job[w.TURN] = self.keep(turn)
        if slot is not None:
            job[w.SLOT] = self.keep(slot)

    def set_temporary_files(self, prefix: npt.NDArray[np.uint8], token: int, *, durable: bool, slab: int) -> None:
        """Set how files are written.

        Parameters
        ----------
        prefix, token
            ASCII prefix of temporary names, as uint8; number in the first of them.
        durable
            Whether files are flushed to the disk before they are renamed.
        slab
            How many indices of the slowest dimension of an uncompressed chunk are written at a time; 0 for all.
        """
        job = self.array
        job[w.TEMPORARY] = self.keep(prefix)
        job[w.TEMPORARY_NBYTES] = len(prefix)
        job[w.TOKEN] = token
        job[w.CREATE_FLAGS] = _CREATE_FLAGS
        job[w.DURABLE] = durable
        job[w.SLAB] = slab

    def set_old(self, needed: IntArray, words: IntArray, operations: int, most_encoded: int) -> None:
        """Set what is needed of the old content of the job's rows, in their order, and the program that decodes it."""
        job = self.array
        job[w.OLD] = self.keep(needed)
        job[w.OLD_PROGRAM] = self.keep(words)
        job[w.OLD_OPERATIONS] = operations
        job[r.MOST_ENCODED] = most_encoded

    def set_old_shards(self, files: IntArray, offset: IntArray, nbytes: IntArray) -> None:
        """Set where old content is in shards: descriptors of their files, offset and size of each row, int64."""
        job = self.array
        job[w.OLD_FILE] = self.keep(files)
        job[w.OLD_OFFSET] = self.keep(offset)
        job[w.OLD_NBYTES] = self.keep(nbytes)

    def set_shards(self, indexes: npt.NDArray[np.uint64], *, checksum: bool, at_start: bool) -> None:
        """Set the indexes of shards to write.

        Parameters
        ----------
        indexes
            uint64 ``(values, entries, 2)``, all EMPTY.
        checksum, at_start
            Whether a crc32c follows the entries; whether the index is at the start of the file.
        """
        job = self.array
        job[w.INDEXES] = self.keep(indexes)
        job[w.ENTRIES] = indexes.shape[1]
        job[w.CHECKSUM] = checksum
        job[w.AT_START] = at_start


def placed_pieces(plan: Plan) -> PlacedPieces:
    """Return a plan's pieces. The element of an array without dimensions is the only one along one dimension."""
    if plan.chunks.shape[1]:
        return PlacedPieces(plan.start, plan.count, plan.target, plan.output, plan.step)
    zeros, ones = np.zeros((len(plan.start), 1), np.int64), np.ones((len(plan.start), 1), np.int64)
    return PlacedPieces(zeros, ones, zeros, plan.output, np.ones(1, np.int64))


def elements_of(chunk: ArrayRepresentation, program: EncodingProgram | Program) -> ChunkElements:
    """Return the elements of a chunk as a program leaves or takes them; the only one of an array without dimensions."""
    return ChunkElements(
        np.array(chunk.shape or (1,), np.int64),
        np.array(program.strides or (0,), np.int64),
        np.array(program.order or (0,), np.int64),
        chunk.dtype.itemsize,
        program.swap,
    )
