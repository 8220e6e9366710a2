"""Local files, which compiled code opens and reads itself: no Python runs per chunk, or per index of a shard."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...plan.keys import ChunkKeys, file_prefix
from .. import kernels, pool
from ..job_slots import IndexSlots
from ..kernels import address
from .access import Access

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from ..job_slots import JobSlots
    from .access import LoopWay, ReadRequest
    from .shard import Index, Shard

    IntArray = npt.NDArray[np.int64]

#: Byte ranges of a file with smaller gaps than this are read in one request.
GAP_BYTES: Final = 4096
#: Most bytes of such a request (a larger chunk has a request to itself).
SPAN_BYTES = 1 << 20


class Files(Access):
    """Access to local files.

    Parameters
    ----------
    store, root
        The store, and its ``file_root()``.
    """

    way: LoopWay = "compiled loop, files"

    def __init__(self, store: Any, root: bytes) -> None:
        super().__init__(store)
        self.root: bytes = root

    def reads_indexes(self, shard: Shard, keys: ChunkKeys) -> bool:
        """As :meth:`Access.reads_indexes`: compiled code knows plain indexes."""
        return shard.plain and {"loop", "crc32c"} <= kernels.available()

    def read_indexes(self, shard: Shard, keys: ChunkKeys) -> tuple[Index, IntArray, IntArray]:
        """As :meth:`Access.read_indexes`."""
        read_indexes = kernels.entry("index", "read_indexes")
        count = len(keys)
        entries = np.empty((count, shard.chunks, 2), np.uint64)
        file_nbytes = np.zeros(count, np.int64)
        status = np.zeros((count, 2), np.int64)
        slots = IndexSlots()
        slots.set_rows(count, np.zeros(2, np.int64))
        set_chunk_files(slots, self.root, keys)
        slots.set_indexes(
            entries, shard.chunks * 16, file_nbytes, status, checksum=shard.checksum, at_start=shard.at_start
        )

        def run(_: int) -> None:
            worker = kernels.take_worker()
            try:
                read_indexes(slots.address, worker.context_address, worker.scratch_address)
            finally:
                kernels.give_worker_back(worker)

        pool.run(run, min(pool.thread_count(), count))
        return entries, file_nbytes, status


def set_chunk_files(slots: JobSlots, root: bytes, keys: ChunkKeys) -> None:
    """Set the files of a job: compiled code makes their paths from the coordinates."""
    k = keys.chunks.shape[1]
    prefix = np.frombuffer(file_prefix(root, keys.prefix, keys.encoding, k), np.uint8)
    slots.set_files(prefix, keys.chunks, k, ord(keys.encoding.separator))


def paths_of(root: str, keys: Iterable[str]) -> tuple[npt.NDArray[np.uint8], IntArray]:
    """Return NUL-terminated paths of files, as uint8; int64 ``(files + 1,)``, where each begins."""
    paths = np.frombuffer(os.fsencode("".join([f"{root}/{key}\0" for key in keys])), np.uint8)
    ends = np.flatnonzero(paths == 0)
    begins = np.zeros(len(ends) + 1, np.int64)
    begins[1:] = ends + 1
    return paths, begins


class Places:
    """Where a job of compiled code finds the encoded chunks of a read: in files, in ranges of them, or in memory.

    Parameters
    ----------
    slots
        The job.
    request
        The read.
    join
        Whether neighbours in a file are read by one request: the job's rows are spans then. Otherwise, and if chunks
        are not ranges, they are chunks.

    Attributes
    ----------
    in_memory, in_ranges
        Whether chunks are in memory, as :meth:`put` says; whether they are ranges of files.
    turns, rows
        Number of the job's rows; int64, chunks in the order of the spans, None if they need no order.
    """

    def __init__(self, slots: JobSlots, request: ReadRequest, *, join: bool) -> None:
        plan, sources, root = request.plan, request.sources, request.access.root
        keys = sources.keys
        self.turns: int = len(plan)
        self.rows: IntArray | None = None
        self.in_memory: bool = root is None
        self.in_ranges: bool = False
        if root is None:
            self._where, self._nbytes = np.zeros((2, len(plan)), np.int64)
            slots.set_memory(self._where, self._nbytes)
            return
        if isinstance(keys, ChunkKeys) and keys.chunks is plan.chunks:
            set_chunk_files(slots, root, keys)
            return
        self.in_ranges = True
        slots.set_paths(*paths_of(os.fsdecode(root), sources.all_keys()))
        slots.set_ranges(sources.key_index, sources.offset, sources.nbytes)
        if join:
            spans = sources.join(np.arange(len(plan)), gap_bytes=GAP_BYTES, most_bytes=SPAN_BYTES)
            slots.set_spans(spans.bounds, spans.key_index, spans.offset, spans.nbytes)
            self.turns, self.rows = len(spans), spans.rows

    def put(self, rows: IntArray, values: Sequence[Any]) -> list[Any]:
        """Say where chunks are in memory; return what keeps it alive. None stands for absent ones."""
        buffers = [None if value is None else np.frombuffer(value, np.uint8) for value in values]
        self._where[rows] = [0 if buffer is None else address(buffer) for buffer in buffers]
        self._nbytes[rows] = [-1 if buffer is None else buffer.size for buffer in buffers]
        return buffers
