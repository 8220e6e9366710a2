"""The fast path for small reads of local files: a job is prepared once, and each read only fills in its numbers.

A read of a few chunks spends most of its time in Python, so there is as little Python here as possible: plain integers,
one NumPy assignment, one call of the compiled loop. After a failure, the caller reads again on the normal path, which
reports the error. Chunks in shards are read here if the indexes of their shards are known.
"""

from __future__ import annotations

import os
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from gzarr_kernels.slots import geometry as g
from gzarr_kernels.slots import read as r

from ...codecs.sharding import EMPTY
from ...errors import GzarrError
from ...plan.keys import file_prefix
from ...reasons import pass_on
from .. import kernels, pool
from ..access.files import paths_of
from ..access.shard import Shard
from ..access.sources import WHOLE
from ..job_slots import PlacedMemory, PlacedPieces, ReadSlots
from ..kernels import address

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import numpy.typing as npt

    from ...metadata.model import ChunkKeyEncoding
    from ...plan.decode_program import Decoding
    from ...plan.planner import Term
    from ..access.access import Access
    from ..monitor import Monitor
    from .native_program import NativeProgram

#: Most decoded bytes of the chunks of a small read.
SMALL_BYTES = 1 << 20
#: Most chunks of a small read: for more, NumPy is faster than plain Python.
MOST_SMALL_CHUNKS = 128
#: Most chunks of a read of chunks to an output each, and their most decoded bytes.
MOST_CHUNKS = 64
CHUNKS_BYTES = 16 << 20
#: More bytes than these are worth a second thread: of few chunks, and of many, since each is a file to open.
FEW_CHUNKS = 16
ALONE_BYTES = 256 << 10
MANY_ALONE_BYTES = 64 << 10
#: Most idle jobs kept, for each number of chunks and outputs.
_KEEP = 8
_EMPTY = int(EMPTY)

#: The arena of a job, and the job.
_Prepared: TypeAlias = "tuple[npt.NDArray[np.int64], ReadSlots]"


def small_reads_of(
    program: NativeProgram,
    decoding: Decoding,
    access: Access,
    prefix: str,
    encoding: ChunkKeyEncoding,
) -> SmallReads | None:
    """Return the fast path of one array, or None if it has none (no local files, no dimensions, nested shards).

    Parameters
    ----------
    program, decoding
        The array's decoding program, and the chain it is from.
    access, prefix, encoding
        Location of the chunks or shards: access, the node's path with a trailing slash, the chunk key encoding.
    """
    ndim = len(decoding.chunk.shape)
    if access.root is None or not ndim:
        return None
    if not decoding.levels:
        prefix_bytes = file_prefix(access.root, prefix, encoding, ndim)
        return SmallReads(program, prefix_bytes, ord(encoding.separator), ndim, decoding.most_encoded)
    level = decoding.levels[0]
    if len(decoding.levels) > 1 or level.uneven is not None:
        return None
    return SmallShardReads(program, access, prefix, encoding, decoding)


class SmallReads:
    """Small reads of one array whose chunks are files.

    Parameters
    ----------
    program
        Decoding program of a chunk.
    path_prefix
        Path of a chunk's file up to its first coordinate.
    separator
        Code of the character between coordinates.
    ndim
        Number of dimensions, at least 1.
    most_encoded
        As in :class:`gzarr.engines.access.access.ReadRequest`.
    """

    def __init__(
        self, program: NativeProgram, path_prefix: bytes, separator: int, ndim: int, most_encoded: int
    ) -> None:
        self._program = program
        self._most_encoded = most_encoded
        self._prefix = np.frombuffer(path_prefix, np.uint8)
        self._separator = separator
        self._ndim = ndim
        self._fill = address(program.fill)
        # Idle jobs by number of chunks and of outputs. Popping one is atomic, so threads never share a job.
        self._jobs: dict[tuple[int, int], deque[_Prepared]] = {}

    def read(self, rows: list[tuple[Term, ...]], step: tuple[int, ...], view: npt.NDArray[Any], *, fill: bool) -> bool:
        """Read whole elements of some chunks; return whether that succeeded.

        Parameters
        ----------
        rows
            The chunks, from :func:`gzarr.plan.planner.box_chunks`.
        step
            Step in the chunks along each dimension, in elements.
        view
            Output, with as many dimensions as the array.
        fill
            Whether absent chunks are filled; otherwise they are failures.
        """
        return self._read(rows, step, [view], None, fill=fill)

    def knows(self, rows: list[tuple[Term, ...]]) -> bool:
        """Return whether it is known where some chunks are, which :meth:`read` needs."""
        return True

    def read_chunks(
        self,
        coords: Sequence[tuple[int, ...]],
        outputs: Sequence[npt.NDArray[Any]],
        monitor: Monitor | None,
        *,
        fill: bool,
    ) -> bool:
        """Read chunks, cut at the array's end, each to an output of its own; return whether that succeeded.

        Parameters
        ----------
        coords, outputs
            Coordinates of each chunk, and an array of its shape and dtype.
        monitor
            Monitor of the read, or None.
        fill
            As for :meth:`read`.
        """
        rows = [
            tuple([(i, 0, n, 0) for i, n in zip(index, output.shape, strict=True)])
            for index, output in zip(coords, outputs, strict=True)
        ]
        return self._read(rows, (1,) * self._ndim, outputs, monitor, fill=fill)

    def _read(
        self,
        rows: list[tuple[Term, ...]],
        step: tuple[int, ...],
        views: Sequence[npt.NDArray[Any]],
        monitor: Monitor | None,
        *,
        fill: bool,
    ) -> bool:
        """Read boxes of chunks into one output, or one of each; return whether that succeeded."""
        return self._run(rows, None, None, step, views, monitor, fill=fill)

    def _run(
        self,
        rows: list[tuple[Term, ...]],
        places: Sequence[int] | None,
        paths: npt.NDArray[np.uint8] | None,
        step: tuple[int, ...],
        views: Sequence[npt.NDArray[Any]],
        monitor: Monitor | None,
        *,
        fill: bool,
    ) -> bool:
        """Run a job for one output, or for one of each chunk.

        ``places`` fill the columns of :meth:`_set_places`, by default with the chunks' coordinates; ``paths`` are those
        of the shards.
        """
        n, outputs = len(rows), len(views)
        jobs = self._jobs.setdefault((n, outputs), deque())
        try:
            prepared = jobs.pop()
        except IndexError:
            prepared = self._prepare(n, outputs)
        arena, slots = prepared
        # Comprehensions are calls up to Python 3.11, so there is none.
        coords, start, count, target = zip(*chain.from_iterable(rows), strict=True)
        numbers = [0, 0] * (n + 1)
        for view in views:
            numbers.append(address(view))
        for view in views:
            numbers += view.strides
        # Compiled code takes as many strides as the array has dimensions.
        assert len(numbers) == 2 * (n + 1) + outputs * (1 + self._ndim)
        numbers += (*step, *start, *count, *target, *(coords if places is None else places))
        job = slots.array
        try:
            arena[: len(numbers)] = numbers
        except OverflowError:
            return False
        job[r.FILL] = self._fill if fill else 0
        if paths is not None:
            job[r.PATHS] = address(paths)
        work = kernels.load()
        if n * self._program.chunk_nbytes <= (ALONE_BYTES if n <= FEW_CHUNKS else MANY_ALONE_BYTES):
            worker = kernels.take_worker()
            try:
                work(slots.address, worker.context_address, worker.scratch_address)
            finally:
                kernels.give_worker_back(worker, small=True)
        else:
            kernels.run(work, slots.address, arena[:2], n, min(pool.thread_count(), n), monitor)
        codes = arena[2 : 2 + 2 * n : 2].tolist()
        if len(jobs) < _KEEP:
            jobs.append(prepared)
        # 0 is success, 1 an absent chunk.
        worst: int = max(codes)
        if worst == 1 and monitor is not None:
            monitor.absent = True
        return worst <= (1 if fill else 0)

    def _prepare(self, n: int, outputs: int) -> _Prepared:
        """Return the arena of a job of ``n`` chunks, and the job.

        The arena holds the job and its columns. The columns that differ between reads come first, in the order of
        :meth:`_run`, so that one assignment fills them.
        """
        k = self._ndim
        program = self._program
        sizes = (
            2,
            2 * n,
            outputs,
            outputs * k,
            k,
            n * k,
            n * k,
            n * k,
            self._places(n),
            n,
            n + 1,
            2 * k,
            g.SIZE,
            r.JOB_SIZE,
        )
        arena = np.zeros(sum(sizes), np.int64)
        shared, status, base, strides, step, start, count, target, places, output, offsets, tables, geometry, job = (
            np.split(arena, np.cumsum(sizes[:-1]))
        )
        offsets[:] = range(n + 1)
        if outputs > 1:
            output[:] = range(n)
        slots = ReadSlots(job)
        slots.set_rows(n, shared)
        self._set_places(slots, places, offsets)
        slots.set_program(program.words, program.operations, program.chunk_nbytes)
        slots.set_read(status, self._most_encoded, 0, program.zeros)
        pieces = PlacedPieces(start, count, target, output, step)
        slots.geometry(pieces, program.elements, PlacedMemory(base, strides, tables), geometry)
        slots.set_pieces(offsets, geometry)
        return arena, slots

    def _places(self, n: int) -> int:
        """Return how many numbers say where ``n`` chunks are."""
        return n * self._ndim

    def _set_places(self, slots: ReadSlots, places: npt.NDArray[np.int64], every: npt.NDArray[np.int64]) -> None:
        """Set where the job's chunks are; ``every`` is 0 to n."""
        slots.set_files(self._prefix, places, self._ndim, self._separator)


class SmallShardReads(SmallReads):
    """Small reads of one array whose chunks are in shards, as far as the indexes of these are known.

    Parameters
    ----------
    program
        Decoding program of a chunk.
    access
        Access to the shards, in files.
    prefix, encoding
        The node's path with a trailing slash, and the encoding of the shards' keys.
    decoding
        The array's chain, with one level of shards of one shape.
    """

    def __init__(
        self,
        program: NativeProgram,
        access: Access,
        prefix: str,
        encoding: ChunkKeyEncoding,
        decoding: Decoding,
    ) -> None:
        ndim = len(decoding.chunk.shape)
        level, root = decoding.levels[0], access.root or b""
        super().__init__(program, root + b"/", 0, ndim, decoding.most_encoded)
        self._root = os.fsdecode(root)
        self._key_prefix, self._encoding = prefix, encoding
        self._access, self._version = access, access.version
        self._per_shard = [a // b for a, b in zip(level.shard_shape, level.inner_shape, strict=True)]
        # Distance of neighbours along each dimension in the index.
        self._strides = Shard.of(level, level.stored_shape).entries(np.eye(ndim, dtype=np.int64)).tolist()

    def _read(
        self,
        rows: list[tuple[Term, ...]],
        step: tuple[int, ...],
        views: Sequence[npt.NDArray[Any]],
        monitor: Monitor | None,
        *,
        fill: bool,
    ) -> bool:
        """As :meth:`SmallReads._read`; fail if an index is not known, or a shard was replaced during the read."""
        try:
            found = self._find(rows)
            if found is None:
                return False
            places, names, versions = found
            paths, begins = paths_of(self._root, names)
            places += [*begins.tolist(), *[0] * (len(rows) - len(names))]
            read = self._run(rows, places, paths, step, views, monitor, fill=fill)
            return read and [self._version(name) for name in names] == versions
        # The store may raise anything; the normal path reports it.
        except (GzarrError, OSError, ValueError) as error:
            pass_on(error)
            return False

    def knows(self, rows: list[tuple[Term, ...]]) -> bool:
        """Return whether the indexes of the shards are known."""
        try:
            return self._find(rows) is not None
        # As in a read.
        except (GzarrError, OSError, ValueError) as error:
            pass_on(error)
            return False

    def _find(self, rows: list[tuple[Term, ...]]) -> tuple[list[int], list[str], list[Hashable]] | None:
        """Return each chunk's shard, byte range, the shards' keys and versions; None if unknown, or wrong."""
        shards: dict[tuple[int, ...], tuple[int, Any]] = {}
        names: list[str] = []
        versions: list[Hashable] = []
        file_of, offsets, sizes = [], [], []
        for row in rows:
            shard = tuple([term[0] // per for term, per in zip(row, self._per_shard, strict=True)])
            known = shards.get(shard)
            if known is None:
                name = self._key_prefix + self._encoding.encode(shard)
                version = self._version(name)
                index = None if version is None else self._access.indexes.get((name, 0, WHOLE), version)
                if index is None:
                    return None
                known = shards[shard] = len(names), index
                names.append(name)
                versions.append(version)
            entry = 0
            for term, per, stride in zip(row, self._per_shard, self._strides, strict=True):
                entry += term[0] % per * stride
            offset, nbytes = known[1][entry].tolist()
            absent = offset == nbytes == _EMPTY
            if nbytes > self._most_encoded and not absent:
                # Nothing is allocated for it.
                return None
            file_of.append(known[0])
            offsets.append(0 if absent else offset)
            sizes.append(-1 if absent else nbytes)
        return [*file_of, *offsets, *sizes], names, versions

    def _places(self, n: int) -> int:
        return 4 * n + 1

    def _set_places(self, slots: ReadSlots, places: npt.NDArray[np.int64], every: npt.NDArray[np.int64]) -> None:
        n = len(every) - 1
        file, offset, nbytes, path_offsets = places[:n], places[n : 2 * n], places[2 * n : 3 * n], places[3 * n :]
        # Each chunk is a request of its own. Each read has its own paths.
        slots.set_paths(self._prefix, path_offsets)
        slots.set_ranges(file, offset, nbytes)
        slots.set_spans(every, file, offset, nbytes)
